//! Limits of the MSS by the MTU of the path, and those of FORWARD: frames and counters are those of
//! iptables-legacy in another namespace, with the same interfaces, routes and reported MTUs.

use std::net::{IpAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use fairpath_statistics::Random;
use fairpath_testbed::{Need, Netns, Testbed, requires};
use fairpath_units::test_seeds;
use fairpath_wire::tcp::{Flags, TcpOption};
use fairpath_wire::{Frame, icmp, ipv4, ipv6, tcp};

use super::egress::{
    CLIENT, CLIENTS, FAR, LAN, Side, TOOLS, WAN, compare, correct_checksum, mangle, pass,
};
use super::live::{Router, filter, tables};

/// The client whose route changes in the steps.
const HOST: u8 = CLIENTS[0];
const SYN: &str = "-p tcp -m tcp --tcp-flags SYN,RST SYN";

/// A match of SYNs to a port.
fn syn_to(port: u16) -> String {
    format!("-p tcp -m tcp --dport {port} --tcp-flags SYN,RST SYN")
}

/// A router with iptables-legacy, one with Fairpath, and their rules.
struct Pair {
    theirs: Side,
    ours: Side,
    router: Router,
    random: Random,
    /// Of the next connection.
    port: u16,
    client: Netns,
    _testbed: Testbed,
}

/// The end of frames at `far`, in both routers.
const OBSERVER: &str = "*raw\n-A PREROUTING -i far -j DROP\nCOMMIT\n";

impl Pair {
    fn new(seed: u64, rules: impl Fn(bool) -> String) -> Pair {
        let testbed = Testbed::new();
        let [client, theirs, ours] =
            ["client", "iptables", "ours"].map(|name| testbed.netns(name).unwrap());
        let off = [("net.ipv6.conf.all.disable_ipv6", "1")];
        client.set_sysctls(&off).unwrap();
        let side = |netns: Netns, name| {
            let settings = [("all", "rp_filter", "0"), ("default", "rp_filter", "0")];
            for (interface, name, value) in settings {
                let name = format!("net.ipv4.conf.{interface}.{name}");
                netns.set_sysctls(&[(&name, value)]).unwrap();
            }
            Side::new(netns, &client, name)
        };
        let (theirs, ours) = (side(theirs, "eth0"), side(ours, "eth1"));
        let router = Router::new(ours.netns.clone());
        theirs
            .netns
            .run(&["ip", "link", "set", "lo", "up"])
            .unwrap();
        let files = [("rules.v4", true), ("rules.v6", false)]
            .map(|(name, is_ipv4)| router.file(name, &rules(is_ipv4)));
        let observer = router.file("observer", OBSERVER);
        for (tool, file) in ["iptables", "ip6tables"].iter().zip(&files) {
            let restore = format!("{tool}-legacy-restore");
            theirs.netns.run(&[&restore, file]).unwrap();
            for side in [&theirs, &ours] {
                side.netns.run(&[&restore, "--noflush", &observer]).unwrap();
            }
        }
        router.done(&["load", &files[0], &files[1]]);
        Pair {
            theirs,
            ours,
            router,
            random: Random::new(seed),
            port: 1024,
            client,
            _testbed: testbed,
        }
    }

    fn sides(&mut self) -> [&mut Side; 2] {
        [&mut self.theirs, &mut self.ours]
    }

    /// Lines of `ip` in both routers.
    fn ip(&mut self, lines: &[&str]) {
        for side in self.sides() {
            for line in lines {
                let words = std::iter::once("ip").chain(line.split(' '));
                side.netns.run(&words.collect::<Vec<_>>()).unwrap();
            }
        }
    }

    /// TCP packets of clients to `far`, or to clients.
    fn frames(&mut self, to_far: bool, number: usize) -> Vec<Vec<u8>> {
        let frames = (0..number).map(|_| {
            self.port = if self.port == u16::MAX {
                1024
            } else {
                self.port + 1
            };
            packet(&mut self.random, self.port, to_far)
        });
        frames.collect()
    }

    /// Compares what both routers forward. Returns the MSS of each frame that has one.
    fn forwarded(&mut self, to_far: bool, frames: &[Vec<u8>]) -> Vec<(Vec<u8>, u16)> {
        let passed = self.sides().map(|side| match to_far {
            true => pass(&side.client, frames, &mut side.far, FAR),
            false => pass(&side.far, frames, &mut side.client, CLIENT),
        });
        compare(&passed[1], &passed[0]);
        let [_, ours] = passed;
        let found = ours.into_iter().filter_map(|frame| {
            let mss = mss_of(&frame)?;
            Some((frame, mss))
        });
        found.collect()
    }

    /// Compares counters of the tables at the hooks.
    #[track_caller]
    fn compare_counters(&mut self) {
        for (family, tool) in [("ipv4", "iptables"), ("ipv6", "ip6tables")] {
            let save = format!("{tool}-legacy-save");
            let theirs = self.theirs.netns.run(&[&save, "-c"]).unwrap();
            let ours = self.router.done(&["counters", "--family", family]);
            for table in ["mangle", "filter", "security"] {
                let lines = |save: &str| {
                    let lines = tables(save).remove(table).unwrap_or_default();
                    let rules = lines.into_iter().filter(|line| line.starts_with('['));
                    rules.collect::<Vec<String>>()
                };
                assert_eq!(lines(&ours), lines(&theirs), "{family} {table}");
            }
        }
    }
}

/// The MSS in the TCP header of a frame without options of IP or extension headers.
fn mss_of(frame: &[u8]) -> Option<u16> {
    let (next, at) = match frame[12] {
        8 if frame[14] == 0x45 => (frame[23], 34),
        0x86 => (frame[20], 54),
        _ => return None,
    };
    if next != 6 || frame.len() < at + 20 {
        return None;
    }
    let header = frame.get(at + 20..at + usize::from(frame[at + 12] >> 4) * 4)?;
    let mut rest = header;
    loop {
        match rest {
            [2, 4, high, low, ..] => return Some(u16::from_be_bytes([*high, *low])),
            [0 | 1, more @ ..] => rest = more,
            [_, length, ..] => rest = rest.get(usize::from((*length).max(1))..)?,
            _ => return None,
        }
    }
}

/// True for a frame from `HOST`, or to it.
fn is_of_host(frame: &[u8], is_ipv4: bool, to_far: bool) -> bool {
    let at = match (is_ipv4, to_far) {
        (true, true) => 29,
        (true, false) => 33,
        (false, true) => 37,
        (false, false) => 53,
    };
    (frame[12] == 8) == is_ipv4 && frame[at] == HOST
}

/// Options of a SYN: the MSS at even and odd offsets, twice, cut, of another length, or missing.
fn options(random: &mut Random) -> Vec<TcpOption> {
    let values = [
        0, 1, 500, 536, 537, 1160, 1220, 1221, 1440, 1460, 9000, 65535,
    ];
    let mss = |random: &mut Random| TcpOption::Mss(values[random.index(values.len())]);
    let others = [
        TcpOption::Nop,
        TcpOption::SackPermitted,
        TcpOption::WindowScale(7),
        TcpOption::Raw(vec![2, 3, 9]),
        TcpOption::Raw(vec![9, 0]),
        TcpOption::Raw(vec![2, 5, 1, 1, 1]),
        TcpOption::Raw(vec![30, 40]),
        TcpOption::Raw(vec![0]),
    ];
    let other = |random: &mut Random| others[random.index(others.len())].clone();
    let mut all: Vec<TcpOption> = (0..random.below(4)).map(|_| other(random)).collect();
    match random.below(6) {
        0 | 1 => all = vec![mss(random)],
        2 => all.push(mss(random)),
        3 => {
            all.push(mss(random));
            all.push(mss(random));
        }
        // The rest of the option is not there.
        4 => all.push(TcpOption::Raw(vec![2, 4, 5])),
        _ => {}
    }
    if random.one_in(20) {
        all = vec![TcpOption::Raw(vec![1; 40])];
    }
    all
}

/// A TCP packet between a client and `far`, mostly a SYN.
fn packet(random: &mut Random, port: u16, to_far: bool) -> Vec<u8> {
    let host = CLIENTS[random.index(CLIENTS.len())];
    let is_ipv4 = random.one_in(2);
    let link = match to_far {
        true => Frame::ethernet(CLIENT, LAN),
        false => Frame::ethernet(FAR, WAN),
    };
    let ends = |client: IpAddr, far: IpAddr| match to_far {
        true => (client, far),
        false => (far, client),
    };
    let frame = if is_ipv4 {
        let (from, to) = ends([10, 1, 0, host].into(), [10, 2, 0, 9].into());
        let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else {
            unreachable!("both are of IPv4")
        };
        let options = vec![1; 4 * usize::from(random.one_in(10))];
        link.ipv4_header(ipv4::Header {
            options,
            ..ipv4::Header::new(from, to)
        })
    } else {
        let client = format!("fd00:1::{host}").parse().unwrap();
        let (from, to) = ends(client, "fd00:2::9".parse().unwrap());
        let (IpAddr::V6(from), IpAddr::V6(to)) = (from, to) else {
            unreachable!("both are of IPv6")
        };
        let extensions = match random.one_in(10) {
            true => vec![ipv6::Extension::DestinationOptions(vec![1, 4, 0, 0, 0, 0])],
            false => Vec::new(),
        };
        link.ipv6_header(ipv6::Header {
            extensions,
            ..ipv6::Header::new(from, to)
        })
    };
    let flags = [Flags::SYN, Flags::SYN, Flags::SYN, Flags::ACK][random.index(4)];
    let header = tcp::Header {
        src_port: port,
        dst_port: [80, 81, 82, 83][random.index(4)],
        seq: random.below(1 << 32) as u32,
        flags,
        options: options(random),
        ..tcp::Header::default()
    };
    let bytes = [0, 0, 0, 1, 300][random.index(5)];
    let mut bytes = frame.tcp(header).zeros(bytes).build();
    let at = if is_ipv4 { 34 } else { 54 };
    if random.one_in(200) && (!is_ipv4 || bytes[14] == 0x45) {
        // A header that is longer than the packet, or too short.
        bytes[at + 12] = [0x40, 0xf0][random.index(2)];
        correct_checksum(&mut bytes);
    }
    bytes
}

/// A change of both routers, and the largest MSS of SYNs from `HOST` and to it then, of IPv4 and IPv6.
struct Step {
    lines: &'static [&'static str],
    from: [Option<u16>; 2],
    to: [Option<u16>; 2],
}

