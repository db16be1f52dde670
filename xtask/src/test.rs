//! `cargo xtask test`: every tier, then what was skipped and why.
//!
//! Tiers 0 (pure), 1 (prototype) and 2 (namespaces) are the tests and documentation examples of
//! the workspace; tier 3 is `cargo xtask vm`; `cargo xtask cross` follows. All run even if one fails. What the runners
//! print is passed on as it is.

use crate::skips::{self, Present, Skip};
use crate::{has_subcommand, run};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// `skip` leaves the binary for arm64 out, and counts that as a skip.
const NO_CROSS: &str = "FAIRPATH_CROSS";

#[derive(clap::Args)]
pub struct Args {
    /// Leave the guest tier and the binary for arm64 out
    #[arg(long)]
    no_vm: bool,
    /// Only tests whose name contains this (the guest tier is left out)
    filter: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let target = run::target_dir();
    fs::create_dir_all(&target).with_context(|| format!("create {}", target.display()))?;
    let log = fs::canonicalize(&target)?.join("skipped-tests.tsv");
    fs::write(&log, "").with_context(|| format!("empty {}", log.display()))?;
    let binaries = build_binaries(&target)?;

    let mut failed = Vec::new();
    if let Err(error) = workspace_tests(args, &log, &binaries) {
        failed.push(format!("{error:#}"));
    }
    if args.filter.is_none()
        && let Err(error) = crate::sanitize::run()
    {
        failed.push(format!("{error:#}"));
    }
    if !args.no_vm
        && args.filter.is_none()
        && let Err(error) = guest_tests(&log, &binaries)
    {
        failed.push(format!("{error:#}"));
    }
    if !args.no_vm
        && args.filter.is_none()
        && let Err(error) = cross_build(&log)
    {
        failed.push(format!("{error:#}"));
    }
    failed.extend(report_skips(&log, &binaries)?);
    if !failed.is_empty() {
        bail!("tests failed:\n  {}", failed.join("\n  "));
    }
    println!("test: every tier passed");
    Ok(())
}

/// Builds the programs the scenarios run, and returns the directory they are in.
fn build_binaries(target: &Path) -> Result<PathBuf> {
    run::run(run::cargo().args(["build", "--workspace", "--bins", "--locked", "--quiet"]))?;
    Ok(fs::canonicalize(target.join("debug"))?)
}

/// Tiers 0, 1 and 2. `FAIRPATH_BIN_DIR` tells the scenarios which binaries to run.
fn workspace_tests(args: &Args, log: &Path, binaries: &Path) -> Result<()> {
    run::run(
        run::cargo()
            .args(["test", "--workspace", "--locked", "--no-fail-fast"])
            .args(&args.filter)
            .env("FAIRPATH_SKIP_LOG", log)
            .env("FAIRPATH_BIN_DIR", binaries),
    )
}

/// Tier 3. The guests' runner is a subcommand of ours, run as it can be by hand.
fn guest_tests(log: &Path, binaries: &Path) -> Result<()> {
    if !has_subcommand("vm") {
        let line = "vm/all\tthe subcommand `cargo xtask vm`\tthe guest tier is not written yet\n";
        return Ok(fs::write(log, fs::read_to_string(log)? + line)?);
    }
    // Through cargo: building the tests may have replaced the program that runs here.
    let flags = [
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--",
        "vm",
    ];
    run::run(
        run::cargo()
            .args(flags)
            .env("FAIRPATH_SKIP_LOG", log)
            .env("FAIRPATH_BIN_DIR", binaries),
    )
}

/// The binary for arm64, unless [`NO_CROSS`] says that this machine reaches no archive.
fn cross_build(log: &Path) -> Result<()> {
    if env::var_os(NO_CROSS).is_some_and(|value| value == "skip") {
        let line = format!("cross/arm64\tDebian's archive\t{NO_CROSS}=skip\n");
        let mut file = fs::OpenOptions::new().append(true).open(log)?;
        return file
            .write_all(line.as_bytes())
            .context("write the log of skips");
    }
    let flags = ["run", "--quiet", "--locked", "--package", "xtask", "--"];
    run::run(run::cargo().args(flags).arg("cross"))
}

/// Prints each skip and their number; returns those that this machine gave no reason for.
fn report_skips(log: &Path, binaries: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    let skips = skips::parse(&text).map_err(anyhow::Error::msg)?;
    for skip in &skips {
        println!("{skip}");
    }
    println!("{} skipped", skips.len());
    let present = present(&skips, binaries);
    Ok(skips
        .iter()
        .filter_map(|s| unjustified(s, &present))
        .collect())
}

fn unjustified(skip: &Skip, present: &Present) -> Option<String> {
    let why = present.contradicts(skip, on_path)?;
    Some(format!(
        "{} was skipped for want of {}, but {why}",
        skip.test, skip.need
    ))
}

/// What this machine has, asked only if a skip depends on it.
fn present(skips: &[Skip], binaries: &Path) -> Present {
    let mut present = Present {
        root: is_root(),
        ..Present::default()
    };
    if skips.iter().any(|s| s.need.starts_with("feature:")) {
        let asked = Command::new(binaries.join("fairpath"))
            .args(["features", "--format", "json"])
            .output()
            .map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
        present.features = skips::available_features(&asked.unwrap_or_default());
        if present.features.is_empty() {
            println!("`fairpath features` named no feature: skips are taken at their word");
        }
    }
    present
}

fn is_root() -> bool {
    run::output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

fn on_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
