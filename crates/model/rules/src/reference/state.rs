//! Stateful matches: limits, quotas, counts and lists of recent addresses. Time is in nanoseconds
//! of `Facts::now`, where the kernel counts jiffies.

use super::RuleAt;
use super::context::Context;
use super::view::{Answer, HOT_DROP, Stop};
use crate::hash_rate::{self, BYTES};
use crate::packet::Unknown;
use crate::spec::Kind;
use crate::tree::{ChainId, Family, Group, Hook, Ruleset, Value};
use std::collections::{BTreeMap, BTreeSet};

const SECOND: u64 = 1_000_000_000;
/// Entries of a `hashlimit` table without `--hashlimit-htable-max`: 8 times the usual 8192 buckets.
const HASH_ENTRIES: usize = 65_536;
/// Addresses of a `recent` list (parameter `ip_list_tot`).
const RECENT_ADDRESSES: usize = 100;
/// Times of an address in a `recent` list, at least. More do not change an answer, since no rule
/// may count beyond them.
const RECENT_STAMPS: usize = 32;

/// A match: table, chain, rule, and its number in the rule.
pub(super) type MatchId = (usize, ChainId, usize, usize);

/// State of all matches of a rule set.
#[derive(Debug, Default)]
pub(super) struct State {
    limits: BTreeMap<MatchId, Bucket>,
    quotas: BTreeMap<MatchId, u64>,
    counts: BTreeMap<MatchId, u64>,
    hashes: BTreeMap<Box<[u8]>, HashTable>,
    recents: BTreeMap<Box<[u8]>, Recent>,
    /// Marks of the templates of CT rules.
    pub templates: BTreeMap<RuleAt, u32>,
    /// Sets that a SET target changed.
    pub changed_sets: BTreeSet<Box<[u8]>>,
}

/// Nanoseconds that ten-thousandths of a second are for the kernel (`user2credits` of xt_limit.c): it
/// counts 32,000 credits a second in 32 bits, and only whole seconds of long times.
fn credit_time(parts: u32) -> u64 {
    let credits = match parts.checked_mul(32_000) {
        Some(credits) => credits / 10_000,
        None => (parts / 10_000).wrapping_mul(32_000),
    };
    u64::from(credits) * 31_250
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    credit: u64,
    at: u64,
}

impl Bucket {
    fn full(credit: u64, at: u64) -> Self {
        Self { credit, at }
    }

    fn refill(&mut self, now: u64, capacity: u64) {
        let elapsed = now.saturating_sub(self.at);
        self.credit = self.credit.saturating_add(elapsed).min(capacity);
        self.at = now;
    }

    fn take(&mut self, cost: u64) -> bool {
        let enough = self.credit >= cost;
        if enough {
            self.credit -= cost;
        }
        enough
    }
}

impl State {
    /// The first rule that names a table of `hashlimit` or a list of `recent` configures it.
    pub fn new(ruleset: &Ruleset) -> Self {
        let mut state = Self::default();
        let chains = ruleset.tables.iter().flat_map(|table| table.sorted());
        for (_, chain) in chains {
            for group in chain.rules.iter().flat_map(|rule| rule.matches()) {
                state.prepare(&group, ruleset.family);
            }
        }
        state
    }

    fn prepare(&mut self, group: &Group, family: Family) {
        match group.kind {
            Kind::Hashlimit => {
                if let Some(name) = group.text("--hashlimit-name") {
                    self.hashes
                        .entry(name.into())
                        .or_insert_with(|| HashTable::new(group, family));
                }
            }
            Kind::Recent => {
                let hits = group.number("--hitcount").map_or(0, |(hits, _)| hits);
                let recent = self
                    .recents
                    .entry(recent_name(group).into())
                    .or_insert_with(|| Recent::new(group));
                recent.stamps = recent.stamps.max(hits as usize);
                recent.compares_ttl |= group.has("--rttl");
            }
            _ => {}
        }
    }

