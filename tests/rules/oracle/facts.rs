//! Known answers of the kernel, which the evaluators give, too.

use fairpath_rules::Unknown;
use fairpath_testbed::{Need, missing, requires, skip};

use super::compare::answer;
use super::legacy::{Legacy, Tool};
use super::{Evaluators, parse};
use fairpath_tests::oracle::compare::differing;
use fairpath_tests::oracle::packets::{
    ETH_ARP, ETH_IPV4, ETH_IPV6, Ipv4, TCP, Toward, UDP, plain, v6_packet,
};

const DCCP: u8 = 33;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const SCTP: u8 = 132;

/// Counters that are not 0, as `CHAIN NUMBER PACKETS/BYTES`, and the number of accepted frames.
fn counted(legacy: &Legacy, ruleset: &str, frames: &[Vec<u8>]) -> (Vec<String>, u64) {
    let answer = answer(legacy, ruleset, frames);
    let tree = parse(legacy.tool(), ruleset);
    let evaluators = Evaluators::new(legacy.tool(), Toward::Ingress, &tree);
    let answers = evaluators.answers(frames.iter().map(|frame| (&frame[..], 0)));
    // None if the core refuses a match by name.
    let different = differing(&answer, answers.unwrap_or_default());
    assert!(different.is_none(), "{ruleset}\n{answer:?}\n{different:?}");
    let counts = answer.counts.iter().filter(|count| count.packets > 0);
    let lines = counts.map(|count| {
        let rule = count.rule.map_or("policy".to_owned(), |n| n.to_string());
        format!("{} {rule} {}/{}", count.chain, count.packets, count.bytes)
    });
    (lines.collect(), answer.accepted)
}

#[track_caller]
fn expect(legacy: &Legacy, ruleset: &str, frame: &[u8], counters: &[&str], accepted: u64) {
    let (lines, passed) = counted(legacy, ruleset, &[frame.to_vec()]);
    assert_eq!(lines, counters, "{ruleset}");
    assert_eq!(passed, accepted, "{ruleset}");
}

/// A table with rules in its base chain, which accepts.
fn raw(rules: &[&str]) -> String {
    let rules: String = rules
        .iter()
        .map(|rule| format!("-A PREROUTING {rule}\n"))
        .collect();
    format!("*raw\n:PREROUTING ACCEPT [0:0]\n{rules}COMMIT\n")
}

/// TCP from port 1024 to port 80, with SYN.
fn tcp() -> Vec<u8> {
    let ports = [4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0];
    [&ports[..], &[0x50, 0x02, 0x10, 0, 0, 0, 0, 0]].concat()
}

/// UDP from port 1024 to port 80, without data.
fn udp() -> Vec<u8> {
    vec![4, 0, 0, 80, 0, 8, 0, 0]
}

fn v4(protocol: u8, data: &[u8]) -> Vec<u8> {
    plain(ETH_IPV4, &Ipv4::new(protocol).packet(data))
}

fn v4_fragment(protocol: u8, fragment: u16, data: &[u8]) -> Vec<u8> {
    let header = Ipv4 {
        fragment,
        ..Ipv4::new(protocol)
    };
    plain(ETH_IPV4, &header.packet(data))
}

#[test]
fn hotdrop_moves_no_counter() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&["-p tcp -m tcp --dport 1", "-p udp -m udp --dport 1", ""]);
    let short_tcp = v4(TCP, &tcp()[..19]);
    let short_udp = v4(UDP, &udp()[..7]);
    let overwriting = v4_fragment(TCP, 1, &tcp());
    for frame in [short_tcp, short_udp, overwriting] {
        expect(&legacy, &rules, &frame, &[], 0);
    }
    expect(
        &legacy,
        &rules,
        &v4(TCP, &tcp()),
        &["PREROUTING policy 1/40", "PREROUTING 2 1/40"],
        1,
    );
}

#[test]
fn hotdrop_needs_a_match_that_is_reached() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let short = v4(TCP, &tcp()[..19]);
    // The address fails before the match, and the mark, which is written first, before TCP.
    let unreached = [
        "-s 10.0.0.0/8 -p tcp -m tcp --dport 1",
        "-p tcp -m mark --mark 1 -m tcp --dport 1",
    ];
    let accepted = ["PREROUTING policy 1/39"];
    expect(&legacy, &raw(&unreached), &short, &accepted, 1);
    let reached = raw(&["-p tcp -m tcp --dport 1 -m mark --mark 1"]);
    expect(&legacy, &reached, &short, &[], 0);
}

