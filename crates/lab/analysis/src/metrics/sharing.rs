//! Metrics of the shares of flows.

use super::{Better, Measure, Metric, Series, Who};
use crate::fairness::{Convergence, convergence, mean_jain, run_worst_share, windows};
use crate::record::RunRecord;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "jain",
        title: "Jain's index",
        measure: Measure::Number,
        better: Better::Higher,
        about: "Mean of Jain's fairness index over goodput in windows of a second, from the start of the last flow; 1 is even, for two flows 0.5 is the worst.",
        value: |run, _| mean_jain(run),
        samples: Some(|run, _| windows(run).iter().map(|w| w.jain).collect()),
        series: Some(jain_series),
    },
    Metric {
        name: "worst-share",
        title: "Worst share",
        measure: Measure::Share,
        better: Better::Higher,
        about: "What the flow with the least goodput got of an even share, from the start of the last flow.",
        value: |run, _| run_worst_share(run),
        samples: None,
        series: None,
    },
    Metric {
        name: "convergence",
        title: "Time to an even share",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Time from the start of the last flow to the first of three windows of a second in a row with a Jain index of at least 0.95; a run that never gets there counts with the whole time watched, so that such a value is a lower bound.",
        value: settled,
        samples: None,
        series: None,
    },
];

fn settled(run: &RunRecord, _who: Who) -> Option<f64> {
    match convergence(run)? {
        Convergence::After(seconds) | Convergence::Never(seconds) => Some(seconds),
    }
}

fn jain_series(run: &RunRecord, _who: Who) -> Vec<Series> {
    let points: Vec<(f64, f64)> = windows(run).iter().map(|w| (w.end, w.jain)).collect();
    match points.is_empty() {
        true => Vec::new(),
        false => vec![Series {
            name: "Jain's index".to_owned(),
            points,
        }],
    }
}
