//! Differences of sets whose difference is known: rules, and an example packet for each.

mod ruleset;

use fairpath_rules::{
    Difference, Family, Names, Packet, Reference, RuleChange, Sets, Verdict, diff, read,
};
use ruleset::ruleset;

/// Packets of a comparison.
const PACKETS: usize = 5_000;

/// The difference of two sets; the reference must agree with the core about each example.
fn difference(family: Family, first: &str, second: &str) -> Difference {
    let sets = [ruleset(family, first), ruleset(family, second)];
    let difference = diff(&sets[0], &sets[1], (None, None), PACKETS).expect("small");
    for example in &difference.examples {
        let packet = Packet {
            family,
            bytes: &example.bytes,
            network: example.network,
            length: example.bytes.len() - example.network,
            facts: example.facts.clone(),
        };
        for (set, verdict) in sets.iter().zip([&example.first, &example.second]) {
            let outcome = Reference::new(set, None).evaluate(example.hook, &packet);
            assert_eq!(outcome.verdict, *verdict, "{example:?}");
        }
    }
    difference
}

fn filter(family: Family, lines: &str) -> String {
    let commit = if family.is_ip() { "COMMIT\n" } else { "" };
    format!("*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n{lines}\n{commit}")
}

/// One rule changed: the packet of an example matches only the second.
fn finds(family: Family, first: &str, second: &str) {
    let difference = difference(family, &filter(family, first), &filter(family, second));
    assert!(!difference.same_rules(), "{first} | {second}");
    assert!(!difference.examples.is_empty(), "{first} | {second}");
    assert!(
        difference.differing > 10,
        "{first} | {second}: {difference:?}"
    );
    assert_eq!(difference.unknown, 0, "{first} | {second}");
}

#[test]
fn one_field_of_arp_makes_a_difference() {
    for (first, second) in [
        ("--opcode 1", "--opcode 2"),
        ("--opcode 1", "--opcode 1/255"),
        ("--h-type 1", "--h-type 6"),
        ("--proto-type 0x800", "--proto-type 0x86dd"),
        ("--h-length 6", "--h-length 8"),
        ("-s 10.0.0.1", "-s 10.0.0.0/31"),
        ("! -d 10.0.0.1", "-d 10.0.0.1"),
        (
            "--src-mac 02:00:00:00:00:01",
            "--src-mac 02:00:00:00:00:01/ff:ff:ff:ff:ff:00",
        ),
        ("--dst-mac 02:00:00:00:00:01", "--dst-mac 02:00:00:00:00:02"),
        ("-i eth0", "-i eth+"),
    ] {
        let rule =
            |fields| format!("-A INPUT -s 172.16.0.0/12 -j ACCEPT\n-A INPUT {fields} -j DROP");
        finds(Family::Arp, &rule(first), &rule(second));
    }
}

#[test]
fn one_field_of_a_frame_makes_a_difference() {
    for (first, second) in [
        ("-p IPv4", "-p ARP"),
        ("-p LENGTH", "-p 0x88b5"),
        ("-s 02:00:00:00:00:01", "-d 02:00:00:00:00:01"),
        ("-p ARP --arp-op 1", "-p ARP --arp-op 2"),
        ("-p ARP --arp-gratuitous", "-p ARP ! --arp-gratuitous"),
        (
            "-p ARP --arp-mac-src 02:00:00:00:00:01",
            "-p ARP --arp-mac-dst 02:00:00:00:00:01",
        ),
        (
            "-p ARP --arp-ip-src 10.0.0.0/24",
            "-p ARP --arp-ip-src 10.0.0.0/25",
        ),
        ("-p 802_1Q --vlan-id 5", "-p 802_1Q --vlan-id 6"),
        ("-p 802_1Q --vlan-prio 1", "-p 802_1Q --vlan-prio 2"),
        ("-p 802_1Q --vlan-encap IPv4", "-p 802_1Q --vlan-encap ARP"),
        (
            "-p IPv4 --ip-proto 17 --ip-dport 53",
            "-p IPv4 --ip-proto 17 --ip-dport 53:54",
        ),
        (
            "-p IPv4 --ip-src 10.0.0.1 --ip-tos 0x10",
            "-p IPv4 --ip-src 10.0.0.1",
        ),
        (
            "-p IPv6 --ip6-dst 2001:db8::/32",
            "-p IPv6 --ip6-dst 2001:db8::/48",
        ),
        ("--logical-in br0", "--logical-in br1"),
        (
            "--among-src 02:00:00:00:00:01,",
            "--among-src 02:00:00:00:00:02,",
        ),
        ("--mark 1", "--mark 2"),
    ] {
        let rule = |fields| format!("-A FORWARD {fields} -j DROP");
        finds(Family::Bridge, &rule(first), &rule(second));
    }
}

