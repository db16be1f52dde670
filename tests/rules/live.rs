//! Loaded rules: `fairpath rules load`, `confirm`, `counters`, `show` and `unload` in a namespace, next to
//! iptables-legacy in another one with the same traffic.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Netns, Testbed, requires, wait_for};
use fairpath_tests::Place;
use fairpath_units::test_seeds;

use super::commands::fairpath;
use super::oracle::legacy::{allowed_cpus, stay_on};

/// A namespace with a place for its loaded rules.
pub struct Router {
    pub netns: Netns,
    pub place: Place,
}

impl Drop for Router {
    fn drop(&mut self) {
        // A test that failed leaves rules and their pins otherwise.
        let _ = self.rules(&["unload"]);
    }
}

impl Router {
    pub fn new(netns: Netns) -> Router {
        netns.run(&["ip", "link", "set", "lo", "up"]).unwrap();
        let place = Place::new();
        Router { netns, place }
    }

    pub fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.netns.command_without_sysfs(fairpath());
        command.arg("rules").args(words);
        command.arg("--pins").arg(self.place.path("pins"));
        command
    }

    pub fn rules(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary was built")
    }

    #[track_caller]
    pub fn done(&self, words: &[&str]) -> String {
        let output = self.rules(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The message of a command that fails.
    #[track_caller]
    pub fn fails(&self, words: &[&str]) -> String {
        let output = self.rules(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs a command and kills it, each seed at another part of the time that it takes. True if it was
    /// killed before its end.
    pub fn kill_in(&self, words: &[&str], whole: Duration, seed: u64) -> bool {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let part = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        std::thread::sleep(whole * part as u32 / 1024);
        child.kill().unwrap();
        !child.wait().unwrap().success()
    }

    /// A file with rules.
    pub fn file(&self, name: &str, text: &str) -> String {
        self.place.write(name, text);
        self.place.path(name).to_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn load(&self, text: &str) -> String {
        let file = self.file("rules.v4", text);
        self.done(&["load", &file])
    }

    /// The packets of the rule that ends so.
    #[track_caller]
    pub fn packets(&self, rule: &str) -> u64 {
        let counters = self.done(&["counters"]);
        let line = counters.lines().find(|line| line.ends_with(rule));
        let line = line.unwrap_or_else(|| panic!("{rule}: {counters}"));
        line[1..].split(':').next().unwrap().parse().unwrap()
    }
}

pub fn filter(rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    format!("*filter\n{rules}COMMIT\n")
}

/// A socket of `lo` in the thread's namespace. A process that another test has just forked may still hold the one
/// before.
pub fn bound(port: u16) -> UdpSocket {
    let bind = || UdpSocket::bind(("127.0.0.1", port)).ok();
    wait_for(Duration::from_secs(10), bind).expect("the port is free")
}

/// Two sockets of `lo`; returns whether a datagram arrives.
pub fn arrives(netns: &Netns, port: u16) -> bool {
    let attempt = || {
        let receiver = bound(port);
        receiver
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        // A rule of OUTPUT may refuse it.
        let _ = sender.send_to(b"x", ("127.0.0.1", port));
        receiver.recv(&mut [0; 8]).is_ok()
    };
    netns.enter(attempt).unwrap()
}

#[test]
fn loaded_rules_outlive_the_command_until_unload() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("loaded").unwrap());
    let none = router.fails(&["show"]);
    assert!(none.contains("no rules are loaded"), "{none}");
    assert!(arrives(&router.netns, 7001));
    let rule = "INPUT -p udp -m udp --dport 7001 -j DROP";
    let loaded = router.load(&filter(&["INPUT -m conntrack --ctstate INVALID", rule]));
    assert!(loaded.starts_with("loaded 2 rules\n"), "{loaded}");
    assert!(!arrives(&router.netns, 7001));
    assert!(arrives(&router.netns, 7002));
    assert_eq!(router.packets(rule), 1);
    assert_eq!(router.packets("--ctstate INVALID"), 0);
    let shown = router.done(&["show"]);
    assert!(shown.contains("filter -1: INPUT FORWARD OUTPUT"), "{shown}");
    let tables = || router.netns.run(&["nft", "list", "tables"]).unwrap();
    assert_eq!(tables(), "table ip fairpath_rules\n");
    router.done(&["unload"]);
    assert!(arrives(&router.netns, 7001));
    assert_eq!(tables(), "");
    let pins = std::fs::read_dir(router.place.path("pins")).unwrap();
    let pins: Vec<_> = pins.map(|pin| pin.unwrap().file_name()).collect();
    assert!(
        pins.iter().all(|pin| pin.to_string_lossy().contains('.')),
        "{pins:?}"
    );
}

#[test]
fn refused_loads_change_nothing() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("refused").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001 -j DROP";
    router.load(&filter(&[rule]));
    assert!(!arrives(&router.netns, 7001));
    let before = router.done(&["counters"]);
    for (text, message) in [
        (
            filter(&["INPUT -j MARK --set-mark 1"]),
            "change behind POSTROUTING only",
        ),
        (
            filter(&["INPUT -m owner --uid-owner 0"]),
            "owner in OUTPUT and POSTROUTING only",
        ),
        (filter(&["INPUT -p udp -m what --ever"]), "is not evaluated"),
        (filter(&["INPUT -j nowhere"]), "nowhere"),
        (
            filter(&["INPUT -m set ! --match-set absent src -j DROP"]),
            "set absent is in none of the ipset files",
        ),
        (
            "*filter\n:a -\n-A INPUT -j a\n-A a -j a\nCOMMIT\n".to_owned(),
            "leads back",
        ),
    ] {
        let file = router.file("bad.v4", &text);
        let printed = router.fails(&["load", &file]);
        assert!(
            printed.contains(message) && printed.contains("nothing was changed"),
            "{printed}"
        );
        assert!(printed.contains("bad.v4:"), "{printed}");
    }
    assert_eq!(router.done(&["counters"]), before);
    assert!(!arrives(&router.netns, 7001));
    // Two commands at the same time wait for each other.
    let good = router.file("good.v4", &filter(&[rule]));
    let mut others: Vec<_> = (0..4)
        .map(|_| {
            router
                .command(&["load", &good])
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    assert!(
        others
            .iter_mut()
            .all(|other| other.wait().unwrap().success())
    );
    assert!(!arrives(&router.netns, 7001));
}

#[test]
fn counters_and_limits_survive_replacement() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("survive").unwrap());
    let limited = "c -m limit --limit 6/hour --limit-burst 2 -j RETURN";
    let text = |first: &str| {
        let rules = filter(&[
            first,
            "INPUT -p udp -m udp --dport 7001 -j c",
            limited,
            "c -j DROP",
        ]);
        rules.replace("*filter\n", "*filter\n:c -\n")
    };
    router.load(&text("INPUT -p tcp"));
    assert!(arrives(&router.netns, 7001));
    let kept = router.load(&text("INPUT -p icmp"));
    // Three rules that stay, and the policies of three chains.
    assert!(kept.contains("6 counters kept"), "{kept}");
    assert!(arrives(&router.netns, 7001));
    router.load(&text("INPUT -p sctp"));
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(router.packets("--dport 7001 -j c"), 3);
    assert_eq!(router.packets(limited), 2);
    assert_eq!(router.packets("-A INPUT -p sctp"), 0);
    let printed = router.done(&["counters", "--zero"]);
    assert!(printed.contains("[3:"), "{printed}");
    assert_eq!(router.packets("--dport 7001 -j c"), 0);
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(router.packets("--dport 7001 -j c"), 1);
}

/// Loads, unloads and edits at the same time are done one after the other.
#[test]
fn commands_at_once_leave_one_set() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("at-once").unwrap());
    let state = "INPUT -m conntrack --ctstate NEW";
    let file = router.file("rules", &filter(&[state]));
    for seed in test_seeds(20) {
        let spawn = |words: &[&str]| {
            let mut command = router.command(words);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let unloads = seed % 2 == 1;
        let mut commands: Vec<_> = (0..3).map(|_| spawn(&["load", &file])).collect();
        if unloads {
            commands.push(spawn(&["unload"]));
        }
        let done: Vec<bool> = commands
            .iter_mut()
            .map(|command| command.wait().unwrap().success())
            .collect();
        assert!(done[..3].iter().all(|done| *done), "{done:?}");
        let shown = router.rules(&["show"]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        let tables = router.netns.run(&["nft", "list", "tables"]).unwrap();
        match shown.is_empty() {
            // The unload came last.
            true => assert!(unloads && tables.is_empty(), "{tables}"),
            false => {
                assert!(shown.contains("filter -1: INPUT FORWARD OUTPUT"), "{shown}");
                assert!(tables.contains("fairpath_rules"), "{tables}");
                router.done(&["unload"]);
            }
        }
    }
}

/// Commands as fail2ban and Docker give them, on the loaded rules.
#[test]
fn commands_edit_loaded_rules() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("edited").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001";
    router.load(&filter(&[rule, "INPUT -p udp -m udp --dport 7002 -j DROP"]));
    assert!(arrives(&router.netns, 7001));
    let edit = |words: &[&str]| {
        let mut command = router.command(&["apply", "--loaded"]);
        command.arg("--").args(words);
        command.output().unwrap()
    };
    for command in [
        "iptables -w -N f2b-dns",
        "iptables -w -A f2b-dns -j RETURN",
        "iptables -w -I INPUT -p udp -m multiport --dports 7001 -j f2b-dns",
        "iptables -w -I f2b-dns 1 -s 127.0.0.1 -j DROP",
        "ip6tables -w -A INPUT -s 2001:db8::9 -j DROP",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let done = edit(&words);
        assert!(done.status.success(), "{command}: {done:?}");
    }
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(router.packets(rule), 1);
    assert!(
        router
            .done(&["counters"])
            .contains("-s 2001:db8::9/128 -j DROP")
    );
    let refused = edit(&["-A", "INPUT", "-j", "MARK", "--set-mark", "1"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(edit(&["-D", "f2b-dns", "1"]).status.success());
    assert!(arrives(&router.netns, 7001));
}

/// -Z and -c change counters of rules that stay and of new ones, others continue.
#[test]
fn edits_change_counters() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("zeroed").unwrap());
    let (first, second) = (
        "INPUT -p udp -m udp --dport 7001",
        "INPUT -p udp -m udp --dport 7002",
    );
    router.load(&filter(&[first, second]));
    for port in [7001, 7001, 7002] {
        assert!(arrives(&router.netns, port));
    }
    let edit = |line: &str| {
        let mut command = router.command(&["apply", "--loaded"]);
        let output = command.arg("--").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    let counted = || [first, second].map(|rule| router.packets(rule));
    edit("iptables -Z INPUT 1");
    assert_eq!(counted(), [0, 1]);
    edit("iptables -A INPUT -p tcp -c 7 500");
    assert_eq!(router.packets("-A INPUT -p tcp"), 7);
    assert!(arrives(&router.netns, 7001));
    // The same rule again is a new one.
    edit("iptables -D INPUT 2");
    edit(&format!("iptables -A {second}"));
    assert_eq!(counted(), [1, 0]);
    edit("iptables -Z");
    assert_eq!(counted(), [0, 0]);
    // A renamed chain has its rules, and equal rules have their own counters.
    for line in [
        "-N one",
        "-I INPUT -j one",
        "-A one -p udp",
        "-A one -p udp",
    ] {
        edit(&format!("iptables {line}"));
    }
    let socket = router
        .netns
        .enter(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let socket = socket.unwrap();
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut sent = 0;
            while !done.load(Ordering::Relaxed) {
                // Refused by the other side.
                sent += u64::from(socket.send_to(b"x", ("127.0.0.1", 7003)).is_ok());
            }
            sent
        });
        for _ in 0..5 {
            edit("iptables -E one two");
            edit("iptables -I two 1 -p udp");
            edit("iptables -D two 1");
            edit("iptables -E two one");
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    let printed = router.done(&["counters"]);
    let equal = format!("[{sent}:{}] -A one -p udp", sent * 29);
    assert_eq!(printed.matches(&equal).count(), 2, "{sent}: {printed}");
    edit("iptables -Z");
    let printed = router.done(&["counters"]);
    assert!(printed.contains(":INPUT ACCEPT [0:0]"), "{printed}");
    assert!(arrives(&router.netns, 7002));
    assert_eq!(counted(), [0, 1]);
}

/// `rules log` prints each packet once for each reader, also over loads.
#[test]
fn logged_packets_are_printed() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("logged").unwrap());
    let text = |prefix: &str| {
        filter(&[
            &format!("INPUT -p udp -m udp --dport 7001 -j LOG --log-prefix \"{prefix} \""),
            "INPUT -p udp -m udp --dport 7002 -j REJECT --reject-with icmp-port-unreachable",
        ])
    };
    router.load(&text("first"));
    let read = |words: &[&str]| {
        let mut command = router.command(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let plain = read(&["log", "--count", "2"]);
    let all = read(&["log", "--rejects", "--format", "json", "--count", "3"]);
    let journal = read(&["log", "--journal"]);
    // Readers get what comes after their start.
    std::thread::sleep(Duration::from_millis(1000));
    assert!(arrives(&router.netns, 7001));
    assert!(!arrives(&router.netns, 7002));
    std::thread::sleep(Duration::from_millis(300));
    router.load(&text("second"));
    assert!(arrives(&router.netns, 7001));
    let printed = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        text.concat()
    };
    let plain = printed(plain);
    let line = "IN=lo OUT= MAC=00:00:00:00:00:00:00:00:00:00:00:00:08:00 SRC=127.0.0.1 DST=127.0.0.1 LEN=29";
    for (text, prefix) in plain.lines().zip(["first", "second"]) {
        assert!(text.contains(&format!("Z {prefix} {line}")), "{text}");
    }
    assert_eq!(plain.lines().count(), 2, "{plain}");
    let all = printed(all);
    let events: Vec<serde_json::Value> = all
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<_> = events.iter().map(|event| &event["event"]).collect();
    assert_eq!(kinds, ["log", "reject", "log"], "{all}");
    assert_eq!(
        events[1]["rule"]["rule"],
        "-A INPUT -p udp -m udp --dport 7002 -j REJECT --reject-with icmp-port-unreachable"
    );
    // More rules than a packet has places for, and a reader that ends.
    let ten: Vec<String> = (0..10)
        .map(|at| format!("INPUT -p udp -m udp --dport 7003 -j LOG --log-prefix \"p{at} \""))
        .collect();
    let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
    let mut reader = read(&["log"]);
    std::thread::sleep(Duration::from_millis(500));
    router.load(&filter(&ten));
    assert!(arrives(&router.netns, 7003));
    let mut first = String::new();
    let mut lines = BufReader::new(reader.stdout.take().unwrap());
    for at in 0..8 {
        first.clear();
        lines.read_line(&mut first).unwrap();
        assert!(first.contains(&format!("Z p{at} IN=lo")), "{first}");
    }
    drop(lines);
    assert!(arrives(&router.netns, 7003));
    assert!(reader.wait().unwrap().success());
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("4 logs missing: more than 8 rules"),
        "{shown}"
    );
    router.done(&["unload"]);
    let journal = printed(journal);
    let mut lines = journal.lines();
    assert!(
        lines.next().unwrap().starts_with("<4>first IN=lo "),
        "{journal}"
    );
    assert!(
        lines.next().unwrap().starts_with("<4>second IN=lo "),
        "{journal}"
    );
    let last = lines.next_back();
    assert_eq!(last, Some("fairpath: the rules were unloaded"));
}

