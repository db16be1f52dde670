//! Traffic goes through a queue as if it were not there, and is seen as it is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use fairpath_nfqueue::{Action, Config, Hook, Verdict, Wait};
use fairpath_testbed::{Iperf3, Iperf3Server, Netns, Offloads, Ping, Router};
use fairpath_units::IfIndex;
use fairpath_wire::{EtherType, MacAddr};
use nix::net::if_::if_nametoindex;

use crate::needs_queues;
use crate::scene::{Scene, accepting, while_answering};

#[test]
fn ping_passes_in_both_families() {
    needs_queues!("ping");
    let scene = Scene::new();
    scene.queue_all();
    let mut queue = scene.bind_in_order(&Config::new(0));
    for ip in Router::SERVER.both() {
        let ping = Ping::to(ip).count(10);
        let report = accepting(&mut queue, || ping.run(&scene.net.client).unwrap());
        assert_eq!((report.sent, report.received), (10, 10), "{ip}");
    }
    let counted = queue.counters();
    assert_eq!(
        (counted.packets.received, counted.verdicts.accepted),
        (40, 40)
    );
    assert_eq!((counted.packets.missing, counted.packets.refused), (0, 0));
}

#[test]
fn tcp_flow_with_gso_passes_without_checksum_error() {
    needs_queues!("iperf3");
    let scene = Scene::with(Offloads::On);
    scene.queue_all();
    let server = Iperf3Server::start(&scene.net.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).bytes(300_000_000);
    let (longest, gso_packets) = (AtomicU32::new(0), AtomicU64::new(0));

    let mut queue = scene.bind_in_order(&Config::new(0).copy_bytes(128));
    let pass = || {
        let look = |packet: &fairpath_nfqueue::Packet<'_>| {
            assert!(packet.payload().len() <= 128);
            longest.fetch_max(packet.len(), Ordering::Relaxed);
            gso_packets.fetch_add(packet.info().gso().into(), Ordering::Relaxed);
            Verdict::ACCEPT
        };
        queue.answer(crate::scene::LOOK, look).unwrap();
    };
    let report = while_answering(pass, || transfer.run(&scene.net.client).unwrap());

    assert!(report.bytes_received > 250_000_000, "{report:?}");
    assert!(longest.into_inner() > 30_000 && gso_packets.into_inner() > 1000);
    assert_eq!(checksum_errors(&scene.net.server), 0);
    assert_eq!(queue.counters().packets.missing, 0);
}

/// Segments that TCP in `ns` refused for their checksum.
pub fn checksum_errors(ns: &Netns) -> u64 {
    let text = ns.run(&["cat", "/proc/thread-self/net/snmp"]).unwrap();
    let mut tcp = text.lines().filter(|line| line.starts_with("Tcp:"));
    let mut columns = || tcp.next().unwrap().split_ascii_whitespace();
    let (names, values) = (columns(), columns());
    let mut both = names.zip(values);
    both.find(|(name, _)| *name == "InCsumErrors")
        .unwrap()
        .1
        .parse()
        .unwrap()
}

#[test]
fn a_packet_is_described_as_it_is() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    scene.rule(
        "iptables",
        "-t",
        "mangle -A PREROUTING -j MARK --set-mark 0x51",
    );
    let mut queue = scene.bind(&Config::new(0).copy_bytes(24));
    let datagrams = scene.datagrams();
    datagrams.send(7);
    let mut received = queue.receive(Wait::Forever).unwrap();
    let (packet, held) = received.packets.next().unwrap();
    let index =
        |name: &'static str| scene.on_router(move || IfIndex(if_nametoindex(name).unwrap()));
    let devices = packet.devices();
    assert_eq!(
        (devices.input, devices.output),
        (Some(index("lan")), Some(index("wan")))
    );
    assert_eq!(
        (packet.hook(), packet.ether_type()),
        (Hook::Forward, EtherType::IPV4)
    );
    assert_eq!((packet.mark(), packet.id()), (0x51, 1));
    assert_eq!(packet.source_mac(), Some(MacAddr([2, 0, 0, 0, 1, 2])));
    assert_eq!((packet.len(), packet.payload().len()), (32, 24));
    assert_eq!(packet.payload()[12..16], Router::CLIENT.v4.octets());
    assert!(!packet.is_complete() && !packet.info().gso());
    received.verdicts.give(held, Verdict::ACCEPT).unwrap();
    received.verdicts.flush().unwrap();
    assert_eq!(datagrams.next(), 7);
}

#[test]
fn verdicts_have_their_effect() {
    needs_queues!();
    let scene = Scene::new();
    // What is repeated has a mark and is accepted the second time; the rest meets queue 0.
    scene.rule("iptables", "-A", "FORWARD -m mark --mark 5 -j ACCEPT");
    scene.queue_clients("-A");
    scene.rule("iptables", "-t", "mangle -A POSTROUTING -m mark --mark 9");
    let mut first = scene.bind_in_order(&Config::new(0));
    let mut second = scene.bind_in_order(&Config::new(1));
    let datagrams = scene.datagrams();
    let mut answer = |verdict: Verdict| {
        datagrams.send(u32::from(verdict.mark().is_some()));
        assert_eq!(first.answer(Wait::Forever, |_| verdict).unwrap(), 1);
    };
    answer(Verdict::ACCEPT.with_mark(9));
    assert_eq!(datagrams.next(), 1);
    assert_eq!(scene.met("mangle", "POSTROUTING", ""), 1);
    answer(Verdict::DROP);
    answer(Verdict::new(Action::Repeat).with_mark(5));
    assert_eq!(datagrams.next(), 1);
    assert_eq!(scene.met("filter", "FORWARD", "ACCEPT"), 1);
    let to = |number, bypass| Verdict::new(Action::Queue { number, bypass });
    answer(to(1, false));
    assert_eq!(
        second.answer(Wait::Forever, |_| Verdict::ACCEPT).unwrap(),
        1
    );
    assert_eq!(datagrams.next(), 0);
    answer(to(2, true));
    assert_eq!(datagrams.next(), 0);
    answer(to(2, false));
    assert_eq!(datagrams.arrived(), [0; 0]);
    let output = first.counters().verdicts;
    assert_eq!(
        (
            output.accepted,
            output.dropped,
            output.requeued,
            output.repeated
        ),
        (1, 1, 3, 1)
    );
}
