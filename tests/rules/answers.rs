//! Answers to rejected packets: `fairpath rules answer` next to iptables-legacy, with the same packets.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use fairpath_backend::RawSockets;
use fairpath_testbed::{Need, Netns, Testbed, requires, wait_for};
use fairpath_tests::{Daemon, PATIENCE};
use fairpath_wire::checksum::Sum;
use fairpath_wire::tcp::Flags;
use fairpath_wire::{Frame, IpProto, icmp, ipv4, ipv6, tcp, udp};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};

use super::live::{Router, filter};

/// Addresses of the client: one for each packet, since errors are limited by address.
const CLIENTS: u8 = 130;
const ROUTER: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(10, 1, 0, 1),
    Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1),
);
const SERVER: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(10, 2, 0, 2),
    Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2),
);

fn client(number: u8) -> (Ipv4Addr, Ipv6Addr) {
    let v6 = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x100 + u16::from(number));
    (Ipv4Addr::new(10, 1, 0, 100 + number), v6)
}

/// Client, router, server, with both families.
pub struct AnswerLine {
    pub client: Netns,
    pub router: Netns,
    _server: Netns,
}

impl AnswerLine {
    pub fn new(testbed: &Testbed) -> AnswerLine {
        let [client, router, server] =
            ["client", "router", "server"].map(|name| testbed.netns(name).unwrap());
        for (near, far, other) in [("lan", "eth0", &client), ("wan", "eth0", &server)] {
            let path = other.path();
            let line = format!("link add {near} type veth peer name {far} netns {path}");
            router.ip_batch(&[line]).unwrap();
        }
        let batch = |netns: &Netns, text: &str| {
            let lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
            netns.ip_batch(&lines).unwrap();
        };
        batch(
            &router,
            "link set lo up
            addr add 10.1.0.1/24 dev lan
            addr add 10.2.0.1/24 dev wan
            addr add fe80::1/64 dev lan nodad
            addr add fd00:1::1/64 dev lan nodad
            addr add fd00:2::1/64 dev wan nodad
            link set lan up
            link set wan up",
        );
        let mut addresses = "link set lo up\nlink set eth0 up".to_owned();
        for number in 0..CLIENTS {
            let (v4, v6) = self::client(number);
            addresses += &format!("\naddr add {v4}/24 dev eth0\naddr add {v6}/64 dev eth0 nodad");
        }
        addresses += "\nroute add default via 10.1.0.1\nroute add default via fd00:1::1";
        batch(&client, &addresses);
        batch(
            &server,
            "link set lo up
            link set eth0 up
            addr add 10.2.0.2/24 dev eth0
            addr add fd00:2::2/64 dev eth0 nodad
            route add default via 10.2.0.1
            route add default via fd00:2::1",
        );
        let set = || {
            for (file, value) in [
                ("ipv4/ip_forward", "1"),
                ("ipv6/conf/all/forwarding", "1"),
                // The kernel's limits by address.
                ("ipv4/icmp_ratelimit", "0"),
                ("ipv6/icmp/ratelimit", "0"),
            ] {
                std::fs::write(format!("/proc/sys/net/{file}"), value).unwrap();
            }
        };
        router.enter(set).unwrap();
        // Translation by nftables, other the rules.
        let nft = "table inet other {\n chain nat {\n type nat hook prerouting priority -100;\n\
            ip daddr 10.1.0.1 udp dport 20 dnat to 10.2.0.2:13\n\
            ip daddr 10.1.0.1 tcp dport 20 dnat to 10.2.0.2:80\n\
            ip6 daddr fd00:1::1 udp dport 20 dnat to [fd00:2::2]:13\n\
            ip6 daddr fd00:1::1 tcp dport 20 dnat to [fd00:2::2]:80\n }\n}\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, nft).unwrap();
        router
            .run(&["nft", "-f", file.path().to_str().unwrap()])
            .unwrap();
        AnswerLine {
            client,
            router,
            _server: server,
        }
    }

