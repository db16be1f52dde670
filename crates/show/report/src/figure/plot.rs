//! Series inside a panel's plot: bands, bars, lines, whiskers, marks, and what the pointer finds.

use crate::figure::Panel;
use crate::figure::axis::Scale;
use crate::figure::frame::{Frame, scaled};
use crate::figure::gaps::{self, PlacedGap};
use crate::figure::label::{self, BETWEEN};
use crate::figure::marks;
use crate::figure::palette::Palette;
use crate::figure::series::{Gap, Point, Role, Series, Shape};
use crate::figure::svg::{Anchor, Svg, at, polyline};
use crate::figure::thin::{MAX_DRAWN_POINTS, keep_extremes};

/// Points up to which each has its mark and whisker; more are a line with a band.
pub(crate) const MAX_MARKED: usize = 24;
/// Points of a series that the pointer finds, at least and at most.
const HITS: std::ops::RangeInclusive<usize> = 12..=60;
/// Points of all series of a panel that the pointer finds, unless each series needs the least.
const MAX_PANEL_HITS: usize = 240;
/// Marks along a line of many points, so that lines differ in more than their colour.
const SPARSE_MARKS: usize = 6;
/// Between the whiskers of two series at one x.
const DODGE: f64 = 7.0;
/// The maximum sideways shift of a mark.
pub(crate) const MAX_DODGE: f64 = 11.0;
/// Share of a name's room that its bars take.
const BARS: f64 = 0.74;
/// The lowest bar.
const MIN_BAR: f64 = 2.0;
/// The widest bar.
const MAX_BAR: f64 = 64.0;
/// Half the cap of a whisker.
const CAP: f64 = 3.5;

/// A series with places for its points.
struct Drawn<'a> {
    series: &'a Series,
    colour: usize,
    mark: usize,
    /// In order of x, thinned; points that an axis cannot show are excluded.
    points: Vec<(Point, (f64, f64))>,
    /// Places along x without a value, in order, each with its label.
    gaps: Vec<(f64, &'a Gap)>,
    /// True if there are few enough points to mark each.
    few: bool,
    /// Its number among the series of its kind, which shifts the places of marks along lines.
    order: usize,
}

impl Drawn<'_> {
    /// Parts of a line between which it has a gap.
    fn parts<'p>(&self, places: &'p [(f64, f64)]) -> impl Iterator<Item = &'p [(f64, f64)]> {
        let is_joined =
            |a: &(f64, f64), b: &(f64, f64)| !self.gaps.iter().any(|(x, _)| a.0 < *x && *x < b.0);
        places.chunk_by(is_joined)
    }
}

pub(crate) struct Plot<'a> {
    panel: &'a Panel,
    frame: &'a Frame,
    drawn: Vec<Drawn<'a>>,
    /// Width of a bar.
    bar: f64,
}

