//! Measured quantities by name: the values of a figure's `y`, and their computation from a run's record.
//!
//! | file | quantities |
//! |---|---|
//! | `bulk` | goodput, retransmissions, loss events, windows |
//! | `changes` | goodput before and after a change in mid-run, time until it is back |
//! | `latency` | round trips of sockets, of passing packets, of pings |
//! | `calls` | voice: score, loss, delay, choppiness |
//! | `sharing` | fairness between flows |
//! | `network` | achieved loss, queues, lateness, processor time |
//!
//! `NAME@WHO` selects the flows, pings, calls or queues that are named WHO (or use the congestion control
//! WHO): `goodput@cubic`, `mos@call-2`. A value is in its base unit (bits per second, seconds, ratios).
//! None means that the run did not measure it, never that it was zero.

mod bulk;
mod calls;
mod changes;
mod latency;
mod network;
mod sharing;

use fairpath_report::Unit;
use thiserror::Error;

use crate::record::RunRecord;

/// The quantity that a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bits a second.
    Rate,
    /// Seconds.
    Time,
    /// 0 to 1, shown in percent.
    Share,
    /// A pure number.
    Number,
    /// Segments of TCP.
    Segments,
    /// Events a minute.
    PerMinute,
    /// Processors that are busy.
    Cores,
}

impl Measure {
    /// Its unit in reports.
    pub fn unit(self) -> Unit {
        match self {
            Measure::Rate => Unit::bits_per_second(),
            Measure::Time => Unit::seconds(),
            Measure::Share => Unit::share(),
            Measure::Number => Unit::none(),
            Measure::Segments => Unit::plain("segments"),
            Measure::PerMinute => Unit::plain("/min"),
            Measure::Cores => Unit::plain("cores"),
        }
    }

    /// Its base unit in lists: what values in records and JSON are in.
    pub fn base(self) -> &'static str {
        match self {
            Measure::Rate => "bit/s",
            Measure::Time => "s",
            Measure::Share => "share",
            Measure::Number => "",
            Measure::Segments => "segments",
            Measure::PerMinute => "/min",
            Measure::Cores => "cores",
        }
    }
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is.
    Higher,
    /// Less is.
    Lower,
    /// Neither: it explains.
    Neither,
}

/// One line over a run's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Whose.
    pub name: String,
    /// (Seconds since the traffic began, value).
    pub points: Vec<(f64, f64)>,
}

/// Whom of a run a quantity is asked of; none: all.
type Who<'a> = Option<&'a str>;

/// A measured quantity.
pub struct Metric {
    /// The name in figures.
    pub name: &'static str,
    /// As axes are called.
    pub title: &'static str,
    /// The counted quantity.
    pub measure: Measure,
    /// Which way is better.
    pub better: Better,
    /// The computation, a sentence for the method's page.
    pub about: &'static str,
    value: fn(&RunRecord, Who) -> Option<f64>,
    samples: Option<fn(&RunRecord, Who) -> Vec<f64>>,
    series: Option<fn(&RunRecord, Who) -> Vec<Series>>,
}

/// A metric as a figure requests it.
#[derive(Clone, Copy)]
pub struct Requested<'a> {
    /// Which.
    pub metric: &'static Metric,
    /// Of whom.
    pub who: Option<&'a str>,
}

/// A name that no metric has.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no quantity is called \"{name}\"{suggestion}; `fairpath lab show --metrics` lists all")]
pub struct UnknownMetric {
    name: String,
    suggestion: String,
}

/// All metrics, by subject.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    [
        bulk::METRICS,
        changes::METRICS,
        latency::METRICS,
        calls::METRICS,
        sharing::METRICS,
        network::METRICS,
        #[cfg(test)]
        tests::example::METRICS,
    ]
    .into_iter()
    .flatten()
}

/// The metric of `text` (`NAME` or `NAME@WHO`).
///
/// # Errors
/// No metric has this name; the error suggests the nearest.
pub fn find(text: &str) -> Result<Requested<'_>, UnknownMetric> {
    let (name, who) = match text.split_once('@') {
        Some((name, who)) => (name, Some(who)),
        None => (text, None),
    };
    match all().find(|metric| metric.name == name) {
        Some(metric) => Ok(Requested { metric, who }),
        None => Err(UnknownMetric {
            name: name.to_owned(),
            suggestion: suggestion(name),
        }),
    }
}

