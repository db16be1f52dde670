//! Sets against ipset in a network namespace: accepted lines, saved lines, and membership.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Output, Stdio};

use fairpath_rules::{Contains, SetKey, Sets};
use fairpath_testbed::{Need, Netns, Testbed, requires};
use fairpath_units::{skip_test, test_seed};

mod cases;

/// A namespace with ipset; `None` if the kernel lacks the set types.
fn namespace(test: &str) -> Option<Netns> {
    let ns = Testbed::new().netns("sets").unwrap();
    let types = "create a hash:net,port\ncreate b hash:ip,port\ncreate l list:set\nadd l a\n";
    if ipset(&ns, &["restore"], types).status.success() {
        clear(&ns);
        return Some(ns);
    }
    skip_test(
        test,
        "a kernel with ip_set",
        "needs ip_set_hash_* and ip_set_list_set",
    );
    None
}

fn ipset(ns: &Netns, arguments: &[&str], input: &str) -> Output {
    let mut command = ns.command_without_sysfs("ipset");
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Both outputs are read at the same time, since the tool answers while it reads.
    std::thread::scope(|scope| {
        // A refused line ends the tool, and the rest of the input is not read.
        scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        child.wait_with_output().unwrap()
    })
}

fn clear(ns: &Netns) {
    // A set in a list cannot be destroyed.
    for command in ["flush", "destroy"] {
        assert!(ipset(ns, &[command], "").status.success());
    }
}

/// The sets that the tool saves after `text`, or its message.
fn restored(ns: &Netns, text: &str) -> Result<String, String> {
    clear(ns);
    let output = ipset(ns, &["restore"], text);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let saved = ipset(ns, &["save"], "");
    Ok(String::from_utf8(saved.stdout).unwrap())
}

/// The lines in an order that does not depend on the kernel's hash. Members of lists keep theirs.
fn lines(saved: &str, keep_initval: bool) -> Vec<String> {
    let mut lines: Vec<String> = saved
        .lines()
        .map(|line| normal(line, keep_initval))
        .collect();
    // The sort is stable, and the lists with members are l.
    let is_member = |line: &str| line.starts_with(" add l ");
    lines.sort_by(|a, b| match is_member(a) && is_member(b) {
        true => std::cmp::Ordering::Equal,
        false => a.cmp(b),
    });
    lines
}

/// A line without the random number of the kernel, and with a timeout that has not decreased.
fn normal(line: &str, keep_initval: bool) -> String {
    let mut words = line.split(' ');
    let mut text = String::new();
    while let Some(word) = words.next() {
        match word {
            "initval" if !keep_initval => drop(words.next()),
            "timeout" if line.starts_with("add ") => {
                let seconds: u32 = words.next().unwrap().parse().unwrap();
                let rounded = seconds.next_multiple_of(100);
                text.push_str(&format!(" timeout {rounded}"));
            }
            word => {
                text.push(' ');
                text.push_str(word);
            }
        }
    }
    text
}

