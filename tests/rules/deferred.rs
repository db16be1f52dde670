//! Tables that `fairpath rules load --defer` leaves to iptables, because the hooks do not evaluate them.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairpath_testbed::{Need, Netns, Testbed, requires, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::TcpMaxSeg};

use super::live::{Router, RouterLine, arrives, filter};
use super::nat_tables::{PATIENCE, record, record_path, watchers, wrap};

const DROP: &str = "-A PREROUTING -p udp -m udp --dport 7001 -j DROP\n";
/// A rule that the hooks refuse, and that no packet matches.
const REFUSED: &str = "-A OUTPUT -p sctp -m addrtype --src-type BROADCAST\n";
const RESTORES: [&str; 2] = ["iptables-restore", "ip6tables-restore"];
const SAVES: [&str; 2] = ["iptables-save", "ip6tables-save"];
/// A script that lets `--test` pass, and then does the rest.
const TESTED: &str = "case \"$*\" in *--test*) exec $real \"$@\";; esac\n";

fn table(name: &str, lines: &str) -> String {
    format!("*{name}\n{lines}COMMIT\n")
}

/// The lines of a running table with counters, without comments.
fn running(netns: &Netns, save: &str, table: &str) -> String {
    let text = netns.run(&[save, "-t", table, "-c"]).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A PATH with the legacy tools.
fn legacy(router: &Router) -> String {
    let script = "exec ${real%tables*}tables-legacy-${0##*-} \"$@\"";
    wrap(router, &[RESTORES, SAVES].concat(), script)
}

fn with_path(router: &Router, path: &str, words: &[&str]) -> Output {
    let mut command = router.command(words);
    command.env("PATH", path).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn apply(router: &Router, line: &str) -> Output {
    let mut command = router.command(&["apply", "--loaded"]);
    command.arg("--").args(line.split(' ')).output().unwrap()
}

/// The sides that have the rule of table mangle: the hooks, iptables.
fn sides(router: &Router) -> (bool, bool) {
    let ours = router.done(&["counters"]).contains(DROP.trim_end());
    let theirs = running(&router.netns, "iptables-save", "mangle").contains(DROP.trim_end());
    (ours, theirs)
}

/// A file whose table mangle the hooks evaluate, and one whose table goes to iptables.
fn two_files(router: &Router) -> [String; 2] {
    let rest = filter(&["INPUT -p udp -m udp --dport 7002 -j DROP"]);
    let here = table("mangle", DROP) + &rest;
    let there = table("mangle", &format!("{DROP}{REFUSED}")) + &rest;
    [
        router.file("here.v4", &here),
        router.file("there.v4", &there),
    ]
}

#[test]
fn packets_meet_rules_of_both_sides() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let line = RouterLine::new(&testbed);
    let router = Router::new(line.router.clone());
    let marked = "FORWARD -m mark --mark 0x5 -j DROP";
    let text = table(
        "mangle",
        "-A PREROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 900\n\
         -A PREROUTING -p udp -m udp --dport 7001 -j MARK --set-xmark 0x5/0xffffffff\n",
    ) + &filter(&[marked]);
    let file = router.file("rules.v4", &text);
    let refused = router.fails(&["load", &file]);
    assert!(
        refused.contains("2 rules are refused, nothing was changed (`load --defer`")
            && refused.contains("rules.v4:2: mangle PREROUTING: "),
        "{refused}"
    );
    assert!(!running(&router.netns, "iptables-save", "mangle").contains("-A"));
    let loaded = router.done(&["load", &file, "--defer"]);
    let lines: Vec<&str> = loaded.lines().collect();
    assert_eq!(lines[0], "loaded 1 rule");
    assert_eq!(
        lines[1],
        "mangle (IPv4) is left to iptables, because 2 rules are refused:"
    );
    assert!(lines[2].contains("rules.v4:2: mangle PREROUTING: packets and their marks"));
    assert_eq!(lines[4], "2 rules of mangle given to iptables-restore");
    let server = line
        .server
        .enter(|| TcpListener::bind("10.2.0.2:80").unwrap());
    let _client = line
        .client
        .enter(|| TcpStream::connect("10.2.0.2:80").unwrap());
    let (accepted, _) = server.unwrap().accept().unwrap();
    let segment = getsockopt(&accepted, TcpMaxSeg).unwrap();
    assert!((800..=900).contains(&segment), "{segment}");
    let send = |port: u16| {
        let send = || {
            UdpSocket::bind("10.1.0.2:0")
                .unwrap()
                .send_to(b"x", ("10.2.0.2", port))
        };
        line.client.enter(send).unwrap().unwrap();
    };
    send(7001);
    send(7002);
    let counted = wait_for(PATIENCE, || {
        (router.packets("--mark 0x5 -j DROP") == 1).then_some(())
    });
    assert!(counted.is_some());
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("mangle: 2 rules with iptables (IPv4)\n"),
        "{shown}"
    );
    assert!(!shown.contains("mangle -151"), "{shown}");
    let printed = router.done(&["counters"]);
    assert!(
        printed.ends_with("# mangle: `iptables-save -c -t mangle`\n"),
        "{printed}"
    );
    let again = router.done(&["load", &file, "--defer", "--format", "json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["tables"][0]["changed"], false);
    assert_eq!(again["deferred"][0]["refused"], 2);
    assert_eq!(again["deferred"][0]["first"][1]["line"], 3);
    let rule = router.fails(&["trace", "--rule", "mangle/PREROUTING/1"]);
    assert!(
        rule.contains("iptables has these tables: mangle (IPv4)"),
        "{rule}"
    );
    let unloaded = error(&router.rules(&["unload"]));
    let note =
        "mangle: 2 rules with iptables (IPv4): `iptables -t mangle -F && iptables -t mangle -X`";
    assert!(unloaded.contains(note), "{unloaded}");
    assert!(running(&router.netns, "iptables-save", "mangle").contains("--set-mss 900"));
}

/// Every choice of tables, next to iptables-legacy with all of them.
#[test]
fn counters_of_both_sides_are_those_of_iptables() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let tables = [
        (
            "raw",
            ":c - [0:0]\n-A PREROUTING -p udp -m udp --dport 7001 -j c\n-A c -j RETURN\n-A OUTPUT -p udp -m udp --dport 7002\n",
        ),
        (
            "mangle",
            "-A OUTPUT -p udp -m udp --dport 7003 -j DROP\n-A INPUT -p udp -m udp --dport 7001 -j ACCEPT\n-A POSTROUTING -p udp\n",
        ),
        (
            "filter",
            ":FORWARD DROP [0:0]\n:u - [0:0]\n-A INPUT -p udp -m udp --dport 7004 -j u\n-A u -m statistic --mode nth --every 2 --packet 0 -j RETURN\n-A u -j DROP\n-A INPUT -p udp -m udp --dport 7002 -j ACCEPT\n",
        ),
    ];
    let traffic = |netns: &Netns| {
        let ports = (7001..7006).chain(7001..7006);
        ports.map(|port| arrives(netns, port)).collect::<Vec<_>>()
    };
    let counters = |text: &str, name: &str| {
        let of_table = text.split(&format!("*{name}\n")).nth(1).unwrap_or_default();
        let of_table = of_table.split("COMMIT").next().unwrap().lines();
        let counted = of_table.filter_map(|line| Some(line[line.find('[')?..].to_owned()));
        counted
            .map(|line| line.split(']').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let testbed = Testbed::new();
    for choice in 0..8 {
        let is_deferred = |at: usize| choice & 1 << at != 0;
        let text: String = tables
            .iter()
            .enumerate()
            .map(|(at, (name, lines))| {
                let more = if is_deferred(at) { REFUSED } else { "" };
                table(name, &format!("{lines}{more}"))
            })
            .collect();
        let router = Router::new(testbed.netns("ours").unwrap());
        let twin = Router::new(testbed.netns("twin").unwrap());
        let path = legacy(&router);
        let file = router.file("rules.v4", &text);
        let loaded = with_path(&router, &path, &["load", &file, "--defer"]);
        assert!(loaded.status.success(), "{loaded:?}");
        twin.netns.run(&["iptables-legacy-restore", &file]).unwrap();
        assert_eq!(traffic(&router.netns), traffic(&twin.netns));
        let ours = router.done(&["counters"]);
        for (at, (name, _)) in tables.iter().enumerate() {
            let save = |netns| running(netns, "iptables-legacy-save", name);
            let counted = match is_deferred(at) {
                true => save(&router.netns),
                false => ours.clone(),
            };
            let wanted = counters(&save(&twin.netns), name);
            assert_eq!(counters(&counted, name), wanted, "{choice} {name}");
            assert!(wanted.iter().any(|counter| counter != "[0:0"), "{name}");
        }
    }
}

/// A table goes to iptables and back, also without confirmation, while packets come.
#[test]
fn moving_tables_are_always_enforced() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("moved").unwrap());
    let [here, there] = two_files(&router);
    router.done(&["load", &here]);
    let ended = AtomicBool::new(false);
    let flood = || {
        let receiver = UdpSocket::bind("127.0.0.1:7001").unwrap();
        receiver.set_nonblocking(true).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut sent, mut received) = (0_u64, 0_u64);
        while !ended.load(Ordering::Relaxed) {
            // A rule of OUTPUT refuses none.
            sender.send_to(b"x", "127.0.0.1:7001").unwrap();
            sent += 1;
            received += u64::from(receiver.recv(&mut [0; 8]).is_ok());
            std::thread::sleep(Duration::from_micros(20));
        }
        (sent, received)
    };
    let (sent, received) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| router.netns.enter(flood).unwrap());
        let end = End(&ended);
        for _ in 0..4 {
            router.done(&["load", &there, "--defer"]);
            assert_eq!(sides(&router), (false, true));
            let back = router.done(&["load", &here]);
            assert!(
                back.contains("mangle taken back from iptables (IPv4)\n"),
                "{back}"
            );
            assert_eq!(sides(&router), (true, false));
        }
        // Without confirmation, and with it.
        let (to_iptables, to_hooks) = (&[&there[..], "--defer"][..], &[&here[..]][..]);
        for (file, before) in [(to_iptables, (true, false)), (to_hooks, (false, true))] {
            let load = |time| [&["load", "--confirm", time], file].concat();
            for kills in [false, true] {
                router.done(&load("1s"));
                let during = if before.0 {
                    (false, true)
                } else {
                    (true, true)
                };
                assert_eq!(sides(&router), during);
                if kills {
                    for watcher in watchers(&router) {
                        kill(watcher, Signal::SIGKILL).unwrap();
                    }
                    let over = wait_for(PATIENCE, || {
                        router
                            .done(&["show"])
                            .contains("was not confirmed")
                            .then_some(())
                    });
                    assert!(over.is_some());
                    // The next command does the rest.
                    router.fails(&["confirm"]);
                }
                let back = wait_for(PATIENCE, || record(&router).is_none().then_some(()));
                assert!(back.is_some());
                assert_eq!(sides(&router), before);
            }
            let loaded = router.done(&load("60s"));
            let both = "mangle runs with iptables, too, until the confirmation (IPv4)\n";
            assert_eq!(loaded.contains(both), !before.0, "{loaded}");
            router.done(&["confirm"]);
            assert_eq!(sides(&router), (before.1, before.0));
            assert!(record(&router).is_none());
        }
        drop(end);
        flood.join().unwrap()
    });
    assert!(sent > 1000, "{sent}");
    assert_eq!(received, 0, "of {sent}");
}

