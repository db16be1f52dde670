//! Early drop: a driver drops what table raw would drop. iptables-legacy in another namespace gets the same
//! frames, and its counters are the same.

use std::time::{Duration, Instant};

use fairpath_bpf::Dropper;
use fairpath_statistics::Random;
use fairpath_testbed::{Feature, FrameSocket, Need, Netns, Testbed, requires};
use fairpath_units::{IfIndex, test_seeds};
use fairpath_wire::tcp::Flags;
use fairpath_wire::{Frame, icmp, ipv4, ipv6, tcp};

use super::live::{Router, tables};

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0xc, 1];
const OTHER_CLIENT: [u8; 6] = [2, 0, 0, 0, 0xc, 2];
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0xa, 1];
const ANOTHER: [u8; 6] = [2, 0, 0, 0, 0xa, 9];
const MULTICAST: [u8; 6] = [1, 0, 0x5e, 0, 0, 9];
const MULTICAST6: [u8; 6] = [0x33, 0x33, 0, 0, 0, 9];

/// A client, and two routers that get the same frames: of iptables, and ours.
struct Twins {
    iptables: Netns,
    ours: Router,
    sockets: [FrameSocket; 2],
}

impl Twins {
    fn new(testbed: &Testbed, more: &[&str]) -> Twins {
        let [client, iptables, ours] =
            ["client", "iptables", "ours"].map(|name| testbed.netns(name).unwrap());
        // It sends only what the test does.
        let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        client.enter(quiet).unwrap();
        for (netns, name) in [(&iptables, "eth0"), (&ours, "eth1")] {
            let path = client.path();
            let mut lines = vec![
                "link set lo up".to_owned(),
                format!("link add lan type veth peer name {name} netns {path}"),
                "link set lan address 02:00:00:00:0a:01".to_owned(),
                "link set lan up".to_owned(),
            ];
            lines.extend(more.iter().map(|line| (*line).to_owned()));
            netns.ip_batch(&lines).unwrap();
            client.ip_batch(&[format!("link set {name} up")]).unwrap();
            // It would merge packets of one connection.
            netns.run(&["ethtool", "-K", "lan", "gro", "off"]).unwrap();
        }
        let sockets = ["eth0", "eth1"].map(|name| FrameSocket::open(&client, name).unwrap());
        let ours = Router::new(ours);
        Twins {
            iptables,
            ours,
            sockets,
        }
    }

    /// Loads rules of both families.
    fn load(&self, texts: &[&str; 2]) {
        let files = [
            self.ours.file("rules.v4", texts[0]),
            self.ours.file("rules.v6", texts[1]),
        ];
        for (tool, file) in ["iptables-legacy-restore", "ip6tables-legacy-restore"]
            .iter()
            .zip(&files)
        {
            self.iptables.run(&[tool, file]).unwrap();
        }
        self.ours
            .done(&["load", &files[0], &files[1], "--early-drop", "lan"]);
    }

