//! Drops of the kernel before the impairment are detected, and make a run invalid.

use std::net::UdpSocket;

use fairpath_testbed::{Need, Router, requires};

use crate::by;
use crate::scene::{Impaired, router};

by!(upstream_drops_are_named: xdp, afxdp);

/// Longer than what `lan` takes.
const LONG: usize = 1200;
const COUNT: u64 = 20;

fn upstream_drops_are_named(port: &'static str) {
    requires!(Need::Root, Need::Tool("ip"));
    let net = router();
    // A veth whose other end may send more drops that before its program, as it does when its ring is
    // full; only the other end counts that.
    let shorter = ["ip", "link", "set", "dev", "lan", "mtu", "1000"];
    net.router.run(&shorter).unwrap();
    let impaired = Impaired::between(&net, port, &["--loss", "0%"]);
    let sender = net.client.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    let sender = sender.unwrap();
    for _ in 0..COUNT {
        sender
            .send_to(&[0; LONG], (Router::SERVER.v4, 7777))
            .unwrap();
    }
    let ended = impaired.end();
    assert_eq!(ended.number("to-peer", "kernel_dropped_packets"), COUNT);
    assert_eq!(ended.report["valid"], false);
    let why = ended.report["reasons"].to_string();
    assert!(why.contains("dropped in the kernel before"), "{why}");
    assert_eq!(ended.status.code(), Some(1));
}
