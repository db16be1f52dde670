//! `fairpath top` in a pseudo-terminal: keys and screens. A test daemon is at the other end of the
//! socket, so that each test chooses the snapshots.

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

/// The live table of a daemon in a terminal of this size.
fn top(daemon: &Daemon, columns: u16, lines: u16) -> Terminal {
    Terminal::run(command(daemon, &[]), columns, lines)
}

/// The command line for a daemon, with more arguments.
fn command(daemon: &Daemon, args: &[&str]) -> portable_pty::CommandBuilder {
    let socket = daemon.socket();
    let socket = socket.to_str().expect("a path of ASCII");
    let mut words = vec!["top", "--socket", socket, "--interval", "100ms"];
    words.extend(args);
    terminal::command(binary::fairpath(), &words)
}
