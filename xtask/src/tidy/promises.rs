//! docs/promises.md: every number and guarantee names what holds it.
//!
//! Each row of each table there has a cell in the column `proof` (or `Proof`). It holds `pending`,
//! with or without a reason behind it, or one or more things in backticks, each of them
//!
//! - a test: the name of a `#[test]` function, with or without a path before it
//!   (`a_span_uses_its_largest_whole_unit`, `fairpath-units::tests::...`), or
//! - a command: `make TARGET`, `cargo xtask SUBCOMMAND`, `cargo ... --package CRATE ...`,
//!   `fairpath SUBCOMMAND ...`
//!
//! that exists. The same holds for cells of that column in docs/kernel-support.md, where a row may
//! have no proof. A page that is not there promises nothing. The tables of measurements below the
//! heading of missed targets have no proof: nothing is promised there.

use super::source::{Keep, mask};
use super::{File, Finding};
use std::collections::BTreeSet;

const PAGE: &str = "docs/promises.md";
/// Rows without a proof are allowed here.
const OTHER_PAGE: &str = "docs/kernel-support.md";
/// Until the next heading of this level, tables have measurements.
const MISSED: &str = "## Speed targets that are missed";

pub fn check(files: &[File]) -> Vec<Finding> {
    let tests: BTreeSet<String> = files.iter().flat_map(test_names).collect();
    let mut findings = Vec::new();
    for page in files
        .iter()
        .filter(|f| [PAGE, OTHER_PAGE].contains(&&*f.path))
    {
        for row in rows(&page.text) {
            if page.path == OTHER_PAGE && row.proof.as_deref().is_none_or(str::is_empty) {
                continue;
            }
            if let Err(message) = judge(row.proof.as_deref(), &tests, files) {
                findings.push(finding(&page.path, row.line, message));
            }
        }
    }
    findings
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding {
        path: path.into(),
        line,
        rule: "every promise names its proof",
        message,
        remedy: "name a test or command that exists in backticks, or write pending".into(),
    }
}

struct PromiseRow {
    line: usize,
    /// `None` if the table has no such column or the row no such cell.
    proof: Option<String>,
}

/// The rows of the tables of promises, without heads and rules.
fn rows(text: &str) -> Vec<PromiseRow> {
    let mut rows = Vec::new();
    let mut column: Option<Option<usize>> = None;
    let mut is_missed = false;
    for (i, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            is_missed = line == MISSED;
        }
        if is_missed || !line.trim_start().starts_with('|') {
            column = None;
            continue;
        }
        let cells = cells(line);
        match column {
            None => column = Some(cells.iter().position(|c| c.eq_ignore_ascii_case("proof"))),
            Some(_)
                if cells
                    .iter()
                    .all(|c| !c.is_empty() && c.chars().all(|c| "-: ".contains(c))) => {}
            Some(at) => rows.push(PromiseRow {
                line: i + 1,
                proof: at.and_then(|at| cells.get(at).cloned()),
            }),
        }
    }
    rows
}

/// The cells of a row; `\|` is a bar inside one.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').replace("\\|", "\0");
    let inner = inner.strip_suffix('|').unwrap_or(&inner);
    inner
        .split('|')
        .map(|c| c.trim().replace('\0', "|"))
        .collect()
}

fn judge(proof: Option<&str>, tests: &BTreeSet<String>, files: &[File]) -> Result<(), String> {
    let proof = proof.ok_or("the row has no cell in a column `proof`")?;
    if proof.to_lowercase().starts_with("pending") {
        return Ok(());
    }
    let named: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
    if named.is_empty() {
        return Err(format!("the proof names no test and no command: {proof:?}"));
    }
    named.iter().try_for_each(|name| exists(name, tests, files))
}

fn exists(name: &str, tests: &BTreeSet<String>, files: &[File]) -> Result<(), String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let found = match words.as_slice() {
        ["make", target, ..] => {
            let rule = format!("{target}:");
            files
                .iter()
                .any(|f| f.path == "Makefile" && f.text.lines().any(|l| l.starts_with(&rule)))
        }
        ["cargo", "xtask", sub, ..] => crate::has_subcommand(sub),
        ["cargo", rest @ ..] => package_of(rest).is_none_or(|p| has_package(files, p)),
        ["fairpath", sub, ..] => has_fairpath_subcommand(files, sub),
        [test] => tests.contains(test.rsplit("::").next().unwrap_or(test)),
        _ => {
            return Err(format!(
                "`{name}` is neither a test's name nor a command of ours"
            ));
        }
    };
    if found {
        Ok(())
    } else {
        Err(format!("`{name}` does not exist"))
    }
}

fn package_of<'a>(args: &[&'a str]) -> Option<&'a str> {
    let at = args.iter().position(|a| *a == "-p" || *a == "--package")?;
    args.get(at + 1).copied()
}

fn has_package(files: &[File], name: &str) -> bool {
    let line = format!("name = \"{name}\"");
    files
        .iter()
        .any(|f| f.path.ends_with("Cargo.toml") && f.text.lines().any(|l| l == line))
}