/// Of this MTU.
const fn of(mtu: u16) -> [Option<u16>; 2] {
    [Some(mtu - 40), Some(mtu - 60)]
}

const STEPS: [Step; 13] = [
    Step {
        lines: &[],
        from: of(1500),
        to: of(1500),
    },
    Step {
        lines: &["link set wan mtu 1492", "link set far mtu 1492"],
        from: of(1492),
        to: of(1492),
    },
    Step {
        lines: &[
            "link set wan mtu 9000",
            "link set far mtu 9000",
            "link set lan mtu 1400",
        ],
        from: of(1400),
        to: of(1400),
    },
    // A metric of the packet's route, which programs do not read as that of a route back.
    Step {
        lines: &[
            "link set lan mtu 9000",
            "route add 10.2.0.9/32 dev wan mtu 1300",
            "-6 route add fd00:2::9/128 dev wan mtu 1310",
        ],
        from: [Some(1260), Some(1250)],
        to: [None; 2],
    },
    Step {
        lines: &[
            "route del 10.2.0.9/32 dev wan mtu 1300",
            "-6 route del fd00:2::9/128 dev wan mtu 1310",
            "route add 10.1.0.2/32 dev lan mtu lock 700",
            "-6 route add fd00:1::2/128 dev lan mtu lock 1290",
        ],
        from: [Some(660), Some(1230)],
        to: [Some(660), Some(1230)],
    },
    // Nothing is left: packets are dropped.
    Step {
        lines: &["route change 10.1.0.2/32 dev lan mtu lock 40"],
        from: [None, Some(1230)],
        to: [None, Some(1230)],
    },
    Step {
        lines: &["route change 10.1.0.2/32 dev lan mtu lock 41"],
        from: [Some(1), Some(1230)],
        to: [None, Some(1230)],
    },
    // No route back limits nothing.
    Step {
        lines: &[
            "link set lan mtu 1500",
            "route del 10.1.0.2/32 dev lan",
            "-6 route del fd00:1::2/128 dev lan",
            "route add unreachable 10.1.0.2/32",
            "-6 route add unreachable fd00:1::2/128",
        ],
        from: of(9000),
        to: [None; 2],
    },
    Step {
        lines: &[
            "route del unreachable 10.1.0.2/32",
            "-6 route del unreachable fd00:1::2/128",
            "route add blackhole 10.1.0.2/32",
        ],
        from: [Some(8960), Some(1440)],
        to: [None, Some(1440)],
    },
    // Rules of routing. The input interface of the route back is `lo`.
    Step {
        lines: &[
            "route del blackhole 10.1.0.2/32",
            "rule add iif lo to 10.1.0.2 lookup 100",
            "route add 10.1.0.2/32 dev lan table 100 mtu lock 900",
            "-6 rule add iif lo to fd00:1::2 lookup 100",
            "-6 route add fd00:1::2/128 dev lan table 100 mtu lock 1300",
        ],
        from: [Some(860), Some(1240)],
        to: of(1500),
    },
    // Two interfaces lead back to each client of IPv4: the hash selects one.
    Step {
        lines: &[
            "rule del iif lo to 10.1.0.2 lookup 100",
            "-6 rule del iif lo to fd00:1::2 lookup 100",
            "link set lan mtu 1400",
            "route add 10.1.0.2/32 nexthop dev lan nexthop dev wan",
            "route add 10.1.0.3/32 nexthop dev lan nexthop dev wan",
            "route add 10.1.0.20/32 nexthop dev lan nexthop dev wan",
            "route add 10.1.0.40/32 nexthop dev lan nexthop dev wan",
        ],
        from: [None, Some(1340)],
        to: [None, Some(1340)],
    },
    Step {
        lines: &[
            "route del 10.1.0.2/32",
            "route del 10.1.0.3/32",
            "route del 10.1.0.20/32",
            "route del 10.1.0.40/32",
            "link set lan mtu 65535",
            "link set wan mtu 65535",
            "link set far mtu 65535",
        ],
        from: of(65535),
        to: of(65535),
    },
    Step {
        lines: &["link set lan mtu 1500", "link set wan mtu 1500"],
        from: of(1500),
        to: of(1500),
    },
];

