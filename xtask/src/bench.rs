//! `cargo xtask bench` and `cargo xtask soak`: what takes long or measures time.
//!
//! Benches are the program of the crate fairpath-bench; a soak is a full run of the tests, then tests of the package
//! fairpath-tests that its cargo feature `soak` switches on, and ten million random operations on the
//! scheduler: in the kernel and natively, beside its oracle.

use crate::{run, test};
use anyhow::{Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};

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
    let flags = [
        "test",
        "--release",
        "--locked",
        "--package",
        "fairpath-tests",
    ];
    run::run(
        run::cargo()
            .args(flags)
            .args(["--features", "soak", "soak", "--", "--nocapture"])
            .args(&args.args)
            .env("FAIRPATH_TEST_SHARE", "full")
            .env("FAIRPATH_BIN_DIR", run::target_dir().join("release")),
    )?;
    scheduler()
}

/// Operations on the scheduler in a soak; queues get as many in every run of their tests.
const SCHED_OPS: &str = "10000000";

fn scheduler() -> Result<()> {
    let flags = ["test", "--release", "--locked", "--package", "fairpath-bpf"];
    run::run(
        run::cargo()
            .args(flags)
            .args(["--test", "sched_beside_oracle", "--", "--nocapture"])
            .env("FAIRPATH_TEST_SHARE", "full")
            .env("FAIRPATH_SCHED_OPS", SCHED_OPS),
    )
}

fn metadata() -> Result<Metadata> {
    Ok(MetadataCommand::new().no_deps().exec()?)
}

fn package<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a Package> {
    metadata.packages.iter().find(|p| p.name.as_str() == name)
}
