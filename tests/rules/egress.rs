//! Rules that change packets behind POSTROUTING: frames, marks, priorities and counters are those of
//! iptables-legacy in another namespace, which forwards the same packets.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fairpath_statistics::Random;
use fairpath_testbed::{FrameSocket, Need, Netns, Testbed, requires};
use fairpath_tests::{Daemon, Place};
use fairpath_units::test_seeds;
use fairpath_wire::ip::Ecn;
use fairpath_wire::tcp::{Flags, TcpOption};
use fairpath_wire::{Frame, icmp, ipv4, ipv6, tcp};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::live::{Router, tables};

pub const CLIENT: [u8; 6] = [2, 0, 0, 0, 0xc, 1];
pub const LAN: [u8; 6] = [2, 0, 0, 0, 0xa, 1];
pub const WAN: [u8; 6] = [2, 0, 0, 0, 0xa, 2];
pub const FAR: [u8; 6] = [2, 0, 0, 0, 0xf, 1];
/// Clients: the last one's source is translated.
pub const CLIENTS: [u8; 4] = [2, 3, 20, 40];
const MARKS: [u32; 7] = [1, 5, 9, 11, 0x10, 0x110, 0x101];
pub const TOOLS: [Need; 5] = [
    Need::Root,
    Need::Tool("iptables-legacy"),
    Need::Tool("ip6tables-legacy"),
    Need::Tool("ethtool"),
    Need::Tool("nft"),
];

/// A router: `lan` leads to the client, and `wan` to `far`, where frames are seen and end.
pub struct Side {
    pub netns: Netns,
    pub client: FrameSocket,
    pub far: FrameSocket,
}

impl Side {
    pub fn new(netns: Netns, client: &Netns, name: &str) -> Side {
        let path = client.path();
        let mut lines = vec![
            "link set lo up".to_owned(),
            format!("link add lan type veth peer name {name} netns {path}"),
            "link add wan type veth peer name far".to_owned(),
        ];
        for line in [
            "link set lan address 02:00:00:00:0a:01",
            "link set wan address 02:00:00:00:0a:02",
            "link set far address 02:00:00:00:0f:01",
            "link set lan up",
            "link set wan up",
            "link set far up",
            "addr add 10.1.0.1/24 dev lan",
            "addr add 10.2.0.1/24 dev wan",
            "addr add fd00:1::1/64 dev lan nodad",
            "addr add fd00:2::1/64 dev wan nodad",
            "neigh add 10.2.0.9 lladdr 02:00:00:00:0f:01 dev wan",
            "neigh add fd00:2::9 lladdr 02:00:00:00:0f:01 dev wan",
        ] {
            lines.push(line.to_owned());
        }
        for host in CLIENTS {
            for address in [format!("10.1.0.{host}"), format!("fd00:1::{host}")] {
                lines.push(format!(
                    "neigh add {address} lladdr 02:00:00:00:0c:01 dev lan"
                ));
            }
        }
        netns.ip_batch(&lines).unwrap();
        client.ip_batch(&[format!("link set {name} up")]).unwrap();
        netns
            .set_sysctls(&[
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv6.conf.all.forwarding", "1"),
                ("net.ipv6.conf.far.disable_ipv6", "1"),
            ])
            .unwrap();
        // Frames are to arrive as they were sent.
        for device in ["lan", "wan", "far"] {
            let off = [
                "ethtool", "-K", device, "gro", "off", "gso", "off", "tx", "off",
            ];
            netns.run(&off).unwrap();
        }
        let htb = [
            "tc", "qdisc", "add", "dev", "wan", "root", "handle", "1:", "htb", "default", "9",
        ];
        netns.run(&htb).unwrap();
        for class in ["1:1", "1:5", "1:9"] {
            let class = [
                "tc", "class", "add", "dev", "wan", "parent", "1:", "classid", class, "htb",
                "rate", "10gbit", "quantum", "2000",
            ];
            netns.run(&class).unwrap();
        }
        let nft = "add table inet marks\n\
            add chain inet marks connections { type filter hook prerouting priority -140; }\n\
            add rule inet marks connections udp dport 77 ct mark set 5\n";
        let place = Place::new();
        place.write("marks.nft", nft);
        let path = place.path("marks.nft");
        netns.run(&["nft", "-f", path.to_str().unwrap()]).unwrap();
        Side {
            client: FrameSocket::open(client, name).unwrap(),
            far: FrameSocket::open(&netns, "far").unwrap(),
            netns,
        }
    }

