//! A figure as a separate SVG file: title, legend, panels below each other or side by side.
//!
//! It follows the reader's light or dark preference if the viewer supports it, and loads nothing.

use crate::figure::draw::{Size, panel_svg};
use crate::figure::label::{self, LINE};
use crate::figure::legend::{self, LegendItem, SWATCH};
use crate::figure::palette::{CSS_DARK, CSS_LIGHT, CSS_MARKS, Palette};
use crate::figure::svg::{Anchor, Svg, at};
use crate::figure::{Figure, Panel};
use crate::markup::escape;

/// Around everything.
const EDGE: f64 = 16.0;
/// Between panels.
const GAP: f64 = 24.0;
/// Between two entries of the legend.
const BETWEEN_ITEMS: f64 = 18.0;
/// Height of a row of the legend.
const ROW: f64 = 22.0;

/// The file's text; several panels stand in pairs.
pub fn svg_file(figure: &Figure, palette: &Palette) -> String {
    match figure.panels.len() {
        0 | 1 => svg_column(figure, palette),
        _ => file(figure, palette, (Size::NARROW, 2)),
    }
}

/// The file's text with panels below each other, each as wide as the file.
pub fn svg_column(figure: &Figure, palette: &Palette) -> String {
    file(figure, palette, (Size::WIDE, 1))
}

/// For panels of this size and this number of columns.
fn file(figure: &Figure, palette: &Palette, layout: (Size, usize)) -> String {
    let mut svg = Svg::default();
    let width = Size::WIDE.width;
    let mut y = 0.0;
    for line in label::wrap(&figure.title, width / 1.1) {
        y += LINE + 2.0;
        svg.label("name title", (0.0, y - 4.0), Anchor::Start, &line);
    }
    y = legend(&mut svg, figure, palette, y + 8.0);
    y = panels(&mut svg, figure, palette, layout, y + 8.0);
    let (whole, high) = (width + 2.0 * EDGE, y + 2.0 * EDGE);
    let view = format!("{0} {0} {1} {2}", at(-EDGE), at(whole), at(high));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"{view}\" role=\"img\">\
         <title>{2}</title><style>:root{{{CSS_LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{CSS_DARK}}}}}\
         {CSS_MARKS}.title,.head{{font-weight:600}}.title{{font-size:14px}}</style>\
         <rect x=\"{3}\" y=\"{3}\" width=\"{0}\" height=\"{1}\" fill=\"var(--ground)\"/>{4}</svg>\n",
        at(whole),
        at(high),
        escape(&figure.title),
        at(-EDGE),
        svg.text
    )
}

/// Entries in rows; returns their end.
fn legend(svg: &mut Svg, figure: &Figure, palette: &Palette, top: f64) -> f64 {
    let items = legend::items(figure);
    let (mut x, mut y) = (0.0, top);
    for item in &items {
        let name = label::cut(&item.name, Size::WIDE.width - SWATCH.0 - 8.0);
        let capacity = SWATCH.0 + 6.0 + label::width(&name);
        if x > 0.0 && x + capacity > Size::WIDE.width {
            (x, y) = (0.0, y + ROW);
        }
        entry(svg, item, &name, palette, (x, y));
        x += capacity + BETWEEN_ITEMS;
    }
    match items.is_empty() {
        true => top,
        false => y + ROW,
    }
}

fn entry(svg: &mut Svg, item: &LegendItem, name: &str, palette: &Palette, (x, y): (f64, f64)) {
    let sample = legend::swatch(item, palette);
    svg.raw(&format!(
        "<g transform=\"translate({} {})\">{sample}</g>",
        at(x),
        at(y)
    ));
    svg.label("name", (x + SWATCH.0 + 6.0, y + 11.5), Anchor::Start, name);
}

fn panels(
    svg: &mut Svg,
    figure: &Figure,
    palette: &Palette,
    (size, columns): (Size, usize),
    top: f64,
) -> f64 {
    let head = match figure.panels.iter().any(|panel| !panel.title.is_empty()) {
        true => LINE + 10.0,
        false => 0.0,
    };
    for (i, panel) in figure.drawn().iter().enumerate() {
        let x = (i % columns) as f64 * (size.width + GAP);
        let y = top + (i / columns) as f64 * (head + size.height + GAP);
        one(svg, panel, palette, size, (x, y, head));
    }
    let rows = figure.panels.len().div_ceil(columns) as f64;
    top + rows * (head + size.height + GAP) - GAP
}

fn one(svg: &mut Svg, panel: &Panel, palette: &Palette, size: Size, (x, y, head): (f64, f64, f64)) {
    let title = label::cut(&panel.title, size.width / 1.1);
    svg.label("name head", (x, y + LINE), Anchor::Start, &title);
    let elements = panel_svg(panel, palette, size);
    svg.raw(&format!(
        "<g transform=\"translate({} {})\">{elements}</g>",
        at(x),
        at(y + head)
    ));
}
