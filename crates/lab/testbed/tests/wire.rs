//! Wires: what they delay, lose, reorder, duplicate and encapsulate.

use std::net::Ipv4Addr;
use std::time::Duration;

use fairpath_testbed::{
    Capture, CaptureOptions, DirectionStats, Encap, Feature, Impairment, Iperf3, Iperf3Server,
    LinkEnd, Need, Ping, Router, Testbed, Tpid, Tun, Veth, Wire, WireDirection, requires, sockets,
    wait_for,
};

const MILLION: u64 = 1_000_000;
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn wired(there: Impairment, back: Impairment) -> Router {
    Router::builder()
        .wan_wire(there, back)
        .build(&Testbed::new())
        .unwrap()
}

/// The counters of a wire once no frame is under way.
fn at_rest(wire: &Wire) -> [DirectionStats; 2] {
    let look = || {
        let stats = wire.stats();
        let both = [stats.left_to_right, stats.right_to_left];
        both.iter()
            .all(|direction| direction.midflow == 0)
            .then_some(both)
    };
    wait_for(Duration::from_secs(5), look).expect("frames leave the wire")
}

#[test]
fn ten_ms_in_each_direction_add_to_twenty() {
    requires!(Need::Root, Need::Tool("ping"));
    let router = wired(Impairment::delay(ms(10)), Impairment::delay(ms(10)));
    for ip in Router::SERVER.both() {
        let report = Ping::to(ip).count(30).run(&router.client).unwrap();
        assert_eq!(report.received, 30);
        assert!(report.min >= ms(20) && report.min < ms(22), "{report:?}");
        println!(
            "{ip}: min {:?} avg {:?} max {:?}",
            report.min, report.avg, report.max
        );
    }
    let stats = at_rest(router.wan_wire.as_ref().unwrap());
    println!("{stats:#?}");
}

#[test]
fn kernel_of_sender_measures_delay_of_the_wire() {
    requires!(Need::Root, Need::Tool("ss"));
    let router = wired(Impairment::delay(ms(7)), Impairment::default());
    let mut pair =
        fairpath_testbed::TcpPair::connect(&router.client, &router.server, Router::SERVER.v4)
            .unwrap();
    for _ in 0..20 {
        pair.client_sends(b"x").unwrap();
        pair.server_sends(b"y").unwrap();
    }
    let samples = sockets(&router.client, "").unwrap();
    let min = samples[0].min_rtt.unwrap();
    assert!(min >= ms(7) && min < ms(8), "{min:?}");
}

#[test]
fn the_delay_can_change_while_packets_flow() {
    requires!(Need::Root, Need::Tool("ping"));
    let router = wired(Impairment::default(), Impairment::default());
    let wire = router.wan_wire.as_ref().unwrap();
    wire.set_impairment(WireDirection::RightToLeft, Impairment::delay(ms(5)));
    // One of a hundred meets free processors, though other tests run.
    let ping = Ping::to(Router::SERVER.v4).count(100);
    let report = ping.run(&router.client).unwrap();
    assert!(report.min >= ms(5) && report.min < ms(7), "{report:?}");
}

#[test]
fn ping_loss_equals_the_emulated_loss() {
    requires!(Need::Root, Need::Tool("ping"));
    let lossy = |seed| Impairment::default().with_loss(0.2, seed);
    let router = wired(lossy(1), lossy(2));
    let ping = Ping::to(Router::SERVER.v4).count(300).interval(ms(2));
    let report = ping.run(&router.client).unwrap();
    let [there, back] = at_rest(router.wan_wire.as_ref().unwrap());
    let lost = there.lost + back.lost;
    assert_eq!(u64::from(report.sent - report.received), lost);
    // 300 requests survive both ways with 0.64: 108 lost, standard deviation 8.3; five of them.
    assert!((66..=150).contains(&lost), "{lost}");
    assert_eq!(there.unwanted_drops() + back.unwanted_drops(), 0);
    assert_eq!(there.partial_checksums + back.partial_checksums, 0);
}

#[test]
fn duplicates_and_delayed_frames_arrive() {
    requires!(Need::Root, Need::Tool("ping"));
    let there = Impairment::default().with_duplicates(0.3);
    let back = Impairment::default().with_reorder(4, ms(30));
    let router = wired(there, back);
    let ping = Ping::to(Router::SERVER.v4).count(50).interval(ms(5));
    let report = ping.run(&router.client).unwrap();
    let [there, back] = at_rest(router.wan_wire.as_ref().unwrap());
    assert_eq!(report.received, 50);
    assert!(
        there.duplicated > 0 && back.delayed > 0,
        "{there:?} {back:?}"
    );
    let slow = report.times.iter().filter(|time| **time >= ms(30)).count() as u64;
    assert!(slow > 0 && slow <= back.delayed, "{report:?}");
    assert_eq!(there.sent, there.taken + there.duplicated);
}

