//! The progress of reading a capture, on standard error: bytes, rate, share and remaining time.
//!
//! On a terminal it is one line that is replaced and finally cleared. With `--progress`, if standard
//! error is no terminal, it is a line a second.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fairpath_units::span;

/// Packets between two readings of the clock.
const PACKETS_PER_READING: u64 = 8192;
/// Between two updates of a terminal.
const UPDATE_EVERY: Duration = Duration::from_millis(250);
/// Between two lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// A stream that counts the bytes that are read from it.
pub struct Counted<R> {
    stream: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// Shows the progress until it is dropped.
pub struct Progress {
    bytes: Rc<Cell<u64>>,
    /// Of a file; pipes have none.
    total: Option<u64>,
    began: Instant,
    /// The time of the next update. `None`: nothing is shown.
    next: Option<Instant>,
    is_terminal: bool,
    /// A line is on the terminal.
    shown: bool,
}

impl Progress {
    /// Of a stream of `total` bytes. Without `wanted`, it is shown on a terminal only, and only if no
    /// `records` appear on the same terminal.
    pub fn of<R: Read>(
        stream: R,
        total: Option<u64>,
        wanted: bool,
        records: bool,
    ) -> (Counted<R>, Progress) {
        let bytes = Rc::new(Cell::new(0));
        let counted = Counted {
            stream,
            bytes: Rc::clone(&bytes),
        };
        let is_terminal = io::stderr().is_terminal();
        let undisturbed = is_terminal && !(records && io::stdout().is_terminal());
        let began = Instant::now();
        let progress = Progress {
            bytes,
            total,
            began,
            next: (wanted || undisturbed).then(|| began + LINE_EVERY),
            is_terminal,
            shown: false,
        };
        (counted, progress)
    }

    /// After each packet.
    #[inline]
    pub fn packet(&mut self, packets: u64) {
        if packets.is_multiple_of(PACKETS_PER_READING) && self.next.is_some() {
            self.update();
        }
    }

    fn update(&mut self) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let line = line(self.bytes.get(), self.total, now - self.began);
        let (text, every) = if self.is_terminal {
            (format!("\r{line}\x1b[K"), UPDATE_EVERY)
        } else {
            (format!("{line}\n"), LINE_EVERY)
        };
        // A closed standard error is no failure.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        self.shown = self.is_terminal;
        self.next = Some(now + every);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}

/// `read 3.2 GB of 21.4 GB (15 %), 1.1 GB/s, 17 s left`.
fn line(bytes: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = bytes as f64 / elapsed.as_secs_f64().max(1e-9);
    let mut line = format!("read {}", size(bytes as f64));
    // A file may grow while it is read.
    let total = total.filter(|total| *total > 0 && *total >= bytes);
    if let Some(total) = total {
        let share = 100 * u128::from(bytes) / u128::from(total);
        let _ = write!(line, " of {} ({share} %)", size(total as f64));
    }
    let _ = write!(line, ", {}/s", size(rate));
    if let Some(total) = total {
        let left = (total - bytes) as f64 / rate.max(1.0);
        let _ = write!(line, ", {} left", span(left.ceil() as u64));
    }
    line
}

/// With at most one decimal: `512 B`, `3.2 GB`.
fn size(bytes: f64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_share_and_remaining_time_of_files() {
        let elapsed = Duration::from_secs(3);
        assert_eq!(
            line(3_300_000_000, Some(22_000_000_000), elapsed),
            "read 3.3 GB of 22.0 GB (15 %), 1.1 GB/s, 17 s left"
        );
        assert_eq!(
            line(12_000, Some(90_000_000), elapsed),
            "read 12.0 kB of 90.0 MB (0 %), 4.0 kB/s, 6 h 14 min left"
        );
    }

    #[test]
    fn progress_of_pipes_has_no_total() {
        let elapsed = Duration::from_secs(2);
        let expected = "read 1.0 GB, 500.0 MB/s";
        assert_eq!(line(1_000_000_000, None, elapsed), expected);
        assert_eq!(line(1_000_000_000, Some(999), elapsed), expected);
        assert_eq!(line(0, None, Duration::ZERO), "read 0 B, 0 B/s");
    }
}
