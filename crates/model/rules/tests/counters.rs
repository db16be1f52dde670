//! Counter modes: none, sampled, exact.

mod ruleset;

use std::net::Ipv6Addr;

use fairpath_core::rules::{CounterMode, SAMPLE_EVERY};
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{Core, Counters, Facts, Family, Hook, Packet, Reference};
use fairpath_statistics::Random;
use fairpath_units::test_seeds;
use ruleset::ruleset;

/// A rule for each of 64 ports, in a chain after a jump.
const PORTS: u16 = 64;
/// Bytes of each packet.
const BYTES: usize = 28;

struct Set {
    built: Built,
    /// The ids of the jump, and of the policy.
    jump: u32,
    policy: u32,
}

fn set() -> Set {
    let ports: String = (0..PORTS)
        .map(|port| format!("-A ports -p udp -m udp --dport {port} -j RETURN\n"))
        .collect();
    let text =
        format!("*filter\n:INPUT ACCEPT [0:0]\n:ports - [0:0]\n-A INPUT -j ports\n{ports}COMMIT\n");
    let set = ruleset(Family::Ipv4, &text);
    let built = build(&set, None, Lookups::default()).expect("small");
    let mut chains = set.tables[0].chains();
    let (input, _) = chains
        .find(|(_, chain)| chain.name() == "INPUT")
        .expect("the chain above");
    Set {
        jump: built.rule_id(0, input, 0),
        policy: built.policy_id(0, input).expect("a base chain"),
        built,
    }
}

fn packet(port: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, BYTES as u8, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 1]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 8, 0, 0]);
    bytes
}

/// A packet of UDP or another protocol over IPv6; addresses differ in one of their halves.
fn packet6(protocol: u8, source: u64, destination: u64) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 8, protocol, 64];
    for number in [source, destination] {
        bytes.extend(address6(number).octets());
    }
    bytes.extend([0, 1, 0, 1, 0, 8, 0, 0]);
    bytes
}

fn address6(number: u64) -> Ipv6Addr {
    [
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        Ipv6Addr::new(0x2001, 0xdb9, 0, 0, 0, 0, 0, 1),
    ][number as usize]
}

/// A packet that begins with its network header.
fn whole(family: Family, bytes: &[u8]) -> Packet<'_> {
    Packet {
        family,
        bytes,
        network: 0,
        length: bytes.len(),
        facts: Facts::usual(),
    }
}

/// The counters of all ids after a packet to each of the ports, from a seed of the sample.
fn count(
    built: &Built,
    mode: CounterMode,
    every: u32,
    seed: u64,
    ports: impl Iterator<Item = u16>,
) -> Vec<Counters> {
    let mut core = Core::new(built, mode).expect("valid image");
    let (evaluator, work) = core.evaluator();
    evaluator.memory_mut().set_sampling(every);
    work.sampler = seed;
    for port in ports {
        let bytes = packet(port);
        core.evaluate(Hook::Input, &whole(Family::Ipv4, &bytes))
            .expect("whole packets");
    }
    (0..built.ids).map(|id| core.counters(id)).collect()
}

/// Traffic with structure, of `count` packets: a period of the sample or next to it, bursts, chance.
fn traffics(count: u32, seed: u64) -> [Vec<u16>; 5] {
    let mut random = Random::new(seed);
    let periodic = |period: u32| (0..count).map(|n| (n % period) as u16).collect();
    [
        periodic(u32::from(PORTS)),
        periodic(u32::from(PORTS) / 2),
        periodic(u32::from(PORTS) - 1),
        (0..count)
            .map(|n| (n / 1000 % u32::from(PORTS)) as u16)
            .collect(),
        (0..count)
            .map(|_| random.below(u64::from(PORTS)) as u16)
            .collect(),
    ]
}

#[test]
fn mode_none_counts_nothing() {
    let Set { built, .. } = set();
    let counted = count(&built, CounterMode::None, SAMPLE_EVERY, 0, 0..PORTS);
    assert!(
        counted
            .iter()
            .all(|counters| *counters == Counters::default())
    );
}

