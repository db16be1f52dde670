//! Slots: the index of each class, subnet or interface in the tables of the core.
//!
//! ```text
//!           assign                  assign, free             release
//!   free ------------> in use ------------------> quarantined -------> free
//! ```
//!
//! A name keeps its slot across reloads, so its counters continue. A freed slot is quarantined until
//! its last counts were read, so that they do not count for another name.

use std::collections::{BTreeSet, HashMap, HashSet};

use fairpath_core::{MAX_SLOTS, OTHER, Prefix};

/// The owner of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SlotKey {
    /// A configured class, by name.
    Class(String),
    /// A subnet that was found in traffic.
    Subnet(Prefix),
    /// A monitored interface, by name.
    Interface(String),
}

/// The kinds of [`SlotKey`], which are assigned separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// [`SlotKey::Class`]
    Class,
    /// [`SlotKey::Subnet`]
    Subnet,
    /// [`SlotKey::Interface`]
    Interface,
}

impl SlotKey {
    /// Its kind.
    pub fn space(&self) -> Space {
        match self {
            SlotKey::Class(_) => Space::Class,
            SlotKey::Subnet(_) => Space::Subnet,
            SlotKey::Interface(_) => Space::Interface,
        }
    }
}

/// The result of an assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// Number of keys that keep their slot.
    pub kept: usize,
    /// Newly assigned slots, in the order of keys.
    pub added: Vec<u32>,
    /// Freed slots, ascending, quarantined until [`Slots::release`].
    pub freed: Vec<u32>,
    /// Number of keys without slot. They count in [`OTHER`].
    pub refused: usize,
}

/// The map from keys to slots. Slot [`OTHER`] has no owner.
#[derive(Clone, Debug)]
pub struct Slots {
    capacity: u32,
    slots: HashMap<SlotKey, u32>,
    /// Slots that were never used.
    untouched: std::ops::Range<u32>,
    /// Released slots. The lowest is assigned first.
    free: BTreeSet<u32>,
    quarantined: HashSet<u32>,
}

impl Slots {
    /// Slots 1 to `capacity` - 1. `capacity` is the core's number of slots, at most [`MAX_SLOTS`].
    pub fn new(capacity: u32) -> Slots {
        let capacity = capacity.clamp(1, MAX_SLOTS);
        Slots {
            capacity,
            slots: HashMap::new(),
            untouched: OTHER + 1..capacity,
            free: BTreeSet::new(),
            quarantined: HashSet::new(),
        }
    }

    /// Assigns slots to exactly the keys `wanted` in `space`. Existing keys keep their slot, others lose
    /// it, and new keys get free slots. Other spaces do not change. O(keys).
    ///
    /// Slots that this call frees are quarantined. If it refuses keys, call it again after
    /// [`Slots::release`].
    pub fn assign(&mut self, space: Space, wanted: impl IntoIterator<Item = SlotKey>) -> Assigned {
        let mut assigned = Assigned::default();
        let mut seen = HashSet::new();
        let mut new = Vec::new();
        for key in wanted {
            if seen.contains(&key) {
                continue;
            }
            match self.slots.contains_key(&key) {
                true => assigned.kept += 1,
                false => new.push(key.clone()),
            }
            seen.insert(key);
        }
        let unwanted = |key: &SlotKey| key.space() == space && !seen.contains(key);
        let removed: Vec<SlotKey> = self
            .slots
            .keys()
            .filter(|key| unwanted(key))
            .cloned()
            .collect();
        assigned.freed = removed.iter().filter_map(|key| self.free(key)).collect();
        assigned.freed.sort_unstable();
        for key in new {
            match self.take(key) {
                Some(slot) => assigned.added.push(slot),
                None => assigned.refused += 1,
            }
        }
        assigned
    }

    /// The slot of `key`, assigned if necessary. `None` without free slot. O(log n).
    pub fn take(&mut self, key: SlotKey) -> Option<u32> {
        if let Some(slot) = self.slots.get(&key) {
            return Some(*slot);
        }
        let slot = self.free.pop_first().or_else(|| self.untouched.next())?;
        self.slots.insert(key, slot);
        Some(slot)
    }

