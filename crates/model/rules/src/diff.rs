//! Differences of two sets: rules that were added, removed or moved, and packets that meet another
//! verdict.
//!
//! Packets are made from the conditions of both sets ([`made`]): values inside and just outside. They
//! are evaluated by the core with both sets. So each difference that is reported is one, and equal
//! trees are equal; different trees without a differing packet are reported as such, with the number
//! of packets.

mod made;

use std::collections::{BTreeSet, HashMap, HashSet};

use fairpath_core::rules::CounterMode;

use crate::evaluate::{Core, CoreOutcome};
use crate::image::{Built, Counted, Lookups, build};
use crate::packet::{Facts, Packet, Unknown, Verdict};
use crate::read::new_table;
use crate::reference::{Reference, Step};
use crate::sets::Sets;
use crate::spec::Kind;
use crate::tree::{Family, Hook, Item, Ruleset, Table, Value};
use crate::write::rule_string;
use made::{Aim, Choice, Guide};

/// Packets that are made for a comparison, unless another number is given.
pub const DIFF_PACKETS: usize = 200_000;
/// Packets with another verdict that are kept.
pub const MAX_EXAMPLES: usize = 20;

/// A change of the rules of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleChange {
    /// Only in the second set.
    Added,
    /// Only in the first set.
    Removed,
    /// At another place among the rules that both have.
    Moved,
    /// The policy of a base chain, or the chain as a whole.
    Chain,
}

/// A line of the difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The change.
    pub change: RuleChange,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// Lines in the first and the second file, 0 none.
    pub lines: (u32, u32),
    /// In words.
    pub text: String,
}

/// A packet that meets another verdict.
#[derive(Debug, Clone)]
pub struct Example {
    /// The hook.
    pub hook: Hook,
    /// The frame.
    pub bytes: Vec<u8>,
    /// Offset of its network header.
    pub network: usize,
    /// Facts that are not in the frame.
    pub facts: Facts,
    /// Verdict of the first set.
    pub first: Verdict,
    /// Verdict of the second set.
    pub second: Verdict,
    /// The rule or policy that decided, as text.
    pub by: (String, String),
}

/// A set that one file of sets has otherwise than the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetChange {
    /// Its name.
    pub name: String,
    /// Lines of the set that only the first file has, and only the second.
    pub lines: (usize, usize),
}

/// The difference of two sets.
#[derive(Debug, Default)]
pub struct Difference {
    /// Changes of rules.
    pub changes: Vec<Change>,
    /// Sets that differ.
    pub sets: Vec<SetChange>,
    /// Packets with another verdict.
    pub examples: Vec<Example>,
    /// Packets that were evaluated, and those with another verdict.
    pub packets: u64,
    /// Packets with another verdict.
    pub differing: u64,
    /// Packets whose verdict is not known in one set.
    pub unknown: u64,
}

impl Difference {
    /// True if both sets have the same rules in the same order, and the same elements.
    pub fn same_rules(&self) -> bool {
        self.changes.is_empty() && self.sets.is_empty()
    }
}

/// Compares two sets of one family, with this number of packets.
///
/// # Errors
///
/// A set is too large for an image.
pub fn diff(
    first: &Ruleset,
    second: &Ruleset,
    sets: (Option<&Sets>, Option<&Sets>),
    count: usize,
) -> Result<Difference, crate::image::BuildError> {
    let mut difference = Difference {
        changes: changes(first, second),
        sets: set_changes(sets),
        ..Difference::default()
    };
    if difference.same_rules() {
        return Ok(difference);
    }
    packets(first, second, sets, count, &mut difference)?;
    Ok(difference)
}

/// Sets that are not the same in both files.
fn set_changes((first, second): (Option<&Sets>, Option<&Sets>)) -> Vec<SetChange> {
    let names = [first, second].into_iter().flatten();
    let names: BTreeSet<&str> = names.flat_map(Sets::iter).map(|(name, _)| name).collect();
    let text = |sets: Option<&Sets>, name: &str| {
        let mut out = String::new();
        if let Some(set) = sets.and_then(|sets| sets.get(name)) {
            set.write(name, &mut out)
                .expect("a string takes every text");
        }
        out
    };
    let mut out = Vec::new();
    for name in names {
        let (a, b) = (text(first, name), text(second, name));
        if a == b {
            continue;
        }
        let [a, b] = [&a, &b].map(|text| text.lines().collect::<HashSet<_>>());
        let lines = (a.difference(&b).count(), b.difference(&a).count());
        if lines != (0, 0) {
            let name = name.to_owned();
            out.push(SetChange { name, lines });
        }
    }
    out
}

