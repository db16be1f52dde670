//! Rules in the shadow next to iptables-legacy, iptables-nft and nftables: verdicts that are compared, and
//! packets that no rule of the shadow touches.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_bpf::{Comparison, HookRules, ShadowOutcomes};
use fairpath_nfqueue::{Config, Verdict, Wait};
use fairpath_rules::image::{Lookups, build};
use fairpath_statistics::Random;
use fairpath_testbed::{Need, Netns, Testbed, requires, wait_for};
use fairpath_units::test_seeds;
use serde_json::Value;

use super::answers::AnswerLine;
use super::live::{Router, bound, filter};
use super::oracle::legacy::{Legacy, Tool};
use super::oracle::rulesets::generate;
use super::oracle::{frames_of, hooks, parse};

const DEADLINE: Duration = Duration::from_secs(20);
/// Matches whose state two evaluations do not share.
const STATES: [&str; 5] = ["limit", "statistic", "quota", "recent", "hashlimit"];

/// The counts of a hook; others have no disagreement.
fn sums(comparison: &Comparison, hook: usize) -> ShadowOutcomes {
    let mut sums = ShadowOutcomes::default();
    for (at, families) in comparison.outcomes.iter().enumerate() {
        for one in families {
            assert!(at == hook || (one.ours, one.theirs) == (0, 0));
            if at == hook {
                sums.add(one);
            }
        }
    }
    sums
}

/// The same set on both sides, then on one side only: the differing packets are those that it drops.
fn generated(tool: Tool, count: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let legacy = Legacy::new(tool);
    let mut ours = HookRules::load().unwrap();
    let (mut packets, mut drops) = (0, 0);
    for seed in test_seeds(count) {
        let generated = generate(tool, seed);
        let ruleset = parse(tool, &generated.text);
        let text = &generated.text;
        let has_state = STATES
            .iter()
            .any(|name| text.contains(&format!("-m {name} ")));
        if generated.tracked || has_state || !hooks::is_exact(&ruleset) {
            continue;
        }
        let table = text.lines().find(|line| line.starts_with('*')).unwrap();
        let (chain, hook) = match table {
            "*filter" => ("INPUT", "INPUT"),
            _ => ("PREROUTING", "PREROUTING"),
        };
        let empty = format!("{table}\n:{chain} ACCEPT [0:0]\nCOMMIT\n");
        let frames = frames_of(tool, &generated, seed, 128);
        let mut compare = |theirs: &str, text: &str| {
            legacy.load(theirs).unwrap();
            let ruleset = parse(tool, text);
            let built = build(&ruleset, None, Lookups::default()).unwrap();
            hooks::set(&ruleset, &built, &mut ours, Some([0; 2]));
            legacy.enter(|| ours.attach_used().unwrap());
            let before = legacy.passed(hook);
            legacy.inject(&frames);
            let passed = legacy.passed(hook) - before;
            let ours = &mut ours;
            let comparison = legacy.enter(move || ours.comparison().unwrap());
            let sums = sums(&comparison, usize::from(hook == "INPUT"));
            assert_eq!(
                (sums.early, sums.full, sums.unknown, comparison.waiting),
                (0, 0, 0, 0)
            );
            let listed: u64 = comparison.disagreements.iter().map(|row| row.packets).sum();
            assert_eq!(listed, sums.ours + sums.theirs);
            assert_eq!(sums.accepted + sums.ours, passed, "seed {seed}\n{text}");
            sums
        };
        let equal = compare(text, text);
        assert_eq!((equal.ours, equal.theirs), (0, 0), "seed {seed}\n{text}");
        let only_ours = compare(&empty, text);
        let only_theirs = compare(text, &empty);
        let expected = ShadowOutcomes {
            accepted: equal.accepted,
            ours: equal.dropped,
            ..ShadowOutcomes::default()
        };
        assert_eq!(only_ours, expected, "seed {seed}\n{text}");
        let expected = ShadowOutcomes {
            accepted: equal.accepted,
            theirs: equal.dropped,
            ..ShadowOutcomes::default()
        };
        assert_eq!(only_theirs, expected, "seed {seed}\n{text}");
        packets += equal.compared();
        drops += equal.dropped;
    }
    println!("{tool:?}: {packets} packets, {drops} of them dropped");
    assert!(drops > 100 && packets > drops + 100, "{drops} of {packets}");
}

