//! A comparison in words: what may explain it, what it comes to, and its form for a terminal.

use std::fmt::Write as _;

use super::{Comparison, ComparisonRow};
use crate::change::Meaning;
use crate::grid::Grid;
use crate::metrics;
use crate::results::Results;

/// Everything that may explain a difference, or is not in it.
pub(super) fn remarks(
    first: (&Grid, &Results),
    second: (&Grid, &Results),
    pairs: usize,
) -> Vec<String> {
    let (ours, theirs) = (&first.1.manifest, &second.1.manifest);
    let mut remarks = Vec::new();
    for (what, a, b) in [
        ("experiment", &ours.experiment, &theirs.experiment),
        ("form", &ours.form, &theirs.form),
        ("kernel", &ours.machine.kernel, &theirs.machine.kernel),
        (
            "processor",
            &ours.machine.cpu_model,
            &theirs.machine.cpu_model,
        ),
        ("fairpath", &ours.machine.fairpath, &theirs.machine.fairpath),
        ("iperf3", &ours.machine.iperf3, &theirs.machine.iperf3),
        ("BBR", &ours.machine.bbr, &theirs.machine.bbr),
    ] {
        if a != b {
            remarks.push(format!("{what} differs: {a} and {b}"));
        }
    }
    for (grid, which) in [(first.0, "first"), (second.0, "second")] {
        let alone = grid.cells.len() - pairs;
        if alone > 0 {
            remarks.push(format!(
                "{alone} settings of the {which} have no valid runs in both"
            ));
        }
        let (runs, excluded) = grid.counts();
        if excluded > 0 {
            remarks.push(format!(
                "{excluded} of {runs} runs of the {which} are invalid and excluded"
            ));
        }
    }
    remarks
}

/// The numbers of differences in each direction, and their probability by chance.
pub(super) fn overall(rows: &[ComparisonRow]) -> String {
    let count = |meaning: Meaning| rows.iter().filter(|row| row.meaning == meaning).count();
    let (better, worse) = (count(Meaning::Better), count(Meaning::Worse));
    let other = count(Meaning::Higher) + count(Meaning::Lower);
    let by_chance: f64 = rows
        .iter()
        .map(|row| {
            row.interval
                .map_or(0.0, |interval| 1.0 - interval.confidence)
        })
        .sum();
    let mut text = format!(
        "Of {} comparisons the second is better in {better} and worse in {worse}; ",
        rows.len()
    );
    if other > 0 {
        let _ = write!(text, "{other} differ in what is neither; ");
    }
    let none = count(Meaning::NotShown);
    let _ = write!(
        text,
        "no difference is shown in {none}. If nothing differed, about {by_chance:.1} would seem to."
    );
    text
}

/// The comparison for a terminal; `first` and `second` are what the directories are called.
pub fn text(comparison: &Comparison, first: &str, second: &str) -> String {
    let mut text = format!(
        "{}: first {first}, second {second}\n",
        comparison.experiment
    );
    for remark in &comparison.remarks {
        let _ = writeln!(text, "  note: {remark}");
    }
    let mut quantity = "";
    for row in &comparison.rows {
        if row.quantity != quantity {
            quantity = &row.quantity;
            let _ = writeln!(text, "\n{quantity}");
        }
        let unit = metrics::find(&row.quantity).map(|requested| requested.metric.measure.unit());
        let (a, b) = match &unit {
            Ok(unit) => (unit.show(row.first), unit.show(row.second)),
            Err(_) => (row.first.to_string(), row.second.to_string()),
        };
        let words = if row.words.is_empty() {
            "all"
        } else {
            &row.words
        };
        let (n, m) = row.runs;
        let _ = writeln!(
            text,
            "  {words}: {a} and {b} ({n} and {m} runs): {}",
            row.verdict
        );
    }
    let _ = writeln!(text, "\n{}", comparison.verdict);
    text
}