    fn send(&self, frames: &[Vec<u8>]) {
        for frame in frames {
            for socket in &self.sockets {
                // The sender's kernel refuses a few.
                let _ = socket.send(frame);
            }
        }
        // Most of them have arrived then.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Counters of raw and filter: of iptables, and ours. Those of OUTPUT depend on time.
    fn counters(&self) -> [Vec<String>; 2] {
        let mut all = [Vec::new(), Vec::new()];
        for (family, tool) in [("ipv4", "iptables"), ("ipv6", "ip6tables")] {
            let save = format!("{tool}-legacy-save");
            let saves = [
                self.iptables.run(&[&save, "-c"]).unwrap(),
                self.ours.done(&["counters", "--family", family]),
            ];
            for (all, save) in all.iter_mut().zip(saves) {
                let tables = tables(&save);
                let lines = tables["raw"].iter().chain(&tables["filter"]);
                all.extend(lines.filter(|line| !line.contains("OUTPUT")).cloned());
            }
        }
        all
    }

    /// Compares counters of both. Returns the packets that the driver dropped.
    fn agree(&self) -> u64 {
        // The last packets may be on their way on a busy machine.
        let begin = Instant::now();
        loop {
            let [of_kernel, ours] = self.counters();
            if ours == of_kernel {
                break;
            }
            let differing: Vec<_> = ours
                .iter()
                .zip(&of_kernel)
                .filter(|(a, b)| a != b)
                .collect();
            assert!(begin.elapsed() < Duration::from_secs(10), "{differing:#?}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let shown = self.ours.done(&["show", "--format", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["early_drop"], serde_json::json!(["lan"]));
        shown["packets_dropped_early"].as_u64().unwrap()
    }
}

/// Rules with all kinds of matches; the interfaces differ in what is behind them.
fn rules(icmp: &str, sources: &[&str; 2], hops: &str) -> String {
    let [dropped, kept] = sources;
    format!(
        "*raw
:PREROUTING ACCEPT [0:0]
:limited - [0:0]
:logged - [0:0]
-A PREROUTING -i lan
-A PREROUTING -s {dropped} -j DROP
-A PREROUTING -p udp -m udp --dport 53 -j limited
-A PREROUTING -p {icmp} -j logged
-A PREROUTING -m mac --mac-source 02:00:00:00:0c:02 -j DROP
-A PREROUTING -p tcp -m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE -j DROP
-A PREROUTING -p udp -m length --length 1000:65535 -j DROP
-A PREROUTING {hops} -j DROP
-A PREROUTING -p udp -m pkttype --pkt-type multicast -j DROP
-A PREROUTING -i lan.5 -p udp -m udp --dport 99 -j DROP
-A PREROUTING -i br0 -p udp -m udp --dport 98 -j DROP
-A PREROUTING -i lan -p udp -m udp --dport 97 -j DROP
-A PREROUTING -p udp -m udp --dport 96 -m statistic --mode nth --every 3 --packet 0 -j DROP
-A PREROUTING ! -s {kept} -p udp -m multiport --dports 1000:2000,77 -j DROP
-A PREROUTING -p udp -m udp --dport 95 -g limited
-A limited -m limit --limit 1/hour --limit-burst 3 -j RETURN
-A limited -j DROP
-A logged -s {kept}
-A logged -j LOG --log-prefix \"early \"
-A logged -m length --length 0:100 -j DROP
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -p udp
-A INPUT -p tcp
-A INPUT -p {icmp}
COMMIT
"
    )
}

fn texts() -> [String; 2] {
    [
        rules(
            "icmp",
            &["198.51.100.0/24", "10.0.0.0/8"],
            "-m ttl --ttl-lt 3",
        ),
        rules(
            "ipv6-icmp",
            &["2001:db8:bad::/48", "fd00::/16"],
            "-m hl --hl-lt 3",
        ),
    ]
}

/// Packets of both families behind an Ethernet header that the caller makes.
fn packets(link: &dyn Fn() -> Frame) -> Vec<Frame> {
    let mut out = Vec::new();
    for source in ["10.1.0.2", "198.51.100.9", "203.0.113.4"] {
        for (hops, options) in [(64, 0), (2, 0), (64, 4), (64, 40)] {
            let header = ipv4::Header {
                ttl: hops,
                options: vec![1; options],
                ..ipv4::Header::new(source.parse().unwrap(), "10.1.0.1".parse().unwrap())
            };
            out.extend(transports(&|| link().ipv4_header(header.clone())));
        }
    }
    for source in [
        "fd00::2",
        "2001:db8:bad::9",
        "2001:db8::4",
        "::1",
        "ff02::5",
        "fe80::2",
    ] {
        for to in ["fd00::1", "::1", "ff01::1", "ff02::1"] {
            for (hops, extensions) in [
                (64, vec![]),
                (2, vec![]),
                (64, vec![ipv6::Extension::HopByHop(vec![1, 4, 0, 0, 0, 0])]),
                (
                    64,
                    vec![ipv6::Extension::DestinationOptions(vec![1, 4, 0, 0, 0, 0])],
                ),
            ] {
                let header = ipv6::Header {
                    hop_limit: hops,
                    extensions,
                    ..ipv6::Header::new(source.parse().unwrap(), to.parse().unwrap())
                };
                out.extend(transports(&|| link().ipv6_header(header.clone())));
            }
        }
    }
    out
}

fn transports(header: &dyn Fn() -> Frame) -> Vec<Frame> {
    let mut out = Vec::new();
    for port in [53, 95, 96, 97, 98, 99, 77, 1500, 4000] {
        out.push(header().udp(5000, port).payload(b"hello"));
    }
    out.push(header().udp(5000, 4000).zeros(1100));
    for flags in [Flags(0), Flags::SYN] {
        out.push(header().tcp(tcp::Header {
            dst_port: 80,
            flags,
            ..tcp::Header::default()
        }));
    }
    let echo = icmp::Message::EchoReply { id: 1, seq: 2 };
    out.push(header().icmp(echo).payload(b"ping"));
    out.push(header().icmp(echo).zeros(200));
    out
}

/// False if headers of IPv6 continue behind the bytes that rules read: iptables reads them there, and we
/// drop the packet without an answer.
fn is_read(frame: &[u8]) -> bool {
    const READ: usize = 14 + 512;
    if frame.get(12..14) != Some(&[0x86, 0xdd]) {
        return true;
    }
    let (mut at, mut next) = (14 + 40, frame.get(20).copied());
    while let (Some(header @ (0 | 43 | 44 | 51 | 60)), Some(size)) = (next, frame.get(at + 1)) {
        next = frame.get(at).copied();
        at += match header {
            44 => 8,
            51 => 4 * (usize::from(*size) + 2),
            _ => 8 * (usize::from(*size) + 1),
        };
    }
    at <= READ - 20
}

/// Frames as they should be, and odd ones.
fn frames(seed: u64) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for to in [ROUTER, ANOTHER, MULTICAST, MULTICAST6, [0xff; 6]] {
        for from in [CLIENT, OTHER_CLIENT] {
            let frames = packets(&|| Frame::ethernet(from, to));
            out.extend(frames.iter().map(Frame::build));
        }
    }
    let tagged = packets(&|| Frame::ethernet(CLIENT, ROUTER).vlan(5));
    out.extend(tagged.iter().map(Frame::build));
    for large in packets(&|| Frame::ethernet(CLIENT, ROUTER)) {
        out.extend(large.fragments(64, 7).iter().map(Frame::build));
    }
    let mut random = Random::new(seed);
    let whole: Vec<Vec<u8>> = packets(&|| Frame::ethernet(CLIENT, ROUTER))
        .iter()
        .map(Frame::build)
        .collect();
    for _ in 0..3000 {
        let mut frame = whole[random.index(whole.len())].clone();
        match random.below(4) {
            0 => frame.truncate(14 + random.index(frame.len() - 14)),
            1 => frame.extend(vec![0; random.index(40)]),
            _ => {}
        }
        for _ in 0..random.below(4) {
            let end = frame.len().clamp(13, 80);
            let at = 12 + random.index(end - 12);
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        // Half of them with a right checksum again.
        if random.one_in(2) && frame.len() >= 34 {
            frame[24..26].fill(0);
            let sum = fairpath_wire::checksum::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        out.push(frame);
    }
    out.retain(|frame| is_read(frame));
    out
}

const ADDRESSES: [&str; 3] = [
    "addr add 10.1.0.1/24 dev lan",
    "addr add fd00::1/64 dev lan nodad",
    "addr add fe80::1/64 dev lan nodad",
];

#[test]
fn counters_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("ethtool")
    );
    let [v4, v6] = texts();
    for seed in test_seeds(1) {
        let testbed = Testbed::new();
        let twins = Twins::new(&testbed, &ADDRESSES);
        twins.load(&[&v4, &v6]);
        twins.send(&frames(seed));
        assert!(twins.agree() > 500, "{}", twins.agree());
    }
}

/// The stack receives these packets from another device: the driver drops none.
fn stay_with_the_device(name: &str, more: &[&str]) {
    let [v4, v6] = texts();
    let few = frames(1).into_iter().step_by(5).collect::<Vec<_>>();
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed, more);
    for netns in [&twins.iptables, &twins.ours.netns] {
        netns.run(&["ethtool", "-K", name, "gro", "off"]).unwrap();
    }
    twins.load(&[&v4, &v6]);
    twins.send(&few);
    assert_eq!(twins.agree(), 0, "{name}");
}

#[test]
fn packets_of_bridges_stay_theirs() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("ethtool"),
        Need::Kernel(Feature::Link("bridge"))
    );
    stay_with_the_device(
        "br0",
        &[
            "link add br0 type bridge mcast_snooping 0",
            "link set br0 address 02:00:00:00:0a:01",
            "link set br0 up",
            "link set lan master br0",
            "addr add 10.1.0.1/24 dev br0",
            "addr add fd00::1/64 dev br0 nodad",
        ],
    );
}

