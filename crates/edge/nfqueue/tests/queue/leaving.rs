//! A program leaves its queue without losing a packet, if the steps are in the right order.

use std::env;
use std::process::Command;
use std::time::Duration;

use fairpath_nfqueue::{Config, DrainError, Verdict, Wait, kernel_counts};
use fairpath_testbed::{Process, wait_for};
use nix::sys::signal::Signal;

use crate::scene::{DEADLINE, Scene, wait_waiting};
use crate::{accept_all, needs_queues};

const COUNT: u32 = 20_000;
/// Under way at most: more than the example keeps back.
const WINDOW: u64 = 300;

/// Holds the example's arguments where a test started itself again as the example.
const EXAMPLE_ENV: &str = "FAIRPATH_NFQUEUE_EXAMPLE";

/// In a child that [`as_example`] started: runs the example `accept_all` to its end.
///
/// False in the test itself. A test that starts itself again calls this first.
pub fn was_example() -> bool {
    let Ok(arguments) = env::var(EXAMPLE_ENV) else {
        return false;
    };
    accept_all::run(arguments.split(' ').map(str::to_owned)).unwrap();
    true
}

/// Makes `command` start `test`, which calls [`was_example`], as the example with these arguments.
pub fn as_example(command: &mut Command, test: &str, arguments: &str) {
    command
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(EXAMPLE_ENV, arguments);
}

fn start(scene: &Scene, test: &str, mode: &str) -> Process {
    let mut command = scene.net.router.command("env");
    as_example(&mut command, test, &format!("0 {mode}"));
    let process = scene.net.router.spawn(command).unwrap();
    process.wait_stderr("queue 0 is bound", DEADLINE).unwrap();
    process
}

#[test]
fn sigterm_after_rule_removal_loses_no_packet() {
    const TEST: &str = "leaving::sigterm_after_rule_removal_loses_no_packet";
    if was_example() {
        return;
    }
    needs_queues!();
    for mode in ["accept", "hold"] {
        let scene = Scene::new();
        scene.queue_clients("-A");
        let mut process = Some(start(&scene, TEST, mode));
        let mut output = String::new();
        let (lost, repeated) = scene.datagrams().stream(COUNT, WINDOW, || {
            let process = process.take().unwrap();
            // All packets wait in the queue when the program is stopped.
            process.signal(Signal::SIGSTOP);
            let waiting = || scene.on_router(|| kernel_counts().unwrap()[0].waiting);
            let all = || (u64::from(waiting()) == WINDOW).then_some(());
            wait_for(DEADLINE, all).unwrap_or_else(|| panic!("{} wait", waiting()));
            scene.queue_clients("-D");
            process.signal(Signal::SIGTERM);
            process.signal(Signal::SIGCONT);
            output = process.finish(DEADLINE).unwrap();
        });
        assert_eq!((lost, repeated), (vec![], 0), "{mode}: {output}");
        assert!(output.contains("waiting: 0"), "{mode}: {output}");
    }
}

#[test]
fn sigkill_loses_queued_packets() {
    if was_example() {
        return;
    }
    needs_queues!();
    let scene = Scene::new();
    scene.queue_clients("-A");
    let mut process = Some(start(
        &scene,
        "leaving::sigkill_loses_queued_packets",
        "hold",
    ));
    let (lost, _) = scene.datagrams().stream(2_000, WINDOW, || {
        scene.queue_clients("-D");
        process.take().unwrap().signal(Signal::SIGKILL);
    });
    assert!(lost.len() >= 50, "{} lost", lost.len());
}

#[test]
fn draining_refuses_while_packets_are_queued() {
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
