//! Bulk flows around a change that the experiment made in mid-run: another delay, another congestion control.
//!
//! ```text
//!     warm-up │        before        │ settling, 5 s │        after        │
//!             measured from here     change                               end
//! ```
//!
//! A run without a change has none of these. With several, "before" ends at the first and "after" starts
//! after the last. Intervals of the receiver count by the part inside a window.

use super::bulk::flows;
use super::{Better, Measure, Metric, Who};
use crate::fairness::bits;
use crate::record::RunRecord;

/// From the last change to what is called "after": an overflown buffer or a restarted window is over by then.
const SETTLING_SECONDS: f64 = 5.0;
/// A window of less says nothing.
const MIN_SECONDS: f64 = 1.0;
/// A flow is back where it has this share of what it had before ...
const RECOVERED: f64 = 0.9;
/// ... in this many windows of [`MIN_SECONDS`] one after the other, the first of which gives the time.
const RECOVERED_WINDOWS: u32 = 2;
/// Moments that are tried, seconds apart: the receiver's shortest interval.
const STEP_SECONDS: f64 = 0.1;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "goodput-before",
        title: "Goodput before the change",
        measure: Measure::Rate,
        better: Better::Higher,
        about: "Receiver's goodput from the end of the warm-up to the first change (a switched congestion control, a step of delay), all flows together.",
        value: before,
        samples: None,
        series: None,
    },
    Metric {
        name: "goodput-after",
        title: "Goodput after the change",
        measure: Measure::Rate,
        better: Better::Higher,
        about: "Receiver's goodput from 5 s after the last change to the end of the run, all flows together.",
        value: after,
        samples: None,
        series: None,
    },
    Metric {
        name: "goodput-kept",
        title: "Goodput after the change, of that before",
        measure: Measure::Share,
        better: Better::Higher,
        about: "What goodput-after is of goodput-before: 100 % where the change changed nothing.",
        value: |run, who| Some(after(run, who)? / before(run, who).filter(|bps| *bps > 0.0)?),
        samples: None,
        series: None,
    },
    Metric {
        name: "recovery",
        title: "Time to 90 % of what it was",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Time from the first change to the first of two windows of a second in a row with 90 % of goodput-before; 0 where it never fell below, and a run that never gets back counts with the whole time watched, so that such a value is a lower bound.",
        value: recovery,
        samples: None,
        series: None,
    },
];

/// Mean goodput of the selected flows between two times; none without flows, or if the time is too short.
fn mean_bps(run: &RunRecord, who: Who, from: f64, to: f64) -> Option<f64> {
    let sum = flows(run, who)
        .map(|flow| bits(flow, from, to))
        .reduce(|a, b| a + b)?;
    // A hair less: moments are sums of tenths.
    (to - from >= MIN_SECONDS - 1e-6).then(|| sum / (to - from))
}

fn before(run: &RunRecord, who: Who) -> Option<f64> {
    mean_bps(run, who, run.warmup_seconds, *run.changes.first()?)
}

fn after(run: &RunRecord, who: Who) -> Option<f64> {
    mean_bps(
        run,
        who,
        run.changes.last()? + SETTLING_SECONDS,
        run.seconds,
    )
}

fn recovery(run: &RunRecord, who: Who) -> Option<f64> {
    let change = *run.changes.first()?;
    let enough = RECOVERED * before(run, who)?;
    let needed = f64::from(RECOVERED_WINDOWS) * MIN_SECONDS;
    let moments = ((run.seconds - change - needed) / STEP_SECONDS + 1e-6).floor();
    if moments < 0.0 {
        return None;
    }
    let is_back = |wait: &f64| {
        (0..RECOVERED_WINDOWS).all(|window| {
            let from = change + wait + f64::from(window) * MIN_SECONDS;
            mean_bps(run, who, from, from + MIN_SECONDS).is_some_and(|bps| bps >= enough)
        })
    };
    let mut waits = (0..=moments as u32).map(|step| f64::from(step) * STEP_SECONDS);
    Some(waits.find(is_back).unwrap_or(run.seconds - change))
}

#[cfg(test)]
mod tests {
    use crate::metrics::find;
    use crate::record::{FlowRecord, RunRecord};

    /// 20 s, measured from 2 s on, changed at 8 s; `bps` by the second that an interval of 0.1 s begins in.
    fn run(bps: impl Fn(f64) -> f64) -> RunRecord {
        let goodput = (0..200).map(|tenth| {
            let begin = f64::from(tenth) / 10.0;
            (begin + 0.1, bps(begin + 0.05))
        });
        RunRecord {
            seconds: 20.0,
            warmup_seconds: 2.0,
            changes: vec![8.0],
            flows: vec![FlowRecord {
                name: "bulk".into(),
                congestion: "cubic".into(),
                goodput: goodput.collect(),
                ..FlowRecord::default()
            }],
            ..RunRecord::default()
        }
    }

    fn value(name: &str, run: &RunRecord) -> Option<f64> {
        find(name).unwrap().value(run)
    }

    fn assert_near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }

    #[test]
    fn after_begins_when_the_change_has_settled() {
        // Slow start, 40 before the change, 10 while it settles, 20 behind that.
        let stepped = run(|at| match at {
            at if at < 2.0 => 1e9,
            at if at < 8.0 => 40.0,
            at if at < 13.0 => 10.0,
            _ => 20.0,
        });
        assert_near(value("goodput-before", &stepped), 40.0);
        assert_near(value("goodput-after", &stepped), 20.0);
        assert_near(value("goodput-kept", &stepped), 0.5);
        assert_near(value("goodput-after@cubic", &stepped), 20.0);
        assert_eq!(value("goodput-after@bbr", &stepped), None);
    }

    #[test]
    fn before_precedes_all_changes_and_after_follows_all() {
        let mut stepped = run(|at| at.floor());
        stepped.changes = vec![4.0, 11.0];
        // Seconds 2 and 3; seconds 16 to 19.
        assert_near(value("goodput-before", &stepped), 2.5);
        assert_near(value("goodput-after", &stepped), 17.5);
    }

    #[test]
    fn recovery_is_the_time_until_ninety_percent_stay() {
        let falls = |back: f64| {
            run(move |at| match at {
                at if at < 8.0 || at >= back => 100.0,
                // A second of luck is no recovery.
                at if (9.0..10.0).contains(&at) => 95.0,
                _ => 0.0,
            })
        };
        // From 12.4 s on windows of a second hold 90 % and more: 0.1 s of nothing, 0.9 s of all.
        assert_near(value("recovery", &falls(12.5)), 4.4);
        assert_near(value("recovery", &falls(99.0)), 12.0);
        assert_near(value("recovery", &run(|_| 50.0)), 0.0);
    }

    #[test]
    fn without_a_change_there_is_nothing_around_it() {
        let mut still = run(|_| 50.0);
        still.changes.clear();
        let mut early = run(|_| 50.0);
        early.changes = vec![2.5];
        for name in [
            "goodput-before",
            "goodput-after",
            "goodput-kept",
            "recovery",
        ] {
            assert_eq!(value(name, &still), None, "{name}");
        }
        assert_eq!(value("goodput-before", &early), None);
        assert_eq!(value("recovery", &early), None);
        let mut late = run(|_| 50.0);
        late.changes = vec![18.5];
        assert_eq!(value("goodput-after", &late), None);
        assert_eq!(value("recovery", &late), None);
    }
}
