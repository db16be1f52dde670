//! Rules of arptables at tcx of interfaces: `fairpath rules load` in a namespace, next to arptables-legacy in
//! another one with the same traffic. `oracle/hooks.rs` compares generated rules and frames.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fairpath_testbed::{FrameSocket, Need, Netns, Testbed, requires};
use fairpath_units::test_seeds;

use super::live::{Router, arrives, filter};
use super::oracle::legacy::{arp_script, read_arp_list, read_save};

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0xc, 1];
const BROADCAST: [u8; 6] = [0xff; 6];

/// A client, and two routers with the same interfaces: of arptables, and ours.
struct Twins {
    kernel: Netns,
    ours: Router,
    /// At the client, one for each router.
    sockets: [FrameSocket; 2],
}

impl Twins {
    /// `more`: lines of `ip`, after `lan` is there.
    fn new(testbed: &Testbed, more: &[&str]) -> Twins {
        let [client, kernel, ours] =
            ["client", "kernel", "ours"].map(|name| testbed.netns(name).unwrap());
        for netns in [&client, &kernel, &ours] {
            let quiet = || std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
            netns.enter(quiet).unwrap();
        }
        for (netns, name) in [(&kernel, "eth0"), (&ours, "eth1")] {
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
            // One request for each address.
            let once = || {
                for entry in std::fs::read_dir("/proc/sys/net/ipv4/neigh").unwrap() {
                    let file = entry.unwrap().path().join("mcast_solicit");
                    std::fs::write(file, "1").unwrap();
                }
            };
            netns.enter(once).unwrap();
        }
        let sockets = ["eth0", "eth1"].map(|name| FrameSocket::open(&client, name).unwrap());
        Twins {
            kernel,
            ours: Router::new(ours),
            sockets,
        }
    }

    fn netns(&self) -> [&Netns; 2] {
        [&self.kernel, &self.ours.netns]
    }

    /// Loads rules without the lines of a table.
    fn load(&self, rules: &[&str]) {
        let text = arp(rules);
        let script = self.ours.file("script", &arp_script(&text));
        self.kernel.run(&["sh", "-e", &script]).unwrap();
        let file = self.ours.file("rules.arp", &text);
        self.ours.done(&["load", &file]);
    }

    fn send(&self, frame: &[u8]) {
        for socket in &self.sockets {
            socket.send(frame).unwrap();
        }
    }

    /// Lets both routers look for an address of their network.
    fn look_for(&self, address: &str) {
        for netns in self.netns() {
            let send = || {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                // It has no answer.
                let _ = socket.send_to(b"x", (address, 9));
            };
            netns.enter(send).unwrap();
        }
    }