#[test]
fn ipv4_disagreements_are_the_drops_of_one_side() {
    generated(Tool::V4, 1500);
}

#[test]
fn ipv6_disagreements_are_the_drops_of_one_side() {
    generated(Tool::V6, 1500);
}

/// The report, and the exit status.
fn report(router: &Router) -> (Option<i32>, Value) {
    let output = router.rules(&["shadow", "--format", "json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let object = serde_json::from_str(&text);
    let object = object.unwrap_or_else(|_| panic!("{text} {:?}", String::from_utf8(output.stderr)));
    (output.status.code(), object)
}

/// A count of a hook and a family; of all of them if these are empty.
fn count(report: &Value, hook: &str, family: &str, name: &str) -> u64 {
    let hooks = report["hooks"].as_array().unwrap();
    let at = hooks.iter().filter(|one| {
        (hook.is_empty() || one["hook"] == hook) && (family.is_empty() || one["family"] == family)
    });
    at.map(|one| one[name].as_u64().unwrap()).sum()
}

/// Nothing differs, and each packet was compared.
#[track_caller]
fn assert_equal(router: &Router) -> Value {
    let (status, report) = report(router);
    assert_eq!(status, Some(0), "{report:#}");
    assert_eq!(report["disagreements"], Value::Array(Vec::new()));
    for name in [
        "only_fairpath_drops",
        "only_running_rules_drop",
        "running_rules_drop_early",
        "not_compared_no_record_free",
        "not_compared_without_record",
    ] {
        assert_eq!(count(&report, "", "", name), 0, "{name}: {report:#}");
    }
    assert_eq!(report["packets_in_queues"], 0);
    report
}

/// Loads rules of iptables in a namespace.
#[track_caller]
fn iptables(router: &Router, program: &str, text: &str) {
    let file = router.file("theirs", text);
    router.netns.run(&[program, &file]).unwrap();
}

fn send(socket: &UdpSocket, to: impl Into<SocketAddr>) {
    // A rule may refuse it, or an ICMP error come first.
    let to = to.into();
    let _ = socket
        .send_to(b"x", to)
        .or_else(|_| socket.send_to(b"x", to));
}

/// Datagrams to random ports, to the router and through it, in both families.
fn random_datagrams(line: &AnswerLine, seed: u64, number: u64) {
    let mut random = Random::new(seed);
    let mut ports = || {
        (0..number)
            .map(|_| random.below(64) as u16 + 1000)
            .collect()
    };
    let (from_client, from_router): (Vec<u16>, Vec<u16>) = (ports(), ports());
    let [near, far] = [1, 2].map(|net| {
        let v4 = Ipv4Addr::new(10, net, 0, net);
        let v6 = Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, net.into());
        (v4, v6)
    });
    let sockets = || ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).unwrap());
    let each = |ports: &[u16], to: &[(Ipv4Addr, Ipv6Addr)]| {
        let [v4, v6] = sockets();
        for port in ports {
            for to in to {
                send(&v4, (to.0, *port));
                send(&v6, (to.1, *port));
            }
        }
    };
    line.client
        .enter(|| each(&from_client, &[near, far]))
        .unwrap();
    line.router.enter(|| each(&from_router, &[far])).unwrap();
}

fn both_families(family: &str) -> String {
    let state = "-m conntrack --ctstate";
    format!(
        "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         -A PREROUTING -p udp -m udp --dport 1001 -j DROP\nCOMMIT\n\
         *mangle\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
         -A FORWARD -p udp -m udp --dport 1002 -j DROP\n-A POSTROUTING -p udp -m udp --dport 1003 -j DROP\nCOMMIT\n\
         *filter\n:INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:checked -\n\
         -A INPUT {state} RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p {family} -j ACCEPT\n\
         -A INPUT -p udp -m udp --dport 1000:1030 -j checked\n\
         -A FORWARD {state} RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -p {family} -j ACCEPT\n\
         -A FORWARD -i lan -o wan -p udp -m udp --dport 1020:1050 -j checked\n\
         -A OUTPUT -p udp -m udp --dport 1040:1044 -j REJECT\n-A OUTPUT -p udp -m udp --dport 1045 -j DROP\n\
         -A checked -p udp -m multiport --dports 1021,1022,1023 -j RETURN\n-A checked -j ACCEPT\nCOMMIT\n"
    )
}

