//! Images of rules: built, checked, and evaluated by the native core.

mod ruleset;

use fairpath_core::rules::{CounterMode, check};
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{
    Connection, Core, Facts, Family, FindingKind, Hook, Packet, Reference, Ruleset, Sets, Unknown,
    Verdict, check_rules,
};
use ruleset::ruleset;

/// An IPv4 packet without a link-layer header.
fn packet(source: [u8; 4], protocol: u8, rest: &[u8]) -> Vec<u8> {
    let length = (20 + rest.len()) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&source);
    bytes.extend_from_slice(&[192, 0, 2, 1]);
    bytes.extend_from_slice(rest);
    bytes
}

fn verdict(ruleset: &Ruleset, lookups: Lookups, bytes: &[u8]) -> Option<Verdict> {
    let built = build(ruleset, None, lookups).expect("small");
    let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
    let frame = [&[2; 14], bytes].concat();
    let packet = Packet {
        family: Family::Ipv4,
        bytes: &frame,
        network: 14,
        length: bytes.len(),
        facts: Facts::usual(),
    };
    core.evaluate(Hook::Input, &packet)
        .map(|outcome| outcome.verdict)
}

#[test]
fn address_port_and_policy_decide() {
    let set = ruleset(
        Family::Ipv4,
        "*filter\n:INPUT DROP [0:0]\n:in - [0:0]\n-A INPUT -i eth+ -j in\n\
         -A in -s 10.0.0.0/8 -p tcp -m tcp --dport 80:90 -j ACCEPT\n-A in -s 10.1.0.0/16 -j RETURN\nCOMMIT\n",
    );
    let mut tcp = vec![0; 20];
    tcp[3] = 85;
    tcp[12] = 0x50;
    for lookups in Lookups::ALL {
        let answer = |source, rest: &[u8]| verdict(&set, lookups, &packet(source, 6, rest));
        assert_eq!(answer([10, 2, 3, 4], &tcp), Some(Verdict::Accept));
        assert_eq!(answer([11, 2, 3, 4], &tcp), Some(Verdict::Drop));
        // A header that was cut short drops the packet.
        assert_eq!(answer([10, 2, 3, 4], &tcp[..8]), Some(Verdict::Drop));
    }
}

#[test]
fn long_chain_finds_its_rule_by_tables() {
    let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n");
    for number in 0..2000 {
        text.push_str(&format!(
            "-A INPUT -s 10.0.{}.{} -j DROP\n",
            number / 250,
            number % 250
        ));
    }
    text.push_str("COMMIT\n");
    let set = ruleset(Family::Ipv4, &text);
    let built = build(&set, None, Lookups::default()).expect("small");
    assert!(
        built.plans[0].segment.is_some(),
        "{}",
        built.plans[0].reason
    );
    check(&built.image).expect("valid image");
    for (source, expected) in [
        ([10, 0, 7, 249], Verdict::Drop),
        ([10, 0, 7, 250], Verdict::Accept),
        ([10, 0, 0, 0], Verdict::Drop),
    ] {
        for lookups in Lookups::ALL {
            assert_eq!(
                verdict(&set, lookups, &packet(source, 17, &[0; 8])),
                Some(expected.clone())
            );
        }
    }
}

