//! Rules, filters and qdiscs that are loaded after AF_XDP began to carry packets past them.

use std::thread;
use std::time::{Duration, Instant};

use fairpath_testbed::{Need, Netns, Offloads, Ping, Router, requires};
use fairpath_tests::Daemon;
use serde_json::Value;

use crate::scene::{Counted, Numbered, Scene, for_a_time, queue, snapshot};

pub(crate) const RATES: &str = "down = \"100mbit\"\nup = \"100mbit\"";
const MS: Duration = Duration::from_millis(1);
/// The time that other programs on this machine may take.
const SLACK: Duration = Duration::from_millis(100);

const NFT_DROP: &str = "add table inet late; add chain inet late f { type filter hook forward priority 0; policy drop; }";

/// A change after the start.
struct Change {
    add: &'static [&'static str],
    remove: &'static [&'static str],
    /// Part of its name in messages.
    name: &'static str,
    /// The kernel drops forwarded packets then, at most this time after the tool returned.
    drops: Option<Duration>,
}

impl Change {
    fn is_nat(&self) -> bool {
        self.name.starts_with("NAT")
    }
}

const NOTIFIED: Option<Duration> = Some(Duration::from_millis(100));
/// The interval of looks.
const READ: Option<Duration> = Some(Duration::from_millis(250));

const CHANGES: [Change; 8] = [
    Change {
        add: &["nft", NFT_DROP],
        remove: &["nft", "delete table inet late"],
        name: "netfilter (nft inet late f)",
        drops: NOTIFIED,
    },
    Change {
        add: &["iptables-legacy", "-A", "FORWARD", "-j", "DROP"],
        remove: &["iptables-legacy", "-F", "FORWARD"],
        name: "netfilter (iptables filter FORWARD)",
        drops: READ,
    },
    Change {
        add: &["iptables-legacy", "-P", "FORWARD", "DROP"],
        remove: &["iptables-legacy", "-P", "FORWARD", "ACCEPT"],
        name: "netfilter (iptables filter FORWARD)",
        drops: READ,
    },
    Change {
        add: &[
            "iptables-legacy",
            "-t",
            "nat",
            "-A",
            "POSTROUTING",
            "-o",
            "wan",
            "-j",
            "MASQUERADE",
        ],
        remove: &["iptables-legacy", "-t", "nat", "-F", "POSTROUTING"],
        name: "NAT (iptables nat POSTROUTING)",
        drops: None,
    },
    Change {
        add: &[
            "ip",
            "rule",
            "add",
            "to",
            "10.10.1.0/24",
            "prohibit",
            "priority",
            "100",
        ],
        remove: &["ip", "rule", "del", "priority", "100"],
        name: "policy routing (ip rule 100",
        drops: NOTIFIED,
    },
    Change {
        add: &[
            "ip",
            "xfrm",
            "policy",
            "add",
            "src",
            "0.0.0.0/0",
            "dst",
            "10.10.1.0/24",
            "dir",
            "fwd",
            "action",
            "block",
        ],
        remove: &["ip", "xfrm", "policy", "flush"],
        name: "IPsec policy (ip xfrm policy",
        drops: NOTIFIED,
    },
    Change {
        add: &[
            "tc", "qdisc", "add", "dev", "lan", "root", "handle", "7:", "pfifo",
        ],
        remove: &["tc", "qdisc", "del", "dev", "lan", "root"],
        name: "qdisc (pfifo 7: on \"lan\")",
        drops: None,
    },
    Change {
        add: &[
            "nft",
            "add table ip late; add chain ip late n { type nat hook postrouting priority 100; }; \
                 add rule ip late n oifname wan masquerade",
        ],
        remove: &["nft", "delete table ip late"],
        name: "NAT (nft ip late n)",
        drops: None,
    },
];

pub(crate) fn scene() -> Scene {
    let scene = Scene::new("afxdp", Offloads::Off);
    scene.configure(RATES, "");
    scene
}

pub(crate) fn runs(status: &Value) -> bool {
    status["shape"]["running"] == true
}

/// True if a ping passes the router.
pub(crate) fn passes(scene: &Scene) -> bool {
    let ping = Ping::to(Router::CLIENT.v4).count(3).interval(50 * MS);
    ping.run(&scene.net.server)
        .is_ok_and(|report| report.received > 0)
}

pub(crate) fn received(daemon: &Daemon<'_>) -> u64 {
    let counters = snapshot(daemon)["counters"].clone();
    counters["afxdp_received"].as_u64().unwrap_or(0)
}

/// The daemon has ended AF_XDP, and every place where an operator looks says why.
pub(crate) fn assert_ended(scene: &Scene, daemon: &Daemon<'_>, name: &str) {
    let status = daemon.status_when("ended", |status| !runs(status));
    daemon.logs(name);
    for text in [
        status["shape"]["failure"].to_string(),
        status["notes"].to_string(),
    ] {
        // Names are quoted, and the quotes of names escaped.
        let text = text.replace('\\', "");
        assert!(text.contains(name), "{name}: {text}");
    }
    let text = String::from_utf8(scene.command(&["status"]).stdout).unwrap();
    assert!(text.contains("failed  ") && text.contains(name), "{text}");
}

