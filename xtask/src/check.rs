//! `cargo xtask check`: everything that needs no test run.
//!
//! Every part runs even if one before it failed, so one call shows all there is to mend.

use crate::{docs, run, tidy};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a part checks, and the function that does.
type Part = (&'static str, fn() -> Result<()>);

pub fn run() -> Result<()> {
    let parts: [Part; 5] = [
        ("fmt", fmt),
        ("clippy", clippy),
        ("clang-format", clang_format),
        ("tidy", tidy::run),
        ("docs", docs::check),
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
    println!("check: all good");
    Ok(())
}

fn fmt() -> Result<()> {
    run::run(run::cargo().args(["fmt", "--all", "--check"])).context("remedy: cargo fmt --all")
}

fn clippy() -> Result<()> {
    let flags = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--quiet",
    ];
    run::run(run::cargo().args(flags).args(["--", "-D", "warnings"]))
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

/// The C we write: bpf/ and what fairpath-core compiles beside it.
fn c_files() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for dir in ["bpf", "crates/model/core"] {
        files.extend(tidy::walk(Path::new(dir), &["c", "h"])?);
    }
    // Made by bpftool from a kernel's types, not by us.
    files.retain(|f| f.file_name().is_none_or(|n| n != "vmlinux.h"));
    Ok(files)
}