    /// `-m limit`: one bucket for each rule, full at first.
    pub fn limit(&mut self, group: &Group, context: &Context, id: MatchId) -> Answer {
        let rate = group.number("--limit").map_or(1, |(rate, _)| rate) as u32;
        let burst = group.number("--limit-burst").map_or(5, |(burst, _)| burst) as u32;
        let (cost, capacity) = (credit_time(rate), credit_time(rate.wrapping_mul(burst)));
        if capacity < cost {
            // The kernel refuses the rule (`limit_mt_check`).
            return Err(Stop::Unknown(Unknown::OpaqueMatch));
        }
        let now = context.facts.now;
        let bucket = self
            .limits
            .entry(id)
            .or_insert_with(|| Bucket::full(capacity, now));
        bucket.refill(now, capacity);
        Ok(bucket.take(cost))
    }

    /// `-m quota`: the first packet that does not fit ends the quota.
    pub fn quota(&mut self, group: &Group, context: &Context, id: MatchId) -> Answer {
        let (quota, not) = group.number("--quota").unwrap_or((0, false));
        let left = self.quotas.entry(id).or_insert(quota);
        let length = context.view.length as u64;
        let fits = *left >= length;
        *left = if fits { *left - length } else { 0 };
        Ok(fits != not)
    }

    /// `-m statistic --mode nth`: packet number `--packet` of each `--every` packets.
    pub fn nth(&mut self, group: &Group, id: MatchId) -> Answer {
        let (every, not) = group.number("--every").unwrap_or((1, false));
        let packet = group.number("--packet").map_or(0, |(packet, _)| packet);
        let count = self.counts.entry(id).or_insert(0);
        let holds = *count == packet;
        *count = (*count + 1) % every.max(1);
        Ok(holds != not)
    }

    pub fn hashlimit(&mut self, group: &Group, context: &Context) -> Answer {
        let name = group.text("--hashlimit-name").unwrap_or_default();
        let table = self.hashes.get_mut(name).expect("every rule was prepared");
        let above = group.has("--hashlimit-above");
        if !table.is_of(group) {
            return Err(Stop::Unknown(Unknown::OpaqueMatch));
        }
        table.below(context).map(|below| below != above)
    }

    pub fn recent(&mut self, group: &Group, context: &Context) -> Answer {
        self.recents
            .get_mut(recent_name(group))
            .expect("every rule was prepared")
            .test(group, context)
    }
}

fn hash_rate_of(group: &Group) -> u64 {
    group
        .number("--hashlimit-upto")
        .or_else(|| group.number("--hashlimit-above"))
        .map_or(0, |(rate, _)| rate)
}

/// Source, destination and ports; parts that the mode does not name are 0.
type HashKey = (u128, u128, u16, u16);

/// A table of `hashlimit` (xt_hashlimit), with the numbers of the rule that made it.
#[derive(Debug)]
struct HashTable {
    /// Bits of `--hashlimit-mode`.
    mode: u64,
    source_mask: u128,
    destination_mask: u128,
    rate: HashRate,
    of_bytes: bool,
    expiry: u64,
    limit: usize,
    entries: BTreeMap<HashKey, HashEntry>,
}

#[derive(Debug, Clone, Copy)]
enum HashRate {
    /// Nanoseconds a packet, and those of a full bucket.
    Packets { cost: u64, capacity: u64 },
    /// Nanoseconds of credit for each 16 bytes and part of them, and refills beyond the rate.
    Bytes { cost: u64, refills: u64 },
    /// `--hashlimit-rate-match`: units in an interval in ns, without a bucket.
    Window {
        rate: u64,
        burst: u64,
        interval: u64,
    },
}

#[derive(Debug)]
struct HashEntry {
    bucket: Bucket,
    refills: u64,
    expires: u64,
    /// Units since the interval began, and whether the one before was over the rate.
    units: u64,
    over: bool,
}