/// A packet of a capture has no connection and no interfaces: they matter only if a rule reads them.
#[test]
fn facts_that_no_rule_reads_hinder_no_lookup() {
    let addresses: String = (0..200)
        .map(|n| format!("-A INPUT -s 10.0.0.{n}\n"))
        .collect();
    for (reads, evaluated) in [
        ("", 1),
        ("-A INPUT -j LOG\n", 2),
        ("-A INPUT -m ttl --ttl-eq 64\n", 2),
        ("-A INPUT -i lan\n", 201),
        ("-A INPUT -m state --state NEW\n", 201),
        ("-A INPUT -m connlimit --connlimit-above 9\n", 201),
    ] {
        let text = format!("*filter\n:INPUT ACCEPT [0:0]\n{addresses}{reads}COMMIT\n");
        let built = build(&ruleset(Family::Ipv4, &text), None, Lookups::default()).expect("small");
        let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
        let bytes = packet([10, 0, 0, 7], 17, &[0; 8]);
        let packet = Packet {
            family: Family::Ipv4,
            bytes: &bytes,
            network: 0,
            length: bytes.len(),
            facts: Facts::default(),
        };
        let outcome = core.evaluate(Hook::Input, &packet).expect("complete");
        assert_eq!(outcome.evaluated, evaluated, "{reads}");
    }
    // In table raw, the connection depends on the input.
    for (reads, evaluated) in [("", 1), ("-A PREROUTING -m state --state NEW\n", 201)] {
        let addresses = addresses.replace("INPUT", "PREROUTING");
        let text = format!("*raw\n:PREROUTING ACCEPT [0:0]\n{addresses}{reads}COMMIT\n");
        let built = build(&ruleset(Family::Ipv4, &text), None, Lookups::default()).expect("small");
        let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
        let bytes = packet([10, 0, 0, 7], 17, &[0; 8]);
        let packet = Packet {
            family: Family::Ipv4,
            bytes: &bytes,
            network: 0,
            length: bytes.len(),
            facts: Facts {
                input: None,
                connection: Some(Connection {
                    state: 8,
                    ..Connection::default()
                }),
                ..Facts::usual()
            },
        };
        let outcome = core.evaluate(Hook::Prerouting, &packet);
        let outcome = outcome.expect("complete");
        assert_eq!(outcome.evaluated, evaluated, "{reads}");
    }
}

#[test]
fn one_missing_fact_of_a_rule_is_noticed() {
    type Hide = fn(&mut Facts);
    let rules: [(&str, Hide); 9] = [
        ("-i lan", |facts| facts.input = None),
        ("-m state --state NEW", |facts| facts.connection = None),
        ("-m connmark --mark 1", |facts| facts.connection = None),
        ("-m connlimit --connlimit-above 9", |facts| {
            facts.connections = None
        }),
        ("-m addrtype --src-type LOCAL", |facts| {
            facts.source_type = None
        }),
        ("-m addrtype --dst-type LOCAL", |facts| {
            facts.destination_type = None
        }),
        ("-m pkttype --pkt-type multicast", |facts| {
            facts.packet_type = None
        }),
        ("-m rpfilter --invert", |facts| facts.reverse_path = None),
        ("-m owner --uid-owner 1", |facts| facts.owner = None),
    ];
    let bytes = [&[2; 14][..], &packet([10, 0, 0, 7], 17, &[0; 8])].concat();
    for (rule, hide) in rules {
        let set = ruleset(
            Family::Ipv4,
            &format!("*mangle\n-A PREROUTING {rule} -j DROP\nCOMMIT\n"),
        );
        for lookups in Lookups::ALL {
            let built = build(&set, None, lookups).expect("small");
            let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
            let mut packet = Packet {
                family: Family::Ipv4,
                bytes: &bytes,
                network: 14,
                length: bytes.len() - 14,
                facts: Facts::usual(),
            };
            let mut is_known = |packet: &Packet| {
                let outcome = core.evaluate(Hook::Prerouting, packet).expect("complete");
                !matches!(outcome.verdict, Verdict::Unknown(_))
            };
            assert!(is_known(&packet), "{rule}, {lookups:?}");
            hide(&mut packet.facts);
            assert!(!is_known(&packet), "{rule}, {lookups:?}");
        }
    }
}

