//! The changes since every test passed, and the suites that run whole because of them.
//!
//! `tests/passed-in-full` holds a commit: every test passed on it, or on a full run of an earlier one that
//! is the same in all that the test covers. A live suite runs whole if its own files, or its parts that
//! are `apart`, differ from that commit, uncommitted changes included. It runs half of its tests if only a
//! crate that it covers differs, one that such a crate is built on, or what all are made of: such a change
//! concerns most suites, and all of them take longer than a run may. Where git cannot say (no history, an unknown commit), everything runs. In
//! `tests/budget.toml` it is a suite's own entry that counts, without its times.

use super::table::{self, Covers, Table};
use crate::run;
use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const PASSED: &str = "tests/passed-in-full";

/// Files that every crate is built with, and how all of them are run.
const OF_ALL: [&str; 4] = ["Cargo.toml", "Cargo.lock", "setup/", ".cargo/"];
/// The C that these crates compile.
const C: (&str, [&str; 2]) = ("bpf/", ["fairpath-core", "fairpath-bpf"]);

/// Our packages: the directory and the dependencies of each.
#[derive(Debug, Default)]
pub struct Packages {
    /// Directories end in a slash.
    dirs: BTreeMap<String, String>,
    arrows: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    pub fn of_workspace() -> Result<Packages> {
        let metadata = MetadataCommand::new()
            .no_deps()
            .exec()
            .context("cargo metadata")?;
        let mut packages = Packages::default();
        for package in &metadata.packages {
            let name = package.name.to_string();
            let dir = package.manifest_path.parent().unwrap_or("".into());
            let dir = dir.strip_prefix(&metadata.workspace_root).unwrap_or(dir);
            packages.dirs.insert(format!("{dir}/"), name.clone());
            let built_on = package.dependencies.iter().filter(|dependency| {
                dependency.path.is_some() && dependency.kind != DependencyKind::Development
            });
            let built_on = built_on.map(|dependency| dependency.name.clone()).collect();
            packages.arrows.insert(name, built_on);
        }
        Ok(packages)
    }

    pub fn names(&self) -> BTreeSet<&str> {
        self.arrows.keys().map(String::as_str).collect()
    }

    /// A crate and all that it is built on.
    fn below(&self, name: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            if all.insert(name.clone()) {
                open.extend(self.arrows.get(&name).into_iter().flatten().cloned());
            }
        }
        all
    }

    /// The packages that a file is part of.
    fn of(&self, path: &str) -> Vec<&str> {
        if path.starts_with(C.0) {
            return C.1.to_vec();
        }
        let inside = self.dirs.iter().filter(|(dir, _)| path.starts_with(*dir));
        let nearest = inside.max_by_key(|(dir, _)| dir.len());
        nearest.map(|(_, name)| name.as_str()).into_iter().collect()
    }
}

/// The start of the changes.
#[derive(Debug)]
pub enum Since {
    /// Why nothing is.
    Unknown(String),
    /// The commit that passed, and the files that differ from it.
    Commit(String, Vec<String>),
}

/// The reason for more than a share of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Something that is the suite's own changed: all of it runs.
    Near(String),
    /// Something that it is built on changed: half of it runs.
    Below(String),
}

/// Files that may differ for suites to run whole. More changes concern almost all suites, and all tests
/// take longer than a run may.
const FEW: usize = 150;

impl Since {
    /// True if too many files differ for suites to run whole.
    pub fn is_much(&self) -> bool {
        matches!(self, Since::Commit(_, files) if files.len() > FEW)
    }

    pub fn read() -> Since {
        match Since::from_git() {
            Ok(since) => since,
            Err(error) => Since::Unknown(format!("{error:#}")),
        }
    }