impl HashTable {
    fn new(group: &Group, family: Family) -> Self {
        let number = |name: &str| group.number(name).map(|(number, _)| number);
        let width = if family == Family::Ipv6 { 128 } else { 32 };
        let mask = |name: &str| {
            let length = number(name).unwrap_or(width).min(width) as u32;
            crate::value::prefix6(length + 128 - width as u32)
        };
        let (rate, expiry) = hash_rate(group);
        let buckets = number("--hashlimit-htable-size").unwrap_or(0) as usize;
        let limit = match number("--hashlimit-htable-max").unwrap_or(0) as usize {
            0 if buckets == 0 => HASH_ENTRIES,
            0 => 8 * buckets,
            limit if buckets == 0 => limit.max(HASH_ENTRIES / 8),
            limit => limit.max(buckets),
        };
        Self {
            mode: number("--hashlimit-mode").unwrap_or(0),
            source_mask: mask("--hashlimit-srcmask"),
            destination_mask: mask("--hashlimit-dstmask"),
            rate,
            of_bytes: hash_rate_of(group) & BYTES != 0,
            expiry: number("--hashlimit-htable-expire")
                .filter(|expiry| *expiry > 0)
                .map_or(expiry, |expiry| expiry.saturating_mul(SECOND / 1_000)),
            limit,
            entries: BTreeMap::new(),
        }
    }

    /// True if a rule counts the units of the rule that made the table. The kernel then takes numbers
    /// of one kind for those of the other.
    fn is_of(&self, group: &Group) -> bool {
        let is_window = matches!(self.rate, HashRate::Window { .. });
        let of_bytes = hash_rate_of(group) & BYTES != 0;
        is_window == group.has("--hashlimit-rate-match") && of_bytes == self.of_bytes
    }

    /// True if the packet is below the limit of its key.
    fn below(&mut self, context: &Context) -> Answer {
        let key = self.key(context)?;
        let now = context.facts.now;
        // The kernel removes old entries by a timer, each second.
        self.entries.retain(|_, entry| entry.expires > now);
        if !self.entries.contains_key(&key) && self.entries.len() >= self.limit {
            return Err(HOT_DROP);
        }
        let rate = self.rate;
        let entry = self
            .entries
            .entry(key)
            .or_insert_with(|| HashEntry::new(rate, now));
        entry.expires = now.saturating_add(self.expiry);
        Ok(entry.take(rate, now, context.view.length as u64, self.of_bytes))
    }

    fn key(&self, context: &Context) -> Result<HashKey, Stop> {
        let mut key = (0, 0, 0, 0);
        if self.mode & 1 != 0 {
            key.0 = context.view.source()? & self.source_mask;
        }
        if self.mode & 4 != 0 {
            key.1 = context.view.destination()? & self.destination_mask;
        }
        if self.mode & 10 != 0 {
            let [a, b, c, d] = hash_ports(context)?;
            if self.mode & 2 != 0 {
                key.2 = u16::from_be_bytes([a, b]);
            }
            if self.mode & 8 != 0 {
                key.3 = u16::from_be_bytes([c, d]);
            }
        }
        Ok(key)
    }
}

/// The four bytes that the kernel takes for ports, also of fragments (`proto_ports_offset`).
fn hash_ports(context: &Context) -> Result<[u8; 4], Stop> {
    let (protocol, at) = if context.family == Family::Ipv6 {
        let (protocol, at, _) = context.view.skip_extensions()?.ok_or(HOT_DROP)?;
        (protocol, at)
    } else {
        (context.view.byte(9)?, context.view.transport4()?.offset)
    };
    match protocol {
        // TCP, UDP, DCCP, ESP, SCTP, UDP-Lite.
        6 | 17 | 33 | 50 | 132 | 136 => context.view.header(at),
        // AH.
        51 => context.view.header(at + 4),
        _ => Ok([0; 4]),
    }
}

