//! A packet that passes several watched interfaces is one packet.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use fairpath_testbed::{
    Feature, Impairment, Iperf3, Iperf3Server, LinkEnd, Need, Netns, Ping, Router, TcpPair,
    Testbed, Veth, requires, test_name,
};
use fairpath_tests::{Records, Rtt, Sample};
use fairpath_units::skip_test;

use crate::agreement::{assert_same, given_up, on_one_cpu, traffic};

/// No sample is there twice.
fn assert_once(records: &Records) {
    let twice: Vec<_> = records
        .counts()
        .into_iter()
        .filter(|(_, n)| *n > 1)
        .collect();
    assert!(
        twice.is_empty(),
        "{} twice: {:#?}",
        twice.len(),
        twice.first()
    );
}

fn is_client(ip: IpAddr) -> bool {
    Router::CLIENT.both().contains(&ip)
}

fn assert_sides(records: &Records) {
    for sample in &records.samples {
        let right = if is_client(sample.dst) { "lan" } else { "wan" };
        assert_eq!(sample.towards.as_deref(), Some(right), "{sample:?}");
    }
    for side in ["lan", "wan"] {
        let towards = |s: &&Sample| s.towards.as_deref() == Some(side);
        assert!(
            records.samples.iter().any(|s| towards(&s)),
            "none to {side}"
        );
    }
}

#[test]
fn two_watched_interfaces_give_one_sample_a_packet() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    on_one_cpu(&router, &["lan", "wan"]);
    let both = Rtt::watch(&router.router, &["lan", "wan"], &[]);
    let one = Rtt::watch(&router.router, &["lan"], &[]);
    traffic(&router);
    let (both, one) = (both.stop(), one.stop());
    assert_once(&both);
    assert_sides(&both);
    // Watching the second interface adds no sample and takes none away.
    assert_same(&both, &one, ["both", "lan"]);
    assert!(both.number("/counters/second_hook_packets") > 0);
    let apart = both
        .number("/tcp_packets")
        .abs_diff(one.number("/tcp_packets"));
    assert!(apart <= given_up(&both) + given_up(&one));
}

#[test]
fn one_watched_interface_gives_both_legs() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ping"));
    let router = Router::new(&Testbed::new()).unwrap();
    let lan = Rtt::watch(&router.router, &["lan"], &[]);
    let wan = Rtt::watch(&router.router, &["wan"], &[]);
    traffic(&router);
    // The other interface is not monitored, but packets at egress have their ingress interface.
    assert_sides(&lan.stop());
    assert_sides(&wan.stop());
}

/// Client and server in one subnet, with a bridge between them that has an address.
fn bridge(testbed: &Testbed) -> [Netns; 3] {
    let [client, middle, server] =
        ["client", "bridge", "server"].map(|n| testbed.netns(n).unwrap());
    let address = |last| IpAddr::from([10, 10, 3, last]);
    for (ns, port, last) in [(&client, "p0", 1), (&server, "p1", 2)] {
        let end = LinkEnd::new(ns, "eth0").with_address(address(last), 24);
        Veth::between(end, LinkEnd::new(&middle, port))
            .build()
            .unwrap();
    }
    let lines = [
        "link add name br0 type bridge stp_state 0 forward_delay 0",
        "link set dev p0 master br0",
        "link set dev p1 master br0",
        "link set dev br0 up",
        "address add 10.10.3.3/24 dev br0",
    ];
    middle.ip_batch(&lines.map(String::from)).unwrap();
    [client, middle, server]
}

