//! Errors on standard error: one prefix, one line, one exit status for each kind.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use fairpath_units::text::lines;
use thiserror::Error;

use crate::parse::{FAILURE, WRONG_USAGE};

/// Begins every error message.
pub(crate) const PREFIX: &str = "fairpath: error: ";

/// Arguments that cannot be used, found after they were parsed. The exit status is 2.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct WrongUsage(pub String);

/// An error that ends the program with the status of wrong usage.
pub fn wrong_usage(text: impl Into<String>) -> anyhow::Error {
    WrongUsage(text.into()).into()
}

/// Prints an error, and returns the exit status that belongs to it.
pub fn report(error: &anyhow::Error) -> ExitCode {
    print_error(line(error));
    let is_usage = error.chain().any(|cause| cause.is::<WrongUsage>());
    ExitCode::from(if is_usage { WRONG_USAGE } else { FAILURE })
}

/// The chain of causes in one line. A cause that an outer message contains is not repeated.
pub fn line(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let between = if text.is_empty() { "" } else { ": " };
            text = text + between + &cause;
        }
    }
    text
}

/// Prints an error with the prefix of all errors. A closed standard error is no failure.
pub fn print_error(text: impl Display) {
    to_stderr(&format!("{PREFIX}{text}\n"));
}

/// Prints progress or a remark to standard error. A closed standard error is no failure.
pub fn note(text: impl Display) {
    to_stderr(&format!("fairpath: {text}\n"));
}

/// Prints lines to standard error, without a prefix. A closed standard error is no failure.
pub fn print_stderr(text: impl Display) {
    to_stderr(&text.to_string());
}

/// Messages contain names and lines of files, which may contain escape sequences.
fn to_stderr(text: &str) {
    let _ = anstream::stderr().write_all(lines(text).as_bytes());
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn causes_are_one_line_without_repeats() {
        let error = anyhow!("no such device")
            .context("attach to \"lan\": no such device")
            .context("start");
        assert_eq!(line(&error), "start: attach to \"lan\": no such device");
    }

    #[test]
    fn wrong_usage_is_found_below_its_context() {
        let error = Err::<(), _>(wrong_usage("--max-flows 0"))
            .context("start")
            .unwrap_err();
        assert!(error.chain().any(|cause| cause.is::<WrongUsage>()));
        assert_eq!(line(&error), "start: --max-flows 0");
    }
}
