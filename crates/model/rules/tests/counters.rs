//! Counter modes: none, sampled, exact.

mod ruleset;

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
        let bytes = [&[2; 14][..], &packet(port)].concat();
        let packet = Packet {
            family: Family::Ipv4,
            bytes: &bytes,
            network: 14,
            length: bytes.len() - 14,
            facts: Facts::usual(),
        };
        core.evaluate(Hook::Input, &packet).expect("whole packets");
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
                let shape = match random.below(8) {
                    0 => "-s 10.0.0.1/32 -p udp -m udp --dport",
                    1 => "! -s 10.0.0.9/32 -p udp -m udp ! --dport",
                    2 => "-p udp -m mark --mark 0 -m udp --dport",
                    3 => "-p udp -m mark --mark 1 -m udp --dport",
                    4 | 5 => "-p udp -m dscp --dscp 0 -m udp --dport",
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
        let set = ruleset(Family::Ipv4, &text);
        let ports: Vec<u16> = (0..20).map(|_| random.below(3) as u16).collect();
        let mut reference = Reference::new(&set, None);
        for port in &ports {
            let bytes = packet(*port);
            let packet = Packet {
                family: Family::Ipv4,
                bytes: &bytes,
                network: 0,
                length: bytes.len(),
                facts: Facts::usual(),
            };
            reference.evaluate(Hook::Input, &packet);
        }
        for lookups in Lookups::ALL {
            let built = build(&set, None, lookups).expect("small");
            let of_core = count(&built, CounterMode::Exact, 1, seed, ports.iter().copied());
            let counted = count(&built, CounterMode::None, 1, seed, ports.iter().copied());
            assert!(counted.iter().all(|none| *none == Counters::default()));
            for (id, chain) in set.tables[0].chains() {
                for rule in 0..chain.rules.len() {
                    let of_core = of_core[built.rule_id(0, id, rule) as usize];
                    let of_reference = reference.counters("filter", id, rule);
                    assert_eq!(of_core, of_reference, "seed {seed} rule {rule}\n{text}");
                }
            }
        }
    }
}