#[test]
fn lines_are_those_that_ipset_saves() {
    requires!(Need::Root, Need::Tool("ipset"));
    let Some(ns) = namespace("rules::sets::lines_are_those_that_ipset_saves") else {
        return;
    };
    for text in cases::ACCEPTED {
        let keep = text.contains("initval");
        let tool = restored(&ns, text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        let sets = Sets::read("case", text.as_bytes());
        let written = sets
            .unwrap_or_else(|error| panic!("{error}\n{text}"))
            .to_string();
        assert_eq!(lines(&written, keep), lines(&tool, keep), "{text}");
        let again = restored(&ns, &written).unwrap_or_else(|error| panic!("{written}\n{error}"));
        assert_eq!(lines(&again, keep), lines(&tool, keep), "{written}");
        let read = Sets::read("tool", tool.as_bytes()).unwrap();
        assert_eq!(
            lines(&read.to_string(), true),
            lines(&tool, true),
            "of {tool}"
        );
    }
}

#[test]
fn lines_that_ipset_refuses_are_refused() {
    requires!(Need::Root, Need::Tool("ipset"));
    let Some(ns) = namespace("rules::sets::lines_that_ipset_refuses_are_refused") else {
        return;
    };
    for text in cases::REFUSED {
        let tool = restored(&ns, text);
        assert!(tool.is_err(), "ipset accepts {text}: {tool:?}");
        let error = Sets::read("case", text.as_bytes()).expect_err(text);
        let last = text.lines().count();
        let place = format!("case:{last}:");
        assert!(error.to_string().starts_with(&place), "{text}: {error}");
    }
}

#[test]
fn sorted_save_of_addresses_is_identical() {
    requires!(Need::Root, Need::Tool("ipset"));
    let Some(ns) = namespace("rules::sets::sorted_save_of_addresses_is_identical") else {
        return;
    };
    let mut random = Random::new();
    let mut text = String::from("create a hash:ip initval 0x1\n");
    for _ in 0..500 {
        let address = Ipv4Addr::from(random.next() as u32 | 1 << 24);
        text.push_str(&format!("add a {address}\n"));
    }
    clear(&ns);
    // Consecutive lines of a set share the first line's -exist.
    assert!(ipset(&ns, &["restore", "-exist"], &text).status.success());
    let saved = ipset(&ns, &["save", "-sorted"], "").stdout;
    let saved = String::from_utf8(saved).unwrap();
    let mut sets = Sets::default();
    for line in text.lines() {
        sets.apply_line(&format!("{line} -exist")).unwrap();
    }
    assert_eq!(sets.to_string(), saved);
}

/// Create lines of the random sets, and the shortest prefix length that they have elements of.
const RANDOM_SETS: [(&str, u8); 9] = [
    ("hash:ip", 32),
    ("hash:ip netmask 28", 32),
    ("hash:ip family inet6 netmask 124", 128),
    ("hash:net", 20),
    ("hash:net family inet6", 116),
    ("hash:ip,port", 32),
    ("hash:ip,port family inet6", 128),
    ("hash:net,port", 20),
    ("hash:net,port family inet6", 116),
];
const ELEMENTS: usize = 300;
const LOOKUPS: usize = 400;

#[test]
fn membership_is_that_of_ipset() {
    requires!(Need::Root, Need::Tool("ipset"));
    let Some(ns) = namespace("rules::sets::membership_is_that_of_ipset") else {
        return;
    };
    let mut random = Random::new();
    for (set, shortest) in RANDOM_SETS {
        clear(&ns);
        let text = random_set(&mut random, set, shortest);
        let output = ipset(&ns, &["restore", "-exist"], &text);
        assert!(output.status.success(), "{output:?}");
        let saved = ipset(&ns, &["save"], "").stdout;
        let sets = Sets::read("saved", saved.as_slice()).unwrap();
        let keys: Vec<SetKey> = (0..LOOKUPS).map(|_| random.key(set)).collect();
        let questions: String = keys.iter().map(question).collect();
        let output = ipset(&ns, &["-"], &questions);
        let answers = String::from_utf8(output.stderr).unwrap();
        let answers: Vec<&str> = answers
            .lines()
            .filter(|l| l.contains(" in set a."))
            .collect();
        assert_eq!(answers.len(), LOOKUPS, "{set}");
        let mut found = 0;
        for (key, answer) in keys.iter().zip(answers) {
            let expected = match answer.contains(" is NOT in set ") {
                true => Contains::No,
                false => Contains::Yes,
            };
            found += usize::from(expected == Contains::Yes);
            assert_eq!(sets.contains("a", key), Some(expected), "{set}: {answer}");
        }
        // Both answers occur, so the comparison covers both. One seed gave 14 of one.
        assert!((5..=LOOKUPS - 5).contains(&found), "{set}: {found}");
    }
}

fn random_set(random: &mut Random, set: &str, shortest: u8) -> String {
    let width: u8 = if set.contains("inet6") { 128 } else { 32 };
    let mut text = format!("create a {set}\n");
    for _ in 0..ELEMENTS {
        let key = random.key(set);
        let length = shortest + (random.next() % u64::from(width - shortest + 1)) as u8;
        // One network in four is long enough to leave space between the elements.
        let length = length.max(if random.next().is_multiple_of(4) {
            0
        } else {
            width - 6
        });
        let nomatch = shortest < width && random.next().is_multiple_of(3);
        let port = key.port.map_or(String::new(), port_text);
        let nomatch = if nomatch { " nomatch" } else { "" };
        text.push_str(&format!("add a {}/{length}{port}{nomatch}\n", key.addr));
    }
    text
}

fn question(key: &SetKey) -> String {
    let port = key.port.map_or(String::new(), port_text);
    format!("test a {}{port}\n", key.addr)
}

fn port_text((proto, port): (u8, u16)) -> String {
    match proto {
        1 | 58 => format!(",{proto}:{}/{}", port >> 8, port & 0xff),
        _ => format!(",{proto}:{port}"),
    }
}

/// A generator of test numbers (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new() -> Random {
        Random(test_seed() ^ 1 << 63 | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A key for a set of the type `set`: few addresses and ports, so that many are found.
    fn key(&mut self, set: &str) -> SetKey {
        let host = self.next() % if set.contains("net") { 1 << 12 } else { 600 };
        let inet6 = set.contains("inet6");
        let addr: IpAddr = match inet6 {
            true => Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(host)).into(),
            false => Ipv4Addr::from(0x0a00_0000 | host as u32).into(),
        };
        let icmp = if inet6 { 58 } else { 1 };
        let ports = [(6, 80), (17, 53), (icmp, 0x0800), (47, 0)];
        let port = ports[(self.next() % 4) as usize];
        SetKey {
            addr,
            port: set.contains(",port").then_some(port),
        }
    }
}
