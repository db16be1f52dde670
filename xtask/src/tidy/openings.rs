//! A documentation comment opens with a statement, not with a question word.
//!
//! Checked are `///` and `//!` in Rust, and comments of C that begin in the first column. The first line
//! of each paragraph counts.

use super::source::{Keep, mask};
use super::{File, Finding, is_in};

const QUESTION_WORDS: &[&str] = &["What", "Whether", "Who", "How"];
/// Places with older comments.
const OLDER: &[&str] = &[
    "bpf/core/parse",
    "bpf/core/rtt",
    "crates/model/shape",
    "crates/router/backend/src/afxdp.rs",
    "crates/router/backend/src/afxdp",
];

pub fn check(files: &[File]) -> Vec<Finding> {
    let is_code = |file: &&File| {
        [".rs", ".c", ".h"]
            .iter()
            .any(|end| file.path.ends_with(end))
    };
    let is_older = |file: &File| OLDER.iter().any(|place| is_in(&file.path, place));
    let checked = files.iter().filter(is_code).filter(|file| !is_older(file));
    checked.flat_map(questions).collect()
}

fn questions(file: &File) -> Vec<Finding> {
    let is_rust = file.path.ends_with(".rs");
    let without_comments = mask(&file.text, Keep::CodeAndStrings);
    let mut findings = Vec::new();
    let mut previous = "";
    let lines = file.text.lines().zip(without_comments.lines()).zip(1..);
    for ((line, code), number) in lines {
        let opening = if is_rust {
            rust_opening(line, previous)
        } else {
            c_opening(line, previous)
        };
        previous = line;
        // The text of a string is code.
        let Some(word) = opening.filter(|_| code.trim().is_empty()) else {
            continue;
        };
        findings.push(Finding {
            path: file.path.clone(),
            line: number,
            rule: "documentation states",
            message: format!("a comment opens with \"{word}\""),
            remedy: "write a statement: \"Returns ...\", \"True if ...\", \"The number of ...\""
                .into(),
        });
    }
    findings
}

fn rust_opening(line: &str, previous: &str) -> Option<&'static str> {
    let text = |line| {
        let line = str::trim_start(line);
        let text = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
        Some(text.trim())
    };
    let continues = text(previous).is_some_and(|text| !text.is_empty());
    question_word(text(line).filter(|_| !continues)?)
}

fn c_opening(line: &str, previous: &str) -> Option<&'static str> {
    let text = match line.strip_prefix("/*") {
        Some(text) => text,
        None => line.strip_prefix(" *").filter(|_| previous == "/*")?,
    };
    question_word(text.trim())
}

fn question_word(text: &str) -> Option<&'static str> {
    let first = text.split(|c: char| !c.is_alphanumeric()).next()?;
    QUESTION_WORDS.iter().copied().find(|word| *word == first)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&[file(path, text)]).into_iter();
        findings.map(|finding| finding.line).collect()
    }

    #[test]
    fn documentation_that_opens_with_a_question_is_refused() {
        assert_eq!(lines("a.rs", "\n    /// What it counts.\nx: u32,\n"), [2]);
        assert_eq!(lines("a.rs", "//! A file.\n//!\n//! How it works.\n"), [3]);
        assert_eq!(lines("a.c", "/* Whether it fits. */\n"), [1]);
        assert_eq!(lines("a.h", "/*\n * Who sends.\n */\n"), [2]);
    }

    #[test]
    fn statements_and_other_texts_are_permitted() {
        for (path, text) in [
            (
                "a.rs",
                "/// The counters.\n/// What follows is a second line.\n",
            ),
            ("a.rs", "/// Whatever the order.\n"),
            ("a.rs", "// What the next line does.\n"),
            ("a.rs", "let text = \"\n/// What is quoted.\n\";\n"),
            ("a.c", "\t/* Whether it fits depends. */\n"),
            ("a.md", "/// What\n"),
        ] {
            assert!(lines(path, text).is_empty(), "{path}: {text}");
        }
    }
}
