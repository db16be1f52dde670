//! The form of new commits: a subject that names a place and one change, and a body.
//!
//! ```text
//! sched: pifo: keep arrival order on equal rank      at most 72 columns, no full stop, no `;`
//!                                                    an empty line
//! why, and how it was checked
//! ```
//!
//! Commits up to [`BASE`] are as they are. Git writes the subjects of merges and of reverts (`Revert
//! "..."`); a revert says why, as every commit does.

use super::Finding;
use crate::run;
use anyhow::{Result, ensure};
use std::process::Command;

/// The last commit that was made before this rule was as strict as it is.
const BASE: &str = "2f28faae34d31713b45acda59ee36ce9441aa58d";
const COLUMNS: usize = 72;
/// The separators that git writes between the fields of a commit, and between commits.
const FIELD: char = '\u{1f}';
const RECORD: char = '\u{1e}';
const REMEDY: &str = "git rebase -i, and reword it as CONTRIBUTING.md describes";

/// The rule on this work tree's history; where git does not have it, a line says so.
pub fn check() -> Vec<Finding> {
    match log() {
        Ok(log) => log.split(RECORD).flat_map(judge).collect(),
        Err(error) => {
            println!("tidy: the form of commits is not checked: {error:#}");
            Vec::new()
        }
    }
}

fn log() -> Result<String> {
    let git = |arguments: &[&str]| run::output(Command::new("git").args(arguments));
    let shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    ensure!(shallow.trim() == "false", "the history is not whole");
    git(&[
        "log",
        "--no-merges",
        &format!("--format=%h{FIELD}%s{FIELD}%b{RECORD}"),
        &format!("{BASE}..HEAD"),
    ])
}

/// The faults of one commit, `ID FIELD SUBJECT FIELD BODY`.
fn judge(record: &str) -> Vec<Finding> {
    let mut fields = record.trim().splitn(3, FIELD);
    let (Some(id), Some(subject), body) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let wrong = subject_faults(subject).into_iter();
    let wrong = wrong.chain(body_fault(body.unwrap_or_default()));
    wrong
        .map(|message| Finding {
            path: format!("commit {id}"),
            line: 1,
            rule: "commit",
            message: format!("{message}: {subject:?}"),
            remedy: REMEDY.into(),
        })
        .collect()
}

fn subject_faults(subject: &str) -> Vec<&'static str> {
    if subject.starts_with("Revert \"") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let (place, what) = subject.split_once(": ").unwrap_or(("", subject));
    let is_place = |c: char| c.is_alphanumeric() || "-_/.,*+` ".contains(c);
    if place.is_empty() || !place.chars().all(is_place) {
        faults.push("the subject does not begin with a place and a colon");
    }
    // The action follows the last of several places.
    let what = what.rsplit(": ").next().unwrap_or(what);
    let verb = what.split(' ').next().unwrap_or_default();
    if !is_imperative(verb) {
        faults.push("the subject is not imperative");
    }
    if what.trim().is_empty() {
        faults.push("the subject names no action");
    }
    if subject.contains(';') {
        faults.push("the subject joins several changes");
    }
    if subject.ends_with('.') {
        faults.push("the subject ends with a full stop");
    }
    if subject.chars().count() > COLUMNS {
        faults.push("the subject is longer than 72 columns");
    }
    faults
}

/// True if a verb looks like one: `add`, and neither `added`, `adding` nor `adds`.
fn is_imperative(verb: &str) -> bool {
    let other = ["ed", "ing", "s"].iter().any(|end| verb.ends_with(end));
    let stem = ["ss", "us", "as"].iter().any(|end| verb.ends_with(end));
    !other || stem || IMPERATIVES.contains(&verb)
}

/// Imperatives that look like another form.
const IMPERATIVES: [&str; 15] = [
    "bleed", "bring", "breed", "embed", "exceed", "feed", "heed", "need", "ping", "proceed",
    "seed", "shed", "speed", "spring", "string",
];

/// A body is more than trailers (`Signed-off-by: ...`, `Fixes: ...`), which are its last lines.
fn body_fault(body: &str) -> Option<&'static str> {
    let is_trailer = |line: &str| {
        line.split_once(": ").is_some_and(|(key, _)| {
            let is_word = key.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
            is_word && key.starts_with(|c: char| c.is_ascii_uppercase())
        })
    };
    let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .all(is_trailer)
        .then_some("there is no body with the reason and the check")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "Ties left in any order.\n\nChecked by pifo_promises.";

    fn messages(subject: &str, body: &str) -> Vec<String> {
        let findings = judge(&format!("\nabc{FIELD}{subject}{FIELD}{body}\n"));
        findings.into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn a_commit_of_the_right_form_passes() {
        for subject in [
            "sched: pifo: keep arrival order on equal rank",
            "xtask: embed the table",
            "tests: seed the draw",
            "lab: ping both hosts",
            "wire: discuss the tag",
            "Revert \"sched: fixed the order; and more.\"",
            "docs/guide, README.md: name the option",
            &format!("a: {}", "x".repeat(69)),
        ] {
            assert_eq!(messages(subject, BODY), Vec::<String>::new(), "{subject}");
        }
        assert!(judge("\n").is_empty());
    }

    #[test]
    fn each_fault_of_a_subject_is_named() {
        for (subject, fault) in [
            ("keep arrival order", "place"),
            (": keep arrival order", "place"),
            ("what (this) is: keep", "place"),
            ("sched: fixed the order", "imperative"),
            ("sched: pifo: keeping the order", "imperative"),
            ("sched: adds the order", "imperative"),
            ("sched: keep the order; fix the rest", "several"),
            ("sched: keep the order.", "full stop"),
            (&format!("a: {}", "x".repeat(70)), "72 columns"),
        ] {
            let messages = messages(subject, BODY);
            assert_eq!(messages.len(), 1, "{subject}: {messages:?}");
            assert!(messages[0].contains(fault), "{subject}: {messages:?}");
        }
    }

    #[test]
    fn a_commit_without_a_body_is_named() {
        for body in [
            "",
            "\n\n",
            "Signed-off-by: A <a@example.org>",
            "Fixes: #3\nCo-authored-by: B",
        ] {
            assert!(
                messages("a: keep b", body)[0].contains("no body"),
                "{body:?}"
            );
        }
        assert!(messages("a: keep b", "Why: because\nit is so").is_empty());
    }
}
