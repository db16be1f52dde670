//! Tables of prefixes: rules that are nested, adjacent, equal, mixed with others.
//!
//! Verdict, rule, changes and counters with tables are those of the walk in order, and those of the
//! reference.

mod ruleset;

use std::collections::HashSet;

use fairpath_core::rules::{CounterMode, check};
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{Core, Facts, Family, Hook, Packet, Reference, Ruleset};
use fairpath_statistics::Random;
use fairpath_units::test_seeds;
use ruleset::ruleset;

/// An address of a family, left-aligned in 128 bits.
type Address = u128;

fn text_of(family: Family, address: Address) -> String {
    match family {
        Family::Ipv6 => std::net::Ipv6Addr::from(address).to_string(),
        _ => std::net::Ipv4Addr::from((address >> 96) as u32).to_string(),
    }
}

fn width(family: Family) -> u32 {
    if family == Family::Ipv6 { 128 } else { 32 }
}

/// Bits behind a prefix.
fn behind(length: u32) -> u128 {
    u128::MAX.checked_shr(length).unwrap_or(0)
}

/// Bytes of the link-layer header. Without its addresses no lookup would be used.
const LINK_BYTES: usize = 14;

/// A frame with a UDP packet.
fn frame(family: Family, source: Address, destination: Address, port: u16) -> Vec<u8> {
    let mut bytes = vec![2; LINK_BYTES];
    match family {
        Family::Ipv6 => {
            bytes.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
            bytes.extend(source.to_be_bytes());
            bytes.extend(destination.to_be_bytes());
        }
        _ => {
            bytes.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
            bytes.extend(((source >> 96) as u32).to_be_bytes());
            bytes.extend(((destination >> 96) as u32).to_be_bytes());
        }
    }
    bytes.extend(1000u16.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    bytes
}

fn packet(family: Family, bytes: &[u8]) -> Packet<'_> {
    Packet {
        family,
        bytes,
        network: LINK_BYTES,
        length: bytes.len() - LINK_BYTES,
        facts: Facts {
            output: Some(b""[..].into()),
            ..Facts::usual()
        },
    }
}

struct Made {
    set: Ruleset,
    /// Addresses at the ends of prefixes, and next to them.
    edges: Vec<Address>,
}

/// A chain in which most rules compare a prefix of one side.
fn made(family: Family, random: &mut Random) -> Made {
    let count = 64 + random.index(400);
    // Small areas nest, large ones have gaps.
    let area = 1 + random.index(width(family) as usize - 12) as u32;
    let home = u128::from(random.draw()) << 64 | u128::from(random.draw());
    let mut prefixes: Vec<(Address, u32)> = Vec::new();
    let mut lines = String::new();
    let side = if random.index(2) == 0 { "-s" } else { "-d" };
    let plain = random.index(3) == 0;
    for _ in 0..count {
        let (address, length) = match (random.index(8), prefixes.is_empty()) {
            // The same one again, a part of one, or its neighbour.
            (0, false) => prefixes[random.index(prefixes.len())],
            (1..=2, false) => {
                let (address, length) = prefixes[random.index(prefixes.len())];
                let length = length + random.index((width(family) - length) as usize + 1) as u32;
                let bits = u128::from(random.draw()) << 64;
                (address | bits & behind(area), length)
            }
            (3, false) => {
                let (address, length) = prefixes[random.index(prefixes.len())];
                (address.wrapping_add(behind(length).wrapping_add(1)), length)
            }
            _ => {
                let bits = u128::from(random.draw()) << 64 | u128::from(random.draw());
                let length = area + 4 + random.index((width(family) - area) as usize - 3) as u32;
                (home & !behind(area) | bits & behind(area), length)
            }
        };
        let address = address & !behind(length) & !behind(width(family));
        prefixes.push((address, length));
        let text = text_of(family, address);
        // Rules for every address make lookups slow: few, so that chains have them.
        let other = match random.index(if plain { 400 } else { 40 }) {
            0 | 6 if random.index(32) > 0 => format!("{side} {text}/{length}"),
            0 => format!("! {side} {text}/{length}"),
            1 => "-p udp -m udp --dport 53".to_owned(),
            2 => format!("{side} {text}/{length} -p udp -m udp --dport 53"),
            3 => format!("{side} {text}/{length} -m statistic --mode nth --every 3 --packet 1"),
            4 => format!("{side} {text}/{length} -p tcp"),
            5 => format!("{side} {text} -p udp -m udp --dport 54"),
            6 => format!("{side} {text}/{length} ! -p udp"),
            7 => format!("{side} {text}/{length} -m mark --mark 1"),
            _ => format!("{side} {text}/{length}"),
        };
        let target = match random.index(8) {
            0 => " -j ACCEPT",
            1 => " -j DROP",
            2 => " -j user",
            3 => " -j MARK --set-xmark 0x1/0xffffffff",
            4 if random.index(4) == 0 => " -j RETURN",
            _ => "",
        };
        lines += &format!("-A INPUT {other}{target}\n");
    }
    let set = ruleset(
        family,
        &format!(
            "*mangle\n:INPUT ACCEPT [0:0]\n:user - [0:0]\n{lines}-A user -p udp -m udp --dport 54 \
             -j ACCEPT\nCOMMIT\n"
        ),
    );
    let mut edges = vec![0, u128::MAX, home];
    for (address, length) in prefixes {
        let last = address | behind(length);
        let next = behind(width(family)).wrapping_add(1);
        edges.extend([
            address,
            last,
            address.wrapping_sub(next),
            last.wrapping_add(1),
        ]);
    }
    Made { set, edges }
}