#[test]
fn a_bridge_and_its_ports_give_one_sample() {
    requires!(
        Need::Root,
        Need::Kernel(Feature::Link("bridge")),
        Need::Tool("iperf3"),
        Need::Tool("ping")
    );
    let [client, middle, server] = bridge(&Testbed::new());
    let rtt = Rtt::watch(&middle, &["br0", "p0", "p1"], &[]);
    let listener = Iperf3Server::start(&server, 5201).unwrap();
    // Through the bridge, and from the bridge's own address.
    for (ns, echoes) in [(&client, 10), (&middle, 10)] {
        let transfer = Iperf3::to([10, 10, 3, 2], listener.port()).bytes(1_000_000);
        transfer.run(ns).unwrap();
        let ping = Ping::to([10, 10, 3, 2]).count(echoes).run(ns).unwrap();
        assert_eq!(ping.received, echoes);
    }
    let records = rtt.stop();
    assert_once(&records);
    assert_eq!(records.by("icmp").count(), 20);
    // Everything that crossed was seen twice, or three times where it is the bridge's own.
    let again = records.number("/counters/second_hook_packets");
    assert!(again > records.number("/tcp_packets"), "{again}");
    for sample in records
        .samples
        .iter()
        .filter(|s| s.src == IpAddr::from([10, 10, 3, 1]))
    {
        assert_eq!(sample.towards.as_deref(), Some("p1"), "{sample:?}");
    }
}

#[test]
fn nat_gives_each_near_leg_once() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("iperf3")
    );
    let router = Router::new(&Testbed::new()).unwrap();
    let rule = [
        "iptables-legacy",
        "-t",
        "nat",
        "-A",
        "POSTROUTING",
        "-o",
        "wan",
        "-j",
        "MASQUERADE",
    ];
    if let Err(error) = router.router.run(&rule) {
        fn nested() {}
        return skip_test(test_name(nested), "a kernel with NAT", &error.to_string());
    }
    let rtt = Rtt::watch(&router.router, &["lan", "wan"], &[]);
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).bytes(2_000_000);
    transfer.run(&router.client).unwrap();
    transfer.clone().reverse().run(&router.client).unwrap();
    let records = rtt.stop();

    // Sequence numbers pass NAT unchanged: they identify the packets of a sample.
    let mut packets: BTreeMap<_, usize> = BTreeMap::new();
    let (client, server) = (
        IpAddr::from(Router::CLIENT.v4),
        IpAddr::from(Router::SERVER.v4),
    );
    let outside = IpAddr::from(Router::WAN.v4);
    for s in &records.samples {
        *packets
            .entry((s.dst == server, s.method.clone(), s.seq, s.ack))
            .or_default() += 1;
        let near = match s.towards.as_deref() {
            Some("lan") => (s.src, s.dst) == (server, client),
            Some("wan") => (s.src, s.dst) == (outside, server),
            _ => false,
        };
        assert!(near, "{s:?}");
    }
    assert!(
        packets.values().all(|n| *n == 1),
        "a packet gave two samples"
    );
    for to_server in [true, false] {
        assert!(packets.keys().filter(|k| k.0 == to_server).count() > 20);
    }
}

#[test]
fn each_leg_has_the_delay_of_its_wire() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ping"));
    let wire = |ms| Impairment::delay(Duration::from_millis(ms));
    let builder = Router::builder()
        .lan_wire(wire(2), wire(2))
        .wan_wire(wire(10), wire(10));
    let router = builder.build(&Testbed::new()).unwrap();
    let rtt = Rtt::watch(&router.router, &["lan", "wan"], &[]);
    let server = Iperf3Server::start(&router.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port())
        .bytes(1_000_000)
        .bitrate_bps(20_000_000);
    transfer.run(&router.client).unwrap();
    transfer.clone().reverse().run(&router.client).unwrap();
    let mut pair = TcpPair::connect(&router.client, &router.server, Router::SERVER.v6).unwrap();
    pair.client_sends(&[1; 1000]).unwrap();
    pair.server_sends(&[1; 1000]).unwrap();
    let records = rtt.stop();
    // The wires' threads may be woken late, never early.
    for (side, min_ms) in [("lan", 4), ("wan", 20)] {
        let leg = records.towards(side);
        let [min, median] =
            ["min_rtt_ns", "p50_rtt_ns"].map(|key| leg[key].as_u64().unwrap() as f64 / 1e6);
        println!(
            "{side}: {} samples, min {min} ms, median {median} ms",
            leg["samples"]
        );
        let min = f64::from(min_ms);
        assert!(min >= min && median >= min, "{leg}");
        assert!(median < 4.0 * min, "{leg}");
    }
}
