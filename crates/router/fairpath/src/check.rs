//! `fairpath check`: one class held against limits, by the conventions of monitoring plugins.
//!
//! One line with performance data; exit status 0 fine, 1 warning, 2 critical, 3 unknown. What could
//! not be measured is unknown, never fine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use fairpath_config::duration::{nanos, parse_duration};
use fairpath_history::snapshot::{AlertKind, Kind, Leg, Query, Row, Snapshot};
use fairpath_top::{DEFAULT_SOCKET, SocketSource, Source};

use fairpath_units::quantity::{Unit, parse};
use fairpath_watch::unix_ns;

/// A reading older than so many intervals, and a few seconds, says nothing of now.
const FRESH_INTERVALS: u64 = 5;
const FRESH_NS: u64 = 5_000_000_000;

/// Holds one class of a running `fairpath run` against limits, for Nagios and cron.
///
/// Prints one line with performance data. Exit status: 0 within all limits, 1 warning, 2 critical,
/// 3 unknown (no daemon, no such class, too few samples, wrong usage). Without limits, the class's
/// alerts decide: a broken promise of its plan is critical, any other alert a warning.
#[derive(clap::Args)]
pub struct Args {
    /// Its name
    #[arg(long, value_name = "NAME")]
    pub class: String,
    /// The 95th percentile may be so much; WARNING,CRITICAL or CRITICAL alone (20ms,40ms)
    #[arg(long, value_name = "TIME[,TIME]", value_parser = parse_times)]
    pub rtt_p95: Option<Limits>,
    /// So much may be lost, either way; WARNING,CRITICAL or CRITICAL alone (0.5%,1%)
    #[arg(long, value_name = "SHARE[,SHARE]", value_parser = parse_shares)]
    pub loss: Option<Limits>,
    /// Round-trip times of the window that a verdict needs
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub min_samples: u64,
    /// Which side of the router
    #[arg(long, value_enum, default_value_t = Side::Inside)]
    pub leg: Side,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
}

/// A side of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// Between router and the class's hosts
    Inside,
    /// Between router and those that they talk with
    Outside,
}

/// From where on a value is a warning, and from where on critical.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    warning: Option<f64>,
    critical: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fine,
    Warning,
    Critical,
    Unknown,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Fine => "OK",
            Verdict::Warning => "WARNING",
            Verdict::Critical => "CRITICAL",
            Verdict::Unknown => "UNKNOWN",
        }
    }
}

/// Ends the program for what clap refused or printed. A plugin that is used wrongly knows nothing:
/// status 2 would be critical.
pub fn leave(error: &clap::Error) -> ! {
    let is_check = std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "check");
    if is_check && error.exit_code() != 0 {
        // Standard error may be closed; the status tells it all the same.
        let _ = error.print();
        std::process::exit(i32::from(Verdict::Unknown as u8));
    }
    error.exit()
}

fn parse_times(text: &str) -> Result<Limits, String> {
    parse_limits(text, |part| Ok(nanos(parse_duration(part)?) as f64))
}

fn parse_shares(text: &str) -> Result<Limits, String> {
    parse_limits(text, |part| match parse(part, Unit::Share) {
        Ok(share) if share <= 1.0 => Ok(share),
        _ => Err(format!("{part:?} is no share; say 1% or 0.01")),
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
            "{text:?}: the warning comes first and is the lower one"
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
            Verdict::Fine
        }
    }
}

/// Runs `fairpath check`; prints even what went wrong as the one line that is expected.
pub fn run(args: &Args) -> ExitCode {
    let (verdict, text) = match ask(args) {
        Ok((row, snapshot)) => judge(args, &row, &snapshot),
        Err(why) => (Verdict::Unknown, why),
    };
    println!("FAIRPATH {} - {text}", verdict.word());
    ExitCode::from(verdict as u8)
}

