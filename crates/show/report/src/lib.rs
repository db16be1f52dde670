//! Reports of measurements: statistics with intervals, figures, one self-contained page.
//!
//! ```text
//! samples ─ statistics ─ figures, tables, sentences ─ Report ─┬─ page      one HTML file, loads nothing
//!                                                             ├─ markdown  with the figures as SVG files
//!                                                             ├─ json      the same value
//!                                                             └─ csv       one file a figure or table
//! ```
//!
//! Pure: no clock, no files, no network. [`files`] gives names and contents, the caller writes them.
//! Every text is data: it is shown and never run.
//!
//! ```
//! use fairpath_report::figure::{Axis, Figure, Panel, Point, Series};
//! use fairpath_report::statistics::median_with_interval;
//! use fairpath_report::{Block, ReportDocument, Section, Unit, files};
//!
//! // Three repeats at 1 % loss: their median, and the interval that three can give.
//! let goodput = median_with_interval(&[235.5e6, 229.1e6, 241.0e6], 0.95, 7).unwrap();
//! assert_eq!(goodput.note(), "n\u{a0}=\u{a0}3, 75\u{a0}% confidence");
//!
//! let x = Axis::log("Loss", Unit::share());
//! let y = Axis::zero_based("Goodput", Unit::bits_per_second());
//! let cubic = Series::line("CUBIC", vec![Point::estimate(0.01, &goodput)]);
//! let figure = Figure::new("goodput", "Goodput under loss", vec![Panel::new("", x, y).with(cubic)]);
//! let report = ReportDocument {
//!     title: "What 1 % loss costs".into(),
//!     sections: vec![Section::new("Results", vec![Block::Figure(figure)])],
//!     ..ReportDocument::default()
//! };
//! let names: Vec<String> = files(&report).into_iter().map(|file| file.path).collect();
//! assert_eq!(names, ["index.html", "report.md", "report.json", "data/goodput.csv", "figures/goodput.svg"]);
//! ```

mod catalog;
pub mod csv;
pub mod figure;
pub mod json;
pub mod markdown;
mod markup;
mod number;
pub mod page;
mod report;
pub mod statistics;
mod table;
mod unit;

pub use catalog::{Catalog, Entry, Item};
pub use number::significant;
pub use report::{Block, Fact, Headline, Notice, NoticeKind, ReportDocument, Section};
pub use table::{Cell, Column, ColumnKind, Table, TableRow};
pub use unit::{Prefixes, Scaled, Unit};

/// A file of a report: its path in the report's directory, and its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Relative, with `/`.
    pub path: String,
    /// UTF-8.
    pub content: String,
}

/// All files of a report: `index.html`, `report.md`, `report.json`, `data/NAME.csv`, `figures/NAME.svg`.
pub fn files(report: &ReportDocument) -> Vec<OutputFile> {
    let catalog = report.catalog();
    let file = |path: &str, content| OutputFile {
        path: path.to_owned(),
        content,
    };
    let mut files = vec![
        file("index.html", page::html(report)),
        file("report.md", markdown::markdown(report)),
        file("report.json", json::json(report)),
    ];
    for entry in catalog.entries() {
        files.push(file(&entry.csv_path(), csv::of_item(entry.item)));
        if let Item::Figure(figure) = entry.item {
            let svg = figure::svg_file(figure, &catalog.palette);
            files.push(file(&entry.svg_path(), svg));
        }
    }
    files
}
