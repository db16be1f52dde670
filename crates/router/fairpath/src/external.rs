//! `fairpath NAME` for another binary: in the directory of this one, in ../libexec/fairpath, or on PATH.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use fairpath_cli::wrong_usage;
use fairpath_units::nearest;

/// Commands of other binaries that help, manual pages and completions of this binary list.
pub const LISTED: [&str; 3] = ["sched", "lab", "demo"];

/// The words for another binary, where the command line names one of [`LISTED`] or its help.
pub fn listed(words: &[OsString]) -> Option<Vec<OsString>> {
    let is_listed = |name: &OsString| LISTED.iter().any(|listed| name == listed);
    match words {
        [name, ..] if is_listed(name) => Some(words.to_vec()),
        [help, name, rest @ ..] if help == "help" && is_listed(name) => {
            // The demo has no subcommands.
            let flag = OsString::from(if name == "demo" { "--help" } else { "help" });
            let words = [name, &flag].into_iter().chain(rest);
            Some(words.cloned().collect())
        }
        _ => None,
    }
}

/// Replaces this process by `fairpath-NAME`; returns only on failure.
///
/// # Errors
/// There is no such binary, or it cannot be run.
pub fn run(words: &[OsString]) -> anyhow::Result<()> {
    let (name, arguments) = words.split_first().context("no subcommand given")?;
    let file = file(name);
    let error = program(name).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(unknown(&name.to_string_lossy(), &file.to_string_lossy()));
    }
    Err(error).with_context(|| format!("run {}", file.to_string_lossy()))
}

fn unknown(name: &str, file: &str) -> anyhow::Error {
    if LISTED.contains(&name) {
        return anyhow::anyhow!(
            "{name}: there is no {file} in the directory of this binary, in ../libexec/fairpath or \
             on PATH: install it, or build it with `make build`"
        );
    }
    let definition = crate::definition();
    let names: Vec<&str> = definition.get_subcommands().map(|c| c.get_name()).collect();
    let remedy = match nearest(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`fairpath --help` lists the subcommands".to_owned(),
    };
    wrong_usage(format!("unknown subcommand {name:?}: {remedy}"))
}

/// `fairpath-NAME` where it is found; PATH is searched when it is run.
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
    fn words_of_listed_command_go_to_its_binary() {
        for (line, passed) in [
            ("sched", "sched"),
            ("sched run --help", "sched run --help"),
            ("help sched", "sched help"),
            ("help sched run", "sched help run"),
            ("lab run --quick", "lab run --quick"),
            ("help demo", "demo --help"),
        ] {
            assert_eq!(listed(&words(line)), Some(words(passed)), "{line}");
        }
        for line in ["", "help", "rtt sched", "--help", "help rtt"] {
            assert_eq!(listed(&words(line)), None, "{line}");
        }
    }
}