fn equal_sets_agree(programs: [&str; 2]) {
    requires!(
        Need::Root,
        Need::Tool(programs[0].to_owned().leak()),
        Need::Tool(programs[1].to_owned().leak()),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let line = AnswerLine::new(&testbed);
    let router = Router::new(line.router.clone());
    let texts = ["icmp", "ipv6-icmp"].map(both_families);
    let [v4, v6] = [0, 1].map(|at| router.file(["v4", "v6"][at], &texts[at]));
    // The tables of iptables come after the shadow.
    let loaded = router.done(&["load", "--shadow", &v4, &v6]);
    assert!(
        loaded.contains("in the shadow: they decide nothing"),
        "{loaded}"
    );
    for (program, text) in programs.into_iter().zip(&texts) {
        iptables(&router, program, text);
    }
    let [seed] = test_seeds(1).collect::<Vec<_>>()[..] else {
        panic!("one seed");
    };
    // Packets of before: neighbours are known then.
    random_datagrams(&line, seed, 10);
    router.done(&["load", "--shadow", &v4, &v6]);
    random_datagrams(&line, seed ^ 1, 2000);
    let report = assert_equal(&router);
    println!("{report:#}");
    for family in ["IPv4", "IPv6"] {
        for (hook, minimum) in [
            ("PREROUTING", 20),
            ("INPUT", 200),
            ("FORWARD", 200),
            ("OUTPUT", 100),
            ("POSTROUTING", 20),
        ] {
            let both = count(&report, hook, family, "both_drop");
            assert!(both > minimum, "{hook} {family}: {both} drops");
            let both = count(&report, hook, family, "both_accept");
            assert!(both > minimum, "{hook} {family}: {both} accepted");
        }
    }
}

#[test]
fn equal_sets_of_legacy_agree() {
    equal_sets_agree(["iptables-legacy-restore", "ip6tables-legacy-restore"]);
}

#[test]
fn equal_sets_of_nft_agree() {
    equal_sets_agree(["iptables-nft-restore", "ip6tables-nft-restore"]);
}

/// Datagrams on `lo` to ports, this number to each. Returns the ports to which all came.
fn loopback(netns: &Netns, ports: &[u16], number: usize) -> Vec<u16> {
    let attempt = |port: u16| {
        let receiver = bound(port);
        receiver
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..number {
            send(&sender, (Ipv4Addr::LOCALHOST, port));
        }
        (0..number).all(|_| receiver.recv(&mut [0; 8]).is_ok())
    };
    let all = || {
        ports
            .iter()
            .copied()
            .filter(|port| attempt(*port))
            .collect()
    };
    netns.enter(all).unwrap()
}

/// Both directions, against iptables-legacy and a chain of nftables at its own priority.
#[test]
fn changed_rules_are_found_with_examples() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("changed").unwrap());
    let drop = |port: u16| format!("INPUT -p udp -m udp --dport {port} -j DROP");
    let reject = "INPUT -p udp -m udp --dport 7005 -j REJECT";
    let accept = "INPUT -p udp -m udp --dport 7003 -j ACCEPT";
    let ours = filter(&[&drop(7001), &drop(7002), accept, reject]);
    let ours = ours.replace("*filter\n", "# a comment\n\n*filter\n");
    let file = router.file("ours", &ours);
    router.done(&["load", "--shadow", &file]);
    iptables(
        &router,
        "iptables-legacy-restore",
        &filter(&[&drop(7001), &drop(7003)]),
    );
    let nft = "add table ip other\n\
        add chain ip other late { type filter hook input priority 70; }\n\
        add rule ip other late udp dport 7004 drop\n";
    let nft = router.file("nft", nft);
    router.netns.run(&["nft", "-f", &nft]).unwrap();
    let ports = [7001, 7002, 7003, 7004, 7005, 7006];
    assert_eq!(loopback(&router.netns, &ports, 6), [7002, 7005, 7006]);
    let (status, found) = report(&router);
    assert_eq!(status, Some(1));
    let rows = found["disagreements"].as_array().unwrap();
    let find = |rule: &str| {
        let row = rows.iter().find(|row| row["rule"]["rule"] == rule);
        row.unwrap_or_else(|| panic!("{rule}: {found:#}")).clone()
    };
    assert_eq!(rows.len(), 4, "{found:#}");
    for (rule, line, kind, verdict, port) in [
        (
            &format!("-A {}", drop(7002))[..],
            Some(5),
            "only_fairpath_drops",
            "DROP",
            7002,
        ),
        (
            "-A INPUT -p udp -m udp --dport 7005 -j REJECT --reject-with icmp-port-unreachable",
            Some(7),
            "only_fairpath_drops",
            "REJECT",
            7005,
        ),
        (
            &format!("-A {accept}"),
            Some(6),
            "only_running_rules_drop",
            "ACCEPT",
            7003,
        ),
        (
            "-P INPUT ACCEPT",
            None,
            "only_running_rules_drop",
            "ACCEPT",
            7004,
        ),
    ] {
        let row = find(rule);
        assert_eq!(row["kind"], kind);
        assert_eq!(row["packets"], 6);
        assert_eq!(
            (&row["hook"], &row["family"]),
            (&"INPUT".into(), &"IPv4".into())
        );
        assert_eq!(row["rule"]["line"], line.map_or(Value::Null, Value::from));
        assert_eq!(row["rule"]["file"], file);
        assert_eq!(row["rule"]["table"], "filter");
        let examples = row["examples"].as_array().unwrap();
        assert_eq!(examples.len(), 4, "{row:#}");
        for example in examples {
            assert_eq!(example["verdict"], verdict);
            let text = example["line"].as_str().unwrap();
            let wanted = format!(" DPT={port} LEN=9");
            assert!(
                text.starts_with("IN=lo OUT= ") && text.ends_with(&wanted),
                "{text}"
            );
        }
    }
    assert_eq!(count(&found, "INPUT", "IPv4", "both_drop"), 6);
    assert_eq!(count(&found, "INPUT", "IPv4", "both_accept"), 6);
    let output = router.rules(&["shadow"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = format!(
        "{file}:5: filter: -A {}\n  Fairpath drops, the running rules accept: 6 packets at INPUT, IPv4\n",
        drop(7002)
    );
    assert!(text.contains(&line), "{text}");
    assert!(
        text.contains("ours REJECT, theirs ACCEPT: IN=lo OUT= "),
        "{text}"
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("24 of 72 packets met another verdict"),
        "{error}"
    );
    // Another load compares from its beginning.
    router.done(&["load", "--shadow", &file]);
    assert!(
        router
            .done(&["shadow"])
            .contains("no packet was compared yet")
    );
    loopback(&router.netns, &[7006], 1);
    assert_equal(&router);
}

/// A packet that table raw of iptables drops does not reach later tables.
#[test]
fn earlier_drops_are_no_disagreements() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("early").unwrap());
    let table = |name: &str, rule: &str| format!("*{name}\n-A {rule}\nCOMMIT\n");
    let drop = |port: u16| format!("PREROUTING -p udp -m udp --dport {port} -j DROP");
    let both = |raw: &str, mangle: &str| table("raw", raw) + &table("mangle", mangle);
    let theirs = both(&drop(7001), &drop(7002));
    iptables(&router, "iptables-legacy-restore", &theirs);
    let load = |text: &str| {
        let file = router.file("ours", text);
        router.done(&["load", "--shadow", &file]);
        assert_eq!(loopback(&router.netns, &[7001, 7002, 7003], 5), [7003]);
    };
    load(&theirs);
    let report_equal = assert_equal(&router);
    assert_eq!(count(&report_equal, "PREROUTING", "IPv4", "both_drop"), 10);
    // Table mangle of ours may drop what raw of iptables drops: that is not known.
    load(&both("PREROUTING -p tcp", &drop(7002)));
    let (status, early) = report(&router);
    assert_eq!(status, Some(0), "{early:#}");
    assert_eq!(
        count(&early, "PREROUTING", "IPv4", "running_rules_drop_early"),
        5
    );
    assert_eq!(
        early["disagreements"][0]["kind"],
        "running_rules_drop_early"
    );
    assert_eq!(
        early["disagreements"][0]["rule"]["rule"],
        "-P PREROUTING ACCEPT"
    );
    // An empty table mangle drops nothing, so the verdict of raw is that of the hook.
    let empty = "*mangle\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n";
    load(&(table("raw", "PREROUTING -p tcp") + empty));
    let (status, found) = report(&router);
    assert_eq!(status, Some(1), "{found:#}");
    assert_eq!(
        count(&found, "PREROUTING", "IPv4", "only_running_rules_drop"),
        10
    );
    // What our first table drops, later ones do not see.
    load(&both(&drop(7002), &drop(7002)));
    let counters = router.done(&["counters"]);
    let lines: Vec<_> = counters
        .lines()
        .filter(|line| line.contains("7002"))
        .collect();
    assert!(
        lines[0].starts_with("[5:") && lines[1].starts_with("[0:"),
        "{counters}"
    );
}