#[test]
fn unconfirmed_rules_go_back() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("confirm").unwrap());
    let drops = |port| filter(&[&format!("INPUT -p udp -m udp --dport {port} -j DROP")]);
    let (old, new) = (
        router.file("old", &drops(7001)),
        router.file("new", &drops(7002)),
    );
    let arriving = || [7001, 7002].map(|port| arrives(&router.netns, port));
    // Also without rules before.
    router.done(&["load", &old, "--confirm", "1s"]);
    assert_eq!(arriving(), [false, true]);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(arriving(), [true, true]);
    assert!(router.fails(&["show"]).contains("no rules are loaded"));
    router.done(&["unload"]);
    assert!(router.fails(&["unload"]).contains("no rules are loaded"));
    router.done(&["load", &old]);
    let loaded = router.done(&["load", &new, "--confirm", "2s"]);
    assert!(loaded.contains("come back in 2 s"), "{loaded}");
    assert_eq!(arriving(), [true, false]);
    let waits = router.fails(&["load", &old]);
    assert!(
        waits.contains("waits for `fairpath rules confirm`"),
        "{waits}"
    );
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(arriving(), [false, true]);
    let late = router.fails(&["confirm"]);
    assert!(late.contains("too late"), "{late}");
    assert!(router.done(&["show"]).contains("was not confirmed"));
    router.done(&["load", &new, "--confirm", "1s"]);
    router.done(&["confirm"]);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(arriving(), [true, false]);
    let nothing = router.fails(&["confirm"]);
    assert!(nothing.contains("no load waits"), "{nothing}");
}

