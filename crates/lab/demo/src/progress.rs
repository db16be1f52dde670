//! Progress: lines on standard error, with a spinner on a terminal.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two frames of the spinner.
const SPIN_EVERY: Duration = Duration::from_millis(120);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// Progress of one run.
pub struct Progress {
    started: Instant,
    terminal: bool,
    quiet: bool,
    parts: usize,
    begun: usize,
}

impl Progress {
    /// Progress of a run with this number of parts; without lines if `quiet`.
    pub fn new(parts: usize, quiet: bool) -> Progress {
        Progress {
            started: Instant::now(),
            terminal: !quiet && io::stderr().is_terminal(),
            quiet,
            parts,
            begun: 0,
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Runs work that is not a part, such as the set-up.
    pub fn run<T>(&self, title: &str, work: impl FnOnce() -> T) -> T {
        self.line(format_args!(
            "[{:4.1} s]      {title}",
            self.elapsed().as_secs_f64()
        ));
        self.spin(work)
    }

    /// Runs the next part, and prints its outcome.
    pub fn part<T: Display>(
        &mut self,
        title: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.begun += 1;
        let (begun, parts) = (self.begun, self.parts);
        self.line(format_args!(
            "[{:4.1} s] {begun}/{parts}  {title}",
            self.elapsed().as_secs_f64()
        ));
        let outcome = self.spin(work);
        match &outcome {
            Ok(done) => self.line(format_args!("              {done}")),
            Err(error) => {
                fairpath_cli::print_stderr(format_args!("              FAILED: {error:#}\n"))
            }
        }
        outcome
    }

    fn line(&self, text: impl Display) {
        if !self.quiet {
            fairpath_cli::print_stderr(format_args!("{text}\n"));
        }
    }

    /// Shows the spinner during `work`.
    fn spin<T>(&self, work: impl FnOnce() -> T) -> T {
        if !self.terminal {
            return work();
        }
        thread::scope(|scope| {
            let (done, ended) = mpsc::channel::<()>();
            let spinner = scope.spawn(move || spin_until(&ended));
            let result = work();
            drop(done);
            // A panic of the spinner has already printed its message.
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
    // A closed terminal needs no spinner.
    let _ = io::stderr().write_all(text.as_bytes());
}
