//! Labels of remote prefixes, for example names of networks or services.
//!
//! CSV with a header: `prefix,label`. Several prefixes may have one label. The longest prefix of an
//! address applies.

use std::collections::HashMap;

use fairpath_core::Prefix;

use crate::draft::Drafts;
use crate::problem::{ProblemKind, Problems};
use crate::table::{Cell, Rows, ShortRows};
use crate::value;

/// Maximum number of labelled prefixes.
pub const MAX_LABELS: usize = 100_000;

/// The labels of remote prefixes, numbered from 1 in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    names: Vec<String>,
    prefixes: Vec<(Prefix, u32)>,
    numbers: HashMap<String, u32>,
}

impl Labels {
    /// The label with this number. O(1).
    pub fn name(&self, number: u32) -> Option<&str> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.names.get(at).map(String::as_str)
    }

    /// The prefixes without duplicates, with the number of their label.
    pub fn prefixes(&self) -> &[(Prefix, u32)] {
        &self.prefixes
    }

    /// Number of different labels.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn number(&mut self, name: String) -> u32 {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        self.names.push(name.clone());
        let number = self.names.len() as u32;
        self.numbers.insert(name, number);
        number
    }
}

/// True if a header is that of a table of labels.
pub(crate) fn is_header(cells: &[String]) -> bool {
    let has = |word: &str| cells.iter().any(|cell| cell == word);
    has("label") && !has("name")
}

impl Drafts {
    /// Reads a table of labels in CSV, the content of `file`. O(bytes).
    pub fn read_labels(&mut self, file: &str, text: &str) {
        let start = self.sources.add(file, text);
        let mut rows = Rows::new(text, start);
        let missing = "not a table of labels: the first line must be prefix,label";
        if !rows.advance_to_header(missing, &mut self.problems) {
            return;
        }
        let Some((prefix, label)) = columns(&rows) else {
            self.problems
                .error(ProblemKind::Key, start, "", missing.to_owned());
            return;
        };
        let width = rows.len();
        let mut short = ShortRows::default();
        let mut seen: HashMap<Prefix, u32> = self.labels.prefixes.iter().copied().collect();
        let mut excess = None;
        while rows.advance(&mut self.problems) {
            if seen.len() >= MAX_LABELS {
                excess.get_or_insert((rows.place(), 0)).1 += 1;
                continue;
            }
            if rows.len() < width {
                short.note(&rows);
                continue;
            }
            take(
                &mut self.labels,
                &mut seen,
                rows.cell(prefix),
                rows.cell(label),
                &mut self.problems,
            );
        }
        short.report(width, &mut self.problems);
        if let Some((place, count)) = excess {
            let text = format!(
                "too many labelled prefixes: {count} more from here, the maximum is {MAX_LABELS}"
            );
            self.problems.error(ProblemKind::TooMany, place, "", text);
        }
    }
}

fn columns(rows: &Rows<'_>) -> Option<(usize, usize)> {
    let find = |word: &str| {
        rows.cells()
            .position(|cell| cell.text.eq_ignore_ascii_case(word))
    };
    find("prefix").zip(find("label"))
}

fn take(
    labels: &mut Labels,
    seen: &mut HashMap<Prefix, u32>,
    prefix: Cell<'_>,
    label: Cell<'_>,
    problems: &mut Problems,
) {
    let mut error = |place, text| problems.error(ProblemKind::Value, place, "", text);
    let name = match value::name(label.text) {
        Ok(name) => name,
        Err(wrong) => return error(label.place, format!("label: {wrong}")),
    };
    let prefix_at = prefix.place;
    let (prefix, cleared) = match value::prefix(prefix.text) {
        Ok(read) => read,
        Err(wrong) => return error(prefix_at, format!("label \"{name}\": prefix: {wrong}")),
    };
    if cleared {
        let text = format!("label \"{name}\": prefix has bits after its length: read as {prefix}");
        problems.warning(ProblemKind::Value, prefix_at, "", text);
    }
    let number = labels.number(name.clone());
    match seen.insert(prefix, number) {
        None => labels.prefixes.push((prefix, number)),
        Some(before) if before == number => {
            let text = format!("label \"{name}\": duplicate prefix {prefix}");
            problems.warning(ProblemKind::Duplicate, prefix_at, "", text);
        }
        Some(before) => {
            let other = labels.name(before).unwrap_or_default();
            let text = format!("label \"{name}\": prefix {prefix} is also labelled \"{other}\"");
            problems.error(ProblemKind::Duplicate, prefix_at, "", text);
        }
    }
}
