//! `fairpath alerts`: the active alerts of the daemon, one per fault.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::ValueEnum;
use fairpath_history::snapshot::{Alert, Answer, Request};
use fairpath_top::{DEFAULT_SOCKET, SocketSource};

/// List the active alerts of the daemon.
///
/// Alerts below a listed one, with the same condition and leg, are counted in its text. The daemon
/// reports the same alerts to the log, the file of alerts and the hook. Needs root, or membership in
/// the group of the control socket.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath alerts\n  \
    fairpath alerts --format json")]
pub struct Args {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One alert per line, the oldest first
    Text,
    /// One JSON object per alert and line, nothing without an alert
    Json,
}

/// Runs `fairpath alerts`.
///
/// # Errors
/// No daemon answers.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut source = SocketSource::connect(&args.socket)?;
    let Answer::Snapshot { snapshot } = source.query(&Request::Status)? else {
        bail!(
            "alerts: unexpected answer of the daemon: check that it has the version of this command"
        );
    };
    let text = match args.format {
        Format::Text => text(&snapshot.alerts, snapshot.unix_ns),
        Format::Json => json_lines(&snapshot.alerts).context("write the alerts as JSON")?,
    };
    fairpath_cli::print(text)
}

fn json_lines(alerts: &[Alert]) -> serde_json::Result<String> {
    let lines = alerts.iter().map(serde_json::to_string);
    let lines: Vec<String> = lines.collect::<Result<_, _>>()?;
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

/// Time since the condition began, and text: oldest first.
fn text(alerts: &[Alert], unix_ns: u64) -> String {
    if alerts.is_empty() {
        return "no active alerts\n".to_owned();
    }
    let mut oldest: Vec<&Alert> = alerts.iter().collect();
    oldest.sort_by_key(|alert| alert.since_unix_ns);
    let line = |alert: &&Alert| {
        let seconds = unix_ns.saturating_sub(alert.since_unix_ns) / 1_000_000_000;
        let text = fairpath_units::text::line(&alert.text);
        format!("for {:<14}{text}\n", fairpath_units::span(seconds))
    };
    oldest.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(since_s: u64, text: &str) -> Alert {
        Alert {
            since_unix_ns: since_s * 1_000_000_000 + 7,
            text: text.to_owned(),
            ..Alert::default()
        }
    }

    #[test]
    fn json_without_alerts_is_empty() {
        assert_eq!(json_lines(&[]).unwrap(), "");
    }

    #[test]
    fn alerts_are_lines_with_the_oldest_first() {
        assert_eq!(text(&[], 0), "no active alerts\n");
        let alerts = [
            alert(5_000, "anna: inside: loss 3.00 %, threshold 2.00 %"),
            alert(1_300, "site\u{1b}[2J: outside: median 40 ms, and 2 below"),
        ];
        assert_eq!(
            text(&alerts, 5_061_000_000_000),
            "for 1 h 2 min     site?[2J: outside: median 40 ms, and 2 below\n\
             for 1 min 0 s     anna: inside: loss 3.00 %, threshold 2.00 %\n"
        );
        let lines = json_lines(&alerts).unwrap();
        let read: Vec<Alert> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, alerts);
    }
}
