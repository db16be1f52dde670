//! The licences of what is linked into the binary, as its packages carry them.
//!
//! Most ask that their text goes with every copy. The crates are those that cargo would link for
//! this machine: dependencies of `fairpath`, without those of builds and tests. Sorted, so the same
//! lock file gives the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::run;

/// Files that hold licences begin with one of these, in any case.
const BEGINNINGS: [&str; 4] = ["licen", "copying", "copyright", "notice"];

/// Every crate from elsewhere with its licence, and each text once.
pub fn of_dependencies() -> Result<String> {
    let metadata = MetadataCommand::new()
        .manifest_path(run::root().join("Cargo.toml"))
        .other_options([
            "--locked".to_owned(),
            "--filter-platform".to_owned(),
            host()?,
        ])
        .exec()
        .context("cargo metadata")?;
    let mut crates = BTreeSet::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked(&metadata)? {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref().unwrap_or("see its text");
        crates.insert(format!("{name}: {licence}"));
        let dir = package
            .manifest_path
            .parent()
            .context("a manifest has a directory")?;
        for file in files(dir.as_std_path())? {
            let text = String::from_utf8_lossy(&fs::read(&file)?)
                .trim()
                .replace('\r', "");
            texts.entry(text).or_default().insert(name.clone());
        }
    }
    let list: Vec<_> = crates.into_iter().collect();
    let mut out = format!(
        "Linked into /usr/bin/fairpath, each under its own licence:\n\n{}\n",
        list.join("\n")
    );
    for (text, of) in texts {
        let of: Vec<_> = of.into_iter().collect();
        out.push_str(&format!(
            "\n{}\n{}\n\n{text}\n",
            "=".repeat(72),
            of.join(", ")
        ));
    }
    Ok(out)
}

/// A text as the body of a field: each line begins with a space, an empty one has a dot.
pub fn indented(text: &str) -> String {
    let line = |line: &str| match line.trim_end() {
        "" => " .\n".to_owned(),
        line => format!(" {line}\n"),
    };
    text.trim().lines().map(line).collect()
}

/// The packages from a registry that `fairpath` links, directly or not.
fn linked(metadata: &Metadata) -> Result<Vec<&Package>> {
    let resolve = metadata
        .resolve
        .as_ref()
        .context("cargo metadata resolved nothing")?;
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
    let start = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == "fairpath")
        .context("the workspace has no package fairpath")?;
    let mut seen = BTreeSet::new();
    let mut next = vec![&start.id];
    while let Some(id) = next.pop() {
        if seen.insert(id) {
            let normal = nodes[id].deps.iter().filter(|dependency| {
                let mut kinds = dependency.dep_kinds.iter();
                kinds.any(|kind| kind.kind == DependencyKind::Normal)
            });
            next.extend(normal.map(|dependency| &dependency.pkg));
        }
    }
    let packages = metadata.packages.iter();
    Ok(packages
        .filter(|package| seen.contains(&package.id) && package.source.is_some())
        .collect())
}

/// Files of licences in a crate, and one directory below (libraries that it brings along).
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(licences_in(&path)?);
        }
    }
    found.extend(licences_in(dir)?);
    found.sort();
    Ok(found)
}

fn licences_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        let source = name.ends_with(".rs") || name.ends_with(".h") || name.ends_with(".c");
        if path.is_file() && !source && BEGINNINGS.iter().any(|b| name.starts_with(b)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The platform that cargo builds for here.
fn host() -> Result<String> {
    let output = run::output(std::process::Command::new("rustc").arg("-vV"))?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_libraries_are_listed_without_build_tools() {
        let text = of_dependencies().unwrap();
        let lists = |name: &str| {
            text.lines()
                .any(|line| line.starts_with(&format!("{name} ")))
        };
        assert!(lists("libbpf-sys") && lists("clap_builder") && lists("libc"));
        assert!(!lists("libbpf-cargo") && !lists("proptest") && !lists("fairpath-core"));
        assert!(text.contains("MIT License") && text.contains("BSD-2-Clause"));
    }

    #[test]
    fn empty_line_of_a_field_is_a_dot() {
        assert_eq!(indented("a\n\nb\n"), " a\n .\n b\n");
    }
}