/// Steps with a metric that is not read, with routes for no packets, and with routes by a hash.
const UNREAD: usize = 3;
const DROPPING: usize = 5;
const NARROW: usize = 6;
const BY_HASH: usize = 10;

/// Rules of one family: limits by the path, by bytes, by both, and rules that match the result.
fn rules_of(chains: &[&str], is_ipv4: bool) -> String {
    let (translated, own) = match is_ipv4 {
        true => ("10.1.0.32/27", "10.2.0.1"),
        false => ("fd00:1::40/128", "fd00:2::1"),
    };
    let jumps = chains
        .iter()
        .map(|chain| format!("-A {chain} -p tcp -j limits\n"));
    // At the hooks, the MTU of the path is not known.
    let read = match chains {
        ["POSTROUTING"] => {
            "-A limits -p tcp -m tcpmss --mss 1:1260\n\
             -A limits -p tcp -m tcp --dport 81 -m tcpmss ! --mss 1:1400\n"
        }
        _ => "",
    };
    let matches = [
        "-m length --length 44:64",
        "-m tcp --tcp-option 2",
        "-m tcp --dport 80",
    ];
    let behind = |chain: &str| -> String {
        let rules = matches.iter();
        rules
            .map(|rule| format!("-A {chain} -p tcp {rule}\n"))
            .collect()
    };
    format!(
        "*mangle
:limits - [0:0]
{jumps}-A limits {syn_80} -j TCPMSS --clamp-mss-to-pmtu
-A limits {syn_81} -j TCPMSS --clamp-mss-to-pmtu
-A limits {syn_82} -j TCPMSS --set-mss 0
-A limits {syn_81} -j TCPMSS --set-mss 1420
{read}{in_chain}{in_postrouting}COMMIT
*filter
{in_filter}COMMIT
*security
{in_filter}COMMIT
*nat
-A POSTROUTING -s {translated} -o wan -j SNAT --to-source {own}
COMMIT
",
        jumps = jumps.collect::<String>(),
        in_chain = behind("limits"),
        in_postrouting = behind("POSTROUTING"),
        in_filter = behind("FORWARD"),
        syn_80 = syn_to(80),
        syn_81 = syn_to(81),
        syn_82 = syn_to(82),
    )
}

