//! Lines at one value, and where their names stand.

use crate::figure::Panel;
use crate::figure::frame::Frame;
use crate::figure::label::{self, Bounds, FONT, LINE};
use crate::figure::series::{Reference, ReferenceLine};
use crate::figure::svg::{Anchor, Svg};

/// Places that are tried for a name.
const MAX_TRIES: usize = 12;

/// The lines.
pub(crate) fn lines(svg: &mut Svg, panel: &Panel, frame: &Frame) {
    let plot = &frame.plot;
    for reference in &panel.references {
        match reference.line {
            ReferenceLine::Across(value) => {
                if let Some(y) = frame.y.inside(value) {
                    svg.line("ref", (plot.left, y), (plot.right, y));
                }
            }
            ReferenceLine::Up(value) => {
                if let Some(x) = frame.x.inside(value) {
                    svg.line("ref", (x, plot.top), (x, plot.bottom));
                }
            }
        }
    }
}

/// Their names: next to the line, apart from each other, and where they hide the fewest points.
pub(crate) fn labels(svg: &mut Svg, panel: &Panel, frame: &Frame, points: &[(f64, f64)]) {
    let mut taken: Vec<Bounds> = Vec::new();
    for reference in &panel.references {
        let capacity = frame.plot.right - frame.plot.left - 8.0;
        let text = label::cut(&named(panel, reference), capacity);
        let places = candidates(reference, frame, label::width(&text));
        let free = places.into_iter().filter(|b| {
            let apart = taken.iter().all(|other| !other.touches(b));
            apart && frame.plot.top - 2.0 <= b.top && b.bottom <= frame.plot.bottom
        });
        let hidden = |b: &Bounds| points.iter().filter(|place| b.holds(**place)).count();
        if let Some(bounds) = free.min_by_key(hidden) {
            let place = (bounds.left, bounds.top + FONT - 1.0);
            svg.label("ref-name", place, Anchor::Start, &text);
            taken.push(bounds);
        }
    }
}

/// "what the link allows: 941 Mbit/s".
fn named(panel: &Panel, reference: &Reference) -> String {
    let value = match reference.line {
        ReferenceLine::Across(y) => panel.y.show(y),
        ReferenceLine::Up(x) => panel.x.show(x),
    };
    format!("{}: {value}", reference.label)
}

/// Bounds that a name of this width may have, the best first.
fn candidates(reference: &Reference, frame: &Frame, width: f64) -> Vec<Bounds> {
    let plot = &frame.plot;
    let at = |left: f64, top: f64| Bounds {
        left,
        top,
        right: left + width,
        bottom: top + LINE,
    };
    match reference.line {
        ReferenceLine::Across(value) => {
            let Some(y) = frame.y.inside(value) else {
                return Vec::new();
            };
            let sides = [plot.right - width - 2.0, plot.left + 6.0];
            let middle = (plot.left + plot.right - width) / 2.0;
            // Above the line; above the numbers of bars that reach it; below it.
            let heights = [y - LINE - 1.0, y - 2.0 * LINE - 4.0, y + 2.0];
            let lefts = sides.into_iter().chain([middle]);
            lefts
                .flat_map(|left| heights.map(|top| at(left, top)))
                .collect()
        }
        ReferenceLine::Up(value) => {
            let Some(x) = frame.x.inside(value) else {
                return Vec::new();
            };
            let lefts = [x + 5.0, x - width - 5.0];
            let inside = |left: &f64| plot.left <= *left && left + width <= plot.right;
            let rows = (0..MAX_TRIES / 2).map(|i| plot.top + i as f64 * LINE);
            rows.flat_map(|top| {
                lefts
                    .into_iter()
                    .filter(inside)
                    .map(move |left| at(left, top))
            })
            .collect()
        }
    }
}
