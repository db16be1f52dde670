//! Rates, floors and ceilings as they are configured.

use std::net::IpAddr;
use std::time::Duration;

use fairpath_core::Prefix;
use fairpath_netlink::HtbClass;
use fairpath_shape::htb::base_quantum_bytes;
use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Ping, Router, requires, wait_for};
use fairpath_tests::htb::{FRAME, LINE, OTHER, Shaped, class, tree};
use fairpath_units::{Disturbed, Share, repeat_disturbed};

use super::site::{PATIENCE, Site, Stream, by_prefix, rates};

const MBIT: f64 = 1e6;

/// `measure` gives bit/s within `share` of the expected ones. It is repeated, since a processor may be taken from senders.
fn near(mut measure: impl FnMut() -> f64, expected: f64, share: f64, test: &str, what: &str) {
    repeat_disturbed(&format!("htb::rates::{test}"), 3, |_| {
        let measured = measure();
        let off = (measured - expected) / expected;
        let text = format!(
            "{what}: {:.3} Mbit/s, {:+.2} % off",
            measured / MBIT,
            off * 100.0
        );
        println!("{text}");
        Disturbed::unless(off.abs() <= share, text)
    });
}

fn client() -> Prefix {
    Prefix::new(Router::CLIENT.v4.into(), 32)
}

#[test]
fn a_20_mbit_class_is_within_2_percent() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let test = "a_20_mbit_class_is_within_2_percent";
    for offloads in [Offloads::Off, Offloads::On] {
        let site = Site::new(offloads);
        let only = tree(1_000_000_000, &[class(5, LINE, 20_000_000, 20_000_000)]);
        let mut shaped = site.shape(&only, &by_prefix(&[client()]), &[OTHER, 5]);
        let server = Iperf3Server::start(&site.net.client, 5201).unwrap();
        let bulk = Iperf3::to(Router::CLIENT.v4, server.port()).seconds(60);
        let bulk = bulk.start(&site.net.server).unwrap();
        let what = format!("TCP, offloads {offloads:?}");
        let rate = || rates(&mut shaped, &[5], 10_000_000)[0];
        near(rate, 20.0 * MBIT, 0.02, test, &what);
        drop(bulk);
        drop(server);
        let server = Iperf3Server::start(&site.net.client, 5202).unwrap();
        let _flood = site.flood(Router::CLIENT.v4.into(), server.port(), "40M");
        let what = format!("UDP, offloads {offloads:?}");
        let rate = || rates(&mut shaped, &[5], 10_000_000)[0];
        near(rate, 20.0 * MBIT, 0.02, test, &what);
        let other = shaped.class(OTHER).unwrap();
        assert!(other.packets < 10, "only what has no class: {other:?}");
    }
}

#[test]
fn floors_and_ceilings_hold_and_rest_is_borrowed() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let test = "floors_and_ceilings_hold_and_rest_is_borrowed";
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
    let alone = || rates(&mut shaped, &[6], 6_000_000)[0];
    near(alone, 10.0 * MBIT, 0.03, test, "alone, at its ceiling");
    let one = flood(0);
    let mut both = Vec::new();
    let line = || {
        both = rates(&mut shaped, &[5, 6], 15_000_000);
        both[0] + both[1]
    };
    near(line, 20.0 * MBIT, 0.03, test, "both together");
    assert!(both[0] >= 12.0 * MBIT * 0.98, "the first's floor: {both:?}");
    assert!(both[1] >= 4.0 * MBIT * 0.98, "the second's floor: {both:?}");
    drop(other);
    let waits = |shaped: &mut Shaped| shaped.class(6).unwrap().backlog_packets > 0;
    wait_for(PATIENCE, || (!waits(&mut shaped)).then_some(())).expect("the second's queue ends");
    let alone = || rates(&mut shaped, &[5], 12_500_000)[0];
    near(
        alone,
        20.0 * MBIT,
        0.03,
        test,
        "the first alone borrows all",
    );
    drop(one);
}

/// Datagrams of one class: their bytes, and how many a GSO packet has.
type Sizes = (u16, Option<usize>);

const SMALL: Sizes = (200, None);
const FULL: Sizes = (1448, None);
const GSO: Sizes = (1448, Some(44));