/// A datagram of the router whose path an ICMP error reports, so that its route has another MTU.
fn report(side: &Side, own: &str, other: &str, mtu: u32, by_far: bool) {
    let send = || {
        let socket = UdpSocket::bind((own, 6000)).unwrap();
        socket.connect((other, 6000)).unwrap();
        socket.send(b"datagram").unwrap();
        let (from, to) = (other.parse().unwrap(), own.parse().unwrap());
        let (macs, by) = match by_far {
            true => ((FAR, WAN), &side.far),
            false => ((CLIENT, LAN), &side.client),
        };
        let link = Frame::ethernet(macs.0, macs.1);
        let too_big = icmp::Message::TooBig { mtu };
        let error = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from, to).icmp(too_big).quote(
                &Frame::raw()
                    .ipv4(to, from)
                    .udp(6000, 6000)
                    .payload(b"datagram"),
            ),
            (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from, to).icmp(too_big).quote(
                &Frame::raw()
                    .ipv6(to, from)
                    .udp(6000, 6000)
                    .payload(b"datagram"),
            ),
            _ => unreachable!("both are of one family"),
        };
        by.send(&error.build()).unwrap();
        // The socket has the error when the route has the MTU.
        let begin = Instant::now();
        let wanted = format!("mtu {mtu}");
        loop {
            let route = side.netns.run(&["ip", "route", "get", other]).unwrap();
            if route.contains(&wanted) {
                return;
            }
            assert!(begin.elapsed().as_secs() < 5, "{route}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    side.netns.enter(send).unwrap();
}

/// All steps with the same limits in some chains.
fn compare_steps(chains: &[&str]) {
    for seed in test_seeds(1) {
        let mut pair = Pair::new(seed, |is_ipv4| rules_of(chains, is_ipv4));
        for (number, step) in STEPS.iter().enumerate() {
            // A packet without space is dropped in FORWARD, or behind it: other rules count it.
            if number == DROPPING && chains.contains(&"FORWARD") {
                continue;
            }
            pair.ip(step.lines);
            for (to_far, wanted) in [(true, step.from), (false, step.to)] {
                if [UNREAD, DROPPING, NARROW, BY_HASH].contains(&number) && !to_far {
                    continue;
                }
                let mut frames = pair.frames(to_far, 120);
                let port = pair.port;
                frames.extend([true, false].map(|is_ipv4| first(is_ipv4, to_far, port)));
                let forwarded = pair.forwarded(to_far, &frames);
                if number == BY_HASH {
                    continue;
                }
                for (is_ipv4, wanted) in [true, false].into_iter().zip(wanted) {
                    let clamped = forwarded
                        .iter()
                        .filter(|(frame, _)| is_of_host(frame, is_ipv4, to_far))
                        .filter(|(frame, _)| is_syn_to(frame, 80));
                    let largest = clamped.map(|(_, mss)| *mss).max();
                    let unlimited = wanted.is_none() && number != DROPPING;
                    assert!(
                        largest == wanted || unlimited,
                        "step {number}, to far {to_far}, IPv4 {is_ipv4}: {largest:?}"
                    );
                }
            }
        }
        pair.compare_counters();
        assert!(!pair.router.done(&["show"]).contains("without a limit"));
    }
}

/// True for a SYN without options of IP, to this port.
fn is_syn_to(frame: &[u8], port: u8) -> bool {
    let at = if frame[12] == 8 { 34 } else { 54 };
    frame[at + 2..at + 4] == [0, port] && frame[at + 13] & 2 != 0
}

/// A SYN between `HOST` and `far` with the largest MSS.
fn first(is_ipv4: bool, to_far: bool, port: u16) -> Vec<u8> {
    let header = tcp::Header {
        src_port: port,
        dst_port: 80,
        flags: Flags::SYN,
        options: vec![TcpOption::Mss(65535)],
        ..tcp::Header::default()
    };
    frame_of(HOST, is_ipv4, to_far).tcp(header).build()
}

/// A packet between a client and `far`, up to its network header.
fn frame_of(host: u8, is_ipv4: bool, to_far: bool) -> Frame {
    let link = match to_far {
        true => Frame::ethernet(CLIENT, LAN),
        false => Frame::ethernet(FAR, WAN),
    };
    if is_ipv4 {
        let (client, far) = ([10, 1, 0, host].into(), [10, 2, 0, 9].into());
        return match to_far {
            true => link.ipv4(client, far),
            false => link.ipv4(far, client),
        };
    }
    let client = format!("fd00:1::{host}").parse().unwrap();
    let far = "fd00:2::9".parse().unwrap();
    match to_far {
        true => link.ipv6(client, far),
        false => link.ipv6(far, client),
    }
}

#[test]
fn postrouting_clamps_as_iptables() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    compare_steps(&["POSTROUTING"]);
}

