//! Packets leave with new content and right checksums, or are refused.

use fairpath_nfqueue::{Answer, Config, Packet, QueueError, RewriteError, Verdict, Wait};
use fairpath_testbed::{Iperf3, Iperf3Server, Offloads, Router};

use crate::needs_queues;
use crate::passing::checksum_errors;
use crate::scene::{LOOK, Scene, wait_waiting, while_answering};

/// The content with its last byte as `last`.
fn changed(packet: &Packet<'_>, last: u8) -> Answer {
    let mut content = packet.payload().to_vec();
    *content.last_mut().unwrap() = last;
    Answer::Changed(Verdict::ACCEPT, packet.rewrite(content).unwrap())
}

#[test]
fn a_changed_datagram_arrives_in_both_families() {
    needs_queues!();
    // With offloads, checksums are not ready when packets come.
    for offloads in [Offloads::Off, Offloads::On] {
        let scene = Scene::with(offloads);
        scene.queue_all();
        let mut queue = scene.bind_in_order(&Config::new(0).gso(false));
        for (from, to) in Router::CLIENT.both().into_iter().zip(Router::SERVER.both()) {
            let datagrams = scene.datagrams_over(from, to);
            datagrams.send(1);
            queue
                .answer(Wait::Forever, |packet| changed(packet, 77))
                .unwrap();
            assert_eq!(datagrams.next(), 77, "{to}");
        }
        assert_eq!(queue.counters().verdicts.rewritten, 2);
    }
}

#[test]
fn a_held_datagram_can_become_longer() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    let datagrams = scene.datagrams();
    datagrams.send_all([1, 2]);
    wait_waiting(&queue, 2);
    let mut received = queue.receive(Wait::Forever).unwrap();
    let (packet, held) = received.packets.next().unwrap();
    let (_, other) = received.packets.next().unwrap();
    let longer = [packet.payload(), &[9; 1_000]].concat();
    let longer = packet.rewrite(longer).unwrap();
    let verdicts = &mut received.verdicts;
    let other_queue = verdicts.give_changed(other, Verdict::ACCEPT, &longer);
    assert!(matches!(other_queue, Err(QueueError::OtherQueue { .. })));
    verdicts
        .give_changed(held, Verdict::ACCEPT, &longer)
        .unwrap();
    verdicts.flush().unwrap();
    assert_eq!(
        datagrams.next_bytes(),
        [&[0, 0, 0, 1][..], &[9; 1_000]].concat()
    );
    assert_eq!(queue.held(), 1);
}

#[test]
fn tcp_survives_rewriting_every_packet() {
    needs_queues!("iperf3");
    let scene = Scene::with(Offloads::On);
    scene.queue_all();
    let server = Iperf3Server::start(&scene.net.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).bytes(20_000_000);
    let mut queue = scene.bind_in_order(&Config::new(0).gso(false).length(10_000));
    let same = |packet: &Packet<'_>| {
        let rewrite = packet.rewrite(packet.payload().to_vec()).unwrap();
        Answer::Changed(Verdict::ACCEPT, rewrite)
    };
    let write_back = || {
        queue.answer(LOOK, same).unwrap();
    };
    let report = while_answering(write_back, || transfer.run(&scene.net.client).unwrap());
    assert!(report.bytes_received > 15_000_000, "{report:?}");
    assert_eq!(checksum_errors(&scene.net.server), 0);
    assert!(queue.counters().verdicts.rewritten > 10_000);
}

#[test]
fn gso_and_partial_packets_cannot_be_rewritten() {
    needs_queues!("iperf3");
    let scene = Scene::with(Offloads::On);
    scene.queue_all();
    let server = Iperf3Server::start(&scene.net.server, 5201).unwrap();
    let transfer = Iperf3::to(Router::SERVER.v4, server.port()).bytes(20_000_000);
    let mut queue = scene.bind_in_order(&Config::new(0).copy_bytes(60));
    let (mut gso_packets, mut parts) = (0, 0);
    let look = |packet: &Packet<'_>| {
        match packet.rewrite(packet.payload().to_vec()) {
            Err(RewriteError::GsoPacket { .. }) => gso_packets += 1,
            Err(RewriteError::Partial { .. }) => parts += 1,
            other => assert!(packet.len() <= 60, "{other:?}"),
        }
        assert!(!packet.info().gso() || packet.len() > 1500);
        Verdict::ACCEPT
    };
    let mut look = look;
    while_answering(
        || {
            queue.answer(LOOK, &mut look).unwrap();
        },
        || transfer.run(&scene.net.client).unwrap(),
    );
    assert!(gso_packets > 100 && parts > 0, "{gso_packets} {parts}");
}