#[test]
fn a_wire_carries_bulk_tcp_and_drops_nothing() {
    requires!(Need::Root, Need::Tool("iperf3"));
    let router = wired(Impairment::delay(ms(5)), Impairment::delay(ms(5)));
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).bytes(100 * MILLION);
    let report = transfer.congestion("cubic").run(&router.client).unwrap();
    let [there, back] = at_rest(router.wan_wire.as_ref().unwrap());
    let rate = there.sent as f64 / report.seconds;
    println!(
        "{rate:.0} packets/s, {:.0} Mbit/s",
        report.goodput_bps / 1e6
    );
    println!("{there:#?} {back:#?} {report:?}");
    assert_eq!(
        there.unwanted_drops() + back.unwanted_drops(),
        0,
        "{there:?} {back:?}"
    );
    assert!(report.bytes_received >= 50 * MILLION, "{report:?}");
}

struct Tunnelled {
    left: fairpath_testbed::Netns,
    right: fairpath_testbed::Netns,
    wires: [Wire; 2],
}

fn tunnelled(encap: &Encap, mtu: u32, there: Impairment) -> Tunnelled {
    let testbed = Testbed::new();
    let (left, right) = (
        testbed.netns("left").unwrap(),
        testbed.netns("right").unwrap(),
    );
    let [near, far] = [&left, &right].map(|ns| LinkEnd::new(ns, "carrier"));
    let carrier = Veth::between(near, far).build().unwrap();
    let tun = |ns, ip| Tun::new(ns, "ip0").with_mtu(mtu).with_address(ip, 30);
    let tuns = [tun(&left, LEFT), tun(&right, RIGHT)];
    let [near, far] = &tuns;
    let wires = Wire::tunnel_pair([near, far], &carrier, encap, there, Impairment::default());
    Tunnelled {
        left,
        right,
        wires: wires.unwrap(),
    }
}

/// Runs iperf3 through a tunnel and returns what tcpdump says of the frames on the carrier.
fn frames_of(encap: &Encap, mtu: u32) -> String {
    let tunnel = tunnelled(encap, mtu, Impairment::default());
    let capture = Capture::start_anonymous(&tunnel.right, "carrier", &CaptureOptions::default());
    let capture = capture.unwrap();
    let server = Iperf3Server::start(&tunnel.right, 5201).unwrap();
    let transfer = Iperf3::to(RIGHT, server.port()).bytes(10 * MILLION);
    let report = transfer.run(&tunnel.left).unwrap();
    // What is under way when the client has written all is not waited for.
    assert!(report.bytes_sent >= 10 * MILLION, "{report:?}");
    assert!(report.bytes_received >= MILLION, "{report:?}");
    for wire in &tunnel.wires {
        let both = at_rest(wire);
        assert!(
            both.iter()
                .all(|direction| direction.send_failed + direction.refused == 0),
            "{both:?}"
        );
    }
    let bytes = capture.stop().unwrap().bytes().unwrap();
    decoded(&tunnel.left, &bytes)
}

/// The first frames of a capture in tcpdump's words.
fn decoded(ns: &fairpath_testbed::Netns, bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let path = file.path().to_str().unwrap();
    ns.run(&["tcpdump", "-Z", "root", "-e", "-n", "-c", "20", "-r", path])
        .unwrap()
}

#[test]
fn tcp_crosses_a_pppoe_session() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tcpdump"),
        Need::Kernel(Feature::Tun)
    );
    let text = frames_of(&Encap::plain().pppoe(0x42), 1492);
    assert!(
        text.lines().all(|line| line.contains("PPPoE  [ses 0x42]")),
        "{text}"
    );
    assert!(text.contains("10.20.0.2.5201"), "{text}");
}

#[test]
fn tcp_crosses_four_vlan_tags() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tcpdump"),
        Need::Kernel(Feature::Tun)
    );
    let tags = [
        (Tpid::Dot1ad, 100),
        (Tpid::Dot1ad, 101),
        (Tpid::Dot1q, 102),
        (Tpid::Dot1q, 103),
    ];
    let encap = tags
        .into_iter()
        .fold(Encap::plain(), |encap, (tpid, vid)| encap.vlan(tpid, vid));
    let text = frames_of(&encap, 1500);
    for (_, vid) in tags {
        assert!(
            text.lines()
                .all(|line| line.contains(&format!("vlan {vid}"))),
            "{text}"
        );
    }
}

#[test]
fn tcp_crosses_one_vlan_tag_around_pppoe() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("tcpdump"),
        Need::Kernel(Feature::Tun)
    );
    let text = frames_of(&Encap::plain().vlan(Tpid::Dot1q, 7).pppoe(1), 1492);
    assert!(
        text.lines()
            .all(|line| line.contains("vlan 7") && line.contains("PPPoE")),
        "{text}"
    );
}

#[test]
fn a_tunnel_delays_as_a_wire_does() {
    requires!(Need::Root, Need::Tool("ping"), Need::Kernel(Feature::Tun));
    let tunnel = tunnelled(&Encap::plain(), 1500, Impairment::delay(ms(4)));
    let report = Ping::to(RIGHT).run(&tunnel.left).unwrap();
    assert!(report.min >= ms(4) && report.min < ms(6), "{report:?}");
}