/// A card that removes tags, as `lan` does, hides them from its driver.
#[test]
fn packets_of_vlans_stay_theirs() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("ethtool"),
        Need::Kernel(Feature::Link("vlan"))
    );
    stay_with_the_device(
        "lan.5",
        &[
            "link add link lan name lan.5 type vlan id 5",
            "link set lan.5 up",
            "addr add 10.1.0.1/24 dev lan.5",
            "addr add fd00::1/64 dev lan.5 nodad",
        ],
    );
}

const BLOCK: &str = "*raw\n-A PREROUTING -s 198.51.100.0/24 -j DROP\nCOMMIT\n";

/// The number that `show` prints.
fn dropped_early(router: &Router) -> u64 {
    let shown: serde_json::Value =
        serde_json::from_str(&router.done(&["show", "--format", "json"])).unwrap();
    shown["packets_dropped_early"].as_u64().unwrap()
}

/// Waits for the packets that the rule of the blocklist drops.
#[track_caller]
fn await_dropped(router: &Router, packets: u64) {
    let begin = Instant::now();
    while router.packets("-s 198.51.100.0/24 -j DROP") < packets {
        assert!(begin.elapsed() < Duration::from_secs(10), "{packets}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The interfaces that have an XDP program.
fn cards(router: &Router) -> Vec<String> {
    let links = router.netns.run(&["ip", "-o", "link"]).unwrap();
    let lines = links.lines().filter(|line| line.contains(" xdp"));
    let name = |line: &str| line.split([':', '@']).nth(1).unwrap().trim().to_owned();
    lines.map(name).collect()
}

/// Ten frames that [`BLOCK`] drops.
fn from_blocked() -> Vec<Vec<u8>> {
    let frame = Frame::ethernet(CLIENT, ROUTER);
    let (from, to) = ("198.51.100.9".parse(), "10.1.0.1".parse());
    let frame = frame.ipv4(from.unwrap(), to.unwrap()).udp(5000, 9);
    vec![frame.build(); 10]
}

/// Unconfirmed rules leave their program in the driver, and the shadow before them comes back.
#[test]
fn drivers_drop_nothing_for_the_shadow() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed, &ADDRESSES);
    let router = &twins.ours;
    let file = router.file("rules.v4", BLOCK);
    let usage = router.rules(&["load", "--shadow", "--early-drop", "lan", &file]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    router.done(&["load", "--shadow", &file]);
    router.done(&["load", &file, "--early-drop", "lan", "--confirm", "3s"]);
    twins.send(&from_blocked());
    await_dropped(router, 10);
    assert_eq!(dropped_early(router), 10);
    std::thread::sleep(Duration::from_millis(3000));
    assert_eq!(cards(router), ["lan"]);
    twins.send(&from_blocked());
    await_dropped(router, 20);
    assert_eq!(dropped_early(router), 10);
    let report = router.rules(&["shadow", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["hooks"][0]["hook"], "PREROUTING");
    assert_eq!(report["hooks"][0]["only_fairpath_drops"], 10, "{report:#}");
    // The next load of the shadow frees the driver.
    router.done(&["load", "--shadow", &file]);
    assert!(cards(router).is_empty());
}

#[test]
fn interfaces_follow_loads_and_confirmations() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed, &ADDRESSES);
    let router = &twins.ours;
    let more = "link add wan type veth peer name far\nlink set wan up";
    let more: Vec<String> = more.lines().map(str::to_owned).collect();
    router.netns.ip_batch(&more).unwrap();
    let file = router.file("rules.v4", BLOCK);
    router.done(&["load", &file, "--early-drop", "lan"]);
    assert_eq!(cards(router), ["lan"]);
    twins.send(&from_blocked());
    await_dropped(router, 10);
    assert_eq!(dropped_early(router), 10);
    // Edits leave the interfaces as they are, and a rule that reads a mark is refused.
    let edit = |rule: &str| {
        let line = format!("*raw\n-A PREROUTING {rule} -j DROP\nCOMMIT\n");
        router.file("edits", &line)
    };
    router.done(&["apply", "--loaded", "--edits", &edit("-s 192.0.2.1")]);
    let marked = edit("-m mark --mark 1");
    let error = router.fails(&["apply", "--loaded", "--edits", &marked]);
    assert!(
        error.contains("a packet has no mark in the driver"),
        "{error}"
    );
    twins.send(&from_blocked());
    await_dropped(router, 20);
    assert_eq!(dropped_early(router), 20);
    assert_eq!(router.packets("-s 198.51.100.0/24 -j DROP"), 20);
    // Unconfirmed rules leave the interfaces of both.
    let load = ["load", &file, "--early-drop", "wan", "--confirm", "1s"];
    router.done(&load);
    assert_eq!(cards(router), ["lan", "wan"]);
    std::thread::sleep(Duration::from_millis(1200));
    let shown = router.done(&["show"]);
    assert!(shown.contains("the last load was not confirmed"), "{shown}");
    router.done(&["load", &file, "--early-drop", "wan", "--confirm", "60s"]);
    router.done(&["confirm"]);
    assert_eq!(cards(router), ["wan"]);
    // Without the option, the driver is free.
    router.done(&["load", &file]);
    assert!(cards(router).is_empty());
    twins.send(&from_blocked());
    await_dropped(router, 30);
    assert_eq!(dropped_early(router), 20);
    assert_eq!(router.packets("-s 198.51.100.0/24 -j DROP"), 30);
    // An interface that goes takes its program along.
    router.done(&["load", &file, "--early-drop", "lan", "--early-drop", "wan"]);
    router.netns.run(&["ip", "link", "del", "wan"]).unwrap();
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("early drop at lan: 20 packets dropped in drivers"),
        "{shown}"
    );
    router.done(&["load", &file, "--early-drop", "lan"]);
    router.done(&["unload"]);
    assert!(cards(router).is_empty());
}

