//! Rules of ebtables at tcx of bridges and ports: `fairpath rules load` in a namespace, next to ebtables in
//! another one with the same traffic.
//!
//! ```text
//!        client: h0, h1, h2 ══ p0, p1, p2: br0 of ebtables
//!                k0, k1, k2 ══ p0, p1, p2: br0 of ours
//! ```
//!
//! The scenario `rules-bridge` compares with ebtables-legacy, and VLAN devices, in a guest.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use fairpath_statistics::Random;
use fairpath_testbed::{Feature, FrameSocket, Need, Netns, Testbed, requires};
use fairpath_units::test_seeds;

use super::live::{Router, arrives, filter};

const PORTS: [&str; 3] = ["p0", "p1", "p2"];
const BRIDGE_MAC: [u8; 6] = [2, 0, 0, 0, 0xb, 0];
/// Hosts behind the ports.
const HOSTS: [[u8; 6]; 3] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
const BROADCAST: [u8; 6] = [0xff; 6];
/// The group of LLDP, and another one.
const LLDP: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0xe];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 9];
/// Frames of each kind of sender, for a ruleset.
const FRAMES: usize = 60;
const NEEDS: [Need; 3] = [
    Need::Root,
    Need::Tool("ebtables-nft-restore"),
    Need::Kernel(Feature::Link("bridge")),
];

/// A bridge, and the ends of its ports.
struct Side {
    netns: Netns,
    far: Vec<FrameSocket>,
    /// At the bridge device, and at each port.
    near: Vec<FrameSocket>,
}

impl Side {
    fn new(netns: Netns, client: &Netns, end: char) -> Side {
        let path = client.path();
        let mut lines = vec![
            "link set lo up".to_owned(),
            "link add br0 address 02:00:00:00:0b:00 type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
                .to_owned(),
        ];
        let mut ends = Vec::new();
        for (at, port) in PORTS.iter().enumerate() {
            lines.push(format!(
                "link add {port} type veth peer name {end}{at} netns {path}"
            ));
            lines.push(format!("link set {port} master br0 up"));
            ends.push(format!("link set {end}{at} up"));
        }
        lines.push("link set br0 up".to_owned());
        netns.ip_batch(&lines).unwrap();
        client.ip_batch(&ends).unwrap();
        // Bridged packets meet no rules of iptables.
        let quiet = || {
            for name in ["iptables", "ip6tables", "arptables"] {
                let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{name}"), "0");
            }
        };
        netns.enter(quiet).unwrap();
        let open = |netns: &Netns, name: &str| FrameSocket::open(netns, name).unwrap();
        let far = (0..PORTS.len()).map(|at| open(client, &format!("{end}{at}")));
        let far = far.collect();
        let near = ["br0"].iter().chain(&PORTS);
        let near = near.map(|name| open(&netns, name)).collect();
        Side { netns, far, near }
    }

    /// Frames of these tests that arrive at each end, sorted.
    fn received(&mut self) -> Vec<Vec<Vec<u8>>> {
        let all = self.far.iter_mut().map(|socket| {
            let mut frames: Vec<Vec<u8>> = std::iter::from_fn(|| socket.receive()).collect();
            frames.retain(|frame| is_tested(frame));
            frames.sort_unstable();
            frames
        });
        all.collect()
    }
}

/// True for a frame of these tests.
fn is_tested(frame: &[u8]) -> bool {
    HOSTS
        .iter()
        .chain([&BRIDGE_MAC])
        .any(|mac| frame[6..12] == mac[..])
}

struct Twins {
    kernel: Side,
    ours: Side,
    router: Router,
}

impl Twins {
    fn new(testbed: &Testbed) -> Twins {
        let [client, kernel, ours] =
            ["client", "kernel", "ours"].map(|name| testbed.netns(name).unwrap());
        for netns in [&client, &kernel, &ours] {
            let sysctl = [
                ("net.ipv6.conf.all.disable_ipv6", "1"),
                ("net.ipv6.conf.default.disable_ipv6", "1"),
            ];
            netns.set_sysctls(&sysctl).unwrap();
        }
        let router = Router::new(ours.clone());
        Twins {
            kernel: Side::new(kernel, &client, 'h'),
            ours: Side::new(ours, &client, 'k'),
            router,
        }
    }