    /// Sends packets from the client, and returns what came back to each address.
    fn answers(&self, packets: &[(String, Vec<u8>)]) -> BTreeMap<IpAddr, Vec<Vec<u8>>> {
        let exchange = || {
            let received = socket(
                AddressFamily::Packet,
                SockType::Datagram,
                SockFlag::SOCK_NONBLOCK,
                SockProtocol::EthAll,
            )
            .unwrap();
            setsockopt(&received, sockopt::RcvBuf, &(4 << 20)).unwrap();
            let raw = RawSockets::open(None).unwrap();
            let mut answers: BTreeMap<IpAddr, Vec<Vec<u8>>> = BTreeMap::new();
            let mut listen = |time: Duration| {
                let begin = Instant::now();
                while begin.elapsed() < time {
                    let mut bytes = vec![0; 2048];
                    let Ok(length) = recv(received.as_raw_fd(), &mut bytes, MsgFlags::empty())
                    else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    bytes.truncate(length);
                    if let Some((to, bytes)) = normal(bytes) {
                        answers.entry(to).or_default().push(bytes);
                    }
                }
            };
            for (name, packet) in packets {
                raw.send(packet, 0)
                    .unwrap_or_else(|error| panic!("{name}: {error}"));
                listen(Duration::from_millis(10));
            }
            listen(Duration::from_millis(1000));
            answers
        };
        self.client.enter(exchange).unwrap()
    }
}

/// An answer without what the kernel numbers, and with as many quoted bytes as ours.
fn normal(mut bytes: Vec<u8>) -> Option<(IpAddr, Vec<u8>)> {
    const QUOTED: usize = 256;
    match bytes.first()? >> 4 {
        4 => {
            let to = IpAddr::from(*bytes[16..].first_chunk::<4>()?);
            let is_answer = bytes[9] == 1 && bytes[20] == 3 || bytes[9] == 6 && bytes[33] & 4 != 0;
            let is_client = bytes[16..19] == [10, 1, 0] && bytes[19] >= 100;
            if !is_answer || !is_client {
                return None;
            }
            bytes[4..6].fill(0);
            bytes[10..12].fill(0);
            if bytes[9] == 6 {
                complete(&mut bytes, 20, 12..20);
            }
            if bytes.len() > 28 + QUOTED {
                bytes.truncate(28 + QUOTED);
                bytes[2..4].fill(0);
                bytes[22..24].fill(0);
            } else if bytes[9] == 1 && bytes.len() == 28 + QUOTED {
                bytes[2..4].fill(0);
                bytes[22..24].fill(0);
            }
            Some((to, bytes))
        }
        6 => {
            let to = Ipv6Addr::from(*bytes[24..].first_chunk::<16>()?);
            let is_answer = bytes[6] == 58 && bytes[40] == 1 || bytes[6] == 6 && bytes[53] & 4 != 0;
            if !is_answer || to.segments()[7] < 0x100 || to.segments()[1] != 1 {
                return None;
            }
            if bytes[6] == 6 {
                complete(&mut bytes, 40, 8..40);
            }
            // The flow label is a hash.
            bytes[1] &= 0xf0;
            bytes[2..4].fill(0);
            if bytes[6] == 58 && bytes.len() >= 48 + QUOTED {
                bytes.truncate(48 + QUOTED);
                bytes[4..6].fill(0);
                bytes[42..44].fill(0);
            }
            Some((to.into(), bytes))
        }
        _ => None,
    }
}

/// Checks the checksum of TCP, and completes that of the kernel, which a device would complete.
fn complete(bytes: &mut [u8], at: usize, addresses: std::ops::Range<usize>) {
    let length = (bytes.len() - at) as u32;
    let pseudo = Sum::new().bytes(&bytes[addresses]).u32(6).u32(length);
    let field = at + 16..at + 18;
    if bytes[field.clone()] == (!pseudo.finish()).to_be_bytes() {
        bytes[field.clone()].fill(0);
        let sum = pseudo.bytes(&bytes[at..]).finish();
        bytes[field].copy_from_slice(&sum.to_be_bytes());
    }
    assert_eq!(pseudo.bytes(&bytes[at..]).finish(), 0, "{bytes:?}");
}

