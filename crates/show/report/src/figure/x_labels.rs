//! Labels below the x axis: at the values themselves, at round numbers, or names, on as many lines as
//! they need, or turned.

use crate::figure::Panel;
use crate::figure::axis::{Axis, Scale};
use crate::figure::frame::{MAX_TICKS, PlacedTick, Size, scaled, with_zero};
use crate::figure::label::{self, BETWEEN, Bounds, LINE};
use crate::figure::mapping::{Mapping, Range};
use crate::figure::plot::MAX_MARKED;
use crate::figure::series::Role;
use crate::figure::ticks::{self, Tick};

/// Ticks at values themselves; round numbers are better than fewer.
const MIN_OWN_TICKS: usize = 3;
/// Lines that a name has at most before names are turned.
const MAX_LINES: usize = 4;
/// Room that turned names have below the axis; longer ones are cut.
const TURNED_CAPACITY: f64 = 116.0;

/// Labels below the plot (bounds from its bottom edge), and whether they are turned.
pub(crate) fn x_labels(panel: &Panel, x: &Mapping, size: Size) -> (Vec<PlacedTick>, bool) {
    if let Scale::Names(names) = &panel.x.scale {
        return name_labels(names, x, size);
    }
    let placed = |ticks: &[Tick]| -> Vec<PlacedTick> {
        ticks.iter().filter_map(|t| below(t, x, size)).collect()
    };
    if let Some(ticks) = own_ticks(panel, &x.range) {
        let kept = fitting(placed(&ticks));
        if kept.len() >= MIN_OWN_TICKS.min(ticks.len()) {
            return (kept, false);
        }
    }
    let mut finer = (2..=MAX_TICKS)
        .rev()
        .map(|most| x_candidates(&panel.x, &x.range, most));
    let fitting = finer.find_map(|ticks| Some(placed(&ticks)).filter(|ticks| apart(ticks)));
    (fitting.unwrap_or_default(), false)
}

/// Ticks at the values themselves, if there are few: "0, 1, 10 %" is clearer than 0, 2, 4 ...
fn own_ticks(panel: &Panel, range: &Range) -> Option<Vec<Tick>> {
    let measured = panel.series.iter().filter(|s| s.role != Role::Theory);
    let mut values: Vec<f64> = measured.flat_map(|s| s.xs()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    if values.is_empty() || values.len() > MAX_MARKED {
        return None;
    }
    let scaled = scaled(&panel.x, range);
    let of = |value: f64| match panel.x.scale {
        Scale::Log => ticks::log_label(&panel.x.unit, value),
        _ => crate::number::short(value / scaled.divide, 4),
    };
    Some(ticks::at_values(&values, of))
}

/// The first and the last tick, and between them, from the first on, each that fits.
fn fitting(mut ticks: Vec<PlacedTick>) -> Vec<PlacedTick> {
    ticks.sort_by(|a, b| a.bounds.left.total_cmp(&b.bounds.left));
    let Some(last) = ticks.pop() else {
        return ticks;
    };
    let mut kept: Vec<PlacedTick> = Vec::new();
    for tick in ticks {
        let before = kept.last().is_none_or(|kept| follows(kept, &tick));
        if before && follows(&tick, &last) {
            kept.push(tick);
        }
    }
    kept.push(last);
    kept
}

/// True if the second label fits to the right of the first.
fn follows(first: &PlacedTick, second: &PlacedTick) -> bool {
    first.bounds.right + BETWEEN <= second.bounds.left
}

fn x_candidates(axis: &Axis, range: &Range, most: usize) -> Vec<Tick> {
    match axis.scale {
        Scale::Log => with_zero(
            axis,
            range,
            ticks::log(range.low, range.high, most, &axis.unit),
        ),
        _ => ticks::linear(range.low, range.high, most, &scaled(axis, range)),
    }
}

fn below(tick: &Tick, x: &Mapping, size: Size) -> Option<PlacedTick> {
    let place = x.inside(tick.value)?;
    Some(centred(place, vec![tick.label.clone()], size))
}

/// Lines around a place, moved so that they do not leave the panel.
fn centred(place: f64, lines: Vec<String>, size: Size) -> PlacedTick {
    let width = lines
        .iter()
        .map(|line| label::width(line))
        .fold(0.0, f64::max);
    let left = (place - width / 2.0).min(size.width - width).max(0.0);
    PlacedTick {
        place,
        bounds: Bounds {
            left,
            top: 0.0,
            right: left + width,
            bottom: LINE * lines.len() as f64,
        },
        lines,
    }
}

/// True if labels fit side by side.
fn apart(ticks: &[PlacedTick]) -> bool {
    let mut sorted: Vec<&PlacedTick> = ticks.iter().collect();
    sorted.sort_by(|a, b| a.bounds.left.total_cmp(&b.bounds.left));
    sorted.windows(2).all(|pair| follows(pair[0], pair[1]))
}

fn name_labels(names: &[String], x: &Mapping, size: Size) -> (Vec<PlacedTick>, bool) {
    let places: Vec<f64> = (0..names.len()).filter_map(|i| x.at(i as f64)).collect();
    let slot = match places.as_slice() {
        [first, second, ..] => second - first,
        _ => size.width - 60.0,
    };
    let wrapped = names.iter().map(|name| label::wrap(name, slot - BETWEEN));
    let level: Vec<PlacedTick> = wrapped
        .zip(&places)
        .map(|(lines, place)| centred(*place, lines, size))
        .collect();
    let few_lines = level.iter().all(|tick| tick.lines.len() <= MAX_LINES);
    if few_lines && apart(&level) {
        return (level, false);
    }
    // Turned labels need a line's height each; where even that is missing, only some are named.
    let every = (LINE / slot).ceil().max(1.0) as usize;
    let kept = names.iter().zip(&places).step_by(every);
    let turned = kept
        .map(|(name, place)| turned_label(name, *place))
        .collect();
    (turned, true)
}

/// A label that ends below its place and runs upwards to it; bounds are of its column.
fn turned_label(name: &str, place: f64) -> PlacedTick {
    let name = label::cut(name, TURNED_CAPACITY);
    PlacedTick {
        place,
        bounds: Bounds {
            left: place - LINE / 2.0,
            top: 0.0,
            right: place + LINE / 2.0,
            bottom: label::width(&name),
        },
        lines: vec![name],
    }
}
