//! Full disks, removed interfaces, corrupted files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use fairpath_testbed::{LinkEnd, Need, Netns, Testbed, Veth, requires};
use fairpath_tests::{Daemon, PATIENCE, Place, rtt};
use serde_json::Value;

use super::{ANNA, CLASSES, Site};

/// An interface of this name, whose other end is `NAME-peer` in the same namespace.
pub fn add_dummy(ns: &Netns, name: &str) {
    let ends = [name.to_owned(), format!("{name}-peer")].map(|name| LinkEnd::new(ns, &name));
    let [end, peer] = ends;
    Veth::between(end, peer).build().unwrap();
}

#[test]
fn a_returning_interface_keeps_its_row() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan", "ppp*"], CLASSES);
    let daemon = Daemon::start(site.router(), &place);
    let packets = |row: &Value| {
        let count = |direction: &str| row[direction]["packets"].as_u64().unwrap_or(0);
        count("up") + count("down")
    };
    add_dummy(site.router(), "ppp0");
    daemon.logs("watching ppp0");
    let ping = || {
        let words = [
            "ping",
            "-c",
            "3",
            "-i",
            "0.01",
            "-W",
            "1",
            "-I",
            "ppp0",
            "10.99.0.9",
        ];
        // There is no answer; the test needs only departures.
        let _ = site.router().run(&words);
    };
    let address = ["ip", "address", "add", "10.99.0.1/24", "dev", "ppp0"];
    let neighbour = [
        "ip",
        "neigh",
        "replace",
        "10.99.0.9",
        "lladdr",
        "02:00:00:00:00:09",
        "dev",
        "ppp0",
    ];
    site.router().run(&address).unwrap();
    site.router().run(&neighbour).unwrap();
    daemon.row_when("ppp0", "there", |row| row["kind"] == "interface");
    ping();
    let first = daemon.row_when("ppp0", "counted", |row| packets(row) >= 3);

    site.router()
        .run(&["ip", "link", "delete", "dev", "ppp0"])
        .unwrap();
    daemon.logs("ppp0 removed; no longer watched");
    daemon.row_when("ppp0", "gone", Value::is_null);
    add_dummy(site.router(), "ppp0");
    let back = daemon.row_when("ppp0", "back", |row| row["kind"] == "interface");
    assert!(packets(&back) >= packets(&first), "{back:#}");
    site.exchange(ANNA, 2);
    daemon.row_when("anna", "counted all the while", |row| {
        row["flows"]["closed"] == 2
    });
    assert!(daemon.stop().success());
}

#[test]
fn a_full_disk_costs_only_the_state() {
    requires!(Need::Root, Need::Tool("mount"), Need::Tool("unshare"));
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    fs::create_dir(place.path("small")).unwrap();
    place.configure(&["lan", "wan"], CLASSES);
    let file = place.path("fairpath.toml");
    let text = fs::read_to_string(&file).unwrap();
    let small = place.path("small").display().to_string();
    let state = format!("file = \"{}", place.state().display());
    let text = text.replace(
        &state,
        &format!("save_every = \"1s\"\nfile = \"{small}/state"),
    );
    fs::write(
        &file,
        format!("{text}\n[rows]\njson = \"{small}/rows.json\"\n"),
    )
    .unwrap();
    // A mount of the daemon's own, which goes with it; filled to the last byte.
    let script = "mount -t tmpfs -o size=64k,mode=700 none \"$1\" && shift && \
                  { cat /dev/zero > \"$1/filler\" 2>/dev/null; shift; exec \"$@\"; }";
    let binary = fairpath_tests::binary::fairpath();
    let mut command = site.router().command_without_sysfs("unshare");
    command.args(["--mount", "sh", "-c", script, "sh", &small, &small]);
    command.arg(binary).arg("run").arg("--config").arg(&file);
    let process = site.router().spawn(command).unwrap();
    process
        .wait_stderr("write the state file", PATIENCE)
        .unwrap();
    process
        .wait_stderr("No space left on device", PATIENCE)
        .unwrap();
    site.exchange(ANNA, 3);
    let query = |verb: &str| place.try_query(&serde_json::json!({"verb": verb})).unwrap();
    let closed = |answer: &Value| {
        let rows = answer["snapshot"]["rows"].as_array();
        rows.is_some_and(|rows| {
            rows.iter()
                .any(|r| r["name"] == "anna" && r["flows"]["closed"] == 3)
        })
    };
    let counted = || Some(query("snapshot")).filter(closed);
    assert!(fairpath_testbed::wait_for(PATIENCE, counted).is_some());
    // The rows' writer is a separate thread: its count comes when it has tried.
    let failed = ["state_saves_failed", "row_writes_failed"];
    let reported = fairpath_testbed::wait_for(PATIENCE, || {
        let counters = query("status")["snapshot"]["counters"].take();
        let all = failed.iter().all(|name| counters[name].as_u64() > Some(0));
        all.then_some(())
    });
    assert!(reported.is_some(), "{:#}", query("status"));
}

