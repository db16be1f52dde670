//! A picture and what is derived from it once: the rows shown, the longest name, totals.

use std::collections::HashSet;

use fairpath_history::snapshot::{AlertKind, Kind, Query, Row, Snapshot};

use crate::listing::{self, Entry, Fold, Key};
use crate::text;

/// Deeper classes are not indented further.
pub const MAX_INDENT: u32 = 8;

/// A picture as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What the source gave.
    pub snapshot: Snapshot,
    /// The rows shown, in order.
    pub entries: Vec<Entry>,
    /// Columns of the longest name, with all that stands beside it.
    pub name_width: u16,
    /// Room before names for the marks of folding.
    pub has_tree: bool,
    /// Sums of the topmost rows.
    pub totals: Sums,
}

/// Sums over the topmost rows of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// What hosts send, bits a second.
    pub up_bps: f64,
    /// What they receive.
    pub down_bps: f64,
    /// Open flows.
    pub flows: u64,
    /// Alerts that hold, in any row.
    pub alerts: u64,
    /// Rows are missing from the picture: the sums are of those shown.
    pub partial: bool,
}

impl Picture {
    /// Derives everything. O(rows log rows).
    pub fn new(snapshot: Snapshot, query: &Query, folded: &HashSet<Key>) -> Picture {
        let mut picture = Picture {
            totals: Sums::of(&snapshot),
            snapshot,
            ..Picture::default()
        };
        picture.list(query, folded);
        picture
    }

    /// Derives the rows shown anew, after the query or the folding changed.
    pub fn list(&mut self, query: &Query, folded: &HashSet<Key>) {
        let rows = &self.snapshot.rows;
        self.entries = listing::list(rows, query, folded);
        self.has_tree = self.entries.iter().any(|entry| entry.fold != Fold::Leaf);
        let mark = if self.has_tree { 2 } else { 0 };
        let width = |entry: &Entry| {
            let row = &rows[entry.row];
            let beside = text::width(&alert_letters(row)) + indent(entry) + mark;
            text::width(&row.name) + beside
        };
        let widest = self.entries.iter().map(width).max().unwrap_or(0);
        self.name_width = u16::try_from(widest).unwrap_or(u16::MAX);
    }

    /// Something is shaped: rows have queues.
    pub fn is_shaped(&self) -> bool {
        self.snapshot
            .shape
            .as_ref()
            .is_some_and(|shape| shape.running)
    }

    /// The row at a place of the list.
    pub fn row(&self, place: usize) -> Option<&Row> {
        let entry = self.entries.get(place)?;
        self.snapshot.rows.get(entry.row)
    }

    /// Where a row is in the list.
    pub fn find(&self, key: &Key) -> Option<usize> {
        let is_it = |entry: &Entry| Key::of(&self.snapshot.rows[entry.row]) == *key;
        self.entries.iter().position(is_it)
    }
}

impl Sums {
    fn of(snapshot: &Snapshot) -> Sums {
        let kinds = counted_kinds(&snapshot.rows);
        let top = snapshot.rows.iter().map(|row| row.depth).min();
        let mut sums = Sums {
            partial: (snapshot.rows.len() as u64) < snapshot.rows_total,
            ..Sums::default()
        };
        for row in &snapshot.rows {
            sums.alerts += row.alerts.len() as u64;
            if Some(row.depth) == top && kinds.contains(&row.kind) {
                sums.up_bps += row.up.rate_bps;
                sums.down_bps += row.down.rate_bps;
                sums.flows += row.flows.open();
            }
        }
        sums
    }
}

/// The kinds that together count each packet once: interfaces see what classes see.
fn counted_kinds(rows: &[Row]) -> &'static [Kind] {
    let has = |kind| rows.iter().any(|row| row.kind == kind);
    if has(Kind::Class) {
        &[Kind::Class, Kind::Other]
    } else if has(Kind::Subnet) {
        &[Kind::Subnet, Kind::Other]
    } else {
        &[Kind::Interface, Kind::Other]
    }
}

/// Columns before a name.
pub fn indent(entry: &Entry) -> usize {
    2 * entry.indent.min(MAX_INDENT) as usize
}

/// What stands behind the name of a class with alerts: a letter each, ` !RLS`.
pub fn alert_letters(row: &Row) -> String {
    if row.alerts.is_empty() {
        return String::new();
    }
    let mut kinds = row.alerts.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let letter = |kind: AlertKind| match kind {
        AlertKind::RttShift => 'R',
        AlertKind::Loss => 'L',
        AlertKind::SlaBreach => 'S',
    };
    let letters: String = kinds.into_iter().map(letter).collect();
    format!(" !{letters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_topmost_classes_once_and_interfaces_not_at_all() {
        let row = |kind, depth, rate_bps| {
            let mut row = Row {
                kind,
                depth,
                ..Row::default()
            };
            row.up.rate_bps = rate_bps;
            row
        };
        let snapshot = Snapshot {
            rows_total: 4,
            rows: vec![
                row(Kind::Class, 0, 100.0),
                row(Kind::Class, 1, 60.0),
                row(Kind::Other, 0, 7.0),
                row(Kind::Interface, 0, 107.0),
            ],
            ..Snapshot::default()
        };
        let sums = Sums::of(&snapshot);
        assert_eq!(sums.up_bps, 107.0);
        assert!(!sums.partial);
        let fewer = Snapshot {
            rows_total: 5,
            ..snapshot
        };
        assert!(Sums::of(&fewer).partial);
    }

    #[test]
    fn alerts_are_letters_behind_the_name() {
        let row = Row {
            alerts: vec![
                AlertKind::SlaBreach,
                AlertKind::RttShift,
                AlertKind::RttShift,
            ],
            ..Row::default()
        };
        assert_eq!(alert_letters(&row), " !RS");
        assert_eq!(alert_letters(&Row::default()), "");
    }
}
