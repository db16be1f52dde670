//! Links of the Markdown pages: what they lead to in the repository is there.
//!
//! Of `[text](target)` and `[text](target#part)` the target is looked for beside the page. Targets
//! elsewhere (`https:`) and parts of pages are not looked at; neither is code, in backticks or blocks.

use super::{File, Finding};
use std::path::{Component, Path, PathBuf};

pub fn check(files: &[File], exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in files.iter().filter(|file| file.path.ends_with(".md")) {
        let beside = Path::new(&page.path).parent().unwrap_or(Path::new(""));
        for (line, target) in targets(&page.text) {
            if !exists(&plain(&beside.join(&target))) {
                findings.push(Finding {
                    path: page.path.clone(),
                    line,
                    rule: "every link leads somewhere",
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
        // What stands between backticks is every second piece.
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

    fn told(text: &str) -> Vec<(usize, String)> {
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
    fn a_link_that_leads_nowhere_is_told_with_its_line() {
        let text = "[a](other.md) and [b](../design)\n[c](gone.md#part), [`d`](../../README.md)";
        assert_eq!(told(text), [(2, "there is no gone.md".to_owned())]);
    }

    #[test]
    fn what_is_elsewhere_or_code_is_not_looked_at() {
        let text = "[a](https://x.org/y) [b](#part) `[c](gone.md)`\n```\n[d](gone.md)\n```\n";
        assert_eq!(told(text), []);
    }
}