fn has_prefixes(built: &Built) -> bool {
    built
        .plans
        .iter()
        .filter_map(|plan| plan.segment.as_ref())
        .flat_map(|segment| &segment.tuples)
        .any(|table| table.contains("prefixes of"))
}

#[test]
fn prefixes_change_no_verdict_and_counter() {
    let mut with_prefixes = 0;
    let mut sets = 0;
    for seed in test_seeds(400) {
        let mut random = Random::new(seed);
        let family = [Family::Ipv4, Family::Ipv6][random.index(2)];
        let Made { set, edges } = made(family, &mut random);
        let built = Lookups::ALL.map(|lookups| build(&set, None, lookups).unwrap());
        for built in &built {
            check(&built.image).expect("valid image");
        }
        sets += 1;
        with_prefixes += u32::from(has_prefixes(&built[1]));
        let mut cores = built
            .each_ref()
            .map(|built| Core::new(built, CounterMode::Exact).unwrap());
        let mut reference = Reference::new(&set, None);
        for _ in 0..200 {
            let [source, destination] = [0, 1].map(|_| match random.index(8) {
                0 => u128::from(random.draw()) << 64 | u128::from(random.draw()),
                _ => edges[random.index(edges.len())],
            });
            let bytes = frame(family, source, destination, 53 + random.index(3) as u16);
            let packet = packet(family, &bytes);
            let outcome = reference.evaluate(Hook::Input, &packet);
            let rule = outcome
                .at
                .map(|at| built[0].rule_id(at.table, at.chain, at.rule));
            let expected = (outcome.verdict, rule, outcome.changes);
            for (core, lookups) in cores.iter_mut().zip(Lookups::ALL) {
                let outcome = core.evaluate(Hook::Input, &packet).expect("whole packets");
                assert_eq!(
                    (outcome.verdict, outcome.rule, outcome.changes),
                    expected,
                    "seed {seed}, {lookups:?}: {packet:?}"
                );
            }
        }
        for (id, chain) in set.tables[0].chains() {
            for rule in 0..chain.rules.len() {
                for (core, lookups) in cores.iter().zip(Lookups::ALL) {
                    assert_eq!(
                        core.rule_counters(&built[0], 0, id, rule),
                        reference.counters("mangle", id, rule),
                        "seed {seed}, {lookups:?}, rule {rule}"
                    );
                }
            }
        }
    }
    assert!(
        with_prefixes * 5 > sets,
        "{with_prefixes} of {sets} sets have a table of prefixes"
    );
}

/// All prefixes of a /16, each inside of the one before, and next to it.
#[test]
fn nested_prefixes_have_one_table() {
    let mut lines = String::new();
    let mut addresses = HashSet::new();
    for length in 16..=24u32 {
        for part in 0..1u32 << (length - 16) {
            let address = 10 << 24 | part << (32 - length);
            lines += &format!(
                "-A INPUT -s {}/{length}\n",
                std::net::Ipv4Addr::from(address)
            );
            addresses.insert(address);
        }
    }
    let set = ruleset(
        Family::Ipv4,
        &format!("*filter\n:INPUT ACCEPT [0:0]\n{lines}COMMIT\n"),
    );
    let built = build(&set, None, Lookups::default()).unwrap();
    let segment = built.plans[0].segment.as_ref().expect("tables");
    assert_eq!(
        segment.tuples,
        ["source in order: 511 prefixes of 9 lengths"]
    );
    let mut core = Core::new(&built, CounterMode::Exact).unwrap();
    for address in addresses {
        let bytes = frame(Family::Ipv4, u128::from(address) << 96, 0, 53);
        let packet = packet(Family::Ipv4, &bytes);
        let outcome = core.evaluate(Hook::Input, &packet).expect("whole packets");
        assert_eq!(outcome.evaluated, 9, "the rules of its nine prefixes");
    }
}
