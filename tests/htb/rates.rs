//! Rates, floors and ceilings as they are configured.

use std::net::IpAddr;

use fairpath_core::Prefix;
use fairpath_netlink::HtbClass;
use fairpath_shape::htb::base_quantum_bytes;
use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Router, requires, wait_for};
use fairpath_tests::htb::{FRAME, LINE, OTHER, Shaped, class, tree};
use fairpath_units::{Disturbed, Share, repeat_disturbed};

use super::site::{PATIENCE, Site, by_prefix, rates};

const MBIT: f64 = 1e6;

fn near(measured: f64, expected: f64, share: f64, what: &str) {
    let off = (measured - expected) / expected;
    println!(
        "{what}: {:.3} Mbit/s, {:+.2} % off",
        measured / MBIT,
        off * 100.0
    );
    assert!(
        off.abs() <= share,
        "{what}: {measured} bit/s, {expected} expected"
    );
}

fn client() -> Prefix {
    Prefix::new(Router::CLIENT.v4.into(), 32)
}

#[test]
fn a_20_mbit_class_is_within_2_percent() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    for offloads in [Offloads::Off, Offloads::On] {
        let site = Site::new(offloads);
        let only = tree(1_000_000_000, &[class(5, LINE, 20_000_000, 20_000_000)]);
        let mut shaped = site.shape(&only, &by_prefix(&[client()]), &[OTHER, 5]);
        let server = Iperf3Server::start(&site.net.client, 5201).unwrap();
        let bulk = Iperf3::to(Router::CLIENT.v4, server.port()).seconds(60);
        let bulk = bulk.start(&site.net.server).unwrap();
        let tcp = rates(&mut shaped, &[5], 10_000_000);
        near(
            tcp[0],
            20.0 * MBIT,
            0.02,
            &format!("TCP, offloads {offloads:?}"),
        );
        drop(bulk);
        drop(server);
        let server = Iperf3Server::start(&site.net.client, 5202).unwrap();
        let _flood = site.flood(Router::CLIENT.v4.into(), server.port(), "40M");
        let udp = rates(&mut shaped, &[5], 10_000_000);
        near(
            udp[0],
            20.0 * MBIT,
            0.02,
            &format!("UDP, offloads {offloads:?}"),
        );
        let other = shaped.class(OTHER).unwrap();
        assert!(other.packets < 10, "only what has no class: {other:?}");
    }
}

#[test]
fn floors_and_ceilings_hold_and_rest_is_borrowed() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let site = Site::new(Offloads::Off);
    // A line of 20: one is sure of 12, the other of 4 and never gets more than 10.
    let shared = tree(
        20_000_000,
        &[
            class(5, LINE, 12_000_000, 20_000_000),
            class(6, LINE, 4_000_000, 10_000_000),
        ],
    );
    let prefixes = Router::CLIENT.both().map(|ip| match ip.is_ipv4() {
        true => Prefix::new(ip, 32),
        false => Prefix::new(ip, 128),
    });
    let mut shaped = site.shape(&shared, &by_prefix(&prefixes), &[OTHER, 5, 6]);
    let servers = [5201, 5202].map(|port| Iperf3Server::start(&site.net.client, port).unwrap());
    let flood = |at: usize| site.flood(Router::CLIENT.both()[at], servers[at].port(), "30M");
    let other = flood(1);
    let alone = rates(&mut shaped, &[6], 6_000_000);
    near(alone[0], 10.0 * MBIT, 0.03, "alone, at its ceiling");
    let one = flood(0);
    let both = rates(&mut shaped, &[5, 6], 15_000_000);
    near(both[0] + both[1], 20.0 * MBIT, 0.03, "both together");
    assert!(both[0] >= 12.0 * MBIT * 0.98, "the first's floor: {both:?}");
    assert!(both[1] >= 4.0 * MBIT * 0.98, "the second's floor: {both:?}");
    drop(other);
    let waits = |shaped: &mut Shaped| shaped.class(6).unwrap().backlog_packets > 0;
    wait_for(PATIENCE, || (!waits(&mut shaped)).then_some(())).expect("the second's queue ends");
    let alone = rates(&mut shaped, &[5], 12_500_000);
    near(alone[0], 20.0 * MBIT, 0.03, "the first alone borrows all");
    drop(one);
}

/// Datagrams of one class: their bytes, and how many a GSO packet has.
type Sizes = (u16, Option<usize>);

const SMALL: Sizes = (200, None);
const FULL: Sizes = (1448, None);
const GSO: Sizes = (1448, Some(44));

/// The shares of classes that all want more, of a line of this rate.
fn shares(line_bps: u64, sizes: &[Sizes]) -> Vec<f64> {
    let site = Site::new(Offloads::On);
    let others = ["10.10.1.3", "10.10.1.4"].map(|ip| ip.parse::<IpAddr>().unwrap());
    for ip in others {
        let address = format!("{ip}/24");
        let words = ["ip", "address", "add", &address, "dev", "eth0"];
        site.net.client.run(&words).unwrap();
    }
    let hosts = [IpAddr::from(Router::CLIENT.v4), others[0], others[1]];
    let minors = [5, 6, 7];
    let of = |minor| HtbClass {
        quantum_bytes: base_quantum_bytes(line_bps, 1, 1, FRAME),
        ..class(minor, LINE, 1_000_000, line_bps)
    };
    let shared = tree(line_bps, &minors.map(of)[..sizes.len()]);
    let prefixes = hosts.map(|ip| Prefix::new(ip, 32));
    let mut shaped = site.shape(&shared, &by_prefix(&prefixes), &[OTHER, 5, 6, 7]);
    let _streams: Vec<_> = hosts
        .iter()
        .zip(sizes)
        .map(|(host, (bytes, segments))| {
            let wanted_bps = line_bps * 3 / 2 / sizes.len() as u64;
            site.stream(*host, *bytes, *segments, wanted_bps)
        })
        .collect();
    let got = rates(&mut shaped, &minors[..sizes.len()], line_bps / 8 * 5);
    let sum: f64 = got.iter().sum();
    got.iter()
        .map(|bps| bps / sum * sizes.len() as f64)
        .collect()
}

/// The full form has 2,000 Mbit/s, which takes both processors; small packets would take more.
#[test]
fn leaves_share_evenly_whatever_their_packet_sizes() {
    requires!(Need::Root, Need::Tool("ethtool"));
    // Below 200 Mbit/s, a GSO packet is longer than a turn (docs/guide/shape.md).
    let lines: [(u64, &[Sizes]); 3] = [
        (20_000_000, &[SMALL, FULL]),
        (200_000_000, &[SMALL, FULL, GSO]),
        (2_000_000_000, &[FULL, GSO]),
    ];
    let measured = Share::reported().choose(3, 2);
    for (line_bps, sizes) in &lines[..measured] {
        repeat_disturbed(
            "htb::rates::leaves_share_evenly_whatever_their_packet_sizes",
            3,
            |_| {
                let shares = shares(*line_bps, sizes);
                println!("{line_bps} bit/s: {shares:.3?} of an equal share");
                let even = shares.iter().all(|share| (share - 1.0).abs() < 0.1);
                Disturbed::unless(even, format!("{line_bps} bit/s: {shares:.3?}"))
            },
        );
    }
}
