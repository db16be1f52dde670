//! Loaded rules in the outputs of the daemon: snapshots and metrics, while rules are replaced, set to 0, taken
//! back and unloaded.

use std::fs;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use fairpath_testbed::{Need, Testbed, requires, wait_for};
use fairpath_tests::daemon::{client, get, samples};
use fairpath_tests::{Daemon, PATIENCE, binary};
use nix::unistd::{Gid, Group};
use serde_json::{Value, json};

use super::commands::fairpath;
use super::live::{Router, filter};

const PORT: u16 = 9909;

/// A router with a daemon that looks for its rules.
fn watched(testbed: &Testbed, name: &str) -> Router {
    let router = Router::new(testbed.netns(name).unwrap());
    let link = "ip link add wan type veth peer name other";
    let link: Vec<&str> = link.split(' ').collect();
    router.netns.run(&link).unwrap();
    router.place.configure(&["wan"], "");
    let file = router.place.path("fairpath.toml");
    let text = fs::read_to_string(&file).unwrap();
    let listen = format!("listen = \"127.0.0.1:{PORT}\"");
    fs::write(&file, text.replace("listen = \"off\"", &listen)).unwrap();
    router
}

/// Sends datagrams of 1 byte to a port of `lo`.
fn send(router: &Router, port: u16, count: usize) {
    let send = || {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            // A rule of OUTPUT may refuse it.
            let _ = sender.send_to(b"x", ("127.0.0.1", port));
        }
    };
    router.netns.enter(send).unwrap();
}

/// The loaded rules in the snapshot; null if there are none.
fn shown(daemon: &Daemon<'_>) -> Value {
    let request = json!({"verb": "snapshot", "query": {"rules": 10, "exported_rules": true}});
    daemon.query(&request)["snapshot"]["loaded_rules"].take()
}

#[track_caller]
fn shown_when(daemon: &Daemon<'_>, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let found = wait_for(PATIENCE, || Some(shown(daemon)).filter(&is));
    found.unwrap_or_else(|| panic!("not {what}: {:#}", shown(daemon)))
}

/// A rule of the snapshot; null if it has none.
fn rule<'a>(rules: &'a Value, text: &str) -> &'a Value {
    let listed = rules["rules"].as_array();
    let found = listed.and_then(|rules| rules.iter().find(|rule| rule["rule"] == text));
    found.unwrap_or(&Value::Null)
}