/// A variant of the binary's commands (`rtt` is `Rtt`), or a separate program (`fairpath-demo`).
fn has_fairpath_subcommand(files: &[File], name: &str) -> bool {
    let variant: String = name.split('-').map(capitalised).collect();
    has_package(files, &format!("fairpath-{name}"))
        && !files
            .iter()
            .any(|f| f.path.ends_with(&format!("/{name}/src/lib.rs")))
        || files
            .iter()
            .filter(|f| f.path.starts_with("crates/router/fairpath/src/"))
            .any(|f| {
                let code = mask(&f.text, Keep::Code);
                code.lines().any(|l| {
                    l.trim().strip_prefix(&variant).is_some_and(|rest| {
                        rest.is_empty() || rest.starts_with(['(', ' ', ',', '{'])
                    })
                })
            })
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// The names of a Rust file's test functions, and of those that run once for each variant:
/// `by!(name: variant, variant)` in tests/shape.
fn test_names(file: &File) -> Vec<String> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let code = mask(&file.text, Keep::Code);
    let named = |after: &str| {
        let (_, function) = after.split_once("fn ")?;
        let end = function.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        Some(function[..end].to_owned())
    };
    let plain = code.split("#[test]").skip(1).filter_map(named);
    let by_variant = code.split("by!(").skip(1).filter_map(|after| {
        let (name, _) = after.split_once(':')?;
        Some(name.trim().to_owned())
    });
    plain.chain(by_variant).collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn proofs_of_kernel_support_exist_or_are_empty() {
        let page = "| feature | used for |\n|---|---|\n| a | b |\n\n\
                    | stage | proof |\n|---|---|\n| a | |\n| b | `is_here` |\n| c | `is_absent` |\n";
        let tests = file("crates/a/src/lib.rs", "#[test]\nfn is_here() {}\n");
        let found = check(&[file(OTHER_PAGE, page), tests]);
        let found: Vec<(usize, &str)> = found.iter().map(|f| (f.line, &*f.message)).collect();
        assert_eq!(found, [(9, "`is_absent` does not exist")]);
    }

    fn findings(rows: &str) -> Vec<Finding> {
        let page = format!("# Promises\n\n| promise | proof |\n|---|---|\n{rows}\n");
        check(&[
            file(PAGE, &page),
            file("Makefile", "bench: ## x\n"),
            file(
                "crates/router/fairpath/src/main.rs",
                "enum Command {\n    /// x\n    Rtt(rtt::Args),\n}",
            ),
            file("crates/lab/demo/Cargo.toml", "name = \"fairpath-demo\"\n"),
            file("crates/model/rtt/Cargo.toml", "name = \"fairpath-rtt\"\n"),
            file(
                "crates/model/rtt/src/lib.rs",
                "#[test]\n#[cfg(x)]\nfn it_holds() {}\nfn no_test() {}\n// #[test] fn gone() {}\nby!(for_each: a, b);",
            ),
        ])
    }

    #[test]
    fn a_promise_with_a_proof_or_pending_passes() {
        for proof in [
            "`it_holds`",
            "`for_each`",
            "`fairpath-rtt::tests::it_holds` and `make bench`",
            "pending",
            "Pending: no machine",
            "`cargo xtask tidy`",
            "`cargo test -p fairpath-rtt`",
            "`fairpath rtt -r x.pcap`",
            "`fairpath demo`",
        ] {
            assert_eq!(findings(&format!("| p | {proof} |")), [], "{proof}");
        }
    }

    #[test]
    fn a_promise_whose_proof_does_not_exist_falls() {
        for proof in [
            "`no_test`",
            "`gone`",
            "`make nothing`",
            "`cargo xtask nothing`",
            "`cargo test -p nothing`",
            "`fairpath nothing`",
            "`it_holds` and `nothing`",
            "trust us",
            "",
            "`rm -rf x`",
        ] {
            let found = findings(&format!("| p | it_holds |\n| p | {proof} |"));
            assert_eq!(found.last().map(|f| f.line), Some(6), "{proof}");
        }
    }

    #[test]
    fn tables_without_column_and_rows_without_cell_fail() {
        assert_eq!(findings("| only a promise |").len(), 1);
        let page = "| promise | test |\n|---|---|\n| p | `it_holds` |\n";
        assert_eq!(check(&[file(PAGE, page)]).len(), 1);
    }

    #[test]
    fn tables_of_missed_targets_need_no_proof() {
        let table = "| case | ns |\n|---|---|\n| x | 5 |\n";
        let page = format!("{MISSED}\n\n### Classes\n\n{table}");
        assert_eq!(check(&[file(PAGE, &page)]), []);
        let page = format!("{page}\n## Others\n\n{table}");
        assert_eq!(check(&[file(PAGE, &page)]).len(), 1);
    }

    #[test]
    fn a_bar_inside_a_cell_is_no_border() {
        assert_eq!(findings("| a \\| b | `it_holds` |"), []);
    }

    #[test]
    fn a_page_that_is_not_there_promises_nothing() {
        assert_eq!(check(&[file("README.md", "| p |\n|---|\n| x |")]), []);
    }
}