/// Rules that only count are not compared if nothing is counted; the verdict is the same.
#[test]
fn idle_rules_cost_nothing_without_counters() {
    let idle = |source: u32| {
        let rule = |at| format!("-A idle -s 10.0.0.{source} -m comment --comment n{at}\n");
        (0..1000).map(rule).collect::<String>()
    };
    for (source, verdict, skipped) in [(1, "ACCEPT", true), (9, "DROP", true), (1, "DROP", false)] {
        let middle = match skipped {
            true => String::new(),
            false => format!("-A idle -s 10.0.0.{source} -j {verdict}\n"),
        };
        let text = format!(
            "*filter\n:INPUT {verdict} [0:0]\n:idle - [0:0]\n-A INPUT -j idle\n{}{middle}{}COMMIT\n",
            idle(source),
            idle(source)
        );
        let set = ruleset(Family::Ipv4, &text);
        let built = build(&set, None, Lookups::Never).expect("small");
        let [exact, none] = [CounterMode::Exact, CounterMode::None].map(|mode| {
            let mut core = Core::new(&built, mode).expect("valid image");
            let bytes = [&[2; 14][..], &packet(7)].concat();
            let packet = Packet {
                family: Family::Ipv4,
                bytes: &bytes,
                network: 14,
                length: bytes.len() - 14,
                facts: Facts::usual(),
            };
            core.evaluate(Hook::Input, &packet).expect("a whole packet")
        });
        assert_eq!(exact.verdict, none.verdict);
        assert!(exact.evaluated > 1000, "{exact:?}");
        assert_eq!(none.evaluated < 10, skipped, "{none:?}");
    }
}

#[test]
fn sampling_of_one_is_exact() {
    let Set { built, .. } = set();
    for seed in test_seeds(5) {
        for ports in traffics(5000, seed) {
            let [exact, sampled] = [CounterMode::Exact, CounterMode::Sampled]
                .map(|mode| count(&built, mode, 1, seed, ports.iter().copied()));
            assert_eq!(exact, sampled, "seed {seed}");
        }
    }
}

#[test]
fn sampled_counters_are_near_the_exact_ones() {
    const PACKETS: u32 = 50_000;
    let set = set();
    let built = &set.built;
    for seed in test_seeds(5) {
        for (traffic, ports) in traffics(PACKETS, seed).into_iter().enumerate() {
            let exact = count(built, CounterMode::Exact, 1, seed, ports.iter().copied());
            for every in [2, SAMPLE_EVERY - 1, SAMPLE_EVERY] {
                let sampled = count(
                    built,
                    CounterMode::Sampled,
                    every,
                    seed,
                    ports.iter().copied(),
                );
                // Of n packets, every * binomial(n, 1 / every): six standard deviations.
                for (id, (sampled, exact)) in sampled.iter().zip(&exact).enumerate() {
                    let packets = exact.packets as f64;
                    let margin = 6.0 * (packets * f64::from(every - 1)).sqrt();
                    let difference = (sampled.packets as f64 - packets).abs();
                    assert!(
                        difference <= margin,
                        "seed {seed}, traffic {traffic}, one of {every}, id {id}: {sampled:?}, exact {exact:?}"
                    );
                    assert_eq!(sampled.packets % u64::from(every), 0);
                    assert_eq!(sampled.bytes, sampled.packets * BYTES as u64);
                }
                // A packet counts for all rules that it matches, or for none.
                let all: u64 = sampled.iter().map(|counters| counters.packets).sum();
                let [jump, policy] = [set.jump, set.policy].map(|id| sampled[id as usize].packets);
                assert_eq!((jump, all), (policy, 3 * policy));
            }
        }
    }
}