impl<'a> Plot<'a> {
    pub fn new(panel: &'a Panel, frame: &'a Frame, palette: &Palette) -> Plot<'a> {
        let keys = bar_keys(panel);
        let bar = bar_width(panel, frame, keys.len());
        let shifts = dodges(panel, frame);
        let drawn = panel.series.iter().enumerate().map(|(order, series)| {
            // With bars, a series with a bar's key is drawn at that bar.
            let shift = match keys.iter().position(|key| *key == series.key) {
                Some(i) => (i as f64 - (keys.len() - 1) as f64 / 2.0) * bar,
                None => shifts[order],
            };
            Drawn {
                series,
                colour: palette.colour(&series.key),
                mark: palette.mark(&series.key),
                points: placed(series, frame, shift),
                gaps: placed_gaps(series, frame, shift),
                few: series.finite().count() <= MAX_MARKED,
                order,
            }
        });
        Plot {
            drawn: drawn.collect(),
            panel,
            frame,
            bar,
        }
    }

    /// Places of all marks, bar ends, their numbers and gaps, for labels to keep away from.
    pub fn places(&self) -> Vec<(f64, f64)> {
        let drawn = self.drawn.iter();
        let places = drawn.flat_map(|drawn| {
            let is_bar = drawn.series.shape == Shape::Bars;
            let number = |(x, y): &(f64, f64)| (*x, y - label::LINE * 0.6);
            let points = drawn.points.iter().map(|(_, place)| *place);
            let numbers = drawn.points.iter().map(move |(_, place)| number(place));
            let bottom = self.frame.plot.bottom;
            let upwards =
                move |x: f64| (0..6).map(move |i| (x, bottom - f64::from(i) * label::LINE));
            let gaps = drawn.gaps.iter().flat_map(move |(x, _)| upwards(*x));
            points.chain(numbers.filter(move |_| is_bar)).chain(gaps)
        });
        places.collect()
    }

    /// Bands and bars, which lie below everything else.
    pub fn areas(&self, svg: &mut Svg) {
        for drawn in &self.drawn {
            if drawn.series.shape == Shape::Bars {
                self.bars(svg, drawn);
            } else if !drawn.few && drawn.series.shape == Shape::Line {
                svg.path(&format!("band c{}", drawn.colour), &self.band(drawn));
            }
        }
    }

    fn bars(&self, svg: &mut Svg, drawn: &Drawn) {
        let floor = self.floor();
        for (point, (x, y)) in &drawn.points {
            // A bar of nothing is still seen.
            let height = (y - floor).abs().max(MIN_BAR);
            let top = if *y > floor { floor } else { floor - height };
            let corner = (x - self.bar / 2.0 + 1.0, top);
            let size = (self.bar - 2.0, height);
            let class = format!("bar c{}", drawn.colour);
            svg.bar(&class, corner, size, &self.report(drawn.series, point));
        }
    }

    /// Where bars stand: at zero, or at the bottom where zero is not shown.
    fn floor(&self) -> f64 {
        let zero = match self.panel.y.scale {
            Scale::Linear => self.frame.y.inside(0.0),
            _ => None,
        };
        zero.unwrap_or(self.frame.plot.bottom)
    }

    fn band(&self, drawn: &Drawn) -> String {
        let side = |end: fn((f64, f64)) -> f64| {
            let places = drawn.points.iter().filter_map(move |(point, (x, _))| {
                Some((*x, self.frame.y.at(end(point.interval?))?))
            });
            places.collect::<Vec<_>>()
        };
        let (lower, mut upper) = (side(|i| i.0), side(|i| i.1));
        upper.reverse();
        match lower.is_empty() {
            true => String::new(),
            false => polyline(&[lower, upper].concat()) + "Z",
        }
    }

    /// Lines of measured, modelled and published series.
    pub fn lines(&self, svg: &mut Svg) {
        for drawn in &self.drawn {
            // Between names a line has no meaning.
            let named = matches!(self.panel.x.scale, Scale::Names(_));
            let class = match drawn.series.role {
                Role::Published if named => continue,
                Role::Measured => "line",
                Role::Theory => "line theory",
                Role::Published => "line published",
            };
            let places = self.beyond_the_gap(svg, drawn, class);
            let d = match drawn.series.shape {
                Shape::Line => drawn.parts(&places).map(polyline).collect(),
                Shape::Steps => steps(&places),
                Shape::Points | Shape::Bars => continue,
            };
            svg.path(&format!("{class} c{}", drawn.colour), &d);
        }
    }

    /// Places of a line. What leads over a log axis's gap to zero is drawn here, faintly: there is no
    /// scale along it.
    fn beyond_the_gap(&self, svg: &mut Svg, drawn: &Drawn, class: &str) -> Vec<(f64, f64)> {
        let places: Vec<(f64, f64)> = drawn.points.iter().map(|(_, place)| *place).collect();
        let zeros = drawn.points.iter().take_while(|(point, _)| point.x == 0.0);
        let zeros = zeros.count();
        if !self.frame.x.range.zero || zeros == 0 || drawn.series.shape != Shape::Line {
            return places;
        }
        let over = &places[zeros - 1..places.len().min(zeros + 1)];
        let class = format!("{class} faint c{}", drawn.colour);
        let d: String = drawn.parts(over).map(polyline).collect();
        svg.path(&class, &d);
        places[zeros..].to_vec()
    }

    /// Crosses where there is no value, and their labels.
    pub fn gaps(&self, svg: &mut Svg) {
        let placed = |drawn: &Drawn<'a>| {
            let (series, colour) = (drawn.series, drawn.colour);
            let one = move |(x, gap): &(f64, &'a Gap)| PlacedGap {
                x: *x,
                label: &gap.label,
                colour,
                report: format!(
                    "{}\n{} {}: {}",
                    series.name,
                    self.panel.x.label,
                    self.panel.x.show(gap.x),
                    gap.label
                ),
            };
            drawn.gaps.iter().map(one).collect::<Vec<_>>()
        };
        let all: Vec<PlacedGap> = self.drawn.iter().flat_map(placed).collect();
        gaps::draw(svg, self.frame, &all);
    }

    /// Whiskers, marks and the values of bars.
    pub fn points(&self, svg: &mut Svg) {
        for drawn in &self.drawn {
            self.whiskers(svg, drawn);
            match (drawn.series.shape, drawn.series.role) {
                (Shape::Bars, _) => self.values(svg, drawn),
                (_, Role::Theory) => {}
                _ => self.marks(svg, drawn),
            }
        }
    }

    fn whiskers(&self, svg: &mut Svg, drawn: &Drawn) {
        if !drawn.few && drawn.series.shape != Shape::Bars {
            return;
        }
        let mut d = String::new();
        for (point, (x, _)) in &drawn.points {
            let Some((low, high)) = point.interval else {
                continue;
            };
            let plot = &self.frame.plot;
            let place = |end| Some(self.frame.y.at(end)?.clamp(plot.top, plot.bottom));
            let bottom = place(low).unwrap_or(plot.bottom);
            let Some(top) = place(high) else { continue };
            let (left, width) = (at(x - CAP), at(2.0 * CAP));
            d.push_str(&format!(
                "M{left} {}h{width}M{left} {}h{width}",
                at(bottom),
                at(top)
            ));
            d.push_str(&format!("M{} {}V{}", at(*x), at(bottom), at(top)));
        }
        let over = if drawn.series.shape == Shape::Bars {
            " over"
        } else {
            ""
        };
        svg.path(&format!("whisker c{}{over}", drawn.colour), &d);
    }

    fn marks(&self, svg: &mut Svg, drawn: &Drawn) {
        let every = match (
            drawn.few && drawn.series.shape != Shape::Steps,
            drawn.series.shape,
        ) {
            (true, _) | (_, Shape::Points) => 1,
            _ => (drawn.points.len() / SPARSE_MARKS).max(1),
        };
        // Marks of several lines do not lie above each other.
        let first = if every == 1 {
            0
        } else {
            every * (1 + drawn.order % 3) / 4
        };
        let places = drawn.points.iter().skip(first).step_by(every);
        let seen = places.filter(|(_, place)| self.frame.plot.holds(*place));
        let d: String = seen
            .map(|(_, place)| marks::path(drawn.mark, *place))
            .collect();
        let class = match drawn.series.role {
            Role::Published => "mark hollow",
            _ => "mark",
        };
        svg.path(&format!("{class} c{}", drawn.colour), &d);
    }

    /// The number above each bar, if all of them fit.
    fn values(&self, svg: &mut Svg, drawn: &Drawn) {
        // As the numbers of the axis.
        let scaled = scaled(&self.panel.y, &self.frame.y.range);
        let number = |point: &Point| crate::number::short(point.y / scaled.divide, 3);
        let bars = self.drawn.iter().filter(|d| d.series.shape == Shape::Bars);
        let mut points = bars.flat_map(|d| &d.points).map(|(point, _)| point);
        let capacity = self.bar - BETWEEN / 2.0;
        if self.panel.y.scale == Scale::Log || points.any(|p| label::width(&number(p)) > capacity) {
            return;
        }
        for (point, (x, y)) in &drawn.points {
            let whisker = point.interval.and_then(|i| self.frame.y.at(i.1));
            let top = whisker.unwrap_or(*y).min(*y);
            // The title of the axis is above the plot's edge, at the left.
            let title = label::width(&self.frame.y_title) + 8.0;
            let is_free = x - self.bar / 2.0 > title;
            if is_free || top - label::LINE > self.frame.plot.top - 4.0 {
                svg.label("value", (*x, top - 5.0), Anchor::Middle, &number(point));
            }
        }
    }

    /// The hover text with values.
    pub fn hits(&self, svg: &mut Svg) {
        let each = MAX_PANEL_HITS / self.drawn.len().max(1);
        let most = each.clamp(*HITS.start(), *HITS.end());
        for drawn in &self.drawn {
            if drawn.series.shape == Shape::Bars {
                continue;
            }
            let every = drawn.points.len().div_ceil(most).max(1);
            for (point, place) in drawn.points.iter().step_by(every) {
                if self.frame.plot.holds(*place) {
                    svg.hit(*place, &self.report(drawn.series, point));
                }
            }
        }
    }

    /// "CUBIC, Loss 1 %: 235 Mbit/s [219 Mbit/s to 251 Mbit/s], n = 3, 75 % confidence".
    fn report(&self, series: &Series, point: &Point) -> String {
        let (x, y) = (&self.panel.x, &self.panel.y);
        let mut reported = format!(
            "{}\n{} {}: {}",
            series.name,
            x.label,
            x.show(point.x),
            y.show(point.y)
        );
        if let Some((low, high)) = point.interval {
            reported.push_str(&format!(" [{} to {}]", y.show(low), y.show(high)));
        }
        if !point.note.is_empty() {
            reported.push('\n');
            reported.push_str(&point.note);
        }
        reported
    }
}