const KINDS: [&str; 7] = [
    "icmp-net-unreachable",
    "icmp-host-unreachable",
    "icmp-proto-unreachable",
    "icmp-port-unreachable",
    "icmp-net-prohibited",
    "icmp-host-prohibited",
    "icmp-admin-prohibited",
];
const KINDS6: [&str; 6] = [
    "icmp6-no-route",
    "icmp6-adm-prohibited",
    "icmp6-addr-unreachable",
    "icmp6-port-unreachable",
    "icmp6-policy-fail",
    "icmp6-reject-route",
];

/// Rules that reject all packets of [`packets`], and count answers by their state.
fn rules(kinds: &[&str], icmp: &str) -> String {
    let mut rules = Vec::new();
    for chain in ["INPUT", "FORWARD"] {
        for (at, kind) in kinds.iter().enumerate() {
            let port = 10 + at;
            rules.push(format!(
                "{chain} -p udp -m udp --dport {port} -j REJECT --reject-with {kind}"
            ));
        }
        rules.push(format!(
            "{chain} -p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset"
        ));
        rules.push(format!("{chain} -p tcp -m tcp --dport 81 -j REJECT"));
        // Not neighbour discovery.
        let kinds: &[u8] = if icmp == "icmp" {
            &[8, 3, 200]
        } else {
            &[128, 1, 200]
        };
        for kind in kinds {
            let option = if icmp == "icmp" {
                "-m icmp --icmp-type"
            } else {
                "-m icmp6 --icmpv6-type"
            };
            rules.push(format!("{chain} -p {icmp} {option} {kind} -j REJECT"));
        }
        rules.push(format!("{chain} -p 253 -j REJECT"));
    }
    for state in ["NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED"] {
        for protocol in [icmp, "tcp"] {
            rules.push(format!(
                "OUTPUT -o lan -p {protocol} -m conntrack --ctstate {state}"
            ));
        }
    }
    rules.push("OUTPUT -p tcp -m tcp --tcp-flags RST RST -m conntrack --ctdir REPLY".into());
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    filter(&rules)
}