/// Ends the flood, also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A tool that kills the command: before it starts, after its end, and after the switch of the rules.
#[test]
fn killed_moves_end_on_one_side() {
    requires!(
        Need::Root,
        Need::Tool("iptables-restore"),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let (before, after) = ("kill -9 $PPID", "$real \"$@\"; kill -9 $PPID");
    for (is_there, name, script, is_switched) in [
        (false, RESTORES[0], before, false),
        (false, RESTORES[0], after, false),
        (false, "nft", before, true),
        (true, "nft", before, true),
        (true, RESTORES[0], before, true),
        (true, RESTORES[0], after, true),
    ] {
        let router = Router::new(testbed.netns("killed").unwrap());
        let [here, there] = two_files(&router);
        let files = [&[&here[..]][..], &[&there[..], "--defer"][..]];
        let (old, new) = (files[usize::from(is_there)], files[usize::from(!is_there)]);
        for next in ["confirm", "unload", "load", "apply"] {
            router.done(&[&["load"], old].concat());
            let path = wrap(&router, &[name], &format!("{TESTED}{script}"));
            let killed = with_path(&router, &path, &[&["load"], new].concat());
            fs::remove_dir_all(router.place.path("wrapped")).unwrap();
            assert_eq!(killed.status.code(), None, "{killed:?}");
            let context = format!("{is_there} {name} {script} {next}");
            assert!(!arrives(&router.netns, 7001), "{context}");
            let now = sides(&router);
            let output = match next {
                "apply" => apply(&router, "iptables -A INPUT -p tcp"),
                "load" => router.rules(&[&["load"], new].concat()),
                other => router.rules(&[other]),
            };
            assert_eq!(
                output.status.success(),
                next != "confirm",
                "{context}: {output:?}"
            );
            assert!(record(&router).is_none(), "{context}");
            if next == "unload" {
                // What iptables has stays there, as table nat does.
                let stays = now.1 && (is_there || is_switched);
                let theirs = running(&router.netns, "iptables-save", "mangle");
                assert_eq!(theirs.contains("--dport 7001"), stays, "{context}");
                let empty = table("mangle", "");
                let file = router.file("empty", &empty);
                router.netns.run(&["iptables-restore", &file]).unwrap();
                continue;
            }
            let at_new = is_switched || next == "load";
            let is_with_iptables = is_there != at_new;
            assert_eq!(
                sides(&router),
                (!is_with_iptables, is_with_iptables),
                "{context}"
            );
            assert!(!arrives(&router.netns, 7001), "{context}");
        }
    }
}

#[test]
fn killed_confirmations_are_completed() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("confirm").unwrap());
    let [here, there] = two_files(&router);
    for script in ["kill -9 $PPID", "$real \"$@\"; kill -9 $PPID"] {
        router.done(&["load", &there, "--defer"]);
        router.done(&["load", &here, "--confirm", "60s"]);
        let path = wrap(&router, &RESTORES[..1], script);
        let killed = with_path(&router, &path, &["confirm"]);
        assert_eq!(killed.status.code(), None, "{killed:?}");
        assert!(sides(&router).0 && record(&router).is_some());
        let shown = router.done(&["show"]);
        assert!(
            shown.contains("a load was interrupted: mangle (IPv4)"),
            "{shown}"
        );
        assert!(apply(&router, "iptables -A INPUT -p tcp").status.success());
        assert_eq!(sides(&router), (true, false));
        let ended = wait_for(PATIENCE, || watchers(&router).is_empty().then_some(()));
        assert!(ended.is_some());
    }
    // An unload during the time leaves the table with iptables.
    router.done(&["load", &there, "--defer"]);
    router.done(&["load", &here, "--confirm", "60s"]);
    router.done(&["unload"]);
    assert!(record(&router).is_none() && !arrives(&router.netns, 7001));
}