/// The rules that come back read connections, and no process switches tracking on again.
#[test]
fn unconfirmed_rules_go_back_with_connections() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("tracked").unwrap());
    let state = filter(&["INPUT -m conntrack --ctstate INVALID,UNTRACKED -j DROP"]);
    let plain = filter(&["INPUT -p udp -m udp --dport 7002 -j DROP"]);
    let file = router.file("plain", &plain);
    router.load(&state);
    router.done(&["load", &file, "--confirm", "1s"]);
    std::thread::sleep(Duration::from_millis(1100));
    assert!(arrives(&router.netns, 7001));
    assert!(!router.done(&["show"]).contains("may be off"));
    router.done(&["load", &file, "--confirm", "5s"]);
    router.done(&["confirm"]);
    let tables = router.netns.run(&["nft", "list", "tables"]).unwrap();
    assert_eq!(tables, "");
}

/// Without nft, rules that read no connection are loaded; with such rules the load fails as a whole.
#[test]
fn nft_is_needed_for_connections_only() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("without").unwrap());
    let without = |words: &[&str]| {
        let mut command = router.command(words);
        command.env("PATH", "/nowhere").output().unwrap()
    };
    let plain = router.file(
        "plain",
        &filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]),
    );
    let state = router.file("state", &filter(&["INPUT -m conntrack --ctstate NEW"]));
    let refused = without(&["load", &state]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("nft"), "{text}");
    assert!(router.fails(&["show"]).contains("no rules are loaded"));
    assert!(without(&["load", &plain]).status.success());
    assert!(!arrives(&router.netns, 7001));
    let refused = without(&["load", &state]);
    assert!(!refused.status.success());
    assert!(!arrives(&router.netns, 7001));
    assert!(without(&["unload"]).status.success());
    assert!(arrives(&router.netns, 7001));
}