/// A queue of user space gives packets back later, from another thread.
#[test]
fn queued_packets_are_compared_after_their_verdict() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("queued").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001:7002 -j NFQUEUE --queue-num 5";
    iptables(&router, "iptables-legacy-restore", &filter(&[rule]));
    let ours = filter(&["INPUT -p udp -m udp --dport 7002 -j DROP"]);
    let file = router.file("ours", &ours);
    router.done(&["load", "--shadow", &file]);
    let mut queue = router
        .netns
        .enter(|| Config::new(5).bind().unwrap())
        .unwrap();
    // Packets wait, and others pass.
    assert_eq!(
        loopback(&router.netns, &[7001, 7001, 7002, 7003], 5),
        [7003]
    );
    let (status, waiting) = report(&router);
    assert_eq!(status, Some(0), "{waiting:#}");
    assert_eq!(waiting["packets_in_queues"], 15, "{waiting:#}");
    assert_eq!(count(&waiting, "INPUT", "IPv4", "both_accept"), 5);
    let mut answered = 0;
    let all = wait_for(DEADLINE, || {
        let mut held = Vec::new();
        for (_, packet) in queue.receive(Wait::Not).unwrap().packets {
            held.push(packet);
        }
        for packet in held {
            // In their order: five to be accepted, five dropped, and five that ours drops.
            let verdict = match answered {
                5..10 => Verdict::DROP,
                _ => Verdict::ACCEPT,
            };
            queue.release().give(packet, verdict).unwrap();
            answered += 1;
        }
        (answered == 15).then_some(())
    });
    assert!(all.is_some(), "{answered} packets");
    queue.release().flush().unwrap();
    let (status, found) = report(&router);
    assert_eq!(status, Some(1), "{found:#}");
    assert_eq!(found["packets_in_queues"], 0);
    for (name, packets) in [
        ("both_accept", 10),
        ("only_running_rules_drop", 5),
        ("only_fairpath_drops", 5),
        ("not_compared_without_record", 0),
    ] {
        let found_packets = count(&found, "INPUT", "IPv4", name);
        // Dropped datagrams of the client answer none, and closed ports answer with ICMP errors.
        let icmp = if name == "both_accept" {
            found_packets - packets
        } else {
            0
        };
        assert_eq!(found_packets - icmp, packets, "{name}: {found:#}");
    }
}

