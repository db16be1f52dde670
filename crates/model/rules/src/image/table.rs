//! Tables of an image: recent lists and limits by key, shared by name.
//!
//! As in the kernel, the first rule that names a table decides its masks, rate and size. Rules of all
//! tables of the family share it.

use std::collections::HashMap;

use fairpath_core::rules::{Table, table};

use super::BuildError;
use crate::hash_rate::{BYTES, credits, overflows, window};
use crate::tree::{Family, Group, Ruleset, Value};

/// Addresses of a recent list (`ip_list_tot` of xt_recent).
pub const RECENT_ENTRIES: u32 = 100;
/// Stamps of an address in a list without `--hitcount`.
const RECENT_STAMPS: u32 = 32;
/// Buckets of a limit without `--hashlimit-htable-size`: the kernel's number with more than 1 GiB.
const LIMIT_BUCKETS: u64 = 8192;
/// Entries of a limit for each bucket, without `--hashlimit-htable-max`.
const LIMIT_PER_BUCKET: u64 = 8;

/// Bits of `--hashlimit-mode`.
mod mode {
    pub const SRCIP: u64 = 1;
    pub const SRCPORT: u64 = 2;
    pub const DSTIP: u64 = 4;
    pub const DSTPORT: u64 = 8;
}

/// The tables that rules use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    /// `None`: one that the core does not have.
    by_name: HashMap<(u32, Vec<u8>), Option<u32>>,
    tables: Vec<Table>,
}

impl Tables {
    /// Those of a set, without places.
    pub fn of(ruleset: &Ruleset) -> Tables {
        let mut encoder = super::rule::Encoder::new(ruleset.family, None);
        encoder.prepare(ruleset);
        encoder.tables
    }

    /// The list of a recent match. `None`: it has more stamps than the core keeps.
    pub fn recent(&mut self, group: Group, family: Family) -> Option<u32> {
        let hits = group.number("--hitcount").map_or(0, |(hits, _)| hits);
        let stamps = match hits {
            0 => RECENT_STAMPS,
            1.. if hits <= u64::from(table::STAMPS) => (hits as u32).next_power_of_two(),
            _ => return None,
        };
        let mask = match group.get("--mask").map(|item| &item.value) {
            Some(Value::Pair(mask, _)) => [u64::from(mask.swap_bytes()), 0],
            Some(Value::Ipv6(pair)) => super::rule::raw128(pair[0]),
            _ if family == Family::Ipv6 => [u64::MAX; 2],
            _ => [u64::from(u32::MAX), 0],
        };
        let list = || Table {
            kind: table::RECENT,
            entries: RECENT_ENTRIES,
            buckets: RECENT_ENTRIES.next_power_of_two() - 1,
            source: mask,
            ..Table::default()
        };
        let number = self.number(table::RECENT, group.text("--name"), || Some(list()))?;
        let list = &mut self.tables[number as usize];
        list.stamps = list.stamps.max(stamps - 1);
        list.ttl |= u32::from(group.has("--rttl"));
        Some(number)
    }

    /// The table of a hashlimit match. `None`: its rate, burst, interval or mode is not one of the
    /// core.
    pub fn limit(&mut self, group: Group, family: Family) -> Option<u32> {
        let rate = ["--hashlimit-upto", "--hashlimit-above"];
        let (rate, _) = rate.iter().find_map(|name| group.number(name))?;
        let kind = match group.has("--hashlimit-rate-match") {
            true => table::WINDOW,
            false => table::LIMIT,
        };
        let refused = match kind {
            table::WINDOW => interval(group) > table::INTERVAL,
            _ => overflows(rate, burst(group).unwrap_or(5)),
        };
        let number = self.number(table::LIMIT, group.text("--hashlimit-name"), || {
            (!refused).then(|| new_limit(group, family, kind, rate))
        })?;
        // A rule of packets on a table of bytes has no sensible meaning in the kernel either, and one
        // of credits on a table of windows reads numbers of the other kind.
        let table = &self.tables[number as usize];
        let fits = table.kind == kind && table.counts_bytes() == (rate & BYTES != 0);
        (fits && !refused).then_some(number)
    }

