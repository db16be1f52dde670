//! Table raw, which is before connection tracking, and what it leaves unknown.

mod ruleset;

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{Connection, Core, Facts, Family, Hook, Packet, Reference, Unknown, Verdict};
use ruleset::ruleset;

const INVALID: u8 = 1;
const NEW: u8 = 2;
const ESTABLISHED: u8 = 8;
const UNTRACKED: u8 = 16;
const RELATED: u8 = 4;
const SNAT: u8 = 32;
const DNAT: u8 = 64;

/// The verdicts of core and reference.
fn both(text: &str, hook: Hook, bytes: &[u8], facts: Facts) -> [Verdict; 2] {
    let set = ruleset(Family::Ipv4, text);
    let packet = Packet {
        family: Family::Ipv4,
        bytes,
        network: 0,
        length: bytes.len(),
        facts,
    };
    let of_reference = Reference::new(&set, None).evaluate(hook, &packet);
    let built = build(&set, None, Lookups::default()).expect("small");
    let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
    let of_core = core.evaluate(hook, &packet).expect("complete");
    [of_core.verdict, of_reference.verdict]
}

/// The verdict of core and reference at PREROUTING, which agree.
fn verdict(raw: &str, mangle: &str, input: Option<&[u8]>, state: Option<u8>) -> Verdict {
    let text = format!("*raw\n{raw}COMMIT\n*mangle\n{mangle}COMMIT\n");
    let set = ruleset(Family::Ipv4, &text);
    let bytes = [&[2; 14][..], &packet(253, &[])].concat();
    let packet = Packet {
        family: Family::Ipv4,
        bytes: &bytes,
        network: 14,
        length: 20,
        facts: Facts {
            input: input.map(Into::into),
            connection: state.map(|state| Connection {
                state,
                ..Connection::default()
            }),
            ..Facts::usual()
        },
    };
    let of_reference = Reference::new(&set, None).evaluate(Hook::Prerouting, &packet);
    for lookups in Lookups::ALL {
        let built = build(&set, None, lookups).expect("small");
        let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
        let outcome = core.evaluate(Hook::Prerouting, &packet).expect("complete");
        let of_core = (outcome.verdict, outcome.changes);
        let of_reference = (of_reference.verdict.clone(), of_reference.changes);
        assert_eq!(of_core, of_reference, "{text}, {lookups:?}");
    }
    of_reference.verdict
}

