//! Options that messages name exist: a remedy with an option that is refused is none.

use super::source::{Keep, mask};
use super::{File, Finding, read_files};
use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::Path;

/// Options that no help text lists, and those of other programs.
const OTHERS: [&str; 2] = ["--match", "--net"];
/// Old options, which a message names with the new one.
const EXCEPT: &str = "crates/base/cli/src/replaced.rs";
/// The matches and targets of rules with their options, which messages about rules name.
const RULES: &str = "crates/model/rules/src/spec/tables.rs";

/// Checks the sources against the help texts of the built programs.
pub fn check_messages(fairpath: &Path) -> Result<()> {
    let dir = crate::run::target_dir().join("options");
    let pages = crate::pages::of_command_lines(&dir, Some(fairpath))?;
    let mut known: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    for page in pages.values() {
        known.extend(options_in(&page.replace("\\-", "-")).map(|(_, option)| option.to_owned()));
    }
    let files = read_files()?;
    for file in files.iter().filter(|file| file.path == RULES) {
        known.extend(options_in(&file.text).map(|(_, option)| option.to_owned()));
    }
    let findings = check(&files, &known);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} options in messages do not exist", findings.len());
    }
    Ok(())
}

fn check(files: &[File], known: &BTreeSet<String>) -> Vec<Finding> {
    let is_source = |file: &&File| {
        let path = &file.path;
        path.starts_with("crates/")
            && path.ends_with(".rs")
            && !path.contains("/tests")
            && path != EXCEPT
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(is_source) {
        let end = file
            .text
            .find("#[cfg(test)]\nmod tests {")
            .unwrap_or(file.text.len());
        let masked = mask(&file.text[..end], Keep::CodeAndStrings);
        for (line, text) in (1..).zip(masked.lines()) {
            let unknown = options_in(text).filter(|(at, option)| {
                // An argument of a command is a separate string, or begins one.
                let is_prose = text[..*at].ends_with([' ', '`', '(']);
                is_prose && !is_argument(&text[..*at]) && !known.contains(*option)
            });
            findings.extend(unknown.map(|(_, option)| Finding {
                path: file.path.clone(),
                line,
                rule: "options of messages exist",
                message: format!("no program of Fairpath has {option}"),
                remedy: "name the present option".into(),
            }));
        }
    }
    findings
}

/// True if an option after this text is passed on to netfilter's tools.
fn is_argument(before: &str) -> bool {
    ["NFQUEUE", "bypass {", "\" ", "-m mark", "icmpv6"]
        .iter()
        .any(|word| before.contains(word))
}

/// Positions and names of options: `--word-word`.
fn options_in(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("--").filter_map(move |(at, _)| {
        let rest = &text[at + 2..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '-');
        let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('-');
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase());
        is_name.then(|| (at, &text[at..at + 2 + name.len()]))
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn messages_name_only_options_that_exist() {
        let known = BTreeSet::from(["--queue-num".to_owned()]);
        let of = |text: &str| check(&[file("crates/a/b/src/c.rs", text)], &known).len();
        assert_eq!(of("bail!(\"use another --queue-num\");"), 0);
        assert_eq!(of("bail!(\"use another --queue\");"), 1);
        assert_eq!(of("bail!(\"use `--queue N`, or --other\");"), 2);
        assert_eq!(of("command.arg(\"--server\"); // use --what"), 0);
        assert_eq!(of("#[cfg(test)]\nmod tests {\n\"use --what\"}"), 0);
    }
}
