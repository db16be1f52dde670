//! Sets of rules one after the other with shared state: the outcome is that of sets whose state is
//! copied, also while packets meet the old and the new set.

use fairpath_bpf::{HookRules, HookSet, NewRules};
use fairpath_core::rules::{
    Carry, Counter, CounterMode, Evaluator, Header, Memory, Work, check_shared,
};
use fairpath_rules::image::{Built, Chains, Lookups, Placed, Used, build, carry};
use fairpath_rules::{Hook, Ruleset, fill};
use fairpath_statistics::Random;
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seeds;

use super::oracle::legacy::Tool;
use super::oracle::{self, rulesets};

/// Generated rulesets, sets of each, and frames of a set.
const RULESETS: u64 = 60;
const SETS: usize = 8;
const FRAMES: usize = 64;
const TOOLS: [Tool; 2] = [Tool::V4, Tool::V6];
/// Rules with state, whose answers in an old set change those in a new one.
const STATEFUL: [&str; 5] = ["limit", "recent", "quota", "nth", "connlimit"];

/// A set of one family, with a copy of all state.
struct Copied {
    ruleset: Ruleset,
    built: Built,
    evaluator: Evaluator,
}

/// The rules of a generated set in another order, some of them missing or there twice.
fn changed(text: &str, random: &mut Random) -> String {
    let (rules, others): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with("-A"));
    let count = random.below(2 * rules.len() as u64 + 1);
    let mut out = String::new();
    for line in others.iter().filter(|line| **line != "COMMIT") {
        out += &format!("{line}\n");
    }
    for _ in 0..count {
        out += &format!("{}\n", rules[random.index(rules.len())]);
    }
    out + "COMMIT\n"
}

/// Ids of all counters, in the order of the tree.
fn ids(ruleset: &Ruleset, image: &[u8]) -> Vec<u32> {
    let chains = Chains::new(ruleset, image);
    let mut out = Vec::new();
    for (at, table) in ruleset.tables.iter().enumerate() {
        for (id, _) in table.chains() {
            out.extend(chains.policy_id(at, id));
            out.extend(chains.rule_ids(at, id));
        }
    }
    out
}

fn counts(memory: &Memory, ids: &[u32]) -> Vec<Counter> {
    ids.iter().map(|id| memory.counter(*id)).collect()
}

/// The next set of a family: with copied state, and with numbers of the loaded rules.
fn next(
    ruleset: Ruleset,
    before: Option<&Copied>,
    loaded: Option<&Memory>,
    used: &mut Used,
    lookups: Lookups,
) -> (Copied, Placed, Carry) {
    let built = build(&ruleset, None, lookups).unwrap();
    let mut evaluator = Evaluator::new(&built.image, &built.states, CounterMode::Exact).unwrap();
    let mut copied = Carry::default();
    let mut shared = None;
    if let (Some(before), Some(loaded)) = (before, loaded) {
        let new = (&ruleset, &built);
        copied = carry((&before.ruleset, &before.built.image), new);
        evaluator
            .memory_mut()
            .carry(before.evaluator.memory(), &copied);
        shared = Some((
            loaded.image(),
            carry((&before.ruleset, loaded.image()), new),
        ));
    }
    let shared = shared.as_ref().map(|(image, carry)| (*image, carry));
    let placed = used.place(built.clone(), shared).unwrap();
    check_shared(&placed.image).unwrap();
    let next = Copied {
        ruleset,
        built,
        evaluator,
    };
    (next, placed, copied)
}

/// Evaluates a frame with both, and compares the answers.
fn evaluate(
    copied: &mut Evaluator,
    shared: &mut Memory,
    tool: Tool,
    frame: &[u8],
    hook: Hook,
    now: u64,
) {
    let mut packet = oracle::packet(tool, frame);
    packet.facts.now = now;
    let mut work = Work::new();
    fill(&mut work, &packet);
    if !copied.read(&mut work) {
        return;
    }
    let mut other = work.clone();
    copied.evaluate(hook as u32, &mut work);
    shared.evaluate(hook as u32, &mut other);
    let answer = |work: &Work| (work.verdict, work.argument, work.word, work.evaluated);
    assert_eq!(answer(&work), answer(&other));
}