#[test]
fn forward_limits_as_iptables() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    compare_steps(&["FORWARD"]);
}

#[test]
fn both_chains_limit_as_iptables() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    compare_steps(&["FORWARD", "POSTROUTING"]);
}

/// MTUs that ICMP errors report are those of routes, in both directions.
#[test]
fn reported_mtus_limit_as_iptables() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    for chain in ["POSTROUTING", "FORWARD"] {
        let mut pair = Pair::new(7, |is_ipv4| rules_of(&[chain], is_ipv4));
        for (own, other, mtu, by_far) in [
            ("10.2.0.1", "10.2.0.9", 1280, true),
            ("fd00:2::1", "fd00:2::9", 1400, true),
            ("10.1.0.1", "10.1.0.2", 1000, false),
            ("fd00:1::1", "fd00:1::2", 1300, false),
        ] {
            for side in pair.sides() {
                report(side, own, other, mtu, by_far);
            }
            for to_far in [true, false] {
                let frames = pair.frames(to_far, 100);
                pair.forwarded(to_far, &frames);
            }
        }
        for to_far in [true, false] {
            let frames = [true, false].map(|is_ipv4| first(is_ipv4, to_far, 999));
            let all: Vec<u16> = pair
                .forwarded(to_far, &frames)
                .into_iter()
                .map(|(_, mss)| mss)
                .collect();
            assert_eq!(all, [960, 1240], "{chain}");
        }
        pair.compare_counters();
    }
}

