//! `--watch`: a report that is printed again and again.

use std::time::Duration;

use fairpath_units::quantity::read_duration;

use crate::run::Signals;

/// Shortest time between two reports.
const SHORTEST: Duration = Duration::from_millis(100);

/// Options of a report that can be repeated.
#[derive(clap::Args)]
pub struct AgainArgs {
    /// Print it again after each interval, until it is interrupted
    #[arg(long)]
    watch: bool,
    /// Time between two reports of --watch, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, requires = "watch")]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    match read_duration(text).map_err(|why| why.to_string())? {
        time if time < SHORTEST => Err(format!("{text:?} is too short: the minimum is 100ms")),
        time => Ok(time),
    }
}

impl AgainArgs {
    pub fn is_repeated(&self) -> bool {
        self.watch
    }

    /// Prints reports until it is interrupted, or no one reads them. Returns the last one.
    ///
    /// # Errors
    /// A report failed.
    pub fn print<T>(&self, mut report: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if !self.watch {
            return report();
        }
        let signals = Signals::take()?;
        loop {
            let last = report()?;
            if fairpath_cli::reader_has_ended() {
                return Ok(last);
            }
            signals.wait(self.interval)?;
            if signals.stop() {
                return Ok(last);
            }
        }
    }
}