/// Programs that other pins keep are seen, and rules are found in either place of pins.
#[test]
fn second_rules_in_a_namespace_are_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("twice").unwrap());
    router.load(&filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]));
    let file = router.place.path("rules.v4");
    let mut command = router.netns.command_without_sysfs(fairpath());
    command.args(["rules", "load"]).arg(&file);
    command.arg("--pins").arg(router.place.path("other"));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("pins in another directory"), "{text}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let other = router.place.path("other");
    assert!(!mounts.contains(other.to_str().unwrap()), "{mounts}");
    assert!(!arrives(&router.netns, 7001));
    // Connections of these rules stay tracked, whatever is refused next to them.
    let established = "INPUT -m conntrack --ctstate NEW -p udp -m udp --dport 7001 -j DROP";
    router.load(&filter(&[established]));
    let tables = || router.netns.run(&["nft", "list", "tables"]).unwrap();
    assert!(tables().contains("fairpath_rules"), "{}", tables());
    let pins = other.to_str().unwrap();
    std::fs::create_dir_all(&other).unwrap();
    router
        .netns
        .run(&["mount", "-t", "bpf", "bpf", pins])
        .unwrap();
    let results = [&["load", file.to_str().unwrap()][..], &["unload"]].map(|words| {
        let mut command = router.netns.command_without_sysfs(fairpath());
        command.arg("rules").args(words).args(["--pins", pins]);
        let output = command.output().unwrap();
        (
            String::from_utf8_lossy(&output.stderr).into_owned(),
            tables(),
        )
    });
    router.netns.run(&["umount", pins]).unwrap();
    for (text, tables) in results {
        assert!(text.contains("pins in another directory"), "{text}");
        assert!(tables.contains("fairpath_rules"), "{tables}: {text}");
    }
    assert!(!arrives(&router.netns, 7001));
    let mode = std::fs::metadata("/run/fairpath-rules.lock").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
    assert_eq!(mode & 0o777, 0o600);
}

