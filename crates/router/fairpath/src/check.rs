//! `fairpath check`: compare one class with limits, by the conventions of monitoring plugins.
//!
//! One line with performance data. Exit status 0 OK, 1 warning, 2 critical, 3 unknown. A value that
//! was not measured is unknown.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use fairpath_cli::Refusal;
use fairpath_config::duration::{nanos, parse_duration};
use fairpath_history::snapshot::{AlertKind, Kind, Leg, Query, Snapshot, SnapshotRow};
use fairpath_top::{DEFAULT_SOCKET, SocketSource, Source};
use fairpath_units::quantity::read_share;
use fairpath_watch::unix_ns;

/// Maximum age of a snapshot: this number of intervals plus a fixed time.
const FRESH_INTERVALS: u64 = 5;
const FRESH_NS: u64 = 5_000_000_000;

/// Compare one class with limits, for Nagios and cron.
///
/// Prints one line with performance data. Exit status: 0 OK (within all limits), 1 warning,
/// 2 critical, 3 unknown (no daemon, no such class, too few samples, wrong usage).
///
/// Without limits, the alerts of the class decide: a breach of its service level is critical, any
/// other alert is a warning. Without an alert it is OK, if there are enough samples.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath check --class anna --rtt-p95 20ms,40ms\n  \
    fairpath check --class site-a --loss 0.5%,1% --leg outside")]
pub struct Args {
    /// Name of the class
    #[arg(long, value_name = "NAME")]
    pub class: String,
    /// Limit of the 95th percentile of the RTT: WARNING,CRITICAL or CRITICAL alone, for example
    /// 20ms,40ms
    #[arg(long, value_name = "TIME[,TIME]", value_parser = parse_times)]
    pub rtt_p95: Option<Limits>,
    /// Limit of the loss in either direction: WARNING,CRITICAL or CRITICAL alone, for example
    /// 0.5%,1%
    #[arg(long, value_name = "SHARE[,SHARE]", value_parser = parse_shares)]
    pub loss: Option<Limits>,
    /// Minimum number of samples in the window; fewer are unknown
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub min_samples: u64,
    /// Side of the router
    #[arg(long, value_enum, default_value_t = Side::Inside)]
    pub leg: Side,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// A side of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Between the router and the hosts of the class
    Inside,
    /// Between the router and their remote hosts
    Outside,
}

/// Values above which a measurement is a warning, and critical.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    warning: Option<f64>,
    critical: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    Warning,
    Critical,
    Unknown,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "OK",
            Verdict::Warning => "WARNING",
            Verdict::Critical => "CRITICAL",
            Verdict::Unknown => "UNKNOWN",
        }
    }
}

/// The exit status of a refused command line. For `check`, wrong usage is unknown, since status 2
/// is critical.
pub fn usage_status(refusal: &Refusal) -> u8 {
    let is_check = refusal.path.first().is_some_and(|word| word == "check");
    match refusal.status {
        0 => 0,
        _ if is_check => Verdict::Unknown as u8,
        status => status,
    }
}

fn parse_times(text: &str) -> Result<Limits, String> {
    parse_limits(text, |part| Ok(nanos(parse_duration(part)?) as f64))
}

fn parse_shares(text: &str) -> Result<Limits, String> {
    parse_limits(text, |part| {
        read_share(part).map_err(|error| error.to_string())
    })
}

fn parse_limits(text: &str, parse: impl Fn(&str) -> Result<f64, String>) -> Result<Limits, String> {
    let limits = match text.split_once(',') {
        None => Limits {
            warning: None,
            critical: parse(text)?,
        },
        Some((warning, critical)) => Limits {
            warning: Some(parse(warning)?),
            critical: parse(critical)?,
        },
    };
    match limits.warning {
        Some(warning) if warning > limits.critical => Err(format!(
            "limits {text:?} are in the wrong order: write WARNING,CRITICAL, the lower limit first"
        )),
        _ => Ok(limits),
    }
}

impl Limits {
    fn judge(&self, value: f64) -> Verdict {
        if value > self.critical {
            Verdict::Critical
        } else if self.warning.is_some_and(|warning| value > warning) {
            Verdict::Warning
        } else {
            Verdict::Ok
        }
    }
}