/// Keys that differ in one byte, at each place: a weak hash would put them at few places.
#[test]
fn tables_of_adjacent_keys_are_small() {
    let numbers = 0..=255u32;
    let v4 = |side: &str, shift: u32, number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0001 ^ number << shift);
        format!("-{side} {address}")
    };
    let v6 = |side: &str, shift: u32, number: u32| {
        let address = (0x2001_0db8 << 96) ^ u128::from(number) << shift;
        format!("-{side} {}", std::net::Ipv6Addr::from(address))
    };
    let mut chains: Vec<(Family, Vec<String>)> = Vec::new();
    for side in ["s", "d"] {
        for shift in (0..32).step_by(8) {
            let rules = numbers.clone().map(|number| v4(side, shift, number));
            chains.push((Family::Ipv4, rules.collect()));
        }
        for shift in (0..128).step_by(8) {
            let rules = numbers.clone().map(|number| v6(side, shift, number));
            chains.push((Family::Ipv6, rules.collect()));
        }
    }
    for shift in (0..32).step_by(8) {
        let rules = numbers
            .clone()
            .map(|number| format!("-m mark --mark {}", number << shift));
        chains.push((Family::Ipv4, rules.collect()));
    }
    for (stem, step) in [("eth", 1), ("vlan1", 1), ("ppp", 16), ("wg-subscriber", 1)] {
        let rules = numbers
            .clone()
            .map(|number| format!("-i {stem}{}", number * step));
        chains.push((
            Family::Ipv4,
            rules
                .map(|rule| rule[..rule.len().min(18)].into())
                .collect(),
        ));
    }
    for (option, step) in [("--sport", 1), ("--dport", 1), ("--dport", 256)] {
        let rules = numbers
            .clone()
            .map(|number| format!("-p udp -m udp {option} {}", number * step));
        chains.push((Family::Ipv4, rules.collect()));
    }
    for (family, rules) in chains {
        let rules: String = rules
            .iter()
            .map(|rule| format!("-A INPUT {rule}\n"))
            .collect();
        let set = ruleset(
            family,
            &format!("*filter\n:INPUT ACCEPT [0:0]\n{rules}COMMIT\n"),
        );
        let [linear, tables] = [Lookups::Never, Lookups::Estimated]
            .map(|lookups| build(&set, None, lookups).expect("small"));
        let segment = tables.plans[0].segment.as_ref();
        assert!(segment.is_some(), "{}\n{rules}", tables.plans[0].reason);
        let bytes = tables.image.len() - linear.image.len();
        assert!(bytes < 256 * 40, "{bytes} bytes of tables\n{rules}");
    }
}

#[test]
fn verdict_after_too_many_rules_is_unknown() {
    let chains = 24;
    let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n");
    for chain in 0..=chains {
        text += &format!(":c{chain} - [0:0]\n");
    }
    text += "-A INPUT -j c0\n";
    // Each chain runs the next one twice.
    for chain in 0..chains {
        let next = chain + 1;
        text += &format!("-A c{chain} -j c{next}\n-A c{chain} -j c{next}\n");
    }
    let set = ruleset(Family::Ipv4, &(text + "COMMIT\n"));
    let unknown = Some(Verdict::Unknown(Unknown::Steps));
    assert_eq!(
        verdict(
            &set,
            Lookups::Estimated,
            &packet([10, 0, 0, 1], 17, &[0; 8])
        ),
        unknown
    );
}

/// An IPv6 packet from an address to itself.
fn packet6(address: &str) -> Vec<u8> {
    let address: std::net::Ipv6Addr = address.parse().expect("an address");
    let mut bytes = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    bytes.extend(address.octets());
    bytes.extend(address.octets());
    bytes.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    bytes
}

#[test]
fn types_of_addresses_are_those_of_the_reference() {
    let four =
        [[0, 0, 0, 0], [10, 0, 0, 1], [224, 0, 0, 1], [255; 4]].map(|ip| packet(ip, 17, &[0; 8]));
    let six = ["::", "2001:db8::1", "ff02::1", "::ffff:10.0.0.1", "::1"].map(packet6);
    let packets = four.iter().map(|bytes| (Family::Ipv4, bytes));
    let packets = packets.chain(six.iter().map(|bytes| (Family::Ipv6, bytes)));
    let types = [
        None,
        Some(2),
        Some(4),
        Some(8),
        Some(6),
        Some(32),
        Some(128),
    ];
    let (mut known, mut unknown) = (0, 0);
    for wanted in [
        "UNSPEC",
        "UNICAST",
        "LOCAL",
        "MULTICAST",
        "ANYCAST",
        "UNICAST,LOCAL",
        "LOCAL,ANYCAST",
        "UNICAST,MULTICAST",
        "UNSPEC,LOCAL",
        "UNICAST,LOCAL,UNREACHABLE",
    ] {
        for (not, limit) in [
            ("", ""),
            ("! ", ""),
            ("", " --limit-iface-in"),
            ("! ", " --limit-iface-in"),
        ] {
            for side in ["--src-type", "--dst-type"] {
                let text = format!(
                    "*filter\n-A INPUT -m addrtype {not}{side} {wanted}{limit} -j DROP\nCOMMIT\n"
                );
                for (family, bytes) in packets.clone() {
                    let set = ruleset(family, &text);
                    let built = build(&set, None, Lookups::default()).expect("small");
                    let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
                    for types in types {
                        let packet = Packet {
                            family,
                            bytes,
                            network: 0,
                            length: bytes.len(),
                            facts: Facts {
                                source_type: types,
                                destination_type: types,
                                ..Facts::usual()
                            },
                        };
                        let outcome = core.evaluate(Hook::Input, &packet).expect("complete");
                        let reference = Reference::new(&set, None).evaluate(Hook::Input, &packet);
                        assert_eq!(outcome.verdict, reference.verdict, "{text}{packet:?}");
                        match outcome.verdict {
                            Verdict::Unknown(_) => unknown += 1,
                            _ => known += 1,
                        }
                    }
                }
            }
        }
    }
    println!("{known} known, {unknown} unknown");
    assert!(known > 2 * unknown);
}

