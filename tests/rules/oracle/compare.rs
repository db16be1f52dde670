//! The answers of the kernel's tables, and their comparison with those of an evaluator.

use fairpath_tests::oracle::compare::{self, Answer, Difference, Named, RuleCount};

use super::legacy::{Legacy, Tool};

/// Injects `frames` in batches and compares counters and the number of accepted frames.
///
/// Only chains that input passes are compared: PREROUTING, INPUT in the table filter, and chains of the user.
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
    let mut kernel = |frames: &[Vec<u8>]| answer(legacy, ruleset, frames);
    compare::compare(ruleset, frames, &mut kernel, evaluate)
}

/// The kernel's answer: loads the ruleset, injects the frames, reads the counters.
pub fn answer(legacy: &Legacy, ruleset: &str, frames: &[Vec<u8>]) -> Answer {
    let loaded = legacy.load(ruleset);
    loaded.unwrap_or_else(|error| panic!("{error}\n{ruleset}"));
    let hook = hook(legacy.tool(), ruleset);
    let before = legacy.passed(hook);
    legacy.inject(frames);
    Answer {
        counts: counters(legacy, ruleset),
        accepted: legacy.passed(hook) - before,
    }
}

/// The kernel's counters of the ruleset's tables and the input side.
pub fn counters(legacy: &Legacy, ruleset: &str) -> Vec<RuleCount> {
    let mut counts = legacy.counters();
    counts.retain(|count| concerns(ruleset, count));
    counts
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
pub fn concerns(ruleset: &str, count: &RuleCount) -> bool {
    let input_side = match count.chain.as_str() {
        "OUTPUT" | "FORWARD" | "POSTROUTING" => false,
        "INPUT" => count.table == "filter",
        _ => true,
    };
    input_side && tables(ruleset).any(|table| table == count.table)
}
