//! Figures as values, and how they become SVG.
//!
//! ```text
//! Figure ─ Panel ─ axes, series, references
//!             │ ticks, thinning, layout
//!             ▼
//!           SVG: one for wide pages, one for phones; a separate file with its legend
//! ```
//!
//! Measurements are solid, models are dashed, published values are hollow and dotted. Colours are CSS
//! variables, so that light, dark and print differ in style only.

mod axis;
mod draw;
mod frame;
mod gaps;
mod label;
mod legend;
mod mapping;
mod marks;
mod palette;
mod plot;
mod reference;
mod series;
mod standalone;
mod svg;
mod thin;
mod ticks;
mod x_labels;

use serde::{Deserialize, Serialize};

pub use axis::{Axis, Scale};
pub use palette::{COLOURS, Palette};
pub use series::{Gap, Point, Reference, ReferenceLine, Role, Series, Shape};
pub use thin::MAX_DRAWN_POINTS;

pub(crate) use draw::{Size, panel_svg};
pub(crate) use legend::{items as legend_items, swatch};
pub use palette::{CSS_DARK, CSS_LIGHT, CSS_MARKS};
pub use standalone::{svg_column, svg_file};

/// A figure: one or more panels that share a legend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Short name for files and links: "goodput-by-loss".
    pub id: String,
    /// The finding, as a sentence.
    pub title: String,
    /// The explanation: what points and intervals are, how many runs, at which confidence.
    pub caption: String,
    /// Its panels, in reading order.
    pub panels: Vec<Panel>,
    /// The command that repeats what it shows.
    pub command: Option<String>,
}

/// One pair of axes and what is drawn in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Its difference from the other panels ("asymmetric path"); empty for a single one.
    pub title: String,
    /// Along the bottom.
    pub x: Axis,
    /// Along the left side.
    pub y: Axis,
    /// The series, later ones above earlier ones.
    pub series: Vec<Series>,
    /// Lines at one value, such as a link's rate.
    pub references: Vec<Reference>,
    /// True if its axes have separate ranges. Otherwise panels of a figure with equal axes show equal
    /// ranges, so that heights can be compared.
    pub apart: bool,
}

impl Figure {
    /// A figure without caption and command.
    pub fn new(id: &str, title: &str, panels: Vec<Panel>) -> Figure {
        Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: String::new(),
            panels,
            command: None,
        }
    }

    /// Its panels as they are drawn: with common ranges where that is wanted.
    pub(crate) fn drawn(&self) -> Vec<Panel> {
        mapping::share_ranges(&self.panels)
    }

    /// With a caption.
    pub fn caption(mut self, caption: impl Into<String>) -> Figure {
        self.caption = caption.into();
        self
    }

    /// With the command that repeats it.
    pub fn command(mut self, command: impl Into<String>) -> Figure {
        self.command = Some(command.into());
        self
    }
}

impl Panel {
    /// An empty panel.
    pub fn new(title: &str, x: Axis, y: Axis) -> Panel {
        Panel {
            title: title.to_owned(),
            x,
            y,
            series: Vec::new(),
            references: Vec::new(),
            apart: false,
        }
    }

    /// With separate ranges, if other panels have another magnitude.
    pub fn apart(mut self) -> Panel {
        self.apart = true;
        self
    }

    /// With one more series.
    pub fn with(mut self, series: Series) -> Panel {
        self.series.push(series);
        self
    }

    /// With a line at one value.
    pub fn with_reference(mut self, reference: Reference) -> Panel {
        self.references.push(reference);
        self
    }

    /// True if there is any point to draw.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }
}
