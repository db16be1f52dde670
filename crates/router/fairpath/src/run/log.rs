//! The log of the daemon on standard error: with the time, or for the journal with the priority
//! (`sd-daemon(3)`).

use std::fmt;
use std::str::FromStr;

use fairpath_units::text::line;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts logging. Later calls change nothing.
pub fn start(level: Verbosity) {
    let to_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let logger = tracing_subscriber::fmt()
        .with_max_level(Level::from(level))
        .with_writer(std::io::stderr)
        .event_format(LogFormat { to_journal })
        .finish();
    // Only a second call fails, and the first logger stays.
    let _ = tracing::subscriber::set_global_default(logger);
}

/// Minimum level of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Verbosity {
    /// Failures
    Error,
    /// Also warnings
    Warn,
    /// Also changes
    #[default]
    Info,
    /// Also each step
    Debug,
}

impl Verbosity {
    /// The level by `-v` and `-q`.
    pub fn of(global: &fairpath_cli::Global) -> Verbosity {
        match (global.verbose, global.quiet) {
            (true, _) => Verbosity::Debug,
            (_, true) => Verbosity::Warn,
            _ => Verbosity::Info,
        }
    }
}

impl From<Verbosity> for Level {
    fn from(verbosity: Verbosity) -> Level {
        match verbosity {
            Verbosity::Error => Level::ERROR,
            Verbosity::Warn => Level::WARN,
            Verbosity::Info => Level::INFO,
            Verbosity::Debug => Level::DEBUG,
        }
    }
}

impl FromStr for Verbosity {
    type Err = String;

    fn from_str(text: &str) -> Result<Verbosity, String> {
        <Verbosity as clap::ValueEnum>::from_str(text, false)
    }
}

struct LogFormat {
    to_journal: bool,
}

/// The priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// An event is one line: names, or the output of hooks and tools, must not look like other events.
fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().map(line).collect();
    lines.join(" | ")
}

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        if self.to_journal {
            write!(writer, "<{}>", priority(level))?;
        } else {
            SystemTime.format_time(&mut writer)?;
            write!(writer, " {level:>5} ")?;
        }
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writeln!(writer, "{}", one_line(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_clean_line() {
        let written = Written::default();
        let writer = written.clone();
        let logger = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(LogFormat { to_journal: true })
            .finish();
        let hostile = "done\n<3>forged\u{1b}[2J\u{9b}2J\r\u{202e}x\n";
        tracing::subscriber::with_default(logger, || {
            tracing::info!("hook \"a\" for {hostile}");
            tracing::warn!(name = hostile, "watching");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(
            text.starts_with("<6>hook \"a\" for done | <3>forged"),
            "{text:?}"
        );
        let is_clean = |c: char| c == '\n' || !fairpath_units::text::is_unsafe(c);
        assert!(text.chars().all(is_clean), "{text:?}");
    }
}
