//! `cargo xtask tidy`: the house rules, as pure functions over file texts and `cargo metadata`.
//!
//! | file | what it holds |
//! |---|---|
//! | `arrows` | which crate may depend on which |
//! | `commits` | the form of new commits |
//! | `links` | what Markdown pages link to is there |
//! | `source` | Rust and C text with comments (and strings) blanked out |
//! | `places` | what may stand only in some files, and what nowhere |
//! | `promises` | every row of docs/promises.md has a proof that exists |
//!
//! A finding names file and line, the rule, and the remedy.

mod arrows;
mod commits;
mod links;
mod places;
mod promises;
mod source;

use crate::run;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::{Path, PathBuf};

/// A file of the repository, its path relative to the root with `/` between the parts.
pub struct File {
    pub path: String,
    pub text: String,
}

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub rule: &'static str,
    pub message: String,
    pub remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            path,
            line,
            rule,
            message,
            remedy,
        } = self;
        write!(f, "{path}:{line}: {rule}: {message}; remedy: {remedy}")
    }
}

/// What tidy reads; everything else in the repository is data.
const EXTENSIONS: &[&str] = &["rs", "c", "h", "toml", "md"];

pub fn run() -> Result<()> {
    let files = read_files()?;
    let mut findings = arrows::check(&arrows::from_metadata(&files)?);
    findings.extend(places::check(&files));
    findings.extend(links::check(&files, Path::exists));
    findings.extend(promises::check(&files));
    findings.extend(commits::check());
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} house rules broken", findings.len());
    }
    println!("tidy: {} files, every house rule holds", files.len());
    Ok(())
}

fn read_files() -> Result<Vec<File>> {
    let mut files = Vec::new();
    for path in walk(Path::new("."), EXTENSIONS)? {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let path = path
            .strip_prefix(".")
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        files.push(File { path, text });
    }
    let makefile =
        std::fs::read_to_string(run::root().join("Makefile")).context("read Makefile")?;
    files.push(File {
        path: "Makefile".into(),
        text: makefile,
    });
    Ok(files)
}

/// The files below `dir` with one of these extensions, sorted. Hidden directories and those that
/// are caches (what cargo builds) are left out; a directory that is not there has no files.
pub fn walk(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        if !dir.is_dir() || dir.join("CACHEDIR.TAG").exists() {
            continue;
        }
        for entry in std::fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            let entry = entry?;
            let path = entry.path();
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            if entry.file_type()?.is_dir() && !hidden && !is_output(&path) {
                dirs.push(path);
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|x| e == *x))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Directories that the project's own programs write (see .gitignore).
fn is_output(dir: &Path) -> bool {
    [
        "./target",
        "./demo-out",
        "./fuzz/target",
        "./fuzz/corpus",
        "./fuzz/artifacts",
    ]
    .iter()
    .any(|out| dir == Path::new(out))
}

/// Made-up files for the rules' tests.
#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File {
        path: path.into(),
        text: text.into(),
    }
}
