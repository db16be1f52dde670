//! CSV with the position of every cell.
//!
//! The `csv` crate returns the positions of records. The positions of cells are found by reading the
//! text of a record again. Lines that begin with `#` are comments. A byte order mark is skipped.

use csv::{Reader, ReaderBuilder, StringRecord};

use crate::problem::{ProblemKind, Problems};
use crate::source::Place;

/// A cell without surrounding spaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'t> {
    pub text: &'t str,
    pub place: Place,
}

impl<'t> Cell<'t> {
    /// The values of a cell, separated by `;`, `,` or spaces.
    pub fn values(self) -> impl Iterator<Item = Cell<'t>> {
        let separates = |c: char| c == ';' || c == ',' || c.is_whitespace();
        let mut offset = self.place.offset as usize;
        let pieces = self.text.split_inclusive(separates).map(move |piece| {
            let place = self.place.at(offset);
            offset += piece.len();
            let text = piece.trim_end_matches(separates);
            Cell { text, place }
        });
        pieces.filter(|piece| !piece.text.is_empty())
    }
}

/// Rows with fewer cells than the header, which get one error.
#[derive(Default)]
pub(crate) struct ShortRows {
    /// The first one and its number of cells.
    first: Option<(Place, usize)>,
    count: usize,
}

impl ShortRows {
    /// Counts the present row.
    pub fn note(&mut self, rows: &Rows<'_>) {
        self.first.get_or_insert((rows.place(), rows.len()));
        self.count += 1;
    }

    /// Adds the error, if there is any such row. `width` is the number of cells of the header.
    pub fn report(&self, width: usize, problems: &mut Problems) {
        let Some((place, cells)) = self.first else {
            return;
        };
        let unit = match self.count {
            1 => "row has",
            _ => "rows have",
        };
        let text = format!(
            "{} {unit} too few cells, here {cells}, but the header has {width}: \
             write a cell for each column, also for an empty one",
            self.count
        );
        problems.error(ProblemKind::Syntax, place, "", text);
    }
}

/// The records of a text.
pub(crate) struct Rows<'t> {
    text: &'t str,
    start: Place,
    /// Size of the byte order mark, bytes.
    skipped: usize,
    reader: Reader<&'t [u8]>,
    record: StringRecord,
    offsets: Vec<usize>,
    /// A problem of the file was reported: there are no further records.
    failed: bool,
}

impl<'t> Rows<'t> {
    /// The records of `text`, which begins at `start`.
    pub fn new(text: &'t str, start: Place) -> Rows<'t> {
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .from_reader(body.as_bytes());
        Rows {
            text: body,
            start,
            skipped: text.len() - body.len(),
            reader,
            record: StringRecord::new(),
            offsets: Vec::new(),
            failed: false,
        }
    }

    /// Advances to the header. Otherwise the problem is reported, with `missing` for an empty file.
    pub fn advance_to_header(&mut self, missing: &str, problems: &mut Problems) -> bool {
        if !self.advance(problems) {
            if !self.failed {
                problems.error(ProblemKind::Key, self.start, "", missing.to_owned());
            }
            return false;
        }
        let header = self.cell(0);
        let separators = match self.len() {
            1 if header.text.contains(';') => "semicolons",
            1 if header.text.contains('\t') => "tabs",
            _ => return true,
        };
        let text = format!(
            "columns are separated by {separators}: save the file with commas between columns"
        );
        problems.error(ProblemKind::Syntax, header.place, "", text);
        false
    }

    /// Advances to the next record that is not empty.
    pub fn advance(&mut self, problems: &mut Problems) -> bool {
        while !self.failed {
            match self.reader.read_record(&mut self.record) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    self.failed = true;
                    problems.error(
                        ProblemKind::Syntax,
                        self.start,
                        "",
                        format!("no CSV: {error}"),
                    );
                }
            }
            if !self.failed && self.record.iter().any(|cell| !cell.trim().is_empty()) {
                let begin = self.record.position().map_or(0, |at| at.byte() as usize);
                let unclosed = cell_offsets(self.text.as_bytes(), begin, &mut self.offsets);
                let Some(at) = unclosed else { return true };
                self.failed = true;
                let text = "the quote of this cell is not closed: write \" once more at the end of the cell, and quotes inside it as \"\"";
                let place = self.start.at(at + self.skipped);
                problems.error(ProblemKind::Syntax, place, "", text.to_owned());
            }
        }
        false
    }

    /// Number of cells of the record.
    pub fn len(&self) -> usize {
        self.record.len()
    }

    /// A cell, empty if it does not exist.
    pub fn cell(&self, column: usize) -> Cell<'_> {
        let raw = self.record.get(column).unwrap_or_default();
        let offset = self.offsets.get(column).or(self.offsets.last());
        let blanks = raw.len() - raw.trim_start().len();
        let offset = offset.map_or(0, |offset| offset + blanks) + self.skipped;
        Cell {
            text: raw.trim(),
            place: self.start.at(offset),
        }
    }

    /// All cells of the record.
    pub fn cells(&self) -> impl Iterator<Item = Cell<'_>> {
        (0..self.len()).map(|column| self.cell(column))
    }

    /// The position of the record.
    pub fn place(&self) -> Place {
        self.cell(0).place
    }
}

