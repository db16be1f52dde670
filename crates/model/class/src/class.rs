//! The checked tree of classes.

use std::collections::HashMap;
use std::ops::Range;

use crate::criterion::Criterion;

/// Maximum number of levels of the tree. A class without parent is on the first.
pub const MAX_DEPTH: u32 = 16;
/// Maximum number of classes.
pub const MAX_CLASSES: usize = 100_000;
/// Maximum number of criteria of all classes together.
pub const MAX_CRITERIA: usize = 1 << 18;

/// Rates of one direction, bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Guaranteed rate.
    pub floor_bps: Option<u64>,
    /// Maximum rate.
    pub ceil_bps: Option<u64>,
}

/// Service levels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sla {
    /// Upper limit of the 95th percentile of the RTT.
    pub rtt_p95_ns: Option<u64>,
    /// Upper limit of the loss ratio.
    pub loss: Option<f64>,
}

/// A class: a subscriber, a site or an uplink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Unique in its set.
    pub name: String,
    /// Index of its parent in the set, which precedes it.
    pub parent: Option<usize>,
    /// 0 for those without parent, less than [`MAX_DEPTH`].
    pub depth: u32,
    /// A packet that meets one of them belongs to the class. Criteria are unique in the set.
    pub criteria: Vec<Criterion>,
    /// Rates that its hosts send.
    pub up: Rates,
    /// Rates that they receive.
    pub down: Rates,
    /// Service levels.
    pub sla: Sla,
    /// Attributes of the operator: names and values, sorted by name.
    pub attributes: Vec<(String, String)>,
}

impl Class {
    /// The attribute `name`. O(attributes).
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The checked tree: descendants follow their class, siblings are in their configured order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSet {
    classes: Vec<Class>,
    positions: HashMap<String, usize>,
    /// For each class, the index after its last descendant.
    ends: Vec<usize>,
}

/// Differences from the previous set. Names are in the order of their sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Added classes.
    pub added: Vec<String>,
    /// Removed classes.
    pub removed: Vec<String>,
    /// Classes with another parent.
    pub moved: Vec<String>,
    /// Classes with other criteria, rates, service levels or attributes.
    pub changed: Vec<String>,
}

impl ClassSet {
    /// `classes` must be in tree order.
    pub(crate) fn new(classes: Vec<Class>, ends: Vec<usize>) -> ClassSet {
        let names = classes.iter().enumerate();
        let positions = names.map(|(at, class)| (class.name.clone(), at)).collect();
        ClassSet {
            classes,
            positions,
            ends,
        }
    }

    /// All classes, in the order of the tree.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Number of classes.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The class `name`. O(1).
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.position(name).map(|at| &self.classes[at])
    }

    /// The index of the class `name` in [`ClassSet::classes`]. O(1).
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// The parent of `class`, which must belong to this set.
    pub fn parent(&self, class: &Class) -> Option<&Class> {
        self.classes.get(class.parent?)
    }

    /// Indices of the class at `position` and of its descendants. O(1).
    ///
    /// # Panics
    ///
    /// If there is no such position.
    pub fn subtree(&self, position: usize) -> Range<usize> {
        position..self.ends[position]
    }

    /// The differences from `before`. O(classes of both).
    pub fn changes_since(&self, before: &ClassSet) -> Changes {
        let mut changes = Changes::default();
        for class in &self.classes {
            let Some(old) = before.get(&class.name) else {
                changes.added.push(class.name.clone());
                continue;
            };
            let parent_name = |set: &ClassSet, class| set.parent(class).map(|p| p.name.clone());
            if parent_name(self, class) != parent_name(before, old) {
                changes.moved.push(class.name.clone());
            }
            let same = class.criteria == old.criteria
                && (class.up, class.down, class.sla) == (old.up, old.down, old.sla)
                && class.attributes == old.attributes;
            if !same {
                changes.changed.push(class.name.clone());
            }
        }
        let removed = before
            .classes
            .iter()
            .filter(|c| self.get(&c.name).is_none());
        changes.removed = removed.map(|class| class.name.clone()).collect();
        changes
    }
}