/// The rate of a rule, and the time in ns after which iptables lets an idle entry leave.
fn hash_rate(group: &Group) -> (HashRate, u64) {
    let rate = hash_rate_of(group);
    let burst = group.number("--hashlimit-burst");
    let burst = burst.map(|(burst, _)| burst & !BYTES);
    let expiry = hash_rate::expiry(rate, burst.is_some()) * (SECOND / 1_000);
    let window = group.has("--hashlimit-rate-match");
    let interval = group
        .number("--hashlimit-rate-interval")
        .map_or(1, |(seconds, _)| seconds)
        .saturating_mul(SECOND);
    if rate & BYTES == 0 {
        let burst = burst.unwrap_or(5);
        let cost = rate.saturating_mul(1_000);
        let per_second = 1_000_000 / rate.max(1);
        let rate = match window {
            true => HashRate::Window {
                rate: per_second,
                burst: burst.saturating_add(per_second),
                interval,
            },
            false => HashRate::Packets {
                cost,
                capacity: cost.saturating_mul(burst),
            },
        };
        return (rate, expiry);
    }
    let per_second = (rate & !BYTES).max(1);
    let refills = burst.map_or(0, |burst| burst.div_ceil(per_second));
    // The kernel's cost of 16 bytes, a share of 2^32 of a second.
    let share = u64::from(u32::MAX) / ((per_second >> 4) + 1);
    let rate = match window {
        true => HashRate::Window {
            rate: per_second,
            burst: per_second * refills.max(1),
            interval,
        },
        false => HashRate::Bytes {
            cost: (share * SECOND) >> 32,
            refills,
        },
    };
    (rate, expiry)
}

impl HashEntry {
    fn new(rate: HashRate, now: u64) -> Self {
        let (credit, refills) = match rate {
            HashRate::Packets { capacity, .. } => (capacity, 0),
            HashRate::Bytes { refills, .. } => (SECOND, refills),
            HashRate::Window { .. } => (0, 0),
        };
        Self {
            bucket: Bucket::full(credit, now),
            refills,
            expires: now,
            units: 0,
            over: false,
        }
    }

    fn take(&mut self, rate: HashRate, now: u64, length: u64, of_bytes: bool) -> bool {
        match rate {
            HashRate::Packets { cost, capacity } => {
                self.bucket.refill(now, capacity);
                self.bucket.take(cost)
            }
            HashRate::Bytes { cost, .. } => {
                self.bucket.refill(now, SECOND);
                let cost = ((length >> 4) + 1).saturating_mul(cost).min(SECOND);
                if self.bucket.credit < cost && self.refills > 0 {
                    self.refills -= 1;
                    self.bucket.credit = SECOND;
                }
                self.bucket.take(cost)
            }
            HashRate::Window {
                rate,
                burst,
                interval,
            } => {
                let elapsed = now.saturating_sub(self.bucket.at);
                if elapsed > 0 && elapsed >= interval {
                    let (units, interval) = (u128::from(self.units), u128::from(interval));
                    self.over = units * interval > u128::from(elapsed) * u128::from(rate);
                    self.bucket.at = now;
                    self.units = 0;
                }
                self.units += if of_bytes { length } else { 1 };
                !self.over && self.units <= burst
            }
        }
    }
}

fn recent_name<'a>(group: &Group<'a>) -> &'a [u8] {
    group.text("--name").unwrap_or(b"DEFAULT")
}

/// A list of `recent` (xt_recent): addresses, the one that was used longest ago first.
#[derive(Debug)]
struct Recent {
    mask: u128,
    stamps: usize,
    /// True if a rule of the list has `--rttl`.
    compares_ttl: bool,
    entries: Vec<RecentEntry>,
}

#[derive(Debug)]
struct RecentEntry {
    address: u128,
    ttl: u8,
    /// The newest last.
    stamps: Vec<u64>,
}

