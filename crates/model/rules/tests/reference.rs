//! Facts about the legacy tools of Linux 6.18, checked on the reference evaluator.

#[path = "reference/packets.rs"]
mod packets;
mod ruleset;
#[path = "reference/tcpmss.rs"]
mod tcpmss;

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::spec::Kind;
use fairpath_rules::{
    Changes, Connection, Core, Family, Hook, Item, MssLimit, Owner, Reference, RuleResult, Sets,
    Step, Unknown, Value, Verdict,
};
use packets::*;
use proptest::prelude::*;
use ruleset::ruleset;

fn run(ruleset: &fairpath_rules::Ruleset, frame: &Frame) -> fairpath_rules::Outcome {
    Reference::new(ruleset, None).evaluate(Hook::Input, &frame.packet())
}

fn dropped(lines: &str, frame: &Frame) -> bool {
    run(&filter(frame.family, lines), frame).verdict == Verdict::Drop
}

// The flow of control.

#[test]
fn matches_run_in_written_order() {
    let ruleset = filter(
        Family::Ipv4,
        "-A INPUT -m limit --limit 1/hour --limit-burst 1 -m mark --mark 1\n\
         -A INPUT -m mark --mark 1 -m limit --limit 1/hour --limit-burst 1",
    );
    let mut reference = Reference::new(&ruleset, None);
    let plain = v4(17, &udp());
    let marked = plain.clone().facts(|facts| facts.mark = 1);
    reference.evaluate(Hook::Input, &plain.packet());
    reference.evaluate(Hook::Input, &marked.packet());
    // The first rule's bucket was emptied by the packet without a mark.
    assert_eq!(packets(&reference, &ruleset, "INPUT"), [0, 1]);
}

#[test]
fn broken_headers_drop_without_counters() {
    let syn = tcp(2, &[]);
    let frames = [
        v4(6, &syn).shorter(30),
        v4(6, &syn).with(6, &[0, 1]),
        v4(17, &udp()).shorter(24),
        v6(17, &udp()).shorter(44),
    ];
    for frame in frames {
        let lines = "-A INPUT -p tcp -m tcp --dport 9\n-A INPUT -p udp -m udp --dport 9";
        let ruleset = filter(frame.family, lines);
        let mut reference = Reference::new(&ruleset, None);
        let outcome = reference.evaluate(Hook::Input, &frame.packet());
        assert_eq!((outcome.verdict, outcome.at), (Verdict::Drop, None));
        assert_eq!(packets(&reference, &ruleset, "INPUT"), [0, 0]);
        assert_eq!(policy(&reference, &ruleset, "INPUT").packets, 0);
    }
}

#[test]
fn fragments_never_match_ports() {
    let syn = tcp(2, &[]);
    let later = v4(6, &syn).with(6, &[0, 2]);
    let first = v4(6, &syn).with(6, &[0x20, 0]);
    check(&[
        ("-p tcp", &later, YES),
        ("-f", &later, YES),
        ("! -f", &later, NO),
        ("-p tcp --dport 80", &later, NO),
        ("-p tcp ! --dport 81", &later, NO),
        ("-p tcp -m multiport ! --dports 81", &later, NO),
        ("-p tcp --dport 80", &first, YES),
        ("-f", &first, NO),
    ]);
}

#[test]
fn ipv6_protocol_is_after_extension_headers() {
    let mut options = vec![17, 0, 1, 4, 0, 0, 0, 0];
    options.extend(udp());
    let mut fragment = vec![17, 0, 0, 8, 0, 0, 0, 7];
    fragment.extend(udp());
    let with_options = v6(0, &options);
    let later = v6(44, &fragment);
    check(&[
        ("-p udp", &with_options, YES),
        ("-p udp --dport 53", &with_options, YES),
        ("-p tcp", &with_options, NO),
        ("! -p tcp", &with_options, YES),
        ("-p udp", &later, YES),
        ("-p udp --dport 53", &later, NO),
        ("-p udp ! --dport 54", &later, NO),
    ]);
}

#[test]
fn unparsable_ipv6_headers_drop_with_protocol() {
    let broken = v6(0, &[17]);
    let mut nested = vec![60, 0, 0, 8, 0, 0, 0, 7];
    nested.extend(udp());
    check(&[
        ("-p udp", &broken, HOT),
        ("! -p udp", &broken, HOT),
        ("-s 2001:db8::1", &broken, YES),
        ("-s 2001:db8::9 -p udp", &broken, NO),
        // A later fragment whose next header is an extension header.
        ("-p udp", &v6(44, &nested), HOT),
        ("-p all", &v6(44, &nested), HOT),
        ("-p all", &v6(17, &udp()), YES),
        ("-p 59", &v6(59, &[]), YES),
    ]);
}

#[test]
fn return_in_base_chain_counts_policy() {
    let frame = v4(17, &udp());
    let ruleset = filter(Family::Ipv4, "-A INPUT -j RETURN\n-A INPUT -j DROP");
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference.evaluate(Hook::Input, &frame.packet());
    assert_eq!((outcome.verdict, outcome.at), (Verdict::Accept, None));
    assert_eq!(packets(&reference, &ruleset, "INPUT"), [1, 0]);
    let policy = policy(&reference, &ruleset, "INPUT");
    assert_eq!((policy.packets, policy.bytes), (1, 36));
}

#[test]
fn goto_pushes_no_return_address() {
    let lines = ":A -\n:B -\n-A INPUT -j A\n-A INPUT -j DROP\n-A A -g B\n-A A -j ACCEPT";
    assert!(dropped(lines, &v4(17, &udp())));
    let lines = ":A -\n-A INPUT -g A\n-A INPUT -j DROP";
    assert!(!dropped(lines, &v4(17, &udp())));
}

#[test]
fn return_continues_after_the_jump() {
    let lines = ":A -\n-A INPUT -j A\n-A INPUT -j DROP\n-A A -j RETURN\n-A A -j ACCEPT";
    assert!(dropped(lines, &v4(17, &udp())));
}

#[test]
fn jumps_nest_up_to_the_limit() {
    let unknown = Verdict::Unknown(Unknown::Depth);
    for (depth, verdict) in [
        (40, Verdict::Accept),
        (512, Verdict::Accept),
        (513, unknown),
    ] {
        let mut lines: String = (0..depth).map(|at| format!(":c{at} -\n")).collect();
        lines.push_str("-A INPUT -j c0\n");
        for at in 1..depth {
            lines.push_str(&format!("-A c{} -j c{at}\n", at - 1));
        }
        let ruleset = filter(Family::Ipv4, &lines);
        assert_eq!(run(&ruleset, &v4(17, &udp())).verdict, verdict, "{depth}");
    }
}

#[test]
fn rules_without_target_only_count() {
    let ruleset = filter(Family::Ipv4, "-A INPUT -p udp\n-A INPUT -j LOG\n-A INPUT");
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference.evaluate(Hook::Input, &v4(17, &udp()).packet());
    assert_eq!(outcome.verdict, Verdict::Accept);
    assert_eq!(outcome.changes.logged, 1);
    assert_eq!(packets(&reference, &ruleset, "INPUT"), [1, 1, 1]);
}

#[test]
fn bytes_are_the_length_of_the_header() {
    let mut frame = v4(17, &udp());
    frame.bytes.extend([0; 10]);
    frame.length += 10;
    let ruleset = filter(Family::Ipv4, "-A INPUT");
    let mut reference = Reference::new(&ruleset, None);
    reference.evaluate(Hook::Input, &frame.packet());
    let id = base(&ruleset, "filter", "INPUT");
    assert_eq!(reference.counters("filter", id, 0).bytes, 36);
}

