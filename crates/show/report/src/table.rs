//! Tables as values: columns with units, cells with intervals.

use serde::{Deserialize, Serialize};

use crate::statistics::{Estimate, Interval};
use crate::unit::Unit;

/// A table. Long ones are folded on the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Short name for files and links: "runs".
    pub id: String,
    /// A sentence.
    pub title: String,
    /// The explanation; may be empty.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows; a row has a cell for each column.
    pub rows: Vec<TableRow>,
    /// The command that repeats what it shows.
    pub command: Option<String>,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its contents.
    pub name: String,
    /// Text or numbers of a unit.
    pub kind: ColumnKind,
}

/// The content of a column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Words, to the left.
    Text,
    /// Numbers, to the right, with one prefix for all of the column.
    Number(Unit),
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    /// A cell for each column.
    pub cells: Vec<Cell>,
    /// True if it is set apart, such as a run that was invalid.
    pub marked: bool,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cell {
    /// Nothing was measured.
    Missing,
    /// Words.
    Text(String),
    /// A number in the column's unit.
    Number(f64),
    /// A number with its interval.
    Estimate(f64, Interval),
}

impl Table {
    /// An empty table.
    pub fn new(id: &str, title: &str, columns: Vec<Column>) -> Table {
        Table {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: String::new(),
            columns,
            rows: Vec::new(),
            command: None,
        }
    }

    /// Adds a row.
    pub fn push(&mut self, cells: Vec<Cell>) {
        self.rows.push(TableRow {
            cells,
            marked: false,
        });
    }

    /// Adds a row that is set apart.
    pub fn push_marked(&mut self, cells: Vec<Cell>) {
        self.rows.push(TableRow {
            cells,
            marked: true,
        });
    }

    /// True if any cell of the column has an interval.
    pub(crate) fn has_intervals(&self, column: usize) -> bool {
        self.rows
            .iter()
            .any(|row| matches!(row.cells.get(column), Some(Cell::Estimate(..))))
    }

    /// The largest number of the column, which chooses its prefix; `None` without numbers.
    pub(crate) fn largest(&self, column: usize) -> Option<f64> {
        let numbers = self
            .rows
            .iter()
            .filter_map(|row| match row.cells.get(column) {
                Some(Cell::Number(value) | Cell::Estimate(value, _)) => Some(value.abs()),
                _ => None,
            });
        numbers.filter(|n| n.is_finite()).reduce(f64::max)
    }
}

impl Column {
    /// A column of words.
    pub fn text(name: &str) -> Column {
        Column {
            name: name.to_owned(),
            kind: ColumnKind::Text,
        }
    }

    /// A column of numbers.
    pub fn number(name: &str, unit: Unit) -> Column {
        Column {
            name: name.to_owned(),
            kind: ColumnKind::Number(unit),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Number(value)
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Cell {
        value.map_or(Cell::Missing, Cell::Number)
    }
}

impl From<Estimate> for Cell {
    fn from(estimate: Estimate) -> Cell {
        match estimate.interval {
            Some(interval) => Cell::Estimate(estimate.value, interval),
            None => Cell::Number(estimate.value),
        }
    }
}

/// A table's cells as people read them, in HTML and in Markdown alike.
pub(crate) struct Shown {
    pub columns: Vec<ShownColumn>,
}

/// A column with its prefix chosen.
pub(crate) struct ShownColumn {
    /// "Goodput, Mbit/s".
    pub name: String,
    /// True if numbers stand in it.
    pub number: bool,
    divide: f64,
}

/// Significant digits of a cell.
const DIGITS: usize = 3;

impl Table {
    pub(crate) fn shown(&self) -> Shown {
        let column = |(i, column): (usize, &Column)| match &column.kind {
            ColumnKind::Text => ShownColumn {
                name: column.name.clone(),
                number: false,
                divide: 1.0,
            },
            ColumnKind::Number(unit) => {
                let scaled = unit.scaled(self.largest(i).unwrap_or(0.0));
                let name = match scaled.symbol.as_str() {
                    "" => column.name.clone(),
                    symbol => format!("{}, {symbol}", column.name),
                };
                ShownColumn {
                    name,
                    number: true,
                    divide: scaled.divide,
                }
            }
        };
        Shown {
            columns: self.columns.iter().enumerate().map(column).collect(),
        }
    }
}

impl Shown {
    /// Of each row: value and interval ("[219, 251]" or empty) of each cell.
    pub fn rows<'a>(
        &'a self,
        table: &'a Table,
    ) -> impl Iterator<Item = Vec<(String, String)>> + 'a {
        table.rows.iter().map(|row| {
            let cells = self.columns.iter().enumerate();
            cells
                .map(|(i, column)| column.cell(row.cells.get(i)))
                .collect()
        })
    }
}

impl ShownColumn {
    fn cell(&self, cell: Option<&Cell>) -> (String, String) {
        let number = |value: f64| crate::number::significant(value / self.divide, DIGITS);
        match cell {
            None | Some(Cell::Missing) => (crate::number::MISSING.to_owned(), String::new()),
            Some(Cell::Text(text)) => (text.clone(), String::new()),
            Some(Cell::Number(value)) => (whole(*value, self.divide, number), String::new()),
            Some(Cell::Estimate(value, interval)) => {
                let ends = format!("[{}, {}]", number(interval.low), number(interval.high));
                (number(*value), ends)
            }
        }
    }
}

/// Counts are shown without digits after the point.
fn whole(value: f64, divide: f64, number: impl Fn(f64) -> String) -> String {
    match divide == 1.0 && value.fract() == 0.0 && value.abs() < 1e15 {
        true => crate::number::decimals(value, 0),
        false => number(value),
    }
}