    /// Frames that arrived since, if they are for these hosts.
    pub fn seen(socket: &mut FrameSocket, to: [u8; 6]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some(frame) = socket.receive() {
            if frame[..6] == to {
                frames.push(frame);
            }
        }
        frames
    }

    /// Packets of the classes of `wan` that rules name.
    fn classes(&self) -> Vec<String> {
        let shown = self.netns.run(&["tc", "-s", "class", "show", "dev", "wan"]);
        let lines: Vec<String> = shown.unwrap().lines().map(str::to_owned).collect();
        // The last one has what rules do not name, such as reports of neighbours.
        let sent = lines
            .windows(2)
            .filter(|pair| pair[0].starts_with("class htb") && !pair[0].contains("1:9"));
        let word = |line: &str, at: usize| line.split_whitespace().nth(at).unwrap().to_owned();
        let mut counts: Vec<String> = sent
            .map(|pair| {
                format!(
                    "{} {} {}",
                    word(&pair[0], 2),
                    word(&pair[1], 1),
                    word(&pair[1], 3)
                )
            })
            .collect();
        counts.sort();
        counts
    }
}

/// Marks that `far` sees, and the end of frames there.
fn observer() -> String {
    let mut out = String::from("*raw\n:PREROUTING ACCEPT [0:0]\n");
    for mark in MARKS {
        out += &format!("-A PREROUTING -i far -m mark --mark {mark:#x}\n");
    }
    out + "-A PREROUTING -i far -m mark --mark 0x0\n-A PREROUTING -i far -j DROP\nCOMMIT\n"
}

/// Rules of one family that mark and change packets, and table nat.
fn rules(is_ipv4: bool) -> String {
    let (net, far, own, icmp) = match is_ipv4 {
        true => ("10.1.0", "10.2.0.9", "10.2.0.1", "icmp"),
        false => ("fd00:1:", "fd00:2::9", "fd00:2::1", "ipv6-icmp"),
    };
    let (few, translated, elsewhere, hops) = match is_ipv4 {
        true => ("10.1.0.0/29", "10.1.0.32/27", "10.3.0.0/16", "TTL --ttl"),
        false => ("fd00:1::/125", "fd00:1::40/128", "fd00:3::/64", "HL --hl"),
    };
    let matches_hops = if is_ipv4 { "ttl --ttl" } else { "hl --hl" };
    let host = CLIENTS[3];
    format!(
        "*mangle
:POSTROUTING ACCEPT [0:0]
:marked - [0:0]
:back - [0:0]
-A POSTROUTING -d {far} -o wan -j marked
-A POSTROUTING -o lan -m conntrack --ctstate ESTABLISHED -j back
-A marked -s {few} -p udp -m udp --dport 53 -j MARK --set-mark 1
-A marked -s {net}{sep}{host} -p tcp -j MARK --set-mark 11
-A marked -p udp -m udp --sport 5000:5010 -j MARK --set-xmark 0x10/0xf0
-A marked -p udp -m udp --dport 77 -j CONNMARK --restore-mark
-A marked -p udp -m udp --dport 55 -j CONNMARK --set-xmark 0x20/0xf0
-A marked -p tcp -m mark ! --mark 0x0 -j CONNMARK --save-mark
-A marked -p udp -m udp --dport 53 -j CONNMARK --save-mark --nfmask 0x0f --ctmask 0xff
-A marked -m connmark --mark 0x20/0xf0
-A marked -p udp -m conntrack --ctstate NEW -m udp --dport 54 -j MARK --or-mark 0x100
-A marked -m length --length 1000:65535 -j MARK --set-mark 9
-A marked -m mark --mark 0x1 -j CLASSIFY --set-class 1:1
-A marked -m mark --mark 0x5 -j CLASSIFY --set-class 1:5
-A marked -m owner --uid-owner 0 -j CLASSIFY --set-class 1:5
-A marked -p udp -m udp --dport 54 -j DSCP --set-dscp 46
-A marked -p udp -m udp --dport 55 -j TOS --set-tos 0x10/0x3f
-A marked -p {icmp} -j {hops}-inc 3
-A marked -m {matches_hops}-lt 9 -j {hops}-set 77
-A marked -p tcp -m tcp --dport 81 --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 900
-A back -s {far} -j DSCP --set-dscp 10
-A back -m connmark --mark 0x20/0xf0 -j MARK --set-mark 3
-A back -m connmark --mark 0x1
-A back -p udp -m udp --sport 54 -j CONNMARK --set-mark 0x40
-A back -d {net}{sep}{host} -j TOS --set-tos 0x04/0x04
-A back -p udp -j {hops}-dec 5
COMMIT
*nat
-A PREROUTING -d {elsewhere} -i lan -j DNAT --to-destination {far}
-A POSTROUTING -s {translated} -o wan -j SNAT --to-source {own}
COMMIT
",
        sep = if is_ipv4 { "." } else { ":" }
    )
}