#[test]
fn snapshots_and_metrics_follow_loaded_rules() {
    requires!(Need::Root, Need::Tool("promtool"));
    let testbed = Testbed::new();
    let router = watched(&testbed, "seen");
    let daemon = Daemon::start(&router.netns, &router.place);
    assert_eq!(shown(&daemon), Value::Null);
    let metrics = || samples(&get(&router.netns, PORT, "/metrics"));
    let of_rules = |name: &String| name.starts_with("fairpath_rule");
    assert!(!metrics().keys().any(of_rules));

    let [drop, count] = ["-p udp -m udp --dport 7001 -j DROP", "-p udp -j LOG"];
    let input = |rules: &[&str]| -> String {
        let lines: Vec<String> = rules.iter().map(|rule| format!("INPUT {rule}")).collect();
        let lines: Vec<&str> = lines.iter().map(|line| &line[..]).collect();
        filter(&lines)
    };
    router.load(&input(&[drop, count]));
    send(&router, 7001, 5);
    send(&router, 7002, 3);
    let loaded = shown_when(&daemon, "counted", |rules| {
        rule(rules, drop)["packets"] == 5
    });
    assert_eq!(rule(&loaded, drop)["bytes"], 5 * 29);
    assert_eq!(rule(&loaded, drop)["line"], 2);
    let file = rule(&loaded, drop)["file"].as_str().unwrap();
    assert!(file.ends_with("rules.v4"), "{file}");
    assert_eq!(
        (&loaded["rules_total"], &loaded["deciding"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(loaded["policies"][0]["chain"], "INPUT");
    // Rates are those of the last interval: with traffic, they are above 0, then 0 again.
    shown_when(&daemon, "busy", |rules| {
        send(&router, 7001, 1);
        rule(rules, drop)["rate_pps"].as_f64() > Some(0.0)
    });
    let quiet = shown_when(&daemon, "quiet", |rules| {
        rule(rules, drop)["rate_pps"] == 0.0
    });
    let packets = rule(&quiet, drop)["packets"].as_f64().unwrap();
    assert_eq!(packets as u64, router.packets(drop));

    let top = |words: &[&str]| {
        let output = client(
            &router.place,
            &[&["top", "--once", "--rules"], words].concat(),
        );
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = top(&["--filter", "dport 7001"]);
    let lines: Vec<&str> = text.lines().skip(3).collect();
    assert!(
        lines[0].contains("4 filter INPUT") && lines[0].ends_with(drop),
        "{text}"
    );
    assert_eq!(lines.len(), 1, "{text}");

    let labels = format!("family=\"IPv4\",table=\"filter\",chain=\"INPUT\",rule=\"{drop}\"");
    let series = format!("fairpath_rule_packets_total{{{labels}}}");
    let target =
        "fairpath_rules_target_packets_total{family=\"IPv4\",table=\"filter\",target=\"DROP\"}";
    let before = metrics();
    assert_eq!(before[&series], packets);
    assert_eq!(before["fairpath_rules_not_exported"], 0.0);
    let policy = "fairpath_rules_policy_packets_total{family=\"IPv4\",table=\"filter\",chain=\"INPUT\",policy=\"ACCEPT\"}";
    // Requests of metrics pass the chain, too.
    assert!(before[policy] >= 3.0);
    assert!(before[target] >= 1.0 && before[target] <= packets);

    // An edit renames no series and no counter decreases. Then the rule is removed, with its series.
    let edit = |line: &str| {
        let file = router.file(
            "edit",
            &filter(&[]).replace("COMMIT", &format!("{line}\nCOMMIT")),
        );
        router.done(&["apply", "--loaded", "--edits", &file]);
    };
    edit("-I INPUT -s 192.0.2.1 -j DROP");
    shown_when(&daemon, "edited", |rules| rules["rules_total"] == 3);
    let edited = metrics();
    let counters = before
        .iter()
        .filter(|(name, _)| of_rules(name) && name.contains("_total"));
    let fewer: Vec<_> = counters
        .filter(|(name, was)| edited.get(*name) < Some(*was))
        .collect();
    assert!(fewer.is_empty(), "{fewer:?}");
    edit(&format!("-D INPUT {drop}"));
    shown_when(&daemon, "removed", |rules| rules["rules_total"] == 2);
    let removed = metrics();
    assert!(!removed.contains_key(&series));
    assert!(removed[target] >= before[target]);

    // Set to 0: what is counted from there on.
    send(&router, 7002, 4);
    let logged = |rules: &Value| rule(rules, count)["packets"].as_u64();
    shown_when(&daemon, "logged", |rules| logged(rules) >= Some(7));
    router.done(&["counters", "--zero"]);
    shown_when(&daemon, "zeroed", |rules| logged(rules) == Some(0));

    // Taken back without a confirmation.
    let other = router.file("other.v4", &input(&["-p udp -m udp --dport 7003 -j DROP"]));
    router.done(&["load", "--confirm", "3s", &other]);
    let waiting = shown_when(&daemon, "waiting", |rules| rules["confirm_ns"].is_u64());
    assert_eq!(waiting["rules_total"], 1);
    assert!(metrics()["fairpath_rules_confirm_seconds"] <= 3.0);
    let back = shown_when(&daemon, "taken back", |rules| rules["went_back"] == true);
    assert_eq!((&back["rules_total"], logged(&back)), (&json!(2), Some(0)));

    router.done(&["unload"]);
    shown_when(&daemon, "unloaded", Value::is_null);
    assert!(!metrics().keys().any(of_rules));
    assert!(top(&[]).ends_with("no rules are loaded\n"));
    // Again, by another arena.
    router.load(&input(&[drop]));
    shown_when(&daemon, "loaded again", |rules| rules["rules_total"] == 1);
    assert_eq!(metrics()[&series], 0.0);
}

/// A user without rights.
const NOBODY: u32 = 65_534;

#[test]
fn the_group_lists_rules_without_root() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = watched(&testbed, "group");
    let group = Group::from_gid(Gid::from_raw(NOBODY)).unwrap().unwrap();
    let file = router.place.path("fairpath.toml");
    let text = fs::read_to_string(&file).unwrap();
    let key = format!("[control]\ngroup = {:?}\n", group.name);
    fs::write(&file, text.replace("[control]\n", &key)).unwrap();
    fs::set_permissions(router.place.path(""), fs::Permissions::from_mode(0o711)).unwrap();
    let daemon = Daemon::start(&router.netns, &router.place);
    let of_user = |uid: u32, gid: u32, words: &[&str]| {
        // The socket of the daemon is a file, so a user needs no namespace, and may not enter one.
        let mut command = match uid {
            0 => router.netns.command_without_sysfs(fairpath()),
            _ => binary::command(&fairpath()),
        };
        let place = router.place.path("pins");
        command
            .args(["rules", words[0], "--pins"])
            .arg(place)
            .args(&words[1..]);
        command.uid(uid).gid(gid).output().unwrap()
    };
    let fails = |gid: u32, words: &[&str], message: &str| {
        let output = of_user(NOBODY, gid, words);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && text.contains(message),
            "{words:?}: {text}"
        );
    };
    let same = |words: &[&str]| {
        let [user, root] = [NOBODY, 0].map(|user| of_user(user, user, words));
        assert!(user.status.success(), "{words:?}: {user:?}");
        assert!(!user.stdout.is_empty());
        assert_eq!(user, root, "{words:?}");
    };
    fails(NOBODY, &["counters"], "no rules are loaded");
    // A comment of bytes that are no text stays as it is.
    let rules = [
        "INPUT -p udp -m udp --dport 7001 -j DROP",
        "INPUT -p udp -m comment --comment \"L\u{f6}wen\" -j REJECT --reject-with icmp-port-unreachable",
    ];
    router.load(&filter(&rules));
    send(&router, 7001, 5);
    shown_when(&daemon, "loaded", |rules| rules["rules_total"] == 2);
    same(&["counters"]);
    same(&["counters", "--family", "ipv4", "--format", "json"]);
    same(&["apply", "--loaded", "--", "-S", "INPUT"]);
    same(&["apply", "--loaded", "--", "-n", "-v", "-L"]);
    let shown = of_user(NOBODY, NOBODY, &["show"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("2 rules, loaded at "), "{shown}");
    assert!(shown.contains("rejected packets are answered"), "{shown}");
    fails(NOBODY, &["counters", "--zero"], "only root");
    fails(NOBODY, &["apply", "--loaded", "--", "-F"], "");
    fails(1, &["counters"], "member of the group");
    same(&["counters"]);
}

#[test]
fn the_thread_that_reads_rules_has_no_capability() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = watched(&testbed, "bare");
    router.load(&filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]));
    let daemon = Daemon::start(&router.netns, &router.place);
    shown_when(&daemon, "loaded", |rules| rules["rules_total"] == 1);
    let tasks = format!("/proc/{}/task", daemon.process.id());
    let status = fs::read_dir(tasks).unwrap().find_map(|task| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        status
            .starts_with("Name:\tloaded rules\n")
            .then_some(status)
    });
    let status = status.expect("the thread runs");
    for set in ["CapPrm", "CapEff"] {
        assert!(
            status.contains(&format!("{set}:\t0000000000000000")),
            "{status}"
        );
    }
}

