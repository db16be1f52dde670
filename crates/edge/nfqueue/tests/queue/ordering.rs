//! Queued packets leave at the time and in the order of their verdicts.

use std::thread;

use fairpath_nfqueue::{Config, Held, Holding, Queue, QueueError, Verdict, Wait};

use crate::needs_queues;
use crate::scene::{Scene, stay_on_one_cpu, wait_waiting};

const COUNT: u32 = 200;

fn take_all(queue: &mut Queue<Holding>, count: u32) -> Vec<Held> {
    let mut held = Vec::new();
    while held.len() < count as usize {
        held.extend(
            queue
                .receive(Wait::Forever)
                .unwrap()
                .packets
                .map(|(_, held)| held),
        );
    }
    held
}

#[test]
fn queued_packets_leave_in_verdict_order() {
    needs_queues!();
    stay_on_one_cpu();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    let datagrams = scene.datagrams();
    datagrams.send_all(0..COUNT);
    let held = take_all(&mut queue, COUNT);
    assert_eq!((queue.held(), datagrams.arrived()), (COUNT.into(), vec![]));
    let mut verdicts = queue.release();
    // The even ones newest first, then the odd ones oldest first.
    let (even, odd): (Vec<_>, Vec<_>) = held.into_iter().partition(|held| held.id() % 2 == 1);
    for held in even.into_iter().rev().chain(odd) {
        verdicts.give(held, Verdict::ACCEPT).unwrap();
    }
    verdicts.flush().unwrap();
    let expected: Vec<_> = (0..COUNT)
        .step_by(2)
        .rev()
        .chain((1..COUNT).step_by(2))
        .collect();
    assert_eq!(datagrams.take(COUNT as usize), expected);
    assert_eq!(queue.held(), 0);
    assert!(
        queue.counters().verdicts.sends < 5,
        "{:?}",
        queue.counters()
    );
}

#[test]
fn verdict_on_one_packet_leaves_older_ones_held() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    let datagrams = scene.datagrams();
    datagrams.send_all(0..3);
    let mut held = take_all(&mut queue, 3);
    queue
        .release()
        .give(held.pop().unwrap(), Verdict::ACCEPT)
        .unwrap();
    queue.release().flush().unwrap();
    assert_eq!(datagrams.next(), 2);
    wait_waiting(&queue, 2);
    assert_eq!(datagrams.arrived(), [0; 0]);
    queue.release_all(Verdict::ACCEPT).unwrap();
    assert_eq!(datagrams.take(2), [0, 1]);
    assert_eq!(
        (queue.held(), queue.kernel_counts().unwrap().waiting),
        (0, 0)
    );
    // A packet that was released with all others gets no second verdict.
    let void = queue.release().give(held.pop().unwrap(), Verdict::DROP);
    assert!(
        matches!(void, Err(QueueError::OtherQueue { queue: 0, id: 2 })),
        "{void:?}"
    );
}

#[test]
fn a_queue_refuses_verdicts_on_another_queues_packets() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    let mut other = scene.bind(&Config::new(1));
    scene.datagrams().send(0);
    let held = take_all(&mut queue, 1).pop().unwrap();
    let other_queue = other.release().give(held, Verdict::ACCEPT);
    assert!(
        matches!(other_queue, Err(QueueError::OtherQueue { queue: 1, id: 1 })),
        "{other_queue:?}"
    );
    assert_eq!(queue.kernel_counts().unwrap().waiting, 1);
}

#[test]
fn packets_that_are_not_taken_come_again() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    scene.datagrams().send_all(0..3);
    wait_waiting(&queue, 3);
    let first = queue
        .receive(Wait::Forever)
        .unwrap()
        .packets
        .next()
        .unwrap()
        .1;
    assert_eq!(first.id(), 1);
    let ids: Vec<_> = queue
        .receive(Wait::Not)
        .unwrap()
        .packets
        .map(|(packet, _)| packet.id())
        .collect();
    assert_eq!(ids, [2, 3]);
}

#[test]
fn each_queue_has_its_own_thread() {
    needs_queues!();
    let scene = Scene::new();
    let rule =
        "FORWARD -i lan -m statistic --mode nth --every 2 --packet 0 -j NFQUEUE --queue-num 0";
    scene.rule("iptables", "-A", rule);
    scene.rule("iptables", "-A", "FORWARD -i lan -j NFQUEUE --queue-num 1");
    let queues = [0, 1].map(|number| scene.bind_in_order(&Config::new(number)));
    let datagrams = scene.datagrams();
    let answered = thread::scope(|scope| {
        let threads = queues.map(|mut queue| {
            scope.spawn(move || {
                let mut count = 0;
                while count < COUNT as usize / 2 {
                    count += queue.answer(Wait::Forever, |_| Verdict::ACCEPT).unwrap();
                }
                count
            })
        });
        datagrams.send_all(0..COUNT);
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(answered, [COUNT as usize / 2; 2]);
    let mut arrived = datagrams.take(COUNT as usize);
    arrived.sort_unstable();
    assert_eq!(arrived, (0..COUNT).collect::<Vec<_>>());
}
