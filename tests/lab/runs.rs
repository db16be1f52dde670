//! The results of a grid, and its continuation.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use fairpath_testbed::{Need, requires, wait_for};
use fairpath_units::{Disturbed, repeat_disturbed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::scene::{LOSSY, QUEUE, Scene, faults, stderr};

#[test]
fn a_grid_runs_completely_with_configured_loss() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(LOSSY);
    let output = scene.run();
    scene.assert_finished(&output);
    let manifest = scene.manifest();
    assert_eq!(
        (&manifest["runs_planned"], manifest["ended"].is_string()),
        (&4.into(), true)
    );
    assert_eq!(
        manifest["axes"][0]["values"],
        serde_json::json!(["0%", "5%"])
    );
    let records = scene.records();
    let settings: BTreeSet<String> = records
        .iter()
        .map(|run| run["setting"].to_string())
        .collect();
    assert_eq!(settings.len(), 2, "{settings:?}");
    for run in records.iter().filter(|run| run["setting"]["loss"] == "5%") {
        let link = &run["links"][0];
        assert_eq!(link["engine"], "xdp", "{link:#}");
        assert!(link["lost"].as_u64().unwrap() > 0, "{link:#}");
        assert!(
            run["passive"]["segments"].as_u64().unwrap() > 0,
            "{:#}",
            run["passive"]
        );
    }
    let queries = |run: &&Value| run["commands"].to_string().contains("\"impair\"");
    let unchecked = |run: &&Value| run["commands"].to_string().contains("\"--no-self-test\"");
    let impaired: Vec<&Value> = records.iter().filter(queries).collect();
    assert!(impaired.len() >= 2);
    let first: Vec<bool> = impaired.iter().map(unchecked).collect();
    assert!(!first[0] && first[1..].iter().all(|is| *is), "{first:?}");
    // A machine that is busy may not let a run be measured; that the network is wrong it cannot cause.
    for run in &records {
        let known = |kind: &&str| ["not-measured", "shared-cpu"].contains(kind);
        let named = faults(run);
        assert!(named.iter().all(known), "{:#}", run["faults"]);
    }
    assert!(
        records.iter().any(|run| faults(run).is_empty()),
        "{}",
        stderr(&output)
    );
    for file in ["index.html", "report.md", "report.json"] {
        assert!(scene.out().join(file).is_file(), "{file}");
    }
}

#[test]
fn one_run_measures_all_subjects() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(QUEUE);
    let output = scene.run();
    scene.assert_finished(&output);
    let run = &scene.records()[0];
    let flows = run["flows"].as_array().unwrap();
    let names: Vec<&Value> = flows.iter().map(|flow| &flow["name"]).collect();
    assert_eq!(names, ["bulk", "bulk-2"]);
    for flow in flows {
        assert_eq!(flow["congestion_seen"], serde_json::json!(["cubic"]));
        assert!(
            flow["samples"].as_array().unwrap().len() > 1,
            "{}",
            flow["samples"]
        );
        assert!(flow["loss_events"].is_object());
    }
    let idle = run["pings"][0]["idle_rtts_ns"].as_array();
    assert!(idle.is_some_and(|rtts| !rtts.is_empty()));
    assert!(run["calls"][0]["delays_ns"].as_array().unwrap().len() >= 75);
    assert_eq!(run["queues"][0]["policy"], "fq_codel");
    assert_eq!(run["bottleneck"]["base_rtt_ns"], 20_000_000);
    let hosts: Vec<&Value> = run["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| &command["host"])
        .collect();
    assert_eq!(hosts[0], "router", "{hosts:?}");
    assert_eq!(run["offloads"].as_object().unwrap().len(), 4);
}

#[test]
fn an_unloaded_call_keeps_its_duration() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    for alone in ["number = 0", "seconds = 2"] {
        let scene = Scene::new(&QUEUE.replace("number = 2", alone));
        let output = scene.run();
        scene.assert_finished(&output);
        let run = &scene.records()[0];
        let packets = run["calls"][0]["delays_ns"].as_array().unwrap();
        assert!(packets.len() >= 75, "{alone}: {}", packets.len());
        assert!(
            !faults(run).contains(&"not-measured"),
            "{alone}: {:#}",
            run["faults"]
        );
    }
}

/// When pings first took half as long again as before, seconds; none: they never did.
fn step_seen(run: &Value) -> Option<f64> {
    let rtts = run["pings"][0]["rtts_ns"].as_array()?;
    let slow = |pair: &&Value| pair[1].as_u64().is_some_and(|ns| ns > STEP_SEEN_NS);
    rtts.iter().find(slow)?[0].as_f64()
}

/// Between the round trips before the step (10 ms) and behind it (110 ms).
const STEP_SEEN_NS: u64 = 60_000_000;

#[test]
fn delays_change_at_the_configured_second() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    for idle in ["0", "2"] {
        let text = QUEUE
            .replace("limit = 50\npolicy = \"fq_codel\"\n", STEPS)
            .replace("rate = \"10mbit\"\nrtt = \"20ms\"\n", "rtt = \"10ms\"\n")
            .replace(
                "congestion = \"cubic\"\nnumber = 2\n",
                "congestion = \"cubic\"\nbitrate = \"1mbit\"\n",
            )
            .replace("idle = 0.5", &format!("idle = {idle}.0"));
        let test = format!("lab::delays_change_at_the_configured_second::idle {idle}");
        repeat_disturbed(&test, STEP_TRIES, |_| {
            let scene = Scene::new(&text);
            let output = scene.run();
            scene.assert_finished(&output);
            let at = step_seen(&scene.records()[0]);
            // A packet leaves at the later delay from second 2 on; it may be late by what a machine is.
            let in_time = at.is_some_and(|at| (1.8..2.3).contains(&at));
            Disturbed::unless(in_time, format!("the step was seen at {at:?} s"))
        });
    }
}

/// A path that becomes longer by 50 ms each way.
const STEPS: &str = "delay-steps = [{ at = 2.0, delay = '55ms' }]\n";
/// Runs until one is not disturbed.
const STEP_TRIES: u32 = 3;

#[test]
fn interrupted_sessions_continue_with_the_remaining_runs() {
    requires!(Need::Root, Need::Tool("iperf3"), Need::Tool("ethtool"));
    let scene = Scene::new(LOSSY);
    let child = scene
        .command()
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let first = scene.out().join("runs/0000.json");
    wait_for(Duration::from_secs(120), || first.exists().then_some(())).expect("a first run");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("repeat the command to continue"),
        "{}",
        stderr(&output)
    );
    assert!(scene.manifest()["ended"].is_null());
    assert!(
        scene.out().join("index.html").is_file(),
        "what is there is reported"
    );
    assert!(scene.records().len() < 4);
    let before = fs::read(&first).unwrap();

    let output = scene.run();
    scene.assert_finished(&output);
    assert!(scene.records().len() >= 4);
    assert!(
        fs::read(&first).unwrap() == before,
        "a finished run is never changed"
    );
    let other = scene.command().args(["--seed", "9"]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(
        stderr(&other).contains("holds other results"),
        "{}",
        stderr(&other)
    );
}