/// Packets to the router and through it, each from its own address.
fn packets() -> Vec<(String, Vec<u8>)> {
    let mut out: Vec<(String, Vec<u8>)> = Vec::new();
    let mut numbers = 0..CLIENTS;
    let syn = |port: u16, flags: Flags| tcp::Header {
        src_port: 6000,
        dst_port: port,
        seq: 0xffff_fff0,
        ack: 0x1234_5678,
        flags,
        window: 1000,
        ..tcp::Header::default()
    };
    for (place, to) in [("input", ROUTER), ("forward", SERVER)] {
        for family in [4, 6] {
            let mut add =
                |name: &str, build: &dyn Fn(Frame) -> Frame, change: &dyn Fn(&mut Vec<u8>)| {
                    let from = client(numbers.next().expect("an address"));
                    let frame = match family {
                        4 => Frame::raw().ipv4_header(ipv4::Header {
                            id: 77,
                            dscp: 10,
                            ..ipv4::Header::new(from.0, to.0)
                        }),
                        _ => Frame::raw().ipv6_header(ipv6::Header {
                            dscp: 10,
                            ..ipv6::Header::new(from.1, to.1)
                        }),
                    };
                    let mut bytes = build(frame).build();
                    change(&mut bytes);
                    out.push((format!("{place} {name} {family}"), bytes));
                };
            let same = |_: &mut Vec<u8>| {};
            let set_sum = |bytes: &mut Vec<u8>| {
                bytes[10..12].fill(0);
                let sum = fairpath_wire::checksum::checksum(&bytes[..20]);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            };
            let header = if family == 4 { 20 } else { 40 };
            for port in 10..17 {
                let kind = format!("udp {port}");
                add(&kind, &|f| f.udp(5000, port).payload(b"hello"), &same);
            }
            let udp = |f: Frame| f.udp(5000, 13).payload(b"hello");
            add("udp long", &|f| f.udp(5000, 13).zeros(1000), &same);
            add("udp wrong", &udp, &|bytes| bytes[header + 6] ^= 1);
            add("udp without checksum", &udp, &|bytes| {
                bytes[header + 6..header + 8].fill(0);
            });
            add("syn", &|f| f.tcp(syn(80, Flags::SYN)), &same);
            add(
                "syn with data",
                &|f| f.tcp(syn(80, Flags::SYN)).payload(b"abc"),
                &same,
            );
            let fin = Flags(Flags::SYN.0 | Flags::FIN.0);
            add("syn fin", &|f| f.tcp(syn(80, fin)), &same);
            add(
                "ack",
                &|f| f.tcp(syn(80, Flags::ACK)).payload(b"abcdef"),
                &same,
            );
            let rst = Flags(Flags::RST.0 | Flags::ACK.0);
            add("rst", &|f| f.tcp(syn(80, rst)), &same);
            add("syn wrong", &|f| f.tcp(syn(80, Flags::SYN)), &|bytes| {
                bytes[header + 17] ^= 1;
            });
            add("syn to error", &|f| f.tcp(syn(81, Flags::SYN)), &same);
            let echo = icmp::Message::EchoRequest { id: 1, seq: 2 };
            add("echo", &|f| f.icmp(echo).payload(b"ping"), &same);
            let quoted = Frame::raw().udp_header(udp::Header {
                src_port: 1,
                dst_port: 2,
                ..udp::Header::default()
            });
            let error = icmp::Message::Unreachable { code: 1 };
            add("error", &|f| f.icmp(error).quote(&quoted), &same);
            let odd = icmp::Message::Other {
                kind: 200,
                code: 0,
                rest: 0,
            };
            add("icmp 200", &|f| f.icmp(odd), &same);
            add(
                "protocol 253",
                &|f| f.payload(b"abcdefgh"),
                &|bytes| match family {
                    4 => {
                        bytes[9] = IpProto::EXPERIMENT.0;
                        set_sum(bytes);
                    }
                    _ => bytes[6] = IpProto::EXPERIMENT.0,
                },
            );
        }
    }
    // To addresses of several hosts.
    for to in [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 1, 0, 255)] {
        let from = client(numbers.next().expect("an address")).0;
        let frame = Frame::raw().ipv4(from, to).udp(5000, 13);
        out.push((format!("broadcast {to}"), frame.build()));
        let from = client(numbers.next().expect("an address")).0;
        let frame = Frame::raw().ipv4(from, to).tcp(syn(80, Flags::SYN));
        out.push((format!("broadcast tcp {to}"), frame.build()));
    }
    let from = client(numbers.next().expect("an address"));
    let header = ipv4::Header {
        options: vec![1, 1, 1, 0],
        ..ipv4::Header::new(from.0, ROUTER.0)
    };
    let frame = Frame::raw().ipv4_header(header).udp(5000, 13);
    out.push(("options 4".into(), frame.payload(b"hello").build()));
    for to in [ROUTER.1, SERVER.1] {
        for is_tcp in [false, true] {
            let from = client(numbers.next().expect("an address"));
            let header = ipv6::Header {
                extensions: vec![
                    ipv6::Extension::HopByHop(vec![1, 4, 0, 0, 0, 0]),
                    ipv6::Extension::DestinationOptions(vec![1, 4, 0, 0, 0, 0]),
                ],
                ..ipv6::Header::new(from.1, to)
            };
            let frame = Frame::raw().ipv6_header(header);
            let frame = match is_tcp {
                true => frame.tcp(syn(80, Flags::SYN)),
                false => frame.udp(5000, 13).payload(b"hello"),
            };
            out.push((format!("extensions {to} {is_tcp}"), frame.build()));
        }
    }
    // Translated, to the router's own address.
    for family in [4, 6] {
        for is_tcp in [false, true] {
            let from = client(numbers.next().expect("an address"));
            let frame = match family {
                4 => Frame::raw().ipv4(from.0, ROUTER.0),
                _ => Frame::raw().ipv6(from.1, ROUTER.1),
            };
            let frame = match is_tcp {
                true => frame.tcp(syn(20, Flags::SYN)),
                false => frame.udp(5000, 20).payload(b"hello"),
            };
            out.push((format!("translated {family} {is_tcp}"), frame.build()));
        }
    }
    out
}