/// REJECT of iptables answers inside of a packet's hook, and TCP answers in softirqs of senders.
#[test]
fn nested_packets_have_their_own_records() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("nested").unwrap());
    let text = filter(&[
        "INPUT -p tcp -m tcp --dport 7002 -j REJECT --reject-with tcp-reset",
        "INPUT -p udp -m udp --dport 7003 -j REJECT",
        "OUTPUT -p udp -m udp --dport 7004 -j REJECT",
        "OUTPUT -p udp -m udp --dport 7005 -j DROP",
    ]);
    iptables(&router, "iptables-legacy-restore", &text);
    let file = router.file("ours", &text);
    router.done(&["load", "--shadow", &file]);
    fn traffic(seed: u64) {
        let mut random = Random::new(seed);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..3000 {
            match random.below(6) {
                0 => drop(TcpStream::connect(("127.0.0.1", 7001))),
                1 => drop(TcpStream::connect(("127.0.0.1", 7002))),
                port => send(&socket, (Ipv4Addr::LOCALHOST, 7001 + port as u16)),
            }
        }
    }
    let listener = router
        .netns
        .enter(|| TcpListener::bind("127.0.0.1:7001").unwrap())
        .unwrap();
    std::thread::scope(|scope| {
        let accept = scope.spawn(|| {
            listener
                .incoming()
                .take_while(|one| {
                    one.as_ref()
                        .is_ok_and(|one| one.peer_addr().is_ok_and(|from| from.port() != 7999))
                })
                .count()
        });
        let netns = &router.netns;
        let threads =
            test_seeds(3).map(|seed| scope.spawn(move || netns.enter(|| traffic(seed)).unwrap()));
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let last = || {
            use nix::sys::socket::*;
            let socket = socket(
                AddressFamily::Inet,
                SockType::Stream,
                SockFlag::empty(),
                None,
            )
            .unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            bind(fd, &SockaddrIn::new(127, 0, 0, 1, 7999)).unwrap();
            connect(fd, &SockaddrIn::new(127, 0, 0, 1, 7001)).unwrap();
        };
        router.netns.enter(last).unwrap();
        accept.join().unwrap();
    });
    let report = assert_equal(&router);
    let packets = count(&report, "", "IPv4", "compared");
    println!("{packets} packets");
    assert!(packets > 10_000, "{report:#}");
    assert!(count(&report, "OUTPUT", "IPv4", "both_drop") > 1000);
}

