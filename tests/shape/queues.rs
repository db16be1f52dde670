//! HTB at each transmit queue: what the kernel keeps and restores, beyond the tests of workers.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fairpath_testbed::{Need, Router, requires};
use fairpath_tests::Daemon;
use serde_json::Value;

use crate::scene::{Scene, for_a_time, number, settled, snapshot};
use crate::workers::{
    MBIT, RATES, SITE, SUBSCRIBERS, Senders, by_worker, captured, give_subscribers, rate, scene,
    subscriber, workers_of,
};

/// Kind and handle of each qdisc of an interface, without those that the kernel numbers.
fn qdiscs(scene: &Scene, interface: &str) -> Vec<String> {
    let command = ["tc", "qdisc", "show", "dev", interface];
    let output = scene.net.router.run(&command).unwrap();
    let words = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[1..].join(" ")
    };
    output.lines().map(words).collect()
}

fn senders(scene: &Scene, bps: f64) -> Senders {
    let all: Vec<Ipv4Addr> = (0..SUBSCRIBERS).map(subscriber).collect();
    let server: IpAddr = Router::SERVER.v4.into();
    Senders::start(&scene.net.client, &all, 2, server, bps)
}

/// Mbit/s at the server.
fn held(scene: &Scene, what: &str) -> f64 {
    let mbit = rate(&captured(scene, Duration::from_secs(2))) / MBIT;
    println!("{what}: {mbit:.2} Mbit/s");
    mbit
}

#[test]
fn a_removed_queue_leaves_its_rate_to_others() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene("kernel");
    let daemon = scene.shape(RATES, SITE);
    let senders = senders(&scene, 80.0 * MBIT);
    for_a_time(Duration::from_millis(500));
    let both = held(&scene, "two queues");
    assert!((39.0..=40.4).contains(&both), "{both}");
    let output = scene.command(&["status", "--cpus"]);
    let status = String::from_utf8_lossy(&output.stdout);
    println!("{status}");
    let of_queue = |line: &&str| line.trim_start().starts_with("queue ");
    // Of the line and of the class, up.
    assert!(status.lines().filter(of_queue).count() >= 4, "{status}");
    let command = ["ethtool", "-L", "wan", "tx", "1"];
    scene.net.router.run(&command).unwrap();
    for_a_time(Duration::from_millis(300));
    let before = by_worker_now(&daemon);
    let one = held(&scene, "one queue");
    assert!((39.0..=40.4).contains(&one), "{one}");
    let after = by_worker_now(&daemon);
    println!("{before:?}, then {after:?}");
    assert!(after[0] > before[0] && after[1] == before[1]);
    senders.finish();
    let site = settled(&daemon, "up", Some("site"));
    let count = |key: &str| number(&site, key);
    println!("{site:#}");
    assert_eq!(
        count("enqueued_packets"),
        count("sent_packets") + count("dropped_packets")
    );
    assert!(daemon.stop().success());
}

#[test]
fn added_queues_are_shaped_without_a_restart() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = Scene::with_spare_queues("kernel");
    give_subscribers(&scene);
    let daemon = scene.shape(RATES, SITE);
    let senders = senders(&scene, 80.0 * MBIT);
    for_a_time(Duration::from_millis(500));
    let two = held(&scene, "two queues");
    assert!((39.0..=40.4).contains(&two), "{two}");
    let before = by_worker_now(&daemon);
    let command = ["ethtool", "-L", "wan", "rx", "4", "tx", "4"];
    scene.net.router.run(&command).unwrap();
    held(&scene, "during the change");
    let four = held(&scene, "four queues");
    assert!((39.0..=40.4).contains(&four), "{four}");
    // Each of 16 flows is at any of four queues, by a hash.
    let after = by_worker_now(&daemon);
    println!("{before:?}, then {after:?}");
    assert!(after.len() == 4 && after[2] + after[3] > 100, "{after:?}");
    // The trees that ran continue, with their counts.
    assert!((0..2).all(|queue| after[queue] >= before[queue]));
    let about = snapshot(&daemon)["description"].to_string();
    assert!(about.contains("at each of 4 transmit queues"), "{about}");
    senders.finish();
    let site = settled(&daemon, "up", Some("site"));
    let count = |key: &str| number(&site, key);
    let ended = count("sent_packets") + count("dropped_packets");
    println!("{site:#}");
    // Packets between two readings of counters during the change count at one of them.
    assert!(count("enqueued_packets").abs_diff(ended) <= 50);
    assert!(daemon.stop().success());
}

