//! `cargo xtask check`: everything that needs no test run.
//!
//! Formatting and the project rules need no build of the workspace. They run first, all of them even if one
//! fails. If they pass, the one build runs, which lints, and then the checks that need its programs.

use crate::build::{self, Built};
use crate::{docs, run, tidy};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The subject of a part, and the function that checks it.
type Part = (&'static str, fn() -> Result<()>);

pub fn run() -> Result<()> {
    texts()?;
    pages(&build::all()?)?;
    println!("check: all good");
    Ok(())
}

/// Checks that only read files.
pub fn texts() -> Result<()> {
    let parts: [Part; 3] = [
        ("fmt", fmt),
        ("clang-format", clang_format),
        ("tidy", tidy::run),
    ];
    let mut failed = Vec::new();
    for (name, part) in parts {
        if let Err(error) = part() {
            eprintln!("check: {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("check failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Checks of files that must agree with the build.
pub fn pages(built: &Built) -> Result<()> {
    let fairpath = built.program("fairpath");
    docs::check(&fairpath)?;
    tidy::prose::check_help(&fairpath)?;
    tidy::options::check_messages(&fairpath)
}

fn fmt() -> Result<()> {
    run::run(run::cargo().args(["fmt", "--all", "--check"])).context("remedy: cargo fmt --all")
}

fn clang_format() -> Result<()> {
    let files = c_files()?;
    if files.is_empty() {
        println!("clang-format: no C yet");
        return Ok(());
    }
    let tool = run::llvm_tool("clang-format")?;
    println!("$ {tool} --dry-run --Werror ({} files)", files.len());
    let status = Command::new(&tool)
        .args(["--dry-run", "--Werror"])
        .args(&files)
        .status()
        .with_context(|| format!("run {tool}; remedy: make setup"))?;
    if !status.success() {
        bail!("remedy: {tool} -i on the files named above");
    }
    Ok(())
}

/// The C we write: bpf/ and what fairpath-core compiles with it.
fn c_files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for dir in ["bpf", "crates/model/core"] {
        files.extend(tidy::walk(Path::new(dir), &["c", "h"])?);
    }
    // Made by bpftool from a kernel's types, not by us.
    files.retain(|f| f.file_name().is_none_or(|n| n != "vmlinux.h"));
    Ok(files)
}