/// `rules answer` in the background.
pub struct Answering {
    child: Child,
    notes: BufReader<ChildStderr>,
}

impl Answering {
    fn start(router: &Router) -> Answering {
        let mut command = router.command(&["answer"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let notes = BufReader::new(child.stderr.take().unwrap());
        Answering { child, notes }
    }

    pub fn new(router: &Router) -> Answering {
        let mut answering = Answering::start(router);
        answering.expect("answering the packets that rules reject");
        answering
    }

    #[track_caller]
    fn expect(&mut self, note: &str) {
        let mut line = String::new();
        self.notes.read_line(&mut line).unwrap();
        assert!(line.contains(note), "{line}");
    }

    pub fn stop(self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Rules of OUTPUT with their packets. Bytes differ by what is quoted, and neighbour discovery, which is
/// not tracked, by chance.
fn output_counters(save: &str) -> Vec<String> {
    let rules = save.lines().filter(|line| line.contains("-A OUTPUT"));
    let rules = rules.filter(|line| !line.ends_with("UNTRACKED"));
    let packets = rules.filter_map(|line| {
        let (packets, _) = line.split_once(':')?;
        let (_, rule) = line.split_once(']')?;
        Some(format!("{packets}]{rule}"))
    });
    packets.collect()
}

/// Answers by the address that gets them, and the counters of OUTPUT.
type Answered = (BTreeMap<IpAddr, Vec<Vec<u8>>>, Vec<String>);

/// Answers of iptables-legacy in a router that `set` changes.
fn of_kernel(packets: &[(String, Vec<u8>)], set: &dyn Fn(&Netns)) -> Answered {
    let testbed = Testbed::new();
    let line = AnswerLine::new(&testbed);
    set(&line.router);
    let texts = [rules(&KINDS, "icmp"), rules(&KINDS6, "ipv6-icmp")];
    for (text, tool) in texts.iter().zip(["iptables", "ip6tables"]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        let restore = format!("{tool}-legacy-restore");
        line.router
            .run(&[&restore, file.path().to_str().unwrap()])
            .unwrap();
    }
    let answers = line.answers(packets);
    let mut saved = Vec::new();
    for tool in ["iptables", "ip6tables"] {
        let save = format!("{tool}-legacy-save");
        saved.extend(output_counters(&line.router.run(&[&save, "-c"]).unwrap()));
    }
    (answers, saved)
}

/// Answers of `rules answer` in the same router.
fn of_ours(packets: &[(String, Vec<u8>)], set: &dyn Fn(&Netns)) -> Answered {
    let testbed = Testbed::new();
    let line = AnswerLine::new(&testbed);
    set(&line.router);
    let router = Router::new(line.router.clone());
    let files = [
        router.file("rules.v4", &rules(&KINDS, "icmp")),
        router.file("rules.v6", &rules(&KINDS6, "ipv6-icmp")),
    ];
    router.done(&["load", &files[0], &files[1]]);
    let answering = Answering::new(&router);
    let answers = line.answers(packets);
    let summary = answering.stop();
    assert!(summary.contains(" 0 over the limit, "), "{summary}");
    (answers, output_counters(&router.done(&["counters"])))
}

/// The address that an answer to a packet has.
fn sender(packet: &[u8]) -> IpAddr {
    match packet[0] >> 4 {
        4 => IpAddr::from(*packet[12..].first_chunk::<4>().unwrap()),
        _ => IpAddr::from(*packet[8..].first_chunk::<16>().unwrap()),
    }
}

#[test]
fn answers_are_those_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let packets = packets();
    let of_kernel = of_kernel(&packets, &|_| ());
    let of_ours = of_ours(&packets, &|_| ());
    for (name, packet) in &packets {
        let from = sender(packet);
        assert_eq!(of_ours.0.get(&from), of_kernel.0.get(&from), "{name}");
        let silent = ["wrong", "rst", "error ", "protocol 253", "broadcast"];
        let silent = silent.iter().any(|part| name.contains(part)) && !name.contains("to error")
            || name.ends_with("icmp 200 4")
            || name == "forward udp 16 6";
        assert_eq!(of_kernel.0.contains_key(&from), !silent, "{name}");
    }
    assert_eq!(of_ours.1, of_kernel.1);
}

/// A router with other hop limits, sources by routes, and routes by the sources of packets.
#[test]
fn answers_take_the_routes_of_iptables() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    // Destinations with a rule of routing for packets from them.
    let silent = [
        (Ipv4Addr::new(10, 2, 0, 1), "fd00:2::1".parse().unwrap()),
        (Ipv4Addr::new(10, 2, 0, 3), "fd00:2::3".parse().unwrap()),
    ];
    let mut packets = Vec::new();
    let mut numbers = 0..CLIENTS;
    for to in [ROUTER, SERVER, silent[0], silent[1]] {
        for family in [4, 6] {
            for is_tcp in [false, true] {
                let from = client(numbers.next().expect("an address"));
                let frame = match family {
                    4 => Frame::raw().ipv4(from.0, to.0),
                    _ => Frame::raw().ipv6(from.1, to.1),
                };
                let frame = match is_tcp {
                    true => frame.tcp(tcp::Header {
                        dst_port: 80,
                        flags: Flags::SYN,
                        ..tcp::Header::default()
                    }),
                    false => frame.udp(5000, 13).payload(b"hello"),
                };
                let name = format!("{family} {} {} {is_tcp}", to.0, to.1);
                packets.push((name, frame.build()));
            }
        }
    }
    for by_inbound in ["0", "1"] {
        let set = |router: &Netns| {
            let lines = [
                "route replace 10.1.0.0/24 dev lan src 10.2.0.1",
                "-6 route replace fd00:1::/64 dev lan src fd00:2::1",
                "rule add from 10.2.0.1 blackhole",
                "rule add from 10.2.0.3 blackhole",
                "-6 rule add from fd00:2::1 blackhole",
                "-6 rule add from fd00:2::3 blackhole",
            ];
            for line in lines {
                let words: Vec<&str> = ["ip"].into_iter().chain(line.split(' ')).collect();
                router.run(&words).unwrap();
            }
            let files = [
                ("ipv4/ip_default_ttl", "128"),
                ("ipv6/conf/lan/hop_limit", "99"),
                ("ipv4/icmp_errors_use_inbound_ifaddr", by_inbound),
            ];
            let write = || {
                for (file, value) in files {
                    std::fs::write(format!("/proc/sys/net/{file}"), value).unwrap();
                }
            };
            router.enter(write).unwrap();
        };
        let of_kernel = of_kernel(&packets, &set);
        let of_ours = of_ours(&packets, &set);
        for (name, packet) in &packets {
            let answers = of_kernel.0.get(&sender(packet));
            assert_eq!(of_ours.0.get(&sender(packet)), answers, "{name}");
            // An error that is sent for another host has the router's address.
            let is_silent =
                name.contains("10.2.0.1") || name.contains("10.2.0.3") && name.ends_with("true");
            assert_eq!(answers.is_none(), is_silent, "{name}");
            if let Some(answer) = answers.and_then(|all| all.first()) {
                let hops = if name.starts_with('4') {
                    answer[8]
                } else {
                    answer[7]
                };
                assert_eq!(hops, if name.starts_with('4') { 128 } else { 99 }, "{name}");
            }
        }
    }
}

/// Connections of processes of the host end at once, and its UDP sockets get errors.
#[test]
fn answers_reach_processes_of_the_host() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("own").unwrap());
    router.load(&filter(&[
        "INPUT -p tcp -m tcp --dport 79 -j REJECT --reject-with tcp-reset",
        "OUTPUT -p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset",
        "OUTPUT -p udp -m udp --dport 80 -j REJECT",
        "OUTPUT -p udp -m udp --dport 81 -j REJECT --reject-with icmp-admin-prohibited",
    ]));
    let answering = Answering::new(&router);
    let connect = || {
        for port in [79, 80] {
            let error = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(Errno::ECONNREFUSED as i32),
                "{error}"
            );
        }
        for (port, number) in [
            (80, Errno::ECONNREFUSED as i32),
            (81, Errno::EHOSTUNREACH as i32),
        ] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(("127.0.0.1", port)).unwrap();
            let long = Duration::from_secs(10);
            socket.set_read_timeout(Some(long)).unwrap();
            let _ = socket.send(b"x");
            let error = socket.recv(&mut [0; 8]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(number), "{port}: {error}");
        }
    };
    router.netns.enter(connect).unwrap();
    answering.stop();
}