/// A SYN of the router itself: its route back leads to `lo`. It has not been in FORWARD.
#[test]
fn own_syns_are_limited_by_lo() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    for (chain, wanted) in [("POSTROUTING", 860), ("FORWARD", 1460)] {
        let mut pair = Pair::new(7, |is_ipv4| rules_of(&[chain], is_ipv4));
        pair.ip(&["link set lo mtu 900"]);
        for side in pair.sides() {
            let wait = Duration::from_millis(20);
            let to = "10.2.0.9:80".parse().unwrap();
            let connect = || TcpStream::connect_timeout(&to, wait).is_err();
            assert!(side.netns.enter(connect).unwrap());
            let seen = Side::seen(&mut side.far, FAR);
            let all: Vec<u16> = seen.iter().filter_map(|frame| mss_of(frame)).collect();
            assert!(
                !all.is_empty() && all.iter().all(|mss| *mss == wanted),
                "{chain}: {all:?}"
            );
        }
        assert!(!pair.router.done(&["show"]).contains("without a limit"));
    }
}

/// SYNs that filter drops leave their limits. Others, with the same addresses in memory, do not get them.
#[test]
fn limits_belong_to_one_syn() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    let rules = |is_ipv4: bool| {
        let _ = is_ipv4;
        format!(
            "*mangle
-A FORWARD {syn_90} -j TCPMSS --set-mss 500
-A FORWARD {syn_92} -m statistic --mode nth --every 2 --packet 0 -j TCPMSS --set-mss 700
COMMIT
*filter
-A FORWARD -p tcp -m tcp --dport 90 -j DROP
COMMIT
",
            syn_90 = syn_to(90),
            syn_92 = syn_to(92)
        )
    };
    let mut pair = Pair::new(7, rules);
    let syn = |dst_port: u16, src_port: u16, is_ipv4: bool| {
        let header = tcp::Header {
            src_port,
            dst_port,
            flags: Flags::SYN,
            options: vec![TcpOption::Mss(1460)],
            ..tcp::Header::default()
        };
        frame_of(HOST, is_ipv4, true).tcp(header).build()
    };
    let mut frames = Vec::new();
    for port in 2000..2050 {
        for is_ipv4 in [true, false] {
            // The same one again has another answer of the rule, and so other limits.
            let again = syn(92, port, is_ipv4);
            frames.extend([
                syn(90, port, is_ipv4),
                syn(91, port, is_ipv4),
                again.clone(),
                again,
            ]);
        }
    }
    let forwarded = pair.forwarded(true, &frames);
    let of_port = |port: u8| {
        let frames = forwarded.iter().filter(|(frame, _)| is_syn_to(frame, port));
        frames.map(|(_, mss)| *mss).collect::<Vec<u16>>()
    };
    assert_eq!(of_port(91), [1460; 100]);
    assert_eq!(of_port(92), [700, 1460].repeat(100));
    pair.compare_counters();
}

