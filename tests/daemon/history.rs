//! Weeks of counts: kept through a kill, answered by command, socket and page.

use std::fs;

use fairpath_testbed::{Need, Testbed, requires};
use fairpath_tests::daemon::{client, get};
use fairpath_tests::{Daemon, Place, binary};
use serde_json::Value;

use super::{ANNA, CLASSES, Site, counter};

/// The history of a class of the last hour, by the command.
fn history(place: &Place, class: &str) -> Value {
    let output = client(
        place,
        &["history", class, "--since", "1h", "--format", "json"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

fn bytes(series: &Value) -> [Option<u64>; 2] {
    ["bytes_up", "bytes_down"].map(|key| series["total"][key].as_u64())
}

#[test]
fn weeks_are_kept_through_a_kill() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    let web = format!("{CLASSES}\n[web]\nlisten = \"127.0.0.1:9912\"\n");
    place.configure(&["lan", "wan"], &web);
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 5);
    let row = daemon.row_when("anna", "5 flows closed", |row| row["flows"]["closed"] == 5);
    let counted = ["up", "down"].map(|dir| row[dir]["bytes"].as_u64());
    // At once, from memory; and the class above.
    daemon.status_when("an interval later", |_| {
        bytes(&history(&place, "anna")) == counted
    });
    assert_eq!(bytes(&history(&place, "site")), counted);
    let samples = &row["inside"]["total"]["samples"];
    assert_eq!(history(&place, "anna")["total"]["inside_samples"], *samples);
    // A slice later it is in the file.
    let slices = counter(&daemon.status(), "history_slices");
    daemon.status_when("another slice", |status| {
        counter(status, "history_slices") > slices + 1
    });
    daemon.kill();
    let file = place.path("state.history");
    let mut command = binary::command(binary::fairpath());
    command.args([
        "history", "anna", "--since", "1h", "--format", "csv", "--file",
    ]);
    let output = command.arg(&file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.lines().count() >= 2,
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let daemon = Daemon::start(site.router(), &place);
    let again = history(&place, "anna");
    assert_eq!(bytes(&again), counted);
    assert!(
        again["points"]
            .as_array()
            .is_some_and(|points| !points.is_empty()),
        "{again:#}"
    );
    // The page's answer is the same.
    let until = again["until_unix_ns"].as_u64().unwrap() / 1_000_000_000;
    let path = format!(
        "/api/history?name=anna&since={}&until={until}",
        until - 3_600
    );
    let answer = get(site.router(), 9912, &path);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let by_page: Value = serde_json::from_str(body).unwrap();
    assert_eq!(bytes(&by_page), counted);
    let text = String::from_utf8(client(&place, &["history", "anna"]).stdout).unwrap();
    assert!(
        text.starts_with("anna: ") && text.contains("bytes down"),
        "{text}"
    );
    let refused = client(&place, &["history", "ana"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && text.contains("the nearest name is \"anna\""),
        "{text}"
    );
    assert!(daemon.stop().success());
    assert_eq!(fs::metadata(&file).unwrap().len() % 16_384, 0);
    assert!(
        !place.path("state.history-wal").exists(),
        "the log is in the file"
    );
}

#[test]
fn a_history_without_file_harms_nothing() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    let missing = place.path("missing/history");
    let text = format!("{CLASSES}\n[history]\nfile = {missing:?}\n");
    place.configure(&["lan", "wan"], &text);
    let daemon = Daemon::start(site.router(), &place);
    daemon.logs("missing/history: history: ");
    site.exchange(ANNA, 5);
    daemon.row_when("anna", "5 flows closed", |row| row["flows"]["closed"] == 5);
    let status = daemon.status_when("intervals without a file", |status| {
        counter(status, "history_intervals_dropped") > 0
    });
    let notes = status["notes"].to_string();
    assert!(notes.contains("missing/history"), "{notes}");
    let refused = client(&place, &["history", "anna"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("missing/history"));

    // A file that is corrupted is moved, and another one begun.
    let other = place.path("other");
    fs::write(&other, [7; 20_000]).unwrap();
    let text = format!("{CLASSES}\n[history]\nfile = {other:?}\n");
    place.configure(&["lan", "wan"], &text);
    daemon.reload();
    daemon.logs("the file was moved to");
    let moved = fs::read_dir(place.path("")).unwrap().filter_map(Result::ok);
    let moved = moved.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with("other.refused-")
    });
    assert_eq!(moved.count(), 1);
    daemon.status_when("a slice", |status| counter(status, "history_slices") > 0);
    assert!(daemon.status()["notes"].as_array().is_none_or(|notes| {
        !notes
            .iter()
            .any(|note| note.as_str().is_some_and(|note| note.contains("history")))
    }));

    let text = format!("{CLASSES}\n[history]\nfile = \"off\"\n");
    place.configure(&["lan", "wan"], &text);
    daemon.reload();
    let refused = client(&place, &["history", "anna"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("set [history] file"));
    assert!(daemon.stop().success());
}