#[test]
fn unusable_state_is_renamed_and_counting_restarts() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan"], CLASSES);
    let newer = b"fairpath\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    for (bytes, logs) in [
        (&b"rubbish"[..], "not a state file of Fairpath"),
        (newer, "version 255"),
    ] {
        fs::write(place.state(), bytes).unwrap();
        let daemon = Daemon::start(site.router(), &place);
        daemon.logs(logs);
        daemon.logs("the state file was moved to");
        assert_eq!(daemon.status()["restart_gap_ns"], Value::Null);
        assert!(daemon.stop().success());
        let aside = fs::read_dir(place.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().contains("refused-"))
            .expect("it was kept");
        assert_eq!(fs::read(&aside).unwrap(), bytes);
        fs::remove_file(aside).unwrap();
        fs::remove_file(place.state()).unwrap();
    }
}

#[test]
fn wrong_configuration_is_refused_before_anything_is_done() {
    requires!(Need::Root);
    let ns = Testbed::new().netns("here").unwrap();
    let place = Place::new();
    place.configure(&["lan"], "intervl = \"1s\"\n");
    let file = place.path("fairpath.toml");
    let output = rtt::run(&ns, &["run", "--config", file.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("did you mean `interval`?"), "{stderr}");
    assert!(!place.socket().exists());
}

#[test]
fn files_in_unsafe_places_are_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = testbed.netns("router").unwrap();
    add_dummy(&router, "lan");
    let place = Place::new();
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    place.write("secret", "precious");
    symlink(place.path("secret"), place.path("link.json")).unwrap();
    for (rest, part) in [
        ("[rows]\njson = \"shared/rows.json\"", "mode 0777"),
        ("[rows]\nparquet = \"shared/rows\"", "mode 0777"),
        ("[alerts]\njson = \"shared/alerts.json\"", "mode 0777"),
        ("[rows]\njson = \"link.json\"", "symbolic link"),
        ("[alerts]\njson = \"link.json\"", "symbolic link"),
    ] {
        place.configure(&["lan"], rest);
        Daemon::spawn(&router, &place).logs(part);
    }
    place.configure(&["lan"], "");
    for key in ["state", "control.sock"] {
        let text = fs::read_to_string(place.path("fairpath.toml")).unwrap();
        let text = text.replace(&format!("/{key}\""), &format!("/shared/{key}\""));
        place.write("fairpath.toml", &text);
        Daemon::spawn(&router, &place).logs("mode 0777");
        place.configure(&["lan"], "");
    }
    assert_eq!(fs::read(place.path("secret")).unwrap(), b"precious");
    let created: Vec<_> = fs::read_dir(&shared).unwrap().collect();
    assert!(created.is_empty(), "{created:?}");
}