/// A SYN that waits for its neighbour leaves by another task, after other SYNs.
#[test]
fn waiting_syns_keep_their_limits() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    let mut pair = Pair::new(7, |is_ipv4| rules_of(&["FORWARD"], is_ipv4));
    pair.ip(&["link set wan mtu 1300", "neigh del 10.2.0.9 dev wan"]);
    let waiting: Vec<Vec<u8>> = (0..20).map(|port| first(true, true, 3000 + port)).collect();
    for side in pair.sides() {
        for frame in &waiting {
            side.client.send(frame).unwrap();
        }
    }
    // Others pass, in the meantime.
    let others: Vec<Vec<u8>> = (0..500)
        .map(|port| first(false, true, 4000 + port))
        .collect();
    assert_eq!(pair.forwarded(true, &others).len(), 500);
    let line = ["neigh replace 10.2.0.9 lladdr 02:00:00:00:0f:01 dev wan".to_owned()];
    let seen = pair.sides().map(|side| {
        side.netns.ip_batch(&line).unwrap();
        let (begin, mut seen) = (Instant::now(), Vec::new());
        while seen.len() < waiting.len() && begin.elapsed() < Duration::from_secs(5) {
            seen.extend(Side::seen(&mut side.far, FAR));
        }
        seen
    });
    assert_eq!(compare(&seen[1], &seen[0]), 0);
    let all: Vec<u16> = seen[1].iter().filter_map(|frame| mss_of(frame)).collect();
    assert_eq!(all, [1260; 20]);
    pair.compare_counters();
}

/// Headers in pages, a bridge as output interface, and forwarding between single interfaces.
#[test]
fn other_packets_and_interfaces_are_limited_alike() {
    let [root, iptables, ip6tables, ethtool, nft] = TOOLS;
    requires!(root, iptables, ip6tables, ethtool, nft);
    for chain in ["POSTROUTING", "FORWARD"] {
        let mut pair = Pair::new(7, |is_ipv4| rules_of(&[chain], is_ipv4));
        let all = ["lan", "wan", "far"].map(|name| format!("link set {name} mtu 9000"));
        let ends = ["eth0", "eth1"].map(|name| format!("link set {name} mtu 9000"));
        pair.ip(&all.each_ref().map(String::as_str));
        pair.client.ip_batch(&ends).unwrap();
        // Longer than a page: only the link-layer header is linear.
        let long: Vec<Vec<u8>> = (0..40)
            .map(|port| {
                let header = tcp::Header {
                    src_port: 3000 + port,
                    dst_port: 80 + port % 3,
                    flags: Flags::SYN,
                    options: options(&mut pair.random),
                    ..tcp::Header::default()
                };
                let frame = frame_of(HOST, port & 4 != 0, true);
                frame.tcp(header).zeros(6000).build()
            })
            .collect();
        pair.ip(&[
            "link set far mtu 9000",
            "route add 10.1.0.2/32 dev lan mtu lock 700",
        ]);
        pair.forwarded(true, &long);
        pair.ip(&[
            "link add name bridge0 type bridge",
            "link set wan master bridge0",
            "link set bridge0 mtu 1350 up",
            "addr add 10.5.0.1/24 dev bridge0",
            "neigh add 10.5.0.9 lladdr 02:00:00:00:0f:01 dev bridge0",
        ]);
        pair.router.done(&["follow", "--once"]);
        for side in pair.sides() {
            let off = [
                ("net.ipv4.ip_forward", "0"),
                ("net.ipv4.conf.lan.forwarding", "1"),
                ("net.ipv4.conf.wan.forwarding", "1"),
            ];
            side.netns.set_sysctls(&off).unwrap();
        }
        let bridged: Vec<Vec<u8>> = (0..40)
            .map(|port| {
                let header = tcp::Header {
                    src_port: 3000 + port,
                    dst_port: 80,
                    flags: Flags::SYN,
                    options: options(&mut pair.random),
                    ..tcp::Header::default()
                };
                let host = CLIENTS[usize::from(port & 1)];
                let link = Frame::ethernet(CLIENT, LAN);
                let frame = link.ipv4([10, 1, 0, host].into(), [10, 5, 0, 9].into());
                frame.tcp(header).build()
            })
            .collect();
        pair.forwarded(true, &bridged);
        pair.compare_counters();
        assert!(!pair.router.done(&["show"]).contains("without a limit"));
    }
}