    fn from_git() -> Result<Since> {
        let text = fs::read_to_string(PASSED).with_context(|| format!("no {PASSED}"))?;
        let passed = text
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned();
        // A whole id: a name such as HEAD would be the tree itself, which never differs.
        let is_id = passed.len() >= 40 && passed.bytes().all(|b| b.is_ascii_hexdigit());
        ensure!(is_id, "{PASSED} names no commit by its whole id");
        git(&["merge-base", "--is-ancestor", &passed, "HEAD"])
            .with_context(|| format!("{passed} of {PASSED} is not in this history"))?;
        let changed = git(&["diff", "--name-only", "--no-renames", &passed])?;
        let new = git(&["ls-files", "--others", "--exclude-standard"])?;
        let files = changed.lines().chain(new.lines());
        Ok(Since::Commit(passed, files.map(str::to_owned).collect()))
    }

    /// Why more than a share of what covers this runs; `None`: nothing that it covers changed. Files of
    /// a part that is `apart` count if it covers the part.
    pub fn reason(
        &self,
        covers: &Covers,
        packages: &Packages,
        apart: &BTreeMap<String, Vec<String>>,
    ) -> Option<Reason> {
        let files = match self {
            Since::Unknown(why) => return Some(Reason::Near(why.clone())),
            Since::Commit(_, files) => files,
        };
        let below: BTreeSet<String> = covers
            .crates
            .iter()
            .flat_map(|name| packages.below(name))
            .collect();
        let within = |file: &str, paths: &[String]| {
            let mut paths = paths.iter();
            paths.any(|path| Path::new(file).starts_with(path))
        };
        let part_of = |file: &str| apart.iter().find(|(_, paths)| within(file, paths));
        let is_near = |file: &&String| {
            within(file, &covers.paths)
                || part_of(file).is_some_and(|(part, _)| covers.apart.contains(part))
        };
        let is_below = |file: &&String| {
            let is_of_crates = || packages.of(file).iter().any(|name| below.contains(*name));
            of_all(file)
                || within(file, &covers.shared)
                || part_of(file).is_none() && is_of_crates()
        };
        let changed = |file: &String| format!("{file} changed");
        let near = files.iter().find(is_near);
        let near = near.map(|file| Reason::Near(changed(file)));
        near.or_else(|| {
            let file = files.iter().find(is_below)?;
            Some(Reason::Below(changed(file)))
        })
    }

    /// Why a suite or a guest's scenario runs whole because it is run otherwise than it was.
    pub fn entry(&self, name: &str, now: &Table) -> Option<String> {
        let Since::Commit(passed, files) = self else {
            return None;
        };
        let unchanged = || {
            let before = git(&["show", &format!("{passed}:{}", table::FILE)]).ok()?;
            let before = Table::parse(&before).ok()?;
            before.runs_alike(now, name).then_some(())
        };
        let file = files.iter().find(|file| *file == table::FILE)?;
        unchanged().is_none().then(|| format!("{file} changed"))
    }

    /// The first changed file of which `matters` is true; unknown counts as changed.
    pub fn find(&self, matters: impl Fn(&str) -> bool) -> Option<String> {
        match self {
            Since::Unknown(why) => Some(why.clone()),
            Since::Commit(_, files) => files
                .iter()
                .find(|file| matters(file))
                .map(|file| format!("{file} changed")),
        }
    }
}

fn of_all(file: &str) -> bool {
    OF_ALL
        .iter()
        .any(|of_all| file == *of_all || (of_all.ends_with('/') && file.starts_with(of_all)))
}

/// The commit that is checked out, if git knows.
pub fn head() -> Option<String> {
    git(&["rev-parse", "HEAD"])
        .ok()
        .map(|id| id.trim().to_owned())
}

/// The commit that is checked out, if no file differs from it.
pub fn clean_head() -> Option<String> {
    let changed = git(&["status", "--porcelain"]).ok()?;
    head().filter(|_| changed.is_empty())
}

