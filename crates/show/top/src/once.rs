//! The table printed once, for pipes and logs: plain text, no colours, no trailing spaces.

use std::collections::HashSet;
use std::io::{self, Write};

use fairpath_history::snapshot::{Query, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::glyphs::Look;
use crate::header;
use crate::picture::Picture;
use crate::state::State;
use crate::table::Table;
use crate::text;

/// Prints header, titles and every row of the snapshot, in the query's order, in `width` columns.
///
/// # Errors
/// `out` cannot be written to.
pub fn print_once(
    snapshot: Snapshot,
    query: &Query,
    width: u16,
    look: Look,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut state = State::new(query.clone(), look);
    state.show(snapshot);
    let mut sheet = Sheet::new(width);
    for part in [0, 1] {
        sheet.line(out, |buffer, line| header::line(buffer, line, &state, part))?;
    }
    let picture = state
        .picture
        .unwrap_or_else(|| Picture::new(Snapshot::default(), query, &HashSet::new()));
    let table = Table::new(&picture, width, look, state.trend, query.sort);
    sheet.line(out, |buffer, line| table.groups(buffer, line))?;
    sheet.line(out, |buffer, line| table.titles(buffer, line))?;
    for entry in &picture.entries {
        let row = &picture.snapshot.rows[entry.row];
        sheet.line(out, |buffer, line| table.row(buffer, line, entry, row))?;
    }
    Ok(())
}

/// One line at a time: a hundred thousand rows need no more memory than one.
struct Sheet {
    buffer: Buffer,
}

impl Sheet {
    fn new(width: u16) -> Sheet {
        Sheet {
            buffer: Buffer::empty(Rect::new(0, 0, width, 1)),
        }
    }

    fn line(
        &mut self,
        out: &mut dyn Write,
        draw: impl FnOnce(&mut Buffer, Rect),
    ) -> io::Result<()> {
        self.buffer.reset();
        let area = self.buffer.area;
        draw(&mut self.buffer, area);
        let mut line = String::new();
        let mut x = 0;
        // A wide character has an empty cell behind it.
        while let Some(cell) = self.buffer.content().get(x) {
            line.push_str(cell.symbol());
            x += text::width(cell.symbol()).max(1);
        }
        writeln!(out, "{}", line.trim_end())
    }
}
