//! Repetition of tests that others on this machine disturbed: by name, counted, and not without end.
//!
//! A repetition is for a disturbance that the test can distinguish from a fault. A failed assertion is not
//! one: it ends the test. The runner counts the entries of the log, and fails a run with too many.

use std::env;
use std::fmt;
use std::fs::File;
use std::io::Write;

/// Names the log; the runner (`cargo xtask test`) sets it.
pub const RETRIES_LOG_ENV: &str = "FAIRPATH_TEST_RETRIES_LOG";

/// A disturbance that makes a measurement unusable, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disturbed(pub String);

impl Disturbed {
    /// `Err` with these words unless `undisturbed`.
    pub fn unless(undisturbed: bool, why: impl fmt::Display) -> Result<(), Disturbed> {
        match undisturbed {
            true => Ok(()),
            false => Err(Disturbed(why.to_string())),
        }
    }
}

/// Measures until nothing disturbed it, at most `limit` times, and reports each disturbance.
///
/// `measure` gets the number of the attempt, from 1 on. Panics with all reasons after the last one.
pub fn repeat_disturbed<T>(
    test: &str,
    limit: u32,
    measure: impl FnMut(u32) -> Result<T, Disturbed>,
) -> T {
    repeat_and_report(test, limit, measure, report_retry)
}

fn repeat_and_report<T>(
    test: &str,
    limit: u32,
    mut measure: impl FnMut(u32) -> Result<T, Disturbed>,
    report: impl Fn(&str, u32, &str),
) -> T {
    let mut reasons = Vec::new();
    for attempt in 1..=limit {
        match measure(attempt) {
            Ok(value) => return value,
            Err(Disturbed(reason)) => {
                report(test, attempt, &reason);
                reasons.push(reason);
            }
        }
    }
    panic!(
        "{test}: disturbed {limit} of {limit} times: {}",
        reasons.join("; ")
    );
}

/// Reports that attempt number `attempt` of `test` was unusable, and why.
///
/// For [`repeat_disturbed`], and for what repeats parts of itself.
///
/// # Panics
/// The log cannot be written: then the repetition would not be counted.
pub fn report_retry(test: &str, attempt: u32, reason: &str) {
    eprintln!("DISTURBED {test}: attempt {attempt}: {reason}");
    let Some(path) = env::var_os(RETRIES_LOG_ENV) else {
        return;
    };
    let log = File::options().append(true).create(true).open(&path);
    let reason = reason.replace(['\n', '\t'], " ");
    let line = format!("{test}\t{attempt}\t{reason}\n");
    if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        panic!(
            "append to the log of repetitions {}: {error}",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Nothing here goes to the runner's log, which counts what happened to real measurements.
    fn quiet(_: &str, _: u32, _: &str) {}

    #[test]
    fn disturbed_runs_are_repeated_and_reported() {
        let reported = RefCell::new(Vec::new());
        let measure = |attempt| Disturbed::unless(attempt == 3, "noise").map(|()| attempt);
        let report = |test: &str, attempt, reason: &str| {
            reported
                .borrow_mut()
                .push(format!("{test} {attempt} {reason}"));
        };
        assert_eq!(repeat_and_report("here", 4, measure, report), 3);
        assert_eq!(reported.into_inner(), ["here 1 noise", "here 2 noise"]);
    }

    #[test]
    #[should_panic(expected = "here: disturbed 2 of 2 times: one; two")]
    fn the_limit_fails_with_all_reasons() {
        let reasons = ["one", "two"];
        let measure = |attempt: u32| Disturbed::unless(false, reasons[attempt as usize - 1]);
        repeat_and_report("here", 2, measure, quiet);
    }

    #[test]
    #[should_panic(expected = "wrong at attempt 1")]
    fn a_failed_assertion_is_not_repeated() {
        let measure = |attempt| -> Result<(), Disturbed> { panic!("wrong at attempt {attempt}") };
        repeat_and_report("here", 3, measure, quiet);
    }
}
