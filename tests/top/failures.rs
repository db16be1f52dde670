//! A daemon that is not there, not for us, or goes away.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fairpath_tests::{PATIENCE, binary};
use fairpath_units::skip_test;

use crate::daemon::{Daemon, picture, row, town};
use crate::top;

/// Waits for a condition of the made-up daemon.
pub fn until(so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "it never was so");
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
fn a_daemon_that_goes_away_leaves_its_last_picture_and_its_return_is_seen() {
    let mut daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 120, 24);
    terminal.shows("carla");
    daemon.stop();
    terminal.shows("! connect to");
    terminal.shows("no daemon listens there");
    terminal.shows("carla");
    terminal.press("s");
    terminal.shows("sort: rate");
    daemon.show(picture(vec![row("newcomer", None, 0, 1)]));
    daemon.listen();
    terminal.shows("newcomer");
    terminal.hides("! connect to");
}

#[test]
fn a_class_that_vanished_is_said_and_the_table_is_still_there() {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 100, 24);
    terminal.shows("carla");
    terminal.press("jj\r");
    terminal.shows("INSIDE 199");
    daemon.show(picture(vec![row("newcomer", None, 0, 1)]));
    terminal.shows("! look at class carla: there is none");
    terminal.press("\x1b");
    terminal.shows("newcomer");
    terminal.hides("! look at class carla");
}

#[test]
fn without_a_daemon_it_says_how_to_start_one() {
    let nowhere = tempfile::tempdir().unwrap();
    let socket = nowhere.path().join("control.sock");
    let mut command = binary::command(binary::fairpath());
    let said = failing(command.args(["top", "--once", "--socket"]).arg(&socket));
    for part in [
        socket.to_str().unwrap(),
        "no daemon",
        "systemctl start fairpath",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.trim_end().ends_with("--socket"),
        "the remedy comes last: {said}"
    );
}

#[test]
fn a_socket_that_is_not_for_us_names_the_group() {
    if !nix::unistd::Uid::effective().is_root() {
        return skip_test(
            "a_socket_that_is_not_for_us_names_the_group",
            "root",
            "becomes another user, whom the socket refuses",
        );
    }
    let daemon = Daemon::showing(town());
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(daemon.directory(), mode(0o755)).unwrap();
    std::fs::set_permissions(daemon.socket(), mode(0o660)).unwrap();
    // Beside the socket, wherever the binary lies: other users may not be able to go there.
    let copy = daemon.directory().join("fairpath");
    std::fs::copy(binary::fairpath(), &copy).unwrap();
    let mut command = Command::new(copy);
    command
        .args(["top", "--once", "--socket"])
        .arg(daemon.socket());
    let said = failing(command.uid(65_534).gid(65_534));
    assert!(said.contains("Permission denied"), "{said}");
    assert!(said.contains("group fairpath"), "{said}");
}

#[test]
fn a_live_table_into_a_pipe_names_once() {
    let daemon = Daemon::showing(town());
    let mut command = binary::command(binary::fairpath());
    let said = failing(command.args(["top", "--socket"]).arg(daemon.socket()));
    assert!(said.contains("--once"), "{said}");
}