#[test]
fn hotdrop_keeps_earlier_counters() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&["", "-p tcp -m tcp --dport 1"]);
    let short = v4(TCP, &tcp()[..19]);
    expect(&legacy, &rules, &short, &["PREROUTING 0 1/39"], 0);
}

#[test]
fn fragments_match_no_port_even_negated() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&[
        "-p udp -m udp --dport 80",
        "-p udp -m udp ! --dport 81",
        "-p udp -m multiport --dports 80",
        "-p udp -m multiport ! --dports 81",
        "-p udp -m udp",
        "-f",
        "! -f",
        "-p udp",
    ]);
    let later = v4_fragment(UDP, 2, &udp());
    let accepted = [
        "PREROUTING policy 1/28",
        "PREROUTING 5 1/28",
        "PREROUTING 7 1/28",
    ];
    expect(&legacy, &rules, &later, &accepted, 1);
    let first = v4_fragment(UDP, Ipv4::MORE, &udp());
    let (lines, _) = counted(&legacy, &rules, &[first]);
    let matched = ["policy", "0", "1", "2", "3", "4", "6", "7"];
    assert_eq!(
        lines,
        matched
            .map(|rule| format!("PREROUTING {rule} 1/28"))
            .to_vec()
    );
}

#[test]
fn v6_fragments_match_protocol_and_no_port() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    let rules = raw(&[
        "-p udp",
        "-p udp -m udp --dport 80",
        "-p udp -m udp ! --dport 81",
    ]);
    let fragment = |offset: u8| {
        let header = [UDP, 0, 0, offset << 3 | 1, 0, 0, 0, 1];
        plain(
            ETH_IPV6,
            &v6_packet(FRAGMENT, &[&header[..], &udp()].concat()),
        )
    };
    let first = ["policy", "0", "1", "2"].map(|rule| format!("PREROUTING {rule} 1/56"));
    let first = first.each_ref().map(String::as_str);
    expect(&legacy, &rules, &fragment(0), &first, 1);
    let later = ["PREROUTING policy 1/56", "PREROUTING 0 1/56"];
    expect(&legacy, &rules, &fragment(2), &later, 1);
}

#[test]
fn v6_truncated_headers_are_dropped_by_protocol() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    // Another header should follow, and the packet ends.
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let truncated = plain(ETH_IPV6, &v6_packet(DESTINATION, &options(DESTINATION)));
    expect(&legacy, &raw(&["-p udp"]), &truncated, &[], 0);
    expect(&legacy, &raw(&["! -p udp"]), &truncated, &[], 0);
    expect(&legacy, &raw(&["-p all"]), &truncated, &[], 0);
    // A later fragment whose next header is one of options: no protocol can be found.
    let header = [DESTINATION, 0, 0, 2 << 3, 0, 0, 0, 1];
    let hidden = [&header[..], &options(UDP), &udp()].concat();
    let hidden = plain(ETH_IPV6, &v6_packet(FRAGMENT, &hidden));
    expect(&legacy, &raw(&["-p 0"]), &hidden, &[], 0);
    let found = plain(ETH_IPV6, &v6_packet(UDP, &udp()));
    let matched = ["PREROUTING policy 1/48", "PREROUTING 0 1/48"];
    expect(&legacy, &raw(&["-p all"]), &found, &matched, 1);
    let addresses = raw(&["-s 2001:db8::/32"]);
    let accepted = ["PREROUTING policy 1/48", "PREROUTING 0 1/48"];
    expect(&legacy, &addresses, &truncated, &accepted, 1);
}

#[test]
fn v6_protocol_may_lie_beyond_the_packet() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    // The header claims 24 bytes of which 8 are there. Only a match that reads the transport header drops the packet.
    let long = plain(
        ETH_IPV6,
        &v6_packet(DESTINATION, &[UDP, 2, 1, 4, 0, 0, 0, 0]),
    );
    let accepted = ["PREROUTING policy 1/48", "PREROUTING 0 1/48"];
    expect(&legacy, &raw(&["-p udp"]), &long, &accepted, 1);
    expect(&legacy, &raw(&["-p udp -m udp --dport 80"]), &long, &[], 0);
}