/// A line with a class for each of some hosts, whose floors have this rate.
struct Hosts {
    shaped: Shaped,
    site: Site,
    addresses: Vec<IpAddr>,
    minors: Vec<u16>,
    line_bps: u64,
}

impl Hosts {
    fn new(count: u16, line_bps: u64, floor_bps: u64) -> Hosts {
        let site = Site::new(Offloads::On);
        let addresses: Vec<_> = (10..10 + count)
            .map(|n| format!("10.10.1.{n}").parse::<IpAddr>().unwrap())
            .collect();
        let add = |ip: &IpAddr| format!("address add {ip}/24 dev eth0");
        let lines: Vec<_> = addresses.iter().map(add).collect();
        site.net.client.ip_batch(&lines).unwrap();
        let minors: Vec<u16> = (5..5 + count).collect();
        let of = |minor: &u16| HtbClass {
            quantum_bytes: base_quantum_bytes(line_bps, 1, 1, FRAME),
            ..class(*minor, LINE, floor_bps, line_bps)
        };
        let shared = tree(line_bps, &minors.iter().map(of).collect::<Vec<_>>());
        let prefixes: Vec<_> = addresses.iter().map(|ip| Prefix::new(*ip, 32)).collect();
        let all: Vec<u16> = [OTHER].iter().chain(&minors).copied().collect();
        let shaped = site.shape(&shared, &by_prefix(&prefixes), &all);
        Hosts {
            shaped,
            site,
            addresses,
            minors,
            line_bps,
        }
    }

    /// Streams to the first hosts, by the sizes of their packets: one and a half times the line together.
    fn flood(&self, sizes: &[Sizes]) -> Vec<Stream> {
        let wanted_bps = self.line_bps * 3 / 2 / sizes.len() as u64;
        let stream = |(host, (bytes, segments)): (&IpAddr, &Sizes)| {
            self.site.stream(*host, *bytes, *segments, wanted_bps)
        };
        self.addresses.iter().zip(sizes).map(stream).collect()
    }
}

/// The shares of classes that all want more, of a line of this rate.
fn shares(line_bps: u64, sizes: &[Sizes]) -> Vec<f64> {
    let mut hosts = Hosts::new(sizes.len() as u16, line_bps, 1_000_000);
    let _streams = hosts.flood(sizes);
    let got = rates(&mut hosts.shaped, &hosts.minors, line_bps / 8 * 5);
    let sum: f64 = got.iter().sum();
    got.iter()
        .map(|bps| bps / sum * sizes.len() as f64)
        .collect()
}

/// The full form has 2,000 Mbit/s, which takes both processors. Its small packets would be 700,000 a
/// second. HTB counts the bytes of a turn, so a leaf is off by less than one packet a turn: of the
/// 200,000 bytes of a turn at this rate, a small one is 0.1 %.
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

/// The p99 of pings to a sparse class, while eight send full packets at 20 Mbit/s.
fn sparse_p99(floor_bps: u64) -> Duration {
    let line_bps = 20_000_000;
    let mut hosts = Hosts::new(9, line_bps, floor_bps);
    let _streams = hosts.flood(&[FULL; 8]);
    rates(&mut hosts.shaped, &hosts.minors[..8], line_bps / 8);
    let ping = Ping::to(hosts.addresses[8]).count(300);
    let ping = ping.interval(Duration::from_millis(15));
    let report = ping.run(&hosts.site.net.server).unwrap();
    assert_eq!(report.received, 300, "{report:?}");
    report.quantile(0.99)
}

#[test]
fn sparse_classes_wait_for_turns_without_a_floor() {
    requires!(Need::Root, Need::Tool("ethtool"));
    repeat_disturbed(
        "htb::rates::sparse_classes_wait_for_turns_without_a_floor",
        3,
        |_| {
            // The pings take 52 kbit/s. Eight turns take 22 ms (docs/guide/shape.md).
            let [without, with] = [20_000, 1_000_000].map(sparse_p99);
            let what = format!("p99 {without:?} without a floor, {with:?} with one");
            println!("{what}");
            let short = without < Duration::from_millis(27) && with < Duration::from_millis(3);
            Disturbed::unless(short, what)
        },
    );
}
