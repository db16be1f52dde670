//! A program leaves its queue without losing a packet, if it is told in the right order.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use fairpath_nfqueue::{Config, DrainError, Verdict, Wait};
use fairpath_testbed::Process;
use nix::sys::signal::Signal;

use crate::needs_queues;
use crate::scene::{DEADLINE, Scene, wait_waiting};

const COUNT: u32 = 20_000;
/// Under way at most: more than the example keeps back.
const WINDOW: u64 = 300;

/// The example, which cargo builds beside the tests.
pub fn example() -> PathBuf {
    let test = env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("examples/accept_all")
}

fn start(scene: &Scene, mode: &str) -> Process {
    let mut command = scene.net.router.command(example());
    command.args(["0", mode]);
    let process = scene.net.router.spawn(command).unwrap();
    process.wait_stderr("queue 0 is bound", DEADLINE).unwrap();
    process
}

#[test]
fn sigterm_after_the_rule_has_gone_loses_no_packet() {
    needs_queues!();
    for mode in ["accept", "hold"] {
        let scene = Scene::new();
        scene.queue_clients("-A");
        let mut process = Some(start(&scene, mode));
        let mut said = String::new();
        let (lost, repeated) = scene.datagrams().stream(COUNT, WINDOW, || {
            scene.queue_clients("-D");
            let process = process.take().unwrap();
            process.signal(Signal::SIGTERM);
            said = process.finish(DEADLINE).unwrap();
        });
        assert_eq!((lost, repeated), (vec![], 0), "{mode}: {said}");
        assert!(said.contains("waiting: 0"), "{mode}: {said}");
    }
}

#[test]
fn sigkill_loses_what_was_held() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut process = Some(start(&scene, "hold"));
    let (lost, _) = scene.datagrams().stream(2_000, WINDOW, || {
        scene.queue_clients("-D");
        process.take().unwrap().signal(Signal::SIGKILL);
    });
    assert!(lost.len() >= 50, "{} lost", lost.len());
}

#[test]
fn draining_refuses_while_packets_are_held_or_keep_coming() {
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut queue = scene.bind(&Config::new(0));
    let datagrams = scene.datagrams();
    datagrams.send(1);
    let (_, held) = queue
        .receive(Wait::Forever)
        .unwrap()
        .packets
        .next()
        .unwrap();
    let early = queue.drain(DEADLINE, |_| Verdict::ACCEPT);
    assert!(
        matches!(early, Err(DrainError::Held { queue: 0, held: 1 })),
        "{early:?}"
    );
    queue.release().give(held, Verdict::ACCEPT).unwrap();
    datagrams.send(2);
    wait_waiting(&queue, 2);
    let late = queue.drain(Duration::ZERO, |_| Verdict::ACCEPT);
    assert!(
        matches!(late, Err(DrainError::StillComing { .. })),
        "{late:?}"
    );
    assert_eq!(queue.drain(DEADLINE, |_| Verdict::ACCEPT).unwrap(), 0);
    assert_eq!(datagrams.take(2), [1, 2]);
}
