//! Two directories of results, cell by cell: a verdict with its interval, or why there is none.
//!
//! Common settings are compared by the quantities of both experiments' figures. Incomparable results
//! (other axes, other scales, nothing in common) are refused with the reason. A possible explanation of a
//! difference (another kernel, another form) is added as a remark.

mod refuse;
mod words;

use fairpath_report::statistics::Interval;
use serde::Serialize;

pub use refuse::CannotCompare;
pub use words::text;

use crate::change::{Change, Meaning};
use crate::grid::{Cell, Grid, Setting};
use crate::metrics::{self, Measure, Requested};
use crate::results::Results;
use refuse::{pairs, same_axes, same_link, same_scale};
use words::{overall, remarks};

/// The comparison of two sets of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The experiment (of the first).
    pub experiment: String,
    /// Possible explanations of differences, and missing data.
    pub remarks: Vec<String>,
    /// Each setting and quantity.
    pub rows: Vec<ComparisonRow>,
    /// All of it in a sentence.
    pub verdict: String,
}

/// One quantity of one setting: the second against the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparisonRow {
    /// The setting.
    pub setting: Setting,
    /// The setting in words.
    pub words: String,
    /// The quantity, as figures call it.
    pub quantity: String,
    /// Median of the first, in the quantity's base unit.
    pub first: f64,
    /// Median of the second.
    pub second: f64,
    /// Valid runs of the first and of the second.
    pub runs: (usize, usize),
    /// Second over first less one, in percent; none where the first is not above zero.
    pub percent: Option<f64>,
    /// Its interval with the confidence that it has.
    pub interval: Option<Interval>,
    /// The meaning.
    pub meaning: Meaning,
    /// The verdict in words: "the second is faster: +12 % [5, 20; 90 % confidence]".
    pub verdict: String,
}

impl ComparisonRow {
    /// True if a difference was shown.
    pub fn is_shown(&self) -> bool {
        self.meaning != Meaning::NotShown
    }
}

/// Compares `second` with `first`.
///
/// # Errors
/// [`CannotCompare`] has the reason.
pub fn compare(first: &Results, second: &Results) -> Result<Comparison, CannotCompare> {
    same_axes(&first.manifest, &second.manifest)?;
    same_scale(&first.manifest, &second.manifest)?;
    let (ours, theirs) = (Grid::new(first), Grid::new(second));
    let pairs = pairs(&ours, &theirs)?;
    for (a, b) in &pairs {
        same_link(&ours, a, b)?;
    }
    let mut rows = Vec::new();
    for name in quantities(first, second) {
        if let Ok(requested) = metrics::find(&name) {
            let row = |(a, b): &(&Cell, &Cell)| row(&ours, &requested, &name, a, b);
            rows.extend(pairs.iter().filter_map(row));
        }
    }
    if rows.is_empty() {
        return Err(CannotCompare::NoQuantity);
    }
    Ok(Comparison {
        experiment: first.manifest.experiment.clone(),
        remarks: remarks((&ours, first), (&theirs, second), pairs.len()),
        verdict: overall(&rows),
        rows,
    })
}

/// The quantities of either experiment's figures, in order.
fn quantities(first: &Results, second: &Results) -> Vec<String> {
    let figures = first
        .manifest
        .figures
        .iter()
        .chain(&second.manifest.figures);
    let mut names: Vec<String> = Vec::new();
    for figure in figures {
        if !names.contains(&figure.y) {
            names.push(figure.y.clone());
        }
    }
    if names.is_empty() {
        names.push("goodput".to_owned());
    }
    names
}

fn row(
    grid: &Grid,
    requested: &Requested,
    name: &str,
    a: &Cell,
    b: &Cell,
) -> Option<ComparisonRow> {
    let (ours, theirs) = (a.values(requested), b.values(requested));
    let change = Change::between(&ours, &theirs)?;
    let meaning = change.meaning(requested.metric);
    Some(ComparisonRow {
        setting: a.setting.clone(),
        words: grid.words(&a.setting),
        quantity: name.to_owned(),
        first: change.from,
        second: change.to,
        runs: (ours.len(), theirs.len()),
        percent: change.percent(),
        interval: change.percent_interval(),
        meaning,
        verdict: verdict(requested, &change, meaning),
    })
}