fn placed(series: &Series, frame: &Frame, shift: f64) -> Vec<(Point, (f64, f64))> {
    let mut points: Vec<Point> = series.finite().cloned().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let kept = keep_extremes(&points, MAX_DRAWN_POINTS);
    let place = |point: Point| {
        let (x, y) = (frame.x.at(point.x)? + shift, frame.y.at(point.y)?);
        Some((point, (x, y)))
    };
    kept.into_iter().filter_map(place).collect()
}

fn placed_gaps<'a>(series: &'a Series, frame: &Frame, shift: f64) -> Vec<(f64, &'a Gap)> {
    let place = |gap: &'a Gap| Some((frame.x.at(gap.x)? + shift, gap));
    series.gaps.iter().filter_map(place).collect()
}

fn steps(places: &[(f64, f64)]) -> String {
    let mut d = String::new();
    for (i, (x, y)) in places.iter().enumerate() {
        match i {
            0 => d.push_str(&format!("M{} {}", at(*x), at(*y))),
            _ => d.push_str(&format!("H{}V{}", at(*x), at(*y))),
        }
    }
    d
}

/// Keys of the series with bars, in order.
fn bar_keys(panel: &Panel) -> Vec<&str> {
    let bars = panel.series.iter().filter(|s| s.shape == Shape::Bars);
    bars.map(|s| s.key.as_str()).collect()
}

