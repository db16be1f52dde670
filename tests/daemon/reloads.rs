//! Taking in another configuration while traffic flows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fairpath_testbed::{Need, Testbed, requires};
use fairpath_tests::daemon::client;
use fairpath_tests::{Daemon, Place};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{ANNA, BERT, CLASSES, Site, counter};

#[test]
fn reloads_lose_no_byte_of_remaining_classes() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    let without_bert = CLASSES.split("[[class]]\nname = \"bert\"").next().unwrap();
    let moved = without_bert.replace("parent = \"site\"\n", "");
    let over = AtomicBool::new(false);
    let connections = thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut connections = 0;
            while !over.load(Ordering::Relaxed) {
                site.exchange(ANNA, 10);
                connections += 10;
            }
            connections
        });
        for round in 0..20 {
            // bert's address belongs to another guest each round; anna moves out of the site and back.
            let guest = format!("[[class]]\nname = \"guest{round}\"\nprefix = \"{BERT}\"\n");
            let classes = if round % 2 == 0 { without_bert } else { &moved };
            place.configure(&["lan", "wan"], &format!("{classes}{guest}"));
            let answer = daemon.reload();
            assert_eq!(answer["answer"], "done", "{answer}");
            let name = format!("guest{round}");
            let new = daemon.row(&name)["up"]["bytes"].as_u64().unwrap();
            assert!(new < 5_000, "{new} bytes of the guest before");
            site.exchange(BERT, 1);
            let counted = |row: &Value| row["flows"]["closed"] == 1;
            let row = daemon.row_when(&name, "counted", counted);
            let bytes = row["up"]["bytes"].as_u64().unwrap();
            assert!((20_000..25_000).contains(&bytes), "{row:#}");
        }
        over.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    // Where the machine stops a CPU that holds a lock, the other passes a packet unlooked at, and
    // says so: the last one of a flow, if it has to be.
    let all = |row: &Value| {
        let closed = row["flows"]["closed"].as_u64().unwrap_or(0);
        let unseen = counter(&daemon.status(), "lock_failures");
        (connections - unseen.min(connections)..=connections).contains(&closed)
    };
    let anna = daemon.row_when("anna", "all flows closed", all);
    assert_eq!(anna["flows"]["opened"], json!(connections));
    let bytes = anna["up"]["bytes"].as_u64().unwrap();
    assert!(
        (20_000 * connections..23_000 * connections).contains(&bytes),
        "{anna:#}"
    );
    assert_eq!(daemon.row("guest18"), Value::Null);
    let status = daemon.status();
    assert_eq!(status["configuration_generation"], 21);
    assert_eq!(status["counters"]["reloads"], 20);
}

#[test]
fn a_refused_configuration_changes_nothing() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 2);
    let before = daemon.row_when("anna", "2 flows closed", |row| row["flows"]["closed"] == 2);

    let twice = format!("{CLASSES}[[class]]\nname = \"dora\"\nprefix = \"10.10.1.3\"\n");
    place.configure(&["lan"], &twice);
    let output = client(&place, &["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    for part in ["nothing changed", "fairpath.toml:", "dora", "bert"] {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
    let status = daemon.status();
    assert_eq!(status["interfaces"], json!(["lan", "wan"]));
    assert_eq!(status["configuration_generation"], 1);
    assert!(
        status["notes"].to_string().contains("nothing changed"),
        "{status:#}"
    );
    assert_eq!(daemon.row("anna")["up"]["bytes"], before["up"]["bytes"]);

    // By signal too; then a good one clears the note.
    daemon.process.signal(Signal::SIGHUP);
    daemon.status_when("refused twice", |status| {
        status["counters"]["reloads_refused"] == 2
    });
    place.configure(&["lan", "wan"], CLASSES);
    daemon.process.signal(Signal::SIGHUP);
    let status = daemon.status_when("taken in", |status| status["configuration_generation"] == 2);
    assert!(
        !status["notes"].to_string().contains("nothing changed"),
        "{status:#}"
    );
}

#[test]
fn interfaces_and_classes_come_and_go_by_reload() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    let emil = "[[class]]\nname = \"emil\"\nprefix = \"10.10.2.0/24\"\n";
    place.configure(
        &["wan"],
        &format!("flows = 8192\n{emil}").replace("flows = 8192\n", ""),
    );
    let output = client(&place, &["reload"]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("classes added: emil"), "{stdout}");
    assert!(
        stdout.contains("classes removed: site, anna, bert"),
        "{stdout}"
    );
    daemon.logs("watching wan");
    daemon.logs("lan is not configured any more");
    assert_eq!(daemon.status()["interfaces"], json!(["wan"]));
    site.exchange(BERT, 3);
    daemon.row_when("emil", "3 flows closed", |row| row["flows"]["closed"] == 3);
    assert_eq!(daemon.row("bert"), Value::Null);
}

#[test]
fn settings_that_need_a_restart_are_reported() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    let capacity = daemon.status()["gauges"]["flows_capacity"].clone();
    let file = place.path("fairpath.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("flows = 4096", "flows = 8192")).unwrap();
    let answer = daemon.reload();
    assert!(
        answer["text"]
            .to_string()
            .contains("active after a restart: [monitor] flows"),
        "{answer}"
    );
    let status = daemon.status();
    assert_eq!(status["gauges"]["flows_capacity"], capacity);
    assert!(
        status["notes"].to_string().contains("[monitor] flows"),
        "{status:#}"
    );
}
