//! Experiments that cannot be compared, and the reasons: other axes, other scales, other links, nothing
//! in common.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::grid::{Cell, Grid};
use crate::manifest::Manifest;
use crate::metrics::Measure;

/// Links whose rates or round trips differ by more than this are not one link.
const SAME_LINK: f64 = 0.01;

/// Why two directories cannot be compared.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CannotCompare {
    /// They vary different things.
    #[error(
        "{first} varies {first_axes} and {second} varies {second_axes}; compare two runs of one experiment"
    )]
    Axes {
        /// Experiment of the first.
        first: String,
        /// Its axes.
        first_axes: String,
        /// Experiment of the second.
        second: String,
        /// Its axes.
        second_axes: String,
    },
    /// Rates were scaled differently, so no numbers are comparable.
    #[error(
        "rates are scaled by {first} in the first and by {second} in the second; run both with the same --scale"
    )]
    Scale {
        /// In the first.
        first: f64,
        /// In the second.
        second: f64,
    },
    /// No setting has valid runs in both.
    #[error(
        "no setting has valid runs in both directories ({first} settings in the first, {second} in the second); \
         run the same form of the experiment"
    )]
    NothingInCommon {
        /// Settings with valid runs in the first.
        first: usize,
        /// In the second.
        second: usize,
    },
    /// Their links differ.
    #[error(
        "at {setting} the slowest link {what} differs ({first} against {second}); give both the same links"
    )]
    Link {
        /// Where it was seen.
        setting: String,
        /// "rate" or "round trip".
        what: &'static str,
        /// In the first.
        first: String,
        /// In the second.
        second: String,
    },
    /// No figure has a quantity that both measured.
    #[error("no quantity was measured in both directories; see `fairpath lab report DIR` of each")]
    NoQuantity,
}

pub(super) fn same_axes(first: &Manifest, second: &Manifest) -> Result<(), CannotCompare> {
    let names =
        |m: &Manifest| -> BTreeSet<String> { m.axes.iter().map(|a| a.name.clone()).collect() };
    let (ours, theirs) = (names(first), names(second));
    if ours == theirs {
        return Ok(());
    }
    let words = |names: BTreeSet<String>| match names.is_empty() {
        true => "nothing".to_owned(),
        false => names.into_iter().collect::<Vec<String>>().join(", "),
    };
    Err(CannotCompare::Axes {
        first: first.experiment.clone(),
        first_axes: words(ours),
        second: second.experiment.clone(),
        second_axes: words(theirs),
    })
}

pub(super) fn same_scale(first: &Manifest, second: &Manifest) -> Result<(), CannotCompare> {
    let factor = |m: &Manifest| m.scale.as_ref().map_or(1.0, |scale| scale.factor);
    let (first, second) = (factor(first), factor(second));
    if (first - second).abs() < 1e-9 {
        return Ok(());
    }
    Err(CannotCompare::Scale { first, second })
}

/// Cells of equal settings with valid runs on both sides.
pub(super) fn pairs<'g, 'a>(
    ours: &'g Grid<'a>,
    theirs: &'g Grid<'a>,
) -> Result<Vec<(&'g Cell<'a>, &'g Cell<'a>)>, CannotCompare> {
    let with_runs = |grid: &'g Grid<'a>| grid.cells.iter().filter(|cell| !cell.runs.is_empty());
    let pairs: Vec<(&Cell, &Cell)> = with_runs(ours)
        .filter_map(|a| {
            with_runs(theirs)
                .find(|b| b.setting == a.setting)
                .map(|b| (a, b))
        })
        .collect();
    match pairs.is_empty() {
        false => Ok(pairs),
        true => Err(CannotCompare::NothingInCommon {
            first: with_runs(ours).count(),
            second: with_runs(theirs).count(),
        }),
    }
}

pub(super) fn same_link(grid: &Grid, a: &Cell, b: &Cell) -> Result<(), CannotCompare> {
    let link = |cell: &Cell| cell.runs.first().and_then(|run| run.bottleneck.clone());
    let (Some(ours), Some(theirs)) = (link(a), link(b)) else {
        return Ok(());
    };
    let differ = |x: f64, y: f64| (x - y).abs() > SAME_LINK * x.max(y);
    let refuse = |what, first: f64, second: f64, measure: Measure| CannotCompare::Link {
        setting: grid.words(&a.setting),
        what,
        first: measure.unit().show(first),
        second: measure.unit().show(second),
    };
    if differ(ours.rate_bps, theirs.rate_bps) {
        return Err(refuse(
            "rate",
            ours.rate_bps,
            theirs.rate_bps,
            Measure::Rate,
        ));
    }
    let seconds = |ns: u64| ns as f64 * 1e-9;
    let (first, second) = (seconds(ours.base_rtt_ns), seconds(theirs.base_rtt_ns));
    match differ(first, second) {
        true => Err(refuse("round trip", first, second, Measure::Time)),
        false => Ok(()),
    }
}