#[test]
fn shared_state_is_that_of_copies() {
    requires!(Need::Root);
    let mut rules = HookRules::load().unwrap();
    let mut before: [Option<Copied>; 2] = [None, None];
    let (mut now, mut kept, mut overlapping, mut most) = (0, 0, 0, 0);
    for seed in test_seeds(RULESETS) {
        let mut random = Random::new(seed);
        let generated = TOOLS.map(|tool| rulesets::generate(tool, seed));
        let lookups = Lookups::ALL[seed as usize % 3];
        for _ in 0..SETS {
            let mut old: [Option<Memory>; 2] = [0, 1].map(|family| rules.memory(family));
            let mut used = Used::default();
            old.iter()
                .flatten()
                .for_each(|memory| used.add(memory.image()));
            let mut sets = [None, None];
            for family in 0..2 {
                if random.one_in(10) {
                    continue;
                }
                let text = changed(&generated[family].text, &mut random);
                let stateful = STATEFUL.iter().any(|word| text.contains(word));
                let ruleset = oracle::parse(TOOLS[family], &text);
                let (before, old) = (before[family].as_ref(), old[family].as_ref());
                let set = next(ruleset, before, old, &mut used, lookups);
                kept += set.1.kept;
                sets[family] = Some((set, stateful));
            }
            // Numbers are apart, and below the most that two sets in a row have needed.
            let mut all: Vec<u32> = Vec::new();
            let mut bound = 0;
            for ((next, placed, _), _) in sets.iter().flatten() {
                all.extend(ids(&next.ruleset, &placed.image));
                bound = bound.max(Header::of(&placed.image).unwrap().rules);
            }
            let new = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), new);
            let held: usize = before
                .iter()
                .flatten()
                .map(|set| ids(&set.ruleset, &set.built.image).len())
                .sum();
            most = most.max(new + held);
            assert!(bound as usize <= most, "{bound}, {new} and {held}");
            let old_ids = [0, 1].map(|family| {
                let (set, memory) = before[family].as_ref().zip(old[family].as_ref())?;
                Some(ids(&set.ruleset, memory.image()))
            });
            let old_counts = |old: &[Option<Memory>; 2]| {
                [0, 1].map(|family| Some(counts(old[family].as_ref()?, old_ids[family].as_ref()?)))
            };
            let counted = old_counts(&old);
            let hook_sets = [0, 1].map(|family| {
                let ((_, placed, _), _) = sets[family].as_ref()?;
                Some(HookSet {
                    image: &placed.image,
                    counters: &placed.counters,
                    slots: &placed.slots,
                    tables: &placed.tables,
                    needs: placed.needs,
                    rules: 0,
                    egress: false,
                    limits: false,
                })
            });
            let change = NewRules {
                sets: [hook_sets[0], hook_sets[1], None, None],
                text: b"text",
                ..NewRules::default()
            };
            rules.set(&change).unwrap();
            assert_eq!(
                old_counts(&old),
                counted,
                "a new set changes no counter of the old one"
            );
            for family in 0..2 {
                let Some(((mut next, placed, copied), stateful)) = sets[family].take() else {
                    before[family] = None;
                    continue;
                };
                let tool = TOOLS[family];
                let toward = generated[family].toward;
                let hook = *oracle::hooks(tool, toward).last().unwrap();
                let mut memory = rules.memory(family).unwrap();
                let seed = random.draw();
                let frames = oracle::frames_of(tool, &generated[family], seed, FRAMES);
                // Packets that still meet the old set.
                if let (Some(before), Some(old), false) =
                    (&mut before[family], &mut old[family], stateful)
                {
                    let pairs = copied.ids;
                    let from: Vec<u32> = pairs.iter().map(|(from, _)| *from).collect();
                    let first = counts(before.evaluator.memory(), &from);
                    for frame in &frames {
                        evaluate(&mut before.evaluator, old, tool, frame, hook, now);
                        overlapping += 1;
                    }
                    for ((from, to), first) in pairs.iter().zip(first) {
                        let last = before.evaluator.memory().counter(*from);
                        let by = Counter {
                            packets: first.packets.wrapping_sub(last.packets),
                            bytes: first.bytes.wrapping_sub(last.bytes),
                        };
                        next.evaluator.memory_mut().subtract(*to, by);
                    }
                }
                for frame in &frames {
                    now += random.below(300_000_000);
                    evaluate(&mut next.evaluator, &mut memory, tool, frame, hook, now);
                }
                let own = counts(
                    next.evaluator.memory(),
                    &ids(&next.ruleset, &next.built.image),
                );
                let shared = counts(&memory, &ids(&next.ruleset, &placed.image));
                assert_eq!(own, shared);
                before[family] = Some(next);
            }
        }
    }
    println!("{kept} counters kept, {overlapping} packets met old sets");
    assert!(kept > 0 && overlapping > 0);
}
