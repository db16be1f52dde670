//! Packets of 9,000 bytes.

use std::time::Duration;

use fairpath_testbed::{Need, Router, requires};

use crate::by;
use crate::scene::{Counted, Numbered, Scene, for_a_time, number, settled, upstream_lost};

const CLASSES: &str = "[[class]]\nname = \"anna\"\nprefix = \"10.10.1.2\"\ndown = \"60mbit\"\n";
/// Payload of UDP.
const PAYLOAD: usize = 8_900;
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;

by!(jumbo_packets_are_shaped_whole: nfqueue, afxdp);

fn jumbo_packets_are_shaped_whole(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::jumbo(port);
    let daemon = scene.shape("down = \"200mbit\"", CLASSES);
    scene.meet(&[Router::CLIENT.v4]);
    let before = settled(&daemon, "down", Some("anna"));
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    // 36 Mbit/s, and then more than the class may send.
    for every in [2_000, 500] {
        let every = Duration::from_micros(every);
        let source = Numbered::start(&scene.net.server, scene.to_client(), every, PAYLOAD);
        for_a_time(Duration::from_secs(1));
        source.finish();
    }
    let arrived = sink.drain(Duration::from_secs(1)).count;
    let queue = settled(&daemon, "down", Some("anna"));
    let since = |key| number(&queue, key) - number(&before, key);
    let bytes = (PAYLOAD + HEADERS) as u64;
    println!("{port}: {arrived} arrived: {queue:#}");
    assert!(
        arrived > 600 && since("sent_packets") == arrived,
        "{arrived}"
    );
    assert_eq!(since("sent_bytes"), arrived * bytes);
    assert!(since("dropped_packets") > 100, "above its rate: {queue:#}");
    assert_eq!(
        since("enqueued_packets"),
        since("sent_packets") + since("dropped_packets")
    );
    assert_eq!(upstream_lost(&daemon, port, "down"), 0);
}