/// Returns when it took effect: the last packet after the change, if packets stop.
fn change_takes_effect(scene: &Scene, daemon: &Daemon<'_>, change: &Change) {
    let router = &scene.net.router;
    scene.meet(&[Router::CLIENT.v4]);
    let before = received(daemon);
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
    for_a_time(300 * MS);
    assert!(
        received(daemon) > before,
        "AF_XDP does not carry the packets"
    );
    router.run(change.add).unwrap();
    let changed = Instant::now();
    assert_ended(scene, daemon, change.name);
    for_a_time(300 * MS);
    source.finish();
    let last = sink.drain(300 * MS).last.expect("packets arrived before");
    let delay = last.saturating_duration_since(changed);
    println!("{}: the last packet came {delay:?} after it", change.name);
    if let Some(limit) = change.drops {
        assert!(delay <= limit + SLACK, "{}: {delay:?}", change.name);
        assert!(!passes(scene), "{}", change.name);
    }
    router.run(change.remove).unwrap();
    assert!(passes(scene), "{} is no more", change.name);
}

#[test]
fn stages_loaded_later_are_never_bypassed() {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("nft"),
        Need::Tool("iptables-legacy")
    );
    let scene = scene();
    let daemon = scene.start();
    for change in CHANGES.iter().filter(|change| !change.is_nat()) {
        change_takes_effect(&scene, &daemon, change);
        let start = scene.command(&["start"]);
        assert!(start.status.success(), "{}: {start:?}", change.name);
    }
    assert!(daemon.stop().success());
}

#[test]
fn nat_loaded_later_is_never_bypassed() {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("nft"),
        Need::Tool("iptables-legacy")
    );
    for change in CHANGES.iter().filter(|change| change.is_nat()) {
        let scene = scene();
        let daemon = scene.start();
        change_takes_effect(&scene, &daemon, change);
        // Connections stay tracked after the rules that tracked them.
        let start = scene.command(&["start"]);
        let text = String::from_utf8_lossy(&start.stderr).into_owned();
        assert!(text.contains("conntrack -F"), "{text}");
        assert!(daemon.stop().success());
    }
}

#[test]
fn afxdp_starts_again_when_the_rule_is_removed() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("nft"));
    let scene = scene();
    let daemon = scene.start();
    let change = &CHANGES[0];
    change_takes_effect(&scene, &daemon, change);
    // The rule is removed; the next attempt is at most 5 s later.
    let status = daemon.status_when("again", runs);
    assert_eq!(status["shape"]["failure"], Value::Null, "{status:#}");
    assert!(!status["notes"].to_string().contains("late"), "{status:#}");
    change_takes_effect(&scene, &daemon, change);
    assert!(daemon.stop().success());
}

#[test]
fn rules_for_the_router_do_not_end_afxdp() {
    requires!(
        Need::Root,
        Need::Tool("ethtool"),
        Need::Tool("nft"),
        Need::Tool("iptables-legacy")
    );
    let scene = scene();
    let daemon = scene.start();
    let router = &scene.net.router;
    for change in [
        &[
            "nft",
            "add table inet own; add chain inet own i { type filter hook input priority 0; policy drop; }; \
                  add chain inet own o { type filter hook output priority 0; policy drop; }; \
                  add chain inet own empty { type filter hook forward priority 0; }; \
                  add chain inet own unused; add rule inet own unused drop",
        ][..],
        &[
            "iptables-legacy",
            "-A",
            "INPUT",
            "-s",
            "192.0.2.1",
            "-j",
            "DROP",
        ],
        &["ip6tables-legacy", "-P", "INPUT", "DROP"],
        &["tc", "qdisc", "add", "dev", "lo", "root", "pfifo"],
    ] {
        router.run(change).unwrap();
    }
    // Longer than any look.
    for_a_time(Duration::from_secs(1));
    let sink = Counted::bind(&scene.net.client, scene.to_client());
    let before = received(&daemon);
    let source = Numbered::start(&scene.net.server, scene.to_client(), MS, 100);
    for_a_time(500 * MS);
    let sent = source.finish();
    assert_eq!(sink.drain(300 * MS).count, sent);
    assert!(runs(&daemon.status()) && received(&daemon) > before);
    assert!(queue(&daemon, "down", None)["sent_packets"].as_u64() >= Some(sent));
    assert!(daemon.stop().success());
}

