//! Starts and ends of `fairpath impair`, which leave nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Netns, Ping, Router, requires, wait_for};
use fairpath_tests::PATIENCE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::by;
use crate::scene::{Impaired, command, datagrams, router, runs};

by!(killed_it_leaves_nothing_and_traffic_flows: xdp, afxdp, nfqueue);

/// Lists what may be left in a namespace, by the tools that this host has.
struct Tools(Vec<Vec<&'static str>>);

impl Tools {
    fn find(ns: &Netns) -> Tools {
        let tables = ["iptables-legacy", "ip6tables-legacy", "iptables"];
        let mut all: Vec<Vec<&'static str>> = tables
            .into_iter()
            .map(|tool| vec![tool, "-w", "5", "-t", "mangle", "-S"])
            .collect();
        all.push(vec!["nft", "list", "ruleset"]);
        all.retain(|words| ns.run(words).is_ok());
        assert!(!all.is_empty(), "no tool lists rules here");
        Tools(all)
    }

    /// Rules of packet queues, and XDP programs. A tool that worked before still does.
    fn left(&self, ns: &Netns) -> Vec<String> {
        let links = ns.run(&["ip", "-d", "link", "show"]).unwrap();
        let mut left: Vec<String> = links
            .lines()
            .filter(|line| line.contains("xdp"))
            .map(str::to_owned)
            .collect();
        for words in &self.0 {
            let rules = ns.run(words).unwrap();
            let ours = rules.lines().filter(|line| line.contains("fairpath"));
            left.extend(ours.map(str::to_owned));
        }
        left
    }
}

fn killed_it_leaves_nothing_and_traffic_flows(port: &'static str) {
    requires!(Need::Root);
    let net = router();
    let tools = Tools::find(&net.router);
    let left = |ns| tools.left(ns);
    let mut impaired = Impaired::between(&net, port, &["--loss", "100%"]);
    let arrived = datagrams(&net.client, &net.server, Router::SERVER.v4, 20);
    assert_eq!(arrived.times.len(), 0);
    assert!(!left(&net.router).is_empty());
    impaired.process.signal(Signal::SIGKILL);
    impaired.process.wait(PATIENCE).unwrap();
    wait_for(PATIENCE, || left(&net.router).is_empty().then_some(()))
        .unwrap_or_else(|| panic!("left: {:#?}", left(&net.router)));
    let arrived = datagrams(&net.client, &net.server, Router::SERVER.v4, 20);
    assert_eq!(arrived.times.len(), 20);
}

#[test]
fn killed_by_its_name_it_leaves_nothing() {
    requires!(Need::Root);
    let net = router();
    let tools = Tools::find(&net.router);
    let mut impaired = Impaired::between(&net, "nfqueue", &["--loss", "100%"]);
    assert!(!tools.left(&net.router).is_empty());
    // As killall does, but only in this namespace: all processes of that name.
    let inode = net.router.inode();
    let is_named = |process: &Path| {
        let net = fs::metadata(process.join("ns/net"));
        let name = fs::read(process.join("comm")).unwrap_or_default();
        name == b"fairpath\n" && net.is_ok_and(|net| net.ino() == inode)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let named = processes.filter(|entry| is_named(&entry.path()));
    let ids = named.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ids: Vec<i32> = ids.collect();
    assert!(!ids.is_empty(), "nobody is called fairpath");
    for id in ids {
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
    }
    impaired.process.wait(PATIENCE).unwrap();
    wait_for(PATIENCE, || {
        tools.left(&net.router).is_empty().then_some(())
    })
    .unwrap_or_else(|| panic!("left: {:#?}", tools.left(&net.router)));
}

#[test]
fn it_ends_after_its_duration_without_leftovers() {
    requires!(Need::Root);
    let net = router();
    let tools = Tools::find(&net.router);
    let begin = Instant::now();
    let words = ["wan", "--delay", "20ms", "--duration", "1.5s"];
    let ended = Impaired::start(&net.router, &words).ended();
    assert!(begin.elapsed() >= Duration::from_millis(1500));
    ended.assert_valid();
    assert!(ended.report["elapsed_s"].as_f64().unwrap() >= 1.5);
    assert_eq!(tools.left(&net.router), [""; 0]);
}

#[test]
fn it_ends_with_its_command_and_status() {
    requires!(Need::Root);
    let net = router();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let words = ["lan", "--ingress", "loss 10%", "--", "sh", "-c", script];
        let ended = Impaired::start(&net.router, &words).ended();
        assert_eq!(
            ended.status.code(),
            Some(status),
            "{script}: {}",
            ended.stderr
        );
        assert_eq!(ended.report["valid"], true);
    }
}

#[test]
fn a_terminal_that_closes_ends_it() {
    requires!(Need::Root);
    let net = router();
    let tools = Tools::find(&net.router);
    let impaired = Impaired::start(&net.router, &["wan", "--delay", "20ms"]);
    impaired.process.signal(Signal::SIGHUP);
    let ended = impaired.ended();
    ended.assert_valid();
    assert!(
        ended.stderr.contains("no packets in direction"),
        "{}",
        ended.stderr
    );
    assert_eq!(tools.left(&net.router), [""; 0]);
}

#[test]
fn an_unwritable_report_ends_the_command() {
    requires!(Need::Root);
    let net = router();
    let words = [
        "wan",
        "--delay",
        "20ms",
        "--no-self-test",
        "--format",
        "json",
        "--write",
        "/dev/full",
        "--",
        "sleep",
        "1234",
    ];
    let process = net.router.spawn(command(&net.router, &words)).unwrap();
    let sleeps = || runs(&net.router, &["sleep", "1234"]);
    wait_for(PATIENCE, || sleeps().then_some(())).unwrap();
    let error = process.finish(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("write the report"), "{error}");
    assert!(!sleeps());
}

#[test]
fn previously_refused_experiments_start() {
    requires!(Need::Root);
    let net = router();
    let words = [
        "wan",
        "--delay",
        "20ms",
        "--release",
        "5ms",
        "--rate",
        "10mbit",
        "--duration",
        "200ms",
    ];
    let process = net.router.spawn(command(&net.router, &words)).unwrap();
    process.finish(PATIENCE).unwrap();
}

#[test]
fn an_invalid_run_is_named_and_fails() {
    requires!(Need::Root);
    let net = router();
    // Half a second of 5,000 packets a second does not fit into 16 places.
    let words = [
        "--to-peer",
        "delay 500ms",
        "--from-peer",
        "none",
        "--max-packets",
        "16",
    ];
    let impaired = Impaired::between(&net, "afxdp", &words);
    datagrams(&net.client, &net.server, Router::SERVER.v4, 500);
    let ended = impaired.end();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.report["valid"], false);
    let why = ended.report["reasons"][0].as_str().unwrap();
    assert!(why.contains("packets"), "{why}");
    assert!(ended.number("to-peer", "backend_dropped_packets") > 100);
    assert!(
        ended.stderr.contains("invalid: to-peer:"),
        "{}",
        ended.stderr
    );
}

