//! The comparison of an evaluator with the tables of the kernel.

use std::collections::BTreeMap;
use std::fmt;

use super::legacy::{Legacy, RuleCount, Tool};

/// Frames after one load: each batch begins with freshly loaded tables.
const BATCH: usize = 256;

/// The effect of frames on a freshly loaded ruleset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Counters; those of 0 may be absent.
    pub counts: Vec<RuleCount>,
    /// Frames that passed all tables of the hook.
    pub accepted: u64,
}

/// Frames for which evaluator and kernel differ, as few as the search found.
#[derive(Clone, Debug)]
pub struct Difference {
    pub tool: Tool,
    pub ruleset: String,
    /// One, unless the difference needs the memory of a rule.
    pub frames: Vec<Vec<u8>>,
    pub kernel: Answer,
    pub evaluator: Named,
}

/// The name of an evaluator, and its answer.
pub type Named = (&'static str, Answer);

/// Injects `frames` in batches and compares counters and the number of accepted frames.
///
/// Evaluators answer for their argument alone, with counters and rules as after a load. Only chains that input passes
/// are compared: PREROUTING, INPUT in the table filter, and chains of the user.
///
/// # Errors
/// The first difference, reduced.
///
/// # Panics
/// If the tool rejects the ruleset.
pub fn compare(
    legacy: &Legacy,
    ruleset: &str,
    frames: &[Vec<u8>],
    evaluate: &mut dyn FnMut(&[Vec<u8>]) -> Vec<Named>,
) -> Result<(), Box<Difference>> {
    let differs = |frames: &[Vec<u8>], evaluate: &mut dyn FnMut(&[Vec<u8>]) -> Vec<Named>| {
        let kernel = answer(legacy, ruleset, frames);
        let evaluator = differing(ruleset, &kernel, evaluate(frames))?;
        Some(Difference {
            tool: legacy.tool(),
            ruleset: ruleset.to_owned(),
            frames: frames.to_vec(),
            kernel,
            evaluator,
        })
    };
    for batch in frames.chunks(BATCH) {
        if let Some(difference) = differs(batch, evaluate) {
            let smaller = |frames: &[Vec<u8>]| differs(frames, evaluate);
            return Err(Box::new(reduce(difference, smaller)));
        }
    }
    Ok(())
}

/// The kernel's answer: loads the ruleset, injects the frames, reads the counters.
pub fn answer(legacy: &Legacy, ruleset: &str, frames: &[Vec<u8>]) -> Answer {
    let loaded = legacy.load(ruleset);
    loaded.unwrap_or_else(|error| panic!("{error}\n{ruleset}"));
    let hook = hook(legacy.tool(), ruleset);
    let before = legacy.passed(hook);
    legacy.inject(frames);
    let mut counts = legacy.counters();
    counts.retain(|count| concerns(ruleset, count));
    Answer {
        counts,
        accepted: legacy.passed(hook) - before,
    }
}

/// The hook behind the ruleset's last table of the input side.
fn hook(tool: Tool, ruleset: &str) -> &'static str {
    let filter = tables(ruleset).any(|table| table == "filter");
    if filter || tool == Tool::Arp {
        "INPUT"
    } else {
        "PREROUTING"
    }
}

fn tables(ruleset: &str) -> impl Iterator<Item = &str> {
    ruleset.lines().filter_map(|line| line.strip_prefix('*'))
}

/// True for counters of the ruleset's tables and the input side.
fn concerns(ruleset: &str, count: &RuleCount) -> bool {
    let input_side = match count.chain.as_str() {
        "OUTPUT" | "FORWARD" | "POSTROUTING" => false,
        "INPUT" => count.table == "filter",
        _ => true,
    };
    input_side && tables(ruleset).any(|table| table == count.table)
}

/// Counters that are not 0, of the ruleset's tables and the input side.
fn relevant<'a>(
    ruleset: &'a str,
    answer: &'a Answer,
) -> BTreeMap<(&'a str, &'a str, Option<usize>), (u64, u64)> {
    let counts = answer.counts.iter();
    counts
        .filter(|count| (count.packets, count.bytes) != (0, 0))
        .filter(|count| concerns(ruleset, count))
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

/// The first evaluator whose answer is not the kernel's.
pub fn differing(ruleset: &str, kernel: &Answer, evaluators: Vec<Named>) -> Option<Named> {
    let mut evaluators = evaluators.into_iter();
    evaluators.find(|(_, answer)| {
        answer.accepted != kernel.accepted || relevant(ruleset, answer) != relevant(ruleset, kernel)
    })
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, evaluator) = &self.evaluator;
        writeln!(out, "{:?}:\n{}", self.tool, self.ruleset)?;
        for frame in &self.frames {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "frame {hex}")?;
        }
        let (kernel, ours) = (
            relevant(&self.ruleset, &self.kernel),
            relevant(&self.ruleset, evaluator),
        );
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