#[test]
fn a_rule_loaded_during_start_is_not_bypassed() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("nft"));
    let scene = scene();
    let begin = Instant::now();
    let daemon = scene.start();
    let start = begin.elapsed();
    assert!(daemon.stop().success());
    const TIMES: u32 = 4;
    let [mut refused, mut ended] = [0, 0];
    for time in 0..TIMES {
        let router: &Netns = &scene.net.router;
        let mut daemon = thread::scope(|scope| {
            scope.spawn(|| {
                // Programs are loaded first, which takes most of the time.
                thread::sleep(start * (TIMES + time + 1) / (2 * TIMES));
                router.run(&["nft", NFT_DROP]).unwrap();
            });
            Daemon::spawn(router, &scene.place)
        });
        // It refuses, or begins and ends.
        let status = fairpath_testbed::wait_for(Duration::from_secs(20), || {
            let text = daemon.process.stderr();
            (text.contains("inet late f")).then_some(text)
        });
        assert!(status.is_some(), "{}", daemon.process.stderr());
        assert!(!passes(&scene), "{}", daemon.process.stderr());
        match daemon.process.stderr().contains("ready after") {
            true => {
                ended += 1;
                assert!(daemon.stop().success());
            }
            false => {
                refused += 1;
                assert!(
                    !daemon
                        .process
                        .wait(Duration::from_secs(20))
                        .unwrap()
                        .success()
                );
            }
        }
        scene.net.router.run(CHANGES[0].remove).unwrap();
    }
    println!("start {start:?}: {refused} refused, {ended} ended");
}

#[test]
fn a_reload_does_not_bypass_a_rule() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("nft"));
    let scene = scene();
    let daemon = scene.start();
    scene.net.router.run(CHANGES[0].add).unwrap();
    assert_ended(&scene, &daemon, CHANGES[0].name);
    scene.configure("down = \"50mbit\"\nup = \"50mbit\"", "");
    daemon.reload();
    assert_ended(&scene, &daemon, CHANGES[0].name);
    let start = scene.command(&["start"]);
    let text = String::from_utf8_lossy(&start.stderr).into_owned();
    assert!(
        !start.status.success() && text.contains("inet late f"),
        "{text}"
    );
    assert!(!passes(&scene));
    scene.net.router.run(CHANGES[0].remove).unwrap();
    let start = scene.command(&["start"]);
    assert!(start.status.success(), "{start:?}");
    assert!(runs(&daemon.status()));
    assert!(daemon.stop().success());
}

#[test]
fn nfqueue_replaces_afxdp_if_configured() {
    requires!(Need::Root, Need::Tool("ethtool"), Need::Tool("nft"));
    let scene = scene();
    scene.configure(&format!("{RATES}\non_bypass = \"nfqueue\""), "");
    let via = |daemon: &Daemon<'_>, via: &str| {
        let is_it = |status: &Value| runs(status) && status["shape"]["backend"] == via;
        daemon.status_when(via, is_it)["shape"].clone()
    };
    let daemon = scene.start();
    via(&daemon, "afxdp");
    // It drops what the client sends to one address, and nothing else.
    let rule = "add table inet late; add chain inet late f { type filter hook forward priority 0; }; \
                add rule inet late f ip daddr 192.0.2.1 drop";
    scene.net.router.run(&["nft", rule]).unwrap();
    let shape = via(&daemon, "nfqueue");
    let reason = shape["backend_reason"].to_string();
    assert!(reason.contains("nft inet late f"), "{shape:#}");
    assert_eq!(shape["failure"], Value::Null, "{shape:#}");
    let before = queue(&daemon, "down", None)["sent_packets"].as_u64();
    assert!(passes(&scene));
    assert!(queue(&daemon, "down", None)["sent_packets"].as_u64() > before);
    // At the start, and AF_XDP again without the rule.
    let again = || {
        for word in ["stop", "start"] {
            assert!(scene.command(&[word]).status.success());
        }
    };
    again();
    via(&daemon, "nfqueue");
    scene.net.router.run(CHANGES[0].remove).unwrap();
    again();
    via(&daemon, "afxdp");
    assert!(daemon.stop().success());
}

/// Datagrams of a client with an address of the other side pass until the router checks senders.
#[test]
fn rp_filter_is_followed_while_afxdp_runs() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let scene = Scene::new("afxdp", Offloads::Off);
    let filter = |value: &str| {
        for name in ["all", "lan", "wan"] {
            let key = format!("net.ipv4.conf.{name}.rp_filter");
            scene.net.router.set_sysctl(&key, value).unwrap();
        }
    };
    filter("0");
    let lines = [
        "address add 10.10.2.77/32 dev lo",
        "route replace 10.10.2.2/32 via 10.10.1.1 src 10.10.2.77",
    ];
    scene
        .net
        .client
        .ip_batch(&lines.map(str::to_owned))
        .unwrap();
    let _daemon = scene.shape(RATES, "");
    let sink = Counted::bind(&scene.net.server, Router::SERVER.v4.into());
    let source = Numbered::start(&scene.net.client, Router::SERVER.v4.into(), 5 * MS, 100);
    let passes = || {
        let before = sink.count();
        for_a_time(Duration::from_millis(300));
        sink.count() > before
    };
    assert!(passes(), "without a check");
    for (value, expected) in [("1", false), ("0", true), ("2", true)] {
        filter(value);
        let begin = Instant::now();
        while passes() != expected {
            let waited = begin.elapsed();
            assert!(
                waited < Duration::from_secs(5),
                "rp_filter {value}: {waited:?}"
            );
        }
    }
    drop(source);
}
