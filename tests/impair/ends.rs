//! The ends of a run, and the outcomes of packets in the queue.

use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Router, requires, wait_for};
use fairpath_tests::PATIENCE;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::by;
use crate::scene::{Impaired, router, runs};
use crate::stream::Course;

by!(queued_packets_are_reported_at_the_end: afxdp, nfqueue);

const COUNT: u32 = 200;

/// A command that ends a run, and its report.
const SLEEP: [&str; 2] = ["sleep", "1235"];

fn queued_packets_are_reported_at_the_end(port: &'static str) {
    requires!(Need::Root);
    let net = router();
    let words = ["--to-peer", "delay 60s", "--from-peer", "none"];
    let impaired = Impaired::between(&net, port, &words);
    let continues = port == "nfqueue";
    let wanted = if continues { COUNT as usize } else { 0 };
    let frames = || net.server_end.counters().unwrap().rx_packets;
    let (begin, before) = (Instant::now(), frames());
    let (stream, ended) = thread::scope(|scope| {
        let ended = scope.spawn(|| {
            wait_for(PATIENCE, || {
                let reported = impaired.process.stdout();
                let last: Value = serde_json::from_str(reported.lines().last()?).ok()?;
                (last["directions"][0]["backlog_packets"] == COUNT).then_some(())
            })
            .unwrap();
            impaired.end()
        });
        let course = Course::new(&net.client, &net.server, Router::SERVER.v4, COUNT);
        (course.run(wanted), ended.join().unwrap())
    });
    assert!(
        begin.elapsed() < Duration::from_secs(60),
        "they waited for their time"
    );
    assert_eq!(stream.numbers().len(), wanted);
    assert_eq!(frames() - before, wanted as u64);
    assert_eq!(stream.inversions(), 0);
    assert_eq!(
        ended.number("to-peer", "enqueued_packets"),
        u64::from(COUNT)
    );
    assert_eq!(ended.number("to-peer", "backlog_packets"), u64::from(COUNT));
    assert_eq!(ended.number("to-peer", "sent_packets"), 0);
    let what = match continues {
        true => "200 packets in the backlog at the end were sent without delay",
        false => "200 packets in the backlog at the end were dropped",
    };
    assert!(ended.stderr.contains(what), "{}", ended.stderr);
    ended.assert_valid();
}

#[test]
fn termination_ends_the_command_and_keeps_its_status() {
    requires!(Need::Root);
    let net = router();
    let words = [&["lan", "--ingress", "loss 10%", "--"][..], &SLEEP].concat();
    let impaired = Impaired::start(&net.router, &words);
    impaired.process.signal(Signal::SIGTERM);
    let ended = impaired.ended();
    // The command was asked in the same way.
    assert_eq!(ended.status.code(), Some(128 + 15), "{}", ended.stderr);
    assert!(!runs(&net.router, &SLEEP), "the command still runs");
}

#[test]
fn the_duration_ends_the_command_or_vice_versa() {
    requires!(Need::Root);
    let net = router();
    let begin = Instant::now();
    let words = [
        &["lan", "--ingress", "loss 10%", "--duration", "700ms", "--"][..],
        &SLEEP,
    ]
    .concat();
    let ended = Impaired::start(&net.router, &words).ended();
    assert!(begin.elapsed() >= Duration::from_millis(700));
    assert_eq!(ended.status.code(), Some(128 + 15), "{}", ended.stderr);
    assert!(!runs(&net.router, &SLEEP), "the command still runs");
    let words = [
        "lan",
        "--ingress",
        "loss 10%",
        "--duration",
        "1h",
        "--",
        "sh",
        "-c",
        "exit 3",
    ];
    let ended = Impaired::start(&net.router, &words).ended();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.report["elapsed_s"].as_f64().unwrap() < 60.0);
}