/// Writes the commit on which every test passed, or says how: only `full` runs change the work tree.
/// `tested` is [`clean_head`] as it was before the build.
///
/// # Errors
/// Where the file cannot be written.
pub fn record(tested: Option<String>, full: bool) -> Result<()> {
    let Some(head) = tested.filter(|tested| clean_head().as_ref() == Some(tested)) else {
        println!(
            "test: {PASSED} is not changed: the tree is no commit, or files changed during the run"
        );
        return Ok(());
    };
    if full {
        fs::write(PASSED, format!("{head}\n")).with_context(|| format!("write {PASSED}"))?;
        println!("test: everything passed on {head}: commit {PASSED}");
    } else {
        println!("test: no test was omitted: to record it, write {head} to {PASSED}");
    }
    Ok(())
}

fn git(arguments: &[&str]) -> Result<String> {
    run::output(Command::new("git").args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Packages {
        let of = |pairs: &[(&str, &str)]| {
            let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
            pairs.iter().map(own).collect()
        };
        let arrows = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Packages {
            dirs: of(&[
                ("crates/model/core/", "fairpath-core"),
                ("crates/model/rtt/", "fairpath-rtt"),
                ("crates/show/top/", "fairpath-top"),
                ("tests/", "fairpath-tests"),
            ]),
            arrows: BTreeMap::from([
                ("fairpath-core".to_owned(), BTreeSet::new()),
                ("fairpath-rtt".to_owned(), arrows(&["fairpath-core"])),
                ("fairpath-top".to_owned(), arrows(&["fairpath-rtt"])),
                ("fairpath-tests".to_owned(), BTreeSet::new()),
            ]),
        }
    }

    fn reason(file: &str, crates: &[&str], paths: &[&str], apart: &[&str]) -> Option<Reason> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let covers = Covers {
            crates: own(crates),
            paths: own(paths),
            apart: own(apart),
            shared: own(&["tests/src"]),
        };
        let apart = BTreeMap::from([("rules".to_owned(), own(&["bpf/core/rules"]))]);
        Since::Commit("c".to_owned(), vec![file.to_owned()]).reason(&covers, &packages(), &apart)
    }

    #[test]
    fn changes_below_a_suite_run_half_of_it() {
        let file = "tests/top/keys.rs";
        let near = reason(file, &["fairpath-top"], &["tests/top"], &[]);
        assert_eq!(near, Some(Reason::Near(format!("{file} changed"))));
        for file in [
            "Cargo.lock",
            "setup/packages.txt",
            "tests/src/lib.rs",
            "crates/show/top/src/a.rs",
            "crates/model/core/src/a.rs",
            "bpf/core/rtt/x.h",
        ] {
            let reason = reason(file, &["fairpath-top"], &["tests/top"], &[]);
            assert_eq!(reason, Some(Reason::Below(format!("{file} changed"))));
        }
    }

    #[test]
    fn a_change_above_or_elsewhere_does_not() {
        for file in [
            "crates/show/top/src/a.rs",
            "README.md",
            "crates/model/cored/src/a.rs",
            "tests/top/keys.rs",
            "tests/rtt.rs",
        ] {
            assert_eq!(
                reason(file, &["fairpath-rtt"], &["tests/rtt"], &[]),
                None,
                "{file}"
            );
        }
    }

    #[test]
    fn files_apart_count_where_their_part_is_named() {
        let file = "bpf/core/rules/match.h";
        assert_eq!(reason(file, &["fairpath-top"], &["tests/top"], &[]), None);
        let of_rules = reason(file, &["fairpath-top"], &[], &["rules"]);
        assert_eq!(of_rules, Some(Reason::Near(format!("{file} changed"))));
        // Neither a file of a similar name nor one that all are built with is apart.
        for file in ["bpf/core/rules.h", "Cargo.lock"] {
            assert!(reason(file, &["fairpath-top"], &["tests/top"], &[]).is_some());
        }
    }

    #[test]
    fn without_a_known_commit_everything_runs() {
        let unknown = Since::Unknown("no history".to_owned());
        let covers = Covers::default();
        assert_eq!(
            unknown.reason(&covers, &packages(), &BTreeMap::new()),
            Some(Reason::Near("no history".to_owned()))
        );
        assert!(unknown.find(|_| false).is_some());
    }
}