    /// The number of rules and policies that counted packets, after both have the same counters.
    fn agree(&self) -> usize {
        let begin = Instant::now();
        loop {
            let list = ["arptables-legacy", "-L", "-n", "-v", "-x"];
            let mut kernel = read_arp_list(&self.kernel.run(&list).unwrap());
            let mut ours = read_save(&self.ours.done(&["counters", "--family", "arp"]));
            for counts in [&mut kernel, &mut ours] {
                counts.retain(|count| count.chain != "FORWARD");
                counts.sort();
            }
            if ours == kernel {
                return ours.iter().filter(|count| count.packets > 0).count();
            }
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "{kernel:#?}\n{ours:#?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// ARP packets that the client gets from each router, by operation and target.
    fn received(&mut self) -> [BTreeMap<(u8, [u8; 4]), u32>; 2] {
        self.sockets.each_mut().map(|socket| {
            let mut all = BTreeMap::new();
            while let Some(frame) = socket.receive() {
                if frame.len() >= 42 && frame[12..14] == [8, 6] && frame[6..12] != CLIENT {
                    let target = frame[38..42].try_into().unwrap();
                    *all.entry((frame[21], target)).or_default() += 1;
                }
            }
            all
        })
    }
}

/// A table of arptables with these rules.
fn arp(rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    format!("*filter\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:FORWARD ACCEPT\n{rules}\n")
}

/// An ARP packet of the client: 1 request, 2 reply.
fn packet(to: [u8; 6], operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = [&to[..], &CLIENT, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend(CLIENT);
    frame.extend(sender);
    frame.extend([0; 6]);
    frame.extend(target);
    frame.resize(60, 0);
    frame
}

/// Received and sent packets of interfaces, and of processes.
fn exchange(twins: &mut Twins, interfaces: &[&str]) {
    let [own, client, blocked] = [[10, 1, 0, 1], [10, 1, 0, 2], [10, 1, 0, 66]];
    let lan = [2, 0, 0, 0, 0xa, 1];
    for to in [BROADCAST, lan, [2, 0, 0, 0, 0xa, 9], [1, 0, 0x5e, 0, 0, 1]] {
        for sender in [client, blocked] {
            for operation in [1, 2, 3] {
                twins.send(&packet(to, operation, sender, own));
            }
        }
    }
    // Looks again for the client, which does not answer.
    for netns in twins.netns() {
        let _ = netns.run(&["ip", "neigh", "flush", "all"]);
    }
    for address in ["10.1.0.7", "10.1.0.8", "10.2.0.7"] {
        twins.look_for(address);
    }
    for netns in twins.netns() {
        for interface in interfaces {
            let socket = FrameSocket::open(netns, interface).unwrap();
            socket.send(&packet(BROADCAST, 1, own, client)).unwrap();
        }
    }
}

/// Rules that name each of these interfaces, and drop some packets.
fn rules(interfaces: &[&str]) -> Vec<String> {
    let mut rules = Vec::new();
    for interface in interfaces {
        rules.push(format!("INPUT -i {interface}"));
        rules.push(format!("OUTPUT -o {interface}"));
        rules.push(format!("OUTPUT -o {interface} --opcode 1"));
    }
    let more = [
        "INPUT -j DROP -s 10.1.0.66",
        "INPUT -j MARK --set-mark 7",
        "OUTPUT -j DROP -d 10.1.0.8",
        "OUTPUT -j CLASSIFY --set-class 1:3 --opcode 1",
    ];
    rules.extend(more.map(str::to_owned));
    rules
}

fn agree(interfaces: &[&str], more: &[&str]) {
    requires!(
        Need::Root,
        Need::Tool("arptables-legacy"),
        Need::Tool("nft")
    );
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed, more);
    let rules = rules(interfaces);
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    twins.load(&rules);
    let marked = "table arp marked {\n counter seven { }\n chain input {\n\
        type filter hook input priority 300;\n meta mark 7 counter name seven\n }\n}\n";
    let marked = twins.ours.file("marked", marked);
    let class = ["1:2", "1:3"];
    for netns in twins.netns() {
        netns.run(&["nft", "-f", &marked]).unwrap();
        let root = "tc qdisc add dev lan root handle 1: htb default 2";
        netns.run(&root.split(' ').collect::<Vec<_>>()).unwrap();
        for class in class {
            let add = format!("tc class add dev lan parent 1: classid {class} htb rate 1gbit");
            netns.run(&add.split(' ').collect::<Vec<_>>()).unwrap();
        }
    }
    let before = twins.received();
    drop(before);
    exchange(&mut twins, interfaces);
    assert!(twins.agree() > rules.len() / 2, "{}", twins.agree());
    let of_class = |netns: &Netns| {
        let text = netns
            .run(&["tc", "-s", "class", "show", "dev", "lan"])
            .unwrap();
        let sent = text.lines().filter(|line| line.contains("Sent"));
        sent.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    let of_mark = |netns: &Netns| {
        let text = netns.run(&["nft", "list", "counter", "arp", "marked", "seven"]);
        let text = text.unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").unwrap();
        words[at + 1].parse::<u64>().unwrap()
    };
    let [kernel, ours] = twins.netns().map(|netns| (of_class(netns), of_mark(netns)));
    assert_eq!(ours, kernel);
    assert!(
        kernel.1 > 0 && kernel.0.iter().all(|line| !line.contains("Sent 0 ")),
        "{kernel:?}"
    );
    let [kernel, ours] = twins.received();
    assert_eq!(ours, kernel);
    assert!(!kernel.contains_key(&(1, [10, 1, 0, 8])), "{kernel:?}");
    assert!(kernel.contains_key(&(1, [10, 1, 0, 7])), "{kernel:?}");
}

#[test]
fn arp_of_a_card_is_the_kernels() {
    agree(&["lan"], &["addr add 10.1.0.1/24 dev lan"]);
}

/// A port has addresses, too: it sends its own ARP, and the bridge receives.
#[test]
fn arp_of_bridges_is_the_kernels() {
    agree(
        &["br0", "lan"],
        &[
            "link add br0 type bridge mcast_snooping 0",
            "link set br0 address 02:00:00:00:0a:01",
            "link set br0 up",
            "link set lan master br0",
            "addr add 10.1.0.1/24 dev br0",
            "addr add 10.2.0.1/24 dev lan",
        ],
    );
}

/// A device above a card sends by it, and the card receives its own packets.
#[test]
fn arp_of_macvlans_is_the_kernels() {
    agree(
        &["mv0", "lan"],
        &[
            "link add link lan name mv0 address 02:00:00:00:0a:09 type macvlan mode bridge",
            "link set mv0 up",
            "addr add 10.1.0.1/24 dev mv0",
            "addr add 10.2.0.1/24 dev lan",
        ],
    );
}

/// The interfaces with programs of arptables at tcx.
fn with_programs(router: &Router) -> Vec<String> {
    let shown: serde_json::Value =
        serde_json::from_str(&router.done(&["show", "--format", "json"])).unwrap();
    serde_json::from_value(shown["arp_interfaces"].clone()).unwrap_or_default()
}

/// True if a request of the client has an answer.
fn answers(twins: &mut Twins) -> bool {
    twins.received();
    let request = packet(BROADCAST, 1, [10, 1, 0, 2], [10, 1, 0, 1]);
    twins.sockets[1].send(&request).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) {
        if twins.received()[1].contains_key(&(2, [10, 1, 0, 2])) {
            return true;
        }
    }
    false
}

const ADDRESS: [&str; 1] = ["addr add 10.1.0.1/24 dev lan"];

#[test]
fn arp_rules_live_with_those_of_ip() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let mut twins = Twins::new(&testbed, &ADDRESS);
    let ip = |verdict: &str| filter(&[&format!("INPUT -p udp -m udp --dport 7001 -j {verdict}")]);
    let drop_client = "INPUT -j DROP -s 10.1.0.2";
    let files = |twins: &Twins, verdict: &str, rules: &[&str]| {
        let router = &twins.ours;
        [
            router.file("rules.v4", &ip(verdict)),
            router.file("rules.arp", &arp(rules)),
        ]
    };
    assert!(answers(&mut twins));
    let [v4, arps] = files(&twins, "DROP", &[drop_client]);
    let loaded = twins.ours.done(&["load", &v4, &arps]);
    assert!(loaded.contains("loaded 2 rules"), "{loaded}");
    assert!(!answers(&mut twins) && !arrives(&twins.ours.netns, 7001));
    assert_eq!(with_programs(&twins.ours), ["lan", "lo"]);
    assert_eq!(twins.ours.packets("-s 10.1.0.2 "), 1);
    // Refused loads leave them.
    let refused = [
        (
            "INPUT -j mangle --mangle-ip-s 10.1.0.3",
            "bad.arp:5: filter INPUT: mangle is not evaluated",
        ),
        (
            "FORWARD -s 10.1.0.3",
            "bad.arp:5: filter FORWARD: arptables has FORWARD",
        ),
        ("INPUT -j CLASSIFY --set-class 1:1", "bad.arp:5"),
    ];
    for (rule, message) in refused {
        let bad = twins.ours.file("bad.arp", &arp(&[rule]));
        let printed = twins.ours.fails(&["load", &v4, &bad, "--defer"]);
        assert!(
            printed.contains(message) && printed.contains("nothing was changed"),
            "{printed}"
        );
    }
    let bad = twins.ours.file(
        "bad.arp",
        &arp(&[]).replace("FORWARD ACCEPT", "FORWARD DROP"),
    );
    let printed = twins.ours.fails(&["load", &v4, &bad]);
    assert!(printed.contains("bad.arp:4: filter FORWARD"), "{printed}");
    let printed = twins.ours.fails(&["load", "--shadow", &arps]);
    assert!(
        printed.contains("rules.arp: rules of arptables cannot be tried"),
        "{printed}"
    );
    assert_eq!(twins.ours.packets("-s 10.1.0.2 "), 1);
    // Refused loads leave them.
    let refused = [
        (
            "INPUT -j mangle --mangle-ip-s 10.1.0.3",
            "bad.arp:5: filter INPUT: mangle is not evaluated",
        ),
        (
            "FORWARD -s 10.1.0.3",
            "bad.arp:5: filter FORWARD: arptables has FORWARD",
        ),
        ("INPUT -j CLASSIFY --set-class 1:1", "bad.arp:5"),
    ];
    for (rule, message) in refused {
        let bad = twins.ours.file("bad.arp", &arp(&[rule]));
        let printed = twins.ours.fails(&["load", &v4, &bad, "--defer"]);
        assert!(
            printed.contains(message) && printed.contains("nothing was changed"),
            "{printed}"
        );
    }
    let bad = twins.ours.file(
        "bad.arp",
        &arp(&[]).replace("FORWARD ACCEPT", "FORWARD DROP"),
    );
    let printed = twins.ours.fails(&["load", &v4, &bad]);
    assert!(printed.contains("bad.arp:4: filter FORWARD"), "{printed}");
    let printed = twins.ours.fails(&["load", "--shadow", &arps]);
    assert!(
        printed.contains("rules.arp: rules of arptables cannot be tried"),
        "{printed}"
    );
    assert_eq!(twins.ours.packets("-s 10.1.0.2 "), 1);
    assert!(!answers(&mut twins) && !arrives(&twins.ours.netns, 7001));
    // One switch for both families, and back.
    let [v4, arps] = files(&twins, "ACCEPT", &["INPUT -s 10.1.0.2", drop_client]);
    let other = twins.ours.file("other.arp", &arp(&["INPUT -s 10.1.0.2"]));
    twins.ours.done(&["load", &v4, &other, "--confirm", "2s"]);
    assert!(answers(&mut twins) && arrives(&twins.ours.netns, 7001));
    std::thread::sleep(Duration::from_millis(2100));
    assert!(!answers(&mut twins) && !arrives(&twins.ours.netns, 7001));
    // Rules that stay keep their counters.
    twins.ours.done(&["load", &v4, &arps]);
    assert_eq!(twins.ours.packets("DROP -s 10.1.0.2 "), 3);
    // Commands edit them.
    let edit = |twins: &Twins, words: &str| {
        let mut command = twins.ours.command(&["apply", "--loaded"]);
        let output = command.arg("--").args(words.split(' ')).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
    };
    edit(&twins, "arptables -D INPUT 2");
    edit(&twins, "arptables -A OUTPUT -j DROP --opcode 2");
    assert!(!answers(&mut twins));
    assert_eq!(twins.ours.packets("--opcode 2 "), 1);
    twins.ours.done(&["load", &v4]);
    assert!(answers(&mut twins));
    assert_eq!(with_programs(&twins.ours), [""; 0]);
    // The first rules of arptables may come by a command.
    edit(&twins, "arptables -A INPUT -j DROP");
    assert_eq!(with_programs(&twins.ours), ["lan", "lo"]);
    assert!(!answers(&mut twins));
    twins.ours.done(&["unload"]);
    assert!(answers(&mut twins));
    let pins = std::fs::read_dir(twins.ours.place.path("pins")).unwrap();
    let mut pins = pins.map(|pin| pin.unwrap().file_name());
    assert!(pins.all(|pin| pin.to_string_lossy().contains('.')));
}

/// Interfaces that appear later, and are renamed or created again.
#[test]
fn new_interfaces_get_rules_of_arp() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed, &ADDRESS);
    let router = &twins.ours;
    let file = router.file("rules.arp", &arp(&["INPUT -i new -j DROP"]));
    router.done(&["load", &file]);
    let ip = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        router.netns.run(&words).unwrap();
    };
    ip("ip link add new type veth peer name other");
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("arptables at tcx of 2 interfaces"),
        "{shown}"
    );
    assert!(
        shown.contains(
            "interfaces without rules of arptables: new, other: `fairpath rules follow --once`"
        ),
        "{shown}"
    );
    let printed = router.done(&["follow", "--once"]);
    assert_eq!(
        printed,
        "new: rules of arptables\nother: rules of arptables\n"
    );
    assert_eq!(router.done(&["follow", "--once"]), "");
    assert_eq!(with_programs(router), ["lan", "lo", "new", "other"]);
    ip("ip link set new name newer");
    assert_eq!(with_programs(router), ["lan", "lo", "newer", "other"]);
    ip("ip link del newer");
    assert_eq!(with_programs(router), ["lan", "lo"]);
    ip("ip link add new type veth peer name other");
    router.done(&["load", &file]);
    assert_eq!(with_programs(router), ["lan", "lo", "new", "other"]);
    // Pins of interfaces that were removed are not left.
    let pins = || {
        let pins = std::fs::read_dir(router.place.path("pins")).unwrap();
        let pins = pins.map(|pin| pin.unwrap().file_name());
        pins.filter(|pin| pin.to_string_lossy().starts_with("rules-arp-"))
            .count()
    };
    assert_eq!(pins(), 8);
    // A process follows them.
    let mut follow = router.command(&["follow"]);
    let mut follow = follow.stdout(Stdio::piped()).spawn().unwrap();
    ip("ip link add late type veth peer name later");
    let lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let printed: Vec<String> = lines.take(2).map(Result::unwrap).collect();
    assert_eq!(
        printed,
        ["late: rules of arptables", "later: rules of arptables"]
    );
    assert_eq!(pins(), 12);
    ip("ip link del late");
    let begin = Instant::now();
    while pins() > 8 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{}", pins());
        std::thread::sleep(Duration::from_millis(20));
    }
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(!router.done(&["show"]).contains("without rules"));
}