/// A load without --shadow decides, and an unconfirmed one goes back to the shadow.
#[test]
fn deciding_rules_replace_those_of_the_shadow() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("replaced").unwrap());
    let rule = "INPUT -p udp -m udp --dport 7001 -j DROP";
    let file = router.file("ours", &filter(&[rule]));
    let arriving = || loopback(&router.netns, &[7001, 7002], 1);
    router.done(&["load", "--shadow", &file]);
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("in the shadow: they decide nothing"),
        "{shown}"
    );
    assert!(shown.contains("after 97: INPUT FORWARD OUTPUT"), "{shown}");
    assert_eq!(arriving(), [7001, 7002]);
    // An edit stays in the shadow.
    let mut edit = router.command(&["apply", "--loaded"]);
    let edit = edit
        .args(["--", "iptables", "-A", "INPUT", "-p", "tcp"])
        .output()
        .unwrap();
    assert!(edit.status.success(), "{edit:?}");
    assert_eq!(arriving(), [7001, 7002]);
    let (status, found) = report(&router);
    assert_eq!(status, Some(1));
    assert_eq!(found["disagreements"][0]["packets"], 1, "{found:#}");
    assert_eq!(
        found["disagreements"][0]["rule"]["rule"],
        format!("-A {rule}")
    );
    router.done(&["load", "--shadow", &file]);
    assert_eq!(arriving(), [7001, 7002]);
    router.done(&["load", &file, "--confirm", "2s"]);
    assert_eq!(arriving(), [7002]);
    let nothing = router.fails(&["shadow"]);
    assert!(
        nothing.contains("decide about packets, so there is nothing to compare"),
        "{nothing}"
    );
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(arriving(), [7001, 7002]);
    let (status, found) = report(&router);
    assert_eq!(status, Some(1));
    assert_eq!(found["disagreements"][0]["packets"], 2, "{found:#}");
    let loaded = router.done(&["load", &file, "--confirm", "5s"]);
    assert!(loaded.contains("counters kept"), "{loaded}");
    router.done(&["confirm"]);
    assert_eq!(arriving(), [7002]);
    assert!(!router.done(&["show"]).contains("after"));
    let before = router.done(&["counters"]);
    let refused = router.fails(&["load", "--shadow", &file]);
    assert!(
        refused.contains("`fairpath rules unload` them first")
            && refused.contains("nothing was changed"),
        "{refused}"
    );
    assert_eq!(router.done(&["counters"]), before);
    assert_eq!(arriving(), [7002]);
    router.done(&["unload"]);
    let none = router.fails(&["shadow"]);
    assert!(none.contains("no rules are loaded"), "{none}");
    let usage = router.rules(&["load", "--shadow", "--confirm", "5s", &file]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    router.done(&["load", "--shadow", &file]);
    router.done(&["unload"]);
    assert_eq!(arriving(), [7001, 7002]);
}

