//! Packets in are packets out and packets dropped for a named reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fairpath_nfqueue::{Config, Verdict, Wait};

use crate::needs_queues;
use crate::scene::{LOOK, Scene, accept_waiting, wait_waiting, while_answering};

#[test]
fn kernel_counts_drops_of_a_full_queue() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind_in_order(&Config::new(0).length(16));
    let datagrams = scene.datagrams();
    datagrams.send_all(0..100);
    wait_waiting(&queue, 16);
    assert_eq!(accept_waiting(&mut queue), 16);
    assert_eq!(datagrams.take(16), (0..16).collect::<Vec<_>>());
    let kernel = queue.kernel_counts().unwrap();
    assert_eq!(
        (
            kernel.queue_dropped,
            kernel.user_dropped,
            kernel.id_sequence
        ),
        (84, 0, 16)
    );
    assert_eq!(scene.met("filter", "FORWARD", "NFQUEUE"), 100);
    assert_eq!(queue.counters().packets.missing, 0);
}

#[test]
fn socket_drops_equal_the_kernel_count() {
    needs_queues!();
    for reports in [false, true] {
        let scene = Scene::new();
        scene.queue_clients("-A");
        let config = Config::new(0).receive_buffer_bytes(40_000).length(10_000);
        let mut queue = scene.bind_in_order(&config.overrun_reports(reports));
        let datagrams = scene.datagrams();
        datagrams.send_all(0..500);
        accept_waiting(&mut queue);
        // A gap is seen by the packet behind it.
        datagrams.send(500);
        accept_waiting(&mut queue);
        let (ours, kernel) = (queue.counters().packets, queue.kernel_counts().unwrap());
        assert!(kernel.user_dropped > 100, "{kernel:?}");
        assert_eq!(ours.missing, u64::from(kernel.user_dropped));
        assert_eq!(ours.received + ours.missing, 501);
        assert_eq!(kernel.queue_dropped, 0);
        // Said once, however many were lost; or not at all.
        assert_eq!(ours.overruns, u64::from(reports));
        assert_eq!(datagrams.arrived().len() as u64, ours.received);
    }
}

#[test]
fn fail_open_queues_pass_excess_packets() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind_in_order(&Config::new(0).length(16).fail_open(true));
    let datagrams = scene.datagrams();
    datagrams.send_all(0..100);
    assert_eq!(datagrams.take(84), (16..100).collect::<Vec<_>>());
    assert_eq!(accept_waiting(&mut queue), 16);
    assert_eq!(datagrams.take(16), (0..16).collect::<Vec<_>>());
    let kernel = queue.kernel_counts().unwrap();
    assert_eq!((kernel.queue_dropped, kernel.user_dropped), (0, 0));
}

#[test]
fn flood_is_received_or_dropped_for_named_reason() {
    needs_queues!();
    const COUNT: u32 = 60_000;
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0).length(256).receive_buffer_bytes(100_000));
    let datagrams = scene.datagrams();
    let mut kept = Vec::new();
    // Keeps the oldest hundred and releases the newest; 10 % are dropped.
    let answer = || {
        let mut received = queue.receive(LOOK).unwrap();
        kept.extend(received.packets.by_ref().map(|(_, held)| held));
        while kept.len() > 100 {
            let held = kept.pop().unwrap();
            let verdict = if held.id() % 10 == 0 {
                Verdict::DROP
            } else {
                Verdict::ACCEPT
            };
            received.verdicts.give(held, verdict).unwrap();
        }
    };
    while_answering(answer, || datagrams.send_all(0..COUNT));
    queue.release_all(Verdict::ACCEPT).unwrap();
    let drained = queue.drain(crate::scene::DEADLINE, |_| Verdict::ACCEPT);
    drained.unwrap();
    // The last gap is seen by one more packet.
    datagrams.send(0);
    assert_eq!(queue.receive(Wait::Forever).unwrap().packets.count(), 1);
    queue.release_all(Verdict::ACCEPT).unwrap();
    let (ours, kernel) = (queue.counters(), queue.kernel_counts().unwrap());
    let (arrived, output) = (ours.packets, ours.verdicts);
    println!("{ours:?} {kernel:?}");
    let sent = u64::from(COUNT) + 1;
    assert_eq!(scene.met("filter", "FORWARD", "NFQUEUE"), sent);
    assert_eq!(
        arrived.received + arrived.missing + u64::from(kernel.queue_dropped),
        sent
    );
    assert_eq!(arrived.missing, u64::from(kernel.user_dropped));
    assert_eq!(output.accepted + output.dropped, arrived.received);
    assert_eq!((arrived.refused, arrived.malformed), (0, 0));
    assert_eq!(datagrams.arrived().len() as u64, output.accepted);
}

#[test]
fn refused_verdicts_are_counted() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    scene.datagrams().send_all(0..3);
    wait_waiting(&queue, 3);
    let held: Vec<_> = queue.receive(Wait::Forever).unwrap().packets.collect();
    let held: Vec<_> = held.into_iter().map(|(_, held)| held).collect();
    scene.net.wan_end.set_up(false).unwrap();
    wait_waiting(&queue, 0);
    for held in held {
        queue.release().give(held, Verdict::ACCEPT).unwrap();
    }
    assert_eq!(queue.receive(Wait::Not).unwrap().packets.count(), 0);
    assert_eq!(queue.counters().packets.refused, 3);
}

#[test]
fn binding_under_load_loses_no_queued_packet() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let datagrams = scene.datagrams();
    let done = AtomicBool::new(false);
    let missing = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                datagrams.send(0);
            }
        });
        let missing = || {
            let mut queue = scene.bind_in_order(&Config::new(0));
            while queue.counters().packets.received == 0 {
                queue.answer(LOOK, |_| Verdict::ACCEPT).unwrap();
            }
            queue.counters().packets.missing
        };
        let all: Vec<_> = (0..50).map(|_| missing()).collect();
        done.store(true, Ordering::Relaxed);
        all
    });
    assert_eq!(missing, [0; 50]);
}
