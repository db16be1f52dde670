//! Where the binary under test is.
//!
//! `FAIRPATH_BIN_DIR` names its directory (`cargo xtask test` sets it). Without it, cargo builds the
//! binary next to the tests, which is quick when it is there already.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use fairpath_testbed::with_default_signals;

/// Path of `fairpath`, with `fairpath-sched` next to it, which `fairpath sched` runs.
///
/// # Panics
/// Where it is neither named nor can be built.
pub fn fairpath() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| named_or_built("fairpath", &["fairpath", "fairpath-author"]))
}

/// Path of `fairpath-lab`.
///
/// # Panics
/// As [`fairpath`].
pub fn fairpath_lab() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| named_or_built("fairpath-lab", &["fairpath-lab"]))
}

/// A command of `program` that Ctrl-C ends, however this process was started.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    with_default_signals(&mut command);
    command
}

/// Puts `binary` into `directory`, for users that have no access to its own, and returns its path there.
/// A link, where possible: a copy can't be run while a test next to this one starts a process, which
/// holds the copy open for writing.
///
/// # Panics
/// Where the file can't be written.
pub fn put_into(directory: &Path, binary: &Path) -> PathBuf {
    let there = directory.join(binary.file_name().expect("a binary has a name"));
    if fs::hard_link(binary, &there).is_err() {
        fs::copy(binary, &there).expect("a copy of the binary");
    }
    there
}

fn named_or_built(binary: &str, packages: &[&str]) -> PathBuf {
    match env::var_os("FAIRPATH_BIN_DIR") {
        Some(directory) => PathBuf::from(directory).join(binary),
        None => build(binary, packages),
    }
}

/// Builds the binaries of packages, and returns the path of one.
fn build(binary: &str, packages: &[&str]) -> PathBuf {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--bins"])
        .args(
            packages
                .iter()
                .map(|package| format!("--package={package}")),
        )
        .args((!cfg!(debug_assertions)).then_some("--release"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(
        status.as_ref().is_ok_and(|s| s.success()),
        "build the binary under test: {status:?}; or name its directory in FAIRPATH_BIN_DIR"
    );
    // PROFILE/deps/netns-HASH -> PROFILE/fairpath
    let test = env::current_exe().expect("a running test has a path");
    let profile = test.parent().and_then(Path::parent);
    profile.expect("tests lie in PROFILE/deps").join(binary)
}
