//! The rows that are wanted: checked, and laid out so that a class is followed by all below it.

use std::collections::HashMap;

use fairpath_class::Sla;
use thiserror::Error;

use crate::snapshot::Kind;

/// Rows of a ledger: as many as the core has slots.
pub const MAX_ROWS: usize = fairpath_core::MAX_SLOTS as usize;
/// The slot of a row that has none: it counts what its children count.
pub const NO_SLOT: u32 = u32::MAX;

/// A row that is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSpec {
    /// Where the core counts it; [`NO_SLOT`] if nothing is counted for it alone.
    pub slot: u32,
    /// Unique among rows of its kind.
    pub name: String,
    /// Where it comes from.
    pub kind: Kind,
    /// Index of the class above it, which comes before it.
    pub parent: Option<usize>,
    /// Ceiling of what its hosts send.
    pub plan_up_bps: Option<u64>,
    /// Ceiling of what they receive.
    pub plan_down_bps: Option<u64>,
    /// Its own promises, on the inside leg.
    pub sla: Sla,
}

/// Why rows were refused; those before stay.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigureError {
    /// Beyond [`MAX_ROWS`].
    #[error("too many rows: {rows}, the maximum is {MAX_ROWS}: remove some")]
    TooMany {
        /// How many were wanted.
        rows: usize,
    },
    /// Two rows of a kind have one name.
    #[error("duplicate {kind:?} {name:?}: rename one")]
    Duplicate {
        /// Of both.
        kind: Kind,
        /// Of both.
        name: String,
    },
    /// A parent does not come before its child.
    #[error("parent {parent} of row {name:?} does not precede it: reorder the rows")]
    Parent {
        /// The child.
        name: String,
        /// Index that it names.
        parent: usize,
    },
    /// Two rows have one slot.
    #[error("slot {slot} belongs to {name:?} and to {other:?}: assign different slots")]
    Slot {
        /// Given twice, or no slot of the core.
        slot: u32,
        /// The second row.
        name: String,
        /// The first row.
        other: String,
    },
    /// The core has no such slot.
    #[error("slot {slot} of {name:?} does not exist: assign one below {MAX_ROWS}")]
    NoSuchSlot {
        /// Beyond [`MAX_ROWS`].
        slot: u32,
        /// The row.
        name: String,
    },
}

/// A row and where it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Its parent's index is that of the new order.
    pub spec: RowSpec,
    pub depth: u32,
    pub children: u32,
    /// Behind the last row below it.
    pub end: usize,
}

/// Checks rows and orders them: each parent directly before what is below it, siblings as given.
pub(super) fn plant(rows: Vec<RowSpec>) -> Result<Vec<Place>, ConfigureError> {
    check(&rows)?;
    let order = order(&rows);
    let mut new_index = vec![0; rows.len()];
    for (new, old) in order.iter().enumerate() {
        new_index[*old] = new;
    }
    let mut rows: Vec<Option<RowSpec>> = rows.into_iter().map(Some).collect();
    let mut places: Vec<Place> = Vec::with_capacity(order.len());
    for old in order {
        let mut spec = rows[old].take().unwrap_or_default();
        spec.parent = spec.parent.map(|parent| new_index[parent]);
        let depth = spec.parent.map_or(0, |parent| places[parent].depth + 1);
        if let Some(parent) = spec.parent {
            places[parent].children += 1;
        }
        let end = places.len() + 1;
        places.push(Place {
            spec,
            depth,
            children: 0,
            end,
        });
    }
    for at in (0..places.len()).rev() {
        if let Some(parent) = places[at].spec.parent {
            places[parent].end = places[parent].end.max(places[at].end);
        }
    }
    Ok(places)
}

/// Whether every row can stand where it is wanted.
pub(super) fn check(rows: &[RowSpec]) -> Result<(), ConfigureError> {
    if rows.len() > MAX_ROWS {
        return Err(ConfigureError::TooMany { rows: rows.len() });
    }
    let mut names = HashMap::new();
    let mut slots = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        let name = row.name.clone();
        if names.insert((row.kind, row.name.as_str()), at).is_some() {
            let kind = row.kind;
            return Err(ConfigureError::Duplicate { kind, name });
        }
        if let Some(parent) = row.parent.filter(|parent| *parent >= at) {
            return Err(ConfigureError::Parent { name, parent });
        }
        let slot = row.slot;
        if slot == NO_SLOT {
            continue;
        }
        if slot as usize >= MAX_ROWS {
            return Err(ConfigureError::NoSuchSlot { slot, name });
        }
        if let Some(other) = slots.insert(slot, at) {
            let other = rows[other].name.clone();
            return Err(ConfigureError::Slot { slot, name, other });
        }
    }
    Ok(())
}

/// The old indices in the new order: depth first.
fn order(rows: &[RowSpec]) -> Vec<usize> {
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); rows.len()];
    let mut stack = Vec::new();
    for (at, row) in rows.iter().enumerate().rev() {
        match row.parent {
            Some(parent) => below[parent].push(at),
            None => stack.push(at),
        }
    }
    let mut order = Vec::with_capacity(rows.len());
    while let Some(at) = stack.pop() {
        order.push(at);
        stack.append(&mut below[at]);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, slot: u32, parent: Option<usize>) -> RowSpec {
        RowSpec {
            name: name.into(),
            slot,
            parent,
            ..RowSpec::default()
        }
    }

    #[test]
    fn descendants_follow_their_class_in_order() {
        let rows = vec![
            row("a", 1, None),
            row("b", NO_SLOT, None),
            row("a1", 3, Some(0)),
            row("b1", 4, Some(1)),
            row("a2", 5, Some(0)),
            row("a11", 6, Some(2)),
        ];
        let places = plant(rows).unwrap();
        let shown: Vec<_> = places
            .iter()
            .map(|p| (p.spec.name.as_str(), p.depth, p.children, p.end))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", 0, 2, 4),
                ("a1", 1, 1, 3),
                ("a11", 2, 0, 3),
                ("a2", 1, 0, 4),
                ("b", 0, 1, 6),
                ("b1", 1, 0, 6),
            ]
        );
        assert_eq!(places[2].spec.parent, Some(1));
    }

    #[test]
    fn invalid_rows_are_refused_by_name() {
        let refused = |rows: Vec<RowSpec>| plant(rows).unwrap_err().to_string();
        let twice = refused(vec![row("x", 1, None), row("x", 2, None)]);
        assert!(twice.contains("duplicate Class \"x\""), "{twice}");
        let itself = refused(vec![row("x", 1, Some(0))]);
        assert!(itself.contains("does not precede it"), "{itself}");
        let slot = refused(vec![row("x", 1, None), row("y", 1, None)]);
        assert!(slot.contains("belongs to \"y\" and to \"x\""), "{slot}");
        let beyond = refused(vec![row("x", MAX_ROWS as u32, None)]);
        assert!(beyond.contains("does not exist"), "{beyond}");
        let both = [Kind::Class, Kind::Subnet].map(|kind| RowSpec {
            kind,
            ..row("x", NO_SLOT, None)
        });
        assert_eq!(plant(both.to_vec()).unwrap().len(), 2);
    }
}