#[test]
fn one_field_of_a_header_makes_a_difference() {
    for (first, second) in [
        ("-m length --length 100:200", "-m length --length 100:201"),
        ("-m length --length 1000:", "-m length --length 1001:"),
        ("-m ttl --ttl-lt 5", "-m ttl --ttl-lt 6"),
        ("-m ttl --ttl-gt 5", "-m ttl --ttl-gt 6"),
        ("-m ttl --ttl-eq 5", "-m ttl --ttl-eq 6"),
        ("-m dscp --dscp 5", "-m dscp --dscp 6"),
        ("-m tos --tos 0x10/0x3f", "-m tos --tos 0x10/0x3e"),
        ("-m ecn --ecn-ip-ect 1", "-m ecn --ecn-ip-ect 2"),
        ("-p tcp -m ecn --ecn-tcp-ece", "-p tcp -m ecn --ecn-tcp-cwr"),
        ("-f", "! -f"),
        ("-p icmp --icmp-type 5", "-p icmp --icmp-type 6"),
        ("-p icmp --icmp-type 3/1", "-p icmp --icmp-type 3/2"),
        (
            "-p tcp --tcp-flags ALL SYN",
            "-p tcp --tcp-flags ALL SYN,ACK",
        ),
        ("-p tcp --tcp-option 8", "-p tcp --tcp-option 9"),
        (
            "-p tcp -m tcpmss --mss 500:600",
            "-p tcp -m tcpmss --mss 500:601",
        ),
        ("-p esp -m esp --espspi 5:9", "-p esp -m esp --espspi 5:10"),
        ("-p ah -m ah --ahspi 5", "-p ah -m ah --ahspi 6"),
        (
            "-p dccp --dccp-types REQUEST",
            "-p dccp --dccp-types RESPONSE",
        ),
        (
            "-p sctp --chunk-types any INIT",
            "-p sctp --chunk-types any INIT_ACK",
        ),
        (
            "-p sctp --chunk-types all DATA:Be,SACK",
            "-p sctp --chunk-types all DATA:BE,SACK",
        ),
        (
            "-p sctp --chunk-types only DATA",
            "-p sctp --chunk-types only SACK",
        ),
        ("-m u32 --u32 4>>16=7", "-m u32 --u32 4>>16=8"),
        (
            "-m u32 --u32 0>>22&0x3C@40&0xFF=5:9",
            "-m u32 --u32 0>>22&0x3C@40&0xFF=5:10",
        ),
        ("-m connmark --mark 1", "-m connmark --mark 2"),
        ("-m mark --mark 1", "-m connmark --mark 1"),
    ] {
        let rule = |fields| format!("-A INPUT {fields} -j DROP");
        finds(Family::Ipv4, &rule(first), &rule(second));
    }
    for (first, second) in [
        ("-m length --length 100:200", "-m length --length 100:201"),
        ("-m hl --hl-lt 5", "-m hl --hl-lt 6"),
        ("-p esp -m esp --espspi 5:9", "-p esp -m esp --espspi 5:10"),
        ("-m ah --ahspi 5", "-m ah --ahspi 6"),
        ("-m u32 --u32 52>>16=7", "-m u32 --u32 52>>16=8"),
    ] {
        let rule = |fields| format!("-A INPUT {fields} -j DROP");
        finds(Family::Ipv6, &rule(first), &rule(second));
    }
}

#[test]
fn other_rates_make_a_difference() {
    for (first, second) in [
        ("-m limit --limit 5/sec", "-m limit --limit 6/sec"),
        ("-m limit --limit-burst 5", "-m limit --limit-burst 6"),
        (
            "-m hashlimit --hashlimit-above 5/sec --hashlimit-name a",
            "-m hashlimit --hashlimit-above 6/sec --hashlimit-name a",
        ),
        (
            "-m recent --update --seconds 3 --hitcount 2",
            "-m recent --update --seconds 4 --hitcount 2",
        ),
    ] {
        let set = |fields| {
            let known = "-A INPUT -s 198.51.100.9 -m recent --set\n";
            let text = format!("{known}-A INPUT -s 198.51.100.9 {fields} -j DROP");
            ruleset(Family::Ipv4, &filter(Family::Ipv4, &text))
        };
        let difference = diff(&set(first), &set(second), (None, None), PACKETS).expect("small");
        assert!(difference.differing > 0, "{first} | {second}");
    }
}