/// Runs `fairpath check`. Failures are printed as the one line that monitoring systems expect.
pub fn run(args: &Args) -> ExitCode {
    let (verdict, text) = match query(args) {
        Ok((row, snapshot)) => judge(args, &row, &snapshot),
        Err(why) => (Verdict::Unknown, why),
    };
    // The exit status is valid without a reader of the line, too.
    let _ = fairpath_cli::print(format!("FAIRPATH {} - {text}\n", verdict.word()));
    ExitCode::from(verdict as u8)
}

/// The row of the class in a recent snapshot.
fn query(args: &Args) -> Result<(SnapshotRow, Snapshot), String> {
    let mut source = SocketSource::connect(&args.socket).map_err(|error| error.to_string())?;
    let query = Query {
        under: Some(args.class.clone()),
        depth: None,
        limit: 1,
        ..Query::default()
    };
    let mut snapshot = source.snapshot(&query).map_err(|error| error.to_string())?;
    let found = snapshot.rows.iter().position(|row| row.name == args.class);
    let Some(at) = found else {
        return Err(format!(
            "class {:?}: the daemon has no class of this name",
            args.class
        ));
    };
    let row = snapshot.rows.swap_remove(at);
    let now = unix_ns().map_err(|error| error.to_string())?;
    let age = now.saturating_sub(snapshot.unix_ns);
    if age > FRESH_INTERVALS * snapshot.interval_ns + FRESH_NS {
        let age = Duration::from_nanos(age).as_secs();
        return Err(format!(
            "the last snapshot is {age} s old: see `fairpath status`"
        ));
    }
    Ok((row, snapshot))
}

fn judge(args: &Args, row: &SnapshotRow, snapshot: &Snapshot) -> (Verdict, String) {
    let (leg, side) = match args.leg {
        Side::Inside => (&row.inside, "inside"),
        Side::Outside => (&row.outside, "outside"),
    };
    let loss = match (leg.loss_to_ratio, leg.loss_from_ratio) {
        (Some(to), Some(from)) => Some(to.max(from)),
        (to, from) => to.or(from),
    };
    let p95 = leg.p95_rtt_ns.map(|ns| ns as f64);
    let enough = leg.samples >= args.min_samples;
    let by_limit = |limits: &Option<Limits>, value: Option<f64>| {
        limits.map(|limits| {
            value
                .filter(|_| enough)
                .map_or(Verdict::Unknown, |v| limits.judge(v))
        })
    };
    let verdicts = [by_limit(&args.rtt_p95, p95), by_limit(&args.loss, loss)];
    // A measured breach has precedence over a value that is unknown.
    let measured = verdicts
        .iter()
        .flatten()
        .filter(|v| **v != Verdict::Unknown)
        .max();
    let verdict = match (measured, verdicts.iter().flatten().max()) {
        (Some(measured), _) if *measured != Verdict::Ok => *measured,
        (_, Some(worst)) => *worst,
        (_, None) => by_alerts(row, enough),
    };
    let text = describe(row, leg, side, loss, snapshot);
    (
        verdict,
        format!("{text} | {}", performance(args, leg, loss)),
    )
}

fn by_alerts(row: &SnapshotRow, enough: bool) -> Verdict {
    if row.alerts.contains(&AlertKind::SlaBreach) {
        Verdict::Critical
    } else if !row.alerts.is_empty() {
        Verdict::Warning
    } else if enough {
        Verdict::Ok
    } else {
        Verdict::Unknown
    }
}

fn describe(
    row: &SnapshotRow,
    leg: &Leg,
    side: &str,
    loss: Option<f64>,
    snapshot: &Snapshot,
) -> String {
    let kind = match row.kind {
        Kind::Class => "class",
        Kind::Subnet => "subnet",
        Kind::Interface => "interface",
        Kind::Other => "class",
    };
    let p95 = leg.p95_rtt_ns.map_or("not measured".to_owned(), |ns| {
        format!("{:.2} ms", ns as f64 / 1e6)
    });
    let loss = loss.map_or("not measured".to_owned(), |share| {
        format!("{:.2} %", share * 100.0)
    });
    let window = snapshot.window_ns as f64 / 1e9;
    let name = one_line(&row.name);
    format!(
        "{kind} {name}, {side}: p95 {p95}, loss {loss}, {} samples in {window:.0} s",
        leg.samples
    )
}

/// Characters that end the line or begin the performance data become a question mark.
fn one_line(name: &str) -> String {
    fairpath_units::text::line(name).replace('|', "?")
}