    fn load(&self, text: &str) {
        let file = self.router.file("rules.bridge", text);
        let script = format!("ebtables-nft-restore <{file}");
        self.kernel.netns.run(&["sh", "-c", &script]).unwrap();
        self.router.done(&["load", "--family", "bridge", &file]);
        // A rule that the last table had, too, keeps its counter.
        self.router.done(&["counters", "--zero"]);
    }

    /// Counters of all rules in order, of ebtables and ours.
    fn counters(&self) -> [Vec<(u64, u64)>; 2] {
        let list = ["ebtables-nft", "-t", "filter", "-L", "--Lc"];
        let kernel = self.kernel.netns.run(&list).unwrap();
        let kernel = kernel.lines().filter_map(|line| {
            let (_, numbers) = line.rsplit_once(", pcnt = ")?;
            let (packets, bytes) = numbers.split_once(" -- bcnt = ")?;
            Some((packets.trim().parse().ok()?, bytes.trim().parse().ok()?))
        });
        let ours = self.router.done(&["counters", "--family", "bridge"]);
        let ours = ours.lines().filter_map(|line| {
            let (numbers, rest) = line.strip_prefix('[')?.split_once(']')?;
            let (packets, bytes) = numbers.split_once(':')?;
            rest.starts_with(" -A ")
                .then_some((packets.parse().ok()?, bytes.parse().ok()?))
        });
        [kernel.collect(), ours.collect()]
    }

    /// Both get the frames of a sender.
    fn send(&mut self, sender: Sender, frames: &[Vec<u8>]) {
        for side in [&mut self.kernel, &mut self.ours] {
            let socket = match sender {
                Sender::Far(at) => &side.far[at],
                Sender::Near(at) => &side.near[at],
            };
            for frame in frames {
                socket.send(frame).unwrap();
            }
        }
    }