#[test]
fn removal_of_an_interface_ends_the_run() {
    requires!(Need::Root);
    let net = router();
    let impaired = Impaired::between(&net, "afxdp", &["--delay", "1ms"]);
    net.router.run(&["ip", "link", "delete", "wan"]).unwrap();
    let ended = impaired.ended();
    assert_eq!(ended.status.code(), Some(1));
    let why = ended.report["reasons"].to_string();
    assert!(why.contains("wan") && why.contains("removed"), "{why}");
}

#[test]
fn a_json_line_per_second_has_the_configuration() {
    requires!(Need::Root);
    let net = router();
    let words = ["wan", "--delay", "2ms", "--duration", "2.5s", "--seed", "3"];
    let impaired = Impaired::start(&net.router, &words);
    impaired
        .process
        .wait_stdout("\"final\":true", PATIENCE)
        .unwrap();
    let out = impaired.process.stdout();
    let lines: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.len() >= 2, "{out}");
    assert!(
        lines[..lines.len() - 1]
            .iter()
            .all(|line| line["final"] == false)
    );
    assert_eq!(lines[0]["seed"], 3);
    let requested = lines[0]["directions"][0]["configuration"].as_str().unwrap();
    assert!(requested.contains("2ms"), "{requested}");
    impaired.ended();
}

#[test]
fn the_check_passes_and_attaches_nothing() {
    requires!(Need::Root);
    let net = router();
    let words = [
        "none0",
        "--self-test",
        "--loss",
        "1%",
        "--delay",
        "20ms",
        "--rate",
        "50mbit",
    ];
    let process = net.router.spawn(command(&net.router, &words)).unwrap();
    let out = process.finish(PATIENCE).unwrap();
    for part in ["loss", "delay", "rate", "order"] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

by!(changes_by_others_keep_the_delay: afxdp, nfqueue);

/// Changes that no back end has to end for.
fn changes_by_others_keep_the_delay(port: &'static str) {
    requires!(Need::Root, Need::Tool("ethtool"));
    let net = router();
    let impaired = Impaired::between(&net, port, &["--to-peer", "delay 20ms"]);
    for change in [
        "ip neigh flush dev wan",
        "ip address add 10.77.0.1/24 dev wan",
        "ip route add 10.10.2.2/32 dev wan",
        "ip link set wan mtu 1450",
        "ethtool -K wan gro on",
    ] {
        let words: Vec<&str> = change.split(' ').collect();
        net.router.run(&words).unwrap();
        let ping = Ping::to(Router::SERVER.v4).count(3);
        let report = ping.interval(Duration::from_millis(100)).run(&net.client);
        let report = report.unwrap();
        assert_eq!(report.received, 3, "{change}: {report:?}");
        let shortest = report.times.iter().min().unwrap();
        assert!(
            *shortest >= Duration::from_millis(20),
            "{change}: {report:?}"
        );
    }
    let ended = impaired.end();
    assert_eq!(ended.number("to-peer", "stopped_packets"), 0);
    ended.assert_true_or_late();
}
