//! What is running, and for how long: lines on stderr, with a spinner only on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two pictures of the spinner.
const SPIN_EVERY: Duration = Duration::from_millis(120);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// Progress of one run.
pub struct Progress {
    started: Instant,
    terminal: bool,
    parts: usize,
    begun: usize,
}

impl Progress {
    /// Of a run with so many parts.
    pub fn new(parts: usize) -> Progress {
        Progress {
            started: Instant::now(),
            terminal: io::stderr().is_terminal(),
            parts,
            begun: 0,
        }
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Does what is not a part: setting up.
    pub fn run<T>(&self, title: &str, work: impl FnOnce() -> T) -> T {
        eprintln!("[{:4.1} s]      {title}", self.elapsed().as_secs_f64());
        self.spin(work)
    }

    /// Does the next part, and tells how it went.
    pub fn part<T: Display>(
        &mut self,
        title: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.begun += 1;
        let (begun, parts) = (self.begun, self.parts);
        eprintln!(
            "[{:4.1} s] {begun}/{parts}  {title}",
            self.elapsed().as_secs_f64()
        );
        let outcome = self.spin(work);
        match &outcome {
            Ok(done) => eprintln!("              {done}"),
            Err(error) => eprintln!("              FAILED: {error:#}"),
        }
        outcome
    }

    /// Turns the spinner while `work` is done.
    fn spin<T>(&self, work: impl FnOnce() -> T) -> T {
        if !self.terminal {
            return work();
        }
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel::<()>();
            let spinner = scope.spawn(move || spin_until(&ended));
            let result = work();
            drop(done);
            // It only prints; a panic there has been shown.
            let _ = spinner.join();
            result
        })
    }
}

fn spin_until(ended: &mpsc::Receiver<()>) {
    let begun = Instant::now();
    for frame in FRAMES.into_iter().cycle() {
        let seconds = begun.elapsed().as_secs();
        show(&format!("\r              {frame} {seconds} s"));
        if ended.recv_timeout(SPIN_EVERY) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    // Erases the line.
    show("\r\x1b[K");
}

fn show(text: &str) {
    // A terminal that is gone needs no spinner.
    let _ = io::stderr().write_all(text.as_bytes());
}
