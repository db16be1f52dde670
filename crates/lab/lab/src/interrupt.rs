//! Ctrl-C: the first ends the grid after what is under way was given up, the second ends at once.
//!
//! Namespaces, links and programs are held by descriptors of this process, and its children are killed
//! when it ends, so there is nothing to clean up; records appear whole or not at all.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A shell's status for a command that SIGINT ended.
pub const STATUS: u8 = 130;

/// The request of a signal to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    wanted: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens to SIGINT, SIGTERM and SIGHUP from now on.
    ///
    /// # Errors
    /// The handlers could not be installed.
    pub fn listen() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("handle signals")?;
        let wanted = Arc::clone(&interrupt.wanted);
        thread::spawn(move || {
            for _ in signals.forever() {
                if wanted.swap(true, Ordering::Relaxed) {
                    fairpath_cli::note("ended at once; finished runs are kept");
                    process::exit(STATUS.into());
                }
                fairpath_cli::note("ending; repeat the signal to end at once");
            }
        });
        Ok(interrupt)
    }

    /// True if the run must end.
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}
