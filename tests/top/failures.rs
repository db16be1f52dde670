//! A daemon that does not run, refuses this user, or ends.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fairpath_tests::{PATIENCE, binary};
use fairpath_units::skip_test;

use crate::daemon::{Daemon, row, snapshot, town};
use crate::top;

/// Waits for a condition of the test daemon.
pub fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "the condition was never true");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn failing(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("start fairpath");
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(stdout.is_empty());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn the_last_snapshot_stays_until_the_daemon_returns() {
    let mut daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 120, 24);
    terminal.shows("carla");
    daemon.stop();
    terminal.shows("! connect to");
    terminal.shows("no daemon listens there");
    terminal.shows("carla");
    terminal.press("s");
    terminal.shows("sort: rate");
    daemon.show(snapshot(vec![row("new class", None, 0, 1)]));
    daemon.listen();
    terminal.shows("new class");
    terminal.hides("! connect to");
}

#[test]
fn a_removed_class_leaves_a_message() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 100, 24);
    terminal.shows("carla");
    terminal.press("jj\r");
    terminal.shows("INSIDE 199");
    daemon.show(snapshot(vec![row("new class", None, 0, 1)]));
    terminal.shows("! show class carla: there is none");
    terminal.press("\x1b");
    terminal.shows("new class");
    terminal.hides("! show class carla");
}

#[test]
fn a_missing_daemon_names_the_remedy() {
    let nowhere = tempfile::tempdir().unwrap();
    let socket = nowhere.path().join("control.sock");
    let mut command = binary::command(binary::fairpath());
    let error = failing(command.args(["top", "--once", "--socket"]).arg(&socket));
    for part in [
        socket.to_str().unwrap(),
        "no daemon",
        "systemctl start fairpath",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.trim_end().ends_with("--socket"),
        "the remedy comes last: {error}"
    );
}

#[test]
fn an_access_error_names_the_group() {
    if !nix::unistd::Uid::effective().is_root() {
        return skip_test(
            "an_access_error_names_the_group",
            "root",
            "switches to a user without access to the socket",
        );
    }
    let daemon = Daemon::showing(town());
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(daemon.directory(), mode(0o755)).unwrap();
    std::fs::set_permissions(daemon.socket(), mode(0o660)).unwrap();
    // Next to the socket, because other users may have no access to the directory of the binary.
    let mut command = Command::new(binary::put_into(daemon.directory(), binary::fairpath()));
    command
        .args(["top", "--once", "--socket"])
        .arg(daemon.socket());
    let error = failing(command.uid(65_534).gid(65_534));
    assert!(error.contains("Permission denied"), "{error}");
    assert!(error.contains("group fairpath"), "{error}");
}

#[test]
fn a_live_table_in_a_pipe_suggests_once() {
    let daemon = Daemon::showing(town());
    let mut command = binary::command(binary::fairpath());
    let error = failing(command.args(["top", "--socket"]).arg(daemon.socket()));
    assert!(error.contains("--once"), "{error}");
}
