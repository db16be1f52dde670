//! `fairpath rules diff`: two sets compared by rules and by packets.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use fairpath_rules::{
    DIFF_PACKETS, Difference, Example, Family, Packet, RuleChange, Verdict, diff,
};
use serde_json::json;

use super::Format;
use super::files::{ReadArgs, load_one};

/// Compare two sets: rules that changed, and packets that meet another verdict.
///
/// Packets are made from the conditions of both sets, at their boundaries; half of them aim at the
/// rules that changed, or that use an ipset that did. Exit status 1 if the rules or ipsets differ.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath rules diff rules.v4 rules.v4.new\n  \
    fairpath rules diff rules.v4 rules.v4 --sets old.ipset --second-sets new.ipset\n  \
    fairpath rules diff --format json old.v6 new.v6")]
pub struct Args {
    /// The first set
    #[arg(value_name = "A")]
    first: PathBuf,
    /// The second set
    #[arg(value_name = "B")]
    second: PathBuf,
    /// An ipset file of A, and without --second-sets of B
    #[arg(long, value_name = "FILE")]
    sets: Option<PathBuf>,
    /// An ipset file of B
    #[arg(long, value_name = "FILE")]
    second_sets: Option<PathBuf>,
    /// Packets to make
    #[arg(long, value_name = "N", default_value_t = DIFF_PACKETS)]
    packets: usize,
    #[command(flatten)]
    reading: ReadArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs `fairpath rules diff`.
///
/// # Errors
/// A file has a problem, or the sets differ.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let files = |path: &PathBuf, sets: Option<&PathBuf>| {
        std::iter::once(path)
            .chain(sets)
            .cloned()
            .collect::<Vec<_>>()
    };
    let of_first = files(&args.first, args.sets.as_ref());
    let of_second = files(
        &args.second,
        args.second_sets.as_ref().or(args.sets.as_ref()),
    );
    let (first_name, first, first_sets) = load_one(&of_first, &args.reading)?;
    let (second_name, second, second_sets) = load_one(&of_second, &args.reading)?;
    if first.family != second.family {
        bail!(
            "{first_name} has rules of {}, {second_name} of {}: give --family or two files of one family",
            first.family,
            second.family
        );
    }
    let difference = diff(
        &first,
        &second,
        (first_sets.as_ref(), second_sets.as_ref()),
        args.packets,
    )?;
    match args.format {
        Format::Text => fairpath_cli::print(text(first.family, &difference))?,
        Format::Json => fairpath_cli::print(format!("{}\n", to_json(first.family, &difference)))?,
    }
    if !difference.same_rules() {
        bail!(
            "{} changes, {} of {} made packets meet another verdict",
            difference.changes.len() + difference.sets.len(),
            difference.differing,
            difference.packets
        );
    }
    Ok(())
}

fn word(change: &RuleChange) -> &'static str {
    match change {
        RuleChange::Added => "added",
        RuleChange::Removed => "removed",
        RuleChange::Moved => "moved",
        RuleChange::Chain => "chain",
    }
}

pub(super) fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Accept => "ACCEPT".into(),
        Verdict::Drop => "DROP".into(),
        Verdict::Reject(_) => "REJECT".into(),
        Verdict::Queue => "QUEUE".into(),
        Verdict::Unknown(reason) => format!("unknown ({})", fairpath_rules::unknown_text(*reason)),
    }
}

fn packet(family: Family, example: &Example) -> Packet<'_> {
    Packet {
        family,
        bytes: &example.bytes,
        network: example.network,
        length: example.bytes.len() - example.network,
        facts: example.facts.clone(),
    }
}

fn text(family: Family, difference: &Difference) -> String {
    if difference.same_rules() {
        return "The sets are equal: the same rules in the same order.\n".into();
    }
    let mut out = String::new();
    for change in &difference.changes {
        let lines = match change.lines {
            (0, line) => format!("line {line} of the second"),
            (line, 0) => format!("line {line} of the first"),
            (a, b) => format!("line {a} of the first, {b} of the second"),
        };
        let _ = writeln!(
            out,
            "{} {} {}: {} ({lines})",
            word(&change.change),
            change.table,
            change.chain,
            change.text
        );
    }
    for set in &difference.sets {
        let _ = writeln!(
            out,
            "set {}: {} lines only in the first, {} only in the second",
            set.name, set.lines.0, set.lines.1
        );
    }
    for example in &difference.examples {
        let _ = writeln!(
            out,
            "\n{}: {}\n  first:  {} by {}\n  second: {} by {}",
            example.hook.chain(),
            super::capture::describe(&packet(family, example)),
            verdict(&example.first),
            example.by.0,
            verdict(&example.second),
            example.by.1
        );
    }
    let _ = writeln!(
        out,
        "\n{} of {} made packets meet another verdict; {} depend on something that is not evaluated.",
        difference.differing, difference.packets, difference.unknown
    );
    if difference.differing == 0 && difference.packets > 0 {
        out.push_str("No packet was found that meets another verdict. This is no proof.\n");
    }
    out
}

fn to_json(family: Family, difference: &Difference) -> serde_json::Value {
    let changes: Vec<_> = difference
        .changes
        .iter()
        .map(|change| {
            json!({"change": word(&change.change), "table": change.table, "chain": change.chain,
                "first_line": change.lines.0, "second_line": change.lines.1, "text": change.text})
        })
        .collect();
    let examples: Vec<_> = difference
        .examples
        .iter()
        .map(|example| {
            let hex: String = example
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let packet = super::capture::describe(&packet(family, example));
            json!({"hook": example.hook.chain(), "packet": packet, "frame": hex,
                "first": verdict(&example.first), "second": verdict(&example.second),
                "first_by": example.by.0, "second_by": example.by.1})
        })
        .collect();
    let sets: Vec<_> = difference
        .sets
        .iter()
        .map(|set| json!({"set": set.name, "only_first": set.lines.0, "only_second": set.lines.1}))
        .collect();
    json!({"equal": difference.same_rules(), "changes": changes, "sets": sets, "examples": examples,
        "packets": difference.packets, "differing": difference.differing,
        "unknown": difference.unknown})
}