/// An IPv4 packet.
fn packet(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let length = 20 + rest.len() as u8;
    let header = [
        0x45, 0, 0, length, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    [&header[..], rest].concat()
}

const ETH: Option<&[u8]> = Some(b"eth0");
const LO: Option<&[u8]> = Some(b"lo");
const ACCEPT: Verdict = Verdict::Accept;
const DROP: Verdict = Verdict::Drop;

fn drops(states: &str) -> String {
    format!("-A PREROUTING -m conntrack --ctstate {states} -j DROP\n")
}

#[test]
fn raw_has_a_connection_by_its_input() {
    let raw = drops("ESTABLISHED");
    let unknown = Verdict::Unknown(Unknown::Input);
    let state = Some(ESTABLISHED);
    assert_eq!(verdict(&raw, "", ETH, state), ACCEPT);
    assert_eq!(verdict(&raw, "", LO, state), DROP);
    assert_eq!(verdict(&raw, "", None, state), unknown);
    assert_eq!(verdict(&raw, "", None, None), unknown);
    assert_eq!(
        verdict(&raw, "", LO, None),
        Verdict::Unknown(Unknown::Connection)
    );
    // Either way it has none.
    assert_eq!(verdict(&raw, "", None, Some(INVALID)), ACCEPT);
    // It is visible in other tables.
    assert_eq!(verdict("", &raw, None, state), DROP);
    let mark = "-A PREROUTING -m connmark --mark 0 -j DROP\n";
    assert_eq!(verdict(mark, "", None, state), unknown);
    assert_eq!(verdict(mark, "", LO, state), DROP);
}

/// Table nat is for the packet whose connection has no translation of that side yet; an ICMP error has
/// the translation of another.
#[test]
fn nat_runs_for_beginnings() {
    const CONFIRMED: u8 = 8;
    let udp = packet(17, &[0; 8]);
    let error = packet(1, &[3, 1, 0, 0, 0, 0, 0, 0]);
    let translated = Err(Verdict::Unknown(Unknown::Translation));
    let facts = |state, status, reply| (state, status, reply, ETH);
    let (first, later) = (Some(0), Some(CONFIRMED));
    for (hook, bytes, facts, expected) in [
        (Hook::Prerouting, &udp, facts(NEW, first, false), Ok(1)),
        (Hook::Prerouting, &udp, facts(NEW, later, false), Ok(0)),
        (Hook::Prerouting, &udp, (NEW, later, false, LO), Ok(0)),
        // Sent by a packet socket.
        (Hook::Prerouting, &udp, (NEW, first, false, LO), Ok(1)),
        (Hook::Input, &udp, facts(NEW, first, false), Ok(1)),
        (Hook::Input, &udp, facts(NEW | DNAT, first, false), Ok(1)),
        (Hook::Input, &udp, facts(NEW | SNAT, first, false), Ok(0)),
        (Hook::Input, &udp, (NEW, later, false, LO), Ok(0)),
        (
            Hook::Prerouting,
            &udp,
            facts(NEW | DNAT, first, false),
            Ok(0),
        ),
        (
            Hook::Prerouting,
            &udp,
            facts(NEW | SNAT, first, false),
            Ok(1),
        ),
        (Hook::Prerouting, &udp, facts(RELATED, later, false), Ok(0)),
        (
            Hook::Prerouting,
            &error,
            facts(RELATED, first, false),
            Ok(0),
        ),
        (Hook::Prerouting, &error, facts(NEW, first, false), Ok(1)),
        // The answer to a packet that was rejected before table nat.
        (Hook::Postrouting, &udp, facts(RELATED, first, true), Ok(1)),
        (Hook::Postrouting, &udp, facts(RELATED, later, true), Ok(0)),
        (Hook::Output, &udp, facts(RELATED, first, true), Ok(0)),
        (Hook::Output, &udp, facts(RELATED, later, false), Ok(0)),
        // It met the source's side as it left by `lo`, and replies are never confirmed.
        (Hook::Input, &udp, (RELATED, first, true, LO), Ok(0)),
        (
            Hook::Prerouting,
            &udp,
            facts(ESTABLISHED | DNAT, later, false),
            Ok(0),
        ),
        (Hook::Output, &udp, facts(ESTABLISHED, later, false), Ok(0)),
        (
            Hook::Output,
            &udp,
            facts(NEW | DNAT, later, false),
            translated.clone(),
        ),
        (Hook::Output, &udp, facts(NEW | SNAT, first, false), Ok(1)),
        (
            Hook::Output,
            &udp,
            facts(ESTABLISHED | DNAT, later, false),
            translated.clone(),
        ),
        (
            Hook::Output,
            &udp,
            facts(ESTABLISHED | DNAT, later, true),
            Ok(0),
        ),
        (
            Hook::Output,
            &udp,
            facts(ESTABLISHED | SNAT, later, true),
            translated.clone(),
        ),
        (
            Hook::Output,
            &error,
            facts(RELATED | DNAT, later, false),
            translated,
        ),
    ] {
        let (state, status, reply, input) = facts;
        let packet = Packet {
            family: Family::Ipv4,
            bytes,
            network: 0,
            length: bytes.len(),
            facts: Facts {
                input: input.map(Into::into),
                connection: Some(Connection {
                    state,
                    status,
                    reply: Some(reply),
                    ..Connection::default()
                }),
                ..Facts::usual()
            },
        };
        let rule = "-A PREROUTING\n-A INPUT\n-A OUTPUT\n-A POSTROUTING\n";
        for text in [
            "*nat\n".to_owned(),
            format!("*nat\n{rule}"),
            "*filter\n".to_owned(),
        ] {
            let set = ruleset(Family::Ipv4, &format!("{text}COMMIT\n"));
            let mut reference = Reference::new(&set, None);
            let of_reference = reference.evaluate(hook, &packet).verdict;
            let built = build(&set, None, Lookups::default()).expect("small");
            let mut core = Core::new(&built, CounterMode::Exact).expect("valid image");
            let of_core = core.evaluate(hook, &packet).expect("complete").verdict;
            let verdict = expected.clone().map_or_else(|unknown| unknown, |_| ACCEPT);
            assert_eq!(
                [of_core, of_reference],
                [verdict.clone(), verdict],
                "{hook:?} {facts:?}, {text}"
            );
            if text.starts_with("*filter") {
                continue;
            }
            let chain = set.tables[0]
                .find(hook.chain().as_bytes())
                .expect("of the table");
            let of_policy = built.policy_id(0, chain).expect("a base chain");
            let counted = core.counters(of_policy).packets;
            let counts = expected.clone().unwrap_or(0);
            assert_eq!(counted, counts, "{hook:?} {facts:?}, {text}");
        }
    }
}

/// The master of an expected connection may have the translation of a port, which shows nowhere.
#[test]
fn expected_connections_may_be_translated() {
    let udp = packet(17, &[0; 8]);
    let unknown = Verdict::Unknown(Unknown::Translation);
    for (hook, nat, status, expected) in [
        (Hook::Prerouting, Some(true), 0, unknown.clone()),
        (Hook::Prerouting, Some(false), 0, ACCEPT),
        (Hook::Prerouting, Some(true), 8, ACCEPT),
        (Hook::Output, Some(true), 0, unknown.clone()),
        (Hook::Output, Some(false), 0, unknown),
        (Hook::Output, Some(false), 8, DROP),
        (Hook::Output, None, 0, DROP),
    ] {
        let nat = match nat {
            Some(true) => "*nat\n-A PREROUTING\n-A OUTPUT\nCOMMIT\n",
            Some(false) => "*nat\nCOMMIT\n",
            None => "",
        };
        let text = format!("{nat}*filter\n-A OUTPUT -j DROP\nCOMMIT\n");
        let facts = Facts {
            connection: Some(Connection {
                state: RELATED,
                status: Some(status | 1),
                reply: Some(false),
                ..Connection::default()
            }),
            ..Facts::usual()
        };
        assert_eq!(
            both(&text, hook, &udp, facts),
            [expected.clone(), expected],
            "{hook:?} {status} {text}"
        );
    }
}

/// Only OUTPUT has tables after nat, which meet the translated packet.
#[test]
fn an_unknown_connection_may_be_translated_in_output() {
    let udp = packet(17, &[0; 8]);
    let unknown = Verdict::Unknown(Unknown::Connection);
    let in_state = |state, reply| {
        Some(Connection {
            state,
            reply,
            ..Connection::default()
        })
    };
    let later = |status| {
        Some(Connection {
            state: NEW,
            status,
            ..Connection::default()
        })
    };
    for (hook, rules, connection, expected) in [
        (Hook::Prerouting, false, None, ACCEPT),
        (Hook::Prerouting, true, None, unknown.clone()),
        (Hook::Output, false, None, unknown.clone()),
        (Hook::Output, true, None, unknown.clone()),
        // It has no translation.
        (Hook::Output, false, in_state(NEW, None), DROP),
        (Hook::Output, false, in_state(NEW, Some(false)), DROP),
        (Hook::Output, true, in_state(ESTABLISHED, None), DROP),
        (
            Hook::Output,
            true,
            in_state(ESTABLISHED | DNAT, None),
            unknown.clone(),
        ),
        (
            Hook::Prerouting,
            true,
            in_state(ESTABLISHED | DNAT, None),
            ACCEPT,
        ),
        // An expected connection follows its translated master.
        (
            Hook::Prerouting,
            true,
            in_state(RELATED | SNAT, Some(false)),
            Verdict::Unknown(Unknown::Translation),
        ),
        (Hook::Prerouting, true, later(None), unknown),
        (Hook::Prerouting, false, later(None), ACCEPT),
        (Hook::Output, false, later(None), DROP),
    ] {
        let rules = match rules {
            true => "-A PREROUTING\n-A OUTPUT\n",
            false => "",
        };
        let text = format!("*nat\n{rules}COMMIT\n*filter\n-A OUTPUT -j DROP\nCOMMIT\n");
        let facts = Facts {
            connection,
            ..Facts::usual()
        };
        assert_eq!(
            both(&text, hook, &udp, facts),
            [expected.clone(), expected],
            "{hook:?} {connection:?} {rules}"
        );
    }
}

#[test]
fn notrack_leaves_a_connection_alone() {
    let raw = "-A PREROUTING -j CT --notrack\n";
    for (input, state, expected) in [
        (ETH, Some(ESTABLISHED), DROP),
        (LO, Some(ESTABLISHED), ACCEPT),
        (LO, Some(INVALID), DROP),
        (LO, Some(UNTRACKED), DROP),
        (LO, None, Verdict::Unknown(Unknown::Connection)),
        (None, Some(ESTABLISHED), Verdict::Unknown(Unknown::Input)),
        (None, Some(INVALID), DROP),
    ] {
        let verdict = verdict(raw, &drops("UNTRACKED"), input, state);
        assert_eq!(verdict, expected, "{input:?}, {state:?}");
    }
}

#[test]
fn template_hides_nothing_after_raw() {
    let raw = format!("-A PREROUTING -j CT --zone 1\n{}", drops("INVALID"));
    for (input, state) in [
        (ETH, NEW),
        (ETH, ESTABLISHED),
        (LO, ESTABLISHED),
        (LO, INVALID),
    ] {
        assert_eq!(verdict(&raw, "", input, Some(state)), ACCEPT);
        let name = ["INVALID", "NEW", "", "ESTABLISHED"][state.trailing_zeros() as usize];
        assert_eq!(verdict(&raw, &drops(name), input, Some(state)), DROP);
    }
    // In table raw it looks new, but on a packet with a connection.
    let new = format!("-A PREROUTING -j CT --zone 1\n{}", drops("NEW"));
    assert_eq!(verdict(&new, "", ETH, Some(ESTABLISHED)), DROP);
    assert_eq!(verdict(&new, "", LO, Some(INVALID)), DROP);
    assert_eq!(verdict(&new, "", LO, Some(ESTABLISHED)), ACCEPT);
}

/// The kernel's answers to rejected packets have a connection in table raw.
#[test]
fn kernels_answers_may_have_connections_in_raw() {
    let unknown = Verdict::Unknown(Unknown::Connection);
    for (state, expected) in [
        (Some(NEW), DROP),
        (Some(ESTABLISHED), DROP),
        // The answer to an untracked one looks so, but NOTRACK leaves it alone.
        (Some(INVALID), unknown.clone()),
        (Some(RELATED), unknown.clone()),
        (Some(UNTRACKED), unknown.clone()),
        (None, unknown),
    ] {
        for rule in [
            "-m conntrack --ctstate INVALID -j DROP",
            "-j NOTRACK",
            "-j CT --zone 1",
        ] {
            let text =
                format!("*raw\n-A OUTPUT {rule}\nCOMMIT\n*mangle\n-A OUTPUT -j DROP\nCOMMIT\n");
            let facts = Facts {
                connection: state.map(|state| Connection {
                    state,
                    ..Connection::default()
                }),
                ..Facts::usual()
            };
            assert_eq!(
                both(&text, Hook::Output, &packet(253, &[]), facts),
                [expected.clone(), expected.clone()],
                "{state:?} {rule}"
            );
        }
    }
}

/// A broadcast or multicast that this host sent comes back by the interface that sent it.
#[test]
fn copies_of_sent_packets_have_connections_in_raw() {
    let unknown = |reason| Verdict::Unknown(reason);
    let connection = unknown(Unknown::Connection);
    for (packet_type, input, status, expected) in [
        (Some(0), ETH, Some(8), ACCEPT),
        (Some(1), ETH, Some(8), connection.clone()),
        (Some(2), ETH, Some(8), connection.clone()),
        (Some(2), ETH, None, connection.clone()),
        (None, ETH, Some(8), unknown(Unknown::PacketType)),
        // It is confirmed as it is sent.
        (None, ETH, Some(0), ACCEPT),
        (Some(2), ETH, Some(0), ACCEPT),
        (Some(0), LO, Some(8), DROP),
        (Some(0), LO, Some(0), ACCEPT),
        (Some(0), LO, None, connection),
    ] {
        let text = "*raw\n-A PREROUTING -m conntrack --ctstate NEW -j DROP\nCOMMIT\n";
        let facts = Facts {
            input: input.map(Into::into),
            packet_type,
            connection: Some(Connection {
                state: NEW,
                status,
                ..Connection::default()
            }),
            ..Facts::usual()
        };
        assert_eq!(
            both(text, Hook::Prerouting, &packet(253, &[]), facts),
            [expected.clone(), expected],
            "{packet_type:?} {input:?} {status:?}"
        );
    }
}
