//! Edits of chains of the loaded rules, which do not build the rest: they do what a whole load does.

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_statistics::Random;
use fairpath_testbed::{Need, Testbed, requires};
use fairpath_units::test_seeds;

use super::commands::fairpath;
use super::live::{Router, arrives, filter};

/// Chains of generated sets, next to INPUT.
const CHAINS: u64 = 4;
/// Replacements under traffic.
const CHANGES: usize = 40;
/// Ports that their rules name.
const PORTS: [u16; 4] = [7000, 7001, 7002, 7003];

/// Edits of chains since the last whole load.
fn edits(router: &Router) -> u64 {
    let shown = router.done(&["show", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown["edits"].as_u64().unwrap()
}

/// The match and target of a rule of chain `number`: jumps lead to later chains, so none leads back.
fn rule(random: &mut Random, number: u64) -> String {
    let port = PORTS[random.below(4) as usize];
    let matches = match random.below(5) {
        0 => "-s 127.0.0.0/8".to_owned(),
        1 => format!("-p udp -m udp --dport {port} -m limit --limit 10000/sec --limit-burst 100"),
        2 => format!("-p udp -m udp ! --dport {port}"),
        _ => format!("-p udp -m udp --dport {port}"),
    };
    let target = match random.below(6) {
        0 => "-j DROP".to_owned(),
        1 => "-j ACCEPT".to_owned(),
        2 => "-j RETURN".to_owned(),
        3 if number + 1 < CHAINS => format!("-j c{}", number + 1),
        4 if number + 1 < CHAINS => format!("-g c{}", CHAINS - 1),
        _ => String::new(),
    };
    format!("{matches} {target}")
}

/// Lines of edits of one or two chains. `text` has the rules before them.
fn generate(random: &mut Random, text: &str) -> String {
    let mut out = "*filter\n".to_owned();
    for _ in 0..1 + random.below(2) {
        let number = random.below(CHAINS);
        let rules = text.lines();
        let begin = format!("-A c{number} ");
        let length = rules.filter(|line| line.starts_with(&begin)).count() as u64;
        let place = 1 + random.below(length.max(1));
        let rule = rule(random, number);
        // Places are those before all edits, so only one edit of a chain has one.
        let line = match random.below(8) {
            0 | 1 => format!("-A c{number} {rule}"),
            2 if !out.contains(&format!(" c{number} ")) => format!("-I c{number} {place} {rule}"),
            3 if length > 0 && !out.contains(&format!(" c{number}")) => {
                format!("-D c{number} {place}")
            }
            4 if length > 0 && !out.contains(&format!(" c{number}")) => {
                format!("-R c{number} {place} {rule}")
            }
            5 if !out.contains(&format!(" c{number}")) => {
                format!(":c{number} - [0:0]\n-A c{number} {rule}")
            }
            6 => format!("-F c{number}\n-A c{number} {rule}\n-A c{number} -j RETURN"),
            _ => format!("-I c{number} {rule}"),
        };
        out += &line;
        out.push('\n');
    }
    out + "COMMIT\n"
}

/// Rules and chains without counters.
fn rules_of(save: &str) -> Vec<String> {
    let lines = save.lines().filter(|line| !line.starts_with('#'));
    let without = lines.map(|line| match line.strip_prefix('[') {
        Some(counted) => counted
            .split_once("] ")
            .map_or(line, |(_, rule)| rule)
            .to_owned(),
        None if line.starts_with(':') => line.split(" [").next().unwrap_or(line).to_owned(),
        None => line.to_owned(),
    });
    without.collect()
}

/// The same edits of the loaded rules and of a file, then the same packets for the edited rules and for the
/// file, loaded: the same rules and counters.
#[test]
fn edited_rules_are_those_of_a_load() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let [edited, loaded] =
        ["edited", "loaded"].map(|name| Router::new(testbed.netns(name).unwrap()));
    let mut quick = 0;
    for seed in test_seeds(12) {
        let mut random = Random::new(seed);
        let mut text = "*filter\n".to_owned();
        for chain in 0..CHAINS {
            text += &format!(":c{chain} - [0:0]\n");
        }
        text += "-A INPUT -p udp -j c0\n-A INPUT -p udp -j c1\n";
        for chain in 0..CHAINS {
            let most = if random.below(4) == 0 { 120 } else { 6 };
            for _ in 0..random.below(most) {
                text += &format!("-A c{chain} {}\n", rule(&mut random, chain));
            }
        }
        text += "COMMIT\n";
        let file = edited.file("rules.v4", &text);
        edited.done(&["load", &file]);
        let before = edits(&edited);
        assert_eq!(before, 0);
        for _ in 0..12 {
            let now = std::fs::read_to_string(&file).unwrap();
            let lines = edited.file("edits", &generate(&mut random, &now));
            edited.done(&["apply", "--loaded", "--edits", &lines]);
            let offline = Command::new(fairpath())
                .args(["rules", "apply", &file, "--in-place", "--edits", &lines])
                .output()
                .unwrap();
            assert!(offline.status.success(), "{offline:?}");
            let wanted = std::fs::read_to_string(&file).unwrap();
            let found = edited.done(&["counters"]);
            assert_eq!(rules_of(&found), rules_of(&wanted), "seed {seed}");
        }
        quick += edits(&edited);
        edited.done(&["counters", "--zero"]);
        loaded.done(&["load", &file]);
        loaded.done(&["counters", "--zero"]);
        let results = [&edited, &loaded].map(|router| {
            let arrived = PORTS.map(|port| arrives(&router.netns, port));
            (arrived, router.done(&["counters"]))
        });
        assert_eq!(results[0], results[1], "seed {seed}");
    }
    // Those with new jumps are whole loads.
    assert!(quick > 0);
}

#[test]
fn edits_keep_counters_and_limits() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("kept").unwrap());
    let limited = "-A c -m limit --limit 1/hour --limit-burst 3 -j ACCEPT";
    let text = format!(
        "*filter\n:c -\n-A INPUT -p udp -m udp --dport 7001 -j c\n{limited}\n-A c -j DROP\nCOMMIT\n"
    );
    router.load(&text);
    assert!(arrives(&router.netns, 7001));
    for number in 1..4 {
        let line = format!("*filter\n-I c -s 10.0.0.{number} -j DROP\nCOMMIT\n");
        let file = router.file("edit", &line);
        router.done(&["apply", "--loaded", "--edits", &file]);
    }
    assert_eq!(edits(&router), 3);
    assert!(arrives(&router.netns, 7001));
    assert!(arrives(&router.netns, 7001));
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(router.packets(limited), 3);
    assert_eq!(router.packets("--dport 7001 -j c"), 4);
    assert_eq!(router.packets("-A c -j DROP"), 1);
    // The whole chain: the rule that stays keeps its limit, the new one begins.
    let file = router.file(
        "c",
        &format!("-A c -s 10.0.0.9 -j DROP\n{limited}\n-A c -j REJECT\n"),
    );
    let printed = router.done(&["replace-chain", "c", &file]);
    assert_eq!(printed, "6 rules before, 4 now\n");
    assert_eq!(edits(&router), 4);
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(router.packets(limited), 3);
    let counters = router.done(&["counters"]);
    assert!(counters.contains("[1:29] -A c -j REJECT"), "{counters}");
    // A whole load keeps what edits changed.
    let saved = router.file("saved", &counters);
    let kept = router.done(&["load", &saved]);
    assert!(kept.contains("7 counters kept"), "{kept}");
    assert_eq!(edits(&router), 0);
    assert_eq!(router.packets(limited), 3);
}

