//! A chart of lines in SVG: frame, ticks, grid, lines. Colours are classes of the style sheet.

use std::fmt::Write as _;

/// How a value lies on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// Decades; values are above 0.
    Log,
}

/// An axis: what it is called, where it begins and ends.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub title: &'static str,
    pub scale: Scale,
    pub least: f64,
    pub most: f64,
    pub label: fn(f64) -> String,
}

impl Axis {
    /// 0 to 1 along the axis.
    fn place(&self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.least).log10(),
        };
        let width = place(self.most) - place(self.least);
        ((place(value) - place(self.least)) / width).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Log => {
                let (first, last) = (
                    self.least.log10().ceil() as i32,
                    self.most.log10().floor() as i32,
                );
                (first..=last).map(|power| 10f64.powi(power)).collect()
            }
            Scale::Linear => {
                let step = nice((self.most - self.least) / 5.0);
                let count = (self.most / step + 1e-9).floor() as u32;
                (0..=count)
                    .map(|at| f64::from(at) * step)
                    .filter(|tick| *tick >= self.least)
                    .collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `step`.
pub(super) fn nice(step: f64) -> f64 {
    if step <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

/// A line: its colour's number and its points. Steps go level, then up.
pub(super) struct Line {
    pub colour: usize,
    pub points: Vec<(f64, f64)>,
    pub steps: bool,
}

/// Where a chart is in the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// The chart as elements of SVG.
pub(super) fn draw(frame: Frame, title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let mut out = String::new();
    let right = |value: f64| frame.left + x.place(value) * frame.width;
    let up = |value: f64| frame.top + (1.0 - y.place(value)) * frame.height;
    let bottom = frame.top + frame.height;
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{:.1}\" y=\"{:.1}\">{title}</text>",
        frame.left,
        frame.top - 14.0
    );
    for tick in y.ticks() {
        let at = up(tick);
        let end = frame.left + frame.width;
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{:.1} {at:.1}H{end:.1}\"/>",
            frame.left
        );
        let _ = writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            frame.left - 8.0,
            at + 4.0,
            (y.label)(tick)
        );
    }
    for tick in x.ticks() {
        let at = right(tick);
        let _ = writeln!(
            out,
            "<path class=\"grid\" d=\"M{at:.1} {:.1}V{bottom:.1}\"/>",
            frame.top
        );
        let _ = writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 18.0,
            (x.label)(tick)
        );
    }
    let middle = frame.left + frame.width / 2.0;
    let _ = writeln!(
        out,
        "<path class=\"axis\" d=\"M{:.1} {:.1}V{bottom:.1}H{:.1}\"/>",
        frame.left,
        frame.top,
        frame.left + frame.width
    );
    let _ = writeln!(
        out,
        "<text class=\"label\" text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
        bottom + 38.0,
        x.title
    );
    let (label_x, label_y) = (frame.left - 58.0, frame.top + frame.height / 2.0);
    let _ = writeln!(
        out,
        "<text class=\"label\" text-anchor=\"middle\" transform=\"translate({label_x:.1} {label_y:.1}) rotate(-90)\">{}</text>",
        y.title
    );
    for line in lines {
        let _ = writeln!(
            out,
            "<path class=\"line c{}\" d=\"{}\"/>",
            line.colour,
            path(line, right, up)
        );
    }
    out
}

fn path(line: &Line, right: impl Fn(f64) -> f64, up: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (at, (x, y)) in line.points.iter().enumerate() {
        let (x, y) = (right(*x), up(*y));
        let _ = match at {
            0 => write!(path, "M{x:.1} {y:.1}"),
            _ if line.steps => write!(path, "H{x:.1}V{y:.1}"),
            _ => write!(path, "L{x:.1} {y:.1}"),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, least: f64, most: f64) -> Axis {
        Axis {
            title: "",
            scale,
            least,
            most,
            label: |value| value.to_string(),
        }
    }

    #[test]
    fn ticks_are_few_round_and_within_the_axis() {
        assert_eq!(
            axis(Scale::Linear, 0.0, 97.0).ticks(),
            [0.0, 20.0, 40.0, 60.0, 80.0]
        );
        assert_eq!(axis(Scale::Linear, 0.0, 1.0).ticks().len(), 6);
        assert_eq!(axis(Scale::Log, 1e3, 2e5).ticks(), [1e3, 1e4, 1e5]);
        for most in [1e-9, 0.3, 7.0, 1e12] {
            let ticks = axis(Scale::Linear, 0.0, most).ticks();
            assert!(
                (2..=7).contains(&ticks.len()) && ticks.iter().all(|tick| *tick <= most * 1.001),
                "{most}: {ticks:?}"
            );
        }
    }

    #[test]
    fn values_outside_stay_at_the_ends() {
        let log = axis(Scale::Log, 1e3, 1e6);
        assert_eq!(
            [0.0, 1e3, 1e6, 1e9].map(|value| log.place(value)),
            [0.0, 0.0, 1.0, 1.0]
        );
    }
}
