//! `fairpath sched test`: test a policy or a tree with Lua scripts, in either runtime or both.

use std::cell::RefCell;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::script::{
    Bench, FailureKind, Limits, MAX_INSTRUCTIONS, MAX_MEMORY_BYTES, MAX_TIME, Script, ScriptReport,
};
use anyhow::{Context, bail};
use fairpath_files::Existing;
use fairpath_sched::log::Writer;
use fairpath_units::quantity;
use serde_json::json;

use super::output::TextFormat;
use super::runtimes::{Makers, Runtimes};
use super::subject::{self, ClassArgs};
use super::watch;

/// The schema number of the JSON output.
const SCHEMA: u32 = 1;

/// Arguments of `fairpath sched test`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath sched test stfq weights.lua                     test a built-in policy\n  \
    sudo fairpath sched test mine.c mine.lua --runtime both  compare both runtimes\n  \
    fairpath sched test tree.toml site.lua --record ops.log  record the operations\n  \
    fairpath sched test mine.c mine.lua --watch              test it after each save\n\n\
    Guide: docs/guide/sched-scripts.md. Scripts of the XDP queueing tester are supported.\n\
    Exit status: 0 all expectations hold, 1 a failure, 2 wrong usage.")]
pub struct Args {
    /// Policy name, custom policy (NAME.c), tree (NAME.toml), "classes", or - if the scripts choose
    #[arg(value_name = "SUBJECT")]
    subject: String,
    /// Lua scripts to run
    #[arg(required = true, value_name = "SCRIPT.lua")]
    scripts: Vec<PathBuf>,
    /// Select the runtime of the scheduler
    #[arg(long, value_enum, default_value_t = Runtimes::Native)]
    runtime: Runtimes,
    /// Set a parameter of the policy (NAME=VALUE) or of a node (NODE.NAME=VALUE); repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    classes: ClassArgs,
    /// Read a custom policy that the tree names
    #[arg(long, value_name = "FILE.c")]
    policy_file: Option<PathBuf>,
    /// Record each operation and its outcome for `fairpath sched replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Limit the Lua instructions of a script; a scheduler operation counts as 100
    #[arg(long, value_name = "N", default_value_t = MAX_INSTRUCTIONS)]
    max_instructions: u64,
    /// Limit the memory of a script, for example 512MiB [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_memory: Option<u64>,
    /// Limit the time of a script, for example 10s [default: 5min]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_time: Option<Duration>,
    /// Set the seed of math.random in scripts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Select the output format; text is TAP, the Test Anything Protocol
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    format: TextFormat,
    /// Test again after each change of a file, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let ns = quantity::read(text, "ns");
    ns.map(Duration::from_nanos).map_err(|bad| bad.to_string())
}

fn bytes(text: &str) -> Result<u64, String> {
    quantity::read(text, "bytes").map_err(|bad| bad.to_string())
}

/// Runs the command.
///
/// # Errors
/// A subject or script cannot be read, or an expectation fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !args.watch {
        return once(args);
    }
    let subject = Path::new(&args.subject);
    let mut files: Vec<&Path> = args.scripts.iter().map(PathBuf::as_path).collect();
    files.extend(args.policy_file.as_deref());
    files.extend(subject.is_file().then_some(subject));
    watch::repeat(&files, || once(args))
}

fn once(args: &Args) -> anyhow::Result<()> {
    let mut bench = bench(args)?;
    let scripts: Vec<Script> = args
        .scripts
        .iter()
        .map(|path| Script::load(path))
        .collect::<Result<_, _>>()?;
    let log = args.record.as_deref().map(create).transpose()?;
    if let Some(log) = &log {
        bench.record = Some(log.clone());
    }
    let mut reports: Vec<ScriptReport> = Vec::new();
    for script in &scripts {
        let report = script.run(&bench);
        if let Some(cause) = no_runtime(&report) {
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
    fairpath_cli::print(&text)?;
    let failed: usize = reports.iter().map(ScriptReport::failed).sum();
    if failed > 0 {
        bail!(
            "test {}: {failed} of {} test cases failed",
            args.subject,
            cases(&reports)
        );
    }
    Ok(())
}

/// The reason why no runtime could be opened, so that it is printed once and not for every test.
fn no_runtime(report: &ScriptReport) -> Option<&str> {
    let mut failures = report.cases.iter().map(|case| {
        let failure = case.failure.as_ref().filter(|_| case.operations == 0);
        failure.filter(|failure| failure.kind == FailureKind::Runtime)
    });
    failures.next()?.map(|failure| failure.message.as_str())
}

/// Creates an operation log.
fn create(path: &Path) -> anyhow::Result<Rc<RefCell<Writer<BufWriter<File>>>>> {
    let file = fairpath_files::output(path, Existing::Truncate)
        .with_context(|| format!("create the operation log {path:?}"))?;
    Ok(Rc::new(RefCell::new(Writer::new(BufWriter::new(file))?)))
}

fn bench(args: &Args) -> anyhow::Result<Bench> {
    let own = subject::own(&args.subject, args.policy_file.as_deref())?;
    let makers = Makers::new(args.runtime, own)?;
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
        time: args.max_time.unwrap_or(MAX_TIME),
    };
    let bench = Bench::new(tree, &makers.policies, makers.make);
    Ok(Bench {
        limits,
        seed: args.seed,
        ..bench
    })
}

fn cases(reports: &[ScriptReport]) -> usize {
    reports.iter().map(|report| report.cases.len()).sum()
}

fn text(reports: &[ScriptReport]) -> String {
    let (mut text, mut next) = (String::from("TAP version 13\n"), 1);
    for report in reports {
        text += &report.text(next);
        next += report.cases.len();
    }
    let failed: usize = reports.iter().map(ScriptReport::failed).sum();
    let passed: usize = reports.iter().map(ScriptReport::passed).sum();
    let runtimes = reports.iter().find(|report| !report.runtimes.is_empty());
    let runtimes = runtimes.map_or(String::new(), |report| {
        format!(" (runtime: {})", report.runtimes.join(", "))
    });
    text + &format!(
        "1..{}\n# {passed} passed, {failed} failed{runtimes}\n",
        cases(reports)
    )
}

fn json(args: &Args, reports: &[ScriptReport]) -> anyhow::Result<String> {
    let value = json!({
        "schema": SCHEMA,
        "subject": args.subject,
        "passed": reports.iter().map(ScriptReport::passed).sum::<usize>(),
        "failed": reports.iter().map(ScriptReport::failed).sum::<usize>(),
        "scripts": reports,
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