/// A list that compares TTLs, on packets of this host: their TTL depends on the socket.
#[test]
fn recent_lists_compare_ttls_of_sent_packets() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("ttl").unwrap());
    let check =
        "OUTPUT -p udp -m recent --rcheck --rttl --name sent --mask 255.255.255.255 --rsource";
    let set = "OUTPUT -p udp -m recent --set --name sent --mask 255.255.255.255 --rsource";
    router.load(&filter(&[check, set]));
    for _ in 0..3 {
        assert!(arrives(&router.netns, 7001));
    }
    assert_eq!([check, set].map(|rule| router.packets(rule)), [2, 3]);
    assert!(
        router
            .done(&["show"])
            .contains("packets: 0 dropped with an unknown answer")
    );
}

/// Sets of two colours: each drops one port in table raw and the other in table filter, so that a packet
/// that meets a mixture passes. Commands are killed at any moment.
#[test]
fn killed_loads_leave_whole_rules() {
    requires!(Need::Root);
    const KILLS: u64 = 200;
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("killed").unwrap());
    let color = |early: u16, late: u16| {
        format!(
            "*raw\n-A PREROUTING -p udp -m udp --dport {early} -j DROP\nCOMMIT\n\
             *filter\n-A INPUT -p udp -m udp --dport {late} -j DROP\nCOMMIT\n"
        )
    };
    let files = [
        router.file("a", &color(7001, 7002)),
        router.file("b", &color(7002, 7001)),
    ];
    let start = Instant::now();
    router.done(&["load", &files[0]]);
    let whole = start.elapsed();
    let bind = |port| {
        let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let inside = router.netns.enter(|| {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        ([7001, 7002].map(bind), sender)
    });
    let (receivers, sender) = inside.unwrap();
    let done = AtomicBool::new(false);
    let (sent, kills) = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut sent = 0u64;
            while !done.load(Ordering::Relaxed) {
                for port in [7001, 7002] {
                    sender.send_to(b"x", ("127.0.0.1", port)).unwrap();
                }
                sent += 1;
            }
            sent
        });
        let mut kills = 0;
        for seed in test_seeds(KILLS) {
            let file = &files[(seed & 1) as usize];
            kills += u64::from(router.kill_in(&["load", file], whole, seed));
            let shown = router.done(&["counters"]);
            let colors = [color(7001, 7002), color(7002, 7001)].map(|text| {
                let mut rules = text.lines().filter(|line| line.starts_with("-A"));
                rules.all(|rule| shown.contains(rule))
            });
            assert!(colors[0] != colors[1], "{shown}");
        }
        done.store(true, Ordering::Relaxed);
        (traffic.join().unwrap(), kills)
    });
    let mixed = receivers.map(|socket| socket.recv(&mut [0; 8]).is_ok());
    println!("{sent} packets of each port, {kills} killed commands of {whole:?}");
    assert_eq!(mixed, [false; 2]);
    assert!(kills > 0);
    router.done(&["load", &files[0]]);
}

