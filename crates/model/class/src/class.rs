//! Classes as values: the checked tree.

use std::collections::HashMap;
use std::ops::Range;

use crate::criterion::Criterion;

/// Most levels of a tree: a class without parent is on the first.
pub const MAX_DEPTH: u32 = 16;
/// Most classes of a configuration.
pub const MAX_CLASSES: usize = 100_000;
/// Most criteria of all classes together.
pub const MAX_CRITERIA: usize = 1 << 18;

/// What a plan says of one direction, bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Guaranteed.
    pub floor_bps: Option<u64>,
    /// Never more.
    pub ceil_bps: Option<u64>,
}

/// What a plan promises besides rates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sla {
    /// The 95th percentile of the round-trip time stays below it.
    pub rtt_p95_ns: Option<u64>,
    /// Of the packets, less than this share is lost.
    pub loss: Option<f64>,
}

/// A subscriber, a site, an uplink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Unique in its set.
    pub name: String,
    /// Position of the class above it in its set, which is before its own.
    pub parent: Option<usize>,
    /// 0 for those without parent, less than [`MAX_DEPTH`].
    pub depth: u32,
    /// Any of them suffices. None is another class's, none is there twice.
    pub criteria: Vec<Criterion>,
    /// What its hosts send.
    pub up: Rates,
    /// What they receive.
    pub down: Rates,
    /// Thresholds.
    pub sla: Sla,
    /// Whatever else the operator says of it: names and values, by name.
    pub attributes: Vec<(String, String)>,
}

impl Class {
    /// What the operator says of it under `name`. O(attributes).
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The checked tree: each class directly before its children and theirs, siblings as configured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassSet {
    classes: Vec<Class>,
    positions: HashMap<String, usize>,
    /// Behind the last class that is below this one.
    ends: Vec<usize>,
}

/// How a set differs from the one before; names in the order of their sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New.
    pub added: Vec<String>,
    /// Gone.
    pub removed: Vec<String>,
    /// Under another parent.
    pub moved: Vec<String>,
    /// Other criteria, rates, thresholds or attributes.
    pub changed: Vec<String>,
}

impl ClassSet {
    /// `classes` are in the order and as deep as this type promises.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The class called `name`. O(1).
    pub fn get(&self, name: &str) -> Option<&Class> {
        self.position(name).map(|at| &self.classes[at])
    }

    /// Where the class called `name` is in [`ClassSet::classes`]. O(1).
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// The class above `class`, which is one of this set.
    pub fn parent(&self, class: &Class) -> Option<&Class> {
        self.classes.get(class.parent?)
    }

    /// Positions of the class at `position` and of all below it. O(1).
    ///
    /// # Panics
    ///
    /// If there is no such position.
    pub fn subtree(&self, position: usize) -> Range<usize> {
        position..self.ends[position]
    }

    /// What became different since `before`. O(classes of both).
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
        let gone = before
            .classes
            .iter()
            .filter(|c| self.get(&c.name).is_none());
        changes.removed = gone.map(|class| class.name.clone()).collect();
        changes
    }
}
