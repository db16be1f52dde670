//! A report as a value: what a manager reads first, then figures, tables, method, provenance.

use serde::{Deserialize, Serialize};

use crate::figure::{Figure, Point};
use crate::table::{Cell, Table};

/// A report. Texts are plain; words between backticks are shown as code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReportDocument {
    /// Its name, a few words.
    pub title: String,
    /// The kind of report, above the title: "Fairpath lab, quick form".
    pub kicker: String,
    /// The question that it answers, a sentence or two.
    pub question: String,
    /// The most important facts: date, machine, runs.
    pub facts: Vec<Fact>,
    /// The findings, the most important first.
    pub summary: Vec<Headline>,
    /// Limits of these results: excluded runs, few repeats.
    pub notices: Vec<Notice>,
    /// The rest, in order: results, method, provenance.
    pub sections: Vec<Section>,
    /// The command that repeats all of it.
    pub command: String,
    /// Name and version of the program that made it.
    pub made_by: String,
    /// Keys of series that have the colour and mark of their place in this list in every report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_colours: Vec<String>,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// "Kernel".
    pub name: String,
    /// "6.18.0".
    pub value: String,
}

/// One finding: a figure in large type and the sentence that it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// "−71 %"; may be empty.
    pub value: String,
    /// "CUBIC falls from 805 to 235 Mbit/s at 1 % loss (90 % confidence: 220 to 250)".
    pub text: String,
    /// The id of the figure that shows it.
    pub figure: Option<String>,
}

/// A notice that a reader needs to judge the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// The severity.
    pub kind: NoticeKind,
    /// Sentences.
    pub text: String,
}

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// To be known.
    Note,
    /// Results are missing or not to be believed.
    Warning,
}

/// A part of the report with a heading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// The content.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A list of short paragraphs.
    List(Vec<String>),
    /// Lines as they are: commands, formulas.
    Code(String),
    /// Names and values.
    Facts(Vec<Fact>),
    /// A notice where it belongs.
    Notice(Notice),
    /// A figure.
    Figure(Figure),
    /// A table.
    Table(Table),
    /// A part that is shown on demand: a heading and what is under it.
    Details(String, Vec<Block>),
}

impl Fact {
    /// A fact.
    pub fn new(name: &str, value: impl Into<String>) -> Fact {
        Fact {
            name: name.to_owned(),
            value: value.into(),
        }
    }
}

impl Notice {
    /// A note.
    pub fn note(text: impl Into<String>) -> Notice {
        Notice {
            kind: NoticeKind::Note,
            text: text.into(),
        }
    }

    /// A warning.
    pub fn warning(text: impl Into<String>) -> Notice {
        Notice {
            kind: NoticeKind::Warning,
            text: text.into(),
        }
    }
}

impl Section {
    /// A section.
    pub fn new(title: &str, blocks: Vec<Block>) -> Section {
        Section {
            title: title.to_owned(),
            blocks,
        }
    }
}

impl ReportDocument {
    /// Excludes points and numbers that are not finite.
    pub(crate) fn drop_infinite(&mut self) {
        for section in &mut self.sections {
            section.blocks.iter_mut().for_each(drop_infinite);
        }
    }
}

fn drop_infinite(block: &mut Block) {
    match block {
        Block::Figure(figure) => {
            let series = figure.panels.iter_mut().flat_map(|panel| &mut panel.series);
            series.for_each(|series| series.points.retain(Point::is_finite));
        }
        Block::Table(table) => {
            for cell in table.rows.iter_mut().flat_map(|row| &mut row.cells) {
                if matches!(cell, Cell::Number(n) | Cell::Estimate(n, _) if !n.is_finite()) {
                    *cell = Cell::Missing;
                }
            }
        }
        Block::Details(_, inner) => inner.iter_mut().for_each(drop_infinite),
        _ => {}
    }
}
