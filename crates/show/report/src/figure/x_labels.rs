//! Labels below the x axis: at the values themselves, at round numbers, or names, on as many lines as
//! they need, or turned.

use crate::figure::Panel;
use crate::figure::axis::{Axis, Scale};
use crate::figure::frame::{MAX_TICKS, PlacedTick, Size, scaled, with_zero};
use crate::figure::label::{self, BETWEEN, Bounds, LINE};
use crate::figure::mapping::{Mapping, Range};
use crate::figure::series::Role;
use crate::figure::ticks::{self, Tick};

/// Different x values up to which ticks stand at the values themselves.
const MAX_OWN_TICKS: usize = 9;
/// Lines that a name has at most before names are turned.
const MAX_LINES: usize = 4;
/// Room that turned names have below the axis; longer ones are cut.
const TURNED_CAPACITY: f64 = 116.0;

/// Labels below the plot (bounds from its bottom edge), and whether they are turned.
pub(crate) fn x_labels(panel: &Panel, x: &Mapping, size: Size) -> (Vec<PlacedTick>, bool) {
    if let Scale::Names(names) = &panel.x.scale {
        return name_labels(names, x, size);
    }
    let own = own_ticks(panel, &x.range);
    let finer = (2..=MAX_TICKS)
        .rev()
        .map(|most| x_candidates(&panel.x, &x.range, most));
    let mut candidates = own.into_iter().chain(finer);
    let fitting = candidates.find_map(|ticks| {
        let placed: Vec<PlacedTick> = ticks.iter().filter_map(|t| below(t, x, size)).collect();
        apart(&placed).then_some(placed)
    });
    (fitting.unwrap_or_default(), false)
}

/// Ticks at the values themselves, if there are few: "0, 1, 10 %" is clearer than 0, 2, 4 ...
fn own_ticks(panel: &Panel, range: &Range) -> Option<Vec<Tick>> {
    let measured = panel.series.iter().filter(|s| s.role != Role::Theory);
    let mut values: Vec<f64> = measured
        .flat_map(|s| s.finite())
        .map(|point| point.x)
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    if values.is_empty() || values.len() > MAX_OWN_TICKS {
        return None;
    }
    let scaled = scaled(&panel.x, range);
    let of = |value: f64| match panel.x.scale {
        Scale::Log => ticks::log_label(&panel.x.unit, value),
        _ => crate::number::short(value / scaled.divide, 4),
    };
    Some(ticks::at_values(&values, of))
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
    let capacity = |pair: &[&PlacedTick]| pair[0].bounds.right + BETWEEN <= pair[1].bounds.left;
    sorted.windows(2).all(capacity)
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
