//! Signals of a new program as a terminal would give them, whatever this process inherited.
//!
//! A shell starts its background jobs with SIGINT and SIGQUIT ignored, `nohup` ignores SIGHUP, and what
//! is ignored stays so across `exec`: a program that handles none of them could then not be ended by
//! Ctrl-C, and a suite would pass or fail by how it was started.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};

/// Signals that a parent may have ignored, and that end a program by default.
const ENDING: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGPIPE,
    Signal::SIGTERM,
];

/// Has `command` start with default dispositions and nothing blocked.
///
/// [`Netns::command`](crate::Netns::command) does it; this is for programs outside of namespaces.
pub fn with_default_signals(command: &mut Command) -> &mut Command {
    // SAFETY: `reset` makes system calls only; it touches no lock and no allocator.
    unsafe { command.pre_exec(reset) }
}

/// In the child, before `exec`.
pub(crate) fn reset() -> io::Result<()> {
    for ending in ENDING {
        // SAFETY: the default disposition runs no handler of ours.
        unsafe { signal(ending, SigHandler::SigDfl) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}
