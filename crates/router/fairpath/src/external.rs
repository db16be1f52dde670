//! `fairpath NAME` for a NAME of another binary: beside this one, in ../libexec/fairpath, on PATH.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// Replaces this process by `fairpath-NAME`; returns only where there is none.
pub fn run(words: &[OsString]) -> anyhow::Result<()> {
    let (name, arguments) = words.split_first().context("no subcommand given")?;
    let mut file = OsString::from("fairpath-");
    file.push(name);
    let path = find(&file);
    let error = Command::new(path.as_deref().unwrap_or(file.as_ref()))
        .args(arguments)
        .exec();
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