/// Killed while nothing is loaded: the next command loads, or finds what was left.
#[test]
fn killed_first_loads_are_taken_up() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("first").unwrap());
    let file = router.file(
        "rules",
        &filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]),
    );
    let start = Instant::now();
    router.done(&["load", &file]);
    let whole = start.elapsed();
    for seed in test_seeds(80) {
        router.done(&["unload"]);
        router.kill_in(&["load", &file], whole, seed);
        let loaded = router.rules(&["show"]).status.success();
        assert_eq!(!arrives(&router.netns, 7001), loaded);
        router.done(&["load", &file]);
        assert!(!arrives(&router.netns, 7001));
    }
}

/// Sets of different size are loaded while counters are read.
#[test]
fn counters_are_read_while_rules_are_replaced() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("read").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001";
    let many: Vec<String> = (0..2000)
        .map(|port| format!("OUTPUT -p tcp -m tcp --dport {port}"))
        .collect();
    let many: Vec<&str> = [rule]
        .into_iter()
        .chain(many.iter().map(String::as_str))
        .collect();
    let files = [
        router.file("few", &filter(&[rule])),
        router.file("many", &filter(&many)),
    ];
    router.done(&["load", &files[0]]);
    assert!(arrives(&router.netns, 7001));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| {
            for number in 0..20 {
                router.done(&["load", &files[(number + 1) % 2]]);
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            assert_eq!(router.packets(rule), 1);
        }
        loads.join().unwrap();
    });
}