#[test]
fn v6_later_fragments_of_extensions_are_dropped() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    // A later fragment has no header that leads to the protocol, if an extension header follows.
    let later = |next| {
        plain(
            ETH_IPV6,
            &v6_packet(FRAGMENT, &[next, 0, 0, 9, 0, 0, 0, 1, 0]),
        )
    };
    expect(&legacy, &raw(&["! -p udp"]), &later(DESTINATION), &[], 0);
    let accepted = ["PREROUTING policy 1/49", "PREROUTING 0 1/49"];
    expect(
        &legacy,
        &raw(&["-m frag"]),
        &later(DESTINATION),
        &accepted,
        1,
    );
    expect(&legacy, &raw(&["! -p tcp"]), &later(UDP), &accepted, 1);
}

#[test]
fn v6_headers_beyond_the_packet_are_dropped() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    let headers = [(DESTINATION, "-m dst"), (ROUTING, "-m rt")];
    for (header, rule) in headers {
        let long = plain(ETH_IPV6, &v6_packet(header, &[UDP, 2, 0, 0, 0, 0, 0, 0]));
        expect(&legacy, &raw(&[rule]), &long, &[], 0);
    }
    let absent = plain(ETH_IPV6, &v6_packet(UDP, &udp()));
    let accepted = ["PREROUTING policy 1/48"];
    expect(&legacy, &raw(&["-m dst", "-m rt"]), &absent, &accepted, 1);
}

#[test]
fn options_are_read_after_ports_and_flags() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let mut header = tcp();
    // 32 bytes, of which 20 are there.
    header[12] = 0x80;
    let frame = v4(TCP, &header);
    let accepted = ["PREROUTING policy 1/40"];
    for unread in [
        "--dport 81 --tcp-option 5",
        "--tcp-flags ACK ACK --tcp-option 5",
    ] {
        let rules = raw(&[&format!("-p tcp -m tcp {unread}")]);
        expect(&legacy, &rules, &frame, &accepted, 1);
    }
    let read = raw(&["-p tcp -m tcp --dport 80 --tcp-option 5"]);
    expect(&legacy, &read, &frame, &[], 0);
}

/// A limit of one packet for each destination port.
const ONE_BY_PORT: &str = "-m hashlimit --hashlimit-upto 1/min --hashlimit-burst 1 --hashlimit-mode dstport --hashlimit-name h";

#[test]
fn hashlimit_takes_payload_for_ports() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&[ONE_BY_PORT]);
    // The payload of the fragment has port 80 where a header would have it.
    let frames = [v4_fragment(UDP, 2, &udp()), v4(UDP, &udp())];
    let (lines, accepted) = counted(&legacy, &rules, &frames);
    assert_eq!(lines, ["PREROUTING policy 2/56", "PREROUTING 0 1/28"]);
    assert_eq!(accepted, 2);
    expect(&legacy, &rules, &v4_fragment(UDP, 2, &udp()[..3]), &[], 0);
}

/// The tool writes 1104 bytes, 69 seconds of the rate, as 1 kB, which are 64.
#[test]
fn hashlimit_has_the_burst_that_was_written() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let frames = vec![v4(UDP, &[0; 72]); 100];
    for (burst, passed) in [("1104b", 70), ("1kb", 65)] {
        let limit = format!("--hashlimit-upto 16b/s --hashlimit-burst {burst}");
        let rules = raw(&[&format!("-m hashlimit {limit} --hashlimit-name h -j DROP")]);
        let (lines, _) = counted(&legacy, &rules, &frames);
        let dropped = format!("PREROUTING 0 {passed}/{}", passed * 92);
        assert!(lines.contains(&dropped), "{lines:?}");
    }
}

#[test]
fn v6_hashlimit_reads_no_port_of_fragments() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    let rules = raw(&[ONE_BY_PORT]);
    let later = |next| {
        let header = [next, 0, 0, 9, 0, 0, 0, 1];
        let packet = v6_packet(FRAGMENT, &[&header[..], &udp()].concat());
        plain(ETH_IPV6, &packet)
    };
    // The port of both is 0.
    let frames = [later(UDP), later(DESTINATION)];
    let (lines, accepted) = counted(&legacy, &rules, &frames);
    assert_eq!(lines, ["PREROUTING policy 2/112", "PREROUTING 0 1/56"]);
    assert_eq!(accepted, 2);
    let truncated = |data: &[u8]| plain(ETH_IPV6, &v6_packet(ROUTING, data));
    expect(&legacy, &rules, &truncated(&[UDP]), &[], 0);
    expect(&legacy, &rules, &truncated(&[UDP, 0]), &[], 0);
    let gre = 47;
    let counters = ["PREROUTING policy 1/42", "PREROUTING 0 1/42"];
    expect(&legacy, &rules, &truncated(&[gre, 0]), &counters, 1);
}

