//! A SYN flood takes no established flow's place.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Router, Testbed, requires};
use fairpath_tests::Rtt;
use fairpath_tests::flood::{Flood, SOURCES};
use fairpath_tests::flows::Flows;

/// Twice what the half-open table holds: on a slow machine the flood lasts until they are sent.
const MIN_SYNS: u64 = 40_000;

/// No flow of `count` loses its place while SYNs from everywhere pass for `time`.
fn every_flow_keeps_its_place(count: usize, time: Duration) {
    let router = Router::new(&Testbed::new()).unwrap();
    let blackhole = ["ip", "route", "add", "blackhole", SOURCES];
    router.server.run(&blackhole).unwrap();
    let rtt = Rtt::watch(&router.router, &["lan", "wan"], &[]);
    let to = Router::SERVER.v4;
    let mut flows = Flows::open(&router.client, &router.server, to.into(), count).unwrap();
    flows.exchange().unwrap();

    let begin = Instant::now();
    let flood = Flood::start(&router.client, to, 9, 100_000).unwrap();
    let mut rounds: u64 = 0;
    while begin.elapsed() < time || rounds < 2 || flood.sent() < MIN_SYNS {
        flows.exchange().unwrap();
        rounds += 1;
    }
    let sent = flood.stop().unwrap();
    let seconds = begin.elapsed().as_secs_f64();
    // Who lost its place in the flood would be opened once more here.
    flows.exchange().unwrap();
    let records = rtt.stop();

    let started = records.number("/counters/half_open_started");
    println!(
        "{sent} SYNs in {seconds:.1} s ({:.0} a second), {started} half-open flows started, {} evicted; \
         {count} flows, {rounds} rounds, {} samples",
        sent as f64 / seconds,
        records.number("/counters/half_open_evicted"),
        records.samples.len()
    );
    assert!(started > MIN_SYNS / 2, "{started}: that was no flood");
    assert!(records.number("/counters/half_open_evicted") > 0);
    // Counted in the kernel: what the flood costs the reader (lost events) is another matter.
    for (counter, expected) in [
        ("flows_evicted", 0),
        ("flows_refused", 0),
        ("one_sided_flows", 0),
        ("flows_opened", count as u64),
    ] {
        let pointer = format!("/counters/{counter}");
        assert_eq!(records.number(&pointer), expected, "{counter}");
    }
    let mut samples: HashMap<u16, u64> = HashMap::new();
    for flow in records.flows.iter().filter(|f| f["event"] == "alive") {
        for side in flow["sides"].as_array().unwrap() {
            if side["address"] != to.to_string() {
                let port = side["port"].as_u64().unwrap() as u16;
                *samples.entry(port).or_default() += taken(flow);
            }
        }
    }
    for port in flows.ports().unwrap() {
        // Each exchange is acknowledged both ways; lost segments may cost a sample or two.
        let taken = samples.get(&port).copied().unwrap_or(0);
        assert!(
            taken >= rounds,
            "flow of port {port}: {taken} samples in {rounds} rounds"
        );
    }
}

/// Samples of both directions of a flow record, reported or not.
fn taken(flow: &serde_json::Value) -> u64 {
    let sides = flow["sides"].as_array().unwrap();
    sides.iter().map(|s| s["samples"].as_u64().unwrap()).sum()
}

#[test]
fn a_syn_flood_takes_no_flows_place() {
    requires!(Need::Root);
    every_flow_keeps_its_place(2_000, Duration::from_secs(5));
}

#[cfg(feature = "soak")]
#[test]
fn soak_a_syn_flood_evicts_no_flow() {
    requires!(Need::Root);
    // Both ends are sockets of this process: its limit may be a little less than 20,000.
    let count = Flows::possible(10_000).unwrap();
    assert!(count > 5_000, "descriptors for {count} flows only");
    every_flow_keeps_its_place(count, Duration::from_secs(60));
}