/// The new rules run, but iptables keeps its table: the next command empties it.
#[test]
fn failed_emptying_is_reported_and_repeated() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("failed").unwrap());
    let [here, there] = two_files(&router);
    router.done(&["load", &there, "--defer"]);
    let path = wrap(
        &router,
        &RESTORES[..1],
        "echo 'Another app has the lock' >&2; exit 4",
    );
    let failed = with_path(&router, &path, &["load", &here]);
    let text = error(&failed);
    assert_eq!(failed.status.code(), Some(1), "{text}");
    assert!(
        text.contains("the new rules are loaded, but")
            && text.contains("these tables run with iptables, too: mangle (IPv4)")
            && text.contains("Another app has the lock"),
        "{text}"
    );
    assert_eq!(sides(&router), (true, true));
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("because a load was interrupted: mangle (IPv4)"),
        "{shown}"
    );
    assert!(apply(&router, "iptables -A INPUT -p tcp").status.success());
    assert_eq!(sides(&router), (true, false));
    let shown = router.done(&["show"]);
    assert!(!shown.contains("interrupted"), "{shown}");
}

/// With the legacy tools, whose restore keeps policies that a text omits.
#[test]
fn policies_go_with_their_table() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("policies").unwrap());
    let path = legacy(&router);
    let rules = |words: &[&str]| {
        let output = with_path(&router, &path, words);
        assert!(output.status.success(), "{output:?}");
        output
    };
    // Rules of another program.
    let command = [
        "iptables-legacy",
        "-A",
        "FORWARD",
        "-p",
        "sctp",
        "-j",
        "DROP",
    ];
    router.netns.run(&command).unwrap();
    let before = running(&router.netns, "iptables-legacy-save", "filter");
    let closed =
        format!(":INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 7002 -j ACCEPT\n{REFUSED}");
    let file = router.file("closed.v4", &table("filter", &closed));
    rules(&["load", &file, "--defer", "--confirm", "1s"]);
    assert!(!arrives(&router.netns, 7001) && arrives(&router.netns, 7002));
    let back = wait_for(PATIENCE, || record(&router).is_none().then_some(()));
    assert!(back.is_some());
    assert_eq!(
        running(&router.netns, "iptables-legacy-save", "filter"),
        before
    );
    let loaded = rules(&["load", &file, "--defer"]).stdout;
    let replaced = "2 rules of filter given to iptables-restore, in place of 1\n";
    assert!(
        String::from_utf8_lossy(&loaded).contains(replaced),
        "{loaded:?}"
    );
    // The new file has no such table: it is emptied as one of the hooks.
    let other = router.file("other.v4", &table("raw", "-A OUTPUT -p sctp\n"));
    rules(&["load", &other]);
    assert!(arrives(&router.netns, 7001));
    let saved = running(&router.netns, "iptables-legacy-save", "filter");
    assert!(
        saved.contains(":INPUT ACCEPT") && !saved.contains("-A"),
        "{saved}"
    );
    // With --skip-table it stays, and an unload prints how to open it.
    rules(&["load", &file, "--defer"]);
    rules(&["load", &other, "--skip-table", "filter"]);
    assert!(!arrives(&router.netns, 7001));
    rules(&["load", &file, "--defer"]);
    let note = error(&rules(&["unload"]));
    assert!(
        note.contains("`iptables -t filter -P INPUT ACCEPT && iptables -t filter -F &&"),
        "{note}"
    );
}

