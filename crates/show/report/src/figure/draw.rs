//! A panel as SVG: grid, axes, titles, and around the plot everything in its order.

use crate::figure::Panel;
use crate::figure::axis::Scale;
use crate::figure::frame::{Frame, PlacedTick};
use crate::figure::label::FONT;
use crate::figure::palette::Palette;
use crate::figure::plot::Plot;
use crate::figure::reference;
use crate::figure::svg::{Anchor, Svg, at};

pub(crate) use crate::figure::frame::Size;

/// From the middle of a line of text to its base line.
const BASE: f64 = 0.35 * FONT;

/// The elements of a panel, to stand in an `<svg>` of that size.
pub(crate) fn panel_svg(panel: &Panel, palette: &Palette, size: Size) -> String {
    let frame = Frame::new(panel, size);
    let mut svg = Svg::default();
    grid(&mut svg, &frame);
    axes(&mut svg, panel, &frame);
    if panel.is_empty() {
        let plot = &frame.plot;
        let middle = (
            (plot.left + plot.right) / 2.0,
            (plot.top + plot.bottom) / 2.0,
        );
        let gaps = panel.series.iter().flat_map(|series| &series.gaps);
        let why = gaps.map(|gap| gap.label.as_str()).next();
        svg.label(
            "",
            middle,
            Anchor::Middle,
            why.unwrap_or("nothing was measured"),
        );
        return svg.text;
    }
    let plot = Plot::new(panel, &frame, palette);
    reference::lines(&mut svg, panel, &frame);
    svg.raw(&clip_start(&frame));
    plot.areas(&mut svg);
    plot.lines(&mut svg);
    svg.raw("</svg>");
    plot.points(&mut svg);
    plot.gaps(&mut svg);
    reference::labels(&mut svg, panel, &frame, &plot.places());
    plot.hits(&mut svg);
    svg.text
}

/// An inner `<svg>` clips without an identifier, which would have to differ in every figure of a page.
fn clip_start(frame: &Frame) -> String {
    let plot = &frame.plot;
    let width = at(plot.right - plot.left);
    // The line of a value at the very edge is drawn whole.
    let height = at(plot.bottom - plot.top + 2.0);
    let (left, top) = (at(plot.left), at(plot.top - 1.0));
    format!(
        "<svg x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" viewBox=\"{left} {top} {width} {height}\">"
    )
}

fn grid(svg: &mut Svg, frame: &Frame) {
    let plot = &frame.plot;
    let mut d = String::new();
    for tick in &frame.y_ticks {
        d.push_str(&format!(
            "M{} {}H{}",
            at(plot.left),
            at(tick.place),
            at(plot.right)
        ));
    }
    svg.path("grid", &d);
    for tick in &frame.y_ticks {
        let place = (plot.left - 8.0, tick.place + BASE);
        svg.label("", place, Anchor::End, &tick.lines[0]);
    }
    svg.label("name", (0.0, FONT), Anchor::Start, &frame.y_title);
}

fn axes(svg: &mut Svg, panel: &Panel, frame: &Frame) {
    let plot = &frame.plot;
    let mut d = format!("M{} {}H{}", at(plot.left), at(plot.bottom), at(plot.right));
    if !matches!(panel.x.scale, Scale::Names(_)) {
        for tick in &frame.x_ticks {
            d.push_str(&format!("M{} {}v5", at(tick.place), at(plot.bottom)));
        }
    }
    // Zero is drawn as a separate line if there are values on both sides of it.
    if panel.y.scale == Scale::Linear
        && frame.y.range.low < 0.0
        && let Some(zero) = frame.y.inside(0.0)
    {
        d.push_str(&format!(
            "M{} {}H{}",
            at(plot.left),
            at(zero),
            at(plot.right)
        ));
    }
    svg.path("axis", &d);
    gaps(svg, frame);
    for tick in &frame.x_ticks {
        match frame.turned {
            true => turned(svg, tick),
            false => level(svg, tick),
        }
    }
    let middle = (plot.left + plot.right) / 2.0;
    let place = (middle, frame.size.height - 7.0);
    svg.label("name", place, Anchor::Middle, &frame.x_title);
}

/// Two strokes where a log axis omits the range between zero and its first value.
fn gaps(svg: &mut Svg, frame: &Frame) {
    let plot = &frame.plot;
    if frame.x.range.zero {
        let (x, y) = (frame.x.begin() - 6.0, plot.bottom);
        svg.path(
            "gap",
            &format!(
                "M{} {}l4 -10M{} {}l4 -10",
                at(x - 4.0),
                at(y + 5.0),
                at(x),
                at(y + 5.0)
            ),
        );
    }
    if frame.y.range.zero {
        let (x, y) = (plot.left, frame.y.begin() + 6.0);
        svg.path(
            "gap",
            &format!(
                "M{} {}l10 -4M{} {}l10 -4",
                at(x - 5.0),
                at(y),
                at(x - 5.0),
                at(y + 4.0)
            ),
        );
    }
}

fn level(svg: &mut Svg, tick: &PlacedTick) {
    let middle = (tick.bounds.left + tick.bounds.right) / 2.0;
    for (i, line) in tick.lines.iter().enumerate() {
        let y = tick.bounds.top + FONT + i as f64 * crate::figure::label::LINE;
        svg.label("", (middle, y), Anchor::Middle, line);
    }
}

fn turned(svg: &mut Svg, tick: &PlacedTick) {
    let (x, y) = (at(tick.place + BASE), at(tick.bounds.top));
    svg.raw(&format!("<g transform=\"translate({x} {y}) rotate(-90)\">"));
    svg.label("", (0.0, 0.0), Anchor::End, &tick.lines[0]);
    svg.raw("</g>");
}