/// Many segments of TCP that the kernel sends as one packet, of which no header has the length.
#[test]
fn long_segments_of_ipv6_are_evaluated_whole() {
    let mut frame = v6(6, &tcp(0x10, &[])).with(4, &[0, 0]);
    frame.length = 90_000;
    let ruleset = filter(Family::Ipv6, "-A INPUT -p tcp -m tcp --dport 80 -j DROP");
    let mut reference = Reference::new(&ruleset, None);
    let verdict = reference.evaluate(Hook::Input, &frame.packet()).verdict;
    let id = base(&ruleset, "filter", "INPUT");
    let counters = reference.counters("filter", id, 0);
    assert_eq!((verdict, counters.bytes), (Verdict::Drop, 90_000));
    let built = build(&ruleset, None, Lookups::Never).unwrap();
    let mut core = Core::new(&built, CounterMode::Exact).unwrap();
    let outcome = core.evaluate(Hook::Input, &frame.packet()).unwrap();
    assert_eq!(outcome.verdict, Verdict::Drop);
    assert_eq!(core.rule_counters(&built, 0, id, 0), counters);
}

#[test]
fn arp_counts_a_constant_length() {
    let mut frame = arp();
    frame.bytes.extend([0; 18]);
    frame.length += 18;
    let ruleset = filter(Family::Arp, "-A INPUT -j ACCEPT");
    let mut reference = Reference::new(&ruleset, None);
    reference.evaluate(Hook::Input, &frame.packet());
    let id = base(&ruleset, "filter", "INPUT");
    assert_eq!(reference.counters("filter", id, 0).bytes, 28);
    assert_eq!(answer("", &arp().shorter(27)), HOT);
}

#[test]
fn accept_ends_one_table() {
    let text = "*mangle\n:INPUT ACCEPT\n-A INPUT -j ACCEPT\nCOMMIT\n\
                *filter\n:INPUT DROP\nCOMMIT\n";
    let ruleset = ruleset(Family::Ipv4, text);
    let outcome = run(&ruleset, &v4(17, &udp()));
    assert_eq!((outcome.verdict, outcome.at), (Verdict::Drop, None));
}

#[test]
fn bridge_chains_end_with_their_policy() {
    let frame = bridge(0x0806, &arp_bytes());
    assert!(dropped(
        ":A DROP\n-A INPUT -j A\n-A INPUT -j ACCEPT",
        &frame
    ));
    assert!(!dropped(
        ":A ACCEPT\n-A INPUT -j A\n-A INPUT -j DROP",
        &frame
    ));
    assert!(dropped(
        ":A RETURN\n-A INPUT -j A\n-A INPUT -j DROP",
        &frame
    ));
}

#[test]
fn reject_and_queue_are_verdicts() {
    let frame = v4(17, &udp());
    let verdict =
        |target| run(&filter(Family::Ipv4, &format!("-A INPUT {target}")), &frame).verdict;
    assert_eq!(verdict("-j REJECT"), Verdict::Reject(3));
    assert_eq!(verdict("-j NFQUEUE --queue-num 1"), Verdict::Queue);
    assert_eq!(
        verdict("-j TARPIT"),
        Verdict::Unknown(Unknown::OpaqueTarget)
    );
}

#[test]
fn path_names_rules_and_failing_items() {
    let ruleset = filter(
        Family::Ipv4,
        ":A -\n-A INPUT -p udp -m udp --sport 1000 --dport 54\n-A INPUT -j A",
    );
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference
        .trace(true)
        .evaluate(Hook::Input, &v4(17, &udp()).packet());
    let results: Vec<_> = outcome
        .path
        .iter()
        .map(|step| match step {
            Step::Rule { result, .. } => Some(*result),
            _ => None,
        })
        .collect();
    let failed = RuleResult::Failed { item: 3 };
    let expected = [Some(failed), Some(RuleResult::Matched), None, None];
    assert_eq!(results, expected);
    assert!(matches!(outcome.path[2], Step::Return { .. }));
    assert!(matches!(outcome.path[3], Step::Policy { .. }));
}

// Facts that are not known.

#[test]
fn known_failures_are_stronger_than_unknowns() {
    let frame = v4(17, &udp()).facts(|facts| facts.input = None);
    let input = Want::Unknown(Unknown::Input);
    check(&[
        ("-i eth0", &frame, input),
        ("-i eth0 -p tcp", &frame, NO),
        ("-i eth0 -p udp --dport 54", &frame, NO),
        ("-i eth0 -p udp --dport 53", &frame, input),
        ("! -i +", &frame, NO),
        (
            "-m policy --dir in --pol none -p udp --dport 54",
            &frame,
            NO,
        ),
        (
            "-m policy --dir in --pol none",
            &frame,
            Want::Unknown(Unknown::OpaqueMatch),
        ),
    ]);
}

#[test]
fn unknown_leaves_stateful_matches_alone() {
    let lines = "-A INPUT -i eth0 -m limit --limit 1/hour --limit-burst 1 -m mark --mark 1 -j DROP";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let unknown = v4(17, &udp()).facts(|facts| facts.input = None);
    let outcome = reference.evaluate(Hook::Input, &unknown.packet());
    assert_eq!(outcome.verdict, Verdict::Unknown(Unknown::Input));
    let known = v4(17, &udp()).facts(|facts| facts.mark = 1);
    let outcome = reference.evaluate(Hook::Input, &known.packet());
    assert_eq!(outcome.verdict, Verdict::Drop);
}

#[test]
fn cut_capture_is_unknown_not_broken() {
    let frame = v4(6, &tcp(2, &[])).captured(24);
    let cut = Want::Unknown(Unknown::CutBytes);
    check(&[("-p tcp --dport 80", &frame, cut), ("-p tcp", &frame, YES)]);
}

// Header items.

#[test]
fn addresses_compare_under_any_mask() {
    let frame = v4(17, &udp());
    check(&[
        ("-s 10.0.0.1", &frame, YES),
        ("! -s 10.0.0.1", &frame, NO),
        ("-s 10.1.0.1/255.0.255.255", &frame, YES),
        ("-d 10.0.0.0/31", &frame, NO),
        ("! -s 0.0.0.0/0", &frame, NO),
        ("-s 2001:db8::/32", &v6(17, &udp()), YES),
        ("-d 2001:db8::1", &v6(17, &udp()), NO),
    ]);
}

#[test]
fn interfaces_compare_by_name_or_prefix() {
    let frame = v4(17, &udp());
    check(&[
        ("-i eth0", &frame, YES),
        ("-i eth", &frame, NO),
        ("-i eth+", &frame, YES),
        ("-i eth00", &frame, NO),
        ("! -i eth1", &frame, YES),
        ("! -i +", &frame, NO),
    ]);
    let lines = ":A -\n-A INPUT -j A\n-A A -o eth0 -j DROP";
    assert!(!dropped(lines, &frame));
    let lines = ":A -\n-A INPUT -j A\n-A A ! -o eth0 -j DROP";
    assert!(dropped(lines, &frame));
}

#[test]
fn arp_items_compare_fields() {
    let frame = arp();
    check(&[
        ("-s 10.0.0.1", &frame, YES),
        ("-d 10.0.0.1", &frame, NO),
        ("--opcode 1", &frame, YES),
        ("! --opcode 1", &frame, NO),
        ("--opcode 0/2", &frame, YES),
        ("--h-type 1", &frame, YES),
        ("--proto-type 0x800", &frame, YES),
        ("--src-mac 02:00:00:00:00:01", &frame, YES),
        ("--dst-mac 00:00:00:00:00:00/01:00:00:00:00:00", &frame, YES),
        ("-i eth+", &frame, YES),
    ]);
}

