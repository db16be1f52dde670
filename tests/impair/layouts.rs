//! Other layouts than a router with one queue an interface.

use std::net::Ipv4Addr;

use fairpath_testbed::{LinkEnd, Need, Netns, Offloads, Router, Testbed, Veth, requires};
use fairpath_tests::PATIENCE;

use crate::by;
use crate::scene::{Impaired, alone, command, router, steer};
use crate::stream::Course;

by!(ports_of_a_bridge_are_impaired_and_neighbours_find_each_other: xdp, afxdp);
by!(all_queues_of_an_interface_share_one_impairment: xdp, afxdp, nfqueue);

const MS: u64 = 1_000_000;
const COUNT: u32 = 1000;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Client and server in one network, with a bridge of `lan` and `wan` between.
fn bridge() -> [Netns; 3] {
    let testbed = Testbed::new();
    let all = ["client", "bridge", "server"].map(|name| testbed.netns(name).unwrap());
    let ends = [(&all[0], CLIENT, "lan"), (&all[2], SERVER, "wan")];
    for (ns, address, port) in ends {
        let end = LinkEnd::new(ns, "eth0").with_address(address, 24);
        let veth = Veth::between(end, LinkEnd::new(&all[1], port));
        veth.offloads(Offloads::Off).build().unwrap();
    }
    let lines = [
        "link add br0 type bridge mcast_snooping 0 forward_delay 0",
        "link set lan master br0",
        "link set wan master br0",
        "link set br0 up",
    ];
    all[1].ip_batch(&lines.map(str::to_owned)).unwrap();
    steer([&all[0], &all[1], &all[2]]);
    all
}

fn ports_of_a_bridge_are_impaired_and_neighbours_find_each_other(port: &'static str) {
    requires!(Need::Root);
    let _alone = alone();
    let [client, bridge, server] = bridge();
    let (spec, delay) = match port {
        "xdp" => ("pattern 00010", 0),
        _ => ("pattern 00010 delay 20ms", 20 * MS),
    };
    let words = ["lan", "--peer", "wan", "--via", port, "--to-peer", spec];
    let impaired = Impaired::start(&bridge, &[&words[..], &["--from-peer", "none"]].concat());
    // No neighbour is known yet: the first datagram waits for ARP, which has no number.
    let first = Course::new(&client, &server, SERVER, 1).run(1);
    assert_eq!(first.numbers(), [0]);
    let rest = Course::new(&client, &server, SERVER, COUNT - 1).first(1);
    let stream = rest.run(799);
    let wanted: Vec<u32> = (1..COUNT).filter(|number| number % 5 != 3).collect();
    assert_eq!(stream.numbers(), wanted);
    stream.assert_not_before(|number| stream.sent_at(number) + delay);
    let back = Course::new(&server, &client, CLIENT, 100).run(100);
    assert_eq!(back.arrived.len(), 100);
    let output = impaired.process.stderr();
    let ended = impaired.end();
    ended.assert_true_or_late();
    assert_eq!(
        ended.number("to-peer", "enqueued_packets"),
        u64::from(COUNT)
    );
    assert_eq!(ended.number("to-peer", "lost_packets"), 200);
    if port == "afxdp" {
        assert!(output.contains("bridge between lan"), "{output}");
        assert_eq!(ended.direction("to-peer")["planned_delay_ns"], 20e6);
    }
}

#[test]
fn netfilter_is_not_used_for_bridge_ports() {
    requires!(Need::Root);
    let [_client, bridge, _server] = bridge();
    for words in [
        &["lan", "--peer", "wan", "--via", "nfqueue", "--delay", "1ms"][..],
        &["wan", "--delay", "1ms"],
    ] {
        let mut impair = command(&bridge, words);
        impair.arg("--no-self-test");
        let mut process = bridge.spawn(impair).unwrap();
        let refusal = process.wait_stderr("port of the bridge br0", PATIENCE);
        refusal.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert_eq!(process.wait(PATIENCE).unwrap().code(), Some(1), "{words:?}");
    }
}

/// Packets that a receive queue of an interface had for XDP; `None` if the driver does not count them.
fn by_xdp(ns: &Netns, interface: &str, queue: u32) -> Option<u64> {
    let reported = ns.run(&["ethtool", "-S", interface]).unwrap();
    let name = format!("rx_queue_{queue}_xdp_packets: ");
    let line = reported
        .lines()
        .find_map(|line| line.trim().strip_prefix(&name));
    line.map(|count| count.parse().unwrap())
}

fn all_queues_of_an_interface_share_one_impairment(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    const FLOWS: usize = 16;
    let net = router();
    for end in [&net.client_end, &net.lan_end, &net.wan_end, &net.server_end] {
        let set = ["ethtool", "-L", end.ifname(), "rx", "2", "tx", "2"];
        end.ns().run(&set).unwrap();
    }
    steer([&net.client, &net.router, &net.server]);
    let spec = match port {
        "xdp" => "pattern 00010",
        _ => "pattern 00010 delay 20ms",
    };
    let impaired = Impaired::between(&net, port, &["--to-peer", spec]);
    let course = Course::new(&net.client, &net.server, Router::SERVER.v4, COUNT);
    let stream = course.flows(FLOWS).run(800);
    if port != "nfqueue" {
        let queues = [0, 1].map(|queue| by_xdp(&net.router, "lan", queue).unwrap());
        assert!(queues.iter().all(|packets| *packets > 0), "{queues:?}");
    }
    let output = impaired.process.stderr();
    let ended = impaired.end();
    ended.assert_true_or_late();
    // The order of reading two queues is unspecified, but each packet has exactly one number.
    assert_eq!(stream.numbers().len(), 800);
    assert_eq!(
        ended.number("to-peer", "enqueued_packets"),
        u64::from(COUNT)
    );
    assert_eq!(ended.number("to-peer", "lost_packets"), 200);
    for flow in 0..FLOWS {
        let of_flow = |number: &u32| *number as usize % FLOWS == flow;
        let arrived = stream.arrived.iter().map(|(number, _)| *number);
        let arrived: Vec<u32> = arrived.filter(of_flow).collect();
        assert!(arrived.is_sorted(), "a flow's order: {arrived:?}");
    }
    if port == "afxdp" {
        assert!(
            output.contains("lan (2 queues) and wan (2 queues)"),
            "{output}"
        );
    }
}