#[test]
fn refused_early_drop_changes_nothing() {
    requires!(Need::Root, Need::Tool("ethtool"));
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed, &ADDRESSES);
    let router = &twins.ours;
    let file = router.file("rules.v4", BLOCK);
    let error = router.fails(&["load", &file, "--early-drop", "lo"]);
    assert!(error.contains("lo has no driver"), "{error}");
    let error = router.fails(&["load", &file, "--early-drop", "eth9"]);
    assert!(
        error.contains("--early-drop eth9: no such interface"),
        "{error}"
    );
    let marked = router.file(
        "marked.v4",
        &BLOCK.replace("-s 198.51.100.0/24", "-m mark --mark 1"),
    );
    let error = router.fails(&["load", &marked, "--early-drop", "lan"]);
    assert!(
        error.contains("marked.v4:2: raw PREROUTING: a packet has no mark in the driver"),
        "{error}"
    );
    assert!(router.fails(&["show"]).contains("no rules are loaded"));
    // Another program of the driver: also the rules before stay.
    router.done(&[
        "load",
        &router.file("before.v4", "*filter\n-A INPUT\nCOMMIT\n"),
    ]);
    let attach = || {
        let index = IfIndex(nix::net::if_::if_nametoindex("lan").unwrap());
        Dropper::attach(index, "lan", 0.0, 0).unwrap()
    };
    let _dropper = router.netns.enter(attach).unwrap();
    let error = router.fails(&["load", &file, "--early-drop", "lan"]);
    assert!(
        error.contains("drop packets early: attach XDP to \"lan\""),
        "{error}"
    );
    assert!(error.contains("stop its owner"), "{error}");
    assert!(router.done(&["counters"]).contains("-A INPUT\n"));
}
