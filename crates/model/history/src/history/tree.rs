//! The configured rows, checked and ordered so that descendants follow their class.

use std::collections::HashMap;

use fairpath_class::Sla;
use thiserror::Error;

use crate::snapshot::Kind;

/// Maximum number of rows: the number of slots of the core.
pub const MAX_ROWS: usize = fairpath_core::MAX_SLOTS as usize;
/// The slot of a row without slot, which counts only its children.
pub const NO_SLOT: u32 = u32::MAX;

/// A configured row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSpec {
    /// Its slot in the core, or [`NO_SLOT`].
    pub slot: u32,
    /// Unique among rows of its kind.
    pub name: String,
    /// Its origin.
    pub kind: Kind,
    /// Index of its parent, which precedes it.
    pub parent: Option<usize>,
    /// Index of the row of the interface that its hosts and those of its descendants are behind, if
    /// that is known. A descendant may have another one.
    pub interface: Option<usize>,
    /// Ceiling of the direction up.
    pub ceil_up_bps: Option<u64>,
    /// Ceiling of the direction down.
    pub ceil_down_bps: Option<u64>,
    /// Its service levels, on the inside leg.
    pub sla: Sla,
}

/// Why rows are refused. The current rows stay.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigureError {
    /// More than [`MAX_ROWS`].
    #[error("too many rows: {rows}, the maximum is {MAX_ROWS}: remove some")]
    TooMany {
        /// The number of rows.
        rows: usize,
    },
    /// Two rows of a kind have one name.
    #[error("duplicate {kind:?} {name:?}: rename one")]
    Duplicate {
        /// Their kind.
        kind: Kind,
        /// Their name.
        name: String,
    },
    /// A parent does not precede its child.
    #[error("parent {parent} of row {name:?} does not precede it: reorder the rows")]
    Parent {
        /// The child.
        name: String,
        /// Index of the parent.
        parent: usize,
    },
    /// The interface of a row is not the row of an interface.
    #[error("row {interface} is no interface, and cannot be that of {name:?}: name an interface")]
    Interface {
        /// The row.
        name: String,
        /// Index of its interface.
        interface: usize,
    },
    /// Two rows have one slot.
    #[error("slot {slot} belongs to {name:?} and to {other:?}: assign different slots")]
    Slot {
        /// The slot.
        slot: u32,
        /// The second row.
        name: String,
        /// The first row.
        other: String,
    },
    /// The core has no such slot.
    #[error("slot {slot} of {name:?} does not exist: assign one below {MAX_ROWS}")]
    NoSuchSlot {
        /// The slot.
        slot: u32,
        /// The row.
        name: String,
    },
}

/// A row and its position in the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// With the parent's index in the new order.
    pub spec: RowSpec,
    pub depth: u32,
    pub children: u32,
    /// Index after its last descendant.
    pub end: usize,
}

impl Place {
    /// True for a class without classes below.
    pub fn is_subscriber(&self) -> bool {
        self.spec.kind == Kind::Class && self.children == 0
    }

    /// True if its hosts may share one line: a class or a subnet without rows below.
    pub fn one_line(&self) -> bool {
        self.is_subscriber() || self.spec.kind == Kind::Subnet
    }
}

/// Checks rows and orders them: descendants follow their parent, siblings keep their order.
pub(super) fn arrange(rows: Vec<RowSpec>) -> Result<Vec<Place>, ConfigureError> {
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
        spec.interface = spec.interface.map(|interface| new_index[interface]);
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

/// Checks every row.
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
        let is_interface = |at: &usize| rows.get(*at).is_some_and(|r| r.kind == Kind::Interface);
        if let Some(interface) = row.interface.filter(|at| !is_interface(at)) {
            return Err(ConfigureError::Interface { name, interface });
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
        let places = arrange(rows).unwrap();
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
        let refused = |rows: Vec<RowSpec>| arrange(rows).unwrap_err().to_string();
        let twice = refused(vec![row("x", 1, None), row("x", 2, None)]);
        assert!(twice.contains("duplicate Class \"x\""), "{twice}");
        let itself = refused(vec![row("x", 1, Some(0))]);
        assert!(itself.contains("does not precede it"), "{itself}");
        let slot = refused(vec![row("x", 1, None), row("y", 1, None)]);
        assert!(slot.contains("belongs to \"y\" and to \"x\""), "{slot}");
        let beyond = refused(vec![row("x", MAX_ROWS as u32, None)]);
        assert!(beyond.contains("does not exist"), "{beyond}");
        for interface in [0, 9] {
            let behind = RowSpec {
                interface: Some(interface),
                ..row("x", 1, None)
            };
            let text = refused(vec![behind]);
            assert!(text.contains("is no interface"), "{text}");
        }
        let both = [Kind::Class, Kind::Subnet].map(|kind| RowSpec {
            kind,
            ..row("x", NO_SLOT, None)
        });
        assert_eq!(arrange(both.to_vec()).unwrap().len(), 2);
    }
}
