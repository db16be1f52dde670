//! `cargo xtask bench` and `cargo xtask soak`: what takes long or measures time.
//!
//! Benches are the program of the crate fairpath-bench; a soak is a full run of the tests, then tests of the package
//! fairpath-tests that its cargo feature `soak` switches on, ten million random operations on the scheduler, in the kernel
//! and natively, next to its oracle, and the oracle of bridge rules in a guest.

use crate::test::logs::Logs;
use crate::{run, test};
use anyhow::{Result, bail, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use std::env;
use std::process::Command;

#[derive(clap::Args)]
pub struct Args {
    /// Passed on to the harness
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub fn bench(args: &Args) -> Result<()> {
    if package(&metadata()?, "fairpath-bench").is_none() {
        bail!("there are no benches yet (they will be the crate fairpath-bench)");
    }
    // What is measured is the binary that is installed.
    run::run(run::cargo().args(["build", "--release", "--locked", "--package", "fairpath"]))?;
    let flags = [
        "run",
        "--release",
        "--locked",
        "--quiet",
        "--package",
        "fairpath-bench",
        "--",
    ];
    run::run(run::cargo().args(flags).args(&args.args))
}

pub fn soak(args: &Args) -> Result<()> {
    let metadata = metadata()?;
    if !package(&metadata, "fairpath-tests").is_some_and(|p| p.features.contains_key("soak")) {
        bail!("there are no soaks yet (they will be the feature `soak` of fairpath-tests)");
    }
    if args.args.is_empty() {
        // Every test whole and every oracle with all of its operations, before what is a soak only.
        test::run(&test::Args::full())?;
    }
    run::run(run::cargo().args(["build", "--release", "--workspace", "--bins", "--locked"]))?;
    let logs = Logs::empty()?;
    let binaries = run::target_dir().join("release");
    let scenarios = Soak {
        package: ["--package", "fairpath-tests", "--features", "soak"].to_vec(),
        filter: Some("soak"),
    };
    scenarios.run(&args.args, &logs, |command| {
        command.env("FAIRPATH_BIN_DIR", &binaries)
    })?;
    let scheduler = Soak {
        package: [
            "--package",
            "fairpath-bpf",
            "--test",
            "sched_against_oracle",
        ]
        .to_vec(),
        filter: None,
    };
    scheduler.run(&[], &logs, |command| {
        command.env("FAIRPATH_SCHED_OPS", SCHED_OPS)
    })?;
    for seed in BRIDGE_SEEDS {
        let mut guest = Command::new(env::current_exe()?);
        guest
            .args(["vm", "--kernel", "floor", "--scenario", "bridge-oracle"])
            .env("FAIRPATH_TEST_SEED", seed)
            .env("FAIRPATH_VM_SHARE", "full")
            .envs(logs.variables());
        run::run(&mut guest)?;
    }
    // A quarter of 10,000 classes, 2,000 of which are always active, by 5 min.
    let quarter = ["10000", "2000", "90", "300", "2"];
    let archive = [
        "--package",
        "fairpath-archive",
        "--example",
        "archive",
        "--",
    ];
    let mut archive_run = run::cargo();
    archive_run
        .args(["run", "--release", "--locked"])
        .args(archive)
        .args(quarter);
    run::run(&mut archive_run)?;
    let audit = logs.audit(test::most_repeated()?, &binaries)?;
    println!("soak: passed, {} skipped", audit.skipped);
    if !audit.faults.is_empty() {
        bail!("soak: {}", audit.faults.join("\n  "));
    }
    Ok(())
}

/// Operations on the scheduler in a soak; queues get as many in every run of their tests.
const SCHED_OPS: &str = "10000000";

/// Seeds of the oracle of bridge rules: each is the first of 500 rulesets with 128 frames.
const BRIDGE_SEEDS: [&str; 4] = ["100000", "200000", "300000", "400000"];

/// Tests in release form that a soak adds.
struct Soak {
    package: Vec<&'static str>,
    filter: Option<&'static str>,
}

impl Soak {
    /// Runs them, at least one, with `arguments` for libtest.
    fn run(
        &self,
        arguments: &[String],
        logs: &Logs,
        prepare: impl Fn(&mut Command) -> &mut Command,
    ) -> Result<()> {
        let command = |arguments: &[String]| {
            let mut command = run::cargo();
            command
                .args(["test", "--release", "--locked"])
                .args(&self.package)
                .args(self.filter)
                .arg("--")
                .args(arguments)
                .env("FAIRPATH_TEST_SHARE", "full")
                .envs(logs.variables());
            prepare(&mut command);
            command
        };
        let list = [arguments, &["--list".to_owned()]].concat();
        let list = run::output(&mut command(&list))?;
        let tests = list.lines().filter(|line| line.ends_with(": test")).count();
        ensure!(
            tests > 0,
            "soak: no test of {} was chosen by {arguments:?}",
            self.package[1]
        );
        let arguments = [&["--nocapture".to_owned()], arguments].concat();
        run::run(&mut command(&arguments))
    }
}

fn metadata() -> Result<Metadata> {
    Ok(MetadataCommand::new().no_deps().exec()?)
}

fn package<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a Package> {
    metadata.packages.iter().find(|p| p.name.as_str() == name)
}
