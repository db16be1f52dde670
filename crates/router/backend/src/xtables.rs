//! Tables of iptables, saved and restored by its tools that the system has.
//!
//! A restore is atomic for its family. It may outlive a process that is killed, and then keeps the
//! file that it was given as [`Restore::Now`] open until its end.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::process::{Output, Stdio};

use fairpath_units::text;

use crate::nfqueue::diversion::finished;

/// Seconds that a tool waits for the lock of iptables.
const WAIT: &str = "5";
/// The beginning of a comment about chains of nftables, which the tool cannot save.
const NOT_SAVED: &[u8] = b"# Table `";

/// A tool failed.
#[derive(Debug)]
pub struct ToolError {
    /// The line of the input.
    pub line: Option<usize>,
    /// Problem and remedy.
    pub text: String,
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ToolError {}

/// The effect of a restore.
#[derive(Debug)]
pub enum Restore {
    /// Read the text, and change nothing.
    Test,
    /// Replace the table. The tool has this file open.
    Now(File),
}

/// The lines of a running table with counters, from its name to `COMMIT`. `tool` is iptables or
/// ip6tables.
///
/// # Errors
/// The message of the tool, or the table has something that it cannot save.
pub fn save(tool: &str, table: &str) -> Result<Vec<u8>, ToolError> {
    let text = run(
        tool,
        "save",
        table,
        &["-t", table, "-c"],
        b"",
        Stdio::piped(),
    )?
    .stdout;
    let mut lines = text.split(|byte| *byte == b'\n');
    if lines.any(|line| line.starts_with(NOT_SAVED)) {
        return Err(ToolError {
            line: None,
            text: format!(
                "{tool}-save cannot save table {table}, because nft added chains or rules to it: {}",
                leave(table)
            ),
        });
    }
    Ok(lines_of(table, &text).join(&b"\n"[..]))
}

/// Running tables with their numbers of rules. `None`: the tool is missing, or fails.
///
/// Creates no table: legacy tools do if one is named.
pub fn running(tool: &str) -> Option<Vec<(String, usize)>> {
    let output = run(tool, "save", "", &[], b"", Stdio::piped()).ok()?;
    let mut tables: Vec<(String, usize)> = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        match (line.strip_prefix(b"*"), tables.last_mut()) {
            (Some(name), _) => tables.push((String::from_utf8_lossy(name).into_owned(), 0)),
            (None, Some((_, rules))) => *rules += usize::from(line.starts_with(b"-A")),
            (None, None) => {}
        }
    }
    Some(tables)
}

/// The remedy if the tools cannot have a table.
fn leave(table: &str) -> String {
    format!("leave it as it runs with --skip-table {table}")
}

/// The lines of a table, the last one empty; those of an empty table if it is not there.
fn lines_of<'t>(table: &str, text: &'t [u8]) -> Vec<&'t [u8]> {
    let is_name = |line: &&[u8]| line.strip_prefix(b"*") == Some(table.as_bytes());
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.skip_while(|line| !is_name(line));
    let mut found: Vec<&[u8]> = lines.take_while(|line| *line != b"COMMIT").collect();
    if !found.is_empty() {
        found.push(b"COMMIT");
    }
    found.push(b"");
    found
}

/// Gives a table to `iptables-restore` or `ip6tables-restore`.
///
/// # Errors
/// The message of the tool: the table is unchanged.
pub fn restore(
    tool: &str,
    table: &str,
    text: &[u8],
    with_counters: bool,
    restore: Restore,
) -> Result<(), ToolError> {
    let mut words = vec!["-w", WAIT];
    if with_counters {
        words.push("-c");
    }
    let stdout = match restore {
        Restore::Test => {
            words.push("--test");
            Stdio::null()
        }
        Restore::Now(file) => file.into(),
    };
    run(tool, "restore", table, &words, text, stdout).map(drop)
}

