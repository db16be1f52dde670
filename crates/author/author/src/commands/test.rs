//! `fairpath sched test`: Lua scripts against a policy or a tree, in either home or both.

use std::cell::RefCell;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::script::{
    Bench, FailureKind, Limits, MAX_INSTRUCTIONS, MAX_MEMORY_BYTES, Report, Script,
};
use anyhow::{Context, bail};
use fairpath_sched::log::Writer;
use fairpath_units::quantity;
use serde_json::json;

use super::homes::{Homes, Makers};
use super::output::{self, TextFormat};
use super::subject::{self, ClassArgs};

/// Of the JSON output.
const SCHEMA: u32 = 1;

/// Arguments of `fairpath sched test`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched test stfq weights.lua                a shipped policy, in this process\n  \
    sudo fairpath sched test mine.c mine.lua --home both  an author's, here and in the kernel\n  \
    fairpath sched test tree.toml site.lua --log ops.log  a tree, and what it did for `sched replay`\n\n\
    What scripts can say: docs/guide/sched-scripts.md. Scripts of the XDP queueing tester run, too.\n\
    Exit status: 0 all expectations hold, 1 one does not, 2 wrong usage.")]
pub struct Args {
    /// A policy (`fairpath sched list`), an author's file (NAME.c), a tree's (NAME.toml), or - where
    /// the scripts choose
    #[arg(value_name = "POLICY")]
    subject: String,
    /// Lua scripts
    #[arg(required = true, value_name = "SCRIPT.lua")]
    scripts: Vec<PathBuf>,
    /// Where the scheduler runs
    #[arg(long, value_enum, default_value_t = Homes::Native)]
    home: Homes,
    /// A parameter of the policy, or of one node: NAME=VALUE, NODE.NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    classes: ClassArgs,
    /// An author's policy that the tree names
    #[arg(long, value_name = "FILE.c")]
    policy: Option<PathBuf>,
    /// Record every operation and its outcome into this file, for `fairpath sched replay`
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Lua instructions that a script may use; an operation of the scheduler counts as 100
    #[arg(long, value_name = "COUNT", default_value_t = MAX_INSTRUCTIONS)]
    max_instructions: u64,
    /// Memory that a script may use, such as 512MiB [default: 1GiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_memory: Option<u64>,
    /// Of the scripts' math.random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lines (TAP), or one JSON object
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
}

fn bytes(text: &str) -> Result<u64, String> {
    quantity::read(text, "bytes").map_err(|bad| bad.to_string())
}

/// Runs the verb.
///
/// # Errors
/// A subject or script that cannot be read; a script whose expectations do not hold.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut bench = bench(args)?;
    let scripts: Vec<Script> = args
        .scripts
        .iter()
        .map(|path| Script::load(path))
        .collect::<Result<_, _>>()?;
    let log = args.log.as_deref().map(create).transpose()?;
    if let Some(log) = &log {
        bench.record = Some(log.clone());
    }
    let mut reports: Vec<Report> = Vec::new();
    for script in &scripts {
        let report = script.run(&bench);
        if let Some(cause) = no_home(&report) {
            bail!("test {}: {cause}", args.subject);
        }
        reports.push(report);
    }
    drop(bench);
    if let Some(log) = log.and_then(Rc::into_inner) {
        log.into_inner()
            .finish()
            .context("finish the operation log")?;
    }
    let text = match args.format {
        TextFormat::Text => text(&reports),
        TextFormat::Json => json(args, &reports)?,
    };
    output::print(&text).context("write to standard output")?;
    let failed: usize = reports.iter().map(Report::failed).sum();
    if failed > 0 {
        bail!(
            "test {}: {failed} of {} failed",
            args.subject,
            cases(&reports)
        );
    }
    Ok(())
}

/// Why no home was had at all: told once, and not by every test.
fn no_home(report: &Report) -> Option<&str> {
    let mut failures = report.cases.iter().map(|case| {
        let failure = case.failure.as_ref().filter(|_| case.operations == 0);
        failure.filter(|failure| failure.kind == FailureKind::Home)
    });
    failures.next()?.map(|failure| failure.message.as_str())
}

/// A log's file, buffered.
fn create(path: &Path) -> anyhow::Result<Rc<RefCell<Writer<BufWriter<File>>>>> {
    let file = File::create(path).with_context(|| format!("create the operation log {path:?}"))?;
    Ok(Rc::new(RefCell::new(Writer::new(BufWriter::new(file))?)))
}

fn bench(args: &Args) -> anyhow::Result<Bench> {
    let own = subject::own(&args.subject, args.policy.as_deref())?;
    let makers = Makers::new(args.home, own)?;
    let classes = args.classes.read()?;
    let (policies, set) = (&makers.policies, &args.set);
    let tree = match args.subject.as_str() {
        "-" => None,
        name => {
            let tree = subject::load(name, policies, classes.as_ref(), &args.classes, set);
            Some(tree?)
        }
    };
    let memory = args
        .max_memory
        .map_or(Ok(MAX_MEMORY_BYTES), usize::try_from)?;
    let limits = Limits {
        instructions: args.max_instructions,
        memory_bytes: memory,
    };
    let bench = Bench::new(tree, &makers.policies, makers.make);
    Ok(Bench {
        limits,
        seed: args.seed,
        ..bench
    })
}

fn cases(reports: &[Report]) -> usize {
    reports.iter().map(|report| report.cases.len()).sum()
}

fn text(reports: &[Report]) -> String {
    let (mut text, mut next) = (String::from("TAP version 13\n"), 1);
    for report in reports {
        text += &report.text(next);
        next += report.cases.len();
    }
    let failed: usize = reports.iter().map(Report::failed).sum();
    let passed: usize = reports.iter().map(Report::passed).sum();
    let homes = reports.iter().find(|report| !report.homes.is_empty());
    let homes = homes.map_or(String::new(), |report| {
        format!(" (home: {})", report.homes.join(", "))
    });
    text + &format!(
        "1..{}\n# {passed} passed, {failed} failed{homes}\n",
        cases(reports)
    )
}

fn json(args: &Args, reports: &[Report]) -> anyhow::Result<String> {
    let value = json!({
        "schema": SCHEMA,
        "subject": args.subject,
        "passed": reports.iter().map(Report::passed).sum::<usize>(),
        "failed": reports.iter().map(Report::failed).sum::<usize>(),
        "scripts": reports,
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