/// The answers of core and reference.
fn both(text: &str, sets: Option<&Sets>, family: Family, bytes: &[u8]) -> [Verdict; 2] {
    let set = ruleset(family, text);
    let built = build(&set, sets, Lookups::default()).expect("small");
    check(&built.image).expect("valid image");
    let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
    let packet = Packet {
        family,
        bytes,
        network: 0,
        length: bytes.len(),
        facts: Facts::usual(),
    };
    let outcome = core.evaluate(Hook::Input, &packet).expect("complete");
    let reference = Reference::new(&set, sets).evaluate(Hook::Input, &packet);
    [outcome.verdict, reference.verdict]
}

#[test]
fn sets_need_all_their_dimensions_and_their_family() {
    let sets = Sets::read(
        "sets",
        "create p hash:ip,port\nadd p 10.0.0.1,icmp:8/0\nadd p 10.0.0.2,udp:9\n\
         create i hash:ip\nadd i 10.0.0.1\ncreate six hash:net family inet6\nadd six ::/1\n\
         create o hash:ip,mark\nadd o 10.0.0.1,5\n\
         create l list:set\nadd l p\nadd l six\ncreate k list:set\nadd k o\n"
            .as_bytes(),
    )
    .expect("valid sets");
    let ping = packet([10, 0, 0, 1], 1, &[8, 0, 0, 0, 0, 0, 0, 0]);
    let unknown = Verdict::Unknown(Unknown::SetType);
    for (options, verdict) in [
        ("--match-set p src,dst", Verdict::Drop),
        ("--match-set p src", Verdict::Accept),
        ("! --match-set p src", Verdict::Drop),
        ("--match-set l src,dst", Verdict::Drop),
        ("--match-set l src", Verdict::Accept),
        ("! --match-set l src", Verdict::Drop),
        ("--match-set i src,dst,dst", Verdict::Drop),
        ("--match-set six src", Verdict::Accept),
        ("! --match-set six src", Verdict::Drop),
        ("--match-set o src", Verdict::Accept),
        ("! --match-set o src", Verdict::Drop),
        ("--match-set o src,src", unknown.clone()),
        ("--match-set k src,src", unknown),
        ("--match-set gone src", Verdict::Unknown(Unknown::Set)),
    ] {
        let text = format!("*filter\n-A INPUT -m set {options} -j DROP\nCOMMIT\n");
        let answers = both(&text, Some(&sets), Family::Ipv4, &ping);
        assert_eq!(answers, [verdict.clone(), verdict], "{options}");
    }
}

#[test]
fn nesting_beyond_the_limit_is_an_error() {
    for (depth, verdict) in [
        (512, Verdict::Drop),
        (513, Verdict::Unknown(Unknown::Depth)),
    ] {
        let mut text = String::from("*filter\n");
        text.extend((0..depth).map(|at| format!(":c{at} -\n")));
        text += "-A INPUT -j c0\n";
        text.extend((1..depth).map(|at| format!("-A c{} -j c{at}\n", at - 1)));
        text += &format!("-A c{} -j DROP\nCOMMIT\n", depth - 1);
        let bytes = packet([10, 0, 0, 1], 17, &[0; 8]);
        assert_eq!(
            both(&text, None, Family::Ipv4, &bytes),
            [verdict.clone(), verdict]
        );
        let found: Vec<(FindingKind, u32)> = check_rules(&ruleset(Family::Ipv4, &text), None)
            .list
            .iter()
            .map(|finding| (finding.kind, finding.line))
            .collect();
        let expected = [(FindingKind::Depth, 1 + 513 + 513)];
        assert_eq!(found, expected[..depth - 512]);
    }
}