/// The scope of a link-local address is the interface by which the packet would have left.
#[test]
fn answers_in_output_reach_link_local_addresses() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("link").unwrap());
    let lines = [
        "link add d0 type veth peer name d1",
        "link set d0 up",
        "link set d1 up",
        "addr add fe80::1/64 dev d0 nodad",
    ];
    router.netns.ip_batch(&lines.map(str::to_owned)).unwrap();
    let text = filter(&[
        "OUTPUT -p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset",
        "OUTPUT -p udp -m udp --dport 80 -j REJECT",
    ]);
    let file = router.file("rules.v6", &text);
    router.done(&["load", &file]);
    let answering = Answering::new(&router);
    let connect = || {
        let scope = nix::net::if_::if_nametoindex("d0").unwrap();
        let address =
            |host: &str, port| std::net::SocketAddrV6::new(host.parse().unwrap(), port, 0, scope);
        let to = address("fe80::2", 80);
        let long = Duration::from_secs(10);
        let error = std::net::TcpStream::connect_timeout(&to.into(), long).unwrap_err();
        let refused = Some(Errno::ECONNREFUSED as i32);
        assert_eq!(error.raw_os_error(), refused, "{error}");
        let socket = UdpSocket::bind(address("fe80::1", 0)).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(long)).unwrap();
        let _ = socket.send(b"x");
        let error = socket.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(error.raw_os_error(), refused, "{error}");
    };
    router.netns.enter(connect).unwrap();
    answering.stop();
}