    /// Compares counters and frames at the ends, after all have arrived.
    fn agree(&mut self, what: &str) -> (u64, usize) {
        let begin = Instant::now();
        loop {
            let [kernel, ours] = self.counters();
            if kernel == ours {
                let (theirs, those) = (self.kernel.received(), self.ours.received());
                assert_eq!(theirs, those, "{what}");
                let counted = ours.iter().map(|(packets, _)| packets).sum();
                return (counted, those.iter().map(Vec::len).sum());
            }
            assert!(
                begin.elapsed() < Duration::from_secs(5),
                "{what}\n{kernel:?}\n{ours:?}\n{}",
                self.router.done(&["show"])
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[derive(Clone, Copy)]
enum Sender {
    /// Behind a port.
    Far(usize),
    /// 0: the bridge device, else a port.
    Near(usize),
}

/// A frame: of IPv4, ARP, a VLAN, with a length, or of no known type.
fn frame(random: &mut Random, from: [u8; 6]) -> Vec<u8> {
    let to = random.pick(&[
        HOSTS[0], HOSTS[1], HOSTS[2], BRIDGE_MAC, BROADCAST, GROUP, LLDP,
    ]);
    let mut frame = [to, from].concat();
    if random.one_in(4) {
        frame.extend([0x81, 0, random.pick(&[0, 0x60]), random.pick(&[1, 5])]);
    }
    let addresses = [
        10,
        0,
        0,
        random.pick(&[1, 2, 3]),
        10,
        0,
        0,
        random.pick(&[1, 2, 3]),
    ];
    match random.below(5) {
        0 | 1 => {
            let protocol = random.pick(&[17, 6, 1]);
            frame.extend([
                8,
                0,
                0x45,
                random.pick(&[0, 0x10]),
                0,
                40,
                0,
                0,
                0,
                0,
                64,
                protocol,
                0,
                0,
            ]);
            frame.extend(addresses);
            frame.extend([0, random.pick(&[53, 80]), 0, random.pick(&[53, 80])]);
        }
        2 => {
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, random.pick(&[1, 2])]);
            frame.extend(from);
            frame.extend(&addresses[..4]);
            frame.extend([0; 6]);
            frame.extend(&addresses[4..]);
        }
        3 => frame.extend([0, 40, 0x42, 0x42, 3, 0, 0, 0]),
        _ => frame.extend([0x88, random.pick(&[0xcc, 0x8e])]),
    }
    frame.resize(60 + random.index(20), 0);
    frame
}

/// A table of a seed.
fn ruleset(random: &mut Random) -> String {
    let mut text =
        "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:users ACCEPT\n".to_owned();
    for policy in ["INPUT", "FORWARD", "OUTPUT"] {
        if random.one_in(8) {
            text = text.replace(&format!(":{policy} ACCEPT"), &format!(":{policy} DROP"));
        }
    }
    for _ in 0..4 + random.index(8) {
        let chain = random.pick(&["INPUT", "FORWARD", "FORWARD", "OUTPUT", "users"]);
        let mut rule = format!("-A {chain}");
        rule += random.pick(&[
            "",
            " -p IPv4",
            " -p IPv4 --ip-proto udp",
            " -p IPv4 --ip-src 10.0.0.1",
            " -p IPv4 --ip-proto tcp --ip-dport 80",
            " -p ARP",
            " -p ARP --arp-op 1",
            " -p ARP --arp-ip-src 10.0.0.2",
            " -p 802_1Q",
            " -p 802_1Q --vlan-id 5",
            " -p LENGTH",
            " -p 0x88cc",
        ]);
        if chain != "OUTPUT" && chain != "users" && random.one_in(3) {
            rule += random.pick(&[" -i p0", " -i p1", " ! -i p2", " -i p+"]);
        }
        if chain != "INPUT" && chain != "users" && random.one_in(3) {
            rule += random.pick(&[" -o p0", " -o p2", " ! -o p1"]);
        }
        if random.one_in(4) {
            rule += random.pick(&[
                " -s 02:00:00:00:01:00",
                " ! -s 02:00:00:00:01:01",
                " -d ff:ff:ff:ff:ff:ff",
                " -d 02:00:00:00:0b:00",
                " -d 01:00:00:00:00:00/01:00:00:00:00:00",
            ]);
        }
        let jump = if chain == "users" { "RETURN" } else { "users" };
        rule += &format!(
            " -j {}",
            random.pick(&["ACCEPT", "DROP", "CONTINUE", "CONTINUE", jump])
        );
        text += &rule;
        text.push('\n');
    }
    text
}

/// Frames between ports, to the bridge, of the bridge, and of sockets at a port, which meet no rule.
#[test]
fn rules_of_bridges_are_the_kernels() {
    let [root, tool, bridge] = NEEDS;
    requires!(root, tool, bridge);
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed);
    let (mut counted, mut arrived) = (0, 0);
    for seed in test_seeds(120) {
        let mut random = Random::new(seed);
        let text = ruleset(&mut random);
        twins.load(&text);
        for (at, host) in HOSTS.iter().enumerate() {
            let frames: Vec<_> = (0..FRAMES).map(|_| frame(&mut random, *host)).collect();
            twins.send(Sender::Far(at), &frames);
        }
        for at in 0..=PORTS.len() {
            let frames: Vec<_> = (0..FRAMES / 2)
                .map(|_| frame(&mut random, BRIDGE_MAC))
                .collect();
            twins.send(Sender::Near(at), &frames);
        }
        let (packets, frames) = twins.agree(&format!("seed {seed}\n{text}"));
        counted += packets;
        arrived += frames;
    }
    let shown = twins.router.done(&["show"]);
    assert!(
        shown.contains("packets: 0 dropped with an unknown answer, 0 dropped"),
        "{shown}"
    );
    println!("{counted} packets counted, {arrived} frames arrived");
    assert!(counted > 0 && arrived > 0);
}

/// A rule for each chain and port, which counts, and a request of ARP from each end.
const COUNTING: [&str; 5] = [
    "INPUT -i p0 -p ARP",
    "INPUT -i p1 -p ARP",
    "FORWARD -i p0 -o p1 -p ARP",
    "FORWARD -i p1 -o p2 -p ARP",
    "OUTPUT -o p2 -p ARP",
];

fn table(rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    format!("*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{rules}")
}

fn request(from: [u8; 6]) -> Vec<u8> {
    let mut frame = [
        &BROADCAST[..],
        &from,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &from,
    ]
    .concat();
    frame.extend([10, 0, 0, 1]);
    frame.extend([0; 6]);
    frame.extend([10, 0, 0, 9]);
    frame.resize(60, 0);
    frame
}

impl Twins {
    fn requests(&mut self) {
        for (at, host) in HOSTS.iter().enumerate() {
            self.send(Sender::Far(at), &[request(*host)]);
        }
        self.send(Sender::Near(0), &[request(BRIDGE_MAC)]);
    }