#[test]
fn routing_header_without_addresses_is_known() {
    let rule = "-m rt --rt-type 0 --rt-0-addrs 2001:db8::9 -j DROP";
    let text = format!("*filter\n-A INPUT {rule}\nCOMMIT\n");
    let mut routed = packet6("2001:db8::1");
    routed[6] = 43;
    for (ty, address, verdicts) in [
        (None, 9, [Verdict::Accept, Verdict::Accept]),
        (Some(2), 9, [Verdict::Accept, Verdict::Accept]),
        (
            Some(0),
            9,
            [Verdict::Unknown(Unknown::OpaqueMatch), Verdict::Drop],
        ),
        (
            Some(0),
            8,
            [Verdict::Unknown(Unknown::OpaqueMatch), Verdict::Accept],
        ),
    ] {
        let mut bytes = match ty {
            None => packet6("2001:db8::1"),
            Some(_) => routed.clone(),
        };
        if let Some(ty) = ty {
            bytes.truncate(40);
            bytes.extend([17, 2, ty, 1, 0, 0, 0, 0]);
            bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, address]);
            bytes.extend([0, 9, 0, 9, 0, 8, 0, 0]);
            bytes[5] = 32;
        }
        assert_eq!(both(&text, None, Family::Ipv6, &bytes), verdicts, "{ty:?}");
    }
}

/// More comparisons than a record has: they become tests, and the packet has no protocol.
#[test]
fn long_rules_drop_packets_without_protocol() {
    let mut bytes = packet6("2001:db8::1");
    bytes[4..7].copy_from_slice(&[0, 1, 0]);
    bytes.truncate(40);
    bytes.push(58);
    let same = "-m mark --mark 0 -m hl --hl-gt 0 -m tos --tos 0x00";
    for (addresses, protocol, dropped) in [
        ("-s 2001:db8::1", "-p udp", true),
        ("-s 2001:db8::1", "! -p udp", true),
        ("-s 2001:db8::1", "-p all", true),
        ("-s 2001:db8::1 ! -d 2001:db8:7::/64", "-p udp", true),
        // The address fails before the protocol is looked for.
        ("-s 2001:db8::2", "-p udp", false),
        ("-s 2001:db8::1 ! -d ::/0", "-p udp", false),
    ] {
        for matches in [
            format!("{same} -m mark ! --mark 3/3 -m hl --hl-lt 255"),
            same.replace("mark 0", "mark 1"),
        ] {
            let rule = format!("{addresses} {protocol} {matches} -j ACCEPT");
            let text = format!("*filter\n-A INPUT {rule}\n-A INPUT -j QUEUE\nCOMMIT\n");
            let expected = match dropped {
                true => Verdict::Drop,
                false => Verdict::Queue,
            };
            let verdicts = both(&text, None, Family::Ipv6, &bytes);
            assert_eq!(verdicts, [expected.clone(), expected], "{rule}");
        }
    }
}

