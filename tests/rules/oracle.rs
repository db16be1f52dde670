//! The kernel's own rule tables as the oracle of Fairpath's evaluators.
//!
//! ```text
//! outside out0 ══ in0 [inside: iptables-legacy, ip6tables-legacy or arptables-legacy]
//!   frames by a packet socket ──►     counters of rules and policies
//! ```
//!
//! [`compare`](compare::compare) injects generated frames through a generated ruleset, and compares
//! each counter, and the number of accepted frames, with those of the evaluators: the core with and
//! without lookups.

mod compare;
mod connections;
mod facts;
mod first;
mod harness;
pub(crate) mod hooks;
mod keys;
pub(crate) mod legacy;
mod logs;
mod nat;
pub(crate) mod partial;
pub(crate) mod rulesets;

use std::cell::Cell;
use std::collections::BTreeMap;

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Built, Lookups, build};
use fairpath_rules::spec::{Kind, SPECS};
use fairpath_rules::{
    Connection, Core, Facts, Family, Hook, Names, Packet, Reference, Ruleset, Unknown, Verdict,
    read,
};
use fairpath_testbed::requires;
use fairpath_units::test_seeds;

use compare::compare;
use fairpath_tests::oracle::bridge;
use fairpath_tests::oracle::compare::{Answer, Named, counts_of_core, counts_of_reference};
use fairpath_tests::oracle::packets::{Toward, frames};
use fairpath_tests::oracle::pools::{IN, IN_MAC, OWN4, OWN6};
use legacy::{Legacy, Tool};
use rulesets::generate;

/// Frames of a ruleset.
const FRAMES: usize = 128;
/// Frames of a ruleset in a soak.
#[cfg(feature = "soak")]
const SOAK_FRAMES: usize = 512;

pub(crate) fn family(tool: Tool) -> Family {
    match tool {
        Tool::V4 => Family::Ipv4,
        Tool::V6 => Family::Ipv6,
        Tool::Arp => Family::Arp,
    }
}

/// The offset of the network header of a frame.
fn network(frame: &[u8]) -> usize {
    if frame[12..14] == [0x81, 0] { 18 } else { 14 }
}

/// The type of an address, as the routes of the namespace inside have it.
fn address_type(address: &[u8]) -> u16 {
    match address {
        [0, ..] | [255, 255, 255, 255] | [192, 0, 2, 255] => 1 << 3,
        [224..=239, ..] => 1 << 5,
        [127, ..] => 1 << 2,
        own if own == OWN4 => 1 << 2,
        _ => 1 << 1,
    }
}

/// The same of IPv6: an address has the type of its form, and that of its route. There is no route to
/// a link's addresses without an interface.
fn address_type6(address: &[u8]) -> u16 {
    let network = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0];
    let own: Vec<u8> = OWN6.iter().flat_map(|word| word.to_be_bytes()).collect();
    match address {
        [0xff, ..] => 1 << 5,
        // One of IPv4.
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, ..] => 1 << 7,
        _ if address == own => 1 << 1 | 1 << 2,
        _ if address[..8] == network => 1 << 1,
        _ => 1 << 1 | 1 << 7,
    }
}

fn facts(tool: Tool, frame: &[u8]) -> Facts {
    let at = network(frame);
    let packet_type = match &frame[..6] {
        own if own == IN_MAC => 0,
        [255, 255, 255, 255, 255, 255] => 1,
        [first, ..] if first & 1 == 1 => 2,
        _ => 3,
    };
    let types = match tool {
        Tool::V4 => [12, 16].map(|from| address_type(&frame[at + from..at + from + 4])),
        Tool::V6 => [8, 24].map(|from| address_type6(&frame[at + from..at + from + 16])),
        Tool::Arp => [0, 0],
    };
    // Generated rules read no other fact.
    Facts {
        input: Some(IN.as_bytes().into()),
        output: Some(b""[..].into()),
        packet_type: Some(packet_type),
        source_type: Some(types[0]),
        destination_type: Some(types[1]),
        // Each is the first of its connection.
        connection: Some(Connection {
            state: 2,
            ..Connection::default()
        }),
        connections: Some(1),
        reverse_path: Some(true),
        ..Facts::default()
    }
}

pub(crate) fn packet<'a>(tool: Tool, frame: &'a [u8]) -> Packet<'a> {
    let network = network(frame);
    Packet {
        family: family(tool),
        bytes: frame,
        network,
        length: frame.len() - network,
        facts: facts(tool, frame),
    }
}