    fn ours(&self) -> Vec<u64> {
        let [_, ours] = self.counters();
        ours.into_iter().map(|(packets, _)| packets).collect()
    }
}

/// Programs of `tc` at the same hooks write the index of a packet in which ports are recorded.
#[test]
fn rules_of_bridges_know_ports_behind_other_filters() {
    let [root, tool, bridge] = NEEDS;
    requires!(root, tool, bridge, Need::Tool("tc"));
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed);
    twins.load(&table(&COUNTING));
    let run = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        twins.ours.netns.run(&words).unwrap();
    };
    for port in ["p0", "p1", "p2", "br0"] {
        run(&format!("tc qdisc add dev {port} clsact"));
        let filter = "protocol all u32 match u32 0 0 flowid 1:7";
        run(&format!("tc filter add dev {port} ingress {filter}"));
        if port != "br0" {
            run(&format!("tc filter add dev {port} egress {filter}"));
        }
    }
    twins.requests();
    assert_eq!(twins.agree("with clsact").0, 5);
    assert_eq!(twins.ours(), [1; 5]);
}

/// A filter at egress of the bridge overwrites the mark of its frames: packets still have their route.
#[test]
fn own_packets_meet_bridge_rules_behind_other_filters() {
    let [root, tool, bridge] = NEEDS;
    requires!(root, tool, bridge, Need::Tool("tc"));
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed);
    twins.load(&table(&["OUTPUT -p IPv4 --ip-proto udp -j DROP"]));
    for netns in [&twins.kernel.netns, &twins.ours.netns] {
        let lines = [
            "addr add 10.77.0.1/24 dev br0",
            "neigh add 10.77.0.9 lladdr 02:00:00:00:01:00 dev br0",
        ];
        netns.ip_batch(&lines.map(str::to_owned)).unwrap();
        for words in [
            "tc qdisc add dev br0 clsact",
            "tc filter add dev br0 egress protocol all u32 match u32 0 0 flowid 1:7",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            netns.run(&words).unwrap();
        }
        let send = || {
            let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
            socket.send_to(b"own", "10.77.0.9:7001").unwrap();
        };
        netns.enter(send).unwrap();
    }
    let (counted, arrived) = twins.agree("with a filter at the bridge");
    assert!(counted > 0 && arrived == 0, "{counted}, {arrived}");
}

/// They are loaded, edited, confirmed and unloaded with those of IPv4.
#[test]
fn rules_of_bridges_live_with_those_of_ip() {
    let [root, tool, bridge] = NEEDS;
    requires!(root, tool, bridge);
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed);
    let v4 = |verdict: &str| filter(&[&format!("INPUT -p udp -m udp --dport 7001 -j {verdict}")]);
    let drop = table(&["FORWARD -i p0 -j DROP"]);
    let names = [
        ("rules.v4", v4("DROP")),
        ("rules.bridge", drop),
        ("other.v4", v4("ACCEPT")),
        ("other.bridge", table(&["FORWARD -i p1 -j DROP"])),
    ];
    let [v4, bridge, other_v4, other_bridge] =
        names.map(|(name, text)| twins.router.file(name, &text));
    /// Ends at which the request of the first host arrives.
    fn reached(twins: &mut Twins) -> usize {
        twins.ours.received();
        twins.send(Sender::Far(0), &[request(HOSTS[0])]);
        let arrived = twins.ours.received();
        arrived[1..]
            .iter()
            .filter(|frames| !frames.is_empty())
            .count()
    }
    twins.router.done(&["load", &v4, &bridge]);
    assert_eq!(reached(&mut twins), 0);
    assert!(!arrives(&twins.ours.netns, 7001));
    twins
        .router
        .done(&["load", &other_v4, &other_bridge, "--confirm", "2s"]);
    assert_eq!(reached(&mut twins), 2);
    assert!(arrives(&twins.ours.netns, 7001));
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(reached(&mut twins), 0);
    assert!(!arrives(&twins.ours.netns, 7001));
    // Rules that stay keep their counters, and commands edit them.
    assert_eq!(twins.router.packets("FORWARD -i p0 -j DROP"), 4);
    twins.router.done(&["load", &v4, &bridge]);
    assert_eq!(twins.router.packets("FORWARD -i p0 -j DROP"), 4);
    let edit = |twins: &Twins, words: &str| {
        let mut command = twins.router.command(&["apply", "--loaded"]);
        let output = command.arg("--").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    };
    edit(&twins, "ebtables -D FORWARD -i p0 -j DROP");
    assert_eq!(reached(&mut twins), 2);
    edit(&twins, "ebtables -P FORWARD DROP");
    assert_eq!(reached(&mut twins), 0);
    twins.router.done(&["load", &v4]);
    assert_eq!(reached(&mut twins), 2);
    // The first rules may come by a command.
    edit(&twins, "ebtables -A FORWARD -o p1 -j DROP");
    assert_eq!(reached(&mut twins), 1);
    twins.router.done(&["unload"]);
    assert_eq!(reached(&mut twins), 2);
    let pins = std::fs::read_dir(twins.router.place.path("pins")).unwrap();
    let mut pins = pins.map(|pin| pin.unwrap().file_name());
    assert!(pins.all(|pin| pin.to_string_lossy().contains('.')));
}

