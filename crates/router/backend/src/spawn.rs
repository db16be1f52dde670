//! Processes that outlive what may be asked of this one.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Starts a program that must not end early when this process is stopped: in its own process group, and
/// without the signals that a terminal or `systemctl stop` sends to all processes.
///
/// A group alone is not enough: until the child has it, Ctrl-C is the child's, too.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn_spared(command: &mut Command) -> anyhow::Result<Child> {
    // The child inherits the blocked signals of this thread.
    let child = without_signals(|| command.process_group(0).spawn())?;
    child.context("cannot be started")
}

/// Does something while this thread takes no signals of a terminal or `systemctl stop`: they come after it.
///
/// # Errors
/// The kernel refuses to block signals.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> anyhow::Result<T> {
    let before = stopping()
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .context("hold signals back")?;
    let done = act();
    before.thread_set_mask().context("take signals again")?;
    Ok(done)
}

/// Takes these signals again, in a process that was started during this time.
///
/// # Errors
/// The kernel refuses to unblock signals.
pub fn with_signals() -> anyhow::Result<()> {
    let taken = stopping().thread_unblock();
    taken.context("take signals again")
}

fn stopping() -> SigSet {
    let mut stopping = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        stopping.add(signal);
    }
    stopping
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_survive_the_signals_of_the_parent() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -INT $$; kill -TERM $$; kill -HUP $$; exit 7"]);
        let status = spawn_spared(&mut command).unwrap().wait().unwrap();
        assert_eq!(status.code(), Some(7), "{status}");
        let mut command = Command::new("sh");
        command.args(["-c", "kill -TERM $$; exit 7"]);
        let status = command.status().unwrap();
        assert_eq!(status.code(), None, "this thread takes signals again");
    }
}
