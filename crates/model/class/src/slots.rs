//! Slots: which class, subnet or interface counts where in the core.
//!
//! ```text
//!           assign                  assign, free             release
//!   free ------------> in use ------------------> quarantined -------> free
//! ```
//!
//! A name keeps its slot across reloads, so its counters go on. A slot that is given up is
//! quarantined: its last counts are still being read, and must not become another's.

use std::collections::{BTreeSet, HashMap, HashSet};

use fairpath_core::{MAX_SLOTS, OTHER, Prefix};

/// What has a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SlotKey {
    /// A configured class, by name.
    Class(String),
    /// A subnet that was found in traffic.
    Subnet(Prefix),
    /// A watched interface, by name.
    Interface(String),
}

/// The kinds of [`SlotKey`]; each is assigned for itself.
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

/// What an assignment did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// How many had a slot and keep it.
    pub kept: usize,
    /// Slots given out, in the order of the keys.
    pub added: Vec<u32>,
    /// Slots given up, ascending: quarantined until [`Slots::release`].
    pub freed: Vec<u32>,
    /// How many found no slot: they count in [`OTHER`].
    pub refused: usize,
}

/// The map from keys to slots. Slot [`OTHER`] is nobody's.
#[derive(Clone, Debug)]
pub struct Slots {
    capacity: u32,
    slots: HashMap<SlotKey, u32>,
    /// Slots that were never used.
    untouched: std::ops::Range<u32>,
    /// Slots that were used and released; the lowest goes out first.
    free: BTreeSet<u32>,
    quarantined: HashSet<u32>,
}

impl Slots {
    /// Slots 1 to `capacity` - 1; `capacity` is what the core has, [`MAX_SLOTS`] at most.
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

    /// Makes `wanted` all that has a slot in `space`: what had one keeps it, what is no longer
    /// wanted loses it, what is new gets one as long as there are any. Keys of other spaces lose
    /// nothing. O(keys).
    ///
    /// Slots freed by this call are quarantined, so they do not serve its new keys: where some were
    /// refused, call it again after [`Slots::release`].
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
        let gone: Vec<SlotKey> = self
            .slots
            .keys()
            .filter(|key| unwanted(key))
            .cloned()
            .collect();
        assigned.freed = gone.iter().filter_map(|key| self.free(key)).collect();
        assigned.freed.sort_unstable();
        for key in new {
            match self.take(key) {
                Some(slot) => assigned.added.push(slot),
                None => assigned.refused += 1,
            }
        }
        assigned
    }

    /// The slot of `key`, which gets one if it has none yet. `None` if there is none left. O(log n).
    pub fn take(&mut self, key: SlotKey) -> Option<u32> {
        if let Some(slot) = self.slots.get(&key) {
            return Some(*slot);
        }
        let slot = self.free.pop_first().or_else(|| self.untouched.next())?;
        self.slots.insert(key, slot);
        Some(slot)
    }

    /// Takes the slot of `key` away and quarantines it. `None` if it had none. O(1).
    pub fn free(&mut self, key: &SlotKey) -> Option<u32> {
        let slot = self.slots.remove(key)?;
        self.quarantined.insert(slot);
        Some(slot)
    }

    /// Ends the quarantine of `slot`: its last counts were read and it counts from zero. Whether
    /// it was quarantined. O(log n).
    pub fn release(&mut self, slot: u32) -> bool {
        self.quarantined.remove(&slot) && self.free.insert(slot)
    }

    /// The slot of `key`. O(1).
    pub fn get(&self, key: &SlotKey) -> Option<u32> {
        self.slots.get(key).copied()
    }

    /// The slot of the class called `name`. O(1).
    pub fn class(&self, name: &str) -> Option<u32> {
        self.get(&SlotKey::Class(name.to_owned()))
    }

    /// All keys and their slots, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&SlotKey, u32)> {
        self.slots.iter().map(|(key, slot)| (key, *slot))
    }

    /// How many keys have a slot.
    pub fn used(&self) -> usize {
        self.slots.len()
    }

    /// How many slots wait for [`Slots::release`].
    pub fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// How many slots there are, [`OTHER`] included.
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
    fn a_freed_slot_is_nobodys_until_it_is_released() {
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
    fn slot_other_is_never_assigned_and_what_finds_none_is_counted() {
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
    fn a_key_that_is_wanted_twice_has_one_slot() {
        let mut slots = Slots::new(16);
        let assigned = slots.assign(Space::Class, classes("a a"));
        assert_eq!((assigned.kept, assigned.added), (0, vec![1]));
    }
}
