//! `cargo xtask docs`: the generated pages.
//!
//! docs/kernel-support.md is what `fairpath features --docs` prints; it is kept in the repository,
//! so `--check` tells whether it is current. Manual pages are made from docs/guide/*.md.

use crate::{manual, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const KERNEL_SUPPORT: &str = "docs/kernel-support.md";
const GUIDE: &str = "docs/guide";

#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if a generated page is out of date
    #[arg(long)]
    check: bool,
    /// Make the manual pages, into this directory, and nothing else
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    man: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.man {
        Some(dir) => manual_pages(dir),
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

/// One page per file of the guide: `rtt.md` becomes `fairpath-rtt.1`, `fairpath.md` `fairpath.1`.
/// Pages of an earlier call are removed, so what is in the directory is what the guide has.
fn manual_pages(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("empty {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let mut made = 0;
    for source in crate::tidy::walk(Path::new(GUIDE), &["md"])? {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        if ["README", "index"].contains(&&*stem) {
            continue;
        }
        let name = if stem == "fairpath" {
            stem.into_owned()
        } else {
            format!("fairpath-{stem}")
        };
        let text =
            fs::read_to_string(&source).with_context(|| format!("read {}", source.display()))?;
        let page = manual::from_markdown(&name, env!("CARGO_PKG_VERSION"), &text);
        let to = dir.join(format!("{name}.1"));
        fs::write(&to, page).with_context(|| format!("write {}", to.display()))?;
        made += 1;
    }
    println!("docs: {made} manual pages in {}", dir.display());
    Ok(())
}
