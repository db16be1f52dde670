//! Connections: table raw before connection tracking, and the tables after it, compared with the
//! kernel.

use std::time::Duration;

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{Connection, Core, Facts, Hook, Packet, Reference, Unknown, Verdict};
use fairpath_testbed::{Need, Testbed, requires, wait_for};
use fairpath_tests::oracle::compare::{Answer, counts_of_core, counts_of_reference, differing};
use fairpath_tests::oracle::packets::{ETH_IPV4, Ipv4, UDP, plain};

use super::compare::{answer, counters};
use super::legacy::{Legacy, Tool};
use super::{nat, packet, parse};

const NEW: u8 = 2;
const ESTABLISHED: u8 = 8;

/// UDP from a port to port 80, without data.
fn udp(port: u8) -> Vec<u8> {
    let datagram = [4, port, 0, 80, 0, 8, 0, 0];
    plain(ETH_IPV4, &Ipv4::new(UDP).packet(&datagram))
}

/// The frame after connection tracking, with the mark 0.
fn tracked(frame: &[u8], state: u8) -> Packet<'_> {
    let mut packet = packet(Tool::V4, frame);
    packet.facts.connection = Some(Connection {
        state,
        ..Connection::default()
    });
    packet
}

/// Core and reference give the kernel's answer to packets at PREROUTING.
#[track_caller]
fn expect(kernel: &Answer, text: &str, packets: &[Packet]) {
    let tree = parse(Tool::V4, text);
    let mut answers = Vec::new();
    for (name, lookups) in [
        ("core", Lookups::Never),
        ("core with lookups", Lookups::Always),
    ] {
        let built = build(&tree, None, lookups).unwrap();
        let mut core = Core::new(&built, CounterMode::Exact).unwrap();
        let verdicts = packets.iter().map(|packet| {
            let outcome = core.evaluate(Hook::Prerouting, packet);
            outcome.expect("whole packets").verdict
        });
        let accepted = verdicts.filter(|verdict| *verdict == Verdict::Accept);
        let accepted = accepted.count() as u64;
        let counts = counts_of_core(&tree, &built, &core);
        answers.push((name, Answer { counts, accepted }));
    }
    let mut reference = Reference::new(&tree, None);
    let verdicts = packets
        .iter()
        .map(|packet| reference.evaluate(Hook::Prerouting, packet).verdict);
    let accepted = verdicts.filter(|verdict| *verdict == Verdict::Accept);
    let accepted = accepted.count() as u64;
    let counts = counts_of_reference(&tree, &reference);
    answers.push(("reference", Answer { counts, accepted }));
    let different = differing(kernel, answers);
    assert!(different.is_none(), "{text}\n{kernel:?}\n{different:?}");
}

/// A table with rules in PREROUTING, which accepts.
fn table(name: &str, rules: &[&str]) -> String {
    let rules = rules
        .iter()
        .map(|rule| format!("-A PREROUTING {rule}\n"))
        .collect::<String>();
    format!("*{name}\n:PREROUTING ACCEPT [0:0]\n{rules}COMMIT\n")
}

/// Number of packets that a rule of PREROUTING matched in the kernel.
fn matched(kernel: &Answer, table: &str, rule: usize) -> u64 {
    let of_rule = |count: &&_| {
        let fairpath_tests::oracle::compare::RuleCount {
            table: of,
            rule: at,
            ..
        } = count;
        of == table && *at == Some(rule)
    };
    kernel
        .counts
        .iter()
        .find(of_rule)
        .map_or(0, |count| count.packets)
}

