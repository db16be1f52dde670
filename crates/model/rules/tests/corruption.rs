//! Corrupted images: each is refused, or every packet ends with a verdict.
//!
//! The core follows offsets of an accepted image without comparing them, so only `check`
//! protects other memory from a wrong byte. `cargo xtask sanitize` runs this with AddressSanitizer.

mod ruleset;

use std::net::Ipv6Addr;

use fairpath_core::rules::{CounterMode, Evaluator, NONE, Work, action, check};
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::{Facts, Family, Packet, Sets, fill};
use fairpath_units::test_seeds;
use ruleset::ruleset;

/// Mutations of each image in a full run: 25,000 of ten images in the usual fifth.
const MUTATIONS: u64 = 12_500;
/// Hooks of an image.
const HOOKS: u32 = 6;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, below: usize) -> usize {
        (self.draw() % below.max(1) as u64) as usize
    }
}

macro_rules! seed {
    ($path:literal) => {
        include_str!(concat!("../../../../fuzz/seeds/rules_", $path))
    };
}

fn images() -> Vec<(Family, Built)> {
    let sets = Sets::read("seed", seed!("ipset/all").as_bytes()).expect("the seed is valid");
    let mut images = Vec::new();
    for (text, family) in [
        (seed!("iptables/usual"), Family::Ipv4),
        (seed!("iptables/tests"), Family::Ipv4),
        (seed!("iptables/long"), Family::Ipv4),
        (seed!("iptables/many"), Family::Ipv4),
        (seed!("ip6tables/usual"), Family::Ipv6),
    ] {
        let ruleset = ruleset(family, text);
        for lookups in Lookups::ALL {
            let built = build(&ruleset, Some(&sets), lookups).expect("small");
            images.push((family, built));
        }
    }
    let tables: Vec<&String> = images
        .iter()
        .flat_map(|(_, built)| &built.plans)
        .filter_map(|plan| plan.segment.as_ref())
        .flat_map(|segment| &segment.tuples)
        .collect();
    for kind in ["prefixes of", "keys"] {
        assert!(tables.iter().any(|table| table.contains(kind)), "{kind}");
    }
    images
}

fn word(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"))
}

fn put(image: &mut [u8], at: usize, word: u32) {
    image[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// A place of a word, more often one that the core follows.
fn place(random: &mut Random, image: &[u8]) -> usize {
    let words = image.len() / 4;
    let in_table = |table: usize, number: usize, random: &mut Random| {
        let (at, count) = (word(image, table), word(image, number));
        (at as usize + 4 * random.below(count as usize)) / 4
    };
    4 * match random.below(5) {
        // Header and entries of hooks.
        0 => random.below(160),
        1 => in_table(28, 16, random),
        2 => in_table(32, 36, random),
        _ => random.below(words),
    }
    .min(words - 1)
}

fn change_word(random: &mut Random, image: &mut [u8]) {
    let at = place(random, image);
    let old = word(image, at);
    let other = word(image, 4 * random.below(image.len() / 4));
    let new = match random.below(8) {
        0 => random.draw() as u32,
        1 => random.below(image.len()) as u32,
        2 => random.below(image.len()) as u32 & !15,
        3 => old.wrapping_add(random.below(33) as u32).wrapping_sub(16),
        4 => old
            .wrapping_add(16 * random.below(9) as u32)
            .wrapping_sub(64),
        5 => old ^ 1 << random.below(32),
        6 => u32::MAX - random.below(3) as u32,
        _ => other,
    };
    put(image, at, new);
}

/// Changes an image once to four times. The number of its bytes in the header stays correct, so that
/// not only that number is compared.
fn mutate(random: &mut Random, image: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        match random.below(16) {
            0 => image.truncate((image.len() - 16 * random.below(64)).max(1024)),
            1 => {
                for _ in 0..16 * random.below(32) {
                    image.push(random.draw() as u8);
                }
            }
            // A unit of the image at another place: a record, or a part of one.
            2..=4 => {
                let units = image.len() / 16;
                let (from, to) = (16 * random.below(units), 16 * random.below(units));
                image.copy_within(from..from + 16, to);
            }
            5..=8 => {
                let at = random.below(image.len());
                image[at] = random.draw() as u8;
            }
            _ => change_word(random, image),
        }
    }
    let bytes = image.len() as u32;
    put(image, 8, bytes);
}

fn ipv4(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend([10, 1, 2, 3, 192, 0, 2, 1]);
    bytes.extend(rest);
    let length = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, rest.len() as u8, next, 255];
    let source: Ipv6Addr = "2001:db8::7".parse().expect("an address");
    bytes.extend(source.octets());
    bytes.extend(source.octets());
    bytes.extend(rest);
    bytes
}

/// Usual packets, and irregular ones that the core reads in the order of each rule.
fn packets(family: Family) -> Vec<Vec<u8>> {
    let mut tcp = vec![0u8; 40];
    tcp[3] = 80;
    tcp[12] = 0xa0;
    tcp[13] = 0xc2;
    tcp[20..24].copy_from_slice(&[2, 4, 5, 0xb4]);
    let udp = [0, 53, 0, 53, 0, 8, 0, 0];
    let chunks = [0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 4, 1, 0, 0, 4];
    match family {
        Family::Ipv6 => vec![
            ipv6(6, &tcp),
            ipv6(58, &[135, 0, 0, 0, 0, 0, 0, 0]),
            ipv6(0, &[44, 0, 5, 2, 0, 0, 1, 0, 17, 0, 0, 1, 0, 0, 0, 7]),
            ipv6(6, &tcp[..7]),
        ],
        _ => vec![
            ipv4(6, &tcp),
            ipv4(17, &udp),
            ipv4(132, &chunks),
            ipv4(6, &tcp[..7]),
        ],
    }
}

