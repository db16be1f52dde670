//! Rates, floors and ceilings as they are configured.

use fairpath_core::Prefix;
use fairpath_testbed::{Iperf3, Iperf3Server, Need, Offloads, Router, requires, wait_for};
use fairpath_tests::htb::{LINE, OTHER, Shaped, class, tree};

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