#[test]
fn queues_have_parts_by_their_flows() {
    const FLOWS: usize = 5;
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene("kernel");
    let daemon = scene.shape(RATES, SITE);
    let server: IpAddr = Router::SERVER.v4.into();
    // An odd number: one queue has more. All may be at one, or two may share a bit of the count: then other ports
    // are tried. Leaves are FIFOs here, so flows of one queue have no equal parts.
    let is_by_flows = |_: &usize| {
        let (from, bps) = (&[subscriber(0)], 80.0 * MBIT);
        let senders = Senders::start(&scene.net.client, from, FLOWS, server, bps);
        for_a_time(Duration::from_millis(600));
        let before = by_worker_now(&daemon);
        for_a_time(Duration::from_secs(1));
        let now = by_worker_now(&daemon);
        let parts = ceilings(&daemon);
        assert!(senders.finish() > 0);
        let sent: Vec<u64> = now
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect();
        let share = |of: &[u64]| of[0] as f64 / of.iter().sum::<u64>() as f64;
        let (part, sent) = (share(&parts), share(&sent));
        let flows = (part * FLOWS as f64).round();
        println!("{parts:?}: {part:.3} of the ceiling, {sent:.3} of the packets: {flows} flows");
        let is_some = (1.0..FLOWS as f64).contains(&flows);
        is_some && (part - flows / FLOWS as f64).abs() < 0.02 && (part - sent).abs() < 0.05
    };
    assert!((0..8).any(|round| is_by_flows(&round)));
}

/// The part of each queue in the ceiling of the class, bit/s.
fn ceilings(daemon: &Daemon<'_>) -> Vec<u64> {
    let parts = workers_of(daemon, "up", "site");
    let ceil = |part: &Value| part["ceil_bps"].as_u64().unwrap();
    parts.iter().map(ceil).collect()
}

/// Packets that each queue sent of the class until now.
fn by_worker_now(daemon: &Daemon<'_>) -> Vec<u64> {
    snapshot(daemon);
    by_worker(daemon, "up", "site")
}

#[test]
fn divided_rates_outlive_a_kill_until_stop() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("tcpdump"));
    let scene = scene("kernel");
    let before = qdiscs(&scene, "wan");
    let daemon = scene.shape(RATES, SITE);
    let about = snapshot(&daemon)["description"].clone();
    assert!(
        about
            .as_str()
            .unwrap()
            .contains("at each of 2 transmit queues"),
        "{about}"
    );
    let running = qdiscs(&scene, "wan");
    assert!(running[0].starts_with("mq fa1c: root"), "{running:?}");
    let senders = senders(&scene, 80.0 * MBIT);
    for_a_time(Duration::from_millis(500));
    daemon.kill();
    let killed = held(&scene, "killed");
    assert!((39.0..=40.4).contains(&killed), "{killed}");
    let daemon = scene.start();
    let continued: Value = snapshot(&daemon)["description"].clone();
    assert!(
        continued.as_str().unwrap().contains("continued"),
        "{continued}"
    );
    assert_eq!(qdiscs(&scene, "wan"), running);
    let again = held(&scene, "started again");
    assert!((39.0..=40.4).contains(&again), "{again}");
    drop(senders);
    assert!(daemon.stop().success());
    assert_eq!(qdiscs(&scene, "wan"), before);
}
