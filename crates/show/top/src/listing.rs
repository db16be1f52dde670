//! Selects and orders the rows of a snapshot: sort, filter, zoom and collapsed classes.
//!
//! The source usually does this already. It is repeated here so that keys work on a paused snapshot
//! and while an answer is pending. O(rows log rows).

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use fairpath_history::snapshot::{Kind, Leg, Query, SnapshotRow, Sort};

use fairpath_history::judge;

/// Identifies a row. Names are unique only among rows of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    kind: Kind,
    name: String,
}

impl Key {
    /// The key of a row.
    pub fn of(row: &SnapshotRow) -> Key {
        Key {
            kind: row.kind,
            name: row.name.clone(),
        }
    }
}

/// The visibility of a row's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// It has no children, or the list is not in tree order.
    Leaf,
    /// Its children follow.
    Open,
    /// Its children are hidden, or not in the snapshot.
    Folded,
}

/// A visible row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its index in the snapshot.
    pub row: usize,
    /// Levels of indentation.
    pub indent: u32,
    /// The state of its children.
    pub fold: Fold,
}

/// The visible rows, in order.
pub fn list(rows: &[SnapshotRow], query: &Query, folded: &HashSet<Key>) -> Vec<Entry> {
    let mut shown = selected(rows, query);
    if query.sort == Sort::Tree {
        return tree(rows, &shown, folded);
    }
    shown.sort_by(|a, b| order(&rows[*a], &rows[*b], query.sort));
    let flat = |row| Entry {
        row,
        indent: 0,
        fold: Fold::Leaf,
    };
    shown.into_iter().map(flat).collect()
}

/// The rows that match filter, zoom, depth and kind, in the order of the snapshot.
fn selected(rows: &[SnapshotRow], query: &Query) -> Vec<usize> {
    let filter = query.filter.as_deref().map(str::to_lowercase);
    let under = query.under.as_deref().map(|class| below(rows, class));
    let matches = |at: &usize| {
        let row = &rows[*at];
        filter
            .as_deref()
            .is_none_or(|part| row.name.to_lowercase().contains(part))
            && under.as_ref().is_none_or(|set| set.contains(at))
            && query.depth.is_none_or(|depth| row.depth <= depth)
            && query.kind.is_none_or(|kind| row.kind == kind)
    };
    (0..rows.len()).filter(matches).collect()
}

/// `class` and the classes below it, for rows in any order. O(rows × depth).
fn below(rows: &[SnapshotRow], class: &str) -> HashSet<usize> {
    let parents: HashMap<&str, Option<&str>> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.parent.as_deref()))
        .collect();
    let is_below = |row: &SnapshotRow| {
        let mut at = Some(row.name.as_str());
        for _ in 0..=row.depth {
            match at {
                Some(name) if name == class => return true,
                Some(name) if name == row.name => at = row.parent.as_deref(),
                Some(name) => at = parents.get(name).copied().flatten(),
                None => return false,
            }
        }
        false
    };
    (0..rows.len()).filter(|at| is_below(&rows[*at])).collect()
}

fn tree(rows: &[SnapshotRow], shown: &[usize], folded: &HashSet<Key>) -> Vec<Entry> {
    let top = shown.iter().map(|at| rows[*at].depth).min().unwrap_or(0);
    let mut entries = Vec::with_capacity(shown.len());
    let mut hidden_below: Option<u32> = None;
    for (place, at) in shown.iter().enumerate() {
        let row = &rows[*at];
        if hidden_below.is_some_and(|depth| row.depth > depth) {
            continue;
        }
        let next = shown.get(place + 1).map(|next| &rows[*next]);
        let fold = if row.children == 0 {
            Fold::Leaf
        } else if folded.contains(&Key::of(row)) || next.is_none_or(|n| n.depth <= row.depth) {
            Fold::Folded
        } else {
            Fold::Open
        };
        hidden_below = (fold == Fold::Folded).then_some(row.depth);
        entries.push(Entry {
            row: *at,
            indent: row.depth - top,
            fold,
        });
    }
    entries
}

