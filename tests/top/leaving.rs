//! The terminal is restored, whichever way the live table ends.

use std::path::Path;
use std::time::Duration;

use fairpath_history::snapshot::{Detail, Query, Snapshot};
use fairpath_tests::binary;
use fairpath_top::{Look, Options, Source, SourceError};
use fairpath_units::skip_test;
use nix::sys::signal::Signal;

use crate::daemon::{Daemon, town};
use crate::terminal::{self, Terminal};
use crate::top;

/// Asserts that the alternate screen was left and the cursor is visible again.
fn assert_restored(terminal: &Terminal) {
    let bytes = terminal.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let last = |sequence| text.rfind(sequence);
    let taken = last("\x1b[?1049h").expect("the alternate screen was taken");
    assert!(
        last("\x1b[?1049l").is_some_and(|left| left > taken),
        "{text:?}"
    );
    let hidden = last("\x1b[?25l").expect("the cursor was hidden");
    assert!(
        last("\x1b[?25h").is_some_and(|shown| shown > hidden),
        "{text:?}"
    );
    assert!(terminal.is_cooked(), "no line editing or no echo");
}

fn leave_by(leave: impl Fn(&mut Terminal)) {
    let daemon = Daemon::showing(town());
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    assert!(!terminal.is_cooked());
    leave(&mut terminal);
    let status = terminal.ends();
    assert!(status.success(), "{status}");
    assert_restored(&terminal);
}

#[test]
fn quitting_restores_the_terminal() {
    leave_by(|terminal| terminal.press("q"));
}

#[test]
fn control_c_restores_the_terminal() {
    leave_by(|terminal| terminal.press("\x03"));
}

#[test]
fn sigterm_restores_the_terminal() {
    leave_by(|terminal| terminal.signal(Signal::SIGTERM));
}

#[test]
fn sighup_restores_the_terminal() {
    leave_by(|terminal| terminal.signal(Signal::SIGHUP));
}

#[test]
fn sigint_from_outside_restores_the_terminal() {
    leave_by(|terminal| terminal.signal(Signal::SIGINT));
}

#[test]
fn control_z_and_fg_suspend_and_resume() {
    let shell = Path::new("/bin/bash");
    if !shell.exists() {
        return skip_test(
            "control_z_and_fg_suspend_and_resume",
            "command:bash",
            "is a shell with job control",
        );
    }
    let daemon = Daemon::showing(town());
    let mut command = terminal::command(shell, &["--norc", "--noprofile", "-i"]);
    command.env("PS1", "ready> ");
    let mut terminal = Terminal::run(command, 80, 24);
    terminal.shows("ready>");
    let (binary, socket) = (binary::fairpath().display(), daemon.socket());
    terminal.press(&format!("{binary} top --socket {}\r", socket.display()));
    terminal.shows("carla");
    terminal.press("\x1a");
    terminal.shows("Stopped");
    terminal.press("fg\r");
    terminal.wait("the table again", |lines| lines[6].contains("carla"));
    terminal.press("s");
    terminal.shows("sort: rate");
    terminal.press("q");
    terminal.wait("the shell again", |lines| {
        lines
            .iter()
            .rev()
            .find(|line| !line.is_empty())
            .is_some_and(|line| line.starts_with("ready>"))
    });
    terminal.press("exit\r");
    terminal.ends();
    assert_restored(&terminal);
}

#[test]
fn a_stuck_daemon_does_not_delay_the_end() {
    // The second snapshot never arrives.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut snapshots = 0;
    let daemon = Daemon::start(move |_| {
        snapshots += 1;
        if snapshots > 1 {
            let _ = held.recv();
        }
        town()
    });
    // Dropped before the daemon, which waits for its answers.
    let _hold = hold;
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.press("s");
    terminal.shows("sort: rate");
    terminal.press("q");
    assert!(terminal.ends().success());
    assert_restored(&terminal);
}

/// Names the child of [`a_panic_restores_the_terminal_before_its_message`].
const PANICS: &str = "FAIRPATH_TEST_TOP_PANICS";

struct Panics;

impl Source for Panics {
    fn snapshot(&mut self, _: &Query) -> Result<Snapshot, SourceError> {
        panic!("test panic");
    }

    fn detail(&mut self, _: &str, _: usize) -> Result<Detail, SourceError> {
        Ok(Detail::default())
    }
}

/// Runs this test again in a terminal, where its source panics.
#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    if std::env::var_os(PANICS).is_some() {
        let options = Options {
            query: Query::default(),
            interval: Duration::from_millis(100),
            rules: false,
            look: Look {
                ascii: true,
                colour: false,
            },
        };
        let error = fairpath_top::run(Box::new(Panics), &options).expect_err("the source panicked");
        println!("ended: {error}");
        return;
    }
    let program = std::env::current_exe().expect("a running test has a path");
    let name = "leaving::a_panic_restores_the_terminal_before_its_message";
    let args = ["--exact", name, "--nocapture"];
    let mut command = terminal::command(Path::new(&program), &args);
    command.env(PANICS, "1");
    let mut terminal = Terminal::run(command, 100, 60);
    assert!(terminal.ends().success());
    assert_restored(&terminal);
    let text = String::from_utf8(terminal.bytes()).unwrap();
    let left = text.rfind("\x1b[?1049l").unwrap();
    let message = text.find("test panic").expect("the panic's message");
    assert!(
        left < message,
        "the message is on the alternate screen: {text:?}"
    );
    assert!(text.contains("ended: request a snapshot"), "{text:?}");
}