#[test]
fn chains_are_replaced_without_a_lost_packet() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("replaced").unwrap());
    let rules = |last: &str| -> String {
        let others =
            (0..1000).map(|at| format!("-A c -s 10.0.{}.{} -j DROP\n", at / 250, at % 250));
        others.collect::<String>() + last
    };
    let chains = [
        rules("-A c -p udp -m udp --dport 7001 -j ACCEPT\n"),
        rules("-A c -s 127.0.0.1/32 -j ACCEPT\n"),
    ];
    router.load(&format!(
        "*filter\n:INPUT DROP\n:c -\n-A INPUT -p udp -j c\n{}COMMIT\n",
        chains[0]
    ));
    let files = [router.file("a", &chains[0]), router.file("b", &chains[1])];
    let inside = router.netns.enter(|| {
        let receiver = UdpSocket::bind("127.0.0.1:7001").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        (receiver, UdpSocket::bind("127.0.0.1:0").unwrap())
    });
    let (receiver, sender) = inside.unwrap();
    let done = AtomicBool::new(false);
    let mut changes = 0;
    let sent = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let (mut sent, mut buffer) = (0u64, [0; 8]);
            while !done.load(Ordering::Relaxed) {
                sender.send_to(b"x", "127.0.0.1:7001").unwrap();
                receiver.recv(&mut buffer).expect("a packet was dropped");
                sent += 1;
            }
            sent
        });
        while !traffic.is_finished() && changes < CHANGES {
            router.done(&["replace-chain", "c", &files[(changes & 1) ^ 1]]);
            changes += 1;
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    println!("{sent} packets, {changes} changes");
    assert_eq!(edits(&router), changes as u64);
    assert!(sent > CHANGES as u64, "{sent}");
}

