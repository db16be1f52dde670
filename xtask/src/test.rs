//! `cargo xtask test`: every tier, then what was skipped, what took how long, and whether it may.
//!
//! | file | what it holds |
//! |---|---|
//! | `table` | `tests/budget.toml`: classes, what a suite proves, budgets |
//! | `changes` | what changed since everything passed |
//! | `logs` | what tests skipped and repeated, and whether they had a right to |
//! | `shard` | which share of a live suite is a commit's turn |
//! | `plan` | what this run runs |
//! | `schedule` | jobs side by side |
//! | `process` | one program, with a deadline |
//! | `outcome` | what runners print, read |
//! | `report` | counts, times, budgets |
//!
//! Test executables of the one build are run directly, in three phases: those that use a processor, one
//! a processor, and the guests; those that wait, six threads at a time; those that measure, each
//! alone. All run even if one fails. What libtest prints is passed on as it is, when
//! its program has ended.

mod changes;
pub mod logs;
mod outcome;
mod plan;
mod process;
mod report;
mod schedule;
mod shard;
mod table;

use crate::build::{self, Built};
use crate::check;
use anyhow::{Context, Result, bail};
use logs::Logs;
use plan::{Plan, Setting, Wanted, Work};
use report::TestReport;
use schedule::Job;
use shard::Shard;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};
use table::{Class, Table};

/// `skip` omits the binary for arm64, and counts that as a skip.
const NO_CROSS: &str = "FAIRPATH_CROSS";
/// Threads of tests that wait, at a time.
const WAITING: usize = 6;

#[derive(Default, clap::Args)]
pub struct Args {
    /// Check formatting and the project rules first, and the generated pages
    #[arg(long)]
    lint: bool,
    /// Run every test, not a share of the live suites
    #[arg(long)]
    full: bool,
    /// Run this share of the live suites [default: the one that is the commit's turn]
    #[arg(long, value_name = "K/N", conflicts_with = "full")]
    shard: Option<Shard>,
    /// Run only test executables of this class of tests/budget.toml, without the guests
    #[arg(long, value_enum)]
    class: Option<Class>,
    /// Run neither the guest tier nor the binary for arm64
    #[arg(long)]
    no_vm: bool,
    /// Run only tests that contain this in PACKAGE/EXECUTABLE::TEST (without the guest tier)
    filter: Option<String>,
}

impl Args {
    /// Everything there is.
    pub fn full() -> Args {
        Args {
            lint: true,
            full: true,
            ..Args::default()
        }
    }
}

/// Measurements that the tests of one run may repeat.
pub fn most_repeated() -> Result<usize> {
    Ok(Table::read()?.limits.retries)
}

pub fn run(args: &Args) -> Result<()> {
    let mut report = TestReport::new();
    let tested = changes::clean_head();
    if args.lint {
        report.step("formatting and project rules", |_| check::texts())?;
    }
    let built = report.step("the one build, with lints", |_| build::all())?;
    if args.lint {
        report.step("generated pages", |_| check::pages(&built))?;
    }
    let table = Table::read()?;
    let setting = setting(args, &built)?;
    let wanted = Wanted {
        full: args.full,
        shard: args.shard,
        filter: args.filter.as_deref(),
        guests: !args.no_vm && args.class.is_none(),
    };
    let mut plan = report.step("plan", |_| plan::plan(&wanted, &built, &table, &setting))?;
    if let Some(class) = args.class {
        plan.keep(class);
    }
    skip_cross(&mut plan, &setting.logs.skips)?;
    if plan.is_empty() {
        bail!("no test was chosen: no name contains the filter, or no test is of that class");
    }
    let whole = plan.left == 0 && args.filter.is_none() && args.class.is_none() && !args.no_vm;
    phases(plan, &mut report)?;
    report.times();
    conclude(
        args,
        report,
        &table,
        &setting,
        &built,
        whole.then_some(tested),
    )
}

/// The environment of the tests.
fn setting(args: &Args, built: &Built) -> Result<Setting> {
    Ok(Setting {
        binaries: built.binaries.clone(),
        logs: Logs::empty()?,
        seed: plan::seed()?,
        share: plan::share(args.full)?,
    })
}

/// The binary for arm64 is not built where [`NO_CROSS`] says that this machine reaches no archive.
fn skip_cross(plan: &mut Plan, log: &Path) -> Result<()> {
    let before = plan.cpu.len();
    if env::var_os(NO_CROSS).is_some_and(|value| value == "skip") {
        plan.cpu.retain(|job| job.name != plan::CROSS);
    }
    if plan.cpu.len() == before {
        return Ok(());
    }
    let line = format!("cross/arm64\tDebian's archive\t{NO_CROSS}=skip\n");
    let mut file = fs::OpenOptions::new().append(true).open(log)?;
    file.write_all(line.as_bytes())
        .context("write the log of skips")
}

/// Runs the phases one after the other; ends early only when it is interrupted.
fn phases(plan: Plan, report: &mut TestReport) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catch signals")?;
    }
    let processors = thread::available_parallelism().map_or(1, usize::from);
    for (name, jobs, capacity) in [
        ("tests that compute, and guests", plan.cpu, processors),
        ("tests that wait", plan.waiting, WAITING),
        ("tests that measure", plan.alone, 1),
    ] {
        report.step(name, |report| phase(jobs, capacity, &stop, report));
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
    }
    Ok(())
}

fn phase(jobs: Vec<Job<Work>>, capacity: usize, stop: &AtomicBool, report: &mut TestReport) {
    // Both are called on this thread, one after the other.
    let report = std::cell::RefCell::new(report);
    schedule::all(
        jobs,
        capacity,
        |job| (!stop.load(Ordering::Relaxed)).then(|| process::run(&job.what.order, stop)),
        |job, ended| match ended {
            Some(Ok(ended)) => report.borrow_mut().ended(job, &ended),
            Some(Err(error)) => report.borrow_mut().fail(format!("{}: {error:#}", job.name)),
            None => {}
        },
        |names| report.borrow().still_running(names),
    );
}

/// The audits, then the closing lines.
fn conclude(
    args: &Args,
    mut report: TestReport,
    table: &Table,
    setting: &Setting,
    built: &Built,
    whole: Option<Option<String>>,
) -> Result<()> {
    let audit = setting.logs.audit(table.limits.retries, &built.binaries)?;
    for why in audit.faults {
        report.fail(why);
    }
    if args.full {
        println!("budgets: not checked in a full run");
    } else {
        for why in report.over_budget(table) {
            report.fail(why);
        }
    }
    // A test that skips returns, which libtest counts as passed.
    let (passed, failed) = (report.counts.passed, report.counts.failed);
    let passed = passed.saturating_sub(audit.skipped - audit.elsewhere);
    let skipped = audit.skipped;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if !report.failed.is_empty() {
        bail!("tests failed:\n  {}", report.failed.join("\n  "));
    }
    // A test that was skipped has not passed, and one that is another commit's turn has not run.
    if let Some(tested) = whole.filter(|_| skipped == 0) {
        // With another share or seed, it is one run of many.
        changes::record(tested, args.full && setting.share == plan::FULL)?;
    }
    let narrowed = args.filter.is_some() || args.class.is_some() || args.no_vm;
    println!(
        "test: {} passed",
        if narrowed {
            "the selected tests passed"
        } else {
            "every tier"
        }
    );
    Ok(())
}