/// Each edit begins a comparison, and the first rules that decide are edited as usual.
#[test]
fn edits_of_the_shadow_are_whole_loads() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("edited").unwrap());
    let drop = |port: u16| format!("banned -p udp -m udp --dport {port} -j DROP");
    let text = filter(&["INPUT -p udp -j banned", &drop(7001)]);
    let text = text.replace("*filter\n", "*filter\n:banned -\n");
    let file = router.file("ours", &text);
    let replace = |port: u16| {
        let chain = router.file("banned", &format!("-A {}\n", drop(port)));
        router.done(&["replace-chain", "banned", &chain]);
        let shown = router.done(&["show", "--format", "json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        (shown["edits"].clone(), shown["loaded"]["shadow"].clone())
    };
    let ports = [7001, 7002, 7003];
    router.done(&["load", "--shadow", &file]);
    // Traced packets have the verdicts of the shadow.
    let mut trace = router.command(&["trace", "--dport", "7001", "-i", "lo", "--count", "2"]);
    let mut traced = trace
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut remarks = BufReader::new(traced.stderr.take().unwrap());
    let mut remark = String::new();
    remarks.read_line(&mut remark).unwrap();
    assert!(remark.contains("their verdicts decide nothing"), "{remark}");
    // The filter is set after the remark.
    let mut sent = 0;
    let ended = wait_for(DEADLINE, || {
        assert_eq!(loopback(&router.netns, &ports, 1), ports);
        sent += 1;
        traced.try_wait().unwrap()
    });
    assert!(ended.is_some_and(|status| status.success()));
    let output = traced.wait_with_output().unwrap();
    let paths = String::from_utf8(output.stdout).unwrap();
    assert_eq!(paths.matches("DROP by ").count(), 2, "{paths}");
    let (status, found) = report(&router);
    assert_eq!(status, Some(1));
    assert_eq!(count(&found, "", "", "only_fairpath_drops"), sent);
    assert_eq!(replace(7002), (0.into(), true.into()));
    assert_eq!(loopback(&router.netns, &ports, 2), ports);
    let (status, found) = report(&router);
    assert_eq!(status, Some(1));
    assert_eq!(count(&found, "", "", "only_fairpath_drops"), 2, "{found:#}");
    assert_eq!(
        found["disagreements"][0]["rule"]["rule"],
        format!("-A {}", drop(7002))
    );
    // An edit of rules that decide is not one of the shadow, also if these were there before.
    router.done(&["load", &file, "--confirm", "20s"]);
    router.done(&["confirm"]);
    assert_eq!(loopback(&router.netns, &ports, 1), [7002, 7003]);
    for (edit, port) in [7002, 7003, 7001].into_iter().enumerate() {
        assert_eq!(replace(port), ((edit + 1).into(), false.into()));
        let mut others = ports.to_vec();
        others.retain(|other| *other != port);
        assert_eq!(loopback(&router.netns, &ports, 1), others);
    }
}

/// iptables changes packets between the tables of the shadow, and its rules change under the comparison.
#[test]
fn packets_that_iptables_changes_are_compared() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("translated").unwrap());
    let decide = filter(&[
        "INPUT -p udp -m udp --dport 7001 -j DROP",
        "INPUT -p udp -m ttl --ttl-eq 9 -j DROP",
        "OUTPUT -p udp -m mark --mark 5 -j DROP",
        "OUTPUT -p udp -m conntrack --ctstate DNAT -m udp --dport 7006 -j DROP",
    ]);
    let change = "*nat\n-A OUTPUT -p udp -m udp --dport 7002 -j REDIRECT --to-ports 7001\n\
        -A OUTPUT -p udp -m udp --dport 7003 -j REDIRECT --to-ports 7006\nCOMMIT\n\
        *mangle\n-A OUTPUT -p udp -m udp --dport 7004 -j MARK --set-mark 5\n\
        -A OUTPUT -p udp -m udp --dport 7005 -j TTL --ttl-set 9\nCOMMIT\n";
    iptables(
        &router,
        "iptables-legacy-restore",
        &(decide.clone() + change),
    );
    let file = router.file("ours", &(decide + change));
    let loaded = router.done(&["load", "--shadow", "--skip-table", "mangle", &file]);
    assert!(
        loaded.contains("4 rules of mangle, nat left to iptables"),
        "{loaded}"
    );
    let ports = [7001, 7002, 7003, 7004, 7005, 7006];
    assert_eq!(loopback(&router.netns, &ports, 5), [7006]);
    let equal = assert_equal(&router);
    assert_eq!(count(&equal, "INPUT", "IPv4", "both_drop"), 15);
    // Each sender tries twice.
    assert_eq!(count(&equal, "OUTPUT", "IPv4", "both_drop"), 20);
    // The file has no table raw, and no rules of IPv6.
    let absent = equal["hooks_not_compared"].as_array().unwrap();
    assert_eq!(absent.len(), 7, "{equal:#}");
    let text = router.done(&["shadow"]);
    assert!(
        text.contains("not compared: PREROUTING, POSTROUTING of IPv4, which have no chains here\n")
            && text.contains("not compared: IPv6, which has no rules here\n"),
        "{text}"
    );
    // Without filter rules, only these rules drop.
    iptables(&router, "iptables-legacy-restore", change);
    router
        .netns
        .run(&["iptables-legacy", "-t", "filter", "-F"])
        .unwrap();
    loopback(&router.netns, &ports, 5);
    let (status, found) = report(&router);
    assert_eq!(status, Some(1));
    assert_eq!(count(&found, "INPUT", "IPv4", "only_fairpath_drops"), 15);
    assert_eq!(count(&found, "OUTPUT", "IPv4", "only_fairpath_drops"), 10);
    assert_eq!(count(&found, "INPUT", "IPv4", "both_drop"), 15);
    // Nat belongs to the running rules.
    let unloaded = router.rules(&["unload"]);
    assert!(
        unloaded.status.success() && unloaded.stderr.is_empty(),
        "{unloaded:?}"
    );
    let nat = router
        .netns
        .run(&["iptables-legacy-save", "-t", "nat"])
        .unwrap();
    assert_eq!(nat.matches("-j REDIRECT").count(), 2, "{nat}");
    let refused = router.fails(&[
        "load",
        "--shadow",
        "--nat=refuse",
        "--skip-table",
        "mangle",
        &file,
    ]);
    assert!(refused.contains("nat stays with iptables"), "{refused}");
}

