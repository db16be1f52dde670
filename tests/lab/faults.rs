//! Faults of the network, the traffic and the machine: each is named, and its run excluded.

use std::path::PathBuf;
use std::process::{Child, Command, Output};

use fairpath_testbed::{Need, requires};
use fairpath_tests::binary::fairpath;
use serde_json::Value;

use crate::scene::{QUEUE, Scene, faults, stderr, write_script};

/// The first record of a run that has a fault of this kind, and the page says so.
fn assert_named(scene: &Scene, output: &Output, kind: &str) -> Value {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    let records = scene.records();
    // One setting, whose runs are all invalid. A run is repeated once, and up to three times more if others
    // disturbed it: another program on this machine may do so in each test.
    let repeated = records.iter().filter(|run| run["place"] != 0).count();
    let minimum = if kind == "shared-cpu" { 3 } else { 1 };
    assert!(
        (minimum..=4).contains(&repeated),
        "repeated {repeated} times"
    );
    let runs = records.len();
    assert_eq!(runs, repeated + 1);
    let invalid = format!("Invalid runs: {runs} of {runs}");
    assert!(text.contains(&invalid), "{text}");
    assert!(
        text.ends_with("Settings without a valid run: the only one\n\n"),
        "{text}"
    );
    assert!(
        faults(&records[0]).contains(&kind),
        "{kind}: {:#}",
        records[0]["faults"]
    );
    let page = std::fs::read_to_string(scene.out().join("report.md")).unwrap();
    assert!(page.contains("✗ 0"), "{page}");
    records.into_iter().next().unwrap()
}

/// The experiment without its leave to fill processors.
fn judged() -> String {
    QUEUE.replace("measures-machine = true\n", "")
}

#[test]
fn a_sender_limited_by_its_window_is_named() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(&judged().replace("number = 2", "window = 8192"));
    let output = scene.run();
    assert_named(&scene, &output, "window-limited");
}

#[test]
fn offloads_left_on_are_named() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let text = QUEUE.replace("[links.wan]\n", "[links.wan]\nvia = \"nfqueue\"\n");
    let scene = Scene::new(&text.replace("seed = 4\n", "seed = 4\noffloads = true\n"));
    let output = scene.run();
    assert_named(&scene, &output, "offloads-on");
}

#[test]
fn other_congestion_control_than_requested_is_named() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(QUEUE);
    let script = "for word do shift; case $word in --congestion=*) set -- \"$@\" --congestion=reno ;; \
        *) set -- \"$@\" \"$word\" ;; esac; done; exec /usr/bin/iperf3 \"$@\"";
    let path = scene.instead_of("iperf3", script);
    let output = scene.command().env("PATH", path).output().unwrap();
    let run = assert_named(&scene, &output, "wrong-congestion");
    let text = run["faults"].to_string();
    assert!(
        text.contains("configured cubic, but the kernel used reno"),
        "{text}"
    );
}

/// A router's binary that forgets what `sed` says of each of its words.
fn forgetful(scene: &Scene, sed: &str) -> PathBuf {
    let path = scene.place.path().join("fairpath");
    let real = fairpath().display();
    let script = format!(
        "for word do shift; set -- \"$@\" \"$(printf %s \"$word\" | sed '{sed}')\"; done; exec {real} \"$@\""
    );
    write_script(&path, &script);
    path
}

#[test]
fn an_impairment_that_is_not_applied_is_named() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(&QUEUE.replace("limit = 50", "loss = \"3%\""));
    let forgetful = forgetful(&scene, "s/loss 3%//");
    let output = scene.command_with(&forgetful).output().unwrap();
    let run = assert_named(&scene, &output, "not-impaired");
    assert!(
        run["faults"]
            .to_string()
            .contains("configured were 3.000 %"),
        "{:#}",
        run["faults"]
    );
}

#[test]
fn forgotten_delay_and_jitter_are_named() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(QUEUE);
    let forgets = forgetful(&scene, "s/delay 10000000ns//");
    let output = scene.command_with(&forgets).output().unwrap();
    let run = assert_named(&scene, &output, "not-impaired");
    let text = run["faults"].to_string();
    for part in [
        "ping ping: the minimum RTT was",
        "flow bulk: the minimum RTT was",
        "delay: configured 10000000ns, but the emulator reported no value",
    ] {
        assert!(text.contains(part), "{part}: {:#}", run["faults"]);
    }

    let jitter = "jitter = \"3ms\"\nreordering = true\n";
    let scene = Scene::new(&QUEUE.replace("limit = 50\n", &format!("limit = 50\n{jitter}")));
    let forgets = forgetful(
        &scene,
        "s/jitter 3000000ns distribution normal order free//",
    );
    let output = scene.command_with(&forgets).output().unwrap();
    let run = assert_named(&scene, &output, "not-impaired");
    let text = run["faults"].to_string();
    assert!(
        text.contains("configured normal, but the emulator reported no value"),
        "{:#}",
        run["faults"]
    );
}

/// Processes that want every processor; they end with the value.
struct Hogs(Vec<Child>);

impl Drop for Hogs {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Gone already: then there is nothing to end.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn processors_that_others_take_are_named() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::alone(&judged());
    let count = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    let hog = || {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).spawn().unwrap()
    };
    let _hogs = Hogs((0..count).map(|_| hog()).collect());
    let output = scene.run();
    let run = assert_named(&scene, &output, "shared-cpu");
    assert!(
        run["faults"].to_string().contains("no part of the run"),
        "{:#}",
        run["faults"]
    );
}