#[test]
fn edits_of_deferred_tables_go_to_iptables() {
    requires!(Need::Root, Need::Tool("iptables"), Need::Tool("ip6tables"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("edited").unwrap());
    // Only IPv6 has a refused rule.
    let ipv4 = router.file("rules.v4", &table("mangle", DROP));
    let ipv6 = table(
        "mangle",
        ":c - [0:0]\n-A OUTPUT -p tcp -j MARK --set-mark 1\n",
    );
    let ipv6 = router.file("rules.v6", &ipv6);
    let loaded = router.done(&["load", &ipv4, &ipv6, "--defer"]);
    assert!(
        loaded.starts_with("loaded 1 rule\nmangle (IPv6) is left to iptables, because 1 rule is"),
        "{loaded}"
    );
    assert!(!arrives(&router.netns, 7001));
    for (line, status) in [
        ("ip6tables -w -t mangle -A c -p udp -j MARK --set-mark 2", 0),
        ("ip6tables -t mangle -C c -p udp -j MARK --set-mark 2", 0),
        ("ip6tables -t mangle -A c -j WHAT", 2),
        (
            "iptables -w -t mangle -A INPUT -p udp --dport 7003 -j DROP",
            0,
        ),
        ("iptables -t mangle -C INPUT -p udp --dport 7003 -j DROP", 0),
        ("iptables -t mangle -A INPUT -j MARK --set-mark 1", 1),
        ("ip6tables -t raw -A OUTPUT -p udp", 0),
    ] {
        let output = apply(&router, line);
        assert_eq!(output.status.code(), Some(status), "{line}: {output:?}");
    }
    assert!(!arrives(&router.netns, 7003));
    let theirs = running(&router.netns, "ip6tables-save", "mangle");
    assert!(theirs.contains("-A c -p udp -j MARK"), "{theirs}");
    assert!(!running(&router.netns, "iptables-save", "mangle").contains("-A"));
    let edits = router.file("edits", &table("mangle", "-A c -p tcp\n"));
    let chain = router.file("chain", "-A c -p tcp\n");
    for words in [
        &["apply", "--loaded", "--family", "ipv6", "--edits", &edits][..],
        &[
            "replace-chain",
            "-t",
            "mangle",
            "--family",
            "ipv6",
            "c",
            &chain,
        ],
    ] {
        let refused = router.fails(words);
        assert!(
            refused.contains("table mangle was left to iptables (IPv6): edit it with ip6tables"),
            "{refused}"
        );
    }
    // A change that the end of the time would undo is refused.
    let other = table(
        "mangle",
        ":c - [0:0]\n-A OUTPUT -p udp -j MARK --set-mark 1\n",
    );
    let other = router.file("other.v6", &other);
    router.done(&["load", &ipv4, &other, "--defer", "--confirm", "60s"]);
    let refused = error(&apply(&router, "ip6tables -t mangle -F"));
    assert!(
        refused.contains("waits for `fairpath rules confirm`"),
        "{refused}"
    );
    router.done(&["confirm"]);
    assert!(apply(&router, "ip6tables -t mangle -F").status.success());
}

/// Recent lists, tables of hashlimit and sets that rules change are on one side.
#[test]
fn tables_with_shared_state_go_together() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("shared").unwrap());
    router
        .netns
        .run(&["ipset", "create", "bad", "hash:ip"])
        .unwrap();
    let path = legacy(&router);
    let sets = router.file(
        "sets.ipset",
        "create bad hash:ip family inet\nadd bad 192.0.2.1\n",
    );
    let seen = "-m recent --rcheck --seconds 60 --name seen --mask 255.255.255.255 --rsource";
    let limit = "-m hashlimit --hashlimit-upto 1/sec --hashlimit-name h -j ACCEPT";
    for (mangle, rule, why) in [
        (
            "-A OUTPUT -m recent --set --name seen".to_owned(),
            format!("INPUT {seen} -j DROP"),
            "recent list seen",
        ),
        (
            format!("-A OUTPUT {limit}"),
            format!("INPUT {limit}"),
            "hashlimit table h",
        ),
        (
            "-A OUTPUT -j SET --add-set bad src".to_owned(),
            "INPUT -m set --match-set bad src -j DROP".to_owned(),
            "set bad",
        ),
    ] {
        let text =
            table("mangle", &format!("{mangle}\n{REFUSED}")) + &filter(&[&rule, "INPUT -p 50"]);
        let file = router.file("rules.v4", &text);
        let loaded = with_path(&router, &path, &["load", &file, &sets, "--defer"]);
        let text = String::from_utf8_lossy(&loaded.stdout).into_owned() + &error(&loaded);
        let line =
            format!("rules.v4:6: filter INPUT: {why} is used by table mangle, which iptables has");
        assert!(
            text.contains("loaded no rules") && text.contains(&line),
            "{text}"
        );
        let reads = "filter (IPv4) reads sets of the kernel, not those of the file: bad\n";
        assert_eq!(text.contains(reads), why == "set bad", "{text}");
        // Table nat and tables that are skipped are with iptables, too.
        let skipped = text_without(&file, REFUSED);
        let skipped = router.file("skipped.v4", &skipped);
        let words = ["load", &skipped, &sets, "--skip-table", "mangle"];
        let refused = error(&with_path(&router, &path, &words));
        assert!(
            refused.contains(why) && refused.contains("nothing was changed"),
            "{refused}"
        );
    }
    // An edit cannot use such state either.
    let text = table(
        "mangle",
        &format!("-A OUTPUT -m recent --set --name seen\n{REFUSED}"),
    );
    let file = router.file("rules.v4", &(text + &filter(&["INPUT -p 50"])));
    assert!(
        with_path(&router, &path, &["load", &file, "--defer"])
            .status
            .success()
    );
    let refused = error(&apply(
        &router,
        &format!("iptables -A INPUT {seen} -j DROP"),
    ));
    assert!(
        refused.contains("recent list seen is used by table mangle"),
        "{refused}"
    );
}