/// A broken chunk drops the packet only if the match before it is true.
#[test]
fn broken_chunk_after_unknown_match_is_unknown() {
    let bytes = packet(
        [10, 0, 0, 9],
        132,
        &[3, 0xe8, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    let rule = "-m conntrack --ctstate NEW -p sctp -m sctp ! --chunk-types all DATA,INIT \
                -m ttl --ttl-lt 2";
    let set = ruleset(Family::Ipv4, &format!("*filter\n-A INPUT {rule}\nCOMMIT\n"));
    let unknown = Verdict::Unknown(Unknown::Connection);
    for (state, expected) in [
        (None, unknown),
        (Some(8), Verdict::Accept),
        (Some(2), Verdict::Drop),
    ] {
        let packet = Packet {
            family: Family::Ipv4,
            bytes: &bytes,
            network: 0,
            length: bytes.len(),
            facts: Facts {
                connection: state.map(|state| Connection {
                    state,
                    ..Connection::default()
                }),
                ..Facts::usual()
            },
        };
        let built = build(&set, None, Lookups::default()).expect("small");
        let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
        let outcome = core.evaluate(Hook::Input, &packet).expect("complete");
        let reference = Reference::new(&set, None).evaluate(Hook::Input, &packet);
        assert_eq!(
            [outcome.verdict, reference.verdict],
            [expected.clone(), expected]
        );
    }
}

/// The kernel drops the packet after the target, which may answer it.
#[test]
fn broken_chunk_drops_after_the_target() {
    let chunk = [3, 0xe8, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let bytes = packet([10, 0, 0, 9], 132, &chunk);
    let unknown = Verdict::Unknown(Unknown::Connection);
    for (target, mark, logged, verdict) in [
        ("-j LOG", 0, 1, Verdict::Drop),
        ("-j MARK --set-mark 7", 7, 0, Verdict::Drop),
        ("-j ACCEPT", 0, 0, Verdict::Drop),
        ("-j QUEUE", 0, 0, Verdict::Drop),
        ("-j REJECT", 0, 0, Verdict::Reject(3)),
        ("-j CONNMARK --restore-mark", 0, 0, unknown),
    ] {
        let rule = format!("-p sctp -m sctp ! --chunk-types all DATA {target}");
        let text = format!("*filter\n-A INPUT {rule}\n-A INPUT -j LOG\nCOMMIT\n");
        let set = ruleset(Family::Ipv4, &text);
        let packet = Packet {
            family: Family::Ipv4,
            bytes: &bytes,
            network: 0,
            length: bytes.len(),
            facts: Facts {
                connection: Some(Connection {
                    state: 2,
                    mark: None,
                    ..Connection::default()
                }),
                ..Facts::usual()
            },
        };
        let reference = Reference::new(&set, None).evaluate(Hook::Input, &packet);
        let built = build(&set, None, Lookups::default()).expect("small");
        let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
        let outcome = core.evaluate(Hook::Input, &packet).expect("complete");
        let changes = (reference.changes.mark, reference.changes.logged);
        assert_eq!(changes, (mark, logged), "{target}");
        assert_eq!(
            (outcome.verdict, outcome.changes),
            (reference.verdict.clone(), reference.changes)
        );
        assert_eq!(reference.verdict, verdict);
    }
}

#[test]
fn shifted_marks_are_unknown_to_both_evaluators() {
    let bytes = packet([10, 0, 0, 9], 17, &[0, 53, 0, 53, 0, 8, 0, 0]);
    let unknown = Verdict::Unknown(Unknown::OpaqueTarget);
    for (options, expected) in [
        ("--set-xmark 0x1/0xff --left-shift-mark 2", unknown.clone()),
        ("--save-mark --right-shift-mark 2", unknown.clone()),
        ("--restore-mark --left-shift-mark 31", unknown),
        ("--set-xmark 0x1/0xff --left-shift-mark 0", Verdict::Accept),
    ] {
        let text = format!("*mangle\n-A INPUT -j CONNMARK {options}\nCOMMIT\n");
        let set = ruleset(Family::Ipv4, &text);
        // Also without an entry, and with an unknown one.
        for connection in [Some(Connection::default()), None] {
            let packet = Packet {
                family: Family::Ipv4,
                bytes: &bytes,
                network: 0,
                length: bytes.len(),
                facts: Facts {
                    connection: connection.map(|entry| Connection {
                        state: 2,
                        mark: Some(4),
                        ..entry
                    }),
                    ..Facts::usual()
                },
            };
            if packet.facts.connection.is_none() && expected == Verdict::Accept {
                continue;
            }
            let reference = Reference::new(&set, None).evaluate(Hook::Input, &packet);
            let built = build(&set, None, Lookups::default()).expect("small");
            let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
            let outcome = core.evaluate(Hook::Input, &packet).expect("complete");
            let verdicts = [outcome.verdict, reference.verdict];
            assert_eq!(verdicts, [expected.clone(), expected.clone()], "{options}");
        }
    }
}

/// More than 65,535 bytes: a reassembled packet of IPv6.
#[test]
fn long_packets_have_no_length_of_16_bits() {
    let mut bytes = packet6("2001:db8::1");
    bytes[4..6].copy_from_slice(&u16::MAX.to_be_bytes());
    bytes.resize(40 + 65_535, 0);
    for (length, matched) in [
        ("65535", false),
        ("0:", false),
        ("! 65535", true),
        ("! 0:9", true),
    ] {
        let (not, range) = match length.strip_prefix("! ") {
            Some(range) => ("! ", range),
            None => ("", length),
        };
        let rule = format!("-m length {not}--length {range} -j DROP");
        let text = format!("*filter\n-A INPUT {rule}\nCOMMIT\n");
        let expected = match matched {
            true => Verdict::Drop,
            false => Verdict::Accept,
        };
        let verdicts = both(&text, None, Family::Ipv6, &bytes);
        assert_eq!(verdicts, [expected.clone(), expected], "{rule}");
    }
}

/// The kernel finds ports for sets in another way than the protocol for rules.
#[test]
fn ports_of_sets_are_behind_all_headers() {
    let lines = "create g hash:ip,port family inet6\nadd g 2001:db8::1,gre:0\n\
                 add g 2001:db8::1,59:0\nadd g 2001:db8::1,33:0\nadd g 2001:db8::1,44:0\n";
    let sets = Sets::read("sets", lines.as_bytes()).expect("valid");
    let text = "*filter\n-A INPUT -m set --match-set g src,src -j DROP\nCOMMIT\n";
    for (next, rest, found) in [
        (47, &[0; 4][..], true),
        (43, &[47, 0], true),
        (43, &[47, 0, 0, 0, 0, 0, 0, 0], true),
        (44, &[47, 0, 0, 1, 0, 0, 0, 7], true),
        (44, &[47, 0, 0, 8, 0, 0, 0, 7, 0, 0], false),
        (44, &[33, 0, 0, 8, 0, 0, 0, 7, 0, 0], false),
        (59, &[], false),
        (0, &[59, 0, 1, 4, 0, 0, 0, 0], false),
        (0, &[47], false),
    ] {
        let mut bytes = packet6("2001:db8::1");
        bytes.truncate(40);
        bytes[4..7].copy_from_slice(&[0, rest.len() as u8, next]);
        bytes.extend_from_slice(rest);
        let expected = match found {
            true => Verdict::Drop,
            false => Verdict::Accept,
        };
        let verdicts = both(text, Some(&sets), Family::Ipv6, &bytes);
        assert_eq!(verdicts, [expected.clone(), expected], "{next}, {rest:?}");
    }
}

/// The inverse of the hash of lookups.
fn unmix(x: u64) -> u64 {
    let inverse = |a: u64| {
        (0..6).fold(a, |y, _| {
            y.wrapping_mul(2u64.wrapping_sub(a.wrapping_mul(y)))
        })
    };
    let x = (x ^ x >> 31 ^ x >> 62).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let x = (x ^ x >> 27 ^ x >> 54).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    x ^ x >> 30 ^ x >> 60
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Keys that collide under all seeds of an earlier image, which followed from their number.
#[test]
fn rules_made_to_collide_have_tables() {
    const RULES: u64 = 1_000;
    const MADE: u64 = 10;
    assert_eq!(mix(unmix(77)), 77);
    let made = (1..=4).flat_map(|growth| {
        let seed = mix(RULES + growth);
        (0..MADE).map(move |n| unmix(0x1234_5678 << 32 | mix(n) >> 32) ^ seed)
    });
    let usual = (0..RULES - 4 * MADE).map(|n| mix(n) | 1);
    let rules: String = made
        .chain(usual)
        .map(|key| {
            let [a, b, c, d, e, f, g, h] = key.to_le_bytes();
            format!("-A INPUT -s {a}.{b}.{c}.{d} -d {e}.{f}.{g}.{h} -j DROP\n")
        })
        .collect();
    let set = ruleset(Family::Ipv4, &format!("*filter\n{rules}COMMIT\n"));
    let built = build(&set, None, Lookups::default()).expect("small");
    let segment = built.plans[0].segment.as_ref().expect("tables");
    assert!(segment.mean_list < 2.0, "{segment:?}");
}

/// Elements that had one hash in an earlier image.
#[test]
fn sets_made_to_collide_are_built() {
    let mut lines = String::from("create s hash:ip family inet6\n");
    for n in 0..1_000u64 {
        let low = mix(n);
        let high =
            0u64.wrapping_sub((low ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_le_bytes());
        bytes[8..].copy_from_slice(&low.to_le_bytes());
        lines += &format!("add s {}\n", std::net::Ipv6Addr::from(bytes));
    }
    let sets = Sets::read("sets", lines.as_bytes()).expect("valid");
    let text = "*filter\n-A INPUT -m set --match-set s src -j DROP\nCOMMIT\n";
    let set = ruleset(Family::Ipv6, text);
    assert!(build(&set, Some(&sets), Lookups::default()).is_ok());
}

/// Blocks of rules that begin alike: equal rules at equal distances are not the whole chain.
#[test]
fn equal_rules_at_equal_distances_keep_tables() {
    let rules: String = (0..4_096u32)
        .map(|at| match at % 16 {
            0 => "-A INPUT -i eth0 -p udp\n".to_owned(),
            _ => format!("-A INPUT -s 10.0.{}.{} -j DROP\n", at >> 8, at & 255),
        })
        .collect();
    let set = ruleset(Family::Ipv4, &format!("*filter\n{rules}COMMIT\n"));
    let built = build(&set, None, Lookups::default()).expect("small");
    assert!(built.plans[0].segment.is_some(), "{:?}", built.plans[0]);
}

#[test]
fn dead_rules_match_no_packet() {
    for (lines, dead) in [
        (
            "-A INPUT -s 10.0.0.1 -j DROP\n-A INPUT -s 10.0.0.1 -j DROP",
            1,
        ),
        (
            "-A INPUT -m mark --mark 1 -j DROP\n-A INPUT -m mark --mark 1 -j DROP",
            1,
        ),
        (
            "-A INPUT -m mark --mark 1 -j DROP\n-A INPUT -j MARK --set-mark 1\n-A INPUT -m mark --mark 1 -j DROP",
            0,
        ),
        (
            "-A INPUT -m mark --mark 1 -j DROP\n-A INPUT -j MARK --set-mark 1\n-A INPUT -m mark --mark 1 -s 10.0.0.1 -j DROP",
            0,
        ),
        (
            "-A INPUT -m mark --mark 1 -j DROP\n-A INPUT -j m\n-A m -j n\n-A n -j MARK --set-mark 1\n-A INPUT -m mark --mark 1 -j DROP",
            0,
        ),
        (
            "-A INPUT -m mark --mark 1 -j DROP\n-A INPUT -j n\n-A n -j LOG\n-A INPUT -m mark --mark 1 -j DROP",
            1,
        ),
        (
            "-A INPUT -m dscp --dscp 1 -j DROP\n-A INPUT -j DSCP --set-dscp 1\n-A INPUT -m dscp --dscp 1 -j DROP",
            0,
        ),
        (
            "-A INPUT -s 10.0.0.1 -j DROP\n-A INPUT -j MARK --set-mark 1\n-A INPUT -s 10.0.0.1 -j DROP",
            1,
        ),
        (
            "-A INPUT -m limit --limit 1/sec -j DROP\n-A INPUT -m limit --limit 1/sec -j DROP",
            0,
        ),
        (
            "-A INPUT -m quota --quota 9 -j DROP\n-A INPUT -m quota --quota 9 -j DROP",
            0,
        ),
        (
            "-A INPUT -m foo --bar -j DROP\n-A INPUT -m foo --bar -j DROP",
            0,
        ),
    ] {
        let set = ruleset(
            Family::Ipv4,
            &format!("*mangle\n:m -\n:n -\n{lines}\nCOMMIT\n"),
        );
        let findings = check_rules(&set, None);
        let count = |kind| findings.counts.get(&kind).copied().unwrap_or(0);
        let found = count(FindingKind::Duplicate) + count(FindingKind::Shadowed);
        assert_eq!(found, dead, "{lines}: {:?}", findings.list);
    }
}

/// The kernel refuses a burst whose credits are less than those of one packet in 32 bits.
#[test]
fn limits_that_the_kernel_refuses_are_unknown() {
    for (limit, known) in [
        ("1/day --limit-burst 1", true),
        ("1/day --limit-burst 2", false),
        ("1/day", false),
        ("1/hour --limit-burst 40", true),
    ] {
        let text = format!("*filter\n-A INPUT -m limit --limit {limit} -j DROP\nCOMMIT\n");
        let bytes = packet([10, 0, 0, 9], 17, &[0; 8]);
        let unknown = Verdict::Unknown(Unknown::OpaqueMatch);
        let expected = if known { Verdict::Drop } else { unknown };
        let verdicts = both(&text, None, Family::Ipv4, &bytes);
        assert_eq!(verdicts, [expected.clone(), expected], "{limit}");
    }
}
