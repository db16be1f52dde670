//! Links of the Markdown pages have a target in the repository.
//!
//! Of `[text](target)` and `[text](target#part)` the target is a path relative to the page. Targets
//! elsewhere (`https:`), parts of pages, and code are not checked.

use super::{File, Finding};
use std::path::{Component, Path, PathBuf};

pub fn check(files: &[File], exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        let directory = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (line, target) in targets(&page.text) {
            if !exists(&plain(&directory.join(&target))) {
                findings.push(Finding {
                    path: page.path.clone(),
                    line,
                    rule: "every link has a target",
                    message: format!("there is no {target}"),
                    remedy: "write the page, or correct the link".into(),
                });
            }
        }
    }
    findings
}

/// The path without `..` and `.`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The line and target of each link into the repository.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            continue;
        }
        // Every second piece is between backticks.
        let prose: String = line.split('`').step_by(2).collect();
        for piece in prose.split("](").skip(1) {
            let Some((target, _)) = piece.split_once(')') else {
                continue;
            };
            let target = target.split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') {
                targets.push((number + 1, target.to_owned()));
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<(usize, String)> {
        let page = File {
            path: "docs/guide/page.md".into(),
            text: text.into(),
        };
        let there = ["docs/guide/other.md", "docs/design", "README.md"];
        check(&[page], |path| there.contains(&path.to_str().unwrap()))
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    #[test]
    fn link_without_target_is_reported_with_its_line() {
        let text = "[a](other.md) and [b](../design)\n[c](gone.md#part), [`d`](../../README.md)";
        assert_eq!(missing(text), [(2, "there is no gone.md".to_owned())]);
    }

    #[test]
    fn targets_elsewhere_and_code_are_not_checked() {
        let text = "[a](https://x.org/y) [b](#part) `[c](gone.md)`\n```\n[d](gone.md)\n```\n";
        assert_eq!(missing(text), []);
    }
}
