//! The operations of a back end's scheduler and the departures on the wire: the same order, in every runtime.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairpath_core::sched::{OpKind, OutcomeKind};
use fairpath_sched::log::{Part, Reader};
use fairpath_testbed::{Capture, CaptureOptions, Need, Offloads, Router, requires};
use fairpath_tests::binary;
use fairpath_wire::capture;

use crate::by;
use crate::scene::{BERT, Numbered, PORT, Scene, for_a_time, number, queue};

const CLASSES: &str = r#"
[[class]]
name = "anna"
prefix = "10.10.1.2"
down = "4mbit"
[[class]]
name = "bert"
prefix = "10.10.1.3"
down_floor = "6mbit"
"#;
/// Ports that flows come from.
const FLOWS: [u16; 4] = [7001, 7002, 7003, 7004];

/// A datagram: the port that it came from, and its number among those of that port.
type Datagram = (u16, u64);

/// Returns the content of the log: which datagrams were sent in which order, and how many were dropped.
///
/// A datagram that was dropped keeps its number, so datagrams are numbered as they came.
fn sent_by(log: &Path) -> (Vec<Datagram>, usize) {
    let mut reader = Reader::new(BufReader::new(File::open(log).unwrap())).unwrap();
    let (mut waiting, mut arrived) = (HashMap::new(), HashMap::<u16, u64>::new());
    let (mut sent, mut dropped) = (Vec::new(), 0);
    while let Some(part) = reader.next_part().unwrap() {
        let Part::Ops(batch) = part else { continue };
        let mut outcomes = batch.outcomes.iter().peekable();
        for (at, op) in batch.ops.iter().enumerate() {
            if op.kind == OpKind::Enqueue && op.meta.destination_port == PORT {
                let number = arrived.entry(op.meta.source_port).or_default();
                waiting.insert(op.handle, (op.meta.source_port, *number));
                *number += 1;
            }
            while let Some(outcome) = outcomes.next_if(|outcome| outcome.op as usize == at) {
                match outcome.kind {
                    OutcomeKind::Sent => sent.extend(waiting.remove(&outcome.handle)),
                    OutcomeKind::Dropped => {
                        dropped += usize::from(waiting.remove(&outcome.handle).is_some());
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(waiting.is_empty(), "{} are still held", waiting.len());
    (sent, dropped)
}

/// Returns the datagrams of a capture in the order of the wire.
fn sent_on_the_wire(bytes: &[u8]) -> Vec<Datagram> {
    let mut reader = capture::Reader::new(Cursor::new(bytes)).unwrap();
    let mut sent = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let word = |at: usize| {
            Some(u16::from_be_bytes([
                *record.data.get(at)?,
                *record.data.get(at + 1)?,
            ]))
        };
        if word(12) == Some(0x0800) && record.data[23] == 17 && word(36) == Some(PORT) {
            let number = record.data[42..50].try_into().unwrap();
            sent.push((word(34).unwrap(), u64::from_be_bytes(number)));
        }
    }
    sent
}

/// The one recording of a side.
fn recording(directory: &Path, side: &str) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap();
    let mut files = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(side) && name.ends_with(".ops")
    });
    let file = files.next().expect("a recording");
    assert_eq!(files.next(), None);
    file
}

by!(recorded_packets_replay_equally_in_every_runtime: nfqueue, afxdp);

fn recorded_packets_replay_equally_in_every_runtime(port: &'static str) {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    let recordings = scene.place.path("recordings");
    let daemon = scene.shape(
        "down = \"10mbit\"\npackets = 300\nrecord = \"recordings\"",
        CLASSES,
    );
    scene.meet(&[Router::CLIENT.v4, BERT]);
    let options = CaptureOptions::default();
    let wire = Capture::start_anonymous(&scene.net.client, "eth0", &options).unwrap();
    // 20 Mbit/s where 10 are: two flows of anna, one of them twice as fast, and two of bert.
    let sources = [(0, 400, 500), (1, 800, 1000), (2, 500, 700), (3, 700, 300)].map(
        |(flow, micros, bytes)| {
            let to = if flow < 2 { Router::CLIENT.v4 } else { BERT };
            let every = Duration::from_micros(micros);
            Numbered::start_from(&scene.net.server, FLOWS[flow], to.into(), every, bytes)
        },
    );
    for_a_time(Duration::from_secs(1));
    // A change of rates is an operation like others.
    assert!(
        scene
            .command(&["set", "anna", "--down", "2mbit"])
            .status
            .success()
    );
    for_a_time(Duration::from_secs(1));
    let offered: u64 = sources.map(Numbered::finish).iter().sum();
    for_a_time(Duration::from_secs(1));
    assert!(daemon.stop().success());
    let wire = sent_on_the_wire(&wire.stop().unwrap().bytes().unwrap());

    let log = recording(&recordings, "down");
    let (sent, dropped) = sent_by(&log);
    println!(
        "{port}: {offered} offered, {} sent, {dropped} dropped",
        sent.len()
    );
    assert_eq!((sent.len() + dropped) as u64, offered);
    assert!(sent.len() > 1000 && dropped > 1000, "{dropped}");
    let first = sent.iter().zip(&wire).position(|(a, b)| a != b);
    assert_eq!(first, None, "the wire has another order from there on");
    assert_eq!(sent.len(), wire.len());
    // Interleaved, or the order would say nothing.
    let changes = sent.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    assert!(changes.count() > sent.len() / 4);

    for side in ["down", "up"] {
        let log = recording(&recordings, side);
        for runtime in ["native", "kernel"] {
            let mut command = binary::command(binary::fairpath());
            command
                .args(["sched", "replay", "--runtime", runtime])
                .arg(&log);
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{side} {runtime}: {output:?}");
            assert!(text.contains("no difference"), "{side} {runtime}: {text}");
        }
    }
}

by!(where_nothing_can_be_recorded_it_is_shaped: nfqueue);

fn where_nothing_can_be_recorded_it_is_shaped(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new(port, Offloads::Off);
    // The configuration is a file.
    let daemon = scene.shape("down = \"10mbit\"\nrecord = \"fairpath.toml\"", CLASSES);
    daemon.logs("[shape] record: create");
    assert_eq!(number(&queue(&daemon, "down", None), "dropped_packets"), 0);
    assert!(daemon.stop().success());
}
