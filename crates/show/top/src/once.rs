//! Prints the table once, for pipes and logs: plain text, no colours, no trailing spaces.

use std::collections::HashSet;
use std::io::{self, Write};

use fairpath_history::snapshot::{Query, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::glyphs::Look;
use crate::header;
use crate::rules::RulesTable;
use crate::state::State;
use crate::table::Table;
use crate::text;
use crate::view::View;

/// Prints header, titles and every row of the snapshot, in the query's order, in `width` columns.
///
/// # Errors
/// Writing to `out` fails.
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
    let view = state
        .view
        .unwrap_or_else(|| View::new(Snapshot::default(), query, &HashSet::new()));
    let table = Table::new(&view, width, look, state.trend, query.sort);
    sheet.line(out, |buffer, line| table.groups(buffer, line))?;
    sheet.line(out, |buffer, line| table.titles(buffer, line))?;
    for entry in &view.entries {
        let row = &view.snapshot.rows[entry.row];
        sheet.line(out, |buffer, line| table.row(buffer, line, entry, row))?;
    }
    Ok(())
}

/// Prints header, titles and the loaded rules of the snapshot, those with the highest packet rate first.
///
/// # Errors
/// Writing to `out` fails.
pub fn print_rules_once(
    snapshot: Snapshot,
    filter: Option<&str>,
    width: u16,
    look: Look,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut state = State::new(Query::default(), look);
    state.switch_rules();
    state.filter(filter.unwrap_or_default());
    state.show(snapshot);
    let mut sheet = Sheet::new(width);
    for part in [0, 1] {
        sheet.line(out, |buffer, line| header::line(buffer, line, &state, part))?;
    }
    let (Some(rules), Some(view)) = (state.loaded_rules(), &state.rules) else {
        return writeln!(out, "no rules are loaded");
    };
    let table = RulesTable::new(view, rules, width, look);
    sheet.line(out, |buffer, line| table.titles(buffer, line))?;
    for rule in view.rules(rules) {
        sheet.line(out, |buffer, line| table.row(buffer, line, rule))?;
    }
    Ok(())
}

/// Draws one line at a time, so that the number of rows needs no memory.
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
        // An empty cell follows a wide character.
        while let Some(cell) = self.buffer.content().get(x) {
            line.push_str(cell.symbol());
            x += text::width(cell.symbol()).max(1);
        }
        writeln!(out, "{}", line.trim_end())
    }
}