/// The frames of a generated ruleset: without fragments if the kernel would join them.
pub(crate) fn frames_of(
    tool: Tool,
    generated: &rulesets::Ruleset,
    seed: u64,
    count: usize,
) -> Vec<Vec<u8>> {
    let mut frames = frames(family(tool), generated.toward, seed, count);
    frames.retain(|frame| !(generated.tracked && is_fragment(&frame[network(frame)..])));
    frames
}

fn is_fragment(packet: &[u8]) -> bool {
    if packet[0] >> 4 == 4 {
        return u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    }
    let (mut next, mut at) = (packet[6], 40);
    while let (0 | 43 | 51 | 60, Some(header)) = (next, packet.get(at..at + 2)) {
        at += match next {
            51 => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        next = header[0];
    }
    next == 44
}

pub(crate) fn hooks(tool: Tool, toward: Toward) -> &'static [Hook] {
    match (tool, toward) {
        (Tool::Arp, _) => &[Hook::Input],
        (_, Toward::Ingress) => &[Hook::Prerouting],
        (_, Toward::Input) => &[Hook::Prerouting, Hook::Input],
    }
}

/// The evaluators of a ruleset. Each answer is for its frames alone, after a load.
struct Evaluators<'a> {
    tool: Tool,
    toward: Toward,
    ruleset: &'a Ruleset,
    /// For the core, without lookups and with them.
    images: [Built; 2],
    /// Frames at hooks that the core evaluated in its usual way: with runs and lookups.
    usual: Cell<u64>,
}

impl<'a> Evaluators<'a> {
    fn new(tool: Tool, toward: Toward, ruleset: &'a Ruleset) -> Evaluators<'a> {
        Evaluators {
            tool,
            toward,
            ruleset,
            images: [Lookups::Never, Lookups::Always]
                .map(|lookups| build(ruleset, None, lookups).unwrap()),
            usual: Cell::new(0),
        }
    }

    /// The answers to frames with their times.
    ///
    /// # Errors
    /// The reason if the core refuses a match by name.
    fn answers<'f>(
        &self,
        frames: impl Iterator<Item = (&'f [u8], u64)> + Clone,
    ) -> Result<Vec<Named>, Unknown> {
        let mut answers = Vec::new();
        for (built, name) in self.images.iter().zip(["core", "core with lookups"]) {
            let mut core = Core::new(built, CounterMode::Exact).unwrap();
            let accepted = self.accepted(frames.clone(), |hook, packet| {
                let outcome = core.evaluate(hook, packet);
                let usual = u64::from(core.evaluator().1.slow == 0);
                self.usual.set(self.usual.get() + usual);
                outcome.expect("generated frames reach the tables").verdict
            })?;
            let counts = counts_of_core(self.ruleset, built, &core);
            answers.push((name, Answer { counts, accepted }));
        }
        let mut reference = Reference::new(self.ruleset, None);
        let accepted = self.accepted(frames, |hook, packet| {
            reference.evaluate(hook, packet).verdict
        });
        let counts = counts_of_reference(self.ruleset, &reference);
        let accepted = accepted.expect("the core knew every answer");
        answers.push(("reference", Answer { counts, accepted }));
        Ok(answers)
    }

    /// Frames that pass all hooks, or why one has no answer.
    fn accepted<'f>(
        &self,
        frames: impl Iterator<Item = (&'f [u8], u64)>,
        mut verdict: impl FnMut(Hook, &Packet) -> Verdict,
    ) -> Result<u64, Unknown> {
        let mut accepted = 0;
        for (frame, now) in frames {
            let mut packet = packet(self.tool, frame);
            packet.facts.now = now;
            let mut passed = true;
            for hook in hooks(self.tool, self.toward) {
                let verdict = verdict(*hook, &packet);
                if let Verdict::Unknown(reason) = verdict {
                    return Err(reason);
                }
                passed = verdict == Verdict::Accept;
                if !passed {
                    break;
                }
            }
            accepted += u64::from(passed);
        }
        Ok(accepted)
    }
}

pub(crate) fn parse(tool: Tool, text: &str) -> Ruleset {
    let names = Names::default();
    read(&mut text.as_bytes(), "generated", family(tool), &names)
        .unwrap()
        .complete()
        .unwrap()
}

/// The numbers of a comparison with the kernel.
#[derive(Default)]
struct Compared {
    rulesets: u64,
    frames: u64,
    usual: u64,
    /// Rulesets with a match that the core refuses by name, by reason.
    refused: BTreeMap<String, u64>,
}

impl Compared {
    /// Compares a generated ruleset.
    fn ruleset(&mut self, legacy: &Legacy, seed: u64, count: usize) {
        let tool = legacy.tool();
        let generated = generate(tool, seed);
        let ruleset = parse(tool, &generated.text);
        let frames = frames_of(tool, &generated, seed, count);
        let evaluators = Evaluators::new(tool, generated.toward, &ruleset);
        let answer =
            |frames: &[Vec<u8>]| evaluators.answers(frames.iter().map(|frame| (&frame[..], 0)));
        if let Err(reason) = answer(&frames) {
            *self.refused.entry(format!("{reason:?}")).or_default() += 1;
            return;
        }
        self.usual += evaluators.usual.get();
        self.rulesets += 1;
        self.frames += frames.len() as u64;
        let result = compare(legacy, &generated.text, &frames, &mut |frames| {
            answer(frames).expect("the same frames were known together")
        });
        if let Err(difference) = result {
            panic!("seed {seed}: {difference}");
        }
    }

