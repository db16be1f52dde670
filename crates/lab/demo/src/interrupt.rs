//! Ctrl-C: removes the files, and ends the process. Everything else ends with the process.
//!
//! Namespaces, links and BPF programs are held by descriptors of this process, and its children are
//! killed when it ends (see fairpath-testbed), so there is nothing else to clean up.

use std::process;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::out::Out;

/// The exit status after a signal is this plus the number of the signal, as in a shell.
const STATUS_OF_SIGNAL: i32 = 128;

/// Removes the samples and ends this process at SIGINT, SIGTERM or SIGHUP.
///
/// The directory is removed as well if this process created it and it is empty.
pub fn remove_when_interrupted(out: &Out) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("handle signals")?;
    let out = out.clone();
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            out.remove();
            fairpath_cli::note("interrupted; everything is removed");
            process::exit(STATUS_OF_SIGNAL + signal);
        }
    });
    Ok(())
}
