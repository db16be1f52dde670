//! Out to other tools: metrics, rows, hooks, checks.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use fairpath_testbed::{Need, Testbed, requires, wait_for};
use fairpath_tests::daemon::{client, get, samples};
use fairpath_tests::{Daemon, PATIENCE, Place};
use serde_json::Value;

use super::{ANNA, CLASSES, Site};

#[test]
fn metrics_are_served_and_move_by_reload() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let file = place.path("fairpath.toml");
    let text = fs::read_to_string(&file).unwrap();
    let listen = |port: u16| {
        text.replace(
            "listen = \"off\"",
            &format!("listen = \"127.0.0.1:{port}\""),
        )
    };
    // The namespace is the test's own: any port is free.
    fs::write(&file, listen(9909)).unwrap();
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 3);
    daemon.row_when("anna", "3 flows closed", |row| row["flows"]["closed"] == 3);
    let metrics = get(site.router(), 9909, "/metrics");
    let line = metrics.lines().find(|line| {
        line.starts_with("fairpath_class_flows_opened_total") && line.contains("\"anna\"")
    });
    assert!(
        line.is_some_and(|line| line.ends_with(" 3") || line.ends_with(" 3.0")),
        "{metrics}"
    );
    assert!(metrics.contains("fairpath_rtt_seconds_bucket"), "{metrics}");

    // Occupied: refused, and the old one continues.
    let taken = site
        .router()
        .enter(|| TcpListener::bind("127.0.0.1:9911").unwrap())
        .unwrap();
    fs::write(&file, listen(9911)).unwrap();
    let answer = daemon.reload();
    assert!(
        answer["text"].to_string().contains("127.0.0.1:9911"),
        "{answer}"
    );
    assert!(get(site.router(), 9909, "/metrics").contains("fairpath_"));
    drop(taken);
    assert_eq!(daemon.reload()["answer"], "done");
    assert!(get(site.router(), 9911, "/metrics").contains("fairpath_"));
    let refused = site
        .router()
        .enter(|| TcpStream::connect("127.0.0.1:9909").is_err())
        .unwrap();
    assert!(refused, "the old address is free");
}

#[test]
fn counters_grow_over_restarts_and_reloads() {
    requires!(Need::Root, Need::Tool("promtool"));
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    let web = "[web]\nlisten = \"127.0.0.1:9912\"\n";
    let configure = |more: &str| {
        place.configure(&["lan", "wan"], &format!("{web}{more}{CLASSES}"));
        let file = place.path("fairpath.toml");
        let text = fs::read_to_string(&file).unwrap();
        let text = text.replace("listen = \"off\"", "listen = \"127.0.0.1:9909\"");
        fs::write(&file, text).unwrap();
    };
    configure("");
    let daemon = Daemon::start(site.router(), &place);
    site.exchange(ANNA, 3);
    daemon.row_when("anna", "3 flows closed", |row| row["flows"]["closed"] == 3);
    let page = get(site.router(), 9912, "/api/page?lists=5&after_ms=0");
    let (_, view) = page.split_once("\r\n\r\n").unwrap();
    let view: Value = serde_json::from_str(view).unwrap();
    let points = view["total"]["recent"].as_array().unwrap();
    assert!(
        points.iter().any(|point| point[1].as_u64() > Some(0)),
        "{view}"
    );
    assert_eq!(view["lists"]["affected_total"], 0, "{view}");
    let refused = "fairpath_monitor_web_requests_refused_total";
    get(site.router(), 9912, "/nowhere");
    get(site.router(), 9909, "/nowhere");
    get(site.router(), 9909, "/");
    let read = |port| samples(&get(site.router(), port, "/metrics"));
    assert_eq!([9909, 9912].map(|port| read(port)[refused]), [3.0; 2]);

    // Another server of the page: what the old one counted stays.
    configure("hosts = [\"router.example\"]\n");
    assert_eq!(daemon.reload()["answer"], "done");
    let before = read(9909);
    assert_eq!(before[refused], 3.0);
    assert!(daemon.stop().success());
    let daemon = Daemon::start(site.router(), &place);
    let after = read(9909);
    let grows = |name: &str| name.contains("_total") || name.contains("_rtt_seconds_");
    let of_rows = |name: &str| !name.starts_with("fairpath_monitor_") && grows(name);
    let lost: Vec<_> = before
        .iter()
        .filter(|(name, value)| of_rows(name) && after.get(*name).is_none_or(|now| now < *value))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(before.keys().filter(|name| of_rows(name)).count() > 100);
    drop(daemon);
}

#[test]
fn metrics_that_sum_rows_are_reported() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    place.configure(&["lan", "wan"], CLASSES);
    let file = place.path("fairpath.toml");
    let text = fs::read_to_string(&file).unwrap();
    let limited = "listen = \"127.0.0.1:9909\"\nmax_series = 300";
    fs::write(&file, text.replace("listen = \"off\"", limited)).unwrap();
    let daemon = Daemon::start(site.router(), &place);
    let reported = |status: &Value| status["notes"].to_string().contains("max_series");
    let measured = |status: &Value| status["counters"]["readings"].as_u64() >= Some(3);
    assert!(!reported(&daemon.status_when("measured", measured)));
    let metrics = samples(&get(site.router(), 9909, "/metrics"));
    daemon.logs("set [metrics] max_series, now 300, to at least");
    assert!(metrics["fairpath_rows_folded"] > 0.0);
    let needed = metrics["fairpath_series_needed"];
    daemon.status_when("reported", reported);
    let enough = limited.replace("300", &(needed as u64).to_string());
    fs::write(&file, text.replace("listen = \"off\"", &enough)).unwrap();
    assert_eq!(daemon.reload()["answer"], "done");
    daemon.status_when("not reported", |status| !reported(status));
    let metrics = samples(&get(site.router(), 9909, "/metrics"));
    assert_eq!(metrics["fairpath_rows_folded"], 0.0);
}

