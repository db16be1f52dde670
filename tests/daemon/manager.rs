//! Notifications of the service manager.

use std::os::unix::net::UnixDatagram;
use std::time::Instant;

use fairpath_testbed::{Need, Testbed, requires};
use fairpath_tests::{Daemon, PATIENCE, Place, binary};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{CLASSES, Site};

/// Reads messages until one has a line that begins so; gives all lines up to it.
fn until(socket: &UnixDatagram, begins: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut bytes = [0; 4096];
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "no {begins} in {lines:?}");
        let count = socket.recv(&mut bytes);
        let count = count.unwrap_or_else(|error| panic!("{error}: no {begins} in {lines:?}"));
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        lines.extend(text.lines().map(str::to_owned));
        if text.lines().any(|line| line.starts_with(begins)) {
            return lines;
        }
    }
}

#[test]
fn the_service_manager_is_notified() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan"], CLASSES);
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let daemon = Daemon::spawn_with(site.router(), &place, |command| {
        command
            .env("NOTIFY_SOCKET", place.path("notify"))
            .env("WATCHDOG_USEC", "2000000");
    });
    until(&socket, "READY=1");
    until(&socket, "STATUS=watching lan; ");
    until(&socket, "WATCHDOG=1");
    daemon.process.signal(Signal::SIGHUP);
    let lines = until(&socket, "RELOADING=1");
    assert!(
        lines.iter().any(|line| line.starts_with("MONOTONIC_USEC=")),
        "{lines:?}"
    );
    until(&socket, "READY=1");
    until(&socket, "WATCHDOG=1");
    daemon.process.signal(Signal::SIGTERM);
    until(&socket, "STOPPING=1");
}

#[test]
fn journal_lines_have_a_priority_and_no_time() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "missing"], CLASSES);
    let daemon = Daemon::spawn_with(site.router(), &place, |command| {
        command.env("JOURNAL_STREAM", "8:1");
    });
    daemon.logs("<6>ready after");
    daemon.logs("<4>waiting for interface missing");
}

#[test]
fn misspelt_interfaces_name_the_nearest_one() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    let rest = format!("uplinks = [\"wna\"]\n{CLASSES}");
    place.configure(&["lan", "wan"], &rest);
    let expected = "wna ([monitor] uplinks): no interface has this name yet: did you mean \"wan\"?";
    let mut check = site.router().command_without_sysfs(binary::fairpath());
    check.args(["run", "--check", "--config"]);
    let output = check.arg(place.path("fairpath.toml")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.contains(expected), "{text}");

    let daemon = Daemon::start(site.router(), &place);
    daemon.logs(&format!("waiting for interface {expected}"));
    let waiting_when = |what: &str, condition: fn(&Value) -> bool| {
        daemon.status_when(what, |status| condition(&status["waiting_for"]))
    };
    waiting_when("the nearest name", |waiting| waiting[0]["nearest"] == "wan");
    // It appears later, but is not monitored.
    super::trouble::add_dummy(site.router(), "wna");
    waiting_when("the link exists", |waiting| waiting[0]["exists"] == true);
    place.configure(&["lan", "wan", "wna"], &rest);
    daemon.reload();
    waiting_when("it is monitored", Value::is_null);
}