fn text_without(file: &str, part: &str) -> String {
    fs::read_to_string(file).unwrap().replace(part, "")
}

#[test]
fn missing_sets_name_their_remedy() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    for variant in ["", "-legacy"] {
        let router = Router::new(testbed.netns("sets").unwrap());
        let script = format!("exec ${{real%tables*}}tables{variant}-${{0##*-}} \"$@\"");
        let path = wrap(&router, &[RESTORES, SAVES].concat(), &script);
        let sets = router.file("sets.ipset", "create other hash:ip family inet\n");
        let rules = format!("-A INPUT -m set --match-set bad src -j DROP\n{REFUSED}");
        let file = router.file("rules.v4", &table("filter", &rules));
        let words = ["load", &file, &sets, "--defer"];
        let refused = error(&with_path(&router, &path, &words));
        assert!(
            refused.contains("table filter is refused: iptables-restore: ")
                && refused.contains("Set bad doesn't exist")
                && refused.contains("`ipset restore` creates"),
            "{refused}"
        );
        router
            .netns
            .run(&["ipset", "create", "bad", "hash:ip"])
            .unwrap();
        router
            .netns
            .run(&["ipset", "add", "bad", "127.0.0.1"])
            .unwrap();
        let loaded = with_path(&router, &path, &words);
        assert!(loaded.status.success(), "{loaded:?}");
        assert!(!arrives(&router.netns, 7001));
    }
}

