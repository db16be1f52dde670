//! However the live table ends, the terminal is as it was before.

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

/// Where the alternate screen was left, and the cursor shown, after both were taken.
fn assert_given_back(terminal: &Terminal) {
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
    assert_given_back(&terminal);
}

#[test]
fn quitting_gives_the_terminal_back() {
    leave_by(|terminal| terminal.press("q"));
}

#[test]
fn control_c_gives_the_terminal_back() {
    leave_by(|terminal| terminal.press("\x03"));
}

#[test]
fn sigterm_gives_the_terminal_back() {
    leave_by(|terminal| terminal.signal(Signal::SIGTERM));
}

#[test]
fn sighup_gives_the_terminal_back() {
    leave_by(|terminal| terminal.signal(Signal::SIGHUP));
}

#[test]
fn sigint_from_outside_gives_the_terminal_back() {
    leave_by(|terminal| terminal.signal(Signal::SIGINT));
}

#[test]
fn a_shell_gets_the_terminal_by_control_z_and_gives_it_back_by_fg() {
    let shell = Path::new("/bin/bash");
    if !shell.exists() {
        return skip_test(
            "a_shell_gets_the_terminal_by_control_z_and_gives_it_back_by_fg",
            "command:bash",
            "is the shell that has jobs",
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
    assert_given_back(&terminal);
}

#[test]
fn a_stuck_daemon_does_not_hold_back_the_end() {
    // The second picture never comes.
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let mut pictures = 0;
    let daemon = Daemon::start(move |_| {
        pictures += 1;
        if pictures > 1 {
            let _ = held.recv();
        }
        town()
    });
    // Let go before the daemon is dropped, which waits for its answers.
    let _hold = hold;
    let mut terminal = top(&daemon, 80, 24);
    terminal.shows("carla");
    terminal.press("s");
    terminal.shows("sort: rate");
    terminal.press("q");
    assert!(terminal.ends().success());
    assert_given_back(&terminal);
}

/// Names the child of [`a_panic_gives_the_terminal_back_and_shows_its_message`].
const PANICS: &str = "FAIRPATH_TEST_TOP_PANICS";

struct Panics;

impl Source for Panics {
    fn snapshot(&mut self, _: &Query) -> Result<Snapshot, SourceError> {
        panic!("planted panic");
    }

    fn detail(&mut self, _: &str, _: usize) -> Result<Detail, SourceError> {
        Ok(Detail::default())
    }
}

/// Runs this test again in a terminal, where its source panics.
#[test]
fn a_panic_gives_the_terminal_back_and_shows_its_message() {
    if std::env::var_os(PANICS).is_some() {
        let options = Options {
            query: Query::default(),
            interval: Duration::from_millis(100),
            look: Look {
                ascii: true,
                colour: false,
            },
        };
        let error = fairpath_top::run(Box::new(Panics), &options).expect_err("it cannot go on");
        println!("ended: {error}");
        return;
    }
    let program = std::env::current_exe().expect("a running test has a path");
    let name = "leaving::a_panic_gives_the_terminal_back_and_shows_its_message";
    let args = ["--exact", name, "--nocapture"];
    let mut command = terminal::command(Path::new(&program), &args);
    command.env(PANICS, "1");
    let mut terminal = Terminal::run(command, 100, 60);
    assert!(terminal.ends().success());
    assert_given_back(&terminal);
    let text = String::from_utf8(terminal.bytes()).unwrap();
    let left = text.rfind("\x1b[?1049l").unwrap();
    let told = text.find("planted panic").expect("the panic's message");
    assert!(
        left < told,
        "the message is on the screen that was left: {text:?}"
    );
    assert!(text.contains("ended: ask for a picture"), "{text:?}");
}
