//! Packets in = out + held + dropped by named reason.

use std::time::Duration;

use fairpath_testbed::{Need, Offloads, Router, requires};

use crate::by;
use crate::scene::{BERT, Counted, Numbered, Scene, for_a_time, number, settled, upstream_lost};

const CLASSES: &str = r#"
[[class]]
name = "anna"
prefix = "10.10.1.2"
down = "4mbit"
[[class]]
name = "bert"
prefix = "10.10.1.3"
down = "40mbit"
"#;

by!(at_overload_every_packet_is_sent_held_or_dropped_for_a_reason: nfqueue, afxdp, kernel);

fn at_overload_every_packet_is_sent_held_or_dropped_for_a_reason(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(
        "down = \"50mbit\"\nup = \"50mbit\"\npackets = 1000",
        CLASSES,
    );
    scene.meet(&[Router::CLIENT.v4, BERT]);
    let names = ["anna", "bert"];
    let before = names.map(|name| settled(&daemon, "down", Some(name)));
    let sinks = [Router::CLIENT.v4, BERT].map(|at| Counted::bind(&scene.net.client, at.into()));
    // 16 Mbit/s to each: one has 4, the other 40.
    let every = Duration::from_micros(500);
    let sources = [Router::CLIENT.v4, BERT]
        .map(|to| Numbered::start(&scene.net.server, to.into(), every, 958));
    for_a_time(Duration::from_secs(3));
    let sent = sources.map(Numbered::finish);
    let arrived = sinks
        .each_ref()
        .map(|sink| sink.drain(Duration::from_secs(2)).count);
    let line = settled(&daemon, "down", None);
    for (at, name) in names.into_iter().enumerate() {
        let queue = settled(&daemon, "down", Some(name));
        let (sent, arrived) = (sent[at], arrived[at]);
        let since = |key| number(&queue, key) - number(&before[at], key);
        println!("{port} {name}: {sent} sent, {arrived} came; {queue}");
        // Drops of the kernel before the scheduler, in its columns, are those of both.
        assert!(since("enqueued_packets") <= sent, "{queue:#}");
        assert_eq!(since("sent_packets"), arrived, "{queue:#}");
        let by_reason = queue["dropped_packets_by_reason"]
            .as_object()
            .map_or(0, |reasons| {
                reasons.values().filter_map(serde_json::Value::as_u64).sum()
            });
        assert_eq!(by_reason, since("dropped_packets"), "{queue:#}");
        assert_eq!(since("enqueued_packets"), arrived + by_reason, "{queue:#}");
    }
    assert!(arrived[0] < sent[0] / 2, "four of sixteen");
    let lost = upstream_lost(&daemon, port, "down");
    assert!(
        arrived[1] + lost >= sent[1] * 98 / 100,
        "the queue has capacity"
    );
    let of = |key| number(&line, key);
    assert_eq!(
        of("enqueued_packets"),
        of("sent_packets") + of("dropped_packets") + of("backlog_packets"),
        "{line:#}"
    );
    // In sum there may be more: the router's own packets, neighbour discovery.
    let lost = upstream_lost(&daemon, port, "down");
    assert!(
        of("enqueued_packets") + lost >= sent[0] + sent[1],
        "{lost} {line:#}"
    );
}