/// After a kill at any time the old chain or the new one is there, and the next edit works.
#[test]
fn killed_edits_leave_whole_chains() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("killed").unwrap());
    let rules = |port: u16| -> String {
        let others = (0..200).map(|at| format!("-A c -s 10.0.{port}.{at} -j DROP\n"));
        others
            .collect::<String>()
            .replace(&format!(".{port}."), &format!(".{}.", port % 250))
            + &format!("-A c -p udp -m udp --dport {port} -j DROP\n")
    };
    router.load(&format!(
        "*filter\n:c -\n-A INPUT -p udp -j c\n{}COMMIT\n",
        rules(7001)
    ));
    let files = [
        router.file("a", &rules(7001)),
        router.file("b", &rules(7002)),
    ];
    let begin = Instant::now();
    router.done(&["replace-chain", "c", &files[1]]);
    let whole = begin.elapsed();
    let mut kills = 0;
    for seed in test_seeds(100) {
        let words = ["replace-chain", "c", &files[(seed & 1) as usize]];
        kills += u64::from(router.kill_in(&words, whole, seed));
        let shown = router.done(&["counters"]);
        let counts = [7001, 7002].map(|port| {
            let lines = rules(port);
            lines
                .lines()
                .filter(|line| {
                    shown.contains(&line.replace(" -j", "/32 -j")[..]) || shown.contains(*line)
                })
                .count()
        });
        assert!(counts == [201, 0] || counts == [0, 201], "{counts:?}");
        let arrived = [7001, 7002].map(|port| arrives(&router.netns, port));
        assert_eq!(arrived, [counts[0] == 0, counts[1] == 0]);
    }
    assert!(kills > 0);
    router.done(&["replace-chain", "c", &files[0]]);
    router.done(&["replace-chain", "c", &files[1]]);
    assert!(edits(&router) > 0);
    assert!(arrives(&router.netns, 7001) && !arrives(&router.netns, 7002));
}

