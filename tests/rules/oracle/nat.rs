//! Table nat, compared with the kernel: the packets that meet it, and those behind a translation.

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{
    Connection, Core, Counters, Facts, Family, Hook, Packet, Reference, Unknown, Verdict,
};
use fairpath_testbed::{Need, Netns, Testbed, requires};
use fairpath_tests::oracle::packets::{Ipv4, UDP};

use super::legacy::Tool;
use super::parse;

const NEW: u8 = 2;
const DNAT: u8 = 64;
const CONFIRMED: u8 = 8;

/// The hooks of a packet to the host itself, with its input and output.
const LOCAL: [(Hook, &[u8], &[u8]); 4] = [
    (Hook::Output, b"", b"lo"),
    (Hook::Postrouting, b"", b"lo"),
    (Hook::Prerouting, b"lo", b""),
    (Hook::Input, b"lo", b""),
];

/// A namespace with these rules.
pub fn namespace(testbed: &Testbed, text: &str) -> Netns {
    let netns = testbed.netns("nat").unwrap();
    netns.run(&["ip", "link", "set", "lo", "up"]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let path = file.path().to_str().unwrap();
    netns.run(&["iptables-legacy-restore", path]).unwrap();
    netns
}

/// Sends datagrams from port 6000, without an answer.
fn send(netns: &Netns, port: u16, count: usize) {
    netns
        .enter(|| {
            let receiver = std::net::UdpSocket::bind("127.0.0.1:7001").unwrap();
            let sender = std::net::UdpSocket::bind("127.0.0.1:6000").unwrap();
            for _ in 0..count {
                sender.send_to(b"x", ("127.0.0.1", port)).unwrap();
            }
            drop(receiver);
        })
        .unwrap();
}

/// The packets of the kernel's rule with this text.
pub fn packets(netns: &Netns, table: &str, rule: &str) -> u64 {
    let saved = netns.run(&["iptables-legacy-save", "-c", "-t", table]);
    let saved = saved.unwrap();
    let line = saved.lines().find(|line| line.ends_with(rule)).unwrap();
    line[1..].split(':').next().unwrap().parse().unwrap()
}

fn datagram(port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    let header = [
        6000u16.to_be_bytes(),
        [high, low],
        9u16.to_be_bytes(),
        [0; 2],
    ]
    .concat();
    let mut ipv4 = Ipv4::new(UDP);
    (ipv4.from, ipv4.to) = ([127, 0, 0, 1], [127, 0, 0, 1]);
    ipv4.packet(&[&header[..], b"x"].concat())
}

fn fact(connection: Connection, input: &[u8], output: &[u8]) -> Facts {
    Facts {
        input: Some(input.into()),
        output: Some(output.into()),
        connection: Some(connection),
        ..Facts::usual()
    }
}

#[test]
fn only_the_first_packet_meets_nat() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let rule = |hook: Hook| format!("-A {} -p udp -m udp --dport 7001", hook.chain());
    let rules: String = LOCAL.map(|(hook, ..)| rule(hook) + "\n").concat();
    // Without a rule about connections, the kernel has none, and no packet meets table nat.
    let tracked = "*mangle\n-A OUTPUT -m conntrack --ctstate NEW\nCOMMIT\n";
    let text = format!("*nat\n{rules}COMMIT\n{tracked}");
    let testbed = Testbed::new();
    let netns = namespace(&testbed, &text);
    send(&netns, 7001, 3);
    let tree = parse(Tool::V4, &text);
    let built = build(&tree, None, Lookups::default()).unwrap();
    let mut core = Core::new(&built, CounterMode::Exact).unwrap();
    let mut reference = Reference::new(&tree, None);
    let bytes = datagram(7001);
    for number in 0..3 {
        for (at, (hook, input, output)) in LOCAL.into_iter().enumerate() {
            // The first packet is confirmed after POSTROUTING.
            let confirmed = number > 0 || at >= 2;
            let connection = Connection {
                state: NEW,
                status: Some(if confirmed { CONFIRMED } else { 0 }),
                ..Connection::default()
            };
            let packet = Packet {
                family: Family::Ipv4,
                bytes: &bytes,
                network: 0,
                length: bytes.len(),
                facts: fact(connection, input, output),
            };
            core.evaluate(hook, &packet).unwrap();
            reference.evaluate(hook, &packet);
        }
    }
    for (hook, ..) in LOCAL {
        let chain = tree.tables[0].find(hook.chain().as_bytes()).unwrap();
        let kernel = packets(&netns, "nat", &rule(hook));
        let Counters { packets: core, .. } = core.counters(built.rule_id(0, chain, 0));
        let Counters { packets: other, .. } = reference.counters("nat", chain, 0);
        assert_eq!([core, other], [kernel; 2], "{hook:?}");
        assert_eq!(
            kernel,
            u64::from(matches!(hook, Hook::Output | Hook::Postrouting))
        );
    }
}