#[test]
fn rows_are_json_and_parquet_rotated_by_reload() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let site = Site::new(&testbed);
    let place = Place::new();
    let rows = "[rows]\njson = \"rows.json\"\nparquet = \"rows\"\n";
    place.configure(&["lan", "wan"], &format!("{rows}{CLASSES}"));
    let daemon = Daemon::start(site.router(), &place);
    let opened = |name: &str| {
        let text = fs::read_to_string(place.path(name)).unwrap_or_default();
        let rows = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        rows.filter(|row| row["name"] == "anna")
            .map(|row| row["flows_opened"].as_u64().unwrap())
            .sum::<u64>()
    };
    site.exchange(ANNA, 3);
    assert!(wait_for(PATIENCE, || (opened("rows.json") == 3).then_some(())).is_some());
    fs::rename(place.path("rows.json"), place.path("old.json")).unwrap();
    assert_eq!(daemon.reload()["answer"], "done");
    site.exchange(ANNA, 2);
    assert!(wait_for(PATIENCE, || (opened("rows.json") == 2).then_some(())).is_some());
    assert_eq!(opened("old.json"), 3);
    assert!(daemon.stop().success());
    let files = fs::read_dir(place.path("rows")).unwrap();
    let names: Vec<_> = files
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.len() == 1 && names[0].ends_with(".parquet"),
        "{names:?}"
    );
}

#[test]
fn broken_promise_runs_hook_and_fails_the_check() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let slow = Duration::from_millis(40);
    let site = Site::delayed(&testbed, slow, Duration::from_millis(1));
    let place = Place::new();
    // A directory for the hook's user, which cannot write elsewhere.
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    open(&place.path(""), 0o711).unwrap();
    fs::create_dir(place.path("hook")).unwrap();
    open(&place.path("hook"), 0o777).unwrap();
    let script = "{ echo $FAIRPATH_CLASS $FAIRPATH_ALERT $FAIRPATH_STATE; cat; id -u; \
                  grep CapEff /proc/self/status; test -w \"$1\" && echo socket; \
                  touch \"$1.new\" 2>/dev/null && echo directory; echo end; } >> \"$0\"";
    let hook = format!(
        "hook = [\"/bin/sh\", \"-c\", {script:?}, {:?}, {:?}]",
        place.path("hook/seen"),
        place.socket()
    );
    let promise = CLASSES.replace("up = \"20mbit\"", "up = \"20mbit\"\nrtt_p95 = \"5ms\"");
    place.configure(
        &["lan", "wan"],
        &format!("window = 2\n[alerts]\n{hook}\njson = \"alerts.json\"\n{promise}"),
    );
    let daemon = Daemon::start(site.router(), &place);
    let seen = || fs::read_to_string(place.path("hook/seen")).unwrap_or_default();
    let alerted = wait_for(PATIENCE, || {
        site.exchange(ANNA, 4);
        seen().contains("\nend\n").then_some(())
    });
    assert!(
        alerted.is_some(),
        "{}; {:#}",
        daemon.process.stderr(),
        daemon.row("anna")
    );
    let seen = seen();
    assert!(seen.starts_with("anna sla_breach begin\n"), "{seen}");
    let alert: Value = serde_json::from_str(seen.lines().nth(1).unwrap()).unwrap();
    assert_eq!(alert["limit_rtt_ns"], 5_000_000, "{alert}");
    assert!(alert["rtt_ns"].as_f64().unwrap() >= 38e6, "{alert}");
    assert!(seen.contains("CapEff:\t0000000000000000"), "{seen}");
    assert!(!seen.contains("\n0\n"), "runs as root: {seen}");
    assert!(
        !seen.contains("\nsocket\n") && !seen.contains("\ndirectory\n"),
        "{seen}"
    );
    daemon.logs("alert begins: anna");
    let written = fs::read_to_string(place.path("alerts.json")).unwrap();
    assert!(written.contains("\"sla_breach\""), "{written}");

    let check = |words: &[&str]| {
        let output = client(&place, &[&["check", "--min-samples", "4"], words].concat());
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let alone = check(&["--class", "anna"]);
    assert_eq!(alone.0, Some(2), "{alone:?}");
    for (words, expected) in [
        (&["--class", "anna", "--rtt-p95", "10ms"][..], 2),
        (&["--class", "anna", "--rtt-p95", "10ms,10s"], 1),
        (&["--class", "anna", "--rtt-p95", "10s"], 0),
        (&["--class", "bert", "--rtt-p95", "10s"], 3),
        (&["--class", "bert"], 3),
        (&["--class", "nobody"], 3),
    ] {
        // The window is short: the traffic must be of now.
        site.exchange(ANNA, 8);
        let (code, text) = check(words);
        assert_eq!(code, Some(expected), "{words:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("FAIRPATH "), "{text}");
    }
}

#[test]
fn a_check_without_daemon_is_unknown() {
    let place = Place::new();
    let output = client(&place, &["check", "--class", "anna"]);
    assert_eq!(output.status.code(), Some(3));
    let output = client(&place, &["check", "--class", "anna", "--rtt-p95", "fast"]);
    assert_eq!(output.status.code(), Some(3));
    let output = client(&place, &["status"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no daemon listens there"), "{stderr}");
}