#[test]
fn edits_that_are_refused_change_nothing() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("refused").unwrap());
    let missing = router.fails(&["replace-chain", "c", "/dev/null"]);
    assert!(missing.contains("no rules are loaded"), "{missing}");
    router.load(
        &filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]).replace(
            "COMMIT",
            ":c - [0:0]\n:d - [0:0]\n-A INPUT -j c\n-A c -j d\n-A d -s 10.0.0.1 -j DROP\nCOMMIT",
        ),
    );
    let before = router.done(&["counters"]);
    let file = |text: &str| router.file("chain", text);
    for (text, message) in [
        (
            "-A d -j DROP\n",
            "not a rule of chain c of table filter: write -A c and the rule",
        ),
        ("-I c -j DROP\n", "not a rule of chain c"),
        ("-A c -j what\n", "what"),
        ("-A c -m what -j DROP\n", "match what is not evaluated"),
        (
            "-A c -j MARK --set-mark 1\n",
            "change behind POSTROUTING only",
        ),
        ("-A c -j c\n", "c"),
    ] {
        let error = router.fails(&["replace-chain", "c", &file(text)]);
        assert!(error.contains(message), "{text}: {error}");
        assert_eq!(router.done(&["counters"]), before, "{text}");
    }
    let error = router.fails(&["replace-chain", "what", &file("-A what -j DROP\n")]);
    assert!(error.contains("what"), "{error}");
    // A new jump, which could lead back.
    let error = router.fails(&["replace-chain", "d", &file("-A d -j c\n")]);
    assert!(error.contains("d") && error.contains("back"), "{error}");
    assert_eq!(router.done(&["counters"]), before);
    // While a load waits.
    let other = router.file("other.v4", &filter(&["INPUT -p tcp"]));
    router.done(&["load", &other, "--confirm", "60s"]);
    let error = router.fails(&["replace-chain", "INPUT", &file("-A INPUT -p udp\n")]);
    assert!(
        error.contains("waits for `fairpath rules confirm`"),
        "{error}"
    );
    router.done(&["confirm"]);
    router.done(&["replace-chain", "INPUT", &file("-A INPUT -p udp\n")]);
    assert_eq!(edits(&router), 1);
    assert_eq!(router.packets("-A INPUT -p udp"), 0);
}

/// Lines of an edit of the loaded rules.
fn apply(router: &Router, table: &str, lines: &[&str]) {
    let lines = lines.join("\n");
    let file = router.file("edit", &format!("*{table}\n{lines}\nCOMMIT\n"));
    router.done(&["apply", "--loaded", "--edits", &file]);
}

/// Numbers of removed rules are given again.
#[test]
fn new_rules_of_edits_begin_their_state() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("begin").unwrap());
    let limited = |burst: u32| format!("-m limit --limit 1/hour --limit-burst {burst} -j ACCEPT");
    let text = format!(
        "*filter\n:c -\n-A INPUT -p udp -m udp --dport 7001 -j c\n-A c {}\n-A c -j DROP\nCOMMIT\n",
        limited(2)
    );
    router.load(&text);
    let send = |packets: usize| {
        let arrived = (0..packets).filter(|_| arrives(&router.netns, 7001));
        arrived.count()
    };
    assert_eq!(send(3), 2);
    // Its own limit, next to one that is used up.
    let second = format!("-I c 2 {}", limited(3));
    apply(&router, "filter", &[&second]);
    assert_eq!(edits(&router), 1);
    assert_eq!(send(4), 3);
    apply(&router, "filter", &["-I c 1 -s 127.0.0.0/8"]);
    assert_eq!(send(5), 0);
    assert_eq!(router.packets("-A c -s 127.0.0.0/8"), 5);
    // A load without the rules of edits, then rules with their numbers.
    router.load(&text);
    assert_eq!(edits(&router), 0);
    apply(&router, "filter", &[&second, "-I c 1 -s 127.0.0.0/8"]);
    assert_eq!(edits(&router), 1);
    assert_eq!(router.packets("-A c -s 127.0.0.0/8"), 0);
    assert_eq!(send(4), 3);
    assert_eq!(router.packets("-A c -s 127.0.0.0/8"), 4);
}

/// A comment of other bytes than UTF-8, as old files have it.
#[test]
fn edits_next_to_any_bytes_take_effect() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("bytes").unwrap());
    let file = router.file("rules.v4", "");
    let text = b"*filter\n-A INPUT -p tcp -m comment --comment \"L\xf6wen\" -j ACCEPT\nCOMMIT\n";
    std::fs::write(&file, text).unwrap();
    router.done(&["load", &file]);
    let mut apply = router.command(&["apply", "--loaded"]);
    let words = "-- iptables -I INPUT -p udp -m udp --dport 7001 -j DROP".split(' ');
    let output = apply.args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!arrives(&router.netns, 7001));
}