/// A set of a deferred table is that of ipset, whatever a file has.
#[test]
fn edits_of_sets_name_their_side() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("sides").unwrap());
    let path = legacy(&router);
    let mut text = String::new();
    for name in ["ours", "both", "theirs"] {
        let words = ["ipset", "create", name, "hash:ip"];
        router.netns.run(&words).unwrap();
        text += &format!("create {name} hash:ip family inet\n");
    }
    let sets = router.file("sets.ipset", &text);
    let rule = |name| format!("INPUT -m set --match-set {name} src -j DROP");
    let lines = format!("-A {}\n-A {}\n{REFUSED}", rule("both"), rule("theirs"));
    let text = table("mangle", &lines) + &filter(&[&rule("ours"), &rule("both")]);
    let file = router.file("rules.v4", &text);
    let loaded = with_path(&router, &path, &["load", &file, &sets, "--defer"]);
    assert!(loaded.status.success(), "{loaded:?}");
    let note = "mangle (IPv4) reads sets of the kernel, not those of the file: both, theirs\n";
    assert!(
        String::from_utf8_lossy(&loaded.stdout).contains(note),
        "{loaded:?}"
    );
    // Of an element, and of all sets at once.
    for line in ["add NAME 192.0.2.1", "flush NAME"] {
        for (name, text, is_done) in [
            ("ours", "", true),
            (
                "both",
                "is read by table mangle, too, which iptables has",
                true,
            ),
            (
                "theirs",
                "is read by table mangle, which iptables has: change it with ipset",
                false,
            ),
        ] {
            let output = apply(&router, &format!("ipset {}", line.replace("NAME", name)));
            assert_eq!(output.status.success(), is_done, "{output:?}");
            assert!(error(&output).contains(text), "{output:?}");
            assert_eq!(error(&output).is_empty(), text.is_empty(), "{output:?}");
        }
    }
    // Edits that build all rules keep what is with iptables.
    let shown = with_path(&router, &path, &["show"]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    let line = "mangle: 3 rules with iptables (IPv4)\n";
    assert!(shown.contains(line), "{shown}");
}

