//! From values to positions: the range of an axis, and the position of a value in it.

use crate::figure::axis::{Axis, Scale};
use crate::figure::series::{Reference, ReferenceLine, Role, Shape};
use crate::figure::{Panel, ticks};

/// Pixels of zero on a log axis, including the gap next to it.
pub(crate) const ZERO_CAPACITY: f64 = 46.0;
/// Room beyond the outermost values of a log y axis, a factor.
const LOG_CAPACITY: f64 = 1.12;
/// The maximum factor by which a model may widen the y axis beyond the measurements; beyond that its
/// line is clipped.
const THEORY_CAPACITY: f64 = 1.2;
/// Above the topmost reference, for its name: a line of text in the lowest panel.
const NAME_CAPACITY: f64 = 0.08;
/// Steps that a y axis has at least.
const Y_STEPS: f64 = 5.0;

/// The values an axis shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub low: f64,
    pub high: f64,
    /// On log axes: whether zero has its place.
    pub zero: bool,
}

/// From values to places along one axis.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub range: Range,
    log: bool,
    from: f64,
    to: f64,
}

impl Mapping {
    /// `from` is the place of the axis's beginning, `to` that of its end; y axes run upwards.
    pub fn new(axis: &Axis, range: Range, from: f64, to: f64) -> Mapping {
        Mapping {
            log: axis.scale == Scale::Log,
            range,
            from,
            to,
        }
    }

    /// Where the axis without zero's place begins.
    pub fn begin(&self) -> f64 {
        let capacity = if self.range.zero { ZERO_CAPACITY } else { 0.0 };
        self.from + capacity * (self.to - self.from).signum()
    }

    /// The place of a value, also beyond the ends; `None` for what a log axis cannot hold.
    pub fn at(&self, value: f64) -> Option<f64> {
        let share = match self.log {
            true if value == 0.0 && self.range.zero => {
                return Some(self.from + 0.3 * (self.begin() - self.from));
            }
            true if value <= 0.0 => return None,
            true => (value / self.range.low).ln() / (self.range.high / self.range.low).ln(),
            false => (value - self.range.low) / (self.range.high - self.range.low),
        };
        Some(self.begin() + share * (self.to - self.begin()))
    }

    /// The same for values that the axis shows.
    pub fn inside(&self, value: f64) -> Option<f64> {
        let place = self.at(value)?;
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        (low - 0.5..=high + 0.5).contains(&place).then_some(place)
    }
}

/// The panels with equal ranges where they have equal axes and want them.
pub(crate) fn share_ranges(panels: &[Panel]) -> Vec<Panel> {
    let shared = |panel: &Panel| {
        let mut panel = panel.clone();
        if !panel.apart {
            let peers = || panels.iter().filter(|peer| !peer.apart);
            let x = peers().filter(|peer| peer.x == panel.x).map(x_range);
            let y = peers().filter(|peer| peer.y == panel.y).map(y_range);
            let (x, y) = (x.reduce(Range::join), y.reduce(Range::join));
            (panel.x.shown, panel.y.shown) = (x, y);
        }
        panel
    };
    panels.iter().map(shared).collect()
}

impl Range {
    fn join(self, other: Range) -> Range {
        Range {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            zero: self.zero || other.zero,
        }
    }
}

/// The range of the x axis of a panel.
pub(crate) fn x_range(panel: &Panel) -> Range {
    if let Some(shared) = panel.x.shown {
        return shared;
    }
    let points = panel.series.iter().flat_map(|series| series.xs());
    let ups = panel.references.iter().filter_map(|r| match r.line {
        ReferenceLine::Up(x) => Some(x),
        ReferenceLine::Across(_) => None,
    });
    let values: Vec<f64> = points.chain(ups).collect();
    match &panel.x.scale {
        Scale::Names(names) => Range {
            low: -0.5,
            high: names.len().max(1) as f64 - 0.5,
            zero: false,
        },
        Scale::Log => log_range(&panel.x, &values, 1.0),
        Scale::Linear => {
            let (low, high) = ends(&panel.x, &values);
            let zero = false;
            Range { low, high, zero }
        }
    }
}

/// The range of the y axis of a panel.
pub(crate) fn y_range(panel: &Panel) -> Range {
    if let Some(shared) = panel.y.shown {
        return shared;
    }
    let values = y_values(panel);
    if panel.y.scale == Scale::Log {
        return log_range(&panel.y, &values, LOG_CAPACITY);
    }
    let (low, high) = ends(&panel.y, &values);
    if panel.y.range.is_some() {
        let zero = false;
        return Range { low, high, zero };
    }
    let step = ticks::nice_step((high - low) / Y_STEPS);
    Range {
        low: (low / step + 1e-9).floor() * step,
        high: (high / step - 1e-9).ceil() * step,
        zero: false,
    }
}

