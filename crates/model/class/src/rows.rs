//! Classes in CSV: the keys of `[[class]]` as columns, one class per row.
//!
//! ```text
//! name,parent,prefix,up,down,attributes.plan
//! site-a,,,,1gbit,
//! alice,site-a,192.0.2.0/24;2001:db8:1::/48,20M,100mbit,gold
//! ```

use crate::draft::{Draft, Drafts};
use crate::key::{self, ATTRIBUTE, Key};
use crate::problem::{ProblemKind, Problems};
use crate::table::{Cell, Rows, ShortRows};

enum Column {
    Key(Key),
    Attribute(String),
    /// Reported with the header.
    Refused,
}

impl Drafts {
    /// Reads classes in CSV, the content of `file`. O(bytes).
    pub fn read_csv(&mut self, file: &str, text: &str) {
        let start = self.sources.add(file, text);
        let mut rows = Rows::new(text, start);
        let missing = "no header: write column names in the first line, such as name,parent,prefix";
        if !rows.advance_to_header(missing, &mut self.problems) {
            return;
        }
        let columns = header(&rows, &mut self.problems);
        let mut short = ShortRows::default();
        while rows.advance(&mut self.problems) {
            let draft = draft(&rows, &columns, &mut self.problems);
            if draft.incomplete {
                short.note(&rows);
            }
            self.push(draft);
        }
        short.report(columns.len(), &mut self.problems);
    }
}

fn header(rows: &Rows<'_>, problems: &mut Problems) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for cell in rows.cells() {
        let word = cell.text.to_ascii_lowercase();
        let column = match (Key::find(&word), word.strip_prefix(ATTRIBUTE)) {
            (Some(key), _) => Column::Key(key),
            (None, Some(name)) if !name.is_empty() => {
                Column::Attribute(cell.text[ATTRIBUTE.len()..].to_owned())
            }
            _ => {
                let text = format!(
                    "unknown column \"{}\": {}",
                    cell.text,
                    key::suggestion(&word)
                );
                problems.error(ProblemKind::Key, cell.place, "", text);
                Column::Refused
            }
        };
        let again =
            |other: &Column| matches!((other, &column), (Column::Key(a), Column::Key(b)) if a == b);
        if columns.iter().any(again) {
            let text = format!("duplicate column \"{}\": remove one", cell.text);
            problems.error(ProblemKind::Key, cell.place, "", text);
        }
        columns.push(column);
    }
    if !columns
        .iter()
        .any(|column| matches!(column, Column::Key(Key::Name)))
    {
        let text = "no column \"name\": every class needs a name".to_owned();
        problems.error(ProblemKind::Key, rows.place(), "", text);
    }
    columns
}

fn draft(rows: &Rows<'_>, columns: &[Column], problems: &mut Problems) -> Draft {
    let mut draft = Draft {
        place: rows.place(),
        incomplete: rows.len() < columns.len(),
        ..Draft::default()
    };
    let before = problems.errors();
    let cells = || {
        columns
            .iter()
            .enumerate()
            .map(|(at, column)| (column, rows.cell(at)))
    };
    // The name first, because every message contains it.
    let is_name = |column: &Column| matches!(column, Column::Key(Key::Name));
    for (column, cell) in cells().filter(|(column, _)| is_name(column)) {
        set(&mut draft, column, cell, problems);
    }
    if draft.incomplete {
        // Other cells may be shifted. The name remains, because other rows may have it as parent.
        return draft;
    }
    for (column, cell) in cells().filter(|(column, _)| !is_name(column)) {
        set(&mut draft, column, cell, problems);
    }
    if rows.len() > columns.len() {
        let text = format!(
            "class \"{}\": {} cells, but the header has {}: put quotes around a cell with commas",
            draft.name,
            rows.len(),
            columns.len()
        );
        problems.error(
            ProblemKind::Syntax,
            rows.cell(columns.len()).place,
            &draft.name,
            text,
        );
    }
    draft.require_name(
        problems,
        problems.errors() > before || !columns.iter().any(is_name),
    );
    draft
}

fn set(draft: &mut Draft, column: &Column, cell: Cell<'_>, problems: &mut Problems) {
    match column {
        _ if cell.text.is_empty() => {}
        Column::Key(key) if key.is_list() => {
            for value in cell.values() {
                draft.set(*key, value.text, value.place, problems);
            }
        }
        Column::Key(key) => draft.set(*key, cell.text, cell.place, problems),
        Column::Attribute(name) => draft.attribute(name, cell.text),
        Column::Refused => {}
    }
}
