//! The frame of a panel: the positions of its axes, and the tick labels that fit next to each other.
//!
//! ```text
//! y title
//!   800 ┤           plot
//!     0 ┼──────────────────
//!       0    1 %     10 %
//!            x title
//! ```

use crate::figure::Panel;
use crate::figure::axis::{Axis, Scale};
use crate::figure::label::{self, Bounds, LINE};
use crate::figure::mapping::{Mapping, Range, x_range, y_range};
use crate::figure::plot::{MAX_DODGE, MAX_MARKED};
use crate::figure::series::Series;

use crate::figure::ticks::{self, Tick};
use crate::figure::x_labels::x_labels;
use crate::unit::{Prefixes, Scaled};

/// Ticks an axis has at most.
pub(crate) const MAX_TICKS: usize = 9;
/// Pixels between two ticks of the y axis.
const Y_TICK_CAPACITY: f64 = 37.0;
/// From the top edge to the plot: the y axis's title.
const TOP: f64 = 30.0;
/// From the plot to the right edge.
const RIGHT: f64 = 14.0;
/// Between the plot's sides and the outermost marks, which can be shifted sideways.
const X_INSET: f64 = MAX_DODGE + 3.0;

/// Width and height of a drawn panel in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Size {
    pub width: f64,
    pub height: f64,
}

impl Size {
    /// As wide as a page's text.
    pub const WIDE: Size = Size {
        width: 800.0,
        height: 384.0,
    };
    /// For phones, and for two panels side by side.
    pub const NARROW: Size = Size {
        width: 388.0,
        height: 312.0,
    };
}

/// A tick with its place and the bounds of its label.
#[derive(Clone, Debug)]
pub(crate) struct PlacedTick {
    pub place: f64,
    pub lines: Vec<String>,
    pub bounds: Bounds,
}

/// The positions of all parts.
pub(crate) struct Frame {
    pub size: Size,
    /// The plot's edges.
    pub plot: Bounds,
    pub x: Mapping,
    pub y: Mapping,
    pub x_ticks: Vec<PlacedTick>,
    pub y_ticks: Vec<PlacedTick>,
    /// True if labels of the x axis run upwards.
    pub turned: bool,
    pub x_title: String,
    pub y_title: String,
}

impl Frame {
    /// The frame of a panel.
    pub fn new(panel: &Panel, size: Size) -> Frame {
        let (x_range, y_range) = (x_range(panel), y_range(panel));
        let y_labels = y_labels(&panel.y, &y_range, size);
        let widest = y_labels.iter().map(|tick| label::width(&tick.label));
        let left = widest.fold(20.0, f64::max).min(size.width / 3.0).ceil() + 8.0;
        let inset = inset(panel);
        let x = Mapping::new(&panel.x, x_range, left + inset, size.width - RIGHT - inset);
        let (x_title, y_title) = (title(&panel.x, &x_range), title(&panel.y, &y_range));
        let below = if x_title.is_empty() { 4.0 } else { LINE + 8.0 };
        let (labels, turned) = x_labels(panel, &x, size);
        let deepest = labels
            .iter()
            .map(|tick| tick.bounds.bottom)
            .fold(LINE, f64::max);
        let bottom = size.height - below - deepest.ceil() - 6.0;
        let y = Mapping::new(&panel.y, y_range, bottom, TOP);
        Frame {
            size,
            plot: Bounds {
                left,
                top: TOP,
                right: size.width - RIGHT,
                bottom,
            },
            x_ticks: labels
                .into_iter()
                .map(|tick| tick.lowered(bottom + 6.0))
                .collect(),
            y_ticks: y_labels
                .iter()
                .filter_map(|tick| left_label(tick, &y, left))
                .collect(),
            x,
            y,
            turned,
            x_title: label::cut(&x_title, size.width - 4.0),
            y_title: label::cut(&y_title, size.width - 4.0),
        }
    }
}