/// All values of the y axis. Models add values near the measurements.
fn y_values(panel: &Panel) -> Vec<f64> {
    let of = |theory: bool| {
        let series = panel.series.iter();
        let series = series.filter(move |s| (s.role == Role::Theory) == theory);
        series.flat_map(|s| s.finite()).flat_map(|point| {
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            [low, point.y, high]
        })
    };
    let across = |r: &Reference| match r.line {
        ReferenceLine::Across(y) => Some(y),
        ReferenceLine::Up(_) => None,
    };
    let references = || panel.references.iter().filter_map(across);
    let mut values: Vec<f64> = of(false).chain(references()).collect();
    if values.is_empty() {
        return of(true).collect();
    }
    if panel.series.iter().any(|s| s.shape == Shape::Bars) && panel.y.scale == Scale::Linear {
        values.push(0.0);
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let capacity = (high - low) * (THEORY_CAPACITY - 1.0);
    let near = |y: &f64| match panel.y.scale {
        Scale::Log => (low / 10.0..=high * THEORY_CAPACITY).contains(y),
        _ => (low - capacity..=high + capacity).contains(y),
    };
    values.extend(of(true).filter(near));
    let topmost = references().fold(f64::NEG_INFINITY, f64::max);
    let floor = if panel.y.from_zero { low.min(0.0) } else { low };
    let capacity = (topmost - floor) * NAME_CAPACITY;
    if panel.y.scale == Scale::Linear && topmost + capacity > high {
        values.push(topmost + capacity);
    }
    values
}

/// Least and largest value of a linear axis, apart from each other.
fn ends(axis: &Axis, values: &[f64]) -> (f64, f64) {
    if let Some((low, high)) = axis.range
        && low < high
    {
        return (low, high);
    }
    let zero = axis.from_zero.then_some(&0.0);
    let all = || values.iter().chain(zero).copied();
    let low = all().reduce(f64::min).unwrap_or(0.0);
    let high = all().reduce(f64::max).unwrap_or(1.0);
    if high > low {
        return (low, high);
    }
    match low {
        0.0 => (0.0, 1.0),
        value => (value - value.abs() * 0.1, value + value.abs() * 0.1),
    }
}

fn log_range(axis: &Axis, values: &[f64], capacity: f64) -> Range {
    let zero = values.contains(&0.0);
    if let Some((low, high)) = axis.range
        && 0.0 < low
        && low < high
    {
        return Range { low, high, zero };
    }
    let positive = || values.iter().copied().filter(|v| *v > 0.0);
    let low = positive().reduce(f64::min).unwrap_or(0.1);
    let high = positive().reduce(f64::max).unwrap_or(1.0).max(low * 1.5);
    Range {
        low: low / capacity,
        high: high * capacity,
        zero,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::series::{Point, Series};
    use crate::unit::Unit;

    fn panel(y: Axis, points: &[(f64, f64)]) -> Panel {
        let points = points.iter().map(|(x, y)| Point::new(*x, *y)).collect();
        let x = Axis::log("x", Unit::share());
        Panel::new("", x, y).with(Series::line("a", points))
    }

    #[test]
    fn zero_has_its_own_position_on_log_axes() {
        let panel = panel(
            Axis::linear("y", Unit::none()),
            &[(0.0, 1.0), (0.01, 2.0), (0.1, 3.0)],
        );
        let mapping = Mapping::new(&panel.x, x_range(&panel), 100.0, 500.0);
        let (zero, one, ten) = (mapping.at(0.0), mapping.at(0.01), mapping.at(0.1));
        assert!(zero > Some(100.0) && zero < Some(120.0), "{zero:?}");
        assert!(one >= Some(140.0) && ten <= Some(500.0), "{one:?} {ten:?}");
        assert_eq!(mapping.at(-1.0), None);
    }

    #[test]
    fn outlying_models_do_not_squeeze_measured_values() {
        let measured = panel(
            Axis::zero_based("y", Unit::none()),
            &[(0.01, 2.0), (0.1, 9.0)],
        );
        let far = vec![Point::new(0.01, 1e6), Point::new(0.1, 9.5)];
        let panel = measured.with(Series::theory("model", far));
        let range = y_range(&panel);
        assert_eq!((range.low, range.high), (0.0, 10.0));
    }

    #[test]
    fn the_topmost_line_name_fits() {
        let mut panel = panel(
            Axis::zero_based("y", Unit::none()),
            &[(0.01, 430.2), (0.1, 390.0)],
        );
        panel.references.push(Reference {
            label: "what the link lets through".to_owned(),
            line: ReferenceLine::Across(430.0),
        });
        let range = y_range(&panel);
        assert!(range.high >= 430.0 * (1.0 + NAME_CAPACITY), "{range:?}");
    }

    #[test]
    fn panels_share_ranges_unless_one_differs_much() {
        let with = |y| {
            panel(
                Axis::zero_based("y", Unit::none()),
                &[(0.01, y), (0.1, y / 2.0)],
            )
        };
        let panels = [with(10.0), with(90.0), with(900.0).apart()];
        let highs: Vec<f64> = share_ranges(&panels)
            .iter()
            .map(|p| y_range(p).high)
            .collect();
        assert_eq!(highs, [90.0, 90.0, 900.0]);
    }

    #[test]
    fn equal_values_and_no_values_have_a_range() {
        for points in [
            vec![],
            vec![(0.01, 5.0)],
            vec![(0.01, 0.0)],
            vec![(0.01, -5.0)],
        ] {
            for axis in [
                Axis::linear("y", Unit::none()),
                Axis::log("y", Unit::none()),
            ] {
                let range = y_range(&panel(axis, &points));
                assert!(range.low < range.high, "{points:?}: {range:?}");
            }
        }
    }
}
