//! `fairpath top` in a pseudo-terminal: what keys do and what the screen shows. The daemon on the
//! other side of the socket is made up, so that a test decides what it shows.

mod bytes;
mod daemon;
mod failures;
mod keys;
mod leaving;
mod once;
mod terminal;

use daemon::Daemon;
use fairpath_tests::binary;
use terminal::Terminal;

/// The live table of this daemon in a terminal of this size.
fn top(daemon: &Daemon, columns: u16, lines: u16) -> Terminal {
    Terminal::run(command(daemon, &[]), columns, lines)
}

/// With these arguments besides.
fn command(daemon: &Daemon, args: &[&str]) -> portable_pty::CommandBuilder {
    let socket = daemon.socket();
    let socket = socket.to_str().expect("a path of ASCII");
    let mut words = vec!["top", "--socket", socket, "--interval", "100ms"];
    words.extend(args);
    terminal::command(binary::fairpath(), &words)
}
