//! Running the machine's tools, with errors that name the command and what it said.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Where administrators' tools lie although a user's `PATH` may not say so.
const ADMIN_PATHS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where our own programs for guests lie, below the target directory.
pub const BUILT: &str = "vm/programs";

/// Runs a command for its effect.
pub fn run(command: Command) -> Result<()> {
    let mut command = command;
    output(&mut command).map(drop)
}

/// Runs a command and returns what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("run {name}"))?;
    if !output.status.success() {
        bail!(
            "{name}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The path of an installed program, or of one of ours that was built for guests.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // This one is `target/PROFILE/xtask`.
    let me = env::current_exe().unwrap_or_default();
    let built = me.ancestors().nth(2).map(|target| target.join(BUILT));
    let dirs = env::split_paths(&path).chain(ADMIN_PATHS.iter().map(PathBuf::from));
    let dirs = dirs.chain(built);
    dirs.map(|dir| dir.join(name))
        .find(|program| program.is_file())
}

/// `path` with `suffix` added to its last component.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    PathBuf::from(name)
}
