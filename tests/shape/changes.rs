//! Changes of the router by other programs while a back end runs: it continues, or reports that it does not.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fairpath_bpf::{Dropper, Hook};
use fairpath_testbed::{
    Iperf3, Iperf3Run, Iperf3Server, LinkEnd, Need, Netns, Offloads, Router, Veth, requires,
};
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

/// Of [`CHANGES`], those that concern GSO packets: rules, qdisc, MTU, GRO.
const OF_GSO: [usize; 4] = [0, 3, 4, 9];

/// Received bit/s of Ethernet frames.
fn rate(scene: &Scene) -> f64 {
    rate_by(scene, "eth0")
}

fn rate_by(scene: &Scene, interface: &str) -> f64 {
    let read = || scene.net.client.link_counters(interface).unwrap().rx_bytes;
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
    survives_or_reports(port, Offloads::Off, &CHANGES);
}

by!(changes_with_gso_are_survived_or_reported: nfqueue, afxdp, kernel);

fn changes_with_gso_are_survived_or_reported(port: &'static str) {
    survives_or_reports(port, Offloads::On, &OF_GSO.map(|at| CHANGES[at]));
}

fn survives_or_reports(port: &'static str, offloads: Offloads, changes: &[[&str; 2]]) {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("iperf3"),
        Need::Tool("nft")
    );
    let scene = Scene::new(port, offloads);
    let daemon = scene.shape(RATES, "");
    let _download = download(&scene);
    for_a_time(Duration::from_secs(1));
    for [change, removal] in changes {
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

by!(a_route_to_another_interface_leaves_shaping: nfqueue, afxdp, kernel);

/// Only `lan` and `wan` are shaped: packets that the route leads elsewhere arrive, unshaped.
fn a_route_to_another_interface_leaves_shaping(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("iperf3"));
    let scene = Scene::new(port, Offloads::Off);
    let address = |last| IpAddr::from([10, 10, 3, last]);
    let _third = Veth::between(
        LinkEnd::new(&scene.net.router, "third").with_address(address(1), 24),
        LinkEnd::new(&scene.net.client, "eth1").with_address(address(2), 24),
    )
    .build()
    .unwrap();
    let daemon = scene.shape(RATES, "");
    let _download = download(&scene);
    for_a_time(Duration::from_secs(1));
    assert!(is_shaped(rate(&scene)));
    execute(
        &scene.net.router,
        "ip route add 10.10.1.2/32 via 10.10.3.2 dev third",
    );
    for_a_time(Duration::from_secs(1));
    let (by_lan, by_third) = (rate(&scene), rate_by(&scene, "eth1"));
    println!("{port}: {by_lan:.0} bit/s by lan, {by_third:.0} by the third interface");
    assert!(by_lan < 0.05 * LINE_BPS, "{port}: {by_lan} bit/s by lan");
    assert!(by_third > 2.0 * LINE_BPS, "{port}: {by_third} bit/s");
    assert!(runs(&daemon.status()));
    execute(
        &scene.net.router,
        "ip route del 10.10.1.2/32 via 10.10.3.2 dev third",
    );
    for_a_time(Duration::from_secs(2));
    let bps = rate(&scene);
    assert!(is_shaped(bps), "{port}: {bps} bit/s by lan again");
    assert!(runs(&daemon.status()));
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