#[test]
fn answers_to_an_address_are_limited() {
    requires!(Need::Root, Need::Tool("nft"));
    let testbed = Testbed::new();
    let line = AnswerLine::new(&testbed);
    let router = Router::new(line.router.clone());
    router.load(&filter(&["FORWARD -p udp -j REJECT"]));
    let answering = Answering::new(&router);
    let packets: Vec<_> = (0..40u8)
        .map(|at| {
            let from = client(at / 20).0;
            let frame = Frame::raw().ipv4(from, SERVER.0).udp(5000, 13);
            (format!("packet {at}"), frame.payload(&[at]).build())
        })
        .collect();
    let answers = line.answers(&packets);
    let numbers: Vec<usize> = answers.values().map(Vec::len).collect();
    // Six at once, and one a second.
    assert_eq!(numbers.len(), 2);
    assert!(
        numbers.iter().all(|number| (6..10).contains(number)),
        "{numbers:?}"
    );
    let sum: usize = numbers.iter().sum();
    let summary = answering.stop();
    let expected = format!(
        "{sum} packets answered, {} over the limit, 0 without",
        40 - sum
    );
    assert!(summary.starts_with(&expected), "{summary}");
}

#[test]
fn one_process_answers_also_after_kills() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let router = Router::new(testbed.netns("one").unwrap());
    let text = filter(&["INPUT -p tcp -m tcp --dport 80 -j REJECT --reject-with tcp-reset"]);
    let file = router.file("rules.v4", &text);
    for option in ["--require-answers", "--require-daemon"] {
        let error = router.fails(&["load", &file, option]);
        assert!(
            error.contains("no process answers them: run `fairpath rules answer`"),
            "{error}"
        );
    }
    assert!(router.fails(&["show"]).contains("no rules are loaded"));
    let mut first = Answering::start(&router);
    first.expect("no rules are loaded: waiting for them");
    router.done(&["load", &file, "--require-answers"]);
    let error = router.fails(&["answer"]);
    assert!(error.contains("another process does so"), "{error}");
    let refused = || {
        let address = "127.0.0.1:80".parse().unwrap();
        let connected = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(900));
        connected.unwrap_err().raw_os_error() == Some(Errno::ECONNREFUSED as i32)
    };
    let until = |wanted: bool| {
        let begin = Instant::now();
        while router.netns.enter(refused).unwrap() != wanted {
            assert!(begin.elapsed() < Duration::from_secs(20), "{wanted}");
        }
    };
    until(true);
    // Other rules, and rules after none.
    router.load(&text.replace("80", "1:80"));
    until(true);
    router.done(&["unload"]);
    router.load(&text);
    until(true);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    until(false);
    let shown = router.done(&["show"]);
    assert!(
        shown.contains("get no answer: run `fairpath rules answer`"),
        "{shown}"
    );
    let second = Answering::new(&router);
    until(true);
    second.stop();
}