#[test]
fn one_element_of_a_set_makes_a_difference() {
    let text = "-A INPUT -m set --match-set hosts src -j DROP\n\
                -A INPUT -m set --match-set services dst,dst -j DROP";
    let rules = ruleset(Family::Ipv4, &filter(Family::Ipv4, text));
    let sets = |hosts: &str, services: &str| {
        let mut text = String::from(
            "create hosts hash:net family inet\ncreate services hash:ip,port family inet\n",
        );
        for other in 0..500 {
            let (high, low) = (other / 250, other % 250);
            text.push_str(&format!("add hosts 10.1.{high}.{low}\n"));
            text.push_str(&format!("add services 10.2.{high}.{low},tcp:80\n"));
        }
        text.push_str(&format!("add hosts {hosts}\nadd services {services}\n"));
        Sets::read("sets", text.as_bytes()).expect("valid sets")
    };
    let first = sets("192.0.2.0/24", "198.51.100.1,udp:53");
    for (second, name) in [
        (sets("192.0.2.0/25", "198.51.100.1,udp:53"), "hosts"),
        (sets("192.0.2.0/24", "198.51.100.1,udp:54"), "services"),
        (sets("192.0.2.0/24", "198.51.100.2,udp:53"), "services"),
    ] {
        let both = (Some(&first), Some(&second));
        let difference = diff(&rules, &rules, both, PACKETS).expect("small");
        assert!(difference.changes.is_empty() && !difference.same_rules());
        assert_eq!(difference.sets.len(), 1);
        assert_eq!(difference.sets[0].name, name);
        assert_eq!(difference.sets[0].lines, (1, 1));
        assert!(difference.differing > 10, "{name}: {difference:?}");
    }
    let same = diff(&rules, &rules, (Some(&first), Some(&first)), PACKETS).expect("small");
    assert!(same.same_rules());
}

#[test]
fn policy_of_a_bridge_chain_is_a_difference() {
    let set = |policy: &str| {
        format!(
            "*filter\n:FORWARD ACCEPT\n:arps {policy}\n\
             -A FORWARD -p ARP --arp-op 2 -i port3 -j arps\n-A arps -s 02:00:00:00:00:01 -j ACCEPT\n"
        )
    };
    let difference = difference(Family::Bridge, &set("RETURN"), &set("DROP"));
    assert_eq!(difference.changes.len(), 1);
    assert_eq!(difference.changes[0].change, RuleChange::Chain);
    assert_eq!(
        difference.changes[0].text,
        "the policy changed from RETURN to DROP"
    );
    let example = &difference.examples[0];
    assert_eq!(
        (&example.first, &example.second),
        (&Verdict::Accept, &Verdict::Drop)
    );
    assert_eq!(example.facts.input.as_deref(), Some(&b"port3"[..]));
    assert_eq!(example.by.0, "policy of filter FORWARD");
    assert_eq!(example.by.1, "policy of filter arps");
    // An ARP reply of another sender.
    assert_eq!(example.bytes[12..14], [8, 6]);
    assert_eq!(example.bytes[20..22], [0, 2]);
    assert_ne!(example.bytes[6..12], [2, 0, 0, 0, 0, 1]);
    // Without a jump to the chain, its policy decides nothing.
    let set = |policy: &str| set(policy).replace("-j arps", "-j CONTINUE");
    let difference = self::difference(Family::Bridge, &set("RETURN"), &set("DROP"));
    assert_eq!((difference.changes.len(), difference.differing), (1, 0));
}