    /// The number of a table by its name. `None`: the core has not the one of the first rule.
    fn number(
        &mut self,
        kind: u32,
        name: Option<&[u8]>,
        new: impl FnOnce() -> Option<Table>,
    ) -> Option<u32> {
        let key = (kind, name.unwrap_or_default().to_vec());
        *self.by_name.entry(key).or_insert_with(|| {
            self.tables.push(new()?);
            Some(self.tables.len() as u32 - 1)
        })
    }

    /// Numbers of tables that have the same name in both: here, and there.
    pub fn named(&self, other: &Tables) -> Vec<(u32, u32)> {
        let numbers = self.by_name.iter();
        let numbers =
            numbers.filter_map(|(name, here)| Some(((*here)?, (*other.by_name.get(name)?)?)));
        let mut pairs: Vec<(u32, u32)> = numbers.collect();
        pairs.sort_unstable();
        pairs
    }

    /// Numbers of tables that have the same description in both: here, and there.
    pub fn equal(&self, other: &Tables) -> Vec<(u32, u32)> {
        let mut pairs = self.named(other);
        pairs.retain(|(here, there)| {
            let there = other.tables[*there as usize];
            let here = self.tables[*here as usize];
            here == Table {
                at: here.at,
                ..there
            }
        });
        pairs
    }

    /// Gives memory to the tables, and appends their descriptions. Returns the number of tables and
    /// the bytes of memory.
    ///
    /// # Errors
    ///
    /// [`BuildError::TablesTooLarge`].
    pub fn write(&mut self, out: &mut Vec<u8>) -> Result<(u32, u64), BuildError> {
        let mut free = 0u64;
        for table in &mut self.tables {
            table.at = free;
            free = table
                .bytes()
                .and_then(|bytes| free.checked_add(bytes)?.checked_next_multiple_of(64))
                .filter(|free| *free <= table::BYTES)
                .ok_or(BuildError::TablesTooLarge)?;
            out.extend_from_slice(&table.to_bytes());
        }
        Ok((self.tables.len() as u32, free))
    }
}

fn new_limit(group: Group, family: Family, kind: u32, rate: u64) -> Table {
    let number = |name| group.number(name).map(|(number, _)| number);
    let credits = match kind {
        table::WINDOW => window(rate, burst(group)),
        _ => credits(rate, burst(group)),
    };
    let bits = number("--hashlimit-mode").unwrap_or(0);
    let whole = if family == Family::Ipv6 { 128 } else { 32 };
    let mask = |bit, name| match number(name).unwrap_or(whole) {
        _ if bits & bit == 0 => [0; 2],
        0 => [0; 2],
        length if family == Family::Ipv6 => {
            super::rule::raw128(u128::MAX << (128 - length.min(128)))
        }
        length => [
            u64::from((u32::MAX << (32 - length.min(32))).swap_bytes()),
            0,
        ],
    };
    let size = match number("--hashlimit-htable-size") {
        None | Some(0) => LIMIT_BUCKETS,
        Some(size) => size,
    };
    let entries = match number("--hashlimit-htable-max") {
        None | Some(0) => size.saturating_mul(LIMIT_PER_BUCKET),
        Some(max) => max.max(size),
    };
    let entries = entries.min(u64::from(table::ENTRIES)) as u32;
    let ports = |bit, part| if bits & bit == 0 { 0 } else { part };
    Table {
        kind,
        entries,
        buckets: entries.next_power_of_two().max(2) - 1,
        source: mask(mode::SRCIP, "--hashlimit-srcmask"),
        destination: mask(mode::DSTIP, "--hashlimit-dstmask"),
        cost: credits.cost,
        capacity: credits.capacity,
        gain: credits.gain,
        refills: credits.refills,
        interval: interval(group),
        expire: number("--hashlimit-htable-expire").unwrap_or(credits.expire) * 1_000_000,
        ports: ports(mode::SRCPORT, table::SEND) | ports(mode::DSTPORT, table::RECEIVE),
        ..Table::default()
    }
}

/// Seconds of a window. 0: the group has none.
fn interval(group: Group) -> u64 {
    let number = group.number("--hashlimit-rate-interval");
    match group.has("--hashlimit-rate-match") {
        true => number.map_or(1, |(seconds, _)| seconds),
        false => 0,
    }
}

/// The burst: packets, or bytes.
fn burst(group: Group) -> Option<u64> {
    let (burst, _) = group.number("--hashlimit-burst")?;
    Some(burst & !BYTES)
}