/// Options of a SYN: the MSS at even and odd offsets, twice, broken, or missing.
fn options(random: &mut Random) -> Vec<TcpOption> {
    let mss = |random: &mut Random| TcpOption::Mss([536, 900, 901, 1460, 65535][random.index(5)]);
    let mut all = vec![
        TcpOption::Nop,
        TcpOption::Nop,
        TcpOption::SackPermitted,
        TcpOption::WindowScale(7),
    ];
    match random.below(4) {
        0 => vec![mss(random)],
        1 => Vec::new(),
        2 => {
            all.truncate(random.index(5));
            all.push(mss(random));
            all
        }
        _ => all,
    }
}

/// A packet of a client to `far`, perhaps by another address.
fn packet(random: &mut Random, is_ipv4: bool) -> Frame {
    let host = CLIENTS[random.index(CLIENTS.len())];
    let dnat = random.one_in(5);
    let ttl = [64, 2, 9, 10, 11, 255][random.index(6)];
    let tos = [0, 0x10, 0xb8, 0x03, 0xff][random.index(5)];
    let link = Frame::ethernet(CLIENT, LAN);
    let frame = if is_ipv4 {
        let from = [10, 1, 0, host].into();
        let to: [u8; 4] = if dnat { [10, 3, 4, 5] } else { [10, 2, 0, 9] };
        link.ipv4_header(ipv4::Header {
            ttl,
            dscp: tos >> 2,
            ecn: Ecn::from_bits(tos & 3),
            options: vec![1; 4 * usize::from(random.one_in(10))],
            ..ipv4::Header::new(from, to.into())
        })
    } else {
        let from = format!("fd00:1::{host}").parse().unwrap();
        let to = if dnat { "fd00:3::5" } else { "fd00:2::9" };
        let extensions = match random.one_in(10) {
            true => vec![ipv6::Extension::DestinationOptions(vec![1, 4, 0, 0, 0, 0])],
            false => Vec::new(),
        };
        link.ipv6_header(ipv6::Header {
            hop_limit: ttl,
            dscp: tos >> 2,
            ecn: Ecn::from_bits(tos & 3),
            extensions,
            ..ipv6::Header::new(from, to.parse().unwrap())
        })
    };
    // Others for each host and destination, so that no translation has to choose one.
    let port = 4990 + u16::from(host) + random.below(4) as u16 + 1000 * u16::from(dnat);
    let bytes = [0, 5, 64, 1100][random.index(4)];
    match random.below(6) {
        0..3 => {
            let to = [53, 54, 55, 77, 9][random.index(5)];
            frame.udp(port, to).zeros(bytes)
        }
        3 => {
            let flags = [Flags::SYN, Flags::SYN, Flags::ACK][random.index(3)];
            let bytes = if random.one_in(4) { bytes } else { 0 };
            let header = tcp::Header {
                src_port: port,
                dst_port: if random.one_in(4) { 80 } else { 81 },
                seq: random.below(1 << 32) as u32,
                flags,
                options: options(random),
                ..tcp::Header::default()
            };
            frame.tcp(header).zeros(bytes)
        }
        _ => {
            let id = u16::from(host) + 1000 * u16::from(dnat);
            frame
                .icmp(icmp::Message::EchoRequest { id, seq: 1 })
                .zeros(bytes)
        }
    }
}