/// `label=value;warning;critical;minimum;maximum` of each measured value.
fn performance(args: &Args, leg: &Leg, loss: Option<f64>) -> String {
    let limits = |limits: &Option<Limits>, unit: f64| match limits {
        None => ";".to_owned(),
        Some(limits) => format!(
            "{};{}",
            limits
                .warning
                .map_or(String::new(), |w| (w / unit).to_string()),
            limits.critical / unit
        ),
    };
    let mut parts = Vec::new();
    if let Some(ns) = leg.p95_rtt_ns {
        parts.push(format!(
            "rtt_p95={:.6}s;{};0",
            ns as f64 / 1e9,
            limits(&args.rtt_p95, 1e9)
        ));
    }
    if let Some(share) = loss {
        parts.push(format!(
            "loss={:.4}%;{};0;100",
            share * 100.0,
            limits(&args.loss, 0.01)
        ));
    }
    parts.push(format!("samples={}", leg.samples));
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(rtt_p95: Option<&str>, loss: Option<&str>) -> Args {
        Args {
            class: "anna".into(),
            rtt_p95: rtt_p95.map(|t| parse_times(t).unwrap()),
            loss: loss.map(|t| parse_shares(t).unwrap()),
            min_samples: 10,
            leg: Side::Inside,
            socket: DEFAULT_SOCKET.into(),
        }
    }

    fn row(p95_ms: u64, loss: Option<f64>, samples: u64) -> SnapshotRow {
        SnapshotRow {
            name: "anna".into(),
            inside: Leg {
                samples,
                p95_rtt_ns: Some(p95_ms * 1_000_000),
                loss_to_ratio: Some(0.0),
                loss_from_ratio: loss,
                ..Leg::default()
            },
            ..SnapshotRow::default()
        }
    }

    fn verdict(args: &Args, row: &SnapshotRow) -> Verdict {
        judge(args, row, &Snapshot::default()).0
    }

    #[test]
    fn limits_are_warning_and_critical_or_critical_alone() {
        let args = args(Some("20ms,40ms"), Some("1%"));
        for (p95, loss, expected) in [
            (20, None, Verdict::Ok),
            (21, None, Verdict::Warning),
            (41, None, Verdict::Critical),
            (5, Some(0.011), Verdict::Critical),
            (21, Some(0.01), Verdict::Warning),
        ] {
            assert_eq!(
                verdict(&args, &row(p95, loss, 100)),
                expected,
                "{p95} {loss:?}"
            );
        }
    }

    #[test]
    fn too_few_samples_are_unknown_never_ok() {
        assert_eq!(
            verdict(&args(Some("20ms"), None), &row(1, None, 9)),
            Verdict::Unknown
        );
        let unmeasured = SnapshotRow::default();
        assert_eq!(
            verdict(&args(None, Some("1%")), &unmeasured),
            Verdict::Unknown
        );
    }

    #[test]
    fn without_limits_the_alerts_decide() {
        let mut row = row(1, None, 100);
        assert_eq!(verdict(&args(None, None), &row), Verdict::Ok);
        row.alerts = vec![AlertKind::RttShift];
        assert_eq!(verdict(&args(None, None), &row), Verdict::Warning);
        row.alerts.push(AlertKind::SlaBreach);
        assert_eq!(verdict(&args(None, None), &row), Verdict::Critical);
        row.inside.samples = 0;
        assert_eq!(verdict(&args(None, None), &row), Verdict::Critical);
    }

    /// Silence is not health: a class whose line is cut has no alert either.
    #[test]
    fn without_limits_and_samples_it_is_unknown() {
        let args = args(None, None);
        for (samples, expected) in [
            (0, Verdict::Unknown),
            (9, Verdict::Unknown),
            (10, Verdict::Ok),
        ] {
            assert_eq!(verdict(&args, &row(1, None, samples)), expected);
        }
    }

    #[test]
    fn the_line_has_performance_data_with_limits() {
        let (_, line) = judge(
            &args(Some("20ms,40ms"), Some("1%")),
            &row(12, Some(0.005), 100),
            &Snapshot::default(),
        );
        assert!(
            line.ends_with("| rtt_p95=0.012000s;0.02;0.04;0 loss=0.5000%;;1;0;100 samples=100"),
            "{line}"
        );
    }

    #[test]
    fn invalid_limits_are_refused() {
        assert!(parse_times("40ms,20ms").is_err());
        assert!(parse_times("fast").is_err());
        assert!(parse_shares("101%").is_err() && parse_shares("1").is_err());
        assert!(parse_shares("-1%").is_err());
    }
}