fn bar_width(panel: &Panel, frame: &Frame, bars: usize) -> f64 {
    let capacity = match frame.x.range.high - frame.x.range.low {
        names if matches!(panel.x.scale, Scale::Names(_)) => {
            (frame.plot.right - frame.plot.left) / names
        }
        _ => nearest(panel, frame),
    };
    (capacity * BARS / bars.max(1) as f64).clamp(2.0, MAX_BAR)
}

/// The sideways offset of each series' marks between names, so that whiskers do not hide each other. On an
/// axis of numbers a mark is at its number.
fn dodges(panel: &Panel, frame: &Frame) -> Vec<f64> {
    if !matches!(panel.x.scale, Scale::Names(_)) {
        return vec![0.0; panel.series.len()];
    }
    let moves = |s: &Series| {
        let few = s.points.len() <= MAX_MARKED && s.points.iter().any(|p| p.interval.is_some());
        s.role == Role::Measured && few && matches!(s.shape, Shape::Line | Shape::Points)
    };
    let count = panel.series.iter().filter(|s| moves(s)).count();
    let capacity = nearest(panel, frame) / (count as f64 + 1.0);
    let widest = 2.0 * MAX_DODGE / count.saturating_sub(1).max(1) as f64;
    let step = DODGE.min(capacity).min(widest);
    let mut place = -(count.saturating_sub(1) as f64) / 2.0;
    let shift = |s: &Series| {
        if !moves(s) {
            return 0.0;
        }
        place += 1.0;
        (place - 1.0) * step
    };
    panel.series.iter().map(shift).collect()
}

