//! `cargo xtask tidy`: the project rules, as pure functions over file texts and `cargo metadata`.
//!
//! | file | rule |
//! |---|---|
//! | `arrows` | dependencies between crates |
//! | `boundaries` | docs/design/unsafe.md lists all unsafe code |
//! | `commits` | the form of new commits |
//! | `links` | links of Markdown pages have a target |
//! | `names` | the names of types and tests in Rust code |
//! | `openings` | documentation comments open with a statement |
//! | `source` | no rule: Rust and C text with comments (and strings) blanked |
//! | `options` | options in messages exist (with the built programs) |
//! | `places` | code that is allowed in some files only, or nowhere |
//! | `promises` | every row of docs/promises.md has a proof that exists |
//! | `prose` | sentences are short |
//! | `words` | words that docs/glossary.md replaces |
//!
//! A finding names file and line, the rule, and the remedy.

mod arrows;
mod boundaries;
mod commits;
mod links;
mod names;
mod openings;
pub mod options;
mod places;
mod promises;
pub mod prose;
mod source;
pub mod words;

use anyhow::{Context, Result, bail};
use std::borrow::Cow;
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
    pub remedy: Cow<'static, str>,
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

/// The extensions of the files that tidy reads.
const EXTENSIONS: &[&str] = &["rs", "c", "h", "toml", "md"];

pub fn run() -> Result<()> {
    let files = read_files()?;
    let mut findings = arrows::check(&arrows::from_metadata(&files)?);
    findings.extend(arrows::router()?);
    findings.extend(places::check(&files));
    findings.extend(boundaries::check(&files));
    findings.extend(links::check(&files, Path::exists));
    findings.extend(names::check(&files));
    findings.extend(openings::check(&files));
    findings.extend(promises::check(&files));
    findings.extend(commits::check());
    findings.extend(words::check()?);
    findings.extend(prose::check(&files)?);
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy: {} files, no findings", files.len());
    Ok(())
}

fn read_files() -> Result<Vec<File>> {
    let found = walk(Path::new("."), EXTENSIONS)?;
    read_more(found.into_iter().chain([PathBuf::from("Makefile")]))
}

fn read_more(paths: impl Iterator<Item = PathBuf>) -> Result<Vec<File>> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        let path = path.strip_prefix(".").unwrap_or(&path);
        Ok(File {
            path: path.to_string_lossy().into_owned(),
            text,
        })
    };
    paths.map(read).collect()
}

/// True if a path is this file, is below this directory, or the place is `.`.
fn is_in(path: &str, place: &str) -> bool {
    let place = place.trim_end_matches('/');
    let rest = path.strip_prefix(place);
    place == "." || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The files below `dir` with one of these extensions, sorted.
///
/// Hidden directories and caches (cargo's target directory) are excluded. A missing directory has no files.
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

/// Directories that the project's programs write (see .gitignore).
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

/// A file for tests of the rules.
#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File {
        path: path.into(),
        text: text.into(),
    }
}