/// Four connections of one host.
#[test]
fn connlimit_counts_the_present_connection() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let text = table(
        "mangle",
        &[
            "-m connlimit --connlimit-above 2",
            "-m connlimit --connlimit-upto 2",
            "-m connlimit --connlimit-above 3 --connlimit-daddr",
        ],
    );
    let frames: Vec<Vec<u8>> = (0..4).map(udp).collect();
    let kernel = answer(&legacy, &text, &frames);
    let mut packets: Vec<Packet> = frames.iter().map(|frame| tracked(frame, NEW)).collect();
    for (number, packet) in (1..).zip(&mut packets) {
        packet.facts.connections = Some(number);
    }
    expect(&kernel, &text, &packets);
    assert_eq!(
        [0, 1, 2].map(|rule| matched(&kernel, "mangle", rule)),
        [2, 2, 1]
    );
}

/// Rules after raw, which show the connection.
const AFTER: [&str; 6] = [
    "-m conntrack --ctstate NEW",
    "-m conntrack --ctstate ESTABLISHED",
    "-m conntrack --ctstate INVALID",
    "-m conntrack --ctstate UNTRACKED",
    "-m connmark --mark 0",
    "-m connmark --mark 7",
];

#[test]
fn templates_look_new_and_keep_their_mark() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let raw = [
        "-m conntrack --ctstate INVALID",
        "-m connmark --mark 0",
        "-j CT --zone 1",
        "-m conntrack --ctstate NEW",
        "-m conntrack --ctstate INVALID,ESTABLISHED,RELATED,UNTRACKED",
        "-m conntrack --ctstatus CONFIRMED",
        "-m conntrack --ctstatus NONE",
        "-m conntrack --ctstatus EXPECTED,SEEN_REPLY,ASSURED",
        "-m conntrack --ctdir ORIGINAL",
        "-m conntrack --ctdir REPLY",
        "-m connmark --mark 0",
        "-j CONNMARK --restore-mark",
        "-m mark --mark 7",
        "-j CONNMARK --set-mark 7",
        "-j CT --zone 2",
        "-m connmark --mark 7",
        "-j CT --notrack",
        "-m conntrack --ctstate UNTRACKED",
    ];
    let text = table("raw", &raw) + &table("mangle", &AFTER);
    let frames = [udp(1), udp(2), udp(2)];
    let kernel = answer(&legacy, &text, &frames);
    let packets = frames.each_ref().map(|frame| tracked(frame, NEW));
    expect(&kernel, &text, &packets);
    assert_eq!(
        [0, 1, 3, 10, 12, 15, 17].map(|rule| matched(&kernel, "raw", rule)),
        [3, 0, 3, 1, 2, 3, 0]
    );
    assert_eq!(
        [0, 4, 5].map(|rule| matched(&kernel, "mangle", rule)),
        [3, 3, 0]
    );
}

#[test]
fn untracked_packets_get_no_template() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let raw = [
        "-j CT --notrack",
        "-j CT --zone 1",
        "-m conntrack --ctstate UNTRACKED",
        "-j CONNMARK --set-mark 7",
    ];
    let text = table("raw", &raw) + &table("mangle", &AFTER);
    let frames = [udp(1)];
    let kernel = answer(&legacy, &text, &frames);
    expect(&kernel, &text, &[tracked(&frames[0], NEW)]);
    assert_eq!([2, 3].map(|rule| matched(&kernel, "raw", rule)), [1, 1]);
    assert_eq!([3, 5].map(|rule| matched(&kernel, "mangle", rule)), [1, 0]);
}