/// Chains of rules of equal shape: some match, some have a target, a test or another shape.
#[test]
fn rows_of_rules_count_as_the_reference() {
    for seed in test_seeds(400) {
        let mut random = Random::new(seed);
        let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n");
        for (chain, next) in [("INPUT", "a"), ("a", "b"), ("b", "")] {
            for _ in 0..random.below(14) {
                let port = random.below(2);
                // A run has rules whose first comparison is of the same word.
                let shape = match random.below(9) {
                    0 => "-s 10.0.0.1/32 -p udp -m udp --dport",
                    1 => "! -s 10.0.0.9/32 -p udp -m udp ! --dport",
                    2 => "-p udp -m mark --mark 0 -m udp --dport",
                    3 => "-p udp -m mark --mark 1 -m udp --dport",
                    4 | 5 => "-p udp -m dscp --dscp 0 -m udp --dport",
                    6 => "-p udp -m udp ! --dport",
                    _ => "-p udp -m udp --dport",
                };
                let end = match random.below(12) {
                    0 => " -m limit --limit 1/hour --limit-burst 3".to_owned(),
                    1 => " -j LOG".to_owned(),
                    2 if random.below(3) == 0 => " -j ACCEPT".to_owned(),
                    3 if !next.is_empty() => format!(" -j {next}"),
                    4 => " -j RETURN".to_owned(),
                    _ => String::new(),
                };
                // Rules with tests are in a row with their like only.
                let times = [1, 1, 2, 5][random.below(4) as usize];
                let rule = format!("-A {chain} {shape} {port}{end}\n");
                text += &rule.repeat(times);
            }
        }
        text += "COMMIT\n";
        let packets: Vec<_> = (0..20).map(|_| packet(random.below(3) as u16)).collect();
        agree(&text, Family::Ipv4, &packets, seed);
    }
}

/// The same with as many comparisons as a row is counted by, fewer, and more.
#[test]
fn rows_of_ipv6_rules_count_as_the_reference() {
    for seed in test_seeds(200) {
        let mut random = Random::new(seed);
        let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n");
        for _ in 0..1 + random.below(8) {
            let [from, to] = [(), ()].map(|()| address6(random.below(3)));
            let shape = match random.below(6) {
                0 => format!("-s {from}"),
                1 => format!("-s {from} -p udp"),
                2 => format!("-s {from} -d {to} -p udp"),
                3 => format!("-s {from} ! -d {to}"),
                _ => format!("-s {from} -d {to}"),
            };
            for _ in 0..4 + random.below(4) {
                let target = if random.one_in(20) { " -j ACCEPT" } else { "" };
                text += &format!("-A INPUT {shape}{target}\n");
            }
        }
        text += "COMMIT\n";
        let mut packet = || {
            let protocol = random.pick(&[17, 17, 47]);
            packet6(protocol, random.below(3), random.below(3))
        };
        let packets: Vec<_> = (0..20).map(|_| packet()).collect();
        agree(&text, Family::Ipv6, &packets, seed);
    }
}

/// Verdicts and counters of the core are those of the reference; without counters, the verdicts are.
fn agree(text: &str, family: Family, packets: &[Vec<u8>], seed: u64) {
    let set = ruleset(family, text);
    let mut reference = Reference::new(&set, None);
    let verdicts: Vec<_> = packets
        .iter()
        .map(|bytes| {
            reference
                .evaluate(Hook::Input, &whole(family, bytes))
                .verdict
        })
        .collect();
    for lookups in Lookups::ALL {
        let built = build(&set, None, lookups).expect("small");
        for mode in [CounterMode::Exact, CounterMode::None] {
            let mut core = Core::new(&built, mode).expect("valid image");
            for (bytes, verdict) in packets.iter().zip(&verdicts) {
                let outcome = core.evaluate(Hook::Input, &whole(family, bytes));
                assert_eq!(outcome.expect("whole packets").verdict, *verdict, "{text}");
            }
            for (id, chain) in set.tables[0].chains() {
                for rule in 0..chain.rules.len() {
                    let counted = core.counters(built.rule_id(0, id, rule));
                    let wanted = match mode {
                        CounterMode::Exact => reference.counters("filter", id, rule),
                        _ => Counters::default(),
                    };
                    assert_eq!(counted, wanted, "seed {seed} rule {rule}\n{text}");
                }
            }
        }
    }
}
