//! Sets of the loaded rules: `fairpath rules set` on real packets, next to ipset in another namespace.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fairpath_rules::Sets;
use fairpath_statistics::Random;
use fairpath_testbed::{Need, Testbed, requires};
use fairpath_units::test_seeds;

use super::live::{Router, arrives};

/// Rules whose sets decide about datagrams of 127.0.0.1.
const RULES: &str = "*filter\n-A INPUT -p udp -m set --match-set a src -j DROP\n\
     -A INPUT -p udp -m set --match-set p dst,dst -j DROP\nCOMMIT\n";
const SETS: &str = "create a hash:net timeout 0 comment\ncreate p hash:ip,port maxelem 3\n\
     create six hash:net family inet6\ncreate unused hash:ip\ncreate l list:set\n";

fn loaded(testbed: &Testbed, name: &str) -> Router {
    let router = Router::new(testbed.netns(name).unwrap());
    let sets = router.file("sets", SETS);
    let rules = router.file("rules.v4", RULES);
    router.done(&["load", &rules, &sets]);
    router
}

/// Edits since the last whole load.
fn edits(router: &Router) -> u64 {
    let shown = router.done(&["show", "--format", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown["edits"].as_u64().unwrap()
}

#[test]
fn packets_meet_elements_that_were_added() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "added");
    assert!(arrives(&router.netns, 7001));
    router.done(&["set", "add", "a", "127.0.0.0/8"]);
    assert!(!arrives(&router.netns, 7001));
    router.done(&["set", "add", "a", "127.0.0.1", "nomatch"]);
    assert!(arrives(&router.netns, 7001));
    router.done(&["set", "del", "a", "127.0.0.0/8", "127.0.0.1/32"]);
    router.done(&["set", "add", "p", "127.0.0.1,udp:7001-7002"]);
    assert!(!arrives(&router.netns, 7001) && !arrives(&router.netns, 7002));
    assert!(arrives(&router.netns, 7003));
    assert_eq!(edits(&router), 4);
    // All or none: the second one has no place.
    let full = router.fails(&["set", "add", "p", "10.0.0.1,80", "10.0.0.2,80"]);
    assert!(full.contains("the set is full: raise maxelem 3"), "{full}");
    let exists = router.fails(&["set", "add", "p", "10.0.0.1,80", "127.0.0.1,udp:7002"]);
    let text = "element 127.0.0.1,udp:7002 is already in the set";
    assert!(exists.contains(text), "{exists}");
    router.done(&["set", "add", "--exist", "p", "127.0.0.1,udp:7002"]);
    let missing = router.fails(&["set", "del", "p", "10.0.0.1,80"]);
    assert!(missing.contains("is not in the set"), "{missing}");
    router.done(&["set", "del", "-!", "p", "10.0.0.1,80"]);
    let lines = router.done(&["set", "list", "p"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    // A load of the same rules with the sets as they are.
    let saved = router.done(&["set", "list"]);
    let (sets, rules) = (router.file("saved", &saved), router.file("rules.v4", RULES));
    router.done(&["load", &rules, &sets]);
    assert!(!arrives(&router.netns, 7001));
    assert_eq!(router.done(&["set", "list"]), saved);
}

#[test]
fn a_test_has_the_exit_status_of_ipset() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "test");
    let lines = router.file(
        "lines",
        "add a 10.0.0.0/8\nadd a 10.1.0.0/16 nomatch\nadd six 2001:db8::/32\nadd unused 10.0.0.1\nadd l a\n",
    );
    router.done(&["set", "restore", &lines]);
    for (words, is_in) in [
        (&["a", "10.0.0.1"][..], true),
        (&["a", "10.1.0.1"], false),
        (&["a", "10.1.0.1", "nomatch"], true),
        (&["a", "10.0.0.0/8"], true),
        (&["a", "10.0.0.0/9"], false),
        (&["six", "2001:db8::1"], true),
        (&["six", "2001:db9::1"], false),
        (&["unused", "10.0.0.1"], true),
        (&["unused", "10.0.0.2"], false),
        (&["l", "a"], true),
        (&["l", "p"], false),
    ] {
        let output = router.rules(&[&["set", "test"], words].concat());
        let status = i32::from(!is_in);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
    }
    let none = router.fails(&["set", "test", "what", "10.0.0.1"]);
    assert!(none.contains("set \"what\" does not exist"), "{none}");
}