/// REJECT sends nothing and is no event; rules with their own limits are named.
#[test]
fn rules_in_the_shadow_answer_no_packet() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("silent").unwrap());
    let text = filter(&[
        "INPUT -p udp -m udp --dport 7001 -j LOG --log-prefix \"seen \"",
        "INPUT -p udp -m udp --dport 7001 -j REJECT",
        "INPUT -p udp -m udp --dport 7002 -m limit --limit 1/hour --limit-burst 2 -j ACCEPT",
        "INPUT -p udp -m udp --dport 7002 -j DROP",
    ]);
    let file = router.file("ours", &text);
    let loaded = router.done(&["load", "--shadow", &file]);
    assert!(loaded.contains("1 rule has its own limits"), "{loaded}");
    assert!(!loaded.contains("reject"), "{loaded}");
    let mut answer = router.command(&["answer"]);
    let mut answer = answer
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut log = router.command(&["log", "--rejects", "--count", "3"]);
    let log = log
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(loopback(&router.netns, &[7001, 7002], 3), [7001, 7002]);
    let output = log.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert_eq!(lines.matches("Z seen IN=lo ").count(), 3, "{lines}");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(answer.id() as i32),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut answer.stdout.take().unwrap(), &mut printed).unwrap();
    assert!(answer.wait().unwrap().success());
    assert!(printed.starts_with("no packets answered, "), "{printed}");
    let (_, found) = report(&router);
    assert_eq!(
        count(&found, "INPUT", "IPv4", "only_fairpath_drops"),
        4,
        "{found:#}"
    );
    // Counters are those of rules that decide.
    let counters = router.done(&["counters"]);
    assert!(
        counters.contains("[2:58] -A INPUT -p udp -m udp --dport 7002 -m limit"),
        "{counters}"
    );
}

/// Killed at any moment, also in place of others: no packet is dropped, and the next load continues.
#[test]
fn killed_shadow_loads_drop_no_packet() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("killed").unwrap());
    let file = router.file(
        "ours",
        &filter(&["INPUT -p udp -m udp --dport 7001 -j DROP"]),
    );
    let start = Instant::now();
    router.done(&["load", "--shadow", &file]);
    let whole = start.elapsed();
    let sockets = router.netns.enter(|| {
        let receiver = UdpSocket::bind("127.0.0.1:7001").unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        (receiver, UdpSocket::bind("127.0.0.1:0").unwrap())
    });
    let (receiver, sender) = sockets.unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                send(&sender, (Ipv4Addr::LOCALHOST, 7001));
                receiver.recv(&mut [0; 8]).expect("no packet is dropped");
            }
        });
        for seed in test_seeds(60) {
            if seed % 2 == 0 {
                router.done(&["unload"]);
            }
            router.kill_in(&["load", "--shadow", &file], whole, seed);
            router.done(&["load", "--shadow", &file]);
            let (status, found) = report(&router);
            assert!(!traffic.is_finished());
            assert_eq!(
                count(&found, "", "", "only_running_rules_drop"),
                0,
                "{found:#}"
            );
            assert_eq!(
                count(&found, "", "", "not_compared_without_record"),
                0,
                "{found:#}"
            );
            let differing = count(&found, "", "", "only_fairpath_drops");
            assert_eq!(status, Some(i32::from(differing > 0)));
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap();
    });
}