/// Counters are set to 0 when they were printed, and only then. A command that repeats them ends with its reader.
#[test]
fn counters_that_no_one_reads_stay() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("unread").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001";
    router.load(&filter(&[rule]));
    send(&router, 7001, 3);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = router.command(&["counters", "--zero"]);
    let output = command.stdout(full).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(router.packets(rule), 3);
    for words in [
        &["counters", "--watch", "--zero"][..],
        &["counters", "--watch"],
        &["counters", "--zero"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let interval = words
            .contains(&"--watch")
            .then_some(["--interval", "100ms"]);
        let mut command = router.command(words);
        command.args(interval.iter().flatten()).stdout(writer);
        let mut child = command.spawn().unwrap();
        let ended = wait_for(PATIENCE, || child.try_wait().unwrap());
        assert!(ended.is_some_and(|status| status.success()), "{words:?}");
        assert_eq!(router.packets(rule), 3, "{words:?}");
    }
    router.done(&["counters", "--zero"]);
    assert_eq!(router.packets(rule), 0);
}

/// `counters --zero` with a reader that has read 1 byte of more than a pipe has.
fn slow_reader(router: &Router) -> Child {
    let mut command = router.command(&["counters", "--zero"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let out = child.stdout.as_mut().unwrap();
    out.read_exact(&mut [0]).unwrap();
    child
}

/// Other commands do not wait for the reader, and what it reads is what is subtracted.
#[test]
fn slow_readers_of_counters_delay_no_edit() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("slow").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001";
    let other = |at: u32| format!("INPUT -s 10.0.{}.{} -j DROP", at / 250, at % 250);
    let others: Vec<String> = (0..4000).map(other).collect();
    let rules = [rule].into_iter().chain(others.iter().map(String::as_str));
    let rules: Vec<&str> = rules.collect();
    router.load(&filter(&rules));
    send(&router, 7001, 3);
    let child = slow_reader(&router);
    send(&router, 7001, 2);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("[3:87] -A INPUT -p udp"), "{printed}");
    assert_eq!(router.packets(rule), 2);
    // An edit, which has counters at another place.
    let child = slow_reader(&router);
    let mut edit = router.command(&["apply", "--loaded"]);
    edit.args(["--", "-A", "INPUT", "-s", "10.1.0.1", "-j", "DROP"]);
    let edited = edit.output().unwrap();
    assert!(edited.status.success(), "{edited:?}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("were replaced while their counters were printed"),
        "{error}"
    );
    assert_eq!(router.packets(rule), 2);
    // Another command that sets them to 0.
    let child = slow_reader(&router);
    router.done(&["counters", "--zero"]);
    // It is as large again.
    send(&router, 7001, 7);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("another command did so"), "{error}");
    assert_eq!(router.packets(rule), 7);
}
