//! docs/design/unsafe.md lists every file with unsafe code, and the number of its lines with `unsafe`.
//!
//! A new unsafe operation therefore needs a change of the page, which a reviewer reads.

use std::collections::BTreeMap;

use super::source::{Keep, lines_with, mask};
use super::{File, Finding};

const PAGE: &str = "docs/design/unsafe.md";
const RULE: &str = "every unsafe operation is listed";

pub fn check(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return Vec::new();
    };
    let listed = listed(&page.text);
    let found: BTreeMap<&str, usize> = files
        .iter()
        .filter(|file| is_source(&file.path))
        .map(|file| (file.path.as_str(), count(&file.text)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let finding = |line: usize, message: String| Finding {
        path: PAGE.into(),
        line,
        rule: RULE,
        message,
        remedy: "review the unsafe code, and correct the row of its file".into(),
    };
    let missing = found.iter().filter_map(|(path, count)| {
        let (line, listed) = listed.get(path).copied().unwrap_or((1, 0));
        (listed != *count).then(|| {
            finding(
                line,
                format!("{path} has {count} lines with `unsafe`, the page has {listed}"),
            )
        })
    });
    let stale = listed
        .iter()
        .filter(|(path, _)| !found.contains_key(*path))
        .map(|(path, (line, _))| finding(*line, format!("{path} has no unsafe code")));
    missing.chain(stale).collect()
}

fn is_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs")
}

fn count(text: &str) -> usize {
    lines_with(&mask(text, Keep::Code), "unsafe").len()
}

/// Line number and count of each row: `| path | count | subject |`.
fn listed(page: &str) -> BTreeMap<&str, (usize, usize)> {
    let row = |(at, line): (usize, &'_ str)| -> Option<(usize, usize)> {
        let count = line.split('|').nth(2)?.trim().parse().ok()?;
        Some((at + 1, count))
    };
    page.lines()
        .enumerate()
        .filter_map(|(at, line)| {
            let path = line.split('|').nth(1)?.trim().trim_matches('`');
            path.starts_with("crates/").then_some(())?;
            Some((path, row((at, line))?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const CODE: &str = "// unsafe\nfn a() {\n    unsafe { b() }\n}\nunsafe extern \"C\" {}\n";

    fn messages(page: &str, code: &str) -> Vec<String> {
        let files = [file(PAGE, page), file("crates/edge/a/src/b.rs", code)];
        check(&files).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn lists_of_unsafe_code_cannot_go_stale() {
        let page =
            "| file | lines | subject |\n|---|---|---|\n| `crates/edge/a/src/b.rs` | 2 | b |\n";
        assert_eq!(messages(page, CODE), [""; 0]);
        let more = format!("{CODE}unsafe fn c() {{}}\n");
        assert!(messages(page, &more)[0].contains("3 lines"));
        assert!(messages(page, "fn a() {}\n")[0].contains("no unsafe code"));
        assert!(messages("", CODE)[0].contains("the page has 0"));
    }
}