/// Client, router and server.
pub struct RouterLine {
    pub client: Netns,
    pub router: Netns,
    pub server: Netns,
}

impl RouterLine {
    pub fn new(testbed: &Testbed) -> RouterLine {
        let [client, router, server] =
            ["client", "router", "server"].map(|name| testbed.netns(name).unwrap());
        for (near, name, other) in [("wan", "eth0", &server), ("lan", "eth1", &client)] {
            let peer = format!(
                "link add {near} type veth peer name {name} netns {}",
                other.path()
            );
            router.ip_batch(&[peer]).unwrap();
        }
        let lines = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| (*line).to_owned())
                .collect::<Vec<_>>()
        };
        router
            .ip_batch(&lines(&[
                "link set lo up",
                "addr add 10.1.0.1/24 dev lan",
                "addr add 10.2.0.1/24 dev wan",
                "link set lan up",
                "link set wan up",
            ]))
            .unwrap();
        client
            .ip_batch(&lines(&[
                "addr add 10.1.0.2/24 dev eth1",
                "link set eth1 up",
                "route add default via 10.1.0.1",
            ]))
            .unwrap();
        server
            .ip_batch(&lines(&[
                "addr add 10.2.0.2/24 dev eth0",
                "link set eth0 up",
                "route add default via 10.2.0.1",
            ]))
            .unwrap();
        let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        router.enter(forward).unwrap();
        RouterLine {
            client,
            router,
            server,
        }
    }

    /// NAT and untracked packets by nftables, other the rules.
    fn translate(&self) {
        let nft = "add table ip other\n\
            add chain ip other nat { type nat hook postrouting priority 100; }\n\
            add rule ip other nat oifname wan udp dport 9 masquerade\n\
            add chain ip other raw { type filter hook prerouting priority -310; }\n\
            add rule ip other raw udp dport 10 notrack\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, nft).unwrap();
        let path = file.path().to_str().unwrap();
        self.router.run(&["nft", "-f", path]).unwrap();
    }

    /// Traffic of all states: new, established, related, invalid, untracked, translated.
    pub fn traffic(&self) {
        let ping = |netns: &Netns, to: &str| {
            let words = ["ping", "-c", "3", "-i", "0.01", "-W", "5", "-q", to];
            netns.run(&words).unwrap();
        };
        ping(&self.client, "10.2.0.2");
        ping(&self.client, "10.1.0.1");
        ping(&self.router, "10.2.0.2");
        let send = |from: &str, to: &str| {
            let socket = UdpSocket::bind(from).unwrap();
            socket.connect(to).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            for _ in 0..2 {
                socket.send(b"x").unwrap();
                // The error for a closed port.
                assert!(socket.recv(&mut [0; 8]).is_err());
            }
        };
        for to in ["10.2.0.2:7", "10.2.0.2:9", "10.2.0.2:10", "10.1.0.1:7"] {
            let from = "10.1.0.2:6000";
            self.client.enter(|| send(from, to)).unwrap();
        }
        let from = "10.2.0.1:6000";
        let send_from_router = || send(from, "10.2.0.2:7");
        self.router.enter(send_from_router).unwrap();
        // Refused and accepted TCP.
        let connect = |port: u16| {
            let connected = std::net::TcpStream::connect(("10.2.0.2", port));
            assert!(connected.is_err());
        };
        self.client.enter(|| connect(80)).unwrap();
        // An answer without a request.
        let reply = || {
            use nix::sys::socket::*;
            let socket = socket(
                AddressFamily::Inet,
                SockType::Raw,
                SockFlag::empty(),
                SockProtocol::Icmp,
            )
            .unwrap();
            let to = SockaddrIn::new(10, 2, 0, 2, 0);
            let message = [0, 0, 0xff, 0xfd, 0, 1, 0, 1];
            sendto(
                std::os::fd::AsRawFd::as_raw_fd(&socket),
                &message,
                &to,
                MsgFlags::empty(),
            )
            .unwrap();
        };
        self.client.enter(reply).unwrap();
        self.all_arrived("10.2.0.2");
    }

    /// Waits until the client's packets have arrived. Each CPU has a queue of them: an answer to a later packet of
    /// the same CPU is behind them.
    pub fn all_arrived(&self, to: &str) {
        let ping = ["ping", "-c", "1", "-W", "5", "-q", to];
        let ping_from = |cpu| {
            stay_on(cpu);
            self.client.run(&ping).unwrap();
        };
        for cpu in allowed_cpus() {
            std::thread::scope(|scope| scope.spawn(|| ping_from(cpu)).join().unwrap());
        }
    }
}

