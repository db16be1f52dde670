//! Reports the skip of a test that lacks something: printed, and appended to a log that the runner counts.

use std::env;
use std::fs::File;
use std::io::Write;

/// Names the log; the runner (`cargo xtask test`) sets it.
pub const SKIP_LOG_ENV: &str = "FAIRPATH_SKIP_LOG";

/// Says that `test` is skipped because `need` is missing, and why.
///
/// `need` is `root`, `command:NAME`, `feature:ID` (an id of `fairpath features`) or free words; the
/// runner fails where such a need is met after all.
///
/// # Panics
/// The log cannot be written: the skip would not be counted, and the test would seem to pass.
pub fn skip_test(test: &str, need: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
    let Some(path) = env::var_os(SKIP_LOG_ENV) else {
        return;
    };
    let log = File::options().append(true).create(true).open(&path);
    let line = format!("{test}\t{need}\t{reason}\n");
    if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        panic!("append to the log of skips {}: {error}", path.display());
    }
}