/// Runs a tool of a family for a table, which must succeed.
fn run(
    tool: &str,
    verb: &str,
    table: &str,
    words: &[&str],
    input: &[u8],
    stdout: Stdio,
) -> Result<Output, ToolError> {
    let program = format!("{tool}-{verb}");
    let output = finished(&program, words, input, stdout).map_err(|error| {
        let cause = error.root_cause().downcast_ref::<io::Error>();
        let text = match cause.map(io::Error::kind) {
            Some(ErrorKind::NotFound) => format!(
                "{program} is not on PATH: install package iptables, or {}",
                leave(table)
            ),
            _ => format!("{program}: {error:#}"),
        };
        ToolError { line: None, text }
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let (line, message) = message(&String::from_utf8_lossy(&output.stderr));
    let text = match message.is_empty() {
        true => format!("{program} failed ({})", output.status),
        false => format!("{program}: {message}"),
    };
    Err(ToolError { line, text })
}

/// The line of the input that the tool names, and its message in one line.
fn message(stderr: &str) -> (Option<usize>, String) {
    let (mut number, mut parts) = (None, Vec::new());
    for line in stderr.lines().map(str::trim) {
        // "iptables-nft-restore v1.8.9 (nf_tables): text" and "iptables-restore: text".
        let named = line
            .split_once(": ")
            .filter(|(name, _)| name.starts_with("iptables") || name.starts_with("ip6tables"));
        let mut rest = named.map_or(line, |(_, rest)| rest).trim_end_matches(':');
        if rest.starts_with("Try `") || rest.starts_with("# Warning") || is_name(rest) {
            continue;
        }
        let numbered = rest
            .strip_prefix("Error occurred at line: ")
            .or_else(|| rest.strip_prefix("line "));
        if let Some(after) = numbered {
            let end = after.find(|c: char| !c.is_ascii_digit());
            let (digits, text) = after.split_at(end.unwrap_or(after.len()));
            number = digits.parse().ok().or(number);
            rest = text.trim_start_matches(": ").trim();
        }
        if !rest.is_empty() && rest != "failed" {
            parts.push(text::line(rest).into_owned());
        }
    }
    if parts.is_empty() && number.is_some() {
        parts.push("the kernel refuses a rule".to_owned());
    }
    (number, parts.join("; "))
}

/// True for the name of a tool with its version and nothing else.
fn is_name(line: &str) -> bool {
    line.ends_with("(nf_tables)") || line.ends_with("(legacy)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_both_variants_are_read() {
        for (stderr, line, text) in [
            (
                "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `what':No such file or directory\n\n\
                 Error occurred at line: 2\nTry `iptables-nft-restore -h' or '-' for more information.\n",
                Some(2),
                "Couldn't load match `what':No such file or directory",
            ),
            (
                "iptables-nft-restore v1.8.9 (nf_tables): \nline 6: RULE_APPEND failed (Too many links): rule in chain b\n",
                Some(6),
                "RULE_APPEND failed (Too many links): rule in chain b",
            ),
            (
                "iptables-restore: line 3 failed\n",
                Some(3),
                "the kernel refuses a rule",
            ),
            ("a\u{1b}[2Jb\n", None, "a?[2Jb"),
            ("", None, ""),
        ] {
            assert_eq!(message(stderr), (line, text.to_owned()), "{stderr}");
        }
    }

    #[test]
    fn lines_of_tables_are_found() {
        let text = b"# x\n*filter\n:a\n-A a\nCOMMIT\n*nat\n:b\n-A b\nCOMMIT\n# y\n";
        let lines = |table| lines_of(table, text).join(&b"\n"[..]);
        assert_eq!(lines("nat"), b"*nat\n:b\n-A b\nCOMMIT\n");
        assert_eq!(lines("filter"), b"*filter\n:a\n-A a\nCOMMIT\n");
        assert_eq!(lines("raw"), b"");
    }
}