/// Runs all hooks and some chains. Returns the packets that had a verdict.
fn interpret(evaluator: &mut Evaluator, chains: u32, work: &mut Work, family: Family) -> u64 {
    let mut verdicts = 0;
    for bytes in packets(family) {
        let frame = [&[2; 14][..], &bytes].concat();
        for known in [true, false] {
            let mut packet = Packet {
                family,
                bytes: &frame,
                network: 14,
                length: bytes.len(),
                facts: if known {
                    Facts::usual()
                } else {
                    Facts::default()
                },
            };
            for at in 0..HOOKS + chains.min(8) {
                // Time passes, so that limits refill, expire and end their windows.
                packet.facts.now += 700_000_000;
                fill(work, &packet);
                assert!(evaluator.read(work), "the packet is complete");
                match at.checked_sub(HOOKS) {
                    None => evaluator.evaluate(at, work),
                    Some(chain) => evaluator.evaluate_chain(chain, work),
                }
                let ends = [
                    action::ACCEPT,
                    action::DROP,
                    action::REJECT,
                    action::QUEUE,
                    action::UNKNOWN,
                ];
                assert!(ends.contains(&work.verdict), "verdict {}", work.verdict);
                verdicts += u64::from(work.error == 0);
            }
        }
    }
    verdicts
}

#[test]
fn accepted_corrupted_images_end_with_verdicts() {
    let (mut refused, mut accepted, mut verdicts) = (0u64, 0u64, 0u64);
    let images = images();
    for seed in test_seeds(MUTATIONS) {
        for (number, (family, built)) in images.iter().enumerate() {
            let mut random = Random(seed << 8 | number as u64);
            let mut image = built.image.clone();
            mutate(&mut random, &mut image);
            let Ok(header) = check(&image) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            let mut evaluator = Evaluator::new(&image, &built.states, CounterMode::Exact)
                .expect("an accepted image");
            let mut work = Work::new();
            work.tracing = 1;
            verdicts += interpret(&mut evaluator, header.chains, &mut work, *family);
            assert!(
                work.rule == NONE || work.rule < header.rules,
                "seed {seed}, image {number}: rule {}",
                work.rule
            );
        }
    }
    println!("{refused} refused, {accepted} accepted, {verdicts} verdicts");
    assert!(refused > accepted / 10 && accepted > refused / 10);
}

/// The problem of an image after a change.
fn problem(built: &Built, change: impl FnOnce(&mut Vec<u8>)) -> &'static str {
    let mut image = built.image.clone();
    change(&mut image);
    check(&image).expect_err("a corrupt image").problem
}

fn built(text: &str) -> Built {
    let options = Lookups::Estimated;
    build(&ruleset(Family::Ipv4, text), None, options).expect("small")
}

/// The image of one rule in INPUT, and the place of its first test: after chain header and record.
fn one_test(rule: &str) -> (Built, usize) {
    let text = format!("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT {rule}\nCOMMIT\n");
    let built = built(&text);
    let record = word(&built.image, word(&built.image, 28) as usize) as usize;
    let words = usize::from(built.image[record + 2]);
    (built, record + 16 * (1 + words))
}

#[test]
fn chains_that_share_large_blobs_are_refused() {
    let built = built(seed!("iptables/long"));
    let problem = problem(&built, |image| {
        let (table, chains) = (word(image, 28) as usize, word(image, 16) as usize);
        let long = word(image, table + 4 * (chains - 1));
        for chain in 0..chains {
            put(image, table + 4 * chain, long);
        }
    });
    assert_eq!(problem, "parts of the image overlap");
}

#[test]
fn unknown_answers_without_reason_are_refused() {
    let (built, test) = one_test("-m other -j DROP");
    let problem = problem(&built, |image| put(image, test + 4, 0));
    assert_eq!(problem, "the data of a test do not fit");
}

#[test]
fn spi_outside_of_its_header_is_refused() {
    let (built, test) = one_test("-p ah -m ah --ahspi 1 -j DROP");
    let problem = problem(&built, |image| image[test + 3] = 255);
    assert_eq!(problem, "the data of a test do not fit");
}

#[test]
fn changes_before_other_tests_are_refused() {
    let (built, test) = one_test("-m other -j MARK --set-mark 1");
    let problem = problem(&built, |image| {
        image.copy_within(test + 16..test + 32, test)
    });
    assert_eq!(
        problem,
        "the change of a target is not the last test of its rule"
    );
}

#[test]
fn idle_runs_with_effects_are_refused() {
    let rules = |last: &str| {
        let idle = "-A INPUT -s 10.0.0.1\n".repeat(9);
        format!("*filter\n:INPUT ACCEPT [0:0]\n{idle}{last}COMMIT\n")
    };
    let run = |built: &Built| word(&built.image, word(&built.image, 28) as usize) as usize;
    let idle = built(&rules(""));
    assert_eq!(word(&idle.image, run(&idle) + 8), 1);
    let mixed = built(&rules("-A INPUT -s 10.0.0.1 -j DROP\n"));
    let at = run(&mixed) + 8;
    assert_eq!(word(&mixed.image, at), 0);
    let problem = problem(&mixed, |image| put(image, at, 1));
    assert_eq!(problem, "a rule of an idle run has an effect");
}
