//! The command line of all binaries, by their own help: one grammar, and errors in one form.

mod by;
mod closed;
mod errors;
mod files;
mod growth;
mod help;
mod hostile;
mod names;
mod stream;

use std::path::{Path, PathBuf};
use std::process::Output;

use fairpath_tests::binary;

/// The program that `fairpath NAME` runs, and the arguments that reach it.
pub struct Binary {
    /// `fairpath`, or `fairpath sched` and so on.
    pub words: &'static [&'static str],
    /// Its executable.
    pub path: PathBuf,
}

/// The binaries that are there: without `FAIRPATH_BIN_DIR`, the demo may not be built.
pub fn binaries() -> Vec<Binary> {
    let fairpath = binary::fairpath();
    let lab = binary::fairpath_lab();
    let next_to = |path: &Path, name: &str| path.with_file_name(name);
    let all = [
        (&["fairpath"][..], fairpath.to_owned()),
        (&["fairpath", "sched"], next_to(fairpath, "fairpath-sched")),
        (&["fairpath", "lab"], lab.to_owned()),
        (&["fairpath", "demo"], next_to(fairpath, "fairpath-demo")),
    ];
    all.into_iter()
        .filter(|(_, path)| path.exists())
        .map(|(words, path)| Binary { words, path })
        .collect()
}

/// Runs a binary, without colors.
pub fn run(path: &Path, words: &[&str]) -> Output {
    binary::command(path)
        .args(words)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The output of a command.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Messages and errors of a command.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