impl Requested<'_> {
    /// The run's value.
    pub fn value(&self, run: &RunRecord) -> Option<f64> {
        (self.metric.value)(run, self.who).filter(|value| value.is_finite())
    }

    /// Single samples of it within a run, for distributions; empty where it has none.
    pub fn samples(&self, run: &RunRecord) -> Vec<f64> {
        self.metric
            .samples
            .map_or_else(Vec::new, |samples| samples(run, self.who))
    }

    /// It over the run's time, for timelines; empty where it has none.
    pub fn series(&self, run: &RunRecord) -> Vec<Series> {
        self.metric
            .series
            .map_or_else(Vec::new, |series| series(run, self.who))
    }

    /// The quantity of single samples: the title without "(median)" or "(p99)".
    pub fn quantity(&self) -> String {
        let title = self.metric.title;
        let name = [" (median)", " (p99)"]
            .iter()
            .find_map(|statistic| title.strip_suffix(statistic))
            .unwrap_or(title);
        match self.who {
            Some(who) => format!("{name} of {who}"),
            None => name.to_owned(),
        }
    }

    /// As axes are called: "Goodput of cubic".
    pub fn title(&self) -> String {
        match self.who {
            Some(who) => format!("{} of {who}", self.metric.title),
            None => self.metric.title.to_owned(),
        }
    }
}

/// The known name that was meant, if one is near enough.
fn suggestion(name: &str) -> String {
    fairpath_units::nearest(name, all().map(|metric| metric.name))
        .map_or_else(String::new, |known| format!(" (did you mean \"{known}\"?)"))
}

/// True if this name is selected.
fn is_requested(who: Who, name: &str) -> bool {
    who.is_none_or(|who| who == name)
}

/// Quantile (type 7) of values in any order.
fn quantile(values: Vec<f64>, q: f64) -> Option<f64> {
    fairpath_report::statistics::quantile(&values, q)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_and_reported() {
        let names: BTreeSet<&str> = all().map(|m| m.name).collect();
        assert_eq!(names.len(), all().count());
        for metric in all() {
            assert!(!metric.name.contains('@'), "{}", metric.name);
            assert!(
                metric.about.ends_with('.') && metric.about.len() > 20,
                "{}",
                metric.name
            );
        }
    }

    /// The example of CONTRIBUTING.md: a metric is an entry, and a new subject a line of `all()`.
    pub(super) mod example {
        use super::super::{Better, Measure, Metric};

        pub(in super::super) const METRICS: &[Metric] = &[Metric {
            name: "flows-in-all",
            title: "Flows in all",
            measure: Measure::Number,
            better: Better::Neither,
            about: "How many flows the run recorded, made by a test.",
            value: |run, _| (!run.flows.is_empty()).then_some(run.flows.len() as f64),
            samples: None,
            series: None,
        }];
    }

    #[test]
    fn a_metric_is_an_entry() {
        let run = RunRecord {
            flows: vec![crate::record::FlowRecord::default(); 3],
            ..RunRecord::default()
        };
        let requested = find("flows-in-all@cubic").unwrap();
        assert_eq!(requested.value(&run), Some(3.0));
        assert_eq!(requested.title(), "Flows in all of cubic");
    }

    #[test]
    fn typing_errors_have_a_suggestion() {
        let error = find("godput@cubic").map(|a| a.metric.name).unwrap_err();
        assert!(
            error.to_string().contains("did you mean \"goodput\"?"),
            "{error}"
        );
        let error = find("temperature").map(|a| a.metric.name).unwrap_err();
        assert!(!error.to_string().contains("did you mean"), "{error}");
    }

    #[test]
    fn an_empty_run_measured_nothing() {
        let run = RunRecord::default();
        for metric in all() {
            let requested = find(metric.name).unwrap();
            assert_eq!(requested.value(&run), None, "{}", metric.name);
            assert!(requested.samples(&run).is_empty() && requested.series(&run).is_empty());
        }
    }
}
