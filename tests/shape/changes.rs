//! Changes of the router by other programs while a back end runs: it continues, or reports that it does not.

use std::time::{Duration, Instant};

use fairpath_bpf::{Dropper, Hook};
use fairpath_testbed::{Iperf3, Iperf3Run, Iperf3Server, Need, Netns, Offloads, Router, requires};
use fairpath_units::IfIndex;
use nix::net::if_::if_nametoindex;
use serde_json::Value;

use crate::by;
use crate::later::runs;
use crate::programs::attach;
use crate::scene::{Scene, for_a_time};

const RATES: &str = "down = \"20mbit\"\nup = \"20mbit\"";
const LINE_BPS: f64 = 20e6;

/// A change, and its removal.
const CHANGES: [[&str; 2]; 10] = [
    ["nft flush ruleset", ""],
    ["iptables-legacy -t mangle -F", ""],
    ["tc qdisc del dev lan root", ""],
    [
        "tc qdisc replace dev lan root pfifo",
        "tc qdisc del dev lan root",
    ],
    ["ip link set lan mtu 1450", "ip link set lan mtu 1500"],
    [
        "ip address add 10.77.0.1/24 dev lan",
        "ip address del 10.77.0.1/24 dev lan",
    ],
    [
        "ip route add 10.10.1.2/32 dev lan",
        "ip route del 10.10.1.2/32 dev lan",
    ],
    ["ip neigh flush dev lan", ""],
    ["tc qdisc add dev lan clsact", "tc qdisc del dev lan clsact"],
    ["ethtool -K lan gro on", "ethtool -K lan gro off"],
];

/// Received bit/s of Ethernet frames.
fn rate(scene: &Scene) -> f64 {
    let read = || scene.net.client.link_counters("eth0").unwrap().rx_bytes;
    let (begin, before) = (Instant::now(), read());
    for_a_time(Duration::from_millis(800));
    (read() - before) as f64 * 8.0 / begin.elapsed().as_secs_f64()
}

/// The rate is not exceeded. A connection repeats packets that a change lost, which takes a while.
fn is_shaped(bps: f64) -> bool {
    (0.5 * LINE_BPS..1.05 * LINE_BPS).contains(&bps)
}

/// A connection that would use more than the line, until dropped.
fn download(scene: &Scene) -> (Iperf3Server, Iperf3Run) {
    let server = Iperf3Server::start(&scene.net.client, 5201).unwrap();
    let flow = Iperf3::to(Router::CLIENT.v4, server.port()).seconds(600);
    let run = flow.start(&scene.net.server).unwrap();
    (server, run)
}

fn execute(router: &Netns, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    // A qdisc that a back end does not have cannot be deleted.
    if let (Err(error), false) = (router.run(&words), line.contains(" del ")) {
        panic!("{line}: {error}");
    }
}

by!(changes_by_others_are_survived_or_reported: nfqueue, afxdp, kernel);

fn changes_by_others_are_survived_or_reported(port: &'static str) {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("iperf3"),
        Need::Tool("nft")
    );
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let _download = download(&scene);
    for_a_time(Duration::from_secs(1));
    for [change, removal] in CHANGES {
        execute(&scene.net.router, change);
        // Lost packets are sent again, and a back end that starts again has its burst.
        for_a_time(Duration::from_secs(1));
        let bps = rate(&scene);
        let shape = daemon.status()["shape"].clone();
        let continues = shape["running"] == true && is_shaped(bps);
        let is_reported = shape["running"] == false && shape["failure"] != Value::Null;
        println!(
            "{port}, {change}: {bps:.0} bit/s, failure {}",
            shape["failure"]
        );
        assert!(
            continues || is_reported,
            "{port}, {change}: {bps} bit/s, {shape:#}"
        );
        assert!(bps > 0.5 * LINE_BPS, "{port}, {change}: {bps} bit/s");
        if !removal.is_empty() {
            execute(&scene.net.router, removal);
        }
        daemon.status_when("again", runs);
        for_a_time(Duration::from_secs(1));
        let bps = rate(&scene);
        assert!(is_shaped(bps), "{port}, after {change}: {bps} bit/s");
    }
    assert!(daemon.stop().success());
}

by!(programs_ahead_are_in_the_status: nfqueue, kernel);

/// They can end packets, which then have no class.
fn programs_ahead_are_in_the_status(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let has_note = |status: &Value| status["notes"].to_string().contains("pass_egress");
    let program = attach(&scene, "lan", Hook::TcxEgress);
    daemon.status_when("reported", has_note);
    drop(program);
    daemon.status_when("forgotten", |status| !has_note(status));
    assert!(daemon.stop().success());
}

by!(an_xdp_program_of_others_changes_nothing: nfqueue, kernel);

fn an_xdp_program_of_others_changes_nothing(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("iperf3"));
    let scene = Scene::new(port, Offloads::Off);
    let daemon = scene.shape(RATES, "");
    let _download = download(&scene);
    let attach = || {
        let index = IfIndex(if_nametoindex("wan").unwrap());
        Dropper::attach(index, "wan", 0.0, 0).unwrap()
    };
    let _dropper = scene.net.router.enter(attach).unwrap();
    for_a_time(Duration::from_secs(1));
    let bps = rate(&scene);
    assert!(is_shaped(bps), "{bps} bit/s");
    assert!(runs(&daemon.status()));
    assert!(daemon.stop().success());
}
