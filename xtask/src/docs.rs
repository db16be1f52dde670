//! `cargo xtask docs`: the generated pages.
//!
//! docs/kernel-support.md is what `fairpath features --docs` prints; it is kept in the repository,
//! so `--check` tells whether it is current. How manual pages are made is in [`crate::pages`].

use crate::{pages, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const KERNEL_SUPPORT: &str = "docs/kernel-support.md";

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if a generated page is out of date
    #[arg(long)]
    check: bool,
    /// Make the manual pages, into this directory, and nothing else
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    man: Option<PathBuf>,
    /// The built binary to ask about its command line [default: cargo builds one]
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
        None => kernel_support(args.check),
    }
}

/// The generated pages that exist are current; what nobody has generated yet is not missed.
pub fn check() -> Result<()> {
    if !Path::new(KERNEL_SUPPORT).exists() {
        println!("docs: no {KERNEL_SUPPORT} yet");
        return Ok(());
    }
    kernel_support(true)
}

fn kernel_support(check: bool) -> Result<()> {
    let flags = ["run", "--locked", "--quiet", "--package", "fairpath", "--"];
    let page = run::output(run::cargo().args(flags).args(["features", "--docs"]))?;
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
