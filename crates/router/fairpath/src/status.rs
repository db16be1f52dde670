//! `fairpath status` and `fairpath reload`: the status of the daemon, and a reload of its configuration.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use fairpath_history::history::{MAX_ACTIVE_ALERTS, MAX_ALERTS_PER_INTERVAL};
use fairpath_history::snapshot::{Answer, Request, Snapshot};
use fairpath_top::{DEFAULT_SOCKET, SocketSource};

/// A reload compiles and loads the rules of all classes before the daemon answers.
const RELOAD_TIME: Duration = Duration::from_secs(60);

/// Print the status of the daemon: interfaces, capacity and lost measurements.
///
/// Needs root, or membership in the group of the control socket.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath status\n  \
    fairpath status --format json")]
pub struct StatusArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Reload the configuration of the daemon, and wait for the result.
///
/// Needs root. A configuration with errors changes nothing: the errors are printed, and the exit
/// status is 1.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath reload\n  \
    fairpath reload --socket /run/fairpath/test.sock")]
pub struct ReloadArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One value per line
    Text,
    /// One JSON object
    Json,
}

/// Runs `fairpath status`.
///
/// # Errors
/// No daemon answers.
pub fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let mut source = SocketSource::connect(&args.socket)?;
    let Answer::Snapshot { snapshot } = source.query(&Request::Status)? else {
        bail!(
            "status: unexpected answer of the daemon: check that it has the version of this command"
        );
    };
    match args.format {
        Format::Text => fairpath_cli::print(text(&snapshot)),
        Format::Json => fairpath_cli::print(serde_json::to_string(&snapshot)? + "\n"),
    }
}

/// Runs `fairpath reload`.
///
/// # Errors
/// No daemon answers, or it refuses.
pub fn reload(args: &ReloadArgs) -> anyhow::Result<()> {
    let mut source = SocketSource::connect_within(&args.socket, RELOAD_TIME)?;
    let Answer::Done { text } = source.query(&Request::Reload)? else {
        bail!(
            "reload: unexpected answer of the daemon: check that it has the version of this command"
        );
    };
    fairpath_cli::print(format!("{text}\n"))
}

/// Counters that are zero while nothing is lost, with their meaning.
const LOSSES: [(&str, &str); 11] = [
    ("events_lost", "events lost: the ring buffer was full"),
    ("lock_failures", "packets not measured: a lock was busy"),
    (
        "scratch_busy",
        "packets not measured: the per-CPU scratch was busy",
    ),
    (
        "flows_refused",
        "packets not measured: their set of the flow table was full (see [monitor] flows)",
    ),
    ("readings_failed", "failed readings of the kernel"),
    ("readings_skipped", "skipped intervals: the loop was late"),
    ("state_saves_failed", "failed saves of the state"),
    ("hooks_dropped", "alerts without a run of their hook"),
    ("rows_dropped", "rows not written"),
    (
        "rejects_over_limit",
        "rejected packets without an answer: over the limit (see [rules] answer_limit)",
    ),
    (
        "rejects_too_fast",
        "rejected packets without an answer: they came too fast",
    ),
];

fn text(snapshot: &Snapshot) -> String {
    let gauge = |name: &str| snapshot.gauges.get(name).copied().unwrap_or(0);
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<14}{value}");
    };
    line(
        "fairpath",
        format!(
            "{} on {}, {}",
            snapshot.version, snapshot.host, snapshot.time
        ),
    );
    line("uptime", span(snapshot.up_ns));
    let since = snapshot
        .unix_ns
        .saturating_sub(snapshot.counting_since_unix_ns);
    let gap = snapshot.gap_ns.map_or(String::new(), |gap| {
        format!(", with a gap of {} ms at the last restart", gap / 1_000_000)
    });
    line("counting for", format!("{}{gap}", span(since)));
    line("watching", or_none(snapshot.interfaces.join(", ")));
    for waiting in &snapshot.waiting_for {
        line("waiting for", waiting.to_string());
    }
    line(
        "rows",
        format!(
            "{} in {} of {} slots",
            snapshot.rows_total,
            gauge("slots_used"),
            gauge("slots")
        ),
    );
    line(
        "flows",
        format!(
            "{} open, capacity {}",
            gauge("flows_open"),
            gauge("flows_capacity")
        ),
    );
    line(
        "memory",
        format!(
            "{:.1} MiB in the kernel",
            gauge("kernel_memory_bytes") as f64 / f64::from(1 << 20)
        ),
    );
    line(
        "reading",
        format!(
            "every {}, rates over {}",
            span(snapshot.interval_ns),
            span(snapshot.window_ns)
        ),
    );
    let waiting = match gauge("history_alerts_waiting") {
        0 => String::new(),
        waiting => format!(
            ", {waiting} waiting: at most {MAX_ACTIVE_ALERTS} of a condition and leg are active, \
             and {MAX_ALERTS_PER_INTERVAL} begin or end in an interval"
        ),
    };
    let active = gauge("history_alerts_active");
    let reported = snapshot.alerts.len();
    line(
        "alerts",
        format!("{active} active, {reported} of them reported{waiting}"),
    );
    line(
        "configuration",
        format!("generation {}", snapshot.configuration),
    );
    for (name, meaning) in LOSSES {
        if let Some(count) = snapshot.counters.get(name).filter(|count| **count > 0) {
            line("lost", format!("{count} {meaning} ({name})"));
        }
    }
    for note in &snapshot.notes {
        line("note", note.clone());
    }
    out
}

fn or_none(text: String) -> String {
    if text.is_empty() {
        "no interface yet".into()
    } else {
        text
    }
}

/// A time in its two largest units, in milliseconds below a second.
fn span(ns: u64) -> String {
    match ns / 1_000_000_000 {
        0 => format!("{} ms", ns / 1_000_000),
        seconds => fairpath_units::span(seconds),
    }
}

#[cfg(test)]
mod tests {
    use fairpath_history::snapshot::WaitingFor;

    use super::*;

    #[test]
    fn losses_are_printed_only_if_any() {
        let mut snapshot = Snapshot {
            interfaces: vec!["lan".into(), "wan".into()],
            waiting_for: vec![WaitingFor {
                key: "uplinks".into(),
                name: "wna".into(),
                nearest: Some("wan".into()),
                ..WaitingFor::default()
            }],
            gap_ns: Some(1_234_567_890),
            ..Snapshot::default()
        };
        let healthy = text(&snapshot);
        assert!(healthy.contains("watching      lan, wan\n"), "{healthy}");
        let waiting = "waiting for   wna ([monitor] uplinks): no interface has this name yet: \
                       did you mean \"wan\"?\n";
        assert!(healthy.contains(waiting), "{healthy}");
        assert!(healthy.contains("gap of 1234 ms"), "{healthy}");
        assert!(!healthy.contains("lost"), "{healthy}");
        let alerts = "alerts        0 active, 0 of them reported\n";
        assert!(healthy.contains(alerts), "{healthy}");
        snapshot.gauges.insert("history_alerts_waiting".into(), 9);
        let waiting = text(&snapshot);
        assert!(
            waiting.contains("reported, 9 waiting: at most 4096"),
            "{waiting}"
        );
        snapshot.counters.insert("events_lost".into(), 7);
        assert!(text(&snapshot).contains("lost          7 events"));
    }

    #[test]
    fn times_have_their_two_largest_units() {
        let seconds = |s: u64| span(s * 1_000_000_000);
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(3_599), "59 min 59 s");
        assert_eq!(seconds(90_061), "1 d 1 h");
        assert_eq!(span(1_500_000), "1 ms");
    }
}
