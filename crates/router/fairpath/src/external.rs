//! `fairpath NAME` for a NAME of another binary: beside this one, in ../libexec/fairpath, on PATH.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// The command of another binary that this binary's help, manual pages and completions show.
pub const SCHED: &str = "sched";

/// The words for another binary, where the command line names [`SCHED`] or asks for its help.
pub fn shown(words: &[OsString]) -> Option<Vec<OsString>> {
    match words {
        [name, ..] if name == SCHED => Some(words.to_vec()),
        [help, name, rest @ ..] if help == "help" && name == SCHED => {
            let words = [name, help].into_iter().chain(rest);
            Some(words.cloned().collect())
        }
        _ => None,
    }
}

/// Replaces this process by `fairpath-NAME`; returns only where there is none.
pub fn run(words: &[OsString]) -> anyhow::Result<()> {
    let (name, arguments) = words.split_first().context("no subcommand given")?;
    let file = file(name);
    let error = program(name).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        bail!(
            "{:?} is no subcommand, and there is no {:?} beside this binary, in ../libexec/fairpath \
             or on PATH; `fairpath --help` lists the subcommands",
            name,
            file
        );
    }
    Err(error).with_context(|| format!("run {}", file.to_string_lossy()))
}

/// `fairpath-NAME`, where it is found; nothing has looked for it on PATH yet.
pub fn program(name: &OsStr) -> Command {
    let file = file(name);
    let path = find(&file);
    Command::new(path.as_deref().unwrap_or(file.as_ref()))
}

fn file(name: &OsStr) -> OsString {
    let mut file = OsString::from("fairpath-");
    file.push(name);
    file
}

fn find(file: &OsString) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    [
        folder.join(file),
        folder.join("../libexec/fairpath").join(file),
    ]
    .into_iter()
    .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn words_of_a_shown_command_go_to_its_binary() {
        for (line, passed) in [
            ("sched", "sched"),
            ("sched run --help", "sched run --help"),
            ("help sched", "sched help"),
            ("help sched run", "sched help run"),
        ] {
            assert_eq!(shown(&words(line)), Some(words(passed)), "{line}");
        }
        for line in ["", "help", "rtt sched", "--help", "help rtt"] {
            assert_eq!(shown(&words(line)), None, "{line}");
        }
    }
}
