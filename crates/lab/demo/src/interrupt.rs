//! Ctrl-C: remove what was made on disk and end; the rest goes with this process.
//!
//! Namespaces, links and BPF programs are held by descriptors of this process, and its children are
//! killed when it ends (see fairpath-testbed), so there is nothing else to clean up.

use std::process;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::out::Out;

/// A shell's status for a command that a signal ended is this and the signal's number.
const STATUS_OF_SIGNAL: i32 = 128;

/// Removes the samples and ends this process when SIGINT, SIGTERM or SIGHUP comes.
///
/// Their directory goes as well, if this process has made it and nothing else is in it.
pub fn remove_when_interrupted(out: &Out) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("handle signals")?;
    let out = out.clone();
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            out.remove();
            eprintln!("\nfairpath demo: interrupted; nothing is left behind");
            process::exit(STATUS_OF_SIGNAL + signal);
        }
    });
    Ok(())
}