#[test]
fn elements_end_without_a_process() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "end");
    router.done(&[
        "set",
        "add",
        "a",
        "127.0.0.1",
        "timeout",
        "2",
        "comment",
        "b c",
    ]);
    let begin = Instant::now();
    assert!(!arrives(&router.netns, 7001));
    let listed = router.done(&["set", "list", "a"]);
    let line = listed.lines().last().unwrap();
    assert!(
        line == "add a 127.0.0.1 timeout 1 comment \"b c\"",
        "{listed}"
    );
    while router
        .rules(&["set", "test", "a", "127.0.0.1"])
        .status
        .success()
    {
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
    }
    assert!(arrives(&router.netns, 7001));
    assert!(begin.elapsed() >= Duration::from_millis(1900));
    let output = router.rules(&["set", "test", "a", "127.0.0.1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(router.done(&["set", "list", "a"]).lines().count(), 1);
    let missing = router.fails(&["set", "del", "a", "127.0.0.1"]);
    assert!(missing.contains("is not in the set"), "{missing}");
    // It is there no more, so it is added; then it gets another time.
    router.done(&["set", "add", "a", "127.0.0.1", "timeout", "1000"]);
    assert!(!arrives(&router.netns, 7001));
    let exists = router.fails(&["set", "add", "a", "127.0.0.1", "timeout", "5"]);
    assert!(exists.contains("already in the set"), "{exists}");
    router.done(&["set", "add", "--exist", "a", "127.0.0.1"]);
    assert_eq!(
        router.done(&["set", "list", "a"]).lines().last(),
        Some("add a 127.0.0.1 timeout 0")
    );
    // A whole load keeps the time.
    router.done(&["set", "add", "a", "192.0.2.1", "timeout", "1000"]);
    let line = router.file("line", "create new hash:ip\n");
    router.done(&["set", "restore", &line]);
    assert_eq!(edits(&router), 0);
    let listed = router.done(&["set", "list", "a"]);
    assert!(listed.contains("add a 192.0.2.1 timeout 99"), "{listed}");
    assert!(!arrives(&router.netns, 7001));
}

/// Edits of a load that waits are refused; those before it are there if it is not confirmed.
#[test]
fn sets_of_before_come_back_unconfirmed() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "confirm");
    router.done(&["set", "add", "a", "127.0.0.1"]);
    let (rules, sets) = (router.file("rules.v4", RULES), router.file("sets", SETS));
    router.done(&["load", "--confirm", "1s", &rules, &sets]);
    assert!(arrives(&router.netns, 7001));
    let refused = router.fails(&["set", "add", "a", "127.0.0.1"]);
    assert!(refused.contains("fairpath rules confirm"), "{refused}");
    let begin = Instant::now();
    while !router
        .rules(&["set", "test", "a", "127.0.0.1"])
        .status
        .success()
    {
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    assert!(!arrives(&router.netns, 7001));
    router.done(&["set", "del", "a", "127.0.0.1"]);
    assert!(arrives(&router.netns, 7001));
}

#[test]
fn commands_of_sets_are_refused_as_by_ipset() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "refused");
    let before = router.done(&["set", "list"]);
    for (line, message) in [
        ("destroy a\n", "set a is in use by a rule of filter INPUT"),
        ("add what 10.0.0.1\n", "set \"what\" does not exist"),
        ("add a ::1\n", "family inet"),
        ("add a 10.0.0.1 end 5\n", "option \"end\" is unknown"),
        ("add p 10.0.0.1\n", "has no port"),
        ("add a 10.0.0.1 timeout 2147484\n", "out of range"),
        ("rename a b\n", "set a is in use by a rule of filter INPUT"),
        (
            "add unused 10.0.0.1\nadd unused 10.0.0.1\n",
            "lines:2: element 10.0.0.1 is already",
        ),
        ("what\n", "command \"what\" is not supported"),
        ("test a 10.0.0.1\n", "command \"test\" is not supported"),
        (
            &format!("add a 10.0.0.1{}timeout 3\n", " ".repeat(65_536)),
            "the line has 65536 bytes or more",
        ),
        ("add l l\n", "is a list"),
    ] {
        let file = router.file("lines", line);
        let refused = router.fails(&["set", "restore", &file]);
        assert!(refused.contains(message), "{line}: {refused}");
        assert!(refused.contains("nothing was changed"), "{line}: {refused}");
        assert_eq!(router.done(&["set", "list"]), before, "{line}");
    }
    for words in [
        &["set", "add", "a", "10.0.0.1\nadd a 10.0.0.2"][..],
        &["set", "add", "a\u{1b}", "10.0.0.1"],
        &["set", "add", "a", "10.0.0.1", "comment", "x\ny"],
        &["set", "add", "a", "timeout", "3"],
    ] {
        let refused = router.fails(words);
        assert!(!refused.contains('\u{1b}'), "{refused:?}");
        assert_eq!(router.done(&["set", "list"]), before, "{words:?}");
    }
}

