//! A table of prefixes: finds the rules of an address, whatever the lengths of their prefixes.
//!
//! ```text
//!   address ── index ── first addresses of ranges, in order ── rules of the range
//! ```
//!
//! Prefixes are disjoint or nested, so they divide the addresses into ranges. The rules of a range
//! are those of all prefixes that contain it: one search replaces a hash table for each length.
//!
//! Deliberately absent: a trie with a node for 8 bits. 100,000 prefixes have up to 60,000 nodes of
//! 1 KiB, and its loads depend on each other, too.

use std::collections::HashSet;

use fairpath_core::rules::{PREFIXES, word};

use super::encoded::Encoded;
use super::lookup::{put, put_list, put64};
use crate::tree::Family;

/// Most numbers of rules in all lists, for each rule: distinct prefixes of IPv4 never have more.
const LIST_SHARE: usize = 32;

/// Ranges for each place of the index.
const RANGES_OF_PLACE: usize = 2;

/// Bytes of a range.
const RANGE: usize = 16;

/// Bits of a word that are an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    word: usize,
    /// To the left, before the mask.
    shift: u32,
    mask: u64,
    pub name: &'static str,
}

/// The fields of a family. Of IPv6, the first 64 bits of an address.
pub fn fields(family: Family) -> [Field; 2] {
    let field = |word, shift, mask, name| Field {
        word,
        shift,
        mask,
        name,
    };
    match family {
        Family::Ipv6 => [
            field(word::ADDR, 0, u64::MAX, "source"),
            field(word::ADDR2, 0, u64::MAX, "destination"),
        ],
        Family::Ipv4 | Family::Arp | Family::Bridge => [
            field(word::ADDR, 32, u64::MAX << 32, "source"),
            field(word::ADDR, 0, u64::MAX << 32, "destination"),
        ],
    }
}

impl Field {
    pub fn bit(self) -> u32 {
        1 << self.word
    }

    fn width(self) -> u32 {
        self.mask.count_ones()
    }

    /// The bits of a word as a number.
    fn number(self, word: u64) -> u64 {
        (word << self.shift & self.mask).swap_bytes()
    }

    /// The prefix that a rule compares, unless it is no prefix or belongs into a hash table: rules
    /// for one address that compare more fields are found better by all of them.
    pub fn prefix_of(self, rules: &Encoded, at: usize) -> Option<Prefix> {
        let (mut mask, mut value, mut others) = (0, 0, false);
        for (shape, bits, expected) in rules.compares(&rules.records[at]) {
            if shape & 16 != 0 {
                continue;
            }
            if shape as usize == self.word {
                mask |= self.number(bits);
                value |= self.number(expected);
                others |= bits & !(self.mask >> self.shift) != 0;
            } else {
                others = true;
            }
        }
        let length = (mask << (64 - self.width())).leading_ones();
        let rest = self.rest(length);
        others |= mask & rest != 0;
        (length > 0 && (length < self.width() || !others)).then_some(Prefix {
            start: value & !rest,
            length,
            rule: at as u32,
            others,
        })
    }

    /// The bits behind a prefix.
    fn rest(self, length: u32) -> u64 {
        u64::MAX
            .checked_shr(64 - self.width() + length)
            .unwrap_or(0)
    }
}

/// A prefix that a rule compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    start: u64,
    length: u32,
    pub rule: u32,
    /// The rule compares more.
    others: bool,
}

/// The rules of one prefix, and those of the prefixes around it.
#[derive(Debug)]
struct Group {
    /// In order.
    rules: Vec<u32>,
    /// Rules among them that compare more than a prefix.
    others: usize,
}

/// The table.
#[derive(Debug)]
pub struct Prefixes {
    pub field: Field,
    /// First addresses of ranges, in order. The first is 0.
    starts: Vec<u64>,
    /// The group of each range.
    ranges: Vec<Option<u32>>,
    groups: Vec<Group>,
    /// Different lengths of the prefixes.
    lengths: usize,
    /// Sum over rules of the rules that a packet for this one is compared with before it matches.
    pub compared: f64,
}