/// The answers of `far` to frames that it saw: the same with the ends exchanged.
fn answers(seen: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let udp = seen.iter().filter(|frame| {
        let (at, next) = if frame[12] == 8 {
            (34, frame[23])
        } else {
            (54, frame[20])
        };
        next == 17 && frame.len() >= at + 8 && (frame[12] != 8 || frame[14] == 0x45)
    });
    udp.map(|frame| {
        let mut frame = frame.clone();
        frame[..6].copy_from_slice(&WAN);
        frame[6..12].copy_from_slice(&FAR);
        let (from, bytes, at) = if frame[12] == 8 {
            (26, 4, 34)
        } else {
            (22, 16, 54)
        };
        for byte in 0..bytes {
            frame.swap(from + byte, from + bytes + byte);
        }
        frame.swap(at, at + 2);
        frame.swap(at + 1, at + 3);
        frame
    })
    .collect()
}

/// Sends frames into a router, and returns those that leave it.
pub fn pass(
    from: &FrameSocket,
    frames: &[Vec<u8>],
    to: &mut FrameSocket,
    mac: [u8; 6],
) -> Vec<Vec<u8>> {
    // Errors that the router sent before.
    Side::seen(to, mac);
    let mut seen = Vec::new();
    for part in frames.chunks(50) {
        for frame in part {
            from.send(frame).unwrap();
        }
        let (begin, wanted) = (Instant::now(), seen.len() + part.len());
        // A refused packet never arrives.
        while seen.len() < wanted && begin.elapsed() < Duration::from_millis(300) {
            seen.extend(Side::seen(to, mac));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    seen
}

/// The offset of the TCP header, behind options of IPv4 or a short extension header.
fn tcp_at(frame: &[u8]) -> usize {
    match (frame[12], frame[20]) {
        (8, _) => 14 + 4 * usize::from(frame[14] & 15),
        (_, 6) => 54,
        _ => 62,
    }
}

/// The checksum over a TCP packet: 0 with a right one in it, and the right one with 0.
fn checksum(frame: &[u8]) -> u16 {
    let addresses = if frame[12] == 8 { 26..34 } else { 22..54 };
    let tcp = tcp_at(frame);
    let mut bytes = frame[addresses].to_vec();
    bytes.extend(((frame.len() - tcp) as u32).to_be_bytes());
    bytes.extend([0, 6]);
    bytes.extend(&frame[tcp..]);
    fairpath_wire::checksum::checksum(&bytes)
}

/// Corrects the TCP checksum.
pub fn correct_checksum(frame: &mut [u8]) {
    let at = tcp_at(frame) + 16;
    frame[at..at + 2].fill(0);
    let sum = checksum(frame);
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Compares frames. iptables corrects a checksum as if each MSS were at an even offset; returns how many are
/// wrong for that reason.
pub fn compare(ours: &[Vec<u8>], theirs: &[Vec<u8>]) -> usize {
    assert_eq!(ours.len(), theirs.len());
    let mut wrong = 0;
    for (number, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        if ours == theirs {
            continue;
        }
        let at = tcp_at(ours) + 16;
        let mut same = theirs.clone();
        same[at..at + 2].copy_from_slice(&ours[at..at + 2]);
        assert_eq!(*ours, same, "frame {number}");
        assert!(
            checksum(ours) == 0 && checksum(theirs) != 0,
            "frame {number}: {ours:?}"
        );
        wrong += 1;
    }
    wrong
}

/// Lines of counters of chains of the user, and of `far`.
fn counters(save: &str, table: &str) -> Vec<String> {
    let lines = tables(save).remove(table).unwrap_or_default();
    let of_user = |line: &String| {
        ["-A marked", "-A back", "-A PREROUTING -i far"]
            .iter()
            .any(|chain| line.contains(chain))
    };
    lines.into_iter().filter(of_user).collect()
}

#[test]
fn changed_packets_are_those_of_iptables() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    for seed in test_seeds(2) {
        let testbed = Testbed::new();
        let [client, theirs, ours] =
            ["client", "iptables", "ours"].map(|name| testbed.netns(name).unwrap());
        client
            .set_sysctls(&[("net.ipv6.conf.all.disable_ipv6", "1")])
            .unwrap();
        let mut theirs = Side::new(theirs, &client, "eth0");
        let mut ours = Side::new(ours, &client, "eth1");
        let router = Router::new(ours.netns.clone());
        let files = [("rules.v4", true), ("rules.v6", false)]
            .map(|(name, is_ipv4)| router.file(name, &rules(is_ipv4)));
        let observer = router.file("observer", &observer());
        for (tool, file) in ["iptables", "ip6tables"].iter().zip(&files) {
            let restore = format!("{tool}-legacy-restore");
            theirs.netns.run(&[&restore, file]).unwrap();
            for side in [&theirs, &ours] {
                side.netns.run(&[&restore, "--noflush", &observer]).unwrap();
            }
        }
        router.done(&["load", &files[0], &files[1]]);
        let mut random = Random::new(seed);
        let frames: Vec<Vec<u8>> = (0..2000)
            .map(|_| {
                let is_ipv4 = random.one_in(2);
                packet(&mut random, is_ipv4).build()
            })
            .collect();
        let passed =
            [&mut theirs, &mut ours].map(|side| pass(&side.client, &frames, &mut side.far, FAR));
        let wrong = compare(&passed[1], &passed[0]);
        assert!(wrong < 100, "{wrong}");
        assert!(passed[0].len() > 1500, "{}", passed[0].len());
        assert!(
            passed[0]
                .iter()
                .zip(&frames)
                .any(|(one, other)| one != other)
        );
        // The way back.
        let back = answers(&passed[0]);
        let returned =
            [&mut theirs, &mut ours].map(|side| pass(&side.far, &back, &mut side.client, CLIENT));
        assert_eq!(compare(&returned[1], &returned[0]), 0);
        assert!(returned[0].len() > 500, "{}", returned[0].len());
        // The router's own packets have an owner.
        for side in [&theirs, &ours] {
            let send = || {
                let socket = UdpSocket::bind("10.2.0.1:6000").unwrap();
                for port in [53, 54, 55, 77] {
                    socket.send_to(b"own", ("10.2.0.9", port)).unwrap();
                }
            };
            side.netns.enter(send).unwrap();
        }
        for (family, tool) in [("ipv4", "iptables"), ("ipv6", "ip6tables")] {
            let save = format!("{tool}-legacy-save");
            let saves = [&theirs, &ours].map(|side| side.netns.run(&[&save, "-c"]).unwrap());
            assert_eq!(counters(&saves[1], "raw"), counters(&saves[0], "raw"));
            let of_ours = counters(&router.done(&["counters", "--family", family]), "mangle");
            assert_eq!(of_ours, counters(&saves[0], "mangle"));
            assert!(
                of_ours
                    .iter()
                    .any(|line| line.contains("-A back -m connmark") && !line.starts_with("[0:")),
                "{of_ours:?}"
            );
            let unused = of_ours.iter().filter(|line| line.starts_with("[0:0]"));
            assert!(
                unused.count() <= usize::from(family == "ipv6"),
                "{of_ours:#?}"
            );
        }
        assert_eq!(ours.classes(), theirs.classes());
    }
}

/// Connections get marks also in zones, of both directions and of one.
#[test]
fn connections_in_zones_get_marks() {
    let [root, iptables, _, ethtool, nft] = TOOLS;
    requires!(root, iptables, ethtool, nft);
    let testbed = Testbed::new();
    let [client, ours] = ["client", "ours"].map(|name| testbed.netns(name).unwrap());
    let mut side = Side::new(ours, &client, "eth0");
    let router = Router::new(side.netns.clone());
    for (at, zone) in ["--zone 7", "--zone-orig 8", "--zone-reply 9"]
        .iter()
        .enumerate()
    {
        let words = format!("iptables-legacy -t raw -I PREROUTING -j CT {zone}");
        let words: Vec<&str> = words.split(' ').collect();
        side.netns.run(&words).unwrap();
        let end = "iptables-legacy -t raw -A PREROUTING -i far -j DROP";
        let end: Vec<&str> = end.split(' ').collect();
        side.netns.run(&end).unwrap();
        let mark = at + 1;
        let text = mangle(&[
            &format!("POSTROUTING -o wan -p udp -m udp --dport 9 -j CONNMARK --set-mark {mark}"),
            &format!("POSTROUTING -o lan -m connmark --mark {mark}"),
        ]);
        let file = router.file("zones.v4", &text);
        router.done(&["load", &file]);
        router.done(&["counters", "--zero"]);
        let frames: Vec<Vec<u8>> = (0..20)
            .map(|port| {
                let header = ipv4::Header::new([10, 1, 0, CLIENTS[0]].into(), [10, 2, 0, 9].into());
                let frame = Frame::ethernet(CLIENT, LAN).ipv4_header(header);
                frame.udp(7000 + 100 * at as u16 + port, 9).build()
            })
            .collect();
        let passed = pass(&side.client, &frames, &mut side.far, FAR);
        assert_eq!(passed.len(), 20, "{zone}");
        // An answer comes from the other side of the zone's direction.
        let back = pass(&side.far, &answers(&passed), &mut side.client, CLIENT);
        assert_eq!(back.len(), 20, "{zone}");
        let counters = router.done(&["counters"]);
        let marked = format!("-A POSTROUTING -o lan -m connmark --mark {mark:#x}");
        let line = counters.lines().find(|line| line.ends_with(&marked));
        let shown = router.done(&["show"]);
        assert!(
            line.is_some_and(|line| line.starts_with("[20:")),
            "{zone}: {counters}\n{shown}"
        );
        assert!(!shown.contains("of CONNMARK missing"), "{zone}: {shown}");
        side.netns
            .run(&["iptables-legacy", "-t", "raw", "-F"])
            .unwrap();
    }
}

/// A file of table mangle.
pub fn mangle(rules: &[&str]) -> String {
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    format!("*mangle\n{rules}COMMIT\n")
}

/// Rules that cannot be moved behind POSTROUTING are refused, and so is what would make others inexact there.
#[test]
fn what_is_another_thing_behind_postrouting_is_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("refused").unwrap());
    let mark = "POSTROUTING -j MARK --set-mark 1";
    let syn = "-p tcp -m tcp --tcp-flags SYN,RST SYN";
    for (rules, reason) in [
        (
            vec!["FORWARD -j MARK --set-mark 1"],
            "packets and their marks change behind POSTROUTING only",
        ),
        (
            vec![mark, "POSTROUTING -p udp -j DROP"],
            "line 3 drops packets",
        ),
        (
            vec![mark, "POSTROUTING -m conntrack --ctstatus CONFIRMED"],
            "line 3 reads --ctstatus",
        ),
        (
            vec![mark, "POSTROUTING -m conntrack ! --ctstate NEW,SNAT"],
            "line 3 reads --ctstate SNAT",
        ),
        (
            vec!["POSTROUTING -j CONNMARK --set-mark 1"],
            "by rules with -p tcp or -p udp",
        ),
        (
            vec!["POSTROUTING ! -p tcp -j CONNMARK --save-mark"],
            "by rules with -p tcp or -p udp",
        ),
        (
            vec!["POSTROUTING -p tcp -j CONNMARK --set-mark 1/0xff --left-shift-mark 2"],
            "--left-shift-mark is not evaluated",
        ),
        (
            vec!["POSTROUTING -j CONNMARK --restore-mark --right-shift-mark 2"],
            "--right-shift-mark is not evaluated",
        ),
        (
            vec!["PREROUTING -p tcp -j CONNMARK --save-mark"],
            "connections get marks behind POSTROUTING only",
        ),
        (
            vec![&format!("OUTPUT {syn} -j TCPMSS --clamp-mss-to-pmtu")],
            "packets and their marks change behind POSTROUTING only",
        ),
    ] {
        let file = router.file("refused", &mangle(&rules));
        let refused = router.fails(&["load", &file]);
        assert!(refused.contains(reason), "{rules:?}: {refused}");
        assert!(refused.contains("1 rule is refused"), "{refused}");
    }
    let both =
        "*mangle\n:c -\n-A POSTROUTING -j c\n-A OUTPUT -j c\n-A c -j DSCP --set-dscp 1\nCOMMIT\n";
    let policy = format!("*mangle\n:POSTROUTING DROP\n-A {mark}\nCOMMIT\n");
    let nat = format!(
        "{}*nat\n-A POSTROUTING -m mark --mark 1 -j ACCEPT\nCOMMIT\n",
        mangle(&[mark])
    );
    let headers = format!(
        "{}*nat\n-A POSTROUTING -m dscp --dscp 46 -j ACCEPT\nCOMMIT\n",
        mangle(&["POSTROUTING -j DSCP --set-dscp 46"])
    );
    let saved = format!(
        "{}*nat\n-A POSTROUTING -j CONNMARK --save-mark\nCOMMIT\n",
        mangle(&[mark])
    );
    for (text, reason) in [
        (both, "behind POSTROUTING only"),
        (&headers, "table nat matches headers in POSTROUTING"),
        (&saved, "table nat matches marks in POSTROUTING"),
        (&policy, "the policy drops packets"),
        (&nat, "table nat matches marks in POSTROUTING"),
    ] {
        let file = router.file("refused", text);
        let refused = router.fails(&["load", &file]);
        assert!(refused.contains(reason), "{text}: {refused}");
    }
    let file = router.file("shadow", &mangle(&[mark]));
    let refused = router.fails(&["load", "--shadow", &file]);
    assert!(refused.contains("behind POSTROUTING only"), "{refused}");
    // An edit is examined as a load.
    router.done(&["load", &file]);
    let drop = router.file("drop", &mangle(&["POSTROUTING -j DROP"]));
    let refused = router.fails(&["apply", "--loaded", "--edits", &drop]);
    assert!(refused.contains("drops packets"), "{refused}");
    let more = router.file("more", &mangle(&["POSTROUTING -j DSCP --set-dscp 3"]));
    router.done(&["apply", "--loaded", "--edits", &more]);
    assert!(
        router
            .done(&["show"])
            .contains("mangle at tcx egress: POSTROUTING")
    );
}

