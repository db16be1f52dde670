//! The router's own traffic, by the shaped interfaces: subscribers keep their share of the line.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use fairpath_testbed::{
    Iperf3, Iperf3Server, Need, Netns, Offloads, Ping, PingReport, Router, requires,
};

use crate::by;
use crate::scene::{BERT, Numbered, Scene, for_a_time, number, queue, snapshot};

/// One subscriber. All other packets, also the router's, are of the class `other`.
const CLASSES: &str = "[[class]]\nname = \"anna\"\nprefix = \"10.10.1.2/32\"\n";
const RATES: &str = "down = \"20mbit\"\nup = \"20mbit\"";
/// The router sends for this time, at many times the link rate.
const LOAD: u32 = 2;
/// One ping each.
const EVERY: Duration = Duration::from_millis(20);
/// Pings while the router sends, and for as long again.
const PINGS: u32 = 2 * LOAD * 50;

/// By which link the router sends.
#[derive(Clone, Copy)]
enum Towards {
    /// Another subscriber.
    Neighbour,
    Internet,
}

impl Towards {
    fn end(self, scene: &Scene) -> (&Netns, Ipv4Addr) {
        match self {
            Towards::Neighbour => (&scene.net.client, BERT),
            Towards::Internet => (&scene.net.server, Router::SERVER.v4),
        }
    }
}

fn pings(scene: &Scene) -> PingReport {
    let ping = Ping::to(Router::SERVER.v4).count(PINGS).interval(EVERY);
    ping.run(&scene.net.client).unwrap()
}

/// Few pings are lost, and none waits for what the router sent.
fn assert_served(report: &PingReport, port: &str) {
    let mut times = report.times.clone();
    times.sort_unstable();
    let at = |q: f64| times[((times.len() as f64 * q) as usize).min(times.len() - 1)];
    println!(
        "{port}: {} of {} pings answered, p50 {:?}, p99 {:?}",
        report.received,
        report.sent,
        at(0.5),
        at(0.99)
    );
    assert!(
        report.received * 50 >= report.sent * 49,
        "{} of {} pings were answered",
        report.received,
        report.sent
    );
    assert!(at(0.99) < Duration::from_millis(60), "p99 {:?}", at(0.99));
}

by!(tcp_from_the_router_leaves_subscribers_their_share: nfqueue, afxdp, kernel);

fn tcp_from_the_router_leaves_subscribers_their_share(port: &'static str) {
    tcp(port, Towards::Internet);
}

by!(tcp_to_a_neighbour_leaves_subscribers_their_share: nfqueue, afxdp, kernel);

fn tcp_to_a_neighbour_leaves_subscribers_their_share(port: &'static str) {
    tcp(port, Towards::Neighbour);
}

/// The stack's frames are GSO packets here.
fn tcp(port: &'static str, towards: Towards) {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::On);
    let _daemon = scene.shape(RATES, CLASSES);
    scene.meet(&[Router::CLIENT.v4]);
    let (ns, to) = towards.end(&scene);
    let server = Iperf3Server::start(ns, 5201).unwrap();
    let bulk = Iperf3::to(to, server.port()).seconds(LOAD);
    let bulk = bulk.start(&scene.net.router).unwrap();
    let report = pings(&scene);
    drop(bulk);
    assert_served(&report, port);
}

by!(a_udp_flood_from_the_router_leaves_subscribers_their_share: nfqueue, afxdp, kernel);

fn a_udp_flood_from_the_router_leaves_subscribers_their_share(port: &'static str) {
    udp(port, Towards::Internet);
}

by!(a_udp_flood_to_a_neighbour_leaves_subscribers_their_share: nfqueue, afxdp, kernel);

fn a_udp_flood_to_a_neighbour_leaves_subscribers_their_share(port: &'static str) {
    udp(port, Towards::Neighbour);
}