/// Largest value first, rows without value last, names ascending. Equal rows keep their order.
fn order(a: &SnapshotRow, b: &SnapshotRow, sort: Sort) -> Ordering {
    if sort == Sort::Name {
        return a.name.to_lowercase().cmp(&b.name.to_lowercase());
    }
    match (weight(a, sort), weight(b, sort)) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn weight(row: &SnapshotRow, sort: Sort) -> Option<f64> {
    let p95 = |leg: &Leg| leg.p95_rtt_ns.map(|ns| ns as f64);
    match sort {
        Sort::Tree | Sort::Name => None,
        Sort::Rate => Some(row.up.rate_bps + row.down.rate_bps),
        Sort::InsideP95 => p95(&row.inside),
        Sort::OutsideP95 => p95(&row.outside),
        Sort::Growth => row.load.rtt_growth_ns.map(|ns| ns as f64),
        Sort::Loss => {
            let legs = [&row.inside, &row.outside].map(judge::larger_loss);
            legs.into_iter().flatten().max_by(f64::total_cmp)
        }
        Sort::Flows => Some(row.flows.open() as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, parent: Option<&str>, depth: u32, children: u32) -> SnapshotRow {
        SnapshotRow {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            depth,
            children,
            ..SnapshotRow::default()
        }
    }

    fn town() -> Vec<SnapshotRow> {
        vec![
            row("North", None, 0, 2),
            row("mast-1", Some("North"), 1, 1),
            row("ann", Some("mast-1"), 2, 0),
            row("bob", Some("North"), 1, 0),
            row("South", None, 0, 0),
        ]
    }

    fn names(rows: &[SnapshotRow], query: &Query, folded: &HashSet<Key>) -> Vec<String> {
        let entries = list(rows, query, folded);
        let name = |e: &Entry| format!("{}{}", "  ".repeat(e.indent as usize), rows[e.row].name);
        entries.iter().map(name).collect()
    }

    #[test]
    fn collapsing_hides_only_the_classes_below() {
        let rows = town();
        let folded = HashSet::from([Key::of(&rows[1])]);
        let all = ["North", "  mast-1", "    ann", "  bob", "South"];
        assert_eq!(names(&rows, &Query::default(), &HashSet::new()), all);
        let some = ["North", "  mast-1", "  bob", "South"];
        assert_eq!(names(&rows, &Query::default(), &folded), some);
        let folded = HashSet::from([Key::of(&rows[0])]);
        assert_eq!(names(&rows, &Query::default(), &folded), ["North", "South"]);
    }

    #[test]
    fn a_class_without_loaded_children_is_collapsed() {
        let rows = town();
        let query = Query {
            depth: Some(0),
            ..Query::default()
        };
        let entries = list(&rows, &query, &HashSet::new());
        assert_eq!(entries[0].fold, Fold::Folded);
        assert_eq!(entries[1].fold, Fold::Leaf);
    }

    #[test]
    fn zooming_shows_one_subtree_in_any_order() {
        let mut rows = town();
        let query = Query {
            under: Some("mast-1".to_owned()),
            ..Query::default()
        };
        assert_eq!(names(&rows, &query, &HashSet::new()), ["mast-1", "  ann"]);
        rows.reverse();
        let query = Query {
            under: Some("North".to_owned()),
            sort: Sort::Name,
            ..Query::default()
        };
        assert_eq!(
            names(&rows, &query, &HashSet::new()),
            ["ann", "bob", "mast-1", "North"]
        );
    }

    #[test]
    fn sorting_puts_rows_without_value_last() {
        let mut rows = town();
        rows[0].inside.p95_rtt_ns = Some(5);
        rows[2].inside.p95_rtt_ns = Some(9);
        rows[3].outside.loss_from_ratio = Some(0.0);
        rows[4].inside.loss_to_ratio = Some(0.3);
        let by = |sort| Query {
            sort,
            ..Query::default()
        };
        assert_eq!(
            names(&rows, &by(Sort::InsideP95), &HashSet::new()),
            ["ann", "North", "mast-1", "bob", "South"]
        );
        assert_eq!(
            names(&rows, &by(Sort::Loss), &HashSet::new()),
            ["South", "bob", "North", "mast-1", "ann"]
        );
    }

    #[test]
    fn a_filter_ignores_case() {
        let query = Query {
            filter: Some("OUT".to_owned()),
            ..Query::default()
        };
        assert_eq!(names(&town(), &query, &HashSet::new()), ["South"]);
    }
}
