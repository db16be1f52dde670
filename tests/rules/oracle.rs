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
mod facts;
mod harness;
mod legacy;
mod packets;
mod partial;
mod pools;
mod rulesets;

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{BuildOptions, Built, build};
use fairpath_rules::{Core, Facts, Family, Hook, Names, Packet, Reference, Ruleset, Verdict, read};
use fairpath_testbed::requires;
use fairpath_units::test_seeds;

use compare::{Answer, compare};
use legacy::{Legacy, RuleCount, Tool};
use packets::{Toward, frames};
use pools::{IN, IN_MAC, OWN4};
use rulesets::generate;

/// Frames of a ruleset.
const FRAMES: usize = 128;

fn family(tool: Tool) -> Family {
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

fn facts(tool: Tool, frame: &[u8]) -> Facts {
    let at = network(frame);
    let packet_type = match &frame[..6] {
        own if own == IN_MAC => 0,
        [255, 255, 255, 255, 255, 255] => 1,
        [first, ..] if first & 1 == 1 => 2,
        _ => 3,
    };
    let types = (tool == Tool::V4).then(|| {
        (
            address_type(&frame[at + 12..at + 16]),
            address_type(&frame[at + 16..at + 20]),
        )
    });
    Facts {
        input: Some(IN.as_bytes().into()),
        output: Some(b""[..].into()),
        packet_type: Some(packet_type),
        source_type: types.map(|types| types.0),
        destination_type: types.map(|types| types.1),
        ..Facts::default()
    }
}

fn packet<'a>(tool: Tool, frame: &'a [u8]) -> Packet<'a> {
    let network = network(frame);
    Packet {
        family: family(tool),
        bytes: frame,
        network,
        length: frame.len() - network,
        facts: facts(tool, frame),
    }
}

fn hooks(tool: Tool, toward: Toward) -> &'static [Hook] {
    match (tool, toward) {
        (Tool::Arp, _) => &[Hook::Input],
        (_, Toward::Ingress) => &[Hook::Prerouting],
        (_, Toward::Input) => &[Hook::Prerouting, Hook::Input],
    }
}

/// The answer of the native core, with all counters; `None` if it depends on a match that is refused
/// by name.
fn core_answer(
    tool: Tool,
    toward: Toward,
    ruleset: &Ruleset,
    built: &Built,
    frames: &[Vec<u8>],
) -> Option<Answer> {
    let mut core = Core::new(built, CounterMode::Exact).unwrap();
    let mut accepted = 0;
    for frame in frames {
        let packet = packet(tool, frame);
        let mut passed = true;
        for hook in hooks(tool, toward) {
            let outcome = core
                .evaluate(*hook, &packet)
                .expect("generated frames reach the tables");
            if matches!(outcome.verdict, Verdict::Unknown(_)) {
                return None;
            }
            passed = outcome.verdict == Verdict::Accept;
            if !passed {
                break;
            }
        }
        accepted += u64::from(passed);
    }
    Some(Answer {
        counts: counts(ruleset, built, &core),
        accepted,
    })
}

fn counts(ruleset: &Ruleset, built: &Built, core: &Core) -> Vec<RuleCount> {
    let mut out = Vec::new();
    for (at, table) in ruleset.tables.iter().enumerate() {
        for (id, chain) in table.chains() {
            let mut add = |rule, id| {
                let counters = core.counters(id);
                out.push(RuleCount {
                    table: table.name.to_string(),
                    chain: chain.name().into_owned(),
                    rule,
                    packets: counters.packets,
                    bytes: counters.bytes,
                });
            };
            for rule in 0..chain.rules.len() {
                add(Some(rule), built.rule_id(at, id, rule));
            }
            if let Some(policy) = built.policy_id(at, id) {
                add(None, policy);
            }
        }
    }
    out
}

fn parse(tool: Tool, text: &str) -> Ruleset {
    let names = Names::default();
    read(&mut text.as_bytes(), "generated", family(tool), &names)
        .unwrap()
        .complete()
        .unwrap()
}

/// Compares `count` generated rulesets of a tool.
fn agree(tool: Tool, count: u64) {
    let [root, program, nft] = tool.needs();
    requires!(root, program, nft);
    let legacy = Legacy::new(tool);
    let (mut compared, mut refused) = (0u32, 0u32);
    for seed in test_seeds(count) {
        let generated = generate(tool, seed);
        let ruleset = parse(tool, &generated.text);
        let frames = frames(tool, generated.toward, seed, FRAMES);
        for optimise in [false, true] {
            let built = build(&ruleset, None, BuildOptions { optimise }).unwrap();
            if optimise && built.plans.is_empty() {
                continue;
            }
            let answer =
                |frames: &[Vec<u8>]| core_answer(tool, generated.toward, &ruleset, &built, frames);
            if answer(&frames).is_none() {
                refused += 1;
                continue;
            }
            compared += 1;
            let result = compare(&legacy, &generated.text, &frames, &mut |frames| {
                answer(frames).expect("the same frames were known together")
            });
            if let Err(difference) = result {
                panic!("seed {seed}, optimise {optimise}: {difference}");
            }
        }
    }
    println!("{compared} rulesets with {FRAMES} frames each agree, {refused} have a refused match");
    assert!(compared > refused, "most rulesets must be compared");
}

#[test]
fn ipv4_verdicts_and_counters_are_the_kernels() {
    agree(Tool::V4, 60);
}

#[test]
fn ipv6_verdicts_and_counters_are_the_kernels() {
    agree(Tool::V6, 60);
}

#[test]
fn arp_verdicts_and_counters_are_the_kernels() {
    agree(Tool::Arp, 10);
}

/// The reference and the core agree about every frame and counter, recent lists and all.
fn reference_agrees(tool: Tool, count: u64) {
    for seed in test_seeds(count) {
        let generated = generate(tool, seed);
        let ruleset = parse(tool, &generated.text);
        let built = build(&ruleset, None, BuildOptions::default()).unwrap();
        let mut core = Core::new(&built, CounterMode::Exact).unwrap();
        let mut reference = Reference::new(&ruleset, None);
        let hook = *hooks(tool, generated.toward).last().expect("a hook");
        for frame in frames(tool, generated.toward, seed, FRAMES) {
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
