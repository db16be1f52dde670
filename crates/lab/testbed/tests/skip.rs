//! A test whose need is not met returns, and says so where it can be counted.

use std::env;
use std::process::Command;

/// Identifies the child.
const CHILD: &str = "FAIRPATH_SKIP_CHILD";
/// The test, which starts itself again.
const NAME: &str = "a_skip_returns_and_logs_one_line";

use fairpath_testbed::{Need, SKIP_LOG_ENV, requires};

#[test]
fn a_skip_returns_and_logs_one_line() {
    if env::var_os(CHILD).is_some() {
        requires!(Need::Tool("no-such-tool-of-fairpath"));
        panic!("the test continued without its requirement");
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, "1")
        .env(SKIP_LOG_ENV, log.path());
    let output = child.output().unwrap();
    let reason = "needs the tool no-such-tool-of-fairpath";
    let line = format!("SKIP skip::{NAME}: {reason}\n");
    let logged = format!("skip::{NAME}\tcommand:no-such-tool-of-fairpath\t{reason}\n");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains(&line));
    assert_eq!(std::fs::read_to_string(log.path()).unwrap(), logged);
}
