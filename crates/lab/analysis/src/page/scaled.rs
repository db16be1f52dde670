//! Round trips where rates are scaled down: as the experiment says them, and as they are here.
//!
//! Axes and names of settings keep the words of the experiment, so results of two machines have the same
//! settings. For a comparison of y with x, delays are longer by the inverse of the factor. The axis of
//! round-trip times is determined from the records, not from its name.

use fairpath_report::Unit;
use fairpath_report::statistics::median;

use crate::axis_value::{self, Kind};
use crate::grid::{Cell, Grid};

/// A round trip of the records is the axis's value if they differ by less than this share.
const SAME: f64 = 0.01;

/// The factor of round trips; `None` if nothing is scaled.
fn longer(grid: &Grid) -> Option<f64> {
    let factor = grid.manifest.scale.as_ref()?.factor;
    (factor > 0.0 && factor != 1.0).then(|| 1.0 / factor)
}

/// The round trip without a queue that these cells' runs had, seconds.
fn round_trip<'c, 'a: 'c>(cells: impl Iterator<Item = &'c Cell<'a>>) -> Option<f64> {
    let runs = cells.flat_map(|cell| cell.runs.iter().chain(&cell.excluded));
    let known = runs.filter_map(|run| run.bottleneck.as_ref());
    let all: Vec<f64> = known.map(|b| b.base_rtt_ns as f64 * 1e-9).collect();
    median(&all).filter(|seconds| *seconds > 0.0)
}

/// (As the experiment says it, seconds here) of each value of an axis of scaled round trips; empty for
/// every other axis.
fn of_axis<'a>(grid: &Grid<'a>, axis: &str) -> Vec<(&'a str, f64)> {
    let Some(longer) = longer(grid) else {
        return Vec::new();
    };
    let here = |value: &'a str| {
        let stated = axis_value::number(value).filter(|(kind, _)| *kind == Kind::Time);
        let cells = grid.cells.iter().filter(|cell| cell.value(axis) == value);
        let (found, stated) = (round_trip(cells)?, stated?.1 * longer);
        ((found / stated - 1.0).abs() < SAME).then_some((value, found))
    };
    let all: Option<Vec<(&str, f64)>> = grid.values(axis).into_iter().map(here).collect();
    all.unwrap_or_default()
}

/// The addition to the label of an axis: " as configured; here 10 times as long".
pub fn label(grid: &Grid, axis: &str) -> String {
    match longer(grid).filter(|_| !of_axis(grid, axis).is_empty()) {
        // Scales are tenths and halves: more digits would be noise of the division.
        Some(longer) => format!(
            " as configured; here {} times as long",
            (longer * 100.0).round() / 100.0
        ),
        None => String::new(),
    }
}

/// A sentence for captions: "Round-trip times are scaled: 0.5ms is 5 ms, 5ms is 50 ms."; empty where nothing is scaled.
pub fn caption(grid: &Grid) -> String {
    let seconds = Unit::seconds();
    let axes = grid.manifest.axes.iter();
    let mut of_axes = axes.map(|axis| of_axis(grid, &axis.name));
    if let Some(values) = of_axes.find(|values| values.len() > 1) {
        let words: Vec<String> = (values.iter())
            .map(|(stated, here)| format!("{stated} is {}", seconds.show(*here)))
            .collect();
        return format!(" Round-trip times are scaled: {}.", words.join(", "));
    }
    fact(grid).map_or_else(String::new, |words| format!(" Round trip: {words}."))
}

/// "500 µs, here 5 ms": the one round trip of all runs; none where it is not scaled, or not one.
pub fn fact(grid: &Grid) -> Option<String> {
    let longer = longer(grid)?;
    let all: Option<Vec<f64>> = (grid.cells.iter())
        .map(|cell| round_trip(std::iter::once(cell)))
        .collect();
    let all = all?;
    let here = *all.first()?;
    let is_one = all.iter().all(|other| (other / here - 1.0).abs() < SAME);
    let seconds = Unit::seconds();
    is_one.then(|| {
        format!(
            "{}, here {}",
            seconds.show(here / longer),
            seconds.show(here)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Axis, Manifest, Scale};
    use crate::record::{Bottleneck, RunRecord};
    use crate::results::Results;

    /// Runs with these values of an axis and round trips, on rates times `factor`.
    fn results(axis: &str, factor: f64, runs: &[(&str, u64)]) -> Results {
        let run = |(value, base_rtt_ns): &(&str, u64)| RunRecord {
            setting: [(axis.to_owned(), (*value).to_owned())].into(),
            bottleneck: Some(Bottleneck {
                base_rtt_ns: *base_rtt_ns,
                ..Bottleneck::default()
            }),
            ..RunRecord::default()
        };
        Results {
            manifest: Manifest {
                axes: vec![Axis {
                    name: axis.into(),
                    values: runs.iter().map(|(value, _)| (*value).to_owned()).collect(),
                    ..Axis::default()
                }],
                scale: Some(Scale {
                    factor,
                    text: "a part".into(),
                }),
                ..Manifest::default()
            },
            runs: runs.iter().map(run).collect(),
            ..Results::default()
        }
    }

    fn reported(results: &Results, axis: &str) -> (String, String, Option<String>) {
        let grid = Grid::new(results);
        let plain = |text: String| text.replace('\u{a0}', " ");
        (
            plain(label(&grid, axis)),
            plain(caption(&grid)),
            fact(&grid).map(plain),
        )
    }

    #[test]
    fn an_rtt_axis_shows_the_actual_values() {
        let axis = results("rtt", 0.25, &[("0.5ms", 2_000_000), ("5ms", 20_000_000)]);
        let (label, caption, fact) = reported(&axis, "rtt");
        assert_eq!(label, " as configured; here 4 times as long");
        assert_eq!(
            caption,
            " Round-trip times are scaled: 0.5ms is 2 ms, 5ms is 20 ms."
        );
        assert_eq!(fact, None, "there are two");
    }

    #[test]
    fn a_common_rtt_shows_configured_and_measured_values() {
        let axis = results("cc", 0.25, &[("cubic", 2_000_000), ("bbr", 2_000_000)]);
        let (label, caption, fact) = reported(&axis, "cc");
        assert_eq!(label, "");
        assert_eq!(caption, " Round trip: 500 µs, here 2 ms.");
        assert_eq!(fact.as_deref(), Some("500 µs, here 2 ms"));
    }

    #[test]
    fn other_times_and_scale_one_have_no_remark() {
        let jitter = results("jitter", 0.25, &[("1ms", 80_000_000), ("5ms", 80_000_000)]);
        assert_eq!(reported(&jitter, "jitter").0, "");
        let whole = results("rtt", 1.0, &[("0.5ms", 500_000), ("5ms", 5_000_000)]);
        assert_eq!(
            reported(&whole, "rtt"),
            (String::new(), String::new(), None)
        );
    }
}