/// A socket that receives DSCP and ECN.
fn receiver(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::IpRecvTos, &true).unwrap();
    let wait = Some(Duration::from_millis(100));
    socket.set_read_timeout(wait).unwrap();
    socket
}

/// The byte with them of the next datagram.
fn next_tos(socket: &UdpSocket, flags: MsgFlags) -> Option<u8> {
    let (mut bytes, mut space) = ([0; 8], nix::cmsg_space!(u8));
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags).ok()?;
    message.cmsgs().unwrap().find_map(|one| match one {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        _ => None,
    })
}

/// The byte with which a datagram arrives.
fn tos_on_arrival(netns: &Netns, port: u16) -> Option<u8> {
    let attempt = || {
        let receiver = receiver(port);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"x", ("127.0.0.1", port)).unwrap();
        next_tos(&receiver, MsgFlags::empty())
    };
    netns.enter(attempt).unwrap()
}

/// Interfaces with a pinned program at tcx egress.
fn programs(router: &Router) -> usize {
    let pins = std::fs::read_dir(router.place.path("pins")).unwrap();
    let names = pins.map(|pin| pin.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("rules-egress")).count()
}

#[test]
fn changes_end_with_their_rules() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("ends").unwrap());
    let tos = || tos_on_arrival(&router.netns, 7001);
    let loaded = |tos: u8| {
        let rule = format!("POSTROUTING -p udp -j TOS --set-tos {tos:#x}");
        router.file("rules.v4", &mangle(&[&rule]))
    };
    router.done(&["load", &loaded(0x10)]);
    assert_eq!((tos(), programs(&router)), (Some(0x10), 1));
    // Unconfirmed rules, and those before them.
    router.done(&["load", &loaded(0x20), "--confirm", "2s"]);
    assert_eq!(tos(), Some(0x20));
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(tos(), Some(0x10));
    // Rules without changes, unconfirmed.
    let other = router.file("other", "*filter\n-A INPUT -p tcp -j DROP\nCOMMIT\n");
    router.done(&["load", &other, "--confirm", "2s"]);
    assert_eq!(tos(), Some(0));
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!((tos(), programs(&router)), (Some(0x10), 1));
    router.done(&["load", &other, "--confirm", "60s"]);
    assert_eq!(programs(&router), 1);
    router.done(&["confirm"]);
    assert_eq!((tos(), programs(&router)), (Some(0), 0));
    router.done(&["load", &loaded(0x10)]);
    router.done(&["unload"]);
    assert_eq!((tos(), programs(&router)), (Some(0), 0));
}