#[test]
fn bridge_items_compare_the_frame() {
    let frame = bridge(0x0806, &arp_bytes());
    let logical = frame
        .clone()
        .facts(|facts| facts.logical_input = Some(b"br0"[..].into()));
    let no_port = frame
        .clone()
        .facts(|facts| facts.logical_input = Some(b""[..].into()));
    let mut tagged = bridge(0x8100, &[0x60, 5, 8, 0, 1, 2, 3, 4]);
    tagged.network = 18;
    tagged.length = 4;
    check(&[
        ("-p ARP", &frame, YES),
        ("-p IPv4", &frame, NO),
        ("-p Length", &bridge(100, &[0; 100]), YES),
        ("-p Length", &frame, NO),
        ("-s 02:00:00:00:00:01", &frame, YES),
        ("-d 02:00:00:00:00:01", &frame, NO),
        ("--logical-in br0", &logical, YES),
        ("--logical-in br1", &logical, NO),
        // A device that is not a port of a bridge passes both.
        ("--logical-in br1", &no_port, YES),
        ("! --logical-in br1", &no_port, YES),
        ("-p 802_1Q --vlan-id 5 --vlan-prio 3", &tagged, YES),
        ("-p 802_1Q ! --vlan-id 5", &tagged, NO),
        ("-p 802_1Q --vlan-encap 0x0800", &tagged, YES),
    ]);
}

// Matches of headers.

#[test]
fn tcp_ports_flags_and_options() {
    let syn = v4(6, &tcp(2, &[2, 4, 5, 0xb4]));
    let ack = v4(6, &tcp(0x10, &[]));
    check(&[
        ("-p tcp --dport 80", &syn, YES),
        ("-p tcp --dport 79:81", &syn, YES),
        ("-p tcp --sport 80", &syn, NO),
        ("-p tcp ! --sport 0:65535", &syn, NO),
        ("-p tcp --syn", &syn, YES),
        ("-p tcp --syn", &ack, NO),
        ("-p tcp ! --syn", &ack, YES),
        ("-p tcp --tcp-option 2", &syn, YES),
        ("-p tcp --tcp-option 3", &syn, NO),
        ("-p tcp ! --tcp-option 2", &ack, YES),
        ("-p tcp --tcp-option 2", &syn.clone().shorter(40), HOT),
        ("-p tcp --tcp-option 2", &ack.clone().with(32, &[0x40]), HOT),
        ("-p tcp -m tcpmss --mss 1400:1500", &syn, YES),
        ("-p tcp -m tcpmss ! --mss 1400:1500", &syn, NO),
        ("-p tcp -m tcpmss --mss 1", &ack, NO),
        ("-p tcp -m tcpmss ! --mss 1", &ack, YES),
    ]);
}

#[test]
fn udp_and_multiport_compare_both_ports() {
    let frame = v4(17, &udp());
    check(&[
        ("-p udp --dport 53", &frame, YES),
        ("-p udp ! --sport 1000", &frame, NO),
        ("-p udp -m multiport --dports 1,50:60", &frame, YES),
        ("-p udp -m multiport --sports 1,50:60", &frame, NO),
        ("-p udp -m multiport --ports 1000", &frame, YES),
        ("-p udp -m multiport ! --ports 53", &frame, NO),
        (
            "-p udp -m multiport --ports 53",
            &frame.clone().shorter(23),
            HOT,
        ),
    ]);
}

#[test]
fn icmp_types_have_code_ranges() {
    let echo = v4(1, &[8, 0, 0, 0, 0, 0, 0, 0]);
    let admin = v4(1, &[3, 13, 0, 0, 0, 0, 0, 0]);
    let echo6 = v6(58, &[128, 0, 0, 0, 0, 0, 0, 0]);
    check(&[
        ("-p icmp --icmp-type 8", &echo, YES),
        ("-p icmp --icmp-type any", &admin, YES),
        ("-p icmp ! --icmp-type any", &admin, NO),
        ("-p icmp --icmp-type 3/13", &admin, YES),
        ("-p icmp --icmp-type 3/1", &admin, NO),
        ("-p icmp ! --icmp-type 3", &echo, YES),
        ("-p icmp --icmp-type 8", &echo.clone().shorter(27), HOT),
        ("-p icmpv6 --icmpv6-type 128", &echo6, YES),
        ("-p icmpv6 ! --icmpv6-type 128/0", &echo6, NO),
    ]);
}

