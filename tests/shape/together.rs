//! Measuring, classes and shaping at once: the parts agree.

use std::net::IpAddr;

use fairpath_testbed::{
    Capture, CaptureOptions, Iperf3, Iperf3Server, Need, Offloads, Precision, Router, requires,
};
use fairpath_tests::rtt::read_capture;
use serde_json::json;

use crate::by;
use crate::scene::{Scene, number, settled};

const CLASSES: &str = r#"
[[class]]
name = "anna"
prefix = ["10.10.1.2", "fd00:10:1::2"]
down = "20mbit"
"#;

by!(round_trip_times_of_shaped_traffic_agree_with_a_capture: nfqueue, afxdp, kernel);

fn round_trip_times_of_shaped_traffic_agree_with_a_capture(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tcpdump"),
        Need::Tool("ethtool")
    );
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape("down = \"100mbit\"\nup = \"100mbit\"", CLASSES);
    scene.meet(&[Router::CLIENT.v4]);
    let file = scene.place.path("server.pcap");
    let options = CaptureOptions {
        precision: Precision::Nano,
        ..CaptureOptions::default()
    };
    let capture = Capture::start(&scene.net.server, "eth0", &file, &options).unwrap();
    let server = Iperf3Server::start(&scene.net.client, 5201).unwrap();
    let before = daemon.row("anna");
    for ip in Router::CLIENT.both() {
        let transfer = Iperf3::to(ip, server.port()).bytes(4_000_000).parallel(2);
        transfer.congestion("cubic").run(&scene.net.server).unwrap();
    }
    drop(capture.stop().unwrap());
    let line = settled(&daemon, "down", None);
    let row = daemon.row("anna");
    let records = read_capture(&file, &[]);
    let is_client = |ip: IpAddr| Router::CLIENT.both().contains(&ip);
    // The server's data on its way to the client and back: the leg inside.
    let offline: Vec<u64> = (records.samples.iter())
        .filter(|sample| is_client(sample.dst))
        .map(|sample| sample.rtt_ns)
        .collect();
    let samples = |row: &serde_json::Value| row["inside"]["total"]["samples"].as_u64().unwrap_or(0);
    let live = samples(&row) - samples(&before);
    let detail = daemon.query(&json!({"verb": "detail", "class": "anna", "limit": 10}));
    println!(
        "{port}: {live} samples live, {} in the capture; {}",
        offline.len(),
        row["down_queue"]
    );
    assert!(live > 100, "{row:#}");
    let off = live.abs_diff(offline.len() as u64);
    assert!(
        off * 50 <= live,
        "{live} live, {} in the capture",
        offline.len()
    );
    let sum = |row: &serde_json::Value| row["inside"]["total"]["sum_ns"].as_u64().unwrap_or(0);
    let means = [
        (sum(&row) - sum(&before)) as f64 / live as f64 / 1e6,
        offline.iter().sum::<u64>() as f64 / offline.len() as f64 / 1e6,
    ];
    println!("{port}: mean round-trip times {means:.3?} ms");
    // The capture is one link further out; a late thread counts for one or both.
    assert!(
        (means[0] - means[1]).abs() <= 0.05 * means[1] + 1.0,
        "{means:?}"
    );
    // The three parts' counts: what the monitor counted in came to be scheduled; what left the
    // scheduler and what it dropped is what came.
    let queue = &row["down_queue"];
    let arrived = number(queue, "enqueued_packets");
    assert_eq!(
        arrived,
        number(queue, "sent_packets") + number(queue, "dropped_packets"),
        "{queue:#}"
    );
    let measured = row["down"]["packets"].as_u64().unwrap_or(0);
    let expected = match port {
        // Seen where it comes in: dropped packets are in it.
        "afxdp" => arrived,
        // Seen at tcx egress: before the kernel's queue, behind netfilter's.
        "kernel" => arrived,
        _ => number(queue, "sent_packets"),
    };
    let off = measured.abs_diff(expected);
    assert!(
        off <= 4,
        "{measured} measured, {expected} expected: {row:#} {line:#}"
    );
    assert!(
        detail["detail"]["row"]["down_queue"].is_object(),
        "{detail:#}"
    );
}