impl Recent {
    fn new(group: &Group) -> Self {
        let mask = match group.get("--mask").map(|item| &item.value) {
            Some(Value::Pair(mask, _)) => u128::from(*mask),
            Some(Value::Ipv6(pair)) => pair[0],
            _ => u128::MAX,
        };
        Self {
            mask,
            stamps: RECENT_STAMPS,
            compares_ttl: false,
            entries: Vec::new(),
        }
    }

    fn test(&mut self, group: &Group, context: &Context) -> Answer {
        let address = self.mask
            & match group.has("--rdest") {
                true => context.view.destination()?,
                false => context.view.source()?,
            };
        let ttl = self.ttl(context)?;
        let not = ["--set", "--rcheck", "--update", "--remove"]
            .into_iter()
            .any(|name| group.get(name).is_some_and(|item| item.not));
        let wanted = if group.has("--rttl") { ttl } else { 0 };
        let found = self.entries.iter().position(|entry| {
            let same_ttl = wanted == entry.ttl || wanted == 0 || entry.ttl == 0;
            entry.address == address && same_ttl
        });
        let now = context.facts.now;
        let holds = match found {
            None if group.has("--set") => self.add(address, ttl, now),
            None => false,
            Some(at) if group.has("--set") => self.stamp(at, ttl, now),
            Some(at) if group.has("--remove") => {
                self.entries.remove(at);
                true
            }
            Some(at) => return Ok(self.check(group, at, ttl, now, not)),
        };
        Ok(holds != not)
    }

    /// The TTL as before forwarding; it does not matter without `--rttl`.
    fn ttl(&self, context: &Context) -> Result<u8, Stop> {
        if !self.compares_ttl {
            return Ok(0);
        }
        let ttl = context.view.ttl()?;
        match (&context.facts.output, context.facts.owner) {
            (Some(output), _) if output.is_empty() => Ok(ttl),
            (None, _) => Err(Unknown::Output.into()),
            (_, Some(Some(_))) => Ok(ttl),
            (_, None) if context.hook != Hook::Forward => Err(Unknown::Owner.into()),
            _ => Ok(ttl.wrapping_add(1)),
        }
    }

    fn add(&mut self, address: u128, ttl: u8, now: u64) -> bool {
        if self.entries.len() >= RECENT_ADDRESSES {
            self.entries.remove(0);
        }
        self.entries.push(RecentEntry {
            address,
            ttl,
            stamps: vec![now],
        });
        true
    }

    fn stamp(&mut self, at: usize, ttl: u8, now: u64) -> bool {
        let mut entry = self.entries.remove(at);
        if entry.stamps.len() >= self.stamps {
            entry.stamps.remove(0);
        }
        entry.stamps.push(now);
        entry.ttl = ttl;
        self.entries.push(entry);
        true
    }

    /// `--rcheck` and `--update` of an address that the list has; returns the answer.
    fn check(&mut self, group: &Group, at: usize, ttl: u8, now: u64, not: bool) -> bool {
        let number = |name: &str| group.number(name).map_or(0, |(number, _)| number);
        let window = number("--seconds").saturating_mul(SECOND);
        let is_old = |stamp: u64| window > 0 && now.saturating_sub(stamp) > window;
        let stamps = &self.entries[at].stamps;
        let hits = stamps.iter().filter(|stamp| !is_old(**stamp)).count() as u64;
        let holds = (hits >= number("--hitcount").max(1)) != not;
        let update = group.has("--update") && holds;
        // The entry that was used longest ago leaves if it is old, unless it is just updated.
        let is_reaped = group.has("--reap")
            && !(at == 0 && update)
            && self.entries[0]
                .stamps
                .last()
                .is_some_and(|last| is_old(*last));
        if is_reaped {
            self.entries.remove(0);
        }
        if update {
            self.stamp(at - usize::from(is_reaped), ttl, now);
        }
        holds
    }
}