fn changes(first: &Ruleset, second: &Ruleset) -> Vec<Change> {
    let mut out = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for table in first.tables.iter().chain(&second.tables) {
        if !names.contains(&table.name.to_string()) {
            names.push(table.name.to_string());
        }
    }
    for name in names {
        table_changes(
            first.family,
            first.table(&name),
            second.table(&name),
            &name,
            &mut out,
        );
    }
    out
}

/// A rule as text, whose jumps are names: numbers of chains differ between sets.
fn texts(family: Family, table: &Table, chain: &[u8]) -> Vec<(String, u32)> {
    table.find(chain).map_or_else(Vec::new, |id| {
        let chain = table.get(id);
        chain
            .rules
            .iter()
            .map(|rule| (rule_string(family, table, chain, rule), rule.line))
            .collect()
    })
}

fn table_changes(
    family: Family,
    first: Option<&Table>,
    second: Option<&Table>,
    name: &str,
    out: &mut Vec<Change>,
) {
    // The kernel's table, before any rule.
    let empty = new_table(family, name, 0).unwrap_or_else(|| Table::new(name, 0));
    let (a, b) = (first.unwrap_or(&empty), second.unwrap_or(&empty));
    let mut chains: BTreeSet<Box<[u8]>> = BTreeSet::new();
    for table in [a, b] {
        chains.extend(table.chains().map(|(_, chain)| chain.name.clone()));
    }
    for chain in chains {
        let shown = String::from_utf8_lossy(&chain).into_owned();
        let get = |table: &Table| {
            table
                .find(&chain)
                .map(|id| (table.get(id).policy, table.get(id).line))
        };
        let change = |change, lines, text| Change {
            change,
            table: name.to_owned(),
            chain: shown.clone(),
            lines,
            text,
        };
        match (get(a), get(b)) {
            (Some((_, line)), None) => {
                out.push(change(
                    RuleChange::Chain,
                    (line, 0),
                    "the chain was removed".into(),
                ));
            }
            (None, Some((_, line))) => {
                out.push(change(
                    RuleChange::Chain,
                    (0, line),
                    "the chain was added".into(),
                ));
            }
            (Some((from, line)), Some((to, other))) if from != to => out.push(change(
                RuleChange::Chain,
                (line, other),
                format!("the policy changed from {} to {}", from.name(), to.name()),
            )),
            _ => {}
        }
        rule_changes(
            &texts(family, a, &chain),
            &texts(family, b, &chain),
            &change,
            out,
        );
    }
}

fn rule_changes(
    first: &[(String, u32)],
    second: &[(String, u32)],
    change: &dyn Fn(RuleChange, (u32, u32), String) -> Change,
    out: &mut Vec<Change>,
) {
    // Rules that both have, by text and number of occurrence.
    let number = |rules: &[(String, u32)]| {
        let mut seen: HashMap<String, usize> = HashMap::new();
        rules
            .iter()
            .map(|(text, line)| {
                let count = seen.entry(text.clone()).or_default();
                *count += 1;
                ((text.clone(), *count), *line)
            })
            .collect::<Vec<_>>()
    };
    let (first, second) = (number(first), number(second));
    let places: HashMap<_, usize> = second
        .iter()
        .enumerate()
        .map(|(at, (key, _))| (key, at))
        .collect();
    let known: std::collections::HashSet<_> = first.iter().map(|(key, _)| key).collect();
    let common: Vec<(usize, usize)> = first
        .iter()
        .enumerate()
        .filter_map(|(at, (key, _))| Some((at, *places.get(key)?)))
        .collect();
    let kept = increasing(&common.iter().map(|(_, to)| *to).collect::<Vec<_>>());
    let mut stays = vec![false; common.len()];
    for at in kept {
        stays[at] = true;
    }
    for ((key, line), _) in first
        .iter()
        .zip(0..)
        .filter(|((key, _), _)| !places.contains_key(key))
    {
        out.push(change(RuleChange::Removed, (*line, 0), key.0.clone()));
    }
    for ((from, to), _) in common.iter().zip(&stays).filter(|(_, stays)| !**stays) {
        out.push(change(
            RuleChange::Moved,
            (first[*from].1, second[*to].1),
            first[*from].0.0.clone(),
        ));
    }
    for (key, line) in second.iter().filter(|(key, _)| !known.contains(key)) {
        out.push(change(RuleChange::Added, (0, *line), key.0.clone()));
    }
}

