//! The elements of a hash set, in a tree by address, prefix length, protocol and port.
//!
//! A lookup asks once for each prefix length in use, longest first, as the kernel does. An IPv4
//! element takes 16 bytes in the tree, an IPv6 element 28; only elements with options take more.

use super::options::{Options, PLAIN};
use std::collections::BTreeMap;

/// A key: network, prefix length, protocol, port. The order of keys is the order of writing.
pub(super) trait Key: Copy + Ord {
    /// Bits of an address.
    const WIDTH: u8;

    fn new(net: u128, length: u8, proto: u8, port: u16) -> Self;
    fn net(self) -> u128;
    fn rest(self) -> (u8, u8, u16);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key4 {
    net: u32,
    length: u8,
    proto: u8,
    port: u16,
}

/// The address is in bytes: its alignment would add four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key6 {
    net: [u8; 16],
    length: u8,
    proto: u8,
    port: u16,
}

impl Key for Key4 {
    const WIDTH: u8 = 32;

    fn new(net: u128, length: u8, proto: u8, port: u16) -> Self {
        let net = net as u32;
        Key4 {
            net,
            length,
            proto,
            port,
        }
    }

    fn net(self) -> u128 {
        self.net.into()
    }

    fn rest(self) -> (u8, u8, u16) {
        (self.length, self.proto, self.port)
    }
}

impl Key for Key6 {
    const WIDTH: u8 = 128;

    fn new(net: u128, length: u8, proto: u8, port: u16) -> Self {
        let net = net.to_be_bytes();
        Key6 {
            net,
            length,
            proto,
            port,
        }
    }

    fn net(self) -> u128 {
        u128::from_be_bytes(self.net)
    }

    fn rest(self) -> (u8, u8, u16) {
        (self.length, self.proto, self.port)
    }
}

/// The network of `length` bits that contains `address`, of `width` bits.
pub(super) fn network(address: u128, length: u8, width: u8) -> u128 {
    let host_bits = u32::from(width - length);
    let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
    address & mask
}

/// The answer of [`Table::insert`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    New,
    Exists,
    Full,
}

#[derive(Debug, Clone)]
pub(super) struct Table<K> {
    entries: BTreeMap<K, Option<Box<Options>>>,
    /// Number of elements by prefix length; no zero.
    lengths: BTreeMap<u8, u32>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table {
            entries: BTreeMap::new(),
            lengths: BTreeMap::new(),
        }
    }
}

impl<K: Key> Table<K> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an element. An existing one stays, or gets the new options if `exist`.
    /// Those that have ended make place.
    pub fn insert(
        &mut self,
        key: K,
        options: &Options,
        max: usize,
        exist: bool,
        now: u64,
    ) -> Inserted {
        use std::collections::btree_map::Entry;
        if self.entries.len() >= max && !self.entries.contains_key(&key) {
            self.forget_ended(now);
        }
        let len = self.entries.len();
        let stored = || (*options != PLAIN).then(|| Box::new(options.clone()));
        match self.entries.entry(key) {
            Entry::Occupied(mut entry) => {
                let is_over = |old: &Options| old.is_over(now);
                if !exist && !entry.get().as_deref().is_some_and(is_over) {
                    return Inserted::Exists;
                }
                entry.insert(stored());
            }
            Entry::Vacant(_) if len >= max => return Inserted::Full,
            Entry::Vacant(entry) => {
                entry.insert(stored());
                *self.lengths.entry(key.rest().0).or_default() += 1;
            }
        }
        Inserted::New
    }

    /// Removes elements that have ended.
    pub fn forget_ended(&mut self, now: u64) {
        let over = self.iter().filter(|(_, options)| options.is_over(now));
        let over: Vec<K> = over.map(|(key, _)| key).collect();
        for key in over {
            self.remove(key, now);
        }
    }

    /// The options of the elements, to change them.
    pub fn options_mut(&mut self) -> impl Iterator<Item = &mut Options> {
        let all = self.entries.values_mut();
        all.map(|options| &mut **options.get_or_insert_with(Box::default))
    }

    /// True if the element existed.
    pub fn remove(&mut self, key: K, now: u64) -> bool {
        let Some(options) = self.entries.remove(&key) else {
            return false;
        };
        let is_over = options.is_some_and(|options| options.is_over(now));
        let length = key.rest().0;
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
        !is_over
    }

    /// The options of an element.
    pub fn get(&self, key: K) -> Option<&Options> {
        let found = self.entries.get(&key)?;
        Some(found.as_deref().unwrap_or(&PLAIN))
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &Options)> {
        let entries = self.entries.iter();
        entries.map(|(key, options)| (*key, options.as_deref().unwrap_or(&PLAIN)))
    }

    /// The options of the longest prefix of `address` with this protocol and port.
    ///
    /// O(p log n) for p prefix lengths in use.
    pub fn find(&self, address: u128, proto: u8, port: u16, now: u64) -> Option<&Options> {
        self.lengths.keys().rev().find_map(|length| {
            let net = network(address, *length, K::WIDTH);
            let found = self.get(K::new(net, *length, proto, port))?;
            (!found.is_over(now)).then_some(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_takes_at_most_28_bytes() {
        let options = size_of::<Option<Box<Options>>>();
        assert_eq!(size_of::<Key4>() + options, 16);
        assert_eq!(size_of::<Key6>() + options, 28);
    }

    #[test]
    fn networks_of_all_lengths_are_masked() {
        assert_eq!(network(0xffff_ffff, 0, 32), 0);
        assert_eq!(network(0xffff_ffff, 32, 32), 0xffff_ffff);
        assert_eq!(network(u128::MAX, 0, 128), 0);
        assert_eq!(network(u128::MAX, 1, 128), 1 << 127);
    }

    #[test]
    fn a_removed_prefix_length_is_not_searched() {
        let mut table = Table::<Key4>::default();
        let key = Key4::new(0x0a00_0000, 8, 0, 0);
        assert_eq!(table.insert(key, &PLAIN, 1, false, 0), Inserted::New);
        let other = Key4::new(0x0b00_0000, 8, 0, 0);
        assert_eq!(table.insert(other, &PLAIN, 1, false, 0), Inserted::Full);
        assert!(table.find(0x0a01_0203, 0, 0, 0).is_some());
        assert!(table.remove(key, 0));
        assert!(!table.remove(key, 0));
        assert!(table.lengths.is_empty());
        assert!(table.find(0x0a01_0203, 0, 0, 0).is_none());
    }
}
