//! Skips for needs that the testbed has no name for.

use std::io::Write;

/// Tells and logs that `test` is skipped: the line is `test TAB need TAB reason` (CONTRIBUTING.md).
pub fn skip_for(test: &str, need: &str, reason: &str) {
    eprintln!("SKIP {test}: needs {need}: {reason}");
    let Some(path) = std::env::var_os("FAIRPATH_SKIP_LOG") else {
        return;
    };
    let line = format!("{test}\t{need}\t{}\n", reason.replace(['\n', '\t'], " "));
    let log = std::fs::File::options()
        .append(true)
        .create(true)
        .open(&path);
    if let Err(error) = log.and_then(|mut log| log.write_all(line.as_bytes())) {
        eprintln!("write skip log {path:?}: {error}");
    }
}
