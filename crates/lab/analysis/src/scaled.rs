//! Round trips where rates are scaled down.
//!
//! Measured rates are those of the scaled network, so a page shows them next to the round trips of the
//! scaled network: delays are longer by the inverse of the factor. The values that the experiment
//! configured are in captions and facts only. The axis of round-trip times is determined from the
//! records, not from its name.

use std::collections::BTreeMap;

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

/// True if rates and round trips are not those of the experiment.
pub fn is_scaled(grid: &Grid) -> bool {
    longer(grid).is_some()
}

/// The round trip without a queue that these cells' runs had, seconds.
fn round_trip<'c, 'a: 'c>(cells: impl Iterator<Item = &'c Cell<'a>>) -> Option<f64> {
    let runs = cells.flat_map(|cell| cell.runs.iter().chain(&cell.excluded));
    let known = runs.filter_map(|run| run.bottleneck.as_ref());
    let all: Vec<f64> = known.map(|b| b.base_rtt_ns as f64 * 1e-9).collect();
    median(&all).filter(|seconds| *seconds > 0.0)
}

/// The emulated round trip, seconds, of each value of an axis of scaled round trips; empty for every other
/// axis.
pub fn of_axis<'a>(grid: &Grid<'a>, axis: &str) -> BTreeMap<&'a str, f64> {
    let Some(longer) = longer(grid) else {
        return BTreeMap::new();
    };
    let here = |value: &'a str| {
        let stated = axis_value::number(value).filter(|(kind, _)| *kind == Kind::Time);
        let cells = grid.cells.iter().filter(|cell| cell.value(axis) == value);
        let (found, stated) = (round_trip(cells)?, stated?.1 * longer);
        ((found / stated - 1.0).abs() < SAME).then_some((value, found))
    };
    let all: Option<BTreeMap<&str, f64>> = grid.values(axis).into_iter().map(here).collect();
    all.unwrap_or_default()
}

/// A sentence for captions: "Rates and round trips are scaled: 5 ms is configured as 0.5ms, 50 ms as
/// 5ms."; empty where nothing is scaled.
pub fn caption(grid: &Grid) -> String {
    for axis in &grid.manifest.axes {
        let values = grid.values(&axis.name);
        let words = values.iter().filter_map(|value| {
            let seconds = grid.emulated(&axis.name, value)?;
            Some(format!("{} as {value}", Unit::seconds().show(seconds)))
        });
        let words: Vec<String> = words.collect();
        if words.len() > 1 {
            let words = words.join(", ").replacen(" as ", " is configured as ", 1);
            return format!(" Rates and round trips are scaled: {words}.");
        }
    }
    fact(grid).map_or_else(String::new, |words| {
        format!(" Rates and round trips are scaled. Round trip: {words}.")
    })
}

/// "5 ms, configured as 500 µs": the one round trip of all runs; none where it is not scaled, or not one.
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
            "{}, configured as {}",
            seconds.show(here),
            seconds.show(here / longer)
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

    fn reported(results: &Results, axis: &str) -> (Vec<String>, String, Option<String>) {
        let grid = Grid::new(results);
        let plain = |text: String| text.replace('\u{a0}', " ");
        let values = grid.values(axis).into_iter();
        (
            values.map(|value| plain(grid.shown(axis, value))).collect(),
            plain(caption(&grid)),
            fact(&grid).map(plain),
        )
    }

    #[test]
    fn an_rtt_axis_shows_the_emulated_values() {
        let axis = results("rtt", 0.25, &[("0.5ms", 2_000_000), ("5ms", 20_000_000)]);
        let (shown, caption, fact) = reported(&axis, "rtt");
        assert_eq!(shown, ["2 ms", "20 ms"]);
        assert_eq!(
            caption,
            " Rates and round trips are scaled: 2 ms is configured as 0.5ms, 20 ms as 5ms."
        );
        assert_eq!(fact, None, "there are two");
    }

    #[test]
    fn a_common_rtt_shows_emulated_and_configured_values() {
        let axis = results("cc", 0.25, &[("cubic", 2_000_000), ("bbr", 2_000_000)]);
        let (shown, caption, fact) = reported(&axis, "cc");
        assert_eq!(shown, ["cubic", "bbr"]);
        assert_eq!(
            caption,
            " Rates and round trips are scaled. Round trip: 2 ms, configured as 500 µs."
        );
        assert_eq!(fact.as_deref(), Some("2 ms, configured as 500 µs"));
    }

    #[test]
    fn other_times_and_scale_one_have_no_remark() {
        let jitter = results("jitter", 0.25, &[("1ms", 80_000_000), ("5ms", 80_000_000)]);
        assert_eq!(reported(&jitter, "jitter").0, ["1ms", "5ms"]);
        let whole = results("rtt", 1.0, &[("0.5ms", 500_000), ("5ms", 5_000_000)]);
        let (shown, caption, fact) = reported(&whole, "rtt");
        assert_eq!((caption, fact), (String::new(), None));
        assert_eq!(shown, ["0.5ms", "5ms"]);
    }
}