#[test]
fn equal_sets_are_equal_however_they_are_written() {
    for (family, first, second) in [
        (
            Family::Arp,
            "-A INPUT --opcode Request -j DROP",
            "-A INPUT -j DROP --opcode 1/65535",
        ),
        (
            Family::Bridge,
            "-A INPUT -p ARP --arp-op Reply -j DROP",
            "-A INPUT -j DROP -p 0806 --arp-opcode 2",
        ),
        (
            Family::Ipv4,
            "-A INPUT -p tcp --dport 22 -j DROP",
            "-A INPUT -p 6 -m tcp --dport ssh -j DROP",
        ),
    ] {
        let mut names = Names::default();
        names.add_services("ssh 22/tcp\n");
        let set = |lines| {
            let text = filter(family, lines);
            let reading = read(&mut text.as_bytes(), "test", family, &names).expect("memory");
            reading.complete().expect("valid rules")
        };
        let difference = diff(&set(first), &set(second), (None, None), PACKETS).expect("small");
        assert!(difference.same_rules(), "{difference:?}");
        assert_eq!(difference.packets, 0);
    }
}

#[test]
fn moved_rules_without_effect_have_no_examples() {
    let first = filter(
        Family::Arp,
        "-A INPUT -s 10.0.0.1 -j DROP\n-A INPUT -s 10.0.0.2 -j ACCEPT",
    );
    let second = filter(
        Family::Arp,
        "-A INPUT -s 10.0.0.2 -j ACCEPT\n-A INPUT -s 10.0.0.1 -j DROP",
    );
    let difference = difference(Family::Arp, &first, &second);
    assert_eq!(difference.changes.len(), 1);
    assert_eq!(difference.changes[0].change, RuleChange::Moved);
    assert!(difference.packets > PACKETS as u64 / 2);
    assert_eq!(difference.differing, 0);
}

#[test]
fn policy_of_an_absent_table_is_a_difference() {
    let first = "*filter\n:INPUT DROP [0:0]\nCOMMIT\n";
    let difference = difference(Family::Ipv4, first, "*raw\nCOMMIT\n");
    assert_eq!(
        difference.changes[0].text,
        "the policy changed from DROP to ACCEPT"
    );
    assert_eq!(difference.examples[0].first, Verdict::Drop);
}

#[test]
fn change_behind_nested_narrow_rules_has_an_example() {
    let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n");
    for level in 0..6 {
        text.push_str(&format!(":level{level} - [0:0]\n"));
    }
    text.push_str("-A INPUT -i wan -m conntrack --ctstate ESTABLISHED -j level0\n");
    for other in 0..3000 {
        text.push_str(&format!(
            "-A INPUT -s 10.0.{}.{} -j ACCEPT\n",
            other / 250,
            other % 250
        ));
    }
    let steps = [
        "-s 192.0.2.0/24",
        "-d 198.51.100.7",
        "-p tcp",
        "-p tcp --dport 443",
        "-m mark --mark 7",
    ];
    for (level, step) in steps.iter().enumerate() {
        text.push_str(&format!("-A level{level} {step} -j level{}\n", level + 1));
    }
    let first = format!("{text}-A level5 -p tcp --sport 1024:2047 -j DROP\nCOMMIT\n");
    let second = format!("{text}-A level5 -p tcp --sport 1024:2048 -j DROP\nCOMMIT\n");
    let difference = difference(Family::Ipv4, &first, &second);
    let example = &difference.examples[0];
    assert_eq!(
        (&example.first, &example.second),
        (&Verdict::Accept, &Verdict::Drop)
    );
    assert_eq!(example.bytes[34..36], 2048u16.to_be_bytes());
}

#[test]
fn other_targets_of_translation_are_differences() {
    let set = |to: &str| {
        format!(
            "*nat\n:KUBE - [0:0]\n-A PREROUTING -d 10.96.0.10 -p udp -m addrtype --dst-type LOCAL -j KUBE\n\
             -A KUBE -m statistic --mode random --probability 0.5 -j ACCEPT\n\
             -A KUBE -p udp -j DNAT --to-destination {to}\nCOMMIT\n"
        )
    };
    let (first, second) = (set("10.0.0.1"), set("10.0.0.2"));
    let difference = difference(Family::Ipv4, &first, &second);
    let example = &difference.examples[0];
    assert!(matches!(example.first, Verdict::Unknown(_)), "{example:?}");
    assert!(
        example.by.0.ends_with("-j DNAT --to-destination 10.0.0.1"),
        "{example:?}"
    );
    assert!(
        example.by.1.ends_with("-j DNAT --to-destination 10.0.0.2"),
        "{example:?}"
    );
    // Another rule with the same target is no difference of packets.
    let same = first.replace("-A KUBE -p udp", "-A KUBE");
    assert_eq!(self::difference(Family::Ipv4, &first, &same).differing, 0);
}
