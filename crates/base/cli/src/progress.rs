//! The progress of a simulation: a line on standard error that is replaced, on a terminal only.

use std::io::{self, IsTerminal, Write};

use fairpath_units::quantity::written;

/// Columns that the line takes, at most.
const COLUMNS: usize = 72;
/// Virtual time between two updates without an end.
const STEP_NS: u64 = 1_000_000_000;

/// The progress in virtual time.
#[derive(Debug)]
pub struct VirtualProgress {
    about: String,
    end: Option<u64>,
    shown: Option<u64>,
    is_terminal: bool,
}

impl VirtualProgress {
    /// Of a simulation that ends at `end`, in nanoseconds; `about` begins the line.
    pub fn new(about: &str, end: Option<u64>) -> VirtualProgress {
        VirtualProgress {
            about: about.to_owned(),
            end,
            shown: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Prints after each 1 % of the duration, or after each virtual second without one.
    pub fn show(&mut self, now: u64) {
        let step = self.end.map_or(STEP_NS, |end| (end / 100).max(1));
        if !self.is_terminal || self.shown == Some(now / step) {
            return;
        }
        self.shown = Some(now / step);
        let at = written(now / 1_000_000 * 1_000_000, "ns");
        let of = self
            .end
            .map_or_else(String::new, |end| format!(" of {}", written(end, "ns")));
        let line = format!("{}simulated {at}{of}", self.about);
        let _ = write!(io::stderr(), "\r{line:COLUMNS$}");
    }

    /// Clears the line.
    pub fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r{:COLUMNS$}\r", "");
        }
    }
}