    /// Frees and quarantines the slot of `key`. `None` if it has none. O(1).
    pub fn free(&mut self, key: &SlotKey) -> Option<u32> {
        let slot = self.slots.remove(key)?;
        self.quarantined.insert(slot);
        Some(slot)
    }

    /// Ends the quarantine of `slot`, after its last counts were read and cleared. Returns whether it
    /// was quarantined. O(log n).
    pub fn release(&mut self, slot: u32) -> bool {
        self.quarantined.remove(&slot) && self.free.insert(slot)
    }

    /// The slot of `key`. O(1).
    pub fn get(&self, key: &SlotKey) -> Option<u32> {
        self.slots.get(key).copied()
    }

    /// The slot of the class `name`. O(1).
    pub fn class(&self, name: &str) -> Option<u32> {
        self.get(&SlotKey::Class(name.to_owned()))
    }

    /// All keys and their slots, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&SlotKey, u32)> {
        self.slots.iter().map(|(key, slot)| (key, *slot))
    }

    /// Number of keys with a slot.
    pub fn used(&self) -> usize {
        self.slots.len()
    }

    /// Number of quarantined slots.
    pub fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// Number of slots, including [`OTHER`].
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(names: &str) -> Vec<SlotKey> {
        names
            .split_whitespace()
            .map(|name| SlotKey::Class(name.into()))
            .collect()
    }

    #[test]
    fn names_keep_their_slots_across_assignments() {
        let mut slots = Slots::new(16);
        assert_eq!(
            slots.assign(Space::Class, classes("a b c")).added,
            [1, 2, 3]
        );
        let again = slots.assign(Space::Class, classes("c d a"));
        assert_eq!(
            (again.kept, again.added, again.freed),
            (2, vec![4], vec![2])
        );
        assert_eq!(
            (slots.class("a"), slots.class("c"), slots.class("b")),
            (Some(1), Some(3), None)
        );
    }

    #[test]
    fn a_freed_slot_is_unused_until_released() {
        let mut slots = Slots::new(3);
        slots.assign(Space::Class, classes("a b"));
        let full = slots.assign(Space::Class, classes("b c"));
        assert_eq!((full.freed, full.refused), (vec![1], 1));
        // Its old owner gets no way back to the counts that are still being read either.
        assert_eq!(slots.take(SlotKey::Class("a".into())), None);
        assert!(slots.release(1) && !slots.release(1) && !slots.release(2));
        assert_eq!(slots.assign(Space::Class, classes("b c")).added, [1]);
    }

    #[test]
    fn slot_other_is_never_assigned() {
        let mut slots = Slots::new(3);
        let assigned = slots.assign(Space::Class, classes("a b c d"));
        assert_eq!((assigned.added, assigned.refused), (vec![1, 2], 2));
        assert!(slots.iter().all(|(_, slot)| slot != OTHER));
        assert_eq!(Slots::new(0).take(SlotKey::Class("a".into())), None);
    }

    #[test]
    fn spaces_do_not_take_each_others_slots_away() {
        let mut slots = Slots::new(16);
        slots.assign(Space::Class, classes("lan"));
        slots.assign(Space::Interface, [SlotKey::Interface("lan".into())]);
        let subnet = SlotKey::Subnet(Prefix::new([10, 0, 0, 0].into(), 24));
        assert_eq!(slots.take(subnet.clone()), Some(3));
        let none = slots.assign(Space::Class, []);
        assert_eq!(none.freed, [1]);
        assert_eq!(slots.get(&SlotKey::Interface("lan".into())), Some(2));
        assert_eq!(slots.free(&subnet), Some(3));
        assert_eq!((slots.used(), slots.quarantined()), (1, 2));
    }

    #[test]
    fn a_duplicate_key_has_one_slot() {
        let mut slots = Slots::new(16);
        let assigned = slots.assign(Space::Class, classes("a a"));
        assert_eq!((assigned.kept, assigned.added), (0, vec![1]));
    }
}