#[test]
fn dccp_options_follow_the_types_header() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    // Sequence numbers of 48 bits. The header of a reset has 28 bytes, and that of data 16.
    let packet = |kind: u8, words: u8| {
        let start = [
            4,
            0,
            0,
            80,
            words,
            0,
            0,
            0,
            kind << 1 | 1,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
        ];
        v4(DCCP, &[&start[..], &[5, 3, 0, 0]].concat())
    };
    let (data, reset) = (2, 7);
    let rules = raw(&["-p dccp -m dccp --dccp-option 5"]);
    let matched = ["PREROUTING policy 1/40", "PREROUTING 0 1/40"];
    expect(&legacy, &rules, &packet(data, 5), &matched, 1);
    expect(&legacy, &rules, &packet(reset, 5), &[], 0);
    let other = raw(&["-p dccp -m dccp --dport 81 --dccp-option 5"]);
    expect(
        &legacy,
        &other,
        &packet(reset, 5),
        &["PREROUTING policy 1/40"],
        1,
    );
}

#[test]
fn dccp_types_from_10_on_are_invalid() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&["-p dccp -m dccp --dccp-types INVALID"]);
    for kind in 9..16 {
        let packet = v4(DCCP, &[4, 0, 0, 80, 3, 0, 0, 0, kind << 1, 0, 0, 1]);
        let all = ["PREROUTING policy 1/32", "PREROUTING 0 1/32"];
        let counters = if kind < 10 { &all[..1] } else { &all };
        expect(&legacy, &rules, &packet, counters, 1);
    }
}

#[test]
fn negated_match_counts_before_its_hotdrop() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let without_chunks = v4(SCTP, &[4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0]);
    let chunks = "-p sctp -m sctp --chunk-types any DATA";
    expect(&legacy, &raw(&[chunks, ""]), &without_chunks, &[], 0);
    let negated = chunks.replace("--chunk", "! --chunk");
    let counted = ["PREROUTING 0 1/32"];
    expect(&legacy, &raw(&[&negated, ""]), &without_chunks, &counted, 0);
    let accepting = format!("{negated} -j ACCEPT");
    expect(
        &legacy,
        &raw(&[&accepting, ""]),
        &without_chunks,
        &counted,
        0,
    );
}

#[test]
fn return_in_base_chain_counts_policy() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let frame = v4(TCP, &tcp());
    for (policy, accepted) in [("ACCEPT", 1), ("DROP", 0)] {
        let rules = raw(&["-j RETURN", "-j ACCEPT"]).replace("G ACCEPT", &format!("G {policy}"));
        let counters = ["PREROUTING policy 1/40", "PREROUTING 0 1/40"];
        expect(&legacy, &rules, &frame, &counters, accepted);
    }
}

#[test]
fn user_chain_ends_after_its_jump() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let frame = v4(TCP, &tcp());
    for end in ["-A a -j RETURN\n-A a -j DROP\n", "-A a -p tcp\n"] {
        let rules = format!(
            "*raw\n:PREROUTING DROP [0:0]\n:a - [0:0]\n{end}-A PREROUTING -j a\n-A PREROUTING -j ACCEPT\nCOMMIT\n"
        );
        let counters = ["PREROUTING 0 1/40", "PREROUTING 1 1/40", "a 0 1/40"];
        expect(&legacy, &rules, &frame, &counters, 1);
    }
}

#[test]
fn goto_returns_to_the_callers_caller() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let frame = v4(TCP, &tcp());
    let from_base = "*raw\n:PREROUTING ACCEPT [0:0]\n:a - [0:0]\n-A a -p tcp\n-A PREROUTING -g a\n-A PREROUTING -j DROP\nCOMMIT\n";
    let counters = ["PREROUTING policy 1/40", "PREROUTING 0 1/40", "a 0 1/40"];
    expect(&legacy, from_base, &frame, &counters, 1);
    let nested = "*raw\n:PREROUTING ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n-A PREROUTING -j a\n-A PREROUTING -j DROP\n-A a -g b\n-A a -j ACCEPT\n-A b -p tcp\nCOMMIT\n";
    let counters = [
        "PREROUTING 0 1/40",
        "PREROUTING 1 1/40",
        "a 0 1/40",
        "b 0 1/40",
    ];
    expect(&legacy, nested, &frame, &counters, 0);
}