/// Places of a longest increasing subsequence: what stays if the least moves.
fn increasing(numbers: &[usize]) -> Vec<usize> {
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(numbers.len());
    for (at, number) in numbers.iter().enumerate() {
        let place = tails.partition_point(|tail| numbers[*tail] < *number);
        before.push(place.checked_sub(1).map(|place| tails[place]));
        if place == tails.len() {
            tails.push(at);
        } else {
            tails[place] = at;
        }
    }
    let mut out = Vec::new();
    let mut at = tails.last().copied();
    while let Some(place) = at {
        out.push(place);
        at = before[place];
    }
    out.reverse();
    out
}

/// The rules that changed or use a set that did, and the ends of chains that changed.
fn aims(ruleset: &Ruleset, difference: &Difference, side: fn((u32, u32)) -> u32) -> Vec<Aim> {
    let other_set = |item: &Item| match &item.value {
        Value::Set(set) => difference
            .sets
            .iter()
            .any(|other| other.name.as_bytes() == &*set.name),
        _ => false,
    };
    let none = HashSet::new();
    let mut out = Vec::new();
    let mut lines: HashMap<(&str, &str), HashSet<u32>> = HashMap::new();
    for change in &difference.changes {
        let lines = lines.entry((&change.table, &change.chain)).or_default();
        lines.insert(match change.change {
            RuleChange::Chain => END,
            _ => side(change.lines),
        });
    }
    for (at, table) in ruleset.tables.iter().enumerate() {
        for (id, chain) in table.chains() {
            let name = chain.name();
            let lines = lines.get(&(&*table.name, &*name)).unwrap_or(&none);
            let end = lines.contains(&END).then_some(chain.rules.len());
            let changed = (0..chain.rules.len()).filter(|at| {
                let rule = &chain.rules[*at];
                lines.contains(&rule.line) || rule.items.iter().any(other_set)
            });
            out.extend(changed.chain(end).map(|rule| Aim {
                table: at,
                chain: id,
                rule,
            }));
        }
    }
    out
}

/// The kinds of matches of a set.
fn kinds(ruleset: &Ruleset) -> impl Iterator<Item = Kind> {
    let chains = ruleset.tables.iter().flat_map(Table::chains);
    let rules = chains.flat_map(|(_, chain)| &chain.rules);
    rules.flat_map(|rule| rule.items.iter().map(|item| item.kind))
}

/// Pauses between packets are shorter than this power of two, in ns: 34 s.
const LONGEST_PAUSE: usize = 35;
/// Not a line: the end of a chain.
const END: u32 = u32::MAX;