/// Rules in the shadow give nothing to iptables, and take nothing back.
#[test]
fn shadow_leaves_deferred_tables_alone() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("shadow").unwrap());
    let [here, there] = two_files(&router);
    let running = || running(&router.netns, "iptables-save", "mangle");
    let file = router.file(
        "running",
        &table("mangle", "-A INPUT -p udp -j MARK --set-mark 1\n"),
    );
    router.netns.run(&["iptables-restore", &file]).unwrap();
    let before = running();
    let loaded = router.done(&["load", &there, "--shadow", "--defer"]);
    assert!(
        loaded.contains("mangle (IPv4) is left to iptables, because 1 rule is refused")
            && !loaded.contains("given to"),
        "{loaded}"
    );
    router.done(&["load", &here, "--shadow"]);
    assert_eq!(running(), before);
    router.done(&["load", &there, "--shadow", "--defer"]);
    router.done(&["load", &here]);
    assert_eq!(running(), before);
    router.done(&["unload"]);
    assert_eq!(running(), before);
}

/// A record of a version that gave table nat only.
#[test]
fn records_of_older_versions_are_understood() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("older").unwrap());
    let old = table(
        "nat",
        "[3:90] -A OUTPUT -p udp -m udp --dport 1 -j ACCEPT\n",
    );
    let path = record_path(&router, "/run/fairpath-nat");
    let write = |text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    };
    let heading = format!(
        "{{\"load\":7,\"pins\":null,\"parts\":[[true,{}]]}}\n",
        old.len()
    );
    write(&(heading + &old));
    let now = router.file("now", &table("nat", "-A OUTPUT -p tcp\n"));
    router.netns.run(&["iptables-restore", &now]).unwrap();
    let file = router.file("rules.v4", &filter(&["INPUT -p 50"]));
    let loaded = router.rules(&["load", &file]);
    assert!(
        error(&loaded).contains("the tables of before are back"),
        "{loaded:?}"
    );
    assert!(!path.exists());
    let nat = running(&router.netns, "iptables-save", "nat");
    assert!(nat.contains("[3:90] -A OUTPUT -p udp"), "{nat}");
    write("{\"what\":1}\n");
    let refused = router.fails(&["load", &file]);
    assert!(
        refused.contains("cannot be read: restore these tables, and remove the file"),
        "{refused}"
    );
    fs::remove_file(&path).unwrap();
    router.done(&["load", &file]);
}

#[test]
fn empty_and_repeated_tables_are_loaded() {
    requires!(Need::Root, Need::Tool("iptables-restore"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("empty").unwrap());
    let refused = table("mangle", REFUSED);
    // The later table of a name is the one of the file.
    let text = [&refused[..], &table("raw", ""), &table("mangle", DROP)].concat();
    let file = router.file("rules.v4", &text);
    assert!(
        router
            .done(&["load", &file, "--defer"])
            .starts_with("loaded 1 rule\n")
    );
    assert_eq!(sides(&router), (true, false));
    let text = [
        &table("mangle", DROP)[..],
        &table("mangle", &format!("{DROP}{REFUSED}")),
    ]
    .concat();
    let file = router.file("rules.v4", &text);
    assert!(
        router
            .done(&["load", &file, "--defer"])
            .starts_with("loaded no rules\n")
    );
    assert_eq!(sides(&router), (false, true));
    // No tool, no change.
    let missing = router
        .command(&["load", &file, "--defer"])
        .env("PATH", "/nowhere")
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(
        error(&missing).contains("or leave it as it runs with --skip-table mangle"),
        "{missing:?}"
    );
    assert_eq!(sides(&router), (false, true));
}