impl PlacedTick {
    fn lowered(mut self, by: f64) -> PlacedTick {
        self.bounds.top += by;
        self.bounds.bottom += by;
        self
    }
}

/// Space for the outermost marks; marks that fill their range need none.
fn inset(panel: &Panel) -> f64 {
    let marked = |series: &Series| series.finite().count() <= MAX_MARKED;
    match panel.x.scale {
        Scale::Names(_) => 0.0,
        _ if panel.series.iter().any(marked) => X_INSET,
        _ => 0.0,
    }
}

/// "Goodput, Mbit/s"; without the unit where each tick has its own. A log scale is named.
fn title(axis: &Axis, range: &Range) -> String {
    let symbol = match axis.scale {
        Scale::Names(_) => String::new(),
        Scale::Log if axis.unit.prefixes != Prefixes::None => String::new(),
        _ => scaled(axis, range).symbol,
    };
    let title = match (axis.label.as_str(), symbol.as_str()) {
        (label, "") => label.to_owned(),
        ("", symbol) => symbol.to_owned(),
        (label, symbol) => format!("{label}, {symbol}"),
    };
    match axis.scale {
        Scale::Log if !title.is_empty() => format!("{title} (logarithmic)"),
        _ => title,
    }
}

pub(crate) fn scaled(axis: &Axis, range: &Range) -> Scaled {
    // The prefix of the middle: 0 to 1000 Mbit/s reads better than 0.0 to 1.0 Gbit/s.
    axis.unit
        .scaled(range.low.abs().max(range.high.abs()) / 2.0)
}

fn y_labels(axis: &Axis, range: &Range, size: Size) -> Vec<Tick> {
    let most = (((size.height - 90.0) / Y_TICK_CAPACITY) as usize).clamp(2, MAX_TICKS);
    match &axis.scale {
        Scale::Linear => ticks::linear(range.low, range.high, most, &scaled(axis, range)),
        Scale::Log => with_zero(
            axis,
            range,
            ticks::log(range.low, range.high, most, &axis.unit),
        ),
        Scale::Names(names) => {
            let tick = |(i, name): (usize, &String)| Tick {
                value: i as f64,
                label: label::cut(name, size.width / 3.0),
            };
            names.iter().enumerate().map(tick).collect()
        }
    }
}

pub(crate) fn with_zero(axis: &Axis, range: &Range, mut ticks: Vec<Tick>) -> Vec<Tick> {
    if range.zero {
        ticks.extend(ticks::at_values(&[0.0], |v| {
            ticks::log_label(&axis.unit, v)
        }));
    }
    ticks
}