fn packets(
    first: &Ruleset,
    second: &Ruleset,
    sets: (Option<&Sets>, Option<&Sets>),
    count: usize,
    difference: &mut Difference,
) -> Result<(), crate::image::BuildError> {
    let family = first.family;
    let built = [
        build(first, sets.0, Lookups::default())?,
        build(second, sets.1, Lookups::default())?,
    ];
    let mut cores = built.each_ref().map(|built| {
        Core::new(built, CounterMode::None).expect("an image that was just built is valid")
    });
    let guides = [
        Guide::new(first, sets.0, sets.1),
        Guide::new(second, sets.1, sets.0),
    ];
    let used: HashSet<Kind> = kinds(first).chain(kinds(second)).collect();
    let rates = [
        Kind::Limit,
        Kind::Hashlimit,
        Kind::Recent,
        Kind::BridgeLimit,
    ];
    let passes = rates.iter().any(|kind| used.contains(kind));
    let mut now = 0;
    let changed = [
        aims(first, difference, |(line, _)| line),
        aims(second, difference, |(_, line)| line),
    ];
    let mut choice = Choice(1);
    let mut seen = HashSet::new();
    for turn in 0..count {
        let guide = &guides[turn % 2];
        let changed = &changed[turn % 2];
        let aim = match changed.get(choice.below(2 * changed.len())) {
            Some(aim) => Some(*aim),
            None => guide.any(&mut choice),
        };
        let Some((hook, fields)) = aim.and_then(|aim| guide.packet(aim, &mut choice)) else {
            continue;
        };
        let (bytes, network) = fields.bytes();
        if passes {
            now += 1 << choice.below(LONGEST_PAUSE);
        }
        let packet = Packet {
            family,
            bytes: &bytes,
            network,
            length: bytes.len() - network,
            facts: Facts {
                now,
                ..fields.facts(&used, &mut choice)
            },
        };
        let [Some(a), Some(b)] = cores.each_mut().map(|core| core.evaluate(hook, &packet)) else {
            continue;
        };
        difference.packets += 1;
        // A target such as DNAT has an unknown effect, but its rule matched: two targets differ.
        let targets = [target(first, &built[0], &a), target(second, &built[1], &b)];
        let is_unknown = |outcome: &CoreOutcome, target: &Option<String>| {
            target.is_none() && matches!(outcome.verdict, Verdict::Unknown(_))
        };
        let same_target = targets[0].is_some() && targets[0] == targets[1];
        if is_unknown(&a, &targets[0]) || is_unknown(&b, &targets[1]) || same_target {
            difference.unknown += 1;
            continue;
        }
        if a.verdict == b.verdict && targets[0].is_none() {
            continue;
        }
        difference.differing += 1;
        if difference.examples.len() < MAX_EXAMPLES && seen.insert((hook, a.rule, b.rule)) {
            difference.examples.push(Example {
                hook,
                by: (
                    decided(first, sets.0, &built[0], &a, (hook, &packet)),
                    decided(second, sets.1, &built[1], &b, (hook, &packet)),
                ),
                first: a.verdict,
                second: b.verdict,
                facts: packet.facts,
                bytes,
                network,
            });
        }
    }
    Ok(())
}

/// The target that ended the evaluation, if its effect is not known.
fn target(ruleset: &Ruleset, built: &Built, outcome: &CoreOutcome) -> Option<String> {
    let is_target = matches!(
        outcome.verdict,
        Verdict::Unknown(Unknown::Translation | Unknown::OpaqueTarget)
    );
    match built.place(ruleset, outcome.rule.filter(|_| is_target)?)? {
        Counted::Rule(table, chain, rule) => {
            let table = &ruleset.tables[table];
            let chain = table.get(chain);
            let text = rule_string(ruleset.family, table, chain, &chain.rules[rule]);
            let at = text.find(" -j ").unwrap_or_default();
            Some(format!("{}{}", table.name, &text[at..]))
        }
        Counted::Policy(..) => None,
    }
}

/// The rule or policy that decided, as text.
fn decided(
    ruleset: &Ruleset,
    sets: Option<&Sets>,
    built: &Built,
    outcome: &CoreOutcome,
    (hook, packet): (Hook, &Packet),
) -> String {
    if let Some(Counted::Rule(table, chain, rule)) =
        outcome.rule.and_then(|id| built.place(ruleset, id))
    {
        let table = &ruleset.tables[table];
        let chain = table.get(chain);
        let rule = &chain.rules[rule];
        let text = rule_string(ruleset.family, table, chain, rule);
        return match rule.line {
            0 => text,
            line => format!("line {line}: {text}"),
        };
    }
    // Chains of bridges that are no base chains have policies, too, which have no counters.
    let mut reference = Reference::new(ruleset, sets);
    reference.trace(true);
    match reference.evaluate(hook, packet).path.last() {
        Some(Step::Policy { table, chain }) => {
            let table = &ruleset.tables[*table];
            format!("policy of {} {}", table.name, table.get(*chain).name())
        }
        _ => format!("no rule at {}", hook.chain()),
    }
}