/// Each of two sets lets one port out of OUTPUT, and changes its packets behind POSTROUTING.
#[test]
fn packets_meet_and_are_changed_by_one_set() {
    requires!(Need::Root);
    const CHANGES: usize = 60;
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("mixed").unwrap());
    let ports = [(7001, 0x10), (7002, 0x20)];
    let files = [0, 1].map(|at| {
        let ((port, tos), (other, _)) = (ports[at], ports[1 - at]);
        let text = format!(
            "*mangle\n-A POSTROUTING -p udp -m udp --dport {port} -j TOS --set-tos {tos:#x}\nCOMMIT\n\
             *filter\n-A OUTPUT -p udp -m udp --dport {other} -j DROP\nCOMMIT\n"
        );
        router.file(&format!("rules{port}"), &text)
    });
    router.done(&["load", &files[0]]);
    let sockets = router.netns.enter(|| {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        (ports.map(|(port, _)| receiver(port)), sender)
    });
    let (receivers, sender) = sockets.unwrap();
    let done = AtomicBool::new(false);
    let arrived = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut arrived = [0; 2];
            while !done.load(Ordering::Relaxed) {
                for (number, (port, tos)) in ports.into_iter().enumerate() {
                    // One of both is refused.
                    let _ = sender.send_to(b"x", ("127.0.0.1", port));
                    let found = next_tos(&receivers[number], MsgFlags::MSG_DONTWAIT);
                    assert!(found.is_none_or(|found| found == tos), "{port}: {found:?}");
                    arrived[number] += usize::from(found.is_some());
                }
            }
            arrived
        });
        for change in 0..CHANGES {
            if traffic.is_finished() {
                break;
            }
            router.done(&["load", &files[(change & 1) ^ 1]]);
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });
    println!("{arrived:?} packets, {CHANGES} changes");
    assert!(
        arrived.iter().all(|packets| *packets > CHANGES),
        "{arrived:?}"
    );
}