/// The start of the text of each cell, after its quote if it has one. The record begins after `begin`
/// and after any empty lines and comments. Returns the offset of a quote that is not closed at the end
/// of its cell.
fn cell_offsets(text: &[u8], begin: usize, offsets: &mut Vec<usize>) -> Option<usize> {
    let byte = |at: usize| text.get(at).copied();
    let mut at = begin;
    loop {
        match byte(at) {
            Some(b'\n' | b'\r') => at += 1,
            Some(b'#') => {
                while byte(at).is_some_and(|b| b != b'\n') {
                    at += 1;
                }
            }
            _ => break,
        }
    }
    offsets.clear();
    loop {
        let quoted = byte(at) == Some(b'"');
        at += usize::from(quoted);
        offsets.push(at);
        if quoted {
            let quote = at - 1;
            let ends = |at: &usize| byte(*at).is_none_or(|b| matches!(b, b',' | b'\n' | b'\r'));
            match behind_quote(text, at).filter(ends) {
                Some(behind) => at = behind,
                None => return Some(quote),
            }
        }
        while byte(at).is_some_and(|b| !matches!(b, b',' | b'\n' | b'\r')) {
            at += 1;
        }
        if byte(at) != Some(b',') {
            return None;
        }
        at += 1;
    }
}

/// The offset after the closing quote of the cell whose text begins at `at`. A doubled quote does not
/// close it. `None` if no quote does.
fn behind_quote(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(byte) = text.get(at) {
        at += 1;
        if *byte == b'"' {
            if text.get(at) != Some(&b'"') {
                return Some(at);
            }
            at += 1;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Sources;

    #[test]
    fn cells_have_positions_after_comments_and_quotes() {
        let text = "\u{feff}# note, \"x\nname, b\n\n\r\n#c\n\"a \"\"1\"\", ä\",  x;y z ,\r\nlast";
        let mut sources = Sources::default();
        let mut rows = Rows::new(text, sources.add("f", text));
        let mut problems = Problems::default();
        let mut found = Vec::new();
        while rows.advance(&mut problems) {
            for cell in rows.cells() {
                found.push(format!("{} {}", sources.locate(cell.place), cell.text));
            }
        }
        assert_eq!(
            found,
            [
                "f:2:1 name",
                "f:2:7 b",
                "f:6:2 a \"1\", ä",
                "f:6:16 x;y z",
                "f:6:23 ",
                "f:7:1 last"
            ]
        );
    }

    #[test]
    fn several_values_of_a_cell_keep_their_places() {
        let mut sources = Sources::default();
        let text = "n,\"x;y,  z\"";
        let mut rows = Rows::new(text, sources.add("f", text));
        assert!(rows.advance(&mut Problems::default()));
        let values: Vec<_> = rows.cell(1).values().collect();
        let found: Vec<_> = values.iter().map(|v| (v.text, v.place.offset)).collect();
        assert_eq!(found, [("x", 3), ("y", 5), ("z", 9)]);
    }
}
