//! `cargo xtask docs`: the generated pages.
//!
//! docs/kernel-support.md is the output of `fairpath features --docs`. It is kept in the repository, so
//! `--check` compares it with the present output. [`crate::pages`] writes the manual pages.

use crate::{build, pages, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const KERNEL_SUPPORT: &str = "docs/kernel-support.md";

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing, and fail if a generated page is out of date
    #[arg(long)]
    check: bool,
    /// Write only the manual pages, into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    man: Option<PathBuf>,
    /// The built binary that prints its manual pages [default: cargo builds one]
    #[arg(long, value_name = "FILE", requires = "man")]
    binary: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.man {
        Some(dir) => {
            let made = pages::write(dir, args.binary.as_deref())?;
            println!("docs: {made} manual pages in {}", dir.display());
            Ok(())
        }
        None => kernel_support(args.check, &build::all()?.program("fairpath")),
    }
}

/// Fails if a generated page differs from the output of `binary`. A missing page is no failure.
pub fn check(binary: &Path) -> Result<()> {
    if !Path::new(KERNEL_SUPPORT).exists() {
        println!("docs: no {KERNEL_SUPPORT} yet");
        return Ok(());
    }
    kernel_support(true, binary)
}

fn kernel_support(check: bool, binary: &Path) -> Result<()> {
    let page = run::output(Command::new(binary).args(["features", "--docs"]))?;
    if page.trim().is_empty() {
        bail!("`fairpath features --docs` printed nothing");
    }
    let current = fs::read_to_string(KERNEL_SUPPORT).unwrap_or_default();
    match (page == current, check) {
        (true, _) => println!("docs: {KERNEL_SUPPORT} is current"),
        (false, true) => bail!("{KERNEL_SUPPORT} is out of date; remedy: make docs"),
        (false, false) => {
            fs::create_dir_all("docs").context("create docs")?;
            fs::write(KERNEL_SUPPORT, page).with_context(|| format!("write {KERNEL_SUPPORT}"))?;
            println!("docs: wrote {KERNEL_SUPPORT}");
        }
    }
    Ok(())
}
