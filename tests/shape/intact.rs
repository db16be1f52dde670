//! Packets that pass are not changed: captures before and after the router, packet by packet.

use std::collections::HashMap;

use fairpath_testbed::{
    Capture, CaptureOptions, Iperf3, Iperf3Server, Need, Offloads, Ping, Router, requires,
};
use fairpath_wire::capture::Reader;

use crate::by;
use crate::scene::Scene;

by!(forwarded_packets_change_only_their_ttl: nfqueue, afxdp, kernel);

/// The IP packet of an Ethernet frame, without the fields that a router changes: TTL, and IPv4's checksum
/// over it. `None` for other frames than IP of the client and the server.
fn packet(frame: &[u8]) -> Option<Vec<u8>> {
    let mut ip = frame.get(14..)?.to_vec();
    let total = match ip.first()? >> 4 {
        4 => {
            let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            (ip[8], ip[10], ip[11]) = (0, 0, 0);
            let between = [Router::CLIENT.v4, Router::SERVER.v4].map(|a| a.octets());
            let has = |at: usize| between.iter().any(|a| ip[at..at + 4] == *a);
            (has(12) && has(16)).then_some(total)?
        }
        6 => {
            let total = 40 + usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
            ip[7] = 0;
            let between = [Router::CLIENT.v6, Router::SERVER.v6].map(|a| a.octets());
            let has = |at: usize| between.iter().any(|a| ip[at..at + 16] == *a);
            (has(8) && has(24)).then_some(total)?
        }
        _ => return None,
    };
    // Frames are padded.
    ip.truncate(total);
    Some(ip)
}

/// The number of times that each packet is in a capture.
fn packets(bytes: &[u8]) -> HashMap<Vec<u8>, i64> {
    let mut reader = Reader::new(std::io::Cursor::new(bytes)).unwrap();
    let mut all = HashMap::new();
    while let Some(record) = reader.next().unwrap() {
        if let Some(packet) = packet(record.data) {
            *all.entry(packet).or_default() += 1;
        }
    }
    all
}

fn forwarded_packets_change_only_their_ttl(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tcpdump"),
        Need::Tool("ethtool")
    );
    let scene = Scene::new(port, Offloads::Off);
    // Wide enough that nothing is dropped.
    let daemon = scene.shape("down = \"900mbit\"\nup = \"900mbit\"", "");
    scene.meet(&[Router::CLIENT.v4]);
    let options = CaptureOptions::default();
    let capture = |ns| Capture::start_anonymous(ns, "eth0", &options).unwrap();
    let captures = [&scene.net.client, &scene.net.server].map(capture);
    let server = Iperf3Server::start(&scene.net.client, 5201).unwrap();
    for ip in Router::CLIENT.both() {
        let transfer = Iperf3::to(ip, server.port())
            .bytes(1_000_000)
            .bitrate_bps(40_000_000);
        transfer.congestion("cubic").run(&scene.net.server).unwrap();
        // One, and in fragments.
        for size in [56, 4_000] {
            let report = Ping::to(ip)
                .count(5)
                .size(size)
                .run(&scene.net.server)
                .unwrap();
            assert_eq!(report.received, 5, "{ip} {size}: {report:?}");
        }
    }
    let [client, server] =
        captures.map(|capture| packets(&capture.stop().unwrap().bytes().unwrap()));
    let mut differences = Vec::new();
    for packet in client.keys().chain(server.keys()) {
        let count = |of: &HashMap<Vec<u8>, i64>| of.get(packet).copied().unwrap_or(0);
        if count(&client) != count(&server) {
            differences.push((packet.len(), packet[..packet.len().min(60)].to_vec()));
        }
    }
    println!(
        "{port}: {} packets at one side, {} at the other",
        client.len(),
        server.len()
    );
    assert!(client.len() > 1_500, "{}", client.len());
    let seen = daemon.status();
    assert!(
        differences.is_empty(),
        "{} differ: {:x?}; {:#}",
        differences.len(),
        &differences[..differences.len().min(4)],
        seen["shape"]
    );
}