/// 200 Mbit/s, of which most is lost.
fn udp(port: &'static str, towards: Towards) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let _daemon = scene.shape(RATES, CLASSES);
    scene.meet(&[Router::CLIENT.v4]);
    let (_, to) = towards.end(&scene);
    let each = Duration::from_micros(56);
    let flood = Numbered::start(&scene.net.router, IpAddr::from(to), each, 1400);
    let report = std::thread::scope(|scope| {
        let pings = scope.spawn(|| pings(&scene));
        for_a_time(Duration::from_secs(LOAD.into()));
        println!("{port}: the router sent {} datagrams", flood.finish());
        pings.join().unwrap()
    });
    assert_served(&report, port);
}

by!(a_class_of_the_routers_address_limits_it: nfqueue, kernel);

/// AF_XDP cannot delay these packets.
fn a_class_of_the_routers_address_limits_it(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let router = format!(
        "{CLASSES}[[class]]\nname = \"router\"\nprefix = \"{}/32\"\nup = \"2mbit\"\n",
        Router::WAN.v4
    );
    let daemon = scene.shape(RATES, &router);
    scene.meet(&[Router::CLIENT.v4]);
    let each = Duration::from_micros(560);
    let sent = || number(&queue(&daemon, "up", Some("router")), "sent_bytes");
    let flood = Numbered::start(&scene.net.router, Router::SERVER.v4.into(), each, 1400);
    // The burst has left.
    for_a_time(Duration::from_secs(1));
    let (begin, before) = (Instant::now(), sent());
    for_a_time(Duration::from_secs(3));
    let bps = (sent() - before) as f64 * 8.0 / begin.elapsed().as_secs_f64();
    drop(flood);
    println!("{port}: the router sends {bps:.0} bit/s");
    // Readings are a part of a second apart from the clock.
    assert!((1_400_000.0..2_600_000.0).contains(&bps), "{bps} bit/s");
}

#[test]
fn a_router_that_takes_the_link_is_reported() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new("afxdp", Offloads::Off);
    let daemon = scene.shape(RATES, CLASSES);
    scene.meet(&[Router::CLIENT.v4]);
    let stack = || {
        let links = snapshot(&daemon)["links"].as_array().cloned().unwrap();
        let up = links.into_iter().find(|link| link["direction"] == "up");
        let stack = up.unwrap()["stack"].clone();
        ["sent_bytes", "not_charged_bytes", "debt_ns"].map(|key| number(&stack, key))
    };
    assert!(stack()[0] < 10_000, "{:?}", stack());
    let each = Duration::from_micros(56);
    let flood = Numbered::start(&scene.net.router, Router::SERVER.v4.into(), each, 1400);
    daemon.logs("the router itself sends");
    let [sent, not_charged, debt_ns] = stack();
    assert!(sent > 20_000_000, "{sent}");
    assert!(
        (sent / 2..sent).contains(&not_charged),
        "{not_charged} of {sent}"
    );
    assert!(debt_ns <= 10_000_000, "{debt_ns}");
    let text = String::from_utf8(scene.command(&["status"]).stdout).unwrap();
    println!("{text}");
    assert!(text.contains("bytes sent by the stack"), "{text}");
    drop(flood);
}

/// Packets that the kernel forwarded until then are not the router's own.
#[test]
fn a_start_under_load_begins_without_debt() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new("afxdp", Offloads::Off);
    let daemon = scene.shape(RATES, CLASSES);
    scene.meet(&[Router::CLIENT.v4, BERT]);
    let each = Duration::from_micros(112);
    let load = Numbered::start(&scene.net.server, BERT.into(), each, 1400);
    for _ in 0..3 {
        // A full queue does not leave in time, and a stop reports it as a failure.
        scene.command(&["stop"]);
        for_a_time(Duration::from_millis(200));
        assert!(scene.command(&["start"]).status.success());
        let report = Ping::to(Router::SERVER.v4).count(50).interval(EVERY);
        let report = report.run(&scene.net.client).unwrap();
        let own = number(&snapshot(&daemon)["counters"], "afxdp_down_stack_bytes");
        println!(
            "{own} bytes of the stack, {} pings answered",
            report.received
        );
        // A few packets were on their way through the kernel.
        assert!(own < 10_000, "{own} bytes of the stack");
        assert!(report.received >= 49, "{report:?}");
    }
    drop(load);
}