/// A later packet of a translated connection is NEW, and table filter meets its other destination.
#[test]
fn unanswered_packets_are_translated_before_filter() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let text = "*nat\n-A OUTPUT -p udp -m udp --dport 7000 -j DNAT --to-destination 127.0.0.1:7001\n\
                COMMIT\n*mangle\n-A OUTPUT -p udp -m conntrack --ctstate NEW\n\
                -A OUTPUT -p udp -m conntrack --ctstate DNAT\nCOMMIT\n\
                *filter\n-A OUTPUT -p udp -m udp --dport 7000\n\
                -A OUTPUT -p udp -m udp --dport 7001\nCOMMIT\n";
    let testbed = Testbed::new();
    let netns = namespace(&testbed, text);
    send(&netns, 7000, 3);
    let of = |table, rule| packets(&netns, table, rule);
    assert_eq!(
        of("mangle", "-A OUTPUT -p udp -m conntrack --ctstate NEW"),
        3
    );
    assert_eq!(
        of("mangle", "-A OUTPUT -p udp -m conntrack --ctstate DNAT"),
        2
    );
    assert_eq!(of("nat", "-j DNAT --to-destination 127.0.0.1:7001"), 1);
    assert_eq!(of("filter", "--dport 7000"), 0);
    assert_eq!(of("filter", "--dport 7001"), 3);
    let connection = Connection {
        state: NEW | DNAT,
        status: Some(CONFIRMED),
        ..Connection::default()
    };
    let bytes = datagram(7000);
    let packet = Packet {
        family: Family::Ipv4,
        bytes: &bytes,
        network: 0,
        length: bytes.len(),
        facts: fact(connection, b"", b"lo"),
    };
    let translated = Verdict::Unknown(Unknown::Translation);
    for text in [text, &text[text.find("*mangle").unwrap()..]] {
        let tree = parse(Tool::V4, text);
        let built = build(&tree, None, Lookups::default()).unwrap();
        let mut core = Core::new(&built, CounterMode::Exact).unwrap();
        let of_core = core.evaluate(Hook::Output, &packet).unwrap().verdict;
        let of_reference = Reference::new(&tree, None).evaluate(Hook::Output, &packet);
        assert_eq!(
            [of_core, of_reference.verdict],
            [translated.clone(), translated.clone()]
        );
    }
}

/// The reset for a packet that was rejected in OUTPUT comes back by `lo` without a confirmed connection,
/// but has met the source's side of table nat as it left.
#[test]
fn answers_of_lo_meet_nat_once() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    const RELATED: u8 = 4;
    let rules = [Hook::Postrouting, Hook::Input].map(|hook| format!("-A {} -p tcp", hook.chain()));
    let reject = "-A OUTPUT -p tcp -m tcp --dport 1111 -j REJECT --reject-with tcp-reset";
    let tracked = "-A INPUT -p tcp -m conntrack --ctstate RELATED";
    let text = format!(
        "*nat\n{}\n{}\nCOMMIT\n*filter\n{reject}\n{tracked}\nCOMMIT\n",
        rules[0], rules[1]
    );
    let testbed = Testbed::new();
    let netns = namespace(&testbed, &text);
    let connected = netns.enter(|| std::net::TcpStream::connect("127.0.0.1:1111").is_ok());
    assert!(!connected.unwrap());
    assert_eq!(packets(&netns, "filter", tracked), 1);
    let tree = parse(Tool::V4, &text);
    let built = build(&tree, None, Lookups::default()).unwrap();
    let mut core = Core::new(&built, CounterMode::Exact).unwrap();
    let mut reference = Reference::new(&tree, None);
    let mut ipv4 = Ipv4::new(6);
    (ipv4.from, ipv4.to) = ([127, 0, 0, 1], [127, 0, 0, 1]);
    let bytes = ipv4.packet(&[
        4, 87, 0x9c, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 0x50, 0x14, 0, 0, 0, 0, 0, 0,
    ]);
    for (at, (hook, input, output)) in LOCAL.into_iter().enumerate().skip(1) {
        let connection = Connection {
            state: RELATED,
            status: Some(0),
            reply: Some(true),
            ..Connection::default()
        };
        let packet = Packet {
            family: Family::Ipv4,
            bytes: &bytes,
            network: 0,
            length: bytes.len(),
            facts: fact(connection, input, output),
        };
        core.evaluate(hook, &packet).unwrap();
        reference.evaluate(hook, &packet);
        let Some(rule) = [1, 3].iter().position(|number| *number == at) else {
            continue;
        };
        let chain = tree.tables[0].find(hook.chain().as_bytes()).unwrap();
        let kernel = packets(&netns, "nat", &rules[rule]);
        let Counters { packets: core, .. } = core.counters(built.rule_id(0, chain, 0));
        let Counters { packets: other, .. } = reference.counters("nat", chain, 0);
        let expected = u64::from(hook == Hook::Postrouting);
        assert_eq!([kernel, core, other], [expected; 3], "{hook:?}");
    }
}