/// A request and its reply, which met connection tracking when they were sent.
#[test]
fn packets_of_lo_keep_their_connection() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("nft"),
        Need::Tool("ping")
    );
    let legacy = Legacy::new(Tool::V4);
    let raw = [
        "-m conntrack --ctstate NEW",
        "-m conntrack --ctstate ESTABLISHED",
        "-j CT --notrack",
        "-j CT --zone 1",
        "-m conntrack --ctstate INVALID,UNTRACKED",
        "-m conntrack --ctstate ESTABLISHED -j CONNMARK --set-mark 7",
        "-m connmark --mark 7",
    ];
    let text = table("raw", &raw) + &table("mangle", &AFTER);
    legacy.load(&text).unwrap();
    let before = legacy.passed("PREROUTING");
    legacy.ping_itself();
    let kernel = Answer {
        counts: counters(&legacy, &text),
        accepted: legacy.passed("PREROUTING") - before,
    };
    // `ping` sends 56 bytes of data.
    let frame = plain(ETH_IPV4, &Ipv4::new(1).packet(&[0; 64]));
    let packets = [NEW, ESTABLISHED].map(|state| {
        let mut packet = tracked(&frame, state);
        packet.facts.input = Some(b"lo"[..].into());
        // Confirmed as it was sent.
        packet.facts.connection = Some(Connection {
            state,
            status: Some(8),
            ..Connection::default()
        });
        packet
    });
    expect(&kernel, &text, &packets);
    assert_eq!(
        [0, 1, 4, 6].map(|rule| matched(&kernel, "raw", rule)),
        [1, 1, 0, 1]
    );
    assert_eq!(
        [3, 4, 5].map(|rule| matched(&kernel, "mangle", rule)),
        [0, 1, 1]
    );
}

/// A multicast and a broadcast come back by the interface that sent them, with their connection. Those
/// of another host have none.
#[test]
fn copies_of_sent_packets_keep_their_connection() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let rule = |input, state| format!("-A PREROUTING -i {input} -m conntrack --ctstate {state}");
    let rules = [
        rule("one", "NEW"),
        rule("one", "INVALID"),
        rule("two", "NEW"),
        rule("two", "INVALID"),
    ];
    let text = format!("*raw\n{}\nCOMMIT\n", rules.join("\n"));
    let testbed = Testbed::new();
    let inside = nat::namespace(&testbed, &text);
    let set_up = "link add one type veth peer name two; addr add 10.0.0.1/24 brd + dev one; \
                  link set one up; link set two up";
    let lines: Vec<String> = set_up.split("; ").map(str::to_owned).collect();
    inside.ip_batch(&lines).unwrap();
    let destinations = [("224.0.0.1:7001", 2), ("10.0.0.255:7001", 1)];
    inside
        .enter(|| {
            let sender = std::net::UdpSocket::bind("10.0.0.1:6000").unwrap();
            sender.set_broadcast(true).unwrap();
            for (destination, _) in destinations {
                sender.send_to(b"x", destination).unwrap();
            }
        })
        .unwrap();
    let arrived = wait_for(Duration::from_secs(5), || {
        let counts = rules
            .each_ref()
            .map(|rule| nat::packets(&inside, "raw", rule));
        (counts == [2, 0, 0, 2]).then_some(())
    });
    assert!(
        arrived.is_some(),
        "{}",
        inside.run(&["iptables-legacy-save", "-c"]).unwrap()
    );
    // A capture does not show which of the two it is.
    let drops = text.replace("NEW\n", "NEW -j DROP\n");
    let tree = parse(Tool::V4, &drops);
    let built = build(&tree, None, Lookups::default()).unwrap();
    let mut core = Core::new(&built, CounterMode::Exact).unwrap();
    let mut reference = Reference::new(&tree, None);
    let bytes = udp(1);
    for (input, (_, packet_type)) in ["one", "two"]
        .into_iter()
        .flat_map(|input| destinations.map(|to| (input, to)))
    {
        let mut packet = tracked(&bytes, NEW);
        packet.facts = Facts {
            input: Some(input.as_bytes().into()),
            packet_type: Some(packet_type),
            ..packet.facts
        };
        packet.facts.connection.as_mut().unwrap().status = Some(8);
        let of_core = core.evaluate(Hook::Prerouting, &packet).unwrap().verdict;
        let of_reference = reference.evaluate(Hook::Prerouting, &packet).verdict;
        let unknown = Verdict::Unknown(Unknown::Connection);
        assert_eq!(
            [of_core, of_reference],
            [unknown.clone(), unknown],
            "{input} {packet_type}"
        );
    }
}
