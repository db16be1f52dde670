//! A queue as it is meant: entries in an ordered map by (rank, arrival).

use std::collections::BTreeMap;

/// A queued item: a packet, a flow (its leaf and hash), a child, a reference, or a flow by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    Packet(u32),
    Flow(u32, u32),
    Node(u32),
    Reference(u32),
}

/// The rules of a queue for ranks and for one entry too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub capacity: usize,
    pub push_out: bool,
    /// Strict priority: a number of bands; higher ranks are dropped or use the last.
    pub bands: Option<(u64, bool)>,
}

/// Why an entry is refused, as the outcome's reason says it.
pub const FULL: u8 = 1;
pub const BEYOND: u8 = 3;

#[derive(Clone, Debug)]
pub struct Queue {
    rules: Rules,
    entries: BTreeMap<(u64, u64), (Item, u64)>,
    /// The position of each item.
    places: BTreeMap<Item, (u64, u64)>,
}

impl Queue {
    pub fn new(rules: Rules) -> Queue {
        Queue {
            rules,
            entries: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    fn key(&self, rank: u64) -> Result<u64, u8> {
        match self.rules.bands {
            Some((bands, true)) if rank >= bands => Err(BEYOND),
            Some((bands, _)) => Ok(rank.min(bands - 1)),
            None => Ok(rank),
        }
    }

    fn insert(&mut self, item: Item, rank: u64, place: (u64, u64)) {
        let twice = self.places.insert(item, place);
        assert_eq!(twice, None, "{item:?} waits twice");
        self.entries.insert(place, (item, rank));
    }

    /// Adds the entry, and returns the entry that was pushed out for it, if any.
    pub fn push(&mut self, item: Item, rank: u64, seq: u64) -> Result<Option<Item>, u8> {
        let key = self.key(rank)?;
        let mut out = None;
        if self.entries.len() >= self.rules.capacity {
            let last = self
                .entries
                .last_key_value()
                .filter(|_| self.rules.push_out);
            match last {
                Some((at, (worst, _))) if key < at.0 => out = Some(*worst),
                _ => return Err(FULL),
            }
        }
        if let Some(worst) = out {
            self.remove(worst);
        }
        self.insert(item, rank, (key, seq));
        Ok(out)
    }

    pub fn first(&self) -> Option<(Item, u64)> {
        self.entries.values().next().copied()
    }

    pub fn rank_of(&self, item: Item) -> Option<u64> {
        self.places.get(&item).map(|place| self.entries[place].1)
    }

    pub fn remove(&mut self, item: Item) -> bool {
        let place = self.places.remove(&item);
        place.is_some_and(|place| self.entries.remove(&place).is_some())
    }

    /// Another rank, as a new arrival; where it is refused, nothing changes.
    pub fn put_elsewhere(&mut self, item: Item, rank: u64, seq: u64) {
        if let Ok(key) = self.key(rank)
            && self.remove(item)
        {
            self.insert(item, rank, (key, seq));
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn holds(&self, item: Item) -> bool {
        self.places.contains_key(&item)
    }

    pub fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.entries.values().map(|entry| entry.0)
    }
}