fn verdict(requested: &Requested, change: &Change, meaning: Meaning) -> String {
    let faster = requested.metric.measure == Measure::Rate;
    let word = match meaning {
        Meaning::NotShown => return format!("no difference shown: {}", change.words()),
        Meaning::Better if faster => "faster",
        Meaning::Worse if faster => "slower",
        Meaning::Better => "better",
        Meaning::Worse => "worse",
        Meaning::Higher => "higher",
        Meaning::Lower => "lower",
    };
    format!("the second is {word}: {}", change.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Axis, Manifest, Scale};
    use crate::record::{Bottleneck, FlowRecord, RunRecord};

    fn results(goodputs: &[f64]) -> Results {
        let run = |bps: &f64| RunRecord {
            setting: [("loss".to_owned(), "1%".to_owned())].into(),
            bottleneck: Some(Bottleneck {
                rate_bps: 1e9,
                base_rtt_ns: 1_000_000,
                ..Bottleneck::default()
            }),
            flows: vec![FlowRecord {
                goodput_bps: *bps,
                ..FlowRecord::default()
            }],
            ..RunRecord::default()
        };
        Results {
            manifest: Manifest {
                experiment: "x".into(),
                axes: vec![Axis {
                    name: "loss".into(),
                    values: vec!["1%".into()],
                    ..Axis::default()
                }],
                ..Manifest::default()
            },
            runs: goodputs.iter().map(run).collect(),
            ..Results::default()
        }
    }

    #[test]
    fn a_clear_difference_has_verdict_and_interval() {
        let found = compare(
            &results(&[100.0, 102.0, 98.0]),
            &results(&[112.0, 114.0, 113.0]),
        )
        .unwrap();
        let row = &found.rows[0];
        assert_eq!(row.meaning, Meaning::Better);
        let verdict = row.verdict.replace('\u{a0}', " ");
        assert!(
            verdict.starts_with("the second is faster: +13 % [+9.8, +16; 90 %"),
            "{verdict}"
        );
        assert!(
            found.verdict.contains("better in 1 and worse in 0"),
            "{}",
            found.verdict
        );
        serde_json::to_string(&found).unwrap();
    }

    #[test]
    fn noise_is_no_difference() {
        let found = compare(
            &results(&[100.0, 102.0, 98.0]),
            &results(&[99.0, 101.0, 103.0]),
        )
        .unwrap();
        assert!(
            found.rows[0].verdict.starts_with("no difference shown"),
            "{:?}",
            found.rows
        );
    }

    #[test]
    fn incomparable_results_are_refused_with_a_reason() {
        let ours = results(&[1.0, 2.0]);
        let mut theirs = ours.clone();
        theirs.manifest.axes[0].name = "jitter".into();
        let error = compare(&ours, &theirs).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("varies loss and x varies jitter"),
            "{error}"
        );

        let mut theirs = ours.clone();
        theirs.manifest.scale = Some(Scale {
            factor: 0.1,
            text: String::new(),
        });
        let error = compare(&ours, &theirs).unwrap_err();
        assert!(error.to_string().contains("--scale"), "{error}");

        let mut theirs = ours.clone();
        for run in &mut theirs.runs {
            run.setting.insert("loss".into(), "2%".into());
        }
        let error = compare(&ours, &theirs).unwrap_err();
        assert!(
            matches!(
                error,
                CannotCompare::NothingInCommon {
                    first: 1,
                    second: 1
                }
            ),
            "{error}"
        );

        let mut theirs = ours.clone();
        for run in &mut theirs.runs {
            run.bottleneck.as_mut().unwrap().rate_bps = 2e9;
        }
        let error = compare(&ours, &theirs).unwrap_err();
        assert!(error.to_string().contains("rate differs"), "{error}");

        let mut theirs = ours.clone();
        theirs.runs.iter_mut().for_each(|run| run.flows.clear());
        assert_eq!(
            compare(&ours, &theirs).unwrap_err(),
            CannotCompare::NoQuantity
        );
    }

    #[test]
    fn another_kernel_is_reported() {
        let ours = results(&[1.0, 2.0, 3.0]);
        let mut theirs = ours.clone();
        theirs.manifest.machine.kernel = "7.0".into();
        let found = compare(&ours, &theirs).unwrap();
        assert!(
            found.remarks[0].starts_with("kernel differs"),
            "{:?}",
            found.remarks
        );
        assert!(text(&found, "a", "b").contains("note: kernel differs"));
    }
}