/// A killed load leaves the old rules of both families or the new ones.
#[test]
fn killed_loads_leave_whole_sets_of_arp() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let twins = Twins::new(&testbed, &ADDRESS);
    let router = &twins.ours;
    let sets = ["one", "two"].map(|name| {
        let v4 = filter(&[&format!(
            "INPUT -p udp -m udp --dport 7001 -m comment --comment {name}"
        )]);
        let number = if name == "one" { 1 } else { 2 };
        let arps = arp(&[&format!("INPUT -s 10.1.0.{number}")]);
        [
            router.file(&format!("{name}.v4"), &v4),
            router.file(&format!("{name}.arp"), &arps),
        ]
    });
    let load = |[v4, arps]: &[String; 2]| {
        let begin = Instant::now();
        router.done(&["load", v4, arps]);
        begin.elapsed()
    };
    // The first load also prepares the programs.
    let (first, next) = (load(&sets[0]), load(&sets[1]));
    let mut killed = 0;
    for (at, seed) in test_seeds(20).enumerate() {
        let [v4, arps] = &sets[at % 2];
        killed += u32::from(router.kill_in(&["load", v4, arps], next, seed));
        let counters = router.done(&["counters"]);
        let is_one = counters.contains("--comment one");
        assert_eq!(counters.contains("-s 10.1.0.1 "), is_one, "{counters}");
        assert_ne!(counters.contains("-s 10.1.0.2 "), is_one, "{counters}");
        if seed % 4 == 0 {
            router.rules(&["unload"]);
            killed += u32::from(router.kill_in(&["load", v4, arps], first, seed >> 2));
            router.done(&["load", v4, arps]);
        }
        assert_eq!(with_programs(router), ["lan", "lo"]);
    }
    assert!(killed > 0);
}
