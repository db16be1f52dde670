//! Connection tracking and masquerading behind NFQUEUE: packets of flows that are not confirmed yet.
//!
//! A flow is confirmed when its first packet leaves; those that are delayed until then have
//! separate connections, which the kernel merges afterwards. It does not merge segments of a UDP GSO
//! packet, and drops them after our verdict (`docs/guide/impair.md`).

use fairpath_testbed::{Feature, Need, Router, requires};

use crate::scene::{Ended, Impaired, Scene, router, router_with_offloads};
use crate::stream::{Course, Stream};

const COUNT: u32 = 400;
const FLOWS: usize = 4;
/// Ten are on their way before the first of a flow leaves; they pass each other.
const SPEC: &str = "delay 20ms jitter 5ms distribution normal order free";

/// Flows get another address, and only what is tracked passes.
fn track(net: &Scene) {
    for rule in [
        "-t nat -A POSTROUTING -o wan -j MASQUERADE",
        "-A FORWARD -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT",
        "-P FORWARD DROP",
    ] {
        let words: Vec<&str> = rule.split(' ').collect();
        net.router
            .run(&[&["iptables-legacy"], &words[..]].concat())
            .unwrap();
    }
}

/// Flows in trains of `together`, held, and how it ended.
fn through(net: &Scene, together: u32) -> (Stream, Ended) {
    track(net);
    let impaired = Impaired::between(net, "nfqueue", &["--to-peer", SPEC]);
    let course = Course::new(&net.client, &net.server, Router::SERVER.v4, COUNT);
    let stream = course.flows(FLOWS).together(together).run(COUNT as usize);
    let ended = impaired.end();
    ended.assert_true_or_late();
    assert_eq!(ended.number("to-peer", "sent_packets"), u64::from(COUNT));
    let masqueraded = stream
        .sources
        .iter()
        .all(|from| from.ip() == Router::WAN.v4);
    assert!(masqueraded, "{:?}", stream.sources);
    (stream, ended)
}

/// All come, and a flow stays one flow.
fn assert_whole(net: &Scene, together: u32) {
    let (stream, ended) = through(net, together);
    assert_eq!(stream.numbers().len(), COUNT as usize, "some are missing");
    assert_eq!(stream.sources.len(), FLOWS, "{:?}", stream.sources);
    assert_eq!(ended.number("to-peer", "stopped_packets"), 0);
}

#[test]
fn masqueraded_flows_lose_nothing_before_they_are_confirmed() {
    requires!(Need::Root, Need::Kernel(Feature::Masquerade));
    assert_whole(&router(), 1);
}

#[test]
fn trains_without_gso_are_not_merged() {
    requires!(
        Need::Root,
        Need::Kernel(Feature::Masquerade),
        Need::Tool("ethtool")
    );
    let net = router_with_offloads();
    let set = ["ethtool", "-K", "eth0", "tx-udp-segmentation", "off"];
    net.client.run(&set).unwrap();
    assert_whole(&net, 10);
}

#[test]
fn drops_after_the_verdict_are_reported() {
    requires!(Need::Root, Need::Kernel(Feature::Masquerade));
    let (stream, ended) = through(&router_with_offloads(), 10);
    // How many that is, is the kernel's; this host sends next to nothing itself, so they are seen.
    let missing = u64::from(COUNT) - stream.numbers().len() as u64;
    println!("{missing} segments of GSO packets are missing");
    let stopped = ended.number("to-peer", "stopped_packets");
    assert!(
        (missing.saturating_sub(8)..=missing).contains(&stopped),
        "{stopped}"
    );
    let reported = format!("at least {stopped} dropped after it");
    assert!(
        stopped == 0 || ended.stderr.contains(&reported),
        "{}",
        ended.stderr
    );
}
