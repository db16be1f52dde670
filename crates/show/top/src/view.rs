//! A snapshot and the data derived from it: visible rows, name width, totals.

use std::collections::HashSet;

use fairpath_history::snapshot::{AlertKind, Kind, Query, Snapshot, SnapshotRow};

use crate::listing::{self, Entry, Fold, Key};
use crate::text;

/// Maximum indentation, levels.
pub const MAX_INDENT: u32 = 8;

/// A snapshot with its derived data.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The snapshot of the source.
    pub snapshot: Snapshot,
    /// The visible rows, in order.
    pub entries: Vec<Entry>,
    /// Width of the longest name with indentation, mark and alerts, columns.
    pub name_width: u16,
    /// True if marks of collapsed and expanded classes precede names.
    pub has_tree: bool,
    /// Totals of the rows at the top of the tree.
    pub totals: Sums,
}

/// Totals over the rows at the top of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Rate that hosts send, bits per second.
    pub up_bps: f64,
    /// Rate that they receive.
    pub down_bps: f64,
    /// Open flows.
    pub flows: u64,
    /// Active alerts of all rows.
    pub alerts: u64,
    /// True if the snapshot lacks rows, so that the totals cover only some.
    pub partial: bool,
}

impl View {
    /// Computes the derived data. O(rows log rows).
    pub fn new(snapshot: Snapshot, query: &Query, folded: &HashSet<Key>) -> View {
        let mut view = View {
            totals: Sums::of(&snapshot),
            snapshot,
            ..View::default()
        };
        view.list(query, folded);
        view
    }

    /// Updates the visible rows after a change of the query or of collapsed classes.
    pub fn list(&mut self, query: &Query, folded: &HashSet<Key>) {
        let rows = &self.snapshot.rows;
        self.entries = listing::list(rows, query, folded);
        self.has_tree = self.entries.iter().any(|entry| entry.fold != Fold::Leaf);
        let mark = if self.has_tree { 2 } else { 0 };
        let width = |entry: &Entry| {
            let row = &rows[entry.row];
            let rest = text::width(&alert_letters(row)) + indent(entry) + mark;
            text::width(&row.name) + rest
        };
        let widest = self.entries.iter().map(width).max().unwrap_or(0);
        self.name_width = u16::try_from(widest).unwrap_or(u16::MAX);
    }

    /// True if shaping runs, so that rows have queues.
    pub fn is_shaped(&self) -> bool {
        self.snapshot
            .shape
            .as_ref()
            .is_some_and(|shape| shape.running)
    }

    /// The row at an index of the list.
    pub fn row(&self, index: usize) -> Option<&SnapshotRow> {
        let entry = self.entries.get(index)?;
        self.snapshot.rows.get(entry.row)
    }

    /// The index of a row in the list.
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

/// The kinds that together count each packet once. Interfaces count the packets of classes again.
fn counted_kinds(rows: &[SnapshotRow]) -> &'static [Kind] {
    let has = |kind| rows.iter().any(|row| row.kind == kind);
    if has(Kind::Class) {
        &[Kind::Class, Kind::Other]
    } else if has(Kind::Subnet) {
        &[Kind::Subnet, Kind::Other]
    } else {
        &[Kind::Interface, Kind::Other]
    }
}

/// Indentation of a name, columns.
pub fn indent(entry: &Entry) -> usize {
    2 * entry.indent.min(MAX_INDENT) as usize
}

/// The suffix of a name with active alerts, one letter for each: ` !RLS`.
pub fn alert_letters(row: &SnapshotRow) -> String {
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
    fn totals_count_each_packet_once() {
        let row = |kind, depth, rate_bps| {
            let mut row = SnapshotRow {
                kind,
                depth,
                ..SnapshotRow::default()
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
    fn alerts_are_letters_after_the_name() {
        let row = SnapshotRow {
            alerts: vec![
                AlertKind::SlaBreach,
                AlertKind::RttShift,
                AlertKind::RttShift,
            ],
            ..SnapshotRow::default()
        };
        assert_eq!(alert_letters(&row), " !RS");
        assert_eq!(alert_letters(&SnapshotRow::default()), "");
    }
}
