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

/// The records of a text.
pub(crate) struct Rows<'t> {
    text: &'t str,
    start: Place,
    /// Size of the byte order mark, bytes.
    skipped: usize,
    reader: Reader<&'t [u8]>,
    record: StringRecord,
    offsets: Vec<usize>,
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
        }
    }

    /// Advances to the next record that is not empty.
    pub fn advance(&mut self, problems: &mut Problems) -> bool {
        loop {
            match self.reader.read_record(&mut self.record) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    problems.error(
                        ProblemKind::Syntax,
                        self.start,
                        "",
                        format!("no CSV: {error}"),
                    );
                    return false;
                }
            }
            if self.record.iter().any(|cell| !cell.trim().is_empty()) {
                let begin = self.record.position().map_or(0, |at| at.byte() as usize);
                cell_offsets(self.text.as_bytes(), begin, &mut self.offsets);
                return true;
            }
        }
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
/// and after any empty lines and comments.
fn cell_offsets(text: &[u8], begin: usize, offsets: &mut Vec<usize>) {
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
            at = behind_quote(text, at);
        }
        while byte(at).is_some_and(|b| !matches!(b, b',' | b'\n' | b'\r')) {
            at += 1;
        }
        if byte(at) != Some(b',') {
            return;
        }
        at += 1;
    }
}

/// The offset after the closing quote of the cell whose text begins at `at`. A doubled quote does not
/// close it.
fn behind_quote(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        at += 1;
        if *byte == b'"' {
            if text.get(at) != Some(&b'"') {
                break;
            }
            at += 1;
        }
    }
    at
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