#[test]
fn forty_nested_jumps_return() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let declared: String = (0..40).map(|n| format!(":n{n} - [0:0]\n")).collect();
    let jumps: String = (1..40)
        .map(|n| format!("-A n{} -j n{n}\n", n - 1))
        .collect();
    let rules = format!(
        "*raw\n:PREROUTING ACCEPT [0:0]\n{declared}{jumps}-A PREROUTING -j n0\n-A PREROUTING\nCOMMIT\n"
    );
    let (lines, accepted) = counted(&legacy, &rules, &[v4(TCP, &tcp())]);
    assert_eq!(accepted, 1);
    assert_eq!(lines.len(), 3 + 39, "{lines:?}");
}

#[test]
fn bytes_are_the_total_length() {
    let v4_padded = [v4(TCP, &tcp()), vec![0; 20]].concat();
    let v6_padded = [plain(ETH_IPV6, &v6_packet(UDP, &udp())), vec![0; 20]].concat();
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.resize(46, 0);
    let arp_padded = plain(ETH_ARP, &arp);
    let cases = [
        (Tool::V4, raw(&[""]), v4_padded, "PREROUTING 0 1/40"),
        (Tool::V6, raw(&[""]), v6_padded, "PREROUTING 0 1/48"),
        (
            Tool::Arp,
            "*filter\n:INPUT ACCEPT\n-A INPUT -i in0\n".to_owned(),
            arp_padded,
            "INPUT 0 1/28",
        ),
    ];
    for (tool, rules, frame, counter) in cases {
        if let Some(need) = missing(&tool.needs()) {
            skip("rules::facts::bytes_are_the_total_length", need);
            return;
        }
        let (lines, accepted) = counted(&Legacy::new(tool), &rules, &[frame]);
        assert!(lines.contains(&counter.to_owned()), "{lines:?}");
        assert_eq!(accepted, 1);
    }
}

#[test]
fn matches_are_tried_in_written_order() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let limit = "-m limit --limit 1/hour --limit-burst 1";
    let tokens_left = |rule: String| {
        let frames = [v4(UDP, &udp()), v4(TCP, &tcp())];
        let (lines, _) = counted(&legacy, &raw(&[&rule]), &frames);
        lines.contains(&"PREROUTING 0 1/40".to_owned())
    };
    // Each rule sees UDP first, which takes the only token if the limit is tried before the mark or the length.
    assert!(tokens_left(format!("-m length --length 40 {limit}")));
    assert!(!tokens_left(format!("{limit} -m length --length 40")));
    assert!(tokens_left(format!("{limit} -p tcp")));
}

#[test]
fn marks_and_logs_do_not_end_a_chain() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&[
        "-j MARK --set-xmark 0x5/0xffffffff",
        "-j LOG",
        "-m mark --mark 5 -j DROP",
    ])
    .replace("raw", "mangle");
    let counters = [
        "PREROUTING 0 1/40",
        "PREROUTING 1 1/40",
        "PREROUTING 2 1/40",
    ];
    expect(&legacy, &rules, &v4(TCP, &tcp()), &counters, 0);
}

/// TCP from port 1024 to port 80, with SYN and options.
fn syn(options: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = tcp();
    header[12] = (((20 + options.len()) / 4) << 4) as u8;
    v4(TCP, &[&header[..], options, data].concat())
}