/// A label to the left of the plot.
fn left_label(tick: &Tick, y: &Mapping, left: f64) -> Option<PlacedTick> {
    let place = y.inside(tick.value)?;
    let right = left - 8.0;
    Some(PlacedTick {
        place,
        lines: vec![tick.label.clone()],
        bounds: Bounds {
            left: right - label::width(&tick.label),
            top: place - LINE / 2.0,
            right,
            bottom: place + LINE / 2.0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::series::{Point, Series};
    use crate::unit::Unit;

    fn panels() -> Vec<Panel> {
        let line = |xs: &[f64], high: f64| {
            let point = |(i, x): (usize, &f64)| Point::new(*x, high * (i + 1) as f64);
            Series::line("a", xs.iter().enumerate().map(point).collect())
        };
        let names = |names: &[&str]| {
            let named = names.iter().map(|n| (*n).to_owned()).collect();
            let places: Vec<f64> = (0..names.len()).map(|i| i as f64).collect();
            Panel::new(
                "",
                Axis::names("Queue", named),
                Axis::zero_based("y", Unit::none()),
            )
            .with(line(&places, 3.0))
        };
        let numbers =
            |x: Axis, y: Axis, xs: &[f64], high: f64| Panel::new("", x, y).with(line(xs, high));
        let rate = || Axis::zero_based("Goodput", Unit::bits_per_second());
        let loss: Vec<f64> = (0..=10).map(|i| f64::from(i) / 100.0).collect();
        vec![
            numbers(
                Axis::log("Loss", Unit::share()),
                rate(),
                &[0.0, 0.01, 0.1],
                3e8,
            ),
            numbers(Axis::linear("Loss", Unit::share()), rate(), &loss, 1e7),
            numbers(
                Axis::log("RTT", Unit::seconds()),
                Axis::log("Rate", Unit::bits_per_second()),
                &[2e-4, 1e-3, 0.1],
                1e3,
            ),
            numbers(
                Axis::linear("Time", Unit::seconds()),
                rate(),
                &(0..300).map(f64::from).collect::<Vec<_>>(),
                1e9,
            ),
            numbers(
                Axis::linear("x", Unit::none()),
                Axis::linear("y", Unit::none()),
                &[1_234_567.0, 1_234_568.0],
                -1e-7,
            ),
            numbers(
                Axis::linear("x", Unit::none()),
                Axis::log("y", Unit::none()),
                &[],
                1.0,
            ),
            names(&["FIFO", "CoDel", "FQ-CoDel"]),
            names(&[
                "cubic with a long tail of words",
                "bbr on the asymmetric path",
                "reno",
            ]),
            names(&[
                "averyveryverylongnamewithoutspaces",
                "b",
                "c",
                "d",
                "e",
                "f",
                "g",
                "h",
            ]),
            names(&["x"; 60]),
        ]
    }

    #[test]
    fn tick_labels_neither_overlap_nor_leave_the_panel() {
        for (i, panel) in panels().iter().enumerate() {
            for size in [Size::WIDE, Size::NARROW] {
                let frame = Frame::new(panel, size);
                for ticks in [&frame.x_ticks, &frame.y_ticks] {
                    for (n, tick) in ticks.iter().enumerate() {
                        let others = ticks[n + 1..].iter();
                        let touching = others.filter(|o| o.bounds.touches(&tick.bounds)).count();
                        assert_eq!(touching, 0, "panel {i} {size:?}: {tick:?}");
                        let bounds = &tick.bounds;
                        assert!(
                            bounds.left >= -0.01 && bounds.right <= size.width + 0.01,
                            "{i}: {tick:?}"
                        );
                        assert!(bounds.bottom <= size.height, "{i}: {tick:?}");
                    }
                }
                assert!(frame.plot.bottom - frame.plot.top > 100.0, "panel {i}");
            }
        }
    }

    #[test]
    fn outermost_marks_are_inside_the_plot() {
        for panel in &panels()[..3] {
            let frame = Frame::new(panel, Size::NARROW);
            for point in panel.series.iter().flat_map(|s| s.finite()) {
                let x = frame.x.at(point.x).unwrap();
                let (left, right) = (frame.plot.left + MAX_DODGE, frame.plot.right - MAX_DODGE);
                assert!((left..=right).contains(&x), "{} at {x}", point.x);
            }
        }
    }

    #[test]
    fn few_values_have_one_tick_each() {
        let frame = Frame::new(&panels()[0], Size::NARROW);
        let labels: Vec<&str> = frame.x_ticks.iter().map(|t| t.lines[0].as_str()).collect();
        assert_eq!(labels, ["0", "1", "10"]);
        assert_eq!(frame.x_title, "Loss, % (logarithmic)");
        assert_eq!(frame.y_title, "Goodput, Mbit/s");
    }

    #[test]
    fn log_axes_name_the_unit_at_each_tick() {
        let frame = Frame::new(&panels()[2], Size::WIDE);
        let labels: Vec<&str> = frame.x_ticks.iter().map(|t| t.lines[0].as_str()).collect();
        assert_eq!(labels, ["200\u{a0}µs", "1\u{a0}ms", "100\u{a0}ms"]);
        assert_eq!(frame.x_title, "RTT (logarithmic)");
    }
}