/// Facts that no rule read before, other tables, new jumps, chains and policies.
#[test]
fn edits_that_need_more_are_whole_loads() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("whole").unwrap());
    let text = "*mangle\n:m - [0:0]\n-A INPUT -j m\nCOMMIT\n*filter\n:c - [0:0]\n:d - [0:0]\n\
        -A INPUT -p udp -j c\n-A d -j DROP\nCOMMIT\n";
    for (table, line) in [
        ("filter", "-A c -i lo -p udp -m udp --dport 7001 -j DROP"),
        (
            "filter",
            "-A c -p udp -m udp --dport 7001 -m mac ! --mac-source 00:00:00:00:00:01",
        ),
        ("filter", "-A c -p udp -m udp --dport 7001 -g d"),
        ("filter", "-P INPUT DROP"),
        (
            "filter",
            ":e - [0:0]\n-A c -p udp -m udp --dport 7001 -j e\n-A e -j DROP",
        ),
        (
            "filter",
            "-A c -m recent --set --name r\n-A c -m recent --rcheck --name r -j DROP",
        ),
        ("mangle", "-A m -p udp -m udp --dport 7001 -j DROP"),
    ] {
        router.load(text);
        apply(
            &router,
            table,
            &["-A c -s 10.0.0.1 -j DROP"].map(|line| match table {
                "mangle" => "-A m -s 10.0.0.1 -j DROP",
                _ => line,
            }),
        );
        assert_eq!(edits(&router), u64::from(table == "filter"), "{line}");
        apply(&router, table, &[line]);
        assert_eq!(edits(&router), 0, "{line}");
        // No link-layer address of `lo` is of Ethernet.
        let arrived = arrives(&router.netns, 7001);
        assert_eq!(arrived, line.contains("--mac-source"), "{line}");
        let counters = router.done(&["counters"]);
        assert!(counters.contains("-s 10.0.0.1/32 -j DROP"), "{counters}");
    }
}

/// Space for blobs and lines ends: a whole load makes space, and edits continue.
#[test]
fn edits_continue_when_space_ends() {
    requires!(Need::Root);
    const REPLACED: u64 = 20;
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("space").unwrap());
    router.load("*filter\n:c - [0:0]\n-A INPUT -p udp -j c\nCOMMIT\n");
    let comment = "x".repeat(250);
    let mut whole = 0;
    for number in 0..REPLACED {
        // 1.2 MB of 16 MiB.
        let other = format!("-A c -s 10.0.0.{number} -m comment --comment {comment} -j DROP\n");
        let port = 7001 + number % 2;
        let last = format!("-A c -p udp -m udp --dport {port} -j DROP\n");
        let file = router.file("chain", &(other.repeat(4000) + &last));
        let before = edits(&router);
        router.done(&["replace-chain", "c", &file]);
        whole += u64::from(edits(&router) < before);
        let arrived = [7001, 7002].map(|port| arrives(&router.netns, port));
        assert_eq!(arrived, [port != 7001, port != 7002], "{number}");
    }
    assert_eq!(whole, 1);
    let counters = router.done(&["counters"]);
    let rules = counters.lines().filter(|line| line.contains("-A c "));
    assert_eq!(rules.count(), 4001);
}

/// A chain does not show where it runs.
#[test]
fn edits_read_the_hooks_of_chains() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("hooks").unwrap());
    let text = "*filter\n:c - [0:0]\n-A INPUT -m mac --mac-source 02:00:00:00:00:01\n-A OUTPUT -j c\n\
        -A c -p udp -m udp --dport 7001 -j DROP\nCOMMIT\n";
    router.load(text);
    let before = router.done(&["counters"]);
    let mut command = router.command(&["apply", "--loaded"]);
    let words = "-- -A c -m mac ! --mac-source 02:00:00:00:00:02 -p icmp -j DROP".split(' ');
    let output = command.args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let refused = String::from_utf8_lossy(&output.stderr);
    assert!(
        refused.contains("iptables has mac in PREROUTING, INPUT and FORWARD only"),
        "{refused}"
    );
    assert_eq!(router.done(&["counters"]), before);
    // Rules without such a match are short edits.
    apply(&router, "filter", &["-A c -s 10.0.0.1 -j DROP"]);
    assert_eq!(edits(&router), 1);
}