/// True if a datagram to the router is answered with an ICMP error of `icmp-admin-prohibited`. A kernel
/// without rules answers with another one.
fn is_prohibited(line: &AnswerLine, number: u8, port: u16) -> bool {
    let attempt = || {
        let socket = UdpSocket::bind((client(number).0, 0)).unwrap();
        socket.connect((ROUTER.0, port)).unwrap();
        let patience = Some(Duration::from_millis(300));
        socket.set_read_timeout(patience).unwrap();
        let _ = socket.send(b"x");
        let error = socket.recv(&mut [0; 8]).unwrap_err();
        error.raw_os_error() == Some(Errno::EHOSTUNREACH as i32)
    };
    line.client.enter(attempt).unwrap()
}

#[test]
fn the_daemon_answers_what_is_loaded() {
    requires!(Need::Root);
    let testbed = Testbed::new();
    let line = AnswerLine::new(&testbed);
    let router = Router::new(line.router.clone());
    let reject = |port: u16| {
        let rule = format!(
            "INPUT -p udp -m udp --dport {port} -j REJECT --reject-with icmp-admin-prohibited"
        );
        router.file(&format!("{port}.v4"), &filter(&[&rule]))
    };
    let files = [reject(7001), reject(7002)];
    let mut numbers = 0..CLIENTS;
    let mut answered = |port| {
        let prohibited = || is_prohibited(&line, numbers.next()?, port).then_some(());
        wait_for(PATIENCE, prohibited).is_some()
    };
    router.place.configure(&["lan"], "[rules]\nanswer = false");
    let daemon = Daemon::start(&router.netns, &router.place);
    let refused = router.fails(&["load", "--require-answers", &files[0]]);
    assert!(refused.contains("no process answers them"), "{refused}");
    assert!(daemon.stop().success());

    // Another process answers first.
    router.done(&["load", &files[0]]);
    let other = Answering::new(&router);
    router.place.configure(&["lan"], "");
    let daemon = Daemon::start(&router.netns, &router.place);
    let loaded = router.done(&["load", "--require-answers", &files[0]]);
    assert!(
        loaded.contains("a process answers their packets"),
        "{loaded}"
    );
    assert!(answered(7001));
    other.stop();
    daemon.logs("answering the packets that rules reject");
    let second = router.fails(&["answer"]);
    assert!(second.contains("another process does so"), "{second}");
    assert!(answered(7001));
    router.done(&["load", "--require-answers", &files[1]]);
    assert!(answered(7002));
    assert!(!is_prohibited(&line, CLIENTS - 1, 7001));
    router.done(&["unload"]);
    router.done(&["load", &files[0]]);
    assert!(answered(7001));
    let counters = daemon.status()["counters"].take();
    assert!(
        counters["rejects_answered"].as_u64() >= Some(3),
        "{counters}"
    );
    assert_eq!(counters["rejects_not_sent"], 0);
    assert!(daemon.stop().success());
    let shown = router.done(&["show"]);
    assert!(shown.contains("rejected packets get no answer"), "{shown}");
}