/// The least distance of two different x values, in pixels.
fn nearest(panel: &Panel, frame: &Frame) -> f64 {
    let all = panel.series.iter().flat_map(|s| s.xs());
    let mut places: Vec<f64> = all.filter_map(|x| frame.x.at(x)).collect();
    places.sort_unstable_by(f64::total_cmp);
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.filter(|gap| *gap > 0.5)
        .fold(frame.plot.right - frame.plot.left, f64::min)
}

#[cfg(test)]
mod tests {
    use crate::figure::{Axis, Figure, Palette, Panel, Point, Series, Size, panel_svg};
    use crate::unit::Unit;

    fn drawn(panel: Panel) -> String {
        let figure = Figure::new("f", "", vec![panel]);
        let palette = Palette::of(std::iter::once(&figure));
        panel_svg(&figure.panels[0], &palette, Size::NARROW)
    }

    fn rate() -> Axis {
        Axis::zero_based("Goodput", Unit::bits_per_second())
    }

    /// The attribute of every element of a class.
    fn all<'a>(svg: &'a str, class: &str, attribute: &str) -> Vec<&'a str> {
        let elements = svg
            .split('<')
            .filter(|e| e.contains(&format!("class=\"{class}")));
        let value = |e: &'a str| {
            e.split(&format!(" {attribute}=\""))
                .nth(1)?
                .split('"')
                .next()
        };
        elements.filter_map(value).collect()
    }

    #[test]
    fn numbers_of_bars_have_the_axis_prefix() {
        let names = Axis::names(
            "Queue",
            ["fifo", "codel", "pie"].map(str::to_owned).to_vec(),
        );
        let bars = vec![
            Point::new(0.0, 960e6),
            Point::new(1.0, 700e6),
            Point::new(2.0, 0.0),
        ];
        let svg = drawn(Panel::new("", names, rate()).with(Series::bars("bulk", bars)));
        assert!(svg.contains("Goodput, Mbit/s"), "{svg}");
        assert!(svg.contains(">700</text>"), "{svg}");
        let heights = all(&svg, "bar", "height");
        assert_eq!(heights[2], "2", "a bar of nothing is seen");
    }

    #[test]
    fn points_are_at_their_numbers() {
        let with_interval = |x: f64, y: f64| Point {
            interval: Some((y * 0.9, y * 1.1)),
            ..Point::new(x, y)
        };
        let line = |name: &str, y: f64| {
            Series::line(name, vec![with_interval(0.0, y), with_interval(0.1, y)])
        };
        let x = Axis::linear("Loss", Unit::share());
        let panel = Panel::new("", x, rate());
        let svg = drawn(
            panel
                .with(line("a", 1e6))
                .with(line("b", 2e6))
                .with(line("c", 3e6)),
        );
        let mut places = all(&svg, "h", "cx");
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 2, "{places:?}");
    }

    #[test]
    fn ticks_are_where_data_are() {
        let losses = [
            0.0, 1e-5, 1e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.13, 0.16, 0.2,
        ];
        let points = losses.map(|x| Point::new(x, 1e6)).to_vec();
        let x = Axis::linear("Loss", Unit::share());
        let svg = drawn(Panel::new("", x, rate()).with(Series::line("a", points)));
        let ticks: Vec<f64> = svg
            .split("<text x=")
            .filter(|text| text.contains("middle"))
            .filter_map(|text| text.split(['>', '<']).nth(1)?.parse().ok())
            .collect();
        assert!(ticks.len() >= 3, "{svg}");
        for tick in &ticks {
            let is_value = losses.iter().any(|loss| (loss * 100.0 - tick).abs() < 1e-9);
            assert!(is_value, "{tick} of {ticks:?}");
        }
    }
}
