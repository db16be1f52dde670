//! The legend: one entry for each name of a figure, with its line or mark.

use crate::figure::Figure;
use crate::figure::marks;
use crate::figure::palette::Palette;
use crate::figure::series::{Role, Series, Shape};
use crate::figure::svg::Svg;

/// Width and height of the drawn sample.
pub(crate) const SWATCH: (f64, f64) = (30.0, 14.0);

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LegendItem {
    pub name: String,
    pub key: String,
    shape: Shape,
    role: Role,
}

/// The entries of a figure: what was measured, models, what others published, each in order of first
/// appearance; none where there is only one series without
/// a name.
pub(crate) fn items(figure: &Figure) -> Vec<LegendItem> {
    let mut items: Vec<LegendItem> = Vec::new();
    for series in figure.panels.iter().flat_map(|panel| &panel.series) {
        let item = item(series);
        if !item.name.is_empty() && !items.contains(&item) {
            items.push(item);
        }
    }
    items.sort_by_key(|item| item.role);
    items
}

fn item(series: &Series) -> LegendItem {
    LegendItem {
        name: series.name.clone(),
        key: series.key.clone(),
        shape: match series.shape {
            // Both are a line here: a name that has one in each panel is one entry.
            Shape::Steps => Shape::Line,
            shape => shape,
        },
        role: series.role,
    }
}

/// The elements of an entry's sample, [`SWATCH`] in size.
pub(crate) fn swatch(item: &LegendItem, palette: &Palette) -> String {
    let (colour, mark) = (palette.colour(&item.key), palette.mark(&item.key));
    let (width, height) = SWATCH;
    let middle = (width / 2.0, height / 2.0);
    let mut svg = Svg::default();
    if item.shape == Shape::Bars {
        svg.path(
            &format!("bar c{colour}"),
            &format!("M8 0H{}V{height}H8Z", width - 8.0),
        );
        return svg.text;
    }
    let class = match item.role {
        Role::Measured => "line",
        Role::Theory => "line theory",
        Role::Published => "line published",
    };
    if item.shape != Shape::Points {
        svg.line(
            &format!("{class} c{colour}"),
            (1.0, middle.1),
            (width - 1.0, middle.1),
        );
    }
    let hollow = match item.role {
        Role::Theory => return svg.text,
        Role::Published => " hollow",
        Role::Measured => "",
    };
    svg.path(
        &format!("mark{hollow} c{colour}"),
        &marks::path(mark, middle),
    );
    svg.text
}