impl Prefixes {
    /// Of prefixes of one field, in any order; none if their lists would be too long.
    pub fn new(field: Field, mut prefixes: Vec<Prefix>) -> Option<Prefixes> {
        prefixes.sort_unstable();
        let lengths: HashSet<u32> = prefixes.iter().map(|prefix| prefix.length).collect();
        let most = LIST_SHARE * prefixes.len();
        let mut table = Prefixes {
            field,
            starts: vec![0],
            ranges: vec![None],
            groups: Vec::new(),
            lengths: lengths.len(),
            compared: 0.0,
        };
        let mut listed = 0;
        // Prefixes around the present address: their last addresses and groups.
        let mut around: Vec<(u64, u32)> = Vec::new();
        for own in prefixes.chunk_by(|a, b| (a.start, a.length) == (b.start, b.length)) {
            let start = own[0].start;
            table.leave(&mut around, Some(start));
            let (mut rules, mut others) = match around.last() {
                Some((_, group)) => {
                    let outer = &table.groups[*group as usize];
                    (outer.rules.clone(), outer.others)
                }
                None => (Vec::new(), 0),
            };
            table.compared += (own.len() * (own.len() + others)) as f64;
            rules.extend(own.iter().map(|prefix| prefix.rule));
            rules.sort_unstable();
            listed += rules.len();
            if listed > most {
                return None;
            }
            others += own.iter().filter(|prefix| prefix.others).count();
            let group = table.groups.len() as u32;
            table.groups.push(Group { rules, others });
            table.begin(start, Some(group));
            around.push((start | field.rest(own[0].length), group));
        }
        table.leave(&mut around, None);
        Some(table)
    }

    /// The table in words.
    pub fn describe(&self) -> String {
        let (name, count) = (self.field.name, self.groups.len());
        format!(
            "{name} in order: {count} prefixes of {} lengths",
            self.lengths
        )
    }

    /// Ends the prefixes that do not contain an address, or all.
    fn leave(&mut self, around: &mut Vec<(u64, u32)>, address: Option<u64>) {
        while let Some((last, _)) = around.last().copied()
            && address.is_none_or(|address| last < address)
        {
            around.pop();
            let group = around.last().map(|(_, group)| *group);
            if last < self.field.rest(0) {
                self.begin(last + 1, group);
            }
        }
    }

    fn begin(&mut self, start: u64, group: Option<u32>) {
        let at = self.starts.len() - 1;
        if self.starts[at] == start {
            self.ranges[at] = group;
        } else {
            self.starts.push(start);
            self.ranges.push(group);
        }
    }

    /// Writes the table at the end, and its description at `header`. Offsets are from `segment`.
    pub fn write(&self, out: &mut Vec<u8>, segment: usize, header: usize, rules: &[u32]) {
        let number = self.starts.len();
        let base = self.starts.get(1).copied().unwrap_or(0);
        let span = self.starts[number - 1].saturating_sub(base);
        let slots = (number / RANGES_OF_PLACE).next_power_of_two() as u64;
        let shift = (0..64).find(|shift| span >> shift < slots).unwrap_or(63);
        let most = span >> shift;

        let index_at = out.len() - segment;
        let mut before = 0;
        for slot in 0..=most {
            let first = base.saturating_add(slot << shift);
            while slot > 0 && before + 1 < number && self.starts[before + 1] <= first {
                before += 1;
            }
            out.extend_from_slice(&(before as u32).to_le_bytes());
        }
        out.extend_from_slice(&(number as u32 - 1).to_le_bytes());
        out.resize(out.len().next_multiple_of(8), 0);

        let ranges = out.len();
        out.resize(ranges + RANGE * number, 0);
        let places: Vec<u32> = self
            .groups
            .iter()
            .map(|group| put_list(out, segment, &group.rules, rules))
            .collect();
        for (at, (start, group)) in self.starts.iter().zip(&self.ranges).enumerate() {
            let place = group.map_or(0, |group| places[group as usize]);
            put64(out, ranges + RANGE * at, *start);
            put(out, ranges + RANGE * at + 8, place);
        }
        out.resize(out.len().next_multiple_of(8), 0);

        let words = [
            self.field.word as u32,
            PREFIXES,
            most as u32,
            index_at as u32,
            (ranges - segment) as u32,
            number as u32,
            shift | self.field.shift << 8,
        ];
        for (at, word) in words.into_iter().enumerate() {
            put(out, header + 4 * at, word);
        }
        put64(out, header + 32, self.field.mask);
        put64(out, header + 40, base);
    }
}
