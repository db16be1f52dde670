//! Start, end, restart: what is kept and what is said.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Testbed, requires, wait_for};
use fairpath_tests::daemon::client;
use fairpath_tests::{Daemon, PATIENCE, Place};
use serde_json::Value;

use super::{ANNA, CLASSES, Site};

fn bytes_up(row: &Value) -> u64 {
    row["up"]["bytes"]
        .as_u64()
        .unwrap_or_else(|| panic!("{row:#}"))
}

#[test]
fn sigterm_ends_it_within_a_second() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    assert!(place.socket().exists());
    let mode = std::fs::metadata(place.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o007, 0, "others may not connect");
    let begin = Instant::now();
    assert!(daemon.stop().success());
    // A machine that does much else may be slower; hanging would take minutes.
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!place.socket().exists());
    let links = site
        .router()
        .run(&["ip", "-details", "link", "show"])
        .unwrap();
    assert!(!links.contains("xdp"), "{links}");
    let left: Vec<String> = std::fs::read_dir(place.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        left.len(),
        3,
        "configuration, state and history alone: {left:?}"
    );
}

#[test]
fn a_restart_continues_counting_and_reports_the_gap() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    assert_eq!(daemon.status()["restart_gap_ns"], Value::Null);
    site.exchange(ANNA, 5);
    let before = daemon.row_when("anna", "5 flows closed", |row| row["flows"]["closed"] == 5);
    let since = daemon.status()["counting_since_unix_ns"].clone();
    assert!(daemon.stop().success());

    site.exchange(ANNA, 1); // without a daemon
    let daemon = Daemon::start(site.router(), &place);
    daemon.logs("state restored; no measurement for");
    let status = daemon.status();
    assert!(
        status["restart_gap_ns"]
            .as_u64()
            .is_some_and(|ns| ns > 1_000_000),
        "{status:#}"
    );
    assert_eq!(status["counting_since_unix_ns"], since);
    let restored = daemon.row("anna");
    assert_eq!(bytes_up(&restored), bytes_up(&before));
    assert_eq!(
        restored["inside"]["total"]["samples"],
        before["inside"]["total"]["samples"]
    );
    site.exchange(ANNA, 5);
    let after = daemon.row_when("anna", "10 flows closed", |row| {
        row["flows"]["closed"] == 10
    });
    assert!(bytes_up(&after) >= 2 * 5 * 20_000);
    let text = String::from_utf8(client(&place, &["status"]).stdout).unwrap();
    assert!(text.contains("ms at the last restart"), "{text}");
}

#[test]
fn kill_9_loses_no_more_than_save_interval() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let file = place.path("fairpath.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let saving = text.replace("[state]\n", "[state]\nsave_every = \"1s\"\n");
    std::fs::write(&file, saving).unwrap();
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 5);
    let before = daemon.row_when("anna", "5 flows closed", |row| row["flows"]["closed"] == 5);
    let saves = daemon.status()["counters"]["state_saves"].as_u64().unwrap();
    daemon.status_when("saved since", |status| {
        status["counters"]["state_saves"].as_u64().unwrap() >= saves + 2
    });
    daemon.kill();
    assert!(place.socket().exists(), "killed: it could not clean up");

    let daemon = Daemon::start(site.router(), &place);
    daemon.logs("left by a daemon that did not stop cleanly");
    assert_eq!(bytes_up(&daemon.row("anna")), bytes_up(&before));
}

#[test]
fn a_second_daemon_is_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    let mut second = Daemon::spawn(site.router(), &place);
    let status = second.process.wait(PATIENCE).unwrap();
    assert_eq!(status.code(), Some(1));
    second.logs("another daemon is running");
    site.exchange(ANNA, 1);
    daemon.row_when("anna", "1 flow closed", |row| row["flows"]["closed"] == 1);
}

#[test]
fn only_the_loop_retains_three_capabilities() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "later"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    daemon.logs("waiting for interface later");
    let of = |thread: &str, key: &str| {
        let path = format!("/proc/{}/task/{thread}/status", daemon.process.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    };
    let main = daemon.process.id().to_string();
    // CAP_NET_ADMIN is 12, CAP_PERFMON 38, CAP_BPF 39.
    let kept = format!("{:016x}", 1u64 << 12 | 1 << 38 | 1 << 39);
    assert_eq!(of(&main, "CapPrm"), kept);
    assert_eq!(of(&main, "CapBnd"), kept);
    let threads = std::fs::read_dir(format!("/proc/{main}/task")).unwrap();
    for thread in threads {
        let id = thread.unwrap().file_name().into_string().unwrap();
        // That of hooks begins before the others, and sets it itself.
        let set = || (of(&id, "NoNewPrivs") == "1").then_some(());
        assert!(wait_for(PATIENCE, set).is_some(), "thread {id}");
        let path = format!("/proc/{main}/task/{id}/comm");
        if std::fs::read_to_string(path).unwrap().trim() == "hook" {
            // CAP_KILL is 5, CAP_SETGID 6, CAP_SETUID 7: a hook has another user.
            let three = || (of(&id, "CapPrm") == format!("{:016x}", 7 << 5)).then_some(());
            assert!(wait_for(PATIENCE, three).is_some(), "thread {id}");
        } else if id != main {
            // One that has just begun gives up first of all.
            let empty = || of(&id, "CapPrm").trim_matches('0').is_empty().then_some(());
            assert!(wait_for(PATIENCE, empty).is_some(), "thread {id}");
        }
    }
    // What is left suffices for an interface that comes later.
    super::trouble::add_dummy(site.router(), "later");
    daemon.logs("watching later");
}
