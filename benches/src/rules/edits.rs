//! Edits of a chain of 1,000 rules in the largest set: from the text of an edit to the first packet
//! that meets it, natively.

use std::fmt::Write as _;
use std::hint::black_box;

use anyhow::bail;
use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Applied, Live, Lookups, build};
use fairpath_rules::{Core, Family, Names};
use serde::Serialize;

use super::{Args, made, rules};
use crate::measure::{Measured, Target, thread_ns};
use crate::table::build as table;

/// Rules of the chain that is edited.
const RULES: usize = 1000;
/// Edits of a round.
const EDITS: usize = 50;

/// A row of edits.
#[derive(Debug, Serialize)]
pub struct EditRow {
    case: String,
    /// Milliseconds of an edit.
    ms: Measured,
}

/// The text of the largest set, with one more chain.
fn set(args: &Args) -> made::Made {
    let mut made = match args.small {
        true => made::fanned(67_892, 18_329),
        false => made::fanned(662_160, 151_426),
    };
    let end = made.text.len() - "COMMIT\n".len();
    made.text.truncate(end);
    made.text.push_str(":edited - [0:0]\n");
    made.text.push_str(&chain(10));
    made.text.push_str("COMMIT\n");
    made
}

/// Rules of the chain, for sources of a network.
fn chain(first: u8) -> String {
    let mut out = String::new();
    for at in 0..RULES {
        let _ = writeln!(
            out,
            "-A edited -s {first}.{}.{}.7 -j DROP",
            at / 250,
            at % 250
        );
    }
    out
}

/// Measures edits, with and without lookups, and a whole build.
///
/// # Errors
/// An edit fails.
pub fn edits(args: &Args) -> anyhow::Result<Vec<EditRow>> {
    let made = set(args);
    let mut rows = Vec::new();
    let [whole, back] = [11, 10].map(|first| format!(":edited - [0:0]\n{}", chain(first)));
    for (lookups, with) in [
        (Lookups::Estimated, "with lookups"),
        (Lookups::Never, "in order"),
    ] {
        let ruleset = rules(&made, Family::Ipv4)?;
        if lookups == Lookups::Estimated {
            let mut each = Vec::new();
            for _ in 0..args.rounds {
                let start = thread_ns()?;
                black_box(build(&ruleset, None, lookups)?);
                each.push((thread_ns()? - start) / 1e6);
            }
            rows.push(EditRow {
                case: "image of the whole set".to_owned(),
                ms: Measured::of(each),
            });
        }
        let mut live = Live::new(ruleset, None, lookups)?;
        let mut core = Core::follow(&live, CounterMode::Exact)?;
        for (case, lines) in [
            (
                "insert one rule, delete it",
                ["-I edited 1 -s 192.0.2.1 -j DROP", "-D edited 1"],
            ),
            (
                "append one rule, delete it by its text",
                [
                    "-A edited -s 192.0.2.1 -j DROP",
                    "-D edited -s 192.0.2.1 -j DROP",
                ],
            ),
            ("replace the chain", [&whole, &back]),
            ("add a chain, delete it", ["-N other", "-X other"]),
        ] {
            let mut each = Vec::new();
            for _ in 0..args.rounds {
                let start = thread_ns()?;
                for turn in 0..EDITS {
                    let text = format!("*filter\n{}\nCOMMIT\n", lines[turn % 2]);
                    let applied = live.apply(text.as_bytes(), "edit", &Names::default())?;
                    if matches!(applied, Applied::Rebuilt(_)) {
                        bail!("an edit of the bench needs a whole build");
                    }
                    core.apply(&live, &applied)?;
                    live.reclaim();
                }
                each.push((thread_ns()? - start) / 1e6 / EDITS as f64);
            }
            rows.push(EditRow {
                case: format!("{case}, {with}"),
                ms: Measured::of(each),
            });
        }
    }
    Ok(rows)
}

/// An edit of one rule takes less than a millisecond.
pub fn targets(rows: &[EditRow]) -> Vec<Target> {
    rows.iter()
        .filter(|row| row.case.contains("one rule"))
        .map(|row| Target::at_most(row.case.clone(), row.ms.median, 1.0, "ms"))
        .collect()
}

/// For people.
pub fn text(rows: &[EditRow]) -> String {
    let lines: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let ms = &row.ms;
            vec![
                row.case.clone(),
                format!("{:.3} ({:.3} to {:.3})", ms.median, ms.min, ms.most),
            ]
        })
        .collect();
    format!("\nrules: an edit\n{}", table(&["case", "ms"], &lines))
}
