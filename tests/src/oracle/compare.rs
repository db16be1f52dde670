//! The comparison of an evaluator with the tables of the kernel: counters, and the number of accepted frames.

use std::collections::BTreeMap;
use std::fmt;

use fairpath_rules::image::Built;
use fairpath_rules::{ChainId, Core, Counters, Reference, Ruleset};

/// Frames after one load: each batch begins with freshly loaded tables.
const BATCH: usize = 256;

/// The counters of a rule or of a chain's policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleCount {
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// Number of the rule in its chain, from 0; `None` is the policy.
    pub rule: Option<usize>,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The effect of frames on a freshly loaded ruleset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Counters; those of 0 may be absent.
    pub counts: Vec<RuleCount>,
    /// Frames that passed all tables of the hook.
    pub accepted: u64,
}

/// The name of an evaluator, and its answer.
pub type Named = (&'static str, Answer);

/// Frames for which evaluator and kernel differ, as few as the search found.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The text of the ruleset.
    pub ruleset: String,
    /// One, unless the difference needs the memory of a rule.
    pub frames: Vec<Vec<u8>>,
    /// The answer of the kernel.
    pub kernel: Answer,
    /// The first evaluator that differs.
    pub evaluator: Named,
}

/// Compares the answers to `frames`, in batches.
///
/// All answer for their argument alone, with counters and rules as after a load.
///
/// # Errors
/// The first difference, reduced.
pub fn compare(
    ruleset: &str,
    frames: &[Vec<u8>],
    kernel: &mut dyn FnMut(&[Vec<u8>]) -> Answer,
    evaluate: &mut dyn FnMut(&[Vec<u8>]) -> Vec<Named>,
) -> Result<(), Box<Difference>> {
    let mut differs = |frames: &[Vec<u8>]| {
        let kernel = kernel(frames);
        let evaluator = differing(&kernel, evaluate(frames))?;
        Some(Difference {
            ruleset: ruleset.to_owned(),
            frames: frames.to_vec(),
            kernel,
            evaluator,
        })
    };
    for batch in frames.chunks(BATCH) {
        if let Some(difference) = differs(batch) {
            return Err(Box::new(reduce(difference, differs)));
        }
    }
    Ok(())
}

/// The first evaluator whose answer is not the kernel's.
pub fn differing(kernel: &Answer, evaluators: Vec<Named>) -> Option<Named> {
    let mut evaluators = evaluators.into_iter();
    evaluators.find(|(_, answer)| {
        answer.accepted != kernel.accepted || relevant(answer) != relevant(kernel)
    })
}

/// The counters of the core.
pub fn counts_of_core(ruleset: &Ruleset, built: &Built, core: &Core) -> Vec<RuleCount> {
    counts(ruleset, |table, id, rule| {
        let id = match rule {
            Some(rule) => Some(built.rule_id(table, id, rule)),
            None => built.policy_id(table, id),
        };
        id.map(|id| core.counters(id))
    })
}

/// The counters of the reference.
pub fn counts_of_reference(ruleset: &Ruleset, reference: &Reference) -> Vec<RuleCount> {
    counts(ruleset, |table, id, rule| {
        let name = &ruleset.tables[table].name;
        Some(match rule {
            Some(rule) => reference.counters(name, id, rule),
            None => reference.policy_counters(name, id),
        })
    })
}

/// All counters, by the number of the table, the chain, and the number of the rule or `None` for the policy.
pub fn counts(
    ruleset: &Ruleset,
    of: impl Fn(usize, ChainId, Option<usize>) -> Option<Counters>,
) -> Vec<RuleCount> {
    let mut counts = Vec::new();
    for (at, table) in ruleset.tables.iter().enumerate() {
        for (id, chain) in table.chains() {
            let rules = (0..chain.rules.len()).map(Some).chain([None]);
            counts.extend(rules.filter_map(|rule| {
                let Counters { packets, bytes } = of(at, id, rule)?;
                Some(RuleCount {
                    table: table.name.to_string(),
                    chain: chain.name().into_owned(),
                    rule,
                    packets,
                    bytes,
                })
            }));
        }
    }
    counts
}

/// Counters that are not 0.
fn relevant(answer: &Answer) -> BTreeMap<(&str, &str, Option<usize>), (u64, u64)> {
    let counts = answer.counts.iter();
    counts
        .filter(|count| (count.packets, count.bytes) != (0, 0))
        .map(|count| {
            let place = (count.table.as_str(), count.chain.as_str(), count.rule);
            (place, (count.packets, count.bytes))
        })
        .collect()
}

/// Searches the shortest prefix that differs, and then removes frames before its last one.
fn reduce(
    mut found: Difference,
    mut differs: impl FnMut(&[Vec<u8>]) -> Option<Difference>,
) -> Difference {
    let all = found.frames.clone();
    let (mut same, mut differ) = (0, all.len());
    while differ - same > 1 {
        let middle = usize::midpoint(same, differ);
        match differs(&all[..middle]) {
            Some(smaller) => (differ, found) = (middle, smaller),
            None => same = middle,
        }
    }
    let last = &all[differ - 1..differ];
    if let Some(single) = differs(last) {
        return single;
    }
    let mut at = 0;
    while at + 1 < found.frames.len() {
        let mut fewer = found.frames.clone();
        fewer.remove(at);
        match differs(&fewer) {
            Some(smaller) => found = smaller,
            None => at += 1,
        }
    }
    found
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.ruleset)?;
        for frame in &self.frames {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "frame {hex}")?;
        }
        let (name, evaluator) = &self.evaluator;
        let (kernel, ours) = (relevant(&self.kernel), relevant(evaluator));
        writeln!(
            out,
            "accepted: kernel {}, {name} {}",
            self.kernel.accepted, evaluator.accepted
        )?;
        let places: BTreeMap<_, ()> = kernel
            .keys()
            .chain(ours.keys())
            .map(|place| (*place, ()))
            .collect();
        for (place, ()) in places {
            let [ours, theirs] =
                [&ours, &kernel].map(|counts| counts.get(&place).copied().unwrap_or_default());
            let mark = if ours == theirs { ' ' } else { '!' };
            let (table, chain, rule) = place;
            let rule = rule.map_or("policy".to_owned(), |rule| format!("rule {rule}"));
            writeln!(
                out,
                "{mark} {table} {chain} {rule}: kernel {theirs:?}, {name} {ours:?}"
            )?;
        }
        Ok(())
    }
}
