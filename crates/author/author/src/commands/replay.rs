//! `fairpath sched replay`: a log's operations once more, in any home, and what comes of them.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, bail};
use fairpath_core::sched::{Home, Outcome};
use fairpath_sched::log::{self, Difference, Replayed, Run, describe};
use serde_json::{Value, json};

use super::homes::{Homes, Makers};
use super::output::{self, TextFormat};

/// Of the JSON output.
const SCHEMA: u32 = 1;

/// Arguments of `fairpath sched replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched test stfq weights.lua --log ops.log && fairpath sched replay ops.log\n  \
    sudo fairpath sched replay ops.log --home both\n\n\
    Exit status: 0 the same outcomes, 1 a difference or a log that is not whole, 2 wrong usage.")]
pub struct Args {
    /// An operation log: of `sched test --log`, `sched run --log`, or `[shape] record`
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Where it is replayed
    #[arg(long, value_enum, default_value_t = Homes::Native)]
    home: Homes,
    /// An author's policy that the log names
    #[arg(long, value_name = "FILE.c")]
    policy: Option<PathBuf>,
    /// Lines for people, or one JSON object
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

/// Runs the verb.
///
/// # Errors
/// A log that cannot be read, is not whole, or whose policies are not there; a difference.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = args.log.display();
    let open = || {
        File::open(&args.log)
            .map(BufReader::new)
            .with_context(|| format!("open {name}"))
    };
    log::check(open()?).with_context(|| format!("read {name}"))?;
    let makers = Makers::new(args.home, args.policy.as_deref())?;
    let mut make = |run: &Run| {
        let plan = run.resolve(&makers.policies)?;
        let homes = makers
            .make
            .iter()
            .map(|make| make(&plan).map_err(|error| error.to_string()));
        homes.collect::<Result<Vec<Box<dyn Home>>, String>>()
    };
    let replayed = log::replay(open()?, &mut make).with_context(|| format!("replay {name}"))?;
    let text = match args.format {
        TextFormat::Text => text(&replayed),
        TextFormat::Json => serde_json::to_string_pretty(&json(&replayed))? + "\n",
    };
    output::print(&text).context("write to standard output")?;
    if let Some(difference) = &replayed.difference {
        bail!(
            "replay {name}: operation {} of run {} differs",
            difference.index,
            difference.run
        );
    }
    Ok(())
}

fn text(replayed: &Replayed) -> String {
    let mut text = String::new();
    for home in &replayed.homes {
        let stats = &home.stats;
        let dropped: u64 = stats.dropped.iter().sum();
        text += &format!(
            "run {}, {}: {} came, {} sent, {} marked, {dropped} dropped\n",
            home.run, home.home, stats.enqueued, stats.sent, stats.marked
        );
    }
    let runs = match replayed.summary.runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    text += &format!(
        "{} operations of {runs}, {} outcomes compared: ",
        replayed.summary.ops, replayed.compared
    );
    match &replayed.difference {
        None => text + "no difference\n",
        Some(difference) => text + "a difference\n" + &shown(difference),
    }
}

fn shown(difference: &Difference) -> String {
    let mut text = format!("run {}, operation {}:\n", difference.run, difference.index);
    for (index, op, outcomes) in &difference.before {
        text += &format!(
            "    {index}: {} -> {}\n",
            describe::op(op),
            describe::outcomes(outcomes)
        );
    }
    text += &format!(
        "  > {}: {}\n",
        difference.index,
        describe::op(&difference.op)
    );
    let width = difference
        .sides
        .iter()
        .map(|side| side.name.len())
        .max()
        .unwrap_or(0);
    for side in &difference.sides {
        text += &format!(
            "      {:width$}  {}\n",
            side.name,
            describe::outcomes(&side.outcomes)
        );
    }
    text
}

fn json(replayed: &Replayed) -> Value {
    let words = |outcomes: &[Outcome]| outcomes.iter().map(describe::outcome).collect::<Vec<_>>();
    let homes = replayed.homes.iter().map(|home| {
        json!({
            "run": home.run,
            "home": home.home,
            "enqueued_packets": home.stats.enqueued,
            "sent_packets": home.stats.sent,
            "sent_bytes": home.stats.sent_bytes,
            "marked_packets": home.stats.marked,
            "dropped_packets": home.stats.dropped.iter().sum::<u64>(),
        })
    });
    let difference = replayed.difference.as_ref().map(|difference| {
        let sides = difference.sides.iter();
        let before = difference.before.iter();
        json!({
            "run": difference.run,
            "index": difference.index,
            "operation": describe::op(&difference.op),
            "sides": sides.map(|side| json!({ "name": side.name, "outcomes": words(&side.outcomes) })).collect::<Vec<_>>(),
            "before": before.map(|(index, op, outcomes)| json!({
                "index": index, "operation": describe::op(op), "outcomes": words(outcomes),
            })).collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": SCHEMA,
        "runs": replayed.summary.runs,
        "operations": replayed.summary.ops,
        "compared_outcomes": replayed.compared,
        "homes": homes.collect::<Vec<_>>(),
        "difference": difference,
    })
}