#[test]
fn new_interfaces_get_rules_that_change_packets() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("new").unwrap());
    let file = router.file("rules.v4", &mangle(&["POSTROUTING -j DSCP --set-dscp 3"]));
    router.done(&["load", &file]);
    assert!(!router.done(&["show"]).contains("without"));
    let link = [
        "ip", "link", "add", "new", "type", "veth", "peer", "name", "other",
    ];
    router.netns.run(&link).unwrap();
    let shown = router.done(&["show"]);
    let without =
        "interfaces without these rules of mangle: new, other: `fairpath rules follow --once`";
    assert!(shown.contains(without), "{shown}");
    let printed = router.done(&["follow", "--once"]);
    assert_eq!(printed, "new: rules of mangle\nother: rules of mangle\n");
    assert_eq!(router.done(&["follow", "--once"]), "");
    router.netns.run(&["ip", "link", "del", "new"]).unwrap();
    router.done(&["load", &file]);
    assert_eq!(programs(&router), 1);
}

/// Rules give packets a class by their mark, whether the monitor or the rules returned first.
#[test]
fn marks_of_rules_are_classes() {
    let [root, iptables, _, ethtool, nft] = TOOLS;
    requires!(root, iptables, ethtool, nft);
    let testbed = Testbed::new();
    let [client, ours] = ["client", "ours"].map(|name| testbed.netns(name).unwrap());
    let mut side = Side::new(ours, &client, "eth1");
    let router = Router::new(side.netns.clone());
    let observer = router.file("observer", &observer());
    side.netns
        .run(&["iptables-legacy-restore", &observer])
        .unwrap();
    let place = Place::new();
    let classes = "uplinks = [\"wan\"]\n[[class]]\nname = \"marked\"\nmark = 7\n";
    place.configure(&["lan", "wan"], classes);
    let text = mangle(&["POSTROUTING -o wan -p udp -m udp --dport 53 -j MARK --set-mark 7"]);
    let file = router.file("rules.v4", &text);
    let frames: Vec<Vec<u8>> = (0..40)
        .map(|number| {
            let frame =
                Frame::ethernet(CLIENT, LAN).ipv4([10, 1, 0, 2].into(), [10, 2, 0, 9].into());
            frame
                .udp(5000, if number % 4 == 0 { 53 } else { 54 })
                .build()
        })
        .collect();
    for rules_first in [true, false] {
        if rules_first {
            router.done(&["load", &file]);
        }
        let daemon = Daemon::start(&side.netns, &place);
        if !rules_first {
            router.done(&["load", &file]);
        }
        assert_eq!(pass(&side.client, &frames, &mut side.far, FAR).len(), 40);
        let packets = |row: &serde_json::Value| row["up"]["packets"].as_u64();
        let row = daemon.row_when("marked", "counted", |row| packets(row) >= Some(10));
        assert_eq!(packets(&row), Some(10), "{rules_first}: {row:#}");
        router.done(&["unload"]);
    }
}