/// Limits that would not be exact are refused, by line.
#[test]
fn limits_that_would_differ_are_refused() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("refused").unwrap());
    let link = "link add wan type veth peer name far".to_owned();
    let lines = [
        link,
        "addr add 10.2.0.1/24 dev wan".to_owned(),
        "link set wan up".to_owned(),
        "link set far up".to_owned(),
    ];
    router.netns.ip_batch(&lines).unwrap();
    let clamp = format!("FORWARD {SYN} -j TCPMSS --clamp-mss-to-pmtu");
    let set = format!("FORWARD {SYN} -j TCPMSS --set-mss 900");
    let read = "FORWARD -p tcp -m tcpmss --mss 1:900";
    let behind = "POSTROUTING -m u32 --u32 \"0=0\"";
    for rules in [vec![&clamp[..], read], vec![&clamp, behind]] {
        let file = router.file("refused", &mangle(&rules));
        let refused = router.fails(&["load", &file]);
        assert!(
            refused.contains("refused:2: mangle FORWARD: line 3 reads the MSS"),
            "{refused}"
        );
    }
    router.done(&["load", &router.file("read", &mangle(&[&set, read]))]);
    let nat = format!(
        "{}*nat\n-A POSTROUTING -p tcp -m tcpmss --mss 1:900 -j ACCEPT\nCOMMIT\n",
        mangle(&[&set])
    );
    let refused = router.fails(&["load", &router.file("nat", &nat)]);
    assert!(
        refused.contains("a table of iptables matches the MSS"),
        "{refused}"
    );
    // Routes that programs cannot read. The same MTU as that of the interface makes no difference.
    let text = mangle(&[&clamp]) + &filter(&["FORWARD -p udp -j DROP"]);
    let clamp = router.file("clamp", &text);
    let set = router.file("set", &mangle(&[&set]));
    let route = |words: &str| {
        router.netns.ip_batch(&[format!("route {words}")]).unwrap();
    };
    route("add 10.9.0.0/16 via 10.2.0.9 mtu 1500");
    router.done(&["load", &clamp]);
    // An edit of another table, too.
    let mut apply = router.command(&["apply", "--loaded"]);
    let words = "-- iptables -A FORWARD -p tcp -m tcpmss --mss 1:900".split(' ');
    let refused = apply.args(words).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("reads the MSS"), "{refused:?}");
    route("change 10.9.0.0/16 via 10.2.0.9 mtu 1400");
    let refused = router.fails(&["load", &clamp]);
    let reason =
        "the MTU of the route 10.9.0.0/16 table 254: change it with `ip route` to `mtu lock 1400`";
    assert!(refused.contains(reason), "{refused}");
    router.done(&["load", &set]);
    route("change 10.9.0.0/16 via 10.2.0.9 mtu lock 1400");
    router.done(&["load", &clamp]);
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("  mangle at tcx egress: TCPMSS of FORWARD\n"),
        "{shown}"
    );
    // Encrypted packets do not leave as they are.
    let policy =
        "xfrm policy add src 10.7.0.0/16 dst 10.8.0.0/16 dir out tmpl proto esp mode tunnel";
    if router.netns.ip_batch(&[policy.to_owned()]).is_ok() {
        let refused = router.fails(&["load", &set]);
        assert!(
            refused.contains("IPsec encrypts packets before tcx egress"),
            "{refused}"
        );
        let marks = mangle(&["POSTROUTING -j MARK --set-mark 1"]);
        let refused = router.fails(&["load", &router.file("marks", &marks)]);
        assert!(refused.contains("IPsec encrypts packets"), "{refused}");
    }
}