/// The class's row, if the daemon has a fresh one.
fn ask(args: &Args) -> Result<(Row, Snapshot), String> {
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
            "class {:?}: the daemon has none of this name",
            args.class
        ));
    };
    let row = snapshot.rows.swap_remove(at);
    let now = unix_ns().map_err(|error| error.to_string())?;
    let age = now.saturating_sub(snapshot.unix_ns);
    if age > FRESH_INTERVALS * snapshot.interval_ns + FRESH_NS {
        let age = Duration::from_nanos(age).as_secs();
        return Err(format!(
            "the daemon has read nothing for {age} s; see `fairpath status`"
        ));
    }
    Ok((row, snapshot))
}

fn judge(args: &Args, row: &Row, snapshot: &Snapshot) -> (Verdict, String) {
    let (leg, side) = match args.leg {
        Side::Inside => (&row.inside, "inside"),
        Side::Outside => (&row.outside, "outside"),
    };
    let loss = match (leg.loss_to, leg.loss_from) {
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
    // Trouble that is sure counts more than what is not known.
    let sure = verdicts
        .iter()
        .flatten()
        .filter(|v| **v != Verdict::Unknown)
        .max();
    let verdict = match (sure, verdicts.iter().flatten().max()) {
        (Some(sure), _) if *sure != Verdict::Fine => *sure,
        (_, Some(worst)) => *worst,
        (_, None) => by_alerts(row),
    };
    let text = describe(row, leg, side, loss, snapshot);
    (
        verdict,
        format!("{text} | {}", performance(args, leg, loss)),
    )
}

fn by_alerts(row: &Row) -> Verdict {
    if row.alerts.contains(&AlertKind::SlaBreach) {
        Verdict::Critical
    } else if row.alerts.is_empty() {
        Verdict::Fine
    } else {
        Verdict::Warning
    }
}

fn describe(row: &Row, leg: &Leg, side: &str, loss: Option<f64>, snapshot: &Snapshot) -> String {
    let kind = match row.kind {
        Kind::Class => "class",
        Kind::Subnet => "subnet",
        Kind::Interface => "interface",
        Kind::Other => "rest",
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

/// What would end the line or begin the performance data is shown as a question mark.
fn one_line(name: &str) -> String {
    name.replace(|c: char| c.is_control() || c == '|', "?")
}

/// `label=value;warning;critical;least;greatest`, and nothing where nothing was measured.
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

    fn row(p95_ms: u64, loss: Option<f64>, samples: u64) -> Row {
        Row {
            name: "anna".into(),
            inside: Leg {
                samples,
                p95_rtt_ns: Some(p95_ms * 1_000_000),
                loss_to: Some(0.0),
                loss_from: loss,
                ..Leg::default()
            },
            ..Row::default()
        }
    }

    fn verdict(args: &Args, row: &Row) -> Verdict {
        judge(args, row, &Snapshot::default()).0
    }

    #[test]
    fn limits_are_warning_and_critical_or_critical_alone() {
        let args = args(Some("20ms,40ms"), Some("1%"));
        for (p95, loss, expected) in [
            (20, None, Verdict::Fine),
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
    fn too_few_samples_are_unknown_and_never_fine() {
        assert_eq!(
            verdict(&args(Some("20ms"), None), &row(1, None, 9)),
            Verdict::Unknown
        );
        let unmeasured = Row::default();
        assert_eq!(
            verdict(&args(None, Some("1%")), &unmeasured),
            Verdict::Unknown
        );
    }

    #[test]
    fn without_limits_the_alerts_decide() {
        let mut row = row(1, None, 100);
        assert_eq!(verdict(&args(None, None), &row), Verdict::Fine);
        row.alerts = vec![AlertKind::RttShift];
        assert_eq!(verdict(&args(None, None), &row), Verdict::Warning);
        row.alerts.push(AlertKind::SlaBreach);
        assert_eq!(verdict(&args(None, None), &row), Verdict::Critical);
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
    fn limits_in_the_wrong_order_or_without_sense_are_refused() {
        assert!(parse_times("40ms,20ms").is_err());
        assert!(parse_times("fast").is_err());
        assert!(parse_shares("101%").is_err());
        assert!(parse_shares("-1%").is_err());
    }
}
