//! `fairpath status` and `fairpath reload`: how the daemon is, and taking in its configuration.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use fairpath_history::snapshot::{Answer, Request, Snapshot};
use fairpath_top::{DEFAULT_SOCKET, SocketSource};

/// A reload compiles and loads the rules of all classes before it answers.
const RELOAD_TIME: Duration = Duration::from_secs(60);

/// Tells how a running `fairpath run` is: what it watches, holds and has lost.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Text for people, or one JSON object
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Lets a running `fairpath run` read its configuration again, and waits for the outcome.
///
/// Only root may ask. What is refused changes nothing: exit status 1, and why.
#[derive(clap::Args)]
pub struct ReloadArgs {
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines for people
    Text,
    /// One JSON object
    Json,
}

/// Runs `fairpath status`.
///
/// # Errors
/// Where no daemon answers.
pub fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let mut source = SocketSource::connect(&args.socket)?;
    let Answer::Snapshot { snapshot } = source.ask(&Request::Status)? else {
        bail!("ask for the status: the daemon answered another question; are both of one version?");
    };
    match args.format {
        Format::Text => print!("{}", text(&snapshot)),
        Format::Json => println!("{}", serde_json::to_string(&snapshot)?),
    }
    Ok(())
}

/// Runs `fairpath reload`.
///
/// # Errors
/// Where no daemon answers, or it refuses.
pub fn reload(args: &ReloadArgs) -> anyhow::Result<()> {
    let mut source = SocketSource::connect_within(&args.socket, RELOAD_TIME)?;
    let Answer::Done { text } = source.ask(&Request::Reload)? else {
        bail!("ask for a reload: the daemon answered another question; are both of one version?");
    };
    println!("{text}");
    Ok(())
}

/// Counters that are zero in a router that is well, with what they mean.
const LOSSES: [(&str, &str); 9] = [
    ("events_lost", "events that found the ring full"),
    ("lock_failures", "packets not measured: a lock stayed taken"),
    (
        "scratch_busy",
        "packets not measured: the CPU's work area was taken",
    ),
    (
        "flows_refused",
        "flows not followed: the table is full (see [monitor] flows)",
    ),
    ("readings_failed", "readings of the kernel that failed"),
    (
        "readings_skipped",
        "intervals that were skipped: the loop was late",
    ),
    ("state_saves_failed", "saves of the state that failed"),
    ("hooks_dropped", "alerts whose hook was not run"),
    ("rows_dropped", "rows that were not written"),
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
    line("up", span(snapshot.up_ns));
    let since = snapshot
        .unix_ns
        .saturating_sub(snapshot.counting_since_unix_ns);
    let gap = snapshot.gap_ns.map_or(String::new(), |gap| {
        format!(", with a gap of {} ms at the last restart", gap / 1_000_000)
    });
    line("counting for", format!("{}{gap}", span(since)));
    line("watching", or_none(snapshot.interfaces.join(", ")));
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
            "{} open, {} at most",
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
            "every {}; rates over {}",
            span(snapshot.interval_ns),
            span(snapshot.window_ns)
        ),
    );
    line(
        "configuration",
        format!("number {}", snapshot.configuration),
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
        "nothing yet".into()
    } else {
        text
    }
}

/// A time in its two greatest units.
fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{} ms", ns / 1_000_000),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_shown_only_where_there_are_any() {
        let mut snapshot = Snapshot {
            interfaces: vec!["lan".into(), "wan".into()],
            gap_ns: Some(1_234_567_890),
            ..Snapshot::default()
        };
        let healthy = text(&snapshot);
        assert!(healthy.contains("watching      lan, wan\n"), "{healthy}");
        assert!(healthy.contains("gap of 1234 ms"), "{healthy}");
        assert!(!healthy.contains("lost"), "{healthy}");
        snapshot.counters.insert("events_lost".into(), 7);
        assert!(text(&snapshot).contains("lost          7 events"));
    }

    #[test]
    fn spans_have_their_two_greatest_units() {
        let seconds = |s: u64| span(s * 1_000_000_000);
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(3_599), "59 min 59 s");
        assert_eq!(seconds(90_061), "1 d 1 h");
        assert_eq!(span(1_500_000), "1 ms");
    }
}
