//! Running other programs, with their output left as it is.

use anyhow::{Context, Result, bail};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root, from where this crate was built.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask/ is in the root")
}

/// Runs `f` in the repository's root, wherever it was called from.
pub fn in_root<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    env::set_current_dir(root()).with_context(|| format!("enter {}", root().display()))?;
    f()
}

/// The cargo that runs us, without the wrapper that lints: [`crate::build`] adds it.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS");
    cargo
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Prints the command, runs it, and fails if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("run {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs the command and returns what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let out = command.output().with_context(|| format!("run {line}"))?;
    if !out.status.success() {
        bail!(
            "{line}: {}: {}",
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    String::from_utf8(out.stdout).with_context(|| format!("output of {line}"))
}

/// The LLVM tool of this name that setup/needs provides (`clang-format` -> `clang-format-19`).
pub fn llvm_tool(name: &str) -> Result<String> {
    Ok(output(Command::new("setup/needs").args(["--tool", name]))?
        .trim()
        .to_owned())
}

/// The command as a person types it: `cargo`, not the path to it.
pub fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}
