//! `fairpath sched replay`: repeat the operations of a log in any runtime and compare the outcomes.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use anyhow::{Context, bail};
use fairpath_core::sched::{Outcome, SchedRuntime};
use fairpath_sched::log::{self, Difference, Replayed, Run, describe};
use serde_json::{Value, json};

use super::output::TextFormat;
use super::runtimes::{Makers, Runtimes};

/// The schema number of the JSON output.
const SCHEMA: u32 = 1;

/// Arguments of `fairpath sched replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched test stfq weights.lua --record ops.log && fairpath sched replay ops.log\n  \
    sudo fairpath sched replay ops.log --runtime both\n\n\
    Exit status: 0 no difference, 1 a difference or an incomplete log, 2 wrong usage.")]
pub struct Args {
    /// Operation log, written by `fairpath sched run` or `test` with --record, or by `[shape] record`
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Select the runtime of the scheduler
    #[arg(long, value_enum, default_value_t = Runtimes::Native)]
    runtime: Runtimes,
    /// Read a custom policy that the log names
    #[arg(long, value_name = "FILE.c")]
    policy_file: Option<PathBuf>,
    /// Select the output format
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

/// Runs the command.
///
/// # Errors
/// The log cannot be read, is incomplete or names an unknown policy, or an outcome differs.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let name = args.log.display();
    let open = || {
        File::open(&args.log)
            .map(BufReader::new)
            .with_context(|| format!("open {name}"))
    };
    log::check(open()?).with_context(|| format!("read {name}"))?;
    let makers = Makers::new(args.runtime, args.policy_file.as_deref())?;
    let mut make = |run: &Run| {
        let plan = run.resolve(&makers.policies)?;
        let runtimes = makers
            .make
            .iter()
            .map(|make| make(&plan).map_err(|error| error.to_string()));
        runtimes.collect::<Result<Vec<Box<dyn SchedRuntime>>, String>>()
    };
    let replayed = log::replay(open()?, &mut make).with_context(|| format!("replay {name}"))?;
    let text = match args.format {
        TextFormat::Text => text(&replayed),
        TextFormat::Json => serde_json::to_string_pretty(&json(&replayed))? + "\n",
    };
    fairpath_cli::print(&text)?;
    if let Some(difference) = &replayed.difference {
        bail!(
            "replay {name}: the outcome of operation {} of run {} differs",
            difference.index,
            difference.run
        );
    }
    Ok(())
}

fn text(replayed: &Replayed) -> String {
    let mut text = String::new();
    for runtime in &replayed.runtimes {
        let stats = &runtime.stats;
        let dropped: u64 = stats.dropped.iter().sum();
        text += &format!(
            "run {}, {} runtime: {} enqueued, {} sent, {} marked, {dropped} dropped\n",
            runtime.run, runtime.runtime, stats.enqueued, stats.sent, stats.marked
        );
    }
    let runs = match replayed.summary.runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    text += &format!(
        "{} operations in {runs}, {} outcomes compared: ",
        replayed.summary.ops, replayed.compared
    );
    match &replayed.difference {
        None => text + "no difference\n",
        Some(difference) => text + "1 difference\n" + &difference_text(difference),
    }
}

fn difference_text(difference: &Difference) -> String {
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
    let runtimes = replayed.runtimes.iter().map(|runtime| {
        json!({
            "run": runtime.run,
            "runtime": runtime.runtime,
            "enqueued_packets": runtime.stats.enqueued,
            "sent_packets": runtime.stats.sent,
            "sent_bytes": runtime.stats.sent_bytes,
            "marked_packets": runtime.stats.marked,
            "dropped_packets": runtime.stats.dropped.iter().sum::<u64>(),
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
        "runtimes": runtimes.collect::<Vec<_>>(),
        "difference": difference,
    })
}