#[test]
fn sctp_chunks_any_all_only() {
    let mut payload = vec![3, 0xe8, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0];
    payload.extend([0, 3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    payload.extend([3, 0, 0, 4]);
    let frame = v4(132, &payload);
    let no_chunk = v4(132, &payload[..12]);
    check(&[
        ("-p sctp --dport 80", &frame, YES),
        ("-p sctp --chunk-types any DATA,INIT", &frame, YES),
        ("-p sctp --chunk-types any INIT", &frame, NO),
        ("-p sctp --chunk-types all DATA,SACK", &frame, YES),
        ("-p sctp --chunk-types all DATA,INIT", &frame, NO),
        ("-p sctp --chunk-types only DATA,SACK", &frame, YES),
        ("-p sctp --chunk-types only DATA", &frame, NO),
        ("-p sctp --chunk-types any DATA:BE", &frame, YES),
        ("-p sctp --chunk-types any DATA:be", &frame, NO),
        ("-p sctp ! --chunk-types any DATA", &frame, NO),
        ("-p sctp --chunk-types any DATA", &no_chunk, HOT),
    ]);
}

#[test]
fn negated_broken_chunk_counts_and_drops() {
    let no_chunk = v4(132, &[3, 0xe8, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0]);
    let lines = "-A INPUT -p sctp ! --chunk-types any DATA -j ACCEPT\n-A INPUT -j ACCEPT";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference.evaluate(Hook::Input, &no_chunk.packet());
    assert_eq!((outcome.verdict, outcome.at), (Verdict::Drop, None));
    assert_eq!(packets(&reference, &ruleset, "INPUT"), [1, 0]);
}

#[test]
fn dccp_types_and_options() {
    // A request: 12 bytes, 4 of the service, and an option of 4 bytes.
    let mut payload = vec![3, 0xe8, 0, 80, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    payload.extend([32, 4, 0, 0]);
    let frame = v4(33, &payload);
    check(&[
        ("-p dccp --dport 80 --dccp-types REQUEST", &frame, YES),
        ("-p dccp --dccp-types DATA,ACK", &frame, NO),
        ("-p dccp --dccp-option 32", &frame, YES),
        ("-p dccp ! --dccp-option 32", &frame, NO),
        ("-p dccp --dccp-option 33", &frame, NO),
        (
            "-p dccp --dccp-option 32",
            &frame.clone().with(24, &[3]),
            HOT,
        ),
    ]);
}

#[test]
fn spi_of_esp_and_ah() {
    let esp = v4(50, &[0, 0, 1, 0, 0, 0, 0, 1]);
    let ah = v4(51, &[6, 4, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1]);
    check(&[
        ("-p esp -m esp --espspi 256", &esp, YES),
        ("-p esp -m esp ! --espspi 200:300", &esp, NO),
        ("-p esp -m esp --espspi 256", &esp.clone().shorter(24), HOT),
        ("-p ah -m ah --ahspi 512", &ah, YES),
        ("-p ah -m ah --ahspi 1", &ah, NO),
        ("-p ah -m ah --ahspi 1", &ah.clone().shorter(28), HOT),
    ]);
}

#[test]
fn network_header_matches_compare_fields() {
    let frame = v4(17, &udp());
    let frame6 = v6(17, &udp());
    check(&[
        ("-m ttl --ttl-eq 64", &frame, YES),
        ("-m ttl ! --ttl-eq 64", &frame, NO),
        ("-m ttl --ttl-lt 64", &frame, NO),
        ("-m ttl --ttl-gt 63", &frame, YES),
        ("-m hl --hl-eq 64", &frame6, YES),
        ("-m dscp --dscp 0x0a", &frame, YES),
        ("-m dscp ! --dscp 0x0a", &frame6, NO),
        ("-m tos --tos 0x28/0xff", &frame, YES),
        ("-m tos --tos 0x28/0x3f", &frame6, YES),
        ("-m length --length 36", &frame, YES),
        ("-m length ! --length 30:40", &frame, NO),
        ("-m length --length 56", &frame6, YES),
        ("-m ecn --ecn-ip-ect 0", &frame, YES),
        ("-m iprange --src-range 10.0.0.0-10.0.0.1", &frame, YES),
        ("-m iprange ! --dst-range 10.0.0.0-10.0.0.1", &frame, YES),
        (
            "-m iprange --src-range 2001:db8::1-2001:db8::9",
            &frame6,
            YES,
        ),
        ("-m mac --mac-source 02:00:00:00:00:01", &frame, YES),
        ("-m mac ! --mac-source 02:00:00:00:00:01", &frame, NO),
        ("-m comment --comment x", &frame, YES),
    ]);
}

#[test]
fn ecn_bits_of_tcp() {
    let frame = v4(6, &tcp(0x42, &[]));
    check(&[
        ("-p tcp -m ecn --ecn-tcp-ece", &frame, YES),
        ("-p tcp -m ecn ! --ecn-tcp-ece", &frame, NO),
        ("-p tcp -m ecn --ecn-tcp-cwr", &frame, NO),
        ("-p tcp -m ecn --ecn-tcp-ece ! --ecn-tcp-cwr", &frame, YES),
    ]);
}

#[test]
fn u32_reads_words_and_moves() {
    let frame = v4(17, &udp());
    check(&[
        (r#"-m u32 --u32 "6&0xff=17""#, &frame, YES),
        (r#"-m u32 --u32 "0>>22&0x3c@0>>16=1000""#, &frame, YES),
        (
            r#"-m u32 --u32 "12=0x0a000001&&16=0x0a000002""#,
            &frame,
            YES,
        ),
        (r#"-m u32 --u32 "12=0x0a000001&&16=0x0a000001""#, &frame, NO),
        (r#"-m u32 --u32 "32=0""#, &frame, YES),
        (r#"-m u32 --u32 "33=0""#, &frame, NO),
        (r#"-m u32 ! --u32 "33=0""#, &frame, YES),
    ]);
}

#[test]
fn ipv6_extension_headers_are_compared() {
    let mut options = vec![17, 0, 5, 2, 0, 0, 1, 0];
    options.extend(udp());
    let hop = v6(0, &options);
    let mut fragment = vec![17, 0, 0, 1, 0, 0, 0, 7];
    fragment.extend(udp());
    let first = v6(44, &fragment);
    let mut routing = vec![17, 2, 0, 1, 0, 0, 0, 0];
    routing.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    routing.extend(udp());
    let routed = v6(43, &routing);
    let mut auth = vec![17, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    auth.extend(udp());
    let ah = v6(51, &auth);
    check(&[
        ("-m hbh --hbh-len 8", &hop, YES),
        ("-m hbh ! --hbh-len 8", &hop, NO),
        ("-m hbh --hbh-opts 5:2,1:0", &hop, YES),
        ("-m hbh --hbh-opts 5:3", &hop, NO),
        ("-m hbh --hbh-opts 1", &hop, NO),
        ("-m dst --dst-len 8", &hop, NO),
        ("-m frag --fragid 7 --fragmore --fragfirst", &first, YES),
        ("-m frag --fragid 7 --fraglast", &first, NO),
        ("-m frag --fragid 0:9", &hop, NO),
        (
            "-m rt --rt-type 0 --rt-segsleft 1 --rt-len 24",
            &routed,
            YES,
        ),
        ("-m rt --rt-type 0 --rt-0-addrs 2001:db8::9", &routed, YES),
        ("-m rt --rt-type 0 --rt-0-addrs 2001:db8::8", &routed, NO),
        ("-m ah --ahspi 512 --ahlen 16", &ah, YES),
        ("-m ah ! --ahspi 512", &ah, NO),
        ("-m ipv6header --header hop,prot", &hop, YES),
        ("-m ipv6header --header hop", &hop, NO),
        ("-m ipv6header --header hop --soft", &hop, YES),
        ("-m ipv6header ! --header frag --soft", &hop, YES),
        ("-m frag --fragid 7", &v6(44, &[17, 0]), HOT),
    ]);
}

// Matches of facts.

#[test]
fn conntrack_without_entry_tests_state_only() {
    let state = |state: u8| {
        v4(6, &tcp(2, &[])).facts(|facts| {
            facts.connection = Some(Connection {
                state,
                status: Some(2),
                mark: Some(5),
                reply: Some(true),
            });
        })
    };
    let unknown = v4(17, &udp()).facts(|facts| facts.connection = None);
    let (invalid, established) = (state(1), state(8));
    let connection = Want::Unknown(Unknown::Connection);
    check(&[
        ("-m state --state ESTABLISHED", &established, YES),
        ("-m state ! --state NEW", &established, YES),
        ("-m state --state NEW", &unknown, connection),
        ("-m conntrack --ctstate INVALID --ctproto 17", &invalid, YES),
        ("-m conntrack --ctstatus SEEN_REPLY", &invalid, NO),
        ("-m conntrack --ctstatus SEEN_REPLY", &established, YES),
        ("-m conntrack --ctstatus NONE", &established, NO),
        ("-m conntrack --ctdir REPLY", &established, YES),
        ("-m conntrack --ctdir ORIGINAL", &established, NO),
        ("-m conntrack --ctproto 6", &established, connection),
        ("-m connmark --mark 5", &established, YES),
        ("-m connmark ! --mark 4", &invalid, NO),
    ]);
}

#[test]
fn connlimit_compares_the_number_of_connections() {
    let unknown = v4(17, &udp()).facts(|facts| facts.connections = None);
    let [two, three, most] = [2, 3, u16::MAX]
        .map(|number| v4(17, &udp()).facts(|facts| facts.connections = Some(number)));
    let connections = Want::Unknown(Unknown::Connections);
    check(&[
        ("-m connlimit --connlimit-above 2", &unknown, connections),
        ("-m connlimit --connlimit-upto 70000", &unknown, connections),
        ("-m connlimit --connlimit-above 2", &two, NO),
        ("-m connlimit --connlimit-above 2", &three, YES),
        ("-m connlimit ! --connlimit-above 2", &two, YES),
        ("-m connlimit --connlimit-upto 2", &two, YES),
        ("-m connlimit --connlimit-upto 2", &three, NO),
        ("-m connlimit --connlimit-upto 70000", &most, YES),
        ("-m connlimit --connlimit-above 70000", &most, NO),
    ]);
}

#[test]
fn address_types_come_from_facts() {
    let frame = v4(17, &udp()).facts(|facts| facts.destination_type = Some(1 << 2));
    let mapped = v6(17, &udp()).facts(|facts| facts.destination_type = Some(1 << 2));
    let source = Want::Unknown(Unknown::SourceType);
    let destination = Want::Unknown(Unknown::DestinationType);
    check(&[
        ("-m addrtype --dst-type LOCAL,BROADCAST", &frame, YES),
        ("-m addrtype ! --dst-type LOCAL", &frame, NO),
        ("-m addrtype --dst-type MULTICAST", &frame, NO),
        ("-m addrtype --src-type LOCAL", &frame, source),
        (
            "-m addrtype --src-type LOCAL --dst-type UNICAST",
            &frame,
            NO,
        ),
        (
            "-m addrtype --dst-type LOCAL --limit-iface-in",
            &frame,
            destination,
        ),
        // IPv6: an address is unicast next to its other types.
        ("-m addrtype --dst-type UNICAST", &mapped, YES),
        ("-m addrtype --dst-type LOCAL", &mapped, YES),
        ("-m addrtype --dst-type MULTICAST", &mapped, NO),
    ]);
}

#[test]
fn owners_marks_packet_types_and_paths() {
    let owner = |owner| v4(17, &udp()).facts(|facts| facts.owner = Some(owner));
    let user = owner(Some(Owner {
        user: 1000,
        group: 100,
    }));
    let none = owner(None);
    let other = v4(17, &udp()).facts(|facts| {
        facts.packet_type = Some(3);
        facts.reverse_path = Some(false);
        facts.mark = 0x12;
    });
    check(&[
        ("-m owner --uid-owner 1000", &user, YES),
        ("-m owner ! --uid-owner 0-999", &user, YES),
        ("-m owner --gid-owner 5", &user, NO),
        ("-m owner --socket-exists", &user, YES),
        ("-m owner ! --socket-exists", &user, NO),
        ("-m owner ! --socket-exists", &none, YES),
        ("-m owner --uid-owner 1000", &none, NO),
        ("-m owner ! --uid-owner 1000", &none, YES),
        (
            "-m owner --uid-owner 1",
            &other,
            Want::Unknown(Unknown::Owner),
        ),
        ("-m mark --mark 0x10/0xf0", &other, YES),
        ("-m mark ! --mark 0x12", &other, NO),
        ("-m pkttype --pkt-type broadcast", &other, NO),
        ("-m pkttype ! --pkt-type broadcast", &other, YES),
        (
            "-m pkttype --pkt-type host",
            &user,
            Want::Unknown(Unknown::PacketType),
        ),
        ("-m rpfilter", &other, NO),
        ("-m rpfilter --invert", &other, YES),
        (
            "-m rpfilter --loose",
            &other,
            Want::Unknown(Unknown::ReversePath),
        ),
    ]);
}

#[test]
fn physdev_without_bridge_matches_negations() {
    let none = v4(17, &udp());
    let port = |input: &[u8], output: &[u8]| {
        v4(17, &udp()).facts(|facts| {
            facts.physical_input = Some(input.into());
            facts.physical_output = Some(output.into());
        })
    };
    let in_only = port(b"p1", b"");
    let both = port(b"p1", b"p2");
    check(&[
        ("-m physdev --physdev-in p1", &none, NO),
        ("-m physdev ! --physdev-in p1", &none, YES),
        ("-m physdev --physdev-in p+", &in_only, YES),
        ("-m physdev --physdev-is-bridged", &in_only, NO),
        ("-m physdev --physdev-is-bridged", &both, YES),
        ("-m physdev ! --physdev-out p9", &in_only, NO),
        ("-m physdev --physdev-out p2", &both, YES),
    ]);
}

#[test]
fn time_matches_days_and_hours() {
    // 2024-05-01 was a Wednesday.
    let at = |hour: u64| {
        v4(17, &udp()).facts(|facts| facts.date = Some((1_714_521_600 + hour * 3_600, 7_200)))
    };
    let (night, noon, late) = (at(1), at(12), at(23));
    check(&[
        ("-m time --timestart 11:00 --timestop 13:00", &noon, YES),
        ("-m time --timestart 11:00 --timestop 13:00", &night, NO),
        ("-m time --timestart 22:00 --timestop 02:00", &late, YES),
        ("-m time --timestart 22:00 --timestop 02:00", &night, YES),
        ("-m time --timestart 22:00 --timestop 02:00", &noon, NO),
        ("-m time --weekdays Wed", &noon, YES),
        ("-m time ! --weekdays Wed", &noon, NO),
        ("-m time --monthdays 1", &noon, YES),
        (
            "-m time --timestart 22:00 --timestop 02:00 --contiguous --weekdays Tue",
            &night,
            YES,
        ),
        ("-m time --kerneltz --monthdays 2", &late, YES),
        ("-m time --datestart 2024-05-02", &noon, NO),
    ]);
}

#[test]
fn sets_are_looked_up_by_dimensions() {
    let text = "create a hash:ip family inet\nadd a 10.0.0.1\n\
                create p hash:ip,port family inet\nadd p 10.0.0.1,udp:53\n\
                create o bitmap:port range 0-100\n";
    let sets = Sets::read("sets", text.as_bytes()).unwrap();
    let frame = v4(17, &udp());
    let set = Want::Unknown(Unknown::Set);
    for (options, want) in [
        ("-m set --match-set a src", YES),
        ("-m set --match-set a dst", NO),
        ("-m set ! --match-set a dst", YES),
        ("-m set --match-set p src,dst", YES),
        ("-m set --match-set p src,src", NO),
        ("-m set --match-set p src", NO),
        ("-m set --match-set missing src", set),
        ("-m set --match-set o dst", Want::Unknown(Unknown::SetType)),
    ] {
        assert_eq!(answer_with(options, &frame, Some(&sets)), want, "{options}");
    }
    let later = frame.clone().with(6, &[0, 2]);
    let options = "-m set --match-set p src,dst";
    assert_eq!(answer_with(options, &later, Some(&sets)), NO);
    assert_eq!(answer("-m set --match-set a src", &frame), set);
}

// Stateful matches.

#[test]
fn limit_refills_with_time() {
    let frame = v4(17, &udp());
    let options = "-m limit --limit 2/sec --limit-burst 2";
    let answers = answers_at(
        options,
        &frame,
        &[0.0, 0.0, 0.0, 0.4, 0.5, 0.6, 9.0, 9.0, 9.0],
    );
    assert_eq!(
        answers,
        [true, true, false, false, true, false, true, true, false]
    );
}

#[test]
fn hashlimit_has_a_bucket_for_each_key() {
    let lines = "-A INPUT -m hashlimit --hashlimit-upto 1/sec --hashlimit-burst 1 \
                 --hashlimit-mode srcip --hashlimit-name h -j DROP";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let mut drops = |last: u8| {
        let frame = v4(17, &udp()).with(15, &[last]);
        reference.evaluate(Hook::Input, &frame.packet()).verdict == Verdict::Drop
    };
    assert_eq!([drops(1), drops(1), drops(2)], [true, false, true]);
}

#[test]
fn hashlimit_bytes_cost_their_chunks() {
    // 36 bytes are 3 chunks of 16: 48 bytes of 1024 in a second.
    let options = "-m hashlimit --hashlimit-above 1kb/s --hashlimit-name h";
    let answers = answers_at(options, &v4(17, &udp()), &[0.0; 30]);
    let passed = answers.iter().filter(|above| !**above).count();
    assert_eq!(passed, 21);
}

#[test]
fn quota_ends_with_the_first_larger_packet() {
    let lines = "-A INPUT -m quota --quota 80 -j DROP";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let mut drops =
        |frame: &Frame| reference.evaluate(Hook::Input, &frame.packet()).verdict == Verdict::Drop;
    let (large, small) = (v4(17, &udp()), v4(17, &[]));
    assert!(drops(&large) && drops(&large) && !drops(&large) && !drops(&small));
}

#[test]
fn statistic_counts_from_its_packet() {
    let frame = v4(17, &udp());
    let options = "-m statistic --mode nth --every 3 --packet 1";
    let answers = answers_at(options, &frame, &[0.0; 6]);
    assert_eq!(answers, [false, true, false, false, true, false]);
    let random = |random| frame.clone().facts(|facts| facts.random = Some(random));
    check(&[
        (
            "-m statistic --mode random --probability 0.5",
            &random(0x3fff_ffff),
            YES,
        ),
        (
            "-m statistic --mode random --probability 0.5",
            &random(0x4000_0000),
            NO,
        ),
        (
            "-m statistic --mode random --probability 0.5",
            &random(0x8000_0000),
            YES,
        ),
    ]);
}

#[test]
fn recent_counts_hits_in_a_window() {
    let lines = "-A INPUT -m recent --update --seconds 10 --hitcount 3 -j DROP\n\
                 -A INPUT -m recent --set";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let mut drops = |second: u64| {
        let frame = v4(17, &udp()).facts(|facts| facts.now = (second + 1_000) * 1_000_000_000);
        reference.evaluate(Hook::Input, &frame.packet()).verdict == Verdict::Drop
    };
    let drops: Vec<bool> = [0, 1, 2, 3, 4, 30].map(&mut drops).to_vec();
    assert_eq!(drops, [false, false, false, true, true, false]);
}

#[test]
fn recent_forgets_the_oldest_of_100() {
    let lines =
        "-A INPUT -d 10.0.0.2 -m recent --set\n-A INPUT -d 10.0.0.3 -m recent --rcheck -j DROP";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let mut drops = |source: u8, destination: u8| {
        let frame = v4(17, &udp()).with(15, &[source]).with(19, &[destination]);
        reference.evaluate(Hook::Input, &frame.packet()).verdict == Verdict::Drop
    };
    for source in 0..=100 {
        drops(source, 2);
    }
    assert!(!drops(0, 3) && drops(1, 3) && drops(100, 3));
}

#[test]
fn recent_remove_and_masks() {
    let lines = "-A INPUT -d 10.0.0.2 -m recent --name n --mask 255.255.255.0 --set\n\
                 -A INPUT -d 10.0.0.3 -m recent --name n --rcheck -j DROP\n\
                 -A INPUT -d 10.0.0.4 -m recent --name n --remove -j DROP";
    let ruleset = filter(Family::Ipv4, lines);
    let mut reference = Reference::new(&ruleset, None);
    let mut drops = |source: u8, destination: u8| {
        let frame = v4(17, &udp()).with(15, &[source]).with(19, &[destination]);
        reference.evaluate(Hook::Input, &frame.packet()).verdict == Verdict::Drop
    };
    assert!(!drops(1, 2));
    assert!(drops(77, 3) && drops(9, 4) && !drops(77, 3) && !drops(9, 4));
}

// Bridges.

#[test]
fn bridge_matches_look_into_packets() {
    let inner = v4(17, &udp());
    let ip = bridge(0x0800, &inner.bytes[14..]);
    let inner6 = v6(17, &udp());
    let ip6 = bridge(0x86dd, &inner6.bytes[14..]);
    let arp = bridge(0x0806, &arp_bytes());
    let snap = bridge(20, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0, 0]);
    let numbered = bridge(20, &[0xaa, 0xaa, 4, 0, 0, 0, 0, 0, 8, 0]);
    let short = bridge(20, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    let igmp = v4(2, &[0x16, 0, 0, 0]);
    let igmp = bridge(0x0800, &igmp.bytes[14..]);
    let echo = v4(1, &[8, 7, 0, 0]);
    let echo = bridge(0x0800, &echo.bytes[14..]);
    let tree = bridge(38, &[&[0x42, 0x42, 3, 0, 0, 0, 129][..], &[0; 30]].concat());
    check(&[
        ("-p IPv4 --ip-src 10.0.0.0/24", &ip, YES),
        ("-p IPv4 ! --ip-dst 10.0.0.2", &ip, NO),
        ("-p IPv4 --ip-tos 0x28", &ip, YES),
        ("-p IPv6 --ip6-tclass 0x28", &ip6, YES),
        ("-p ARP --arp-op 1 --arp-ip-src 10.0.0.1", &arp, YES),
        ("-p ARP ! --arp-ip-dst 10.0.0.2", &arp, NO),
        ("-p ARP --arp-mac-src 02:00:00:00:00:01", &arp, YES),
        ("-p ARP --arp-gratuitous", &arp, NO),
        ("-p Length --802_3-sap 0xaa", &snap, YES),
        ("-p Length --802_3-type 0x0800", &snap, YES),
        ("--among-src 02:00:00:00:00:01=10.0.0.1", &ip, YES),
        ("--among-src 02:00:00:00:00:01=10.0.0.9", &ip, NO),
        ("--among-src 02:00:00:00:00:01", &arp, YES),
        ("! --among-dst 02:00:00:00:00:02", &arp, NO),
        ("-p Length --802_3-type 0x0800", &numbered, YES),
        (
            "-p Length --802_3-sap 0xaa",
            &short,
            Want::Unknown(Unknown::CutBytes),
        ),
        ("-p Length --802_3-sap 0x42", &short, NO),
        (
            "-p IPv4 --ip-proto igmp --ip-igmp-type 0x11:0x16",
            &igmp,
            YES,
        ),
        ("-p IPv4 --ip-proto igmp --ip-igmp-type ! 22", &igmp, NO),
        ("-p IPv4 --ip-proto icmp --ip-icmp-type 3:8/0:7", &echo, YES),
        (
            "-p IPv4 --ip-proto icmp --ip-icmp-type ! 3:8/0:6",
            &echo,
            YES,
        ),
        ("--mark /0xff", &ip, NO),
        ("! --mark /0xff --nflog", &ip, YES),
        ("-d BGA --stp-type 0", &tree, NO),
        ("--stp-type 0", &tree, YES),
        ("--stp-type tcn", &tree, NO),
        ("--stp-type ! tcn --stp-flags 129", &tree, YES),
        ("--stp-root-cost ! 0", &tree, NO),
        ("--stp-type 0", &snap, NO),
    ]);
}

#[test]
fn bridge_ports_need_a_protocol() {
    let inner = v4(17, &udp());
    let ip = bridge(0x0800, &inner.bytes[14..]);
    let mut six = vec![17, 0, 1, 4, 0, 0, 0, 0];
    six.extend(udp());
    let inner6 = v6(0, &six);
    let ip6 = bridge(0x86dd, &inner6.bytes[14..]);
    let number = Value::Number;
    let port = Value::Pair(53, 53);
    let net = |last| Value::Ipv6(Box::new([(0x2001_0db8_u128 << 96) | last, u128::MAX]));
    for (kind, options, frame, want) in [
        (Kind::BridgeIp, vec![("--ip-proto", number(17))], &ip, YES),
        (Kind::BridgeIp, vec![("--ip-proto", number(6))], &ip, NO),
        (
            Kind::BridgeIp,
            vec![("--ip-proto", number(17)), ("--ip-dport", port.clone())],
            &ip,
            YES,
        ),
        (
            Kind::BridgeIp,
            vec![("--ip-proto", number(17)), ("--ip-sport", port.clone())],
            &ip,
            NO,
        ),
        (
            Kind::BridgeIp6,
            vec![("--ip6-proto", number(17)), ("--ip6-dport", port.clone())],
            &ip6,
            YES,
        ),
        (Kind::BridgeIp6, vec![("--ip6-src", net(1))], &ip6, YES),
        (Kind::BridgeIp6, vec![("--ip6-src", net(2))], &ip6, NO),
    ] {
        assert_eq!(answer_of(kind, &options, frame), want, "{options:?}");
    }
    let later = ip.with(6, &[0, 2]);
    let options = vec![("--ip-proto", number(17)), ("--ip-dport", port)];
    assert_eq!(answer_of(Kind::BridgeIp, &options, &later), NO);
}

/// The answer of a match that the reader of text does not make.
fn answer_of(kind: Kind, options: &[(&str, Value)], frame: &Frame) -> Want {
    let mut ruleset = filter(Family::Bridge, "-A INPUT -j DROP");
    let id = base(&ruleset, "filter", "INPUT");
    let items = options.iter().map(|(name, value)| Item {
        kind,
        option: kind.spec().option_index(name).unwrap(),
        not: false,
        value: value.clone(),
    });
    let items: Vec<Item> = std::iter::once(Item::head(kind)).chain(items).collect();
    let table = ruleset.table_mut("filter").unwrap();
    table.get_mut(id).rules[0].items = items.into();
    want(&run(&ruleset, frame))
}

// Targets.

fn mangle(lines: &str, frame: &Frame) -> fairpath_rules::Outcome {
    let ruleset = ruleset(
        frame.family,
        &format!("*mangle\n:INPUT ACCEPT\n{lines}\nCOMMIT\n*filter\n:INPUT ACCEPT\nCOMMIT\n"),
    );
    run(&ruleset, frame)
}

#[test]
fn changes_are_visible_to_later_rules() {
    let frame = v4(17, &udp());
    let lines = "-A INPUT -j MARK --set-mark 7\n\
                 -A INPUT -j TTL --ttl-dec 70\n\
                 -A INPUT -j DSCP --set-dscp 46\n\
                 -A INPUT -j CONNMARK --save-mark\n\
                 -A INPUT -m mark --mark 7 -m ttl --ttl-eq 0 -m dscp --dscp 46 -m connmark --mark 7 -j DROP";
    let outcome = mangle(lines, &frame);
    assert_eq!(outcome.verdict, Verdict::Drop);
    let changes = Changes {
        mark: 7,
        connection_mark: Some(7),
        tos: Some(0xb8),
        ttl: Some(0),
        ..Changes::default()
    };
    assert_eq!(outcome.changes, changes);
}

#[test]
fn hop_limit_and_class_of_ipv6() {
    let frame = v6(17, &udp());
    let ruleset = ruleset(
        Family::Ipv6,
        "*mangle\n:INPUT ACCEPT\n-A INPUT -j HL --hl-inc 200\n-A INPUT -j TOS --set-tos 0x03/0x0f\nCOMMIT\n",
    );
    let changes = run(&ruleset, &frame).changes;
    assert_eq!((changes.ttl, changes.tos), (Some(255), Some(0x23)));
}

#[test]
fn changed_header_has_a_valid_checksum() {
    let sum = |frame: &Frame| {
        let header = &frame.bytes[14..34];
        let total: u32 = header
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        !((total & 0xffff) + (total >> 16)) as u16
    };
    let frame = v4(17, &udp());
    let frame = frame.clone().with(10, &sum(&frame).to_be_bytes());
    let changed = frame.clone().with(8, &[9]).with(10, &[0, 0]);
    let expected = sum(&changed);
    let lines = format!(
        "-A INPUT -j TTL --ttl-set 9\n-A INPUT -m u32 --u32 \"8&0xffff={expected}\" -j DROP"
    );
    assert_eq!(mangle(&lines, &frame).verdict, Verdict::Drop);
}

#[test]
fn tcpmss_lowers_and_drops_broken_headers() {
    let syn = v4(6, &tcp(2, &[2, 4, 5, 0xb4]));
    let lines = "-A INPUT -p tcp --syn -j TCPMSS --set-mss 1000\n\
                 -A INPUT -p tcp -m tcpmss --mss 1000 -j DROP";
    let outcome = mangle(lines, &syn);
    assert_eq!(
        (outcome.verdict, outcome.changes.mss),
        (Verdict::Drop, Some(MssLimit::Bytes(1000)))
    );
    let lines = "-A INPUT -p tcp --syn -j TCPMSS --set-mss 1500\n\
                 -A INPUT -p tcp -m tcpmss --mss 1460 -j DROP";
    assert_eq!(mangle(lines, &syn).verdict, Verdict::Drop);
    let outcome = mangle(lines, &syn.shorter(42));
    assert_eq!(outcome.verdict, Verdict::Drop);
    assert!(outcome.at.is_some());
}

#[test]
fn notrack_makes_packets_untracked() {
    let text = "*raw\n:PREROUTING ACCEPT\n-A PREROUTING -j CT --notrack\nCOMMIT\n\
                *mangle\n:PREROUTING ACCEPT\n\
                -A PREROUTING -m conntrack --ctstate UNTRACKED -j DROP\nCOMMIT\n";
    let ruleset = ruleset(Family::Ipv4, text);
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference.evaluate(Hook::Prerouting, &v4(17, &udp()).packet());
    assert_eq!(outcome.verdict, Verdict::Drop);
    assert!(outcome.changes.untracked);
}

#[test]
fn table_raw_is_before_connection_tracking() {
    let text = "*raw\n:PREROUTING ACCEPT\n\
                -A PREROUTING -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n";
    let ruleset = ruleset(Family::Ipv4, text);
    let frame = v4(17, &udp()).facts(|facts| {
        facts.connection = None;
        // No broadcast that the host itself sent.
        facts.packet_type = Some(0);
    });
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference.evaluate(Hook::Prerouting, &frame.packet());
    assert_eq!(outcome.verdict, Verdict::Drop);
}

#[test]
fn nat_gets_the_first_packet_only() {
    let text = "*nat\n:PREROUTING ACCEPT\n:INPUT ACCEPT\n:OUTPUT ACCEPT\n:POSTROUTING ACCEPT\n\
                -A PREROUTING -p udp -j DNAT --to-destination 10.0.0.9\nCOMMIT\n";
    let ruleset = ruleset(Family::Ipv4, text);
    let verdict = |state: Option<u8>| {
        let frame = v4(17, &udp()).facts(|facts| {
            facts.connection = state.map(|state| Connection {
                state,
                ..Connection::default()
            });
        });
        let mut reference = Reference::new(&ruleset, None);
        reference
            .evaluate(Hook::Prerouting, &frame.packet())
            .verdict
    };
    assert_eq!(verdict(Some(8)), Verdict::Accept);
    assert_eq!(verdict(Some(2)), Verdict::Unknown(Unknown::Translation));
    assert_eq!(verdict(None), Verdict::Unknown(Unknown::Connection));
}

#[test]
fn nat_of_input_is_after_filter() {
    let text = "*nat\n:INPUT ACCEPT\n-A INPUT -j SNAT --to-source 10.0.0.9\nCOMMIT\n\
                *filter\n:INPUT DROP\nCOMMIT\n";
    let outcome = run(&ruleset(Family::Ipv4, text), &v4(17, &udp()));
    assert_eq!((outcome.verdict, outcome.at), (Verdict::Drop, None));
}

#[test]
fn bridge_mark_has_its_own_verdict() {
    let frame = bridge(0x0806, &arp_bytes());
    let lines = "-A INPUT -j mark --mark-or 4 --mark-target CONTINUE\n-A INPUT --mark 4 -j DROP";
    let outcome = run(&filter(Family::Bridge, lines), &frame);
    assert_eq!((outcome.verdict, outcome.changes.mark), (Verdict::Drop, 4));
}

#[test]
fn classify_sets_the_priority() {
    let text = "*mangle\n:OUTPUT ACCEPT\n-A OUTPUT -j CLASSIFY --set-class 1:10\nCOMMIT\n";
    let ruleset = ruleset(Family::Ipv4, text);
    let mut reference = Reference::new(&ruleset, None);
    let outcome = reference.evaluate(Hook::Output, &v4(17, &udp()).packet());
    assert_eq!(outcome.changes.priority, Some(0x1_0010));
}

// Properties.

/// Options of rules, of which some need facts, and some drop packets.
const OPTIONS: &[&str] = &[
    "-i eth0",
    "! -i eth1",
    "-s 10.0.0.1",
    "-p tcp",
    "-p tcp --dport 80",
    "-p tcp ! --dport 80",
    "-p tcp --tcp-option 3",
    "-p tcp -m tcpmss --mss 1000:2000",
    "-p udp --dport 53",
    "-p udp -m multiport --ports 1,53",
    "-p sctp --chunk-types any DATA",
    "-p sctp ! --chunk-types all DATA,INIT",
    "-p icmp --icmp-type 8",
    "-f",
];
const MATCHES: &[&str] = &[
    "",
    "-m mark --mark 1",
    "-m mark ! --mark 1",
    "-m state --state NEW",
    "-m conntrack ! --ctstate NEW --ctdir REPLY",
    "-m connmark --mark 3",
    "-m addrtype --dst-type LOCAL",
    "-m addrtype ! --src-type LOCAL --dst-type UNICAST",
    "-m owner --uid-owner 0",
    "-m physdev --physdev-in p1",
    "-m rpfilter",
    "-m pkttype --pkt-type host",
    "-m time --timestart 10:00 --timestop 12:00",
    "-m statistic --mode random --probability 0.5",
    "-m statistic --mode nth --every 2 --packet 0",
    "-m limit --limit 1/hour --limit-burst 1",
    "-m u32 --u32 \"0>>22&0x3C@0=1\"",
];
const TARGETS: &[&str] = &[
    "",
    "-j ACCEPT",
    "-j DROP",
    "-j MARK --set-mark 1",
    "-j CONNMARK --save-mark",
];

fn all_facts(frame: &mut Frame, seed: u32) {
    frame.facts.mark = seed & 1;
    frame.facts.source_type = Some(1 << (1 + (seed >> 1 & 1)));
    frame.facts.destination_type = Some(1 << (1 + (seed >> 2 & 1)));
    frame.facts.packet_type = Some((seed >> 3 & 3) as u8);
    frame.facts.owner = Some((seed >> 5 & 1 == 1).then_some(Owner { user: 0, group: 0 }));
    frame.facts.reverse_path = Some(seed >> 6 & 1 == 1);
    frame.facts.date = Some((u64::from(seed >> 7) * 3_600, 0));
    frame.facts.random = Some(seed.wrapping_mul(0x9e37_79b9));
    frame.facts.connection = Some(Connection {
        state: 1 << (seed >> 8 & 3),
        mark: Some(3),
        reply: Some(seed >> 10 & 1 == 1),
        ..Connection::default()
    });
    if seed >> 11 & 1 == 1 {
        frame.facts.physical_input = Some(b"p1"[..].into());
    }
}

fn hide(frame: &mut Frame, hidden: u32) {
    let facts = &mut frame.facts;
    let is_hidden = |bit: u32| hidden >> bit & 1 == 1;
    if is_hidden(0) {
        facts.input = None;
    }
    if is_hidden(1) {
        facts.connection = None;
    }
    if is_hidden(2) {
        facts.source_type = None;
    }
    if is_hidden(3) {
        facts.destination_type = None;
    }
    if is_hidden(4) {
        facts.packet_type = None;
        facts.reverse_path = None;
    }
    if is_hidden(5) {
        facts.owner = None;
        facts.physical_input = None;
    }
    if is_hidden(6) {
        facts.date = None;
        facts.random = None;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn hidden_facts_never_change_a_verdict(
        rules in prop::collection::vec(
            (0..OPTIONS.len(), 0..MATCHES.len(), 0..MATCHES.len(), 0..TARGETS.len()), 1..6),
        protocol in prop::sample::select(vec![1u8, 6, 17, 132]),
        payload in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 4, 8, 0x50, 0x60]), 0..44),
        fragment in prop::sample::select(vec![0u8, 0, 0, 1, 2]),
        seed in any::<u32>(),
        hidden in 0u32..128,
        kept in 20usize..70,
    ) {
        let mut lines = String::new();
        for (option, first, second, target) in rules {
            let (first, second) = (MATCHES[first], if first == second { "" } else { MATCHES[second] });
            // The same match twice in a rule is refused.
            let name = |text: &str| text.split(' ').nth(1).map(str::to_owned);
            let second = if name(first) == name(second) { "" } else { second };
            lines.push_str(&format!("-A INPUT {} {first} {second} {}\n", OPTIONS[option], TARGETS[target]));
        }
        let ruleset = filter(Family::Ipv4, &lines);
        let mut frame = v4(protocol, &payload).with(6, &[0, fragment]);
        all_facts(&mut frame, seed);
        let full = run(&ruleset, &frame);
        prop_assert!(!matches!(full.verdict, Verdict::Unknown(_)), "{lines}");
        hide(&mut frame, hidden);
        let frame = frame.captured(kept.min(20 + payload.len()));
        let mut reference = Reference::new(&ruleset, None);
        let partial = reference.trace(true).evaluate(Hook::Input, &frame.packet());
        if !matches!(partial.verdict, Verdict::Unknown(_)) {
            prop_assert_eq!((partial.verdict, partial.at), (full.verdict, full.at), "{}", lines);
        }
    }

    #[test]
    fn any_bytes_have_an_outcome(
        bytes in prop::collection::vec(
            prop_oneof![prop::sample::select(vec![0u8, 1, 6, 43, 44, 51, 59, 60, 0x45, 0x60]), any::<u8>()],
            0..120),
        network in 0usize..20,
        more in 0usize..40,
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 50, 51, 58, 59, 60, 132]),
    ) {
        for (family, text) in EVERY_MATCH {
            let ruleset = filter(*family, text);
            let mut bytes = bytes.clone();
            for at in [6, 9] {
                if let Some(byte) = bytes.get_mut(network + at) {
                    *byte = next;
                }
            }
            let length = bytes.len().saturating_sub(network) + more;
            let mut frame = Frame { family: *family, bytes, network, length, facts: facts() };
            all_facts(&mut frame, 5);
            let mut reference = Reference::new(&ruleset, None);
            for _ in 0..2 {
                reference.trace(true).evaluate(Hook::Input, &frame.packet());
            }
        }
    }
}

const EVERY_MATCH: &[(Family, &str)] = &[
    (
        Family::Ipv4,
        "-A INPUT -p tcp ! --tcp-option 9 -m tcpmss --mss 1\n\
         -A INPUT -p udp -m multiport --ports 1\n\
         -A INPUT -p sctp ! --chunk-types all DATA,INIT -m mark --mark 9\n\
         -A INPUT -p icmp --icmp-type 8\n-A INPUT -p esp -m esp --espspi 1\n\
         -A INPUT -p ah -m ah --ahspi 1\n-A INPUT -p dccp --dccp-option 1\n\
         -A INPUT -m u32 --u32 \"0>>22&0x3C@0@0=1\"\n\
         -A INPUT -m hashlimit --hashlimit-upto 10kb/s --hashlimit-burst 1mb \
         --hashlimit-mode srcip,dstip,srcport,dstport --hashlimit-name h\n\
         -A INPUT -m recent --update --seconds 1 --reap --rttl\n-A INPUT -m recent --set\n\
         -A INPUT -m length --length 1 -m ttl --ttl-eq 1 -m dscp --dscp 1 -m tos --tos 1",
    ),
    (
        Family::Ipv6,
        "-A INPUT -m hbh --hbh-opts 1:1,2\n-A INPUT -m dst --dst-len 8 --dst-opts 0,1\n\
         -A INPUT -m frag --fragid 1\n-A INPUT -m rt --rt-type 0 --rt-0-res --rt-0-addrs ::1\n\
         -A INPUT -m rt --rt-type 0 --rt-0-addrs ::1,:: --rt-0-not-strict\n\
         -A INPUT -m ah --ahspi 1 --ahres\n-A INPUT -m ipv6header --header hop\n\
         -A INPUT -m hashlimit --hashlimit-upto 1/sec --hashlimit-mode srcport --hashlimit-name h\n\
         -A INPUT -p tcp --tcp-option 3\n-A INPUT -p udp --dport 1\n-A INPUT ! -p esp",
    ),
    (Family::Arp, "-A INPUT -s 10.0.0.1 --opcode 1 -j DROP"),
    (
        Family::Bridge,
        "-A INPUT -p IPv4 --ip-src 10.0.0.1\n-A INPUT -p IPv6 --ip6-tclass 0x28\n\
         -A INPUT -p ARP --arp-mac-dst 02:00:00:00:00:01 --arp-gratuitous\n\
         -A INPUT -p 802_1Q --vlan-id 1\n-A INPUT -p Length --802_3-type 0x0800\n\
         -A INPUT --among-src 02:00:00:00:00:01=10.0.0.1",
    ),
];