/// After a kill at any time the set has all elements of the command or none, and the next one works.
#[test]
fn killed_commands_leave_whole_sets() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "killed");
    let lines = |verb: &str| -> String {
        let lines = (0..800).map(|at| format!("{verb} a 10.0.{}.{}\n", at / 200, at % 200));
        lines.collect::<String>() + &format!("{verb} a 127.0.0.1\n")
    };
    let files = ["add", "del"].map(|verb| router.file(verb, &lines(verb)));
    let begin = Instant::now();
    router.done(&["set", "restore", &files[0]]);
    router.done(&["set", "restore", &files[1]]);
    let whole = begin.elapsed() / 2;
    let (mut kills, mut is_there) = (0, false);
    for seed in test_seeds(60) {
        let words = ["set", "restore", &files[usize::from(is_there)]];
        kills += u64::from(router.kill_in(&words, whole, seed));
        let listed = router.done(&["set", "list", "a"]).lines().count() - 1;
        assert!(listed == 0 || listed == 801, "{listed}");
        is_there = listed == 801;
        assert_eq!(arrives(&router.netns, 7001), !is_there);
    }
    assert!(kills > 0);
    router.done(&["set", "add", "--exist", "a", "192.0.2.1"]);
    router.done(&["set", "add", "a", "192.0.2.2"]);
    assert!(edits(&router) > 0);
}

#[test]
fn commands_at_once_all_take_effect() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "once");
    let mut children: Vec<_> = (0..12)
        .map(|number| {
            let element = format!("10.0.0.{number}");
            let mut command = router.command(&["set", "add", "a", &element]);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(router.done(&["set", "list", "a"]).lines().count(), 13);
}

/// Lines of edits, and tables that grow, have limited space: then an edit is a whole load.
#[test]
fn edits_continue_when_their_space_ends() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "space");
    let comment = "x".repeat(250);
    let mut minimum = u64::MAX;
    for run in 0..5u32 {
        let lines = (0..16_000u32).map(|number| {
            let address = std::net::Ipv4Addr::from(0x0b00_0000 + run % 3 * 16_000 + number);
            format!("add a {address} comment \"{comment}\" -exist\n")
        });
        let file = router.file("lines", &lines.collect::<String>());
        router.done(&["set", "restore", &file]);
        minimum = minimum.min(edits(&router));
    }
    assert_eq!(minimum, 0, "no whole load");
    assert_eq!(router.done(&["set", "list", "a"]).lines().count(), 48_001);
    router.done(&["set", "add", "a", "127.0.0.1"]);
    assert!(!arrives(&router.netns, 7001));
    assert!(edits(&router) > 0);
}

/// Random lines, each once for the loaded sets and once for sets of a file: the same sets. With edits of
/// chains between them.
#[test]
fn edited_sets_survive_other_edits() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = loaded(&testbed, "survive");
    let mut sets = Sets::read("sets", SETS.as_bytes()).unwrap();
    for seed in test_seeds(40) {
        let mut random = Random::new(seed);
        let element = format!("10.0.{}.0/{}", random.below(4), 24 + random.below(3));
        let line = match random.below(7) {
            0 => format!("del a {element} -exist"),
            1 => format!("add six 2001:db8:{:x}::/48 -exist", random.below(9)),
            2 => format!("add p 10.0.0.{},80 -exist", 1 + random.below(3)),
            3 if random.below(5) == 0 => "flush a".to_owned(),
            4 => "add l a -exist".to_owned(),
            _ => format!("add a {element} comment \"{}\" -exist", random.below(9)),
        };
        sets.apply_line(&line).unwrap();
        let file = router.file("line", &format!("{line}\n"));
        router.done(&["set", "restore", &file]);
        if random.below(3) == 0 {
            let rule = format!("-A INPUT -s 10.9.0.{} -j DROP", random.below(200));
            let edit = router.file("edit", &format!("*filter\n{rule}\nCOMMIT\n"));
            router.done(&["apply", "--loaded", "--edits", &edit]);
        }
        assert_eq!(router.done(&["set", "list"]), sets.to_string(), "{line}");
    }
}