/// The lines of each table.
pub fn tables(save: &str) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut table = String::new();
    for line in save.lines() {
        match line.strip_prefix('*') {
            Some(name) => table = name.to_owned(),
            None if line.starts_with([':', '[']) => {
                out.entry(table.clone()).or_default().push(line.to_owned());
            }
            None => {}
        }
    }
    out
}

#[test]
fn counters_of_all_states_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("nft"),
        Need::Tool("ping")
    );
    let mut rules = Vec::new();
    for chain in ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"] {
        for state in [
            "NEW",
            "ESTABLISHED",
            "RELATED",
            "INVALID",
            "UNTRACKED",
            "SNAT",
            "DNAT",
        ] {
            rules.push(format!("{chain} -m conntrack --ctstate {state}"));
        }
        for status in ["NONE", "EXPECTED", "SEEN_REPLY", "ASSURED", "CONFIRMED"] {
            rules.push(format!("{chain} -m conntrack --ctstatus {status}"));
        }
        for direction in ["ORIGINAL", "REPLY"] {
            rules.push(format!("{chain} -m conntrack --ctdir {direction}"));
        }
        for rest in [
            "-i lan", "-o wan", "! -i wan", "! -o lan", "-p icmp", "-p udp", "-f",
        ] {
            let absent = match chain {
                "PREROUTING" | "INPUT" => "-o ",
                "OUTPUT" | "POSTROUTING" => "-i ",
                _ => "neither",
            };
            if !rest.contains(absent) {
                rules.push(format!("{chain} {rest}"));
            }
        }
    }
    let mangle: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    let text = format!(
        "*raw\n-A PREROUTING -m conntrack --ctstate INVALID\n-A OUTPUT -m conntrack --ctstate INVALID\nCOMMIT\n\
         *mangle\n{mangle}COMMIT\n\
         *filter\n:INPUT DROP\n:FORWARD DROP\n:OUTPUT ACCEPT\n:checked -\n\
         -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -g checked\n\
         -A INPUT -p udp -m multiport --dports 7,9 -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,UNTRACKED -j ACCEPT\n\
         -A FORWARD -m conntrack --ctstate INVALID -j DROP\n\
         -A FORWARD -i lan -o wan -j checked\n\
         -A checked -m limit --limit 1/hour --limit-burst 20 -j ACCEPT\n-A checked -j LOG\nCOMMIT\n\
         *security\n-A FORWARD -m conntrack --ctstate NEW\n-A INPUT -m conntrack --ctstate NEW\nCOMMIT\n"
    );
    let testbed = Testbed::new();
    let legacy = RouterLine::new(&testbed);
    legacy.translate();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, &text).unwrap();
    let path = file.path().to_str().unwrap();
    legacy
        .router
        .run(&["iptables-legacy-restore", path])
        .unwrap();
    legacy.traffic();
    let of_kernel = legacy.router.run(&["iptables-legacy-save", "-c"]).unwrap();
    drop(legacy);
    let testbed = Testbed::new();
    let line = RouterLine::new(&testbed);
    line.translate();
    let router = Router::new(line.router.clone());
    router.load(&text);
    line.traffic();
    let of_ours = router.done(&["counters"]);
    let (of_kernel, of_ours) = (tables(&of_kernel), tables(&of_ours));
    for (table, lines) in &of_ours {
        assert_eq!(Some(lines), of_kernel.get(table), "table {table}");
    }
    // Each state was there.
    let mangle = of_ours["mangle"].join("\n");
    for state in [
        "NEW",
        "ESTABLISHED",
        "RELATED",
        "INVALID",
        "UNTRACKED",
        "SNAT",
    ] {
        let mut lines = mangle
            .lines()
            .filter(|line| line.ends_with(&format!("--ctstate {state}")));
        assert!(
            lines.any(|line| !line.starts_with("[0:0]")),
            "{state}: {mangle}"
        );
    }
}
