//! Series: points with intervals, how they are drawn, and where they come from.

use serde::{Deserialize, Serialize};

use crate::figure::thin;
use crate::statistics::{Estimate, quantile::sorted};

/// Points of one kind in a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend: "CUBIC", "Mathis for CUBIC".
    pub name: String,
    /// The key that chooses colour and mark: series with one key look alike in all figures of a report.
    pub key: String,
    /// The shape.
    pub shape: Shape,
    /// Where it comes from.
    pub role: Role,
    /// Its points. Non-finite ones are excluded from figures and CSV.
    pub points: Vec<Point>,
    /// Where there is no value although one was to be measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// A place without a value, drawn as a cross with its label. A line does not lead across it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// As [`Point::x`].
    pub x: f64,
    /// The reason, a few words: "no valid run".
    pub label: String,
}

/// The shape of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Points joined by straight lines, in order of x.
    Line,
    /// Points alone.
    Points,
    /// Bars from the bottom, side by side with those of other series.
    Bars,
    /// A value that holds until the next point.
    Steps,
}

/// Where a series comes from; it decides how lines and marks look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Measured here: solid, filled marks.
    Measured,
    /// A model's: dashed, no marks.
    Theory,
    /// Published by others: dotted, hollow marks.
    Published,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// In the x axis's unit; on an axis of names, the name's place from 0.
    pub x: f64,
    /// In the y axis's unit.
    pub y: f64,
    /// The interval's ends, in the y axis's unit.
    pub interval: Option<(f64, f64)>,
    /// Additional hover text: "n = 3, 75 % confidence".
    pub note: String,
}

/// A line at one value across a panel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// "what the link allows".
    pub label: String,
    /// Where.
    pub line: ReferenceLine,
}

/// The position of a reference line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceLine {
    /// At a value of y.
    Across(f64),
    /// At a value of x.
    Up(f64),
}

impl Point {
    /// A point without interval.
    pub fn new(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            interval: None,
            note: String::new(),
        }
    }

    /// A point with its interval; the note has the number of samples and the actual confidence.
    pub fn estimate(x: f64, estimate: &Estimate) -> Point {
        Point {
            x,
            y: estimate.value,
            interval: estimate.interval.map(|i| (i.low, i.high)),
            note: estimate.note(),
        }
    }

    pub(crate) fn is_finite(&self) -> bool {
        let ends = self.interval.unwrap_or_default();
        [self.x, self.y, ends.0, ends.1]
            .iter()
            .all(|n| n.is_finite())
    }
}

impl Series {
    fn new(name: &str, shape: Shape, points: Vec<Point>) -> Series {
        Series {
            name: name.to_owned(),
            key: name.to_owned(),
            shape,
            role: Role::Measured,
            points,
            gaps: Vec::new(),
        }
    }

    /// Measured points joined by lines.
    pub fn line(name: &str, points: Vec<Point>) -> Series {
        Series::new(name, Shape::Line, points)
    }

    /// Measured points alone.
    pub fn points(name: &str, points: Vec<Point>) -> Series {
        Series::new(name, Shape::Points, points)
    }

    /// Measured bars.
    pub fn bars(name: &str, points: Vec<Point>) -> Series {
        Series::new(name, Shape::Bars, points)
    }

    /// A measured value over time that holds until the next point.
    pub fn steps(name: &str, points: Vec<Point>) -> Series {
        Series::new(name, Shape::Steps, points)
    }

    /// The empirical distribution of samples: the share (0 to 1) of samples that are at most x.
    ///
    /// Thinned to [`thin::MAX_DISTRIBUTION_POINTS`] steps; the least and the largest sample stay.
    pub fn distribution(name: &str, samples: &[f64]) -> Series {
        Series::new(name, Shape::Steps, cumulative(&sorted(samples)))
    }

    /// A series from a model.
    pub fn theory(name: &str, points: Vec<Point>) -> Series {
        Series {
            role: Role::Theory,
            ..Series::new(name, Shape::Line, points)
        }
    }

    /// A series from a publication.
    pub fn published(name: &str, points: Vec<Point>) -> Series {
        Series {
            role: Role::Published,
            ..Series::new(name, Shape::Line, points)
        }
    }

    /// With places that have no value.
    pub fn gaps(mut self, gaps: Vec<Gap>) -> Series {
        self.gaps = gaps;
        self
    }

    /// In the colour of another name.
    pub fn like(mut self, key: &str) -> Series {
        self.key = key.to_owned();
        self
    }

    /// The x values of its points and gaps.
    pub(crate) fn xs(&self) -> impl Iterator<Item = f64> {
        let gaps = self.gaps.iter().map(|gap| gap.x).filter(|x| x.is_finite());
        self.finite().map(|point| point.x).chain(gaps)
    }

    /// Its finite points.
    pub(crate) fn finite(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|point| point.is_finite())
    }
}

fn cumulative(sorted: &[f64]) -> Vec<Point> {
    let share = |i: usize| (i + 1) as f64 / sorted.len() as f64;
    let points = sorted
        .iter()
        .enumerate()
        .map(|(i, x)| Point::new(*x, share(i)));
    // Of equal samples only the last has the share that is at most x.
    let mut distinct: Vec<Point> = Vec::new();
    for point in points {
        match distinct.last_mut() {
            Some(last) if last.x == point.x => *last = point,
            _ => distinct.push(point),
        }
    }
    let mut kept = thin::keep_extremes(&distinct, thin::MAX_DISTRIBUTION_POINTS);
    // It begins at zero, where its least sample is.
    if let Some(first) = kept.first().cloned() {
        kept.insert(0, Point::new(first.x, 0.0));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_begins_at_zero_and_ends_at_one() {
        let series = Series::distribution("d", &[3.0, 1.0, 2.0, 2.0, f64::NAN]);
        let at: Vec<(f64, f64)> = series.points.iter().map(|p| (p.x, p.y)).collect();
        assert_eq!(at, [(1.0, 0.0), (1.0, 0.25), (2.0, 0.75), (3.0, 1.0)]);
    }

    #[test]
    fn long_distribution_is_thinned_and_keeps_its_ends() {
        let samples: Vec<f64> = (0..100_000).map(f64::from).collect();
        let series = Series::distribution("d", &samples);
        assert!(series.points.len() <= thin::MAX_DISTRIBUTION_POINTS + 1);
        assert_eq!(series.points.first().map(|p| p.x), Some(0.0));
        assert_eq!(
            series.points.last().map(|p| (p.x, p.y)),
            Some((99_999.0, 1.0))
        );
    }
}