#[test]
fn later_matches_read_what_targets_changed() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let mangle = |rules: &[&str]| raw(rules).replace("raw", "mangle");
    let expect_all = |rules: &[&str], frame: &[u8], bytes: [u64; 3]| {
        let lines = [0, 1].map(|rule| format!("PREROUTING {rule} 1/{}", bytes[rule]));
        let policy = format!("PREROUTING policy 1/{}", bytes[2]);
        let lines = [&policy, &lines[0], &lines[1]].map(String::as_str);
        expect(&legacy, &mangle(rules), frame, &lines, 1);
    };
    let ttl = ["-j TTL --ttl-set 1", "-m u32 --u32 \"8>>24=1\""];
    expect_all(&ttl, &v4(UDP, &udp()), [28; 3]);
    let tos = ["-j TOS --set-tos 0x10", "-m u32 --u32 \"0>>16&0xff=0x10\""];
    expect_all(&tos, &v4(UDP, &udp()), [28; 3]);
    // The checksum, which the kernel corrects as a sum of words.
    let dscp = ["-j DSCP --set-dscp 3", "-m u32 ! --u32 \"10>>16=0\""];
    expect_all(&dscp, &v4(UDP, &udp()), [28; 3]);
    let limit = "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000";
    let lowered = [limit, "-p tcp -m tcp --syn -m tcpmss --mss 1000"];
    expect_all(&lowered, &syn(&[2, 4, 5, 0xb4], &[]), [44; 3]);
    let kept = [limit, "-p tcp -m tcp --syn -m tcpmss --mss 999"];
    expect_all(&kept, &syn(&[1, 1, 2, 4, 3, 0xe7, 1, 1], &[]), [48; 3]);
    // The option is added in front, with no more than a host expects without it.
    let added = [limit, "-p tcp -m tcp --syn -m tcpmss --mss 536"];
    expect_all(&added, &syn(&[], &[]), [40, 44, 44]);
    expect_all(&added, &syn(&[3, 3, 7, 1], &[]), [44, 48, 48]);
    let place = [
        limit,
        "-m u32 --u32 \"0&0xffff=48 && 32>>24=0x70 && 40=0x02040218 && 44=0x03030701\"",
    ];
    expect_all(&place, &syn(&[3, 3, 7, 1], &[]), [44, 48, 48]);
    // Not to a header with data, or of 60 bytes.
    let absent = [limit, "-p tcp -m tcp --syn -m tcpmss ! --mss 1:65535"];
    expect_all(&absent, &syn(&[], &[7]), [41; 3]);
    expect_all(&absent, &syn(&[1; 40], &[]), [80; 3]);
    // A header that is broken.
    for words in [4, 15] {
        let mut frame = syn(&[2, 4, 5, 0xb4], &[]);
        frame[14 + 20 + 12] = words << 4;
        let broken = mangle(&[limit, ""]);
        expect(&legacy, &broken, &frame, &["PREROUTING 0 1/44"], 0);
    }
}

/// After TCPMSS the TCP checksum is not known: the kernel corrects it here, and leaves it where hardware
/// will calculate it.
#[test]
fn checksum_after_tcpmss_is_not_guessed() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let limit = "-p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1000";
    for (word, options, is_known) in [
        (36, &[2, 4, 5, 0xb4][..], false),
        (33, &[2, 4, 5, 0xb4], false),
        (32, &[2, 4, 5, 0xb4], true),
        (38, &[2, 4, 5, 0xb4], true),
        (36, &[], false),
        // It stays the same.
        (36, &[2, 4, 3, 0xe8], true),
    ] {
        let read = format!("-m u32 --u32 \"{word}&0=0\"");
        let text = raw(&[limit, &read]).replace("raw", "mangle");
        let tree = parse(Tool::V4, &text);
        let evaluators = Evaluators::new(Tool::V4, Toward::Ingress, &tree);
        let frame = syn(options, &[]);
        let answers = evaluators.answers([(&frame[..], 0)].into_iter());
        match (answers, is_known) {
            (Ok(answers), true) => {
                let kernel = answer(&legacy, &text, std::slice::from_ref(&frame));
                let different = differing(&kernel, answers);
                assert!(different.is_none(), "{word} {options:?}: {different:?}");
            }
            (Err(Unknown::OpaqueTarget), false) => {}
            (other, _) => panic!("{word} {options:?}: {other:?}"),
        }
    }
}

#[test]
fn accept_ends_one_table_only() {
    requires!(Need::Root, Need::Tool("iptables-legacy"), Need::Tool("nft"));
    let legacy = Legacy::new(Tool::V4);
    let rules = raw(&["-j ACCEPT"]) + &raw(&["-j DROP"]).replace("raw", "mangle");
    let (lines, accepted) = counted(&legacy, &rules, &[v4(TCP, &tcp())]);
    assert_eq!(lines, ["PREROUTING 0 1/40", "PREROUTING 0 1/40"]);
    assert_eq!(accepted, 0);
}