    fn print(&self, tool: Tool) {
        println!(
            "{tool:?}: {} rulesets and {} frames agree, rulesets with a refused match: {:?}",
            self.rulesets, self.frames, self.refused
        );
        let refused = self.refused.values().sum();
        assert!(self.rulesets > refused, "most rulesets must be compared");
        assert!(
            self.usual * 2 > self.frames,
            "{} of {} frames were evaluated in the usual way",
            self.usual,
            self.frames
        );
    }
}

/// Compares `count` generated rulesets of a tool.
fn agree(tool: Tool, count: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let legacy = Legacy::new(tool);
    let mut compared = Compared::default();
    for seed in test_seeds(count) {
        compared.ruleset(&legacy, seed, FRAMES);
    }
    compared.print(tool);
}

#[test]
fn ipv4_verdicts_and_counters_are_the_kernels() {
    agree(Tool::V4, 300);
}

#[test]
fn ipv6_verdicts_and_counters_are_the_kernels() {
    agree(Tool::V6, 300);
}

#[test]
fn arp_verdicts_and_counters_are_the_kernels() {
    agree(Tool::Arp, 10);
}

/// Compares rulesets until `packets` frames were compared.
#[cfg(feature = "soak")]
fn soak(tool: Tool, packets: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let legacy = Legacy::new(tool);
    let mut compared = Compared::default();
    let mut seed = fairpath_units::test_seed();
    while compared.frames < packets {
        compared.ruleset(&legacy, seed, SOAK_FRAMES);
        seed = seed.wrapping_add(1);
    }
    compared.print(tool);
}

#[cfg(feature = "soak")]
#[test]
fn soak_450_000_ipv4_packets_agree() {
    soak(Tool::V4, 450_000);
}

#[cfg(feature = "soak")]
#[test]
fn soak_450_000_ipv6_packets_agree() {
    soak(Tool::V6, 450_000);
}

#[cfg(feature = "soak")]
#[test]
fn soak_100_000_arp_packets_agree() {
    soak(Tool::Arp, 100_000);
}

/// The reference and the core agree about every frame, recent lists and all.
fn reference_agrees(tool: Tool, count: u64) {
    for seed in test_seeds(count) {
        let generated = generate(tool, seed);
        let ruleset = parse(tool, &generated.text);
        let built = build(&ruleset, None, Lookups::Always).unwrap();
        let mut core = Core::new(&built, CounterMode::Exact).unwrap();
        let mut reference = Reference::new(&ruleset, None);
        let hook = *hooks(tool, generated.toward).last().expect("a hook");
        for frame in frames_of(tool, &generated, seed, FRAMES) {
            let packet = packet(tool, &frame);
            let of_core = core.evaluate(hook, &packet).expect("frames are complete");
            let of_reference = reference.evaluate(hook, &packet);
            // Some matches are known to the reference only.
            if matches!(of_core.verdict, Verdict::Unknown(_)) {
                break;
            }
            assert_eq!(
                (&of_core.verdict, of_core.changes),
                (&of_reference.verdict, of_reference.changes),
                "seed {seed}, frame {frame:02x?}\n{}",
                generated.text
            );
        }
    }
}

#[test]
fn reference_and_core_agree() {
    reference_agrees(Tool::V4, 300);
    reference_agrees(Tool::V6, 300);
    reference_agrees(Tool::Arp, 100);
}

/// The evaluators agree about rules of bridges. A guest compares them with the kernel.
#[test]
fn bridge_reference_and_core_agree() {
    let mut compared = 0;
    let mut matched = BTreeMap::new();
    for seed in test_seeds(4_000) {
        let base = bridge::Base::of(seed);
        let text = bridge::generate(base, seed);
        let ruleset = bridge::parse(&text);
        let frames = bridge::frames(base, seed, FRAMES);
        for lookups in [Lookups::Never, Lookups::Always] {
            let built = build(&ruleset, None, lookups).unwrap();
            let core = bridge::of_core(base, &ruleset, &built, &frames);
            let reference = bridge::of_reference(base, &ruleset, &frames);
            // The core may not know the answer where the reference does.
            let Ok(known) = &core else { continue };
            compared += 1;
            if core == reference {
                options_that_matched(&text, known, &mut matched);
                continue;
            }
            for frame in &frames {
                let frame = std::slice::from_ref(frame);
                assert_eq!(
                    bridge::of_core(base, &ruleset, &built, frame),
                    bridge::of_reference(base, &ruleset, frame),
                    "seed {seed}, {lookups:?}, frame {frame:02x?}\n{text}"
                );
            }
            panic!("seed {seed}, {lookups:?}: {core:?}\n{reference:?}\n{text}");
        }
    }
    println!("{compared} rulesets with {FRAMES} frames each agree, matched: {matched:?}");
    // No evaluator answers targets that translate.
    let is_evaluated = |kind: Kind| kind == Kind::BridgeMarkTarget || !kind.is_target();
    let options = SPECS.iter().filter(|spec| {
        spec.is_in(Family::Bridge) && is_evaluated(spec.kind) && spec.kind != Kind::Opaque
    });
    let options = options
        .flat_map(|spec| spec.options)
        .map(|option| option.names[0]);
    let never: Vec<&str> = options
        .filter(|name| !matched.contains_key(*name) && !NOT_GENERATED.contains(name))
        .collect();
    assert_eq!(
        never, [""; 0],
        "options without a rule that matched a frame"
    );
}

/// The verdict about a frame of which a capture has the first bytes is that of the whole frame, or unknown.
#[test]
fn bridge_verdicts_of_cut_captures_are_not_guessed() {
    const CUTS: [usize; 14] = [14, 15, 16, 17, 18, 20, 24, 26, 34, 38, 42, 54, 58, 76];
    let mut known = 0;
    for seed in test_seeds(5_000) {
        let base = bridge::Base::of(seed);
        let text = bridge::generate(base, seed);
        // The memory of a limit would differ.
        if text.contains("--limit") {
            continue;
        }
        let ruleset = bridge::parse(&text);
        let built = build(&ruleset, None, Lookups::Always).unwrap();
        let mut core = Core::new(&built, CounterMode::Exact).unwrap();
        let mut reference = Reference::new(&ruleset, None);
        for frame in bridge::frames(base, seed, FRAMES) {
            let whole = base.packet(&frame);
            let Some(answer) = core.evaluate(base.hook, &whole) else {
                continue;
            };
            for cut in CUTS.into_iter().filter(|cut| *cut < frame.len()) {
                let packet = Packet {
                    bytes: &frame[..cut],
                    ..whole.clone()
                };
                let of_core = core.evaluate(base.hook, &packet).map(|core| core.verdict);
                let of_reference = reference.evaluate(base.hook, &packet).verdict;
                for verdict in [of_core, Some(of_reference)] {
                    if !matches!(verdict, Some(Verdict::Unknown(_))) {
                        known += 1;
                        assert_eq!(
                            verdict,
                            Some(answer.verdict.clone()),
                            "seed {seed}, {cut} bytes of {frame:02x?}\n{text}"
                        );
                    }
                }
            }
        }
    }
    assert!(known > 1_000, "{known} verdicts are known");
}

/// Options of watchers that the generator does not write.
const NOT_GENERATED: [&str; 8] = [
    "--log",
    "--log-ip",
    "--log-ip6",
    "--log-arp",
    "--nflog",
    "--nflog-prefix",
    "--nflog-range",
    "--nflog-threshold",
];

/// Counts the options of rules that matched.
fn options_that_matched(text: &str, answer: &Answer, matched: &mut BTreeMap<String, u32>) {
    for count in answer.counts.iter().filter(|count| count.packets > 0) {
        let start = format!("-A {} ", count.chain);
        let mut rules = text.lines().filter_map(|line| line.strip_prefix(&start));
        let rule = rules
            .nth(count.rule.unwrap_or_default())
            .unwrap_or_default();
        for word in rule.split(' ').filter(|word| word.starts_with('-')) {
            *matched.entry(word.to_owned()).or_default() += 1;
        }
    }
}
