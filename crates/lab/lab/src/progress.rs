//! The progress of a grid, and the remaining time: a line a run, to stderr.

use std::time::{Duration, Instant};

/// Counts runs that end.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    planned: usize,
    done: usize,
    /// Planned length of a run: shown before one has ended.
    guess: Duration,
}

impl Progress {
    /// Of `planned` runs, each of which may take `guess`.
    pub fn new(planned: usize, guess: Duration) -> Progress {
        Progress {
            began: Instant::now(),
            planned,
            done: 0,
            guess,
        }
    }

    /// One more is to be made.
    pub fn add(&mut self) {
        self.planned += 1;
    }

    /// A run has ended: the line for it.
    pub fn line(&mut self, what: &str, outcome: &str) -> String {
        self.done += 1;
        let width = self.planned.to_string().len();
        let left = written(self.left(self.began.elapsed()));
        format!(
            "[{:width$}/{}] {what}: {outcome}; {left} left",
            self.done, self.planned
        )
    }

    /// The remaining time, estimated from the runs so far.
    pub fn left(&self, elapsed: Duration) -> Duration {
        let ahead = self.planned.saturating_sub(self.done) as f64;
        let each = match self.done {
            0 => self.guess.as_secs_f64(),
            done => elapsed.as_secs_f64() / done as f64,
        };
        Duration::from_secs_f64(ahead * each)
    }
}

/// "3 min 20 s".
pub fn written(time: Duration) -> String {
    fairpath_units::span(time.as_secs_f64().round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_inferred_from_observations() {
        let mut progress = Progress::new(10, Duration::from_secs(7));
        assert_eq!(written(progress.left(Duration::ZERO)), "1 min 10 s");
        let line = progress.line("loss 1%", "true");
        assert!(line.starts_with("[ 1/10] loss 1%: true; "), "{line}");
        assert_eq!(
            written(progress.left(Duration::from_secs(500))),
            "1 h 15 min"
        );
    }
}
