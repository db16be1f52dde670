//! Ctrl-C: remove the half-written samples and end; the rest goes with this process.
//!
//! Namespaces, links and BPF programs are held by descriptors of this process, and its children are
//! killed when it ends (see fairpath-testbed), so there is nothing else to clean up.

use std::fs;
use std::path::Path;
use std::process;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A shell's status for a command that a signal ended is this and the signal's number.
const STATUS_OF_SIGNAL: i32 = 128;

/// Removes `file` and ends this process when SIGINT, SIGTERM or SIGHUP comes.
pub fn remove_when_interrupted(file: &Path) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("handle signals")?;
    let file = file.to_owned();
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // It may not be there yet.
            let _ = fs::remove_file(&file);
            eprintln!("\nfairpath demo: interrupted; the namespaces and all in them are gone");
            process::exit(STATUS_OF_SIGNAL + signal);
        }
    });
    Ok(())
}