/// Refused rules, by file and line.
#[test]
fn what_is_another_thing_at_bridges_is_refused() {
    let [root, _, bridge] = NEEDS;
    requires!(root, bridge);
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed);
    for (text, reason) in [
        (
            "*nat\n:PREROUTING ACCEPT\n-A PREROUTING -i p0 -j DROP\n",
            "bad.bridge:3: nat PREROUTING: the programs at tcx evaluate table filter",
        ),
        (
            "*nat\n:POSTROUTING DROP\n",
            "bad.bridge:2: nat POSTROUTING: the programs at tcx evaluate",
        ),
        (
            "*broute\n:BROUTING ACCEPT\n-A BROUTING -i p0 -j DROP\n",
            "bad.bridge:3: broute BROUTING: the programs at tcx evaluate",
        ),
        (
            "*filter\n:INPUT ACCEPT\n-A INPUT --log\n",
            "bad.bridge:3: filter INPUT: logs of frames are not printed",
        ),
    ] {
        let file = twins.router.file("bad.bridge", text);
        let printed = twins.router.fails(&["load", "--family", "bridge", &file]);
        assert!(printed.contains(reason), "{printed}");
    }
    // An empty table is none, and a table may be left to ebtables.
    let text = "*filter\n:INPUT ACCEPT\n-A INPUT -i p0\n*nat\n:PREROUTING ACCEPT\n-A PREROUTING -j DROP\n*broute\n:BROUTING ACCEPT\n";
    let file = twins.router.file("whole.bridge", text);
    let printed = twins.router.done(&["load", "--skip-table", "nat", &file]);
    assert!(printed.contains("1 rule of nat left to"), "{printed}");
    let printed = twins
        .router
        .fails(&["load", "--shadow", &file, "--nat", "skip"]);
    assert!(
        printed.contains("rules of ebtables cannot be tried"),
        "{printed}"
    );
}

/// Ports that appear after the load.
#[test]
fn new_ports_get_rules_of_bridges() {
    let [root, _, bridge] = NEEDS;
    requires!(root, bridge);
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed);
    let rules = table(&["INPUT -i p2 -p ARP -j DROP", "FORWARD -o p2 -p ARP"]);
    let file = twins.router.file("rules.bridge", &rules);
    twins.router.done(&["load", &file]);
    twins
        .ours
        .netns
        .ip_batch(&[
            "link del p2".to_owned(),
            "link add p2 type veth peer name far2".to_owned(),
            "link set far2 up".to_owned(),
            "link set p2 master br0 up".to_owned(),
        ])
        .unwrap();
    let shown = twins.router.done(&["show"]);
    assert!(
        shown.contains("interfaces without rules of ebtables: far2, p2: "),
        "{shown}"
    );
    // Rules that need the name of its port drop a frame to the bridge.
    let far = FrameSocket::open(&twins.ours.netns, "far2").unwrap();
    far.send(&request(HOSTS[2])).unwrap();
    let shown = twins.router.done(&["show"]);
    assert!(
        shown.contains("packets: 1 dropped with an unknown answer"),
        "{shown}"
    );
    twins.send(Sender::Far(0), &[request(HOSTS[0])]);
    assert_eq!(twins.ours(), [0, 0]);
    let printed = twins.router.done(&["follow", "--once"]);
    assert_eq!(printed, "far2: rules of ebtables\np2: rules of ebtables\n");
    far.send(&request(HOSTS[2])).unwrap();
    twins.send(Sender::Far(0), &[request(HOSTS[0])]);
    assert_eq!(twins.ours(), [1, 1]);
}
