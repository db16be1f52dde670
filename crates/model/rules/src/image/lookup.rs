//! Tables that find the next rule of a long chain.
//!
//! ```text
//!   tuple: words and masks ── hash of the packet under them ── rules in order
//!   LOOKUP │ rule │ rule │ ... │ LEAVE │ END │ tuples, entries, lists
//! ```
//!
//! Each rule is in the table of its tuple, the words and masks that it compares. The evaluator asks
//! each table for the next rule, takes the first of them, and compares it in full, so a table may
//! have coarser masks than its rules: tuples with few rules merge (Daly et al., TupleMerge: Fast
//! Software Packet Processing for Online Packet Classification, IEEE/ACM ToN 2019). A rule that is
//! skipped fails a comparison, and those have no effect, so order, verdict and counters are exact.
//! Where tuples are many or lists long, prefixes of one field have another table (prefix.rs).
//!
//! Deliberately absent: trees that copy rules (HyperCuts, CutSplit), which a change would rebuild.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use fairpath_core::rules::{COMPARES, PROBES, TUPLES, UNIT, record, word};

use super::Lookups;
use super::encoded::{Encoded, put_record, write_runs};
use super::hash::{GROWTH, mix, place, seed};
use super::prefix::{self, Field, Prefixes};
use crate::tree::{Chain, ChainId, Family};

/// Rules from which on a chain may have tables.
pub const MIN_RULES: usize = 64;

/// Nanoseconds of a probe, a search among prefixes, a comparison of a rule, and a rule of a linear
/// walk: an estimate, only for the choice.
const PROBE: f64 = 12.0;
const SEARCH: f64 = 30.0;
const RULE: f64 = 3.0;
const LINEAR: f64 = 1.0;

/// Most tuples of a chain: one place is left for a table of prefixes.
const MOST_TUPLES: usize = TUPLES - 1;

/// The plan of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct ChainPlan {
    /// The table in the set.
    pub table: usize,
    /// The chain.
    pub chain: ChainId,
    /// Rules of the chain.
    pub rules: usize,
    /// The tables, if there are any.
    pub segment: Option<Segment>,
    /// Why, in words.
    pub reason: String,
}

/// Tables of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The fields of each table, in words.
    pub tuples: Vec<String>,
    /// Rules that have the same key, on average of rules.
    pub mean_list: f64,
}

/// Words and masks of a tuple, by number of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Signature {
    count: usize,
    words: [u32; COMPARES],
    masks: [u64; COMPARES],
}

impl Signature {
    fn parts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.words.into_iter().zip(self.masks).take(self.count)
    }
}

/// The values of a signature's words.
type Key = [u64; COMPARES];

/// A key in a tuple, and its rules in order.
type Lists = HashMap<Key, Vec<u32>, Keyed>;

/// A hash of words.
#[derive(Clone, Copy)]
struct Keyed(u64);

impl Default for Keyed {
    fn default() -> Self {
        Self(seed(0))
    }
}

impl BuildHasher for Keyed {
    type Hasher = Keyed;

    fn build_hasher(&self) -> Keyed {
        *self
    }
}

impl Hasher for Keyed {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Chosen tuples, or none.
pub struct Plan {
    prefixes: Option<Prefixes>,
    tuples: Vec<Table>,
    mean_list: f64,
    estimate: f64,
    why_linear: Option<String>,
}

/// Ways to make masks coarser.
const LEVELS: u32 = 4;

fn coarse(level: u32, word_at: u32, mask: u64) -> u64 {
    let address = word_at as usize <= word::ADDR3;
    let bytes = |mask: u64| {
        (0..8)
            .map(|at| 0xffu64 << (8 * at))
            .filter(|byte| mask & byte == *byte)
            .fold(0, |all, byte| all | byte)
    };
    match level {
        0 => mask,
        1 if address => bytes(mask),
        1 => mask,
        2 if address || word_at as usize == word::L4 => bytes(mask),
        _ if address => bytes(mask),
        _ => 0,
    }
}

fn signature(rules: &Encoded, at: usize, level: u32) -> (Signature, Key) {
    let mut parts = [(u32::MAX, 0u64, 0u64); COMPARES];
    let mut count = 0;
    for (shape, mask, value) in rules.compares(&rules.records[at]) {
        let mask = coarse(level, shape & 15, mask);
        if shape & 16 != 0 || mask == 0 {
            continue;
        }
        match parts[..count].iter_mut().find(|part| part.0 == shape & 15) {
            Some(part) => {
                part.1 |= mask;
                part.2 |= value & mask;
            }
            None => {
                parts[count] = (shape & 15, mask, value & mask);
                count += 1;
            }
        }
    }
    parts[..count].sort_unstable();
    let mut signature = Signature {
        count,
        ..Signature::default()
    };
    let mut key = Key::default();
    for (place, (word, mask, value)) in parts[..count].iter().enumerate() {
        (signature.words[place], signature.masks[place]) = (*word, *mask);
        key[place] = *value;
    }
    (signature, key)
}

/// True if no more than two keys are different, so that a table would hold long lists.
fn is_uniform(rules: &Encoded) -> bool {
    let mut keys = std::collections::HashSet::with_hasher(Keyed::default());
    (0..rules.records.len()).all(|at| {
        keys.insert(signature(rules, at, 0));
        keys.len() <= 2
    })
}

/// Tuples of a chain, or of the rules that are not in a table of prefixes.
struct Tuples {
    list: Vec<(Signature, Lists)>,
    estimate: Estimate,
}

/// The estimated cost of a packet.
#[derive(Clone, Copy, Default)]
struct Estimate {
    rules: usize,
    /// Sum over rules of the rules that a packet for this one is compared with.
    compared: f64,
    /// Rules that every packet is compared with.
    always: usize,
    /// Nanoseconds of a lookup.
    lookup: f64,
}

impl Estimate {
    fn mean_list(self) -> f64 {
        self.compared / self.rules as f64
    }

    fn ns(self) -> f64 {
        (1.0 + self.mean_list() + self.always as f64) * (self.lookup + RULE)
    }
}

/// Tuples of some rules. `rest` is the cost of the others.
fn tuples_of(rules: &[(u32, Signature, Key)], rest: Estimate) -> Option<Tuples> {
    let mut index: HashMap<Signature, usize, Keyed> = HashMap::default();
    let mut list: Vec<(Signature, Lists)> = Vec::new();
    for (rule, signature, key) in rules {
        let tuple = *index.entry(*signature).or_insert_with(|| {
            list.push((*signature, Lists::default()));
            list.len() - 1
        });
        if list.len() > MOST_TUPLES {
            return None;
        }
        list[tuple].1.entry(*key).or_default().push(*rule);
    }
    let mut estimate = rest;
    estimate.rules += rules.len();
    estimate.lookup += list.len() as f64 * PROBE;
    for (signature, lists) in &list {
        for rules in lists.values() {
            estimate.compared += (rules.len() * rules.len()) as f64;
            if signature.count == 0 {
                estimate.always += rules.len();
            }
        }
    }
    Some(Tuples { list, estimate })
}

fn signatures(rules: &Encoded, some: &[u32], level: u32) -> Vec<(u32, Signature, Key)> {
    let signed = |rule: &u32| {
        let (signature, key) = signature(rules, *rule as usize, level);
        (*rule, signature, key)
    };
    some.iter().map(signed).collect()
}

/// The best tuples of some rules.
fn best_tuples(rules: &Encoded, some: &[u32], rest: Estimate) -> Option<Tuples> {
    let mut best: Option<Tuples> = None;
    let mut before = None;
    for level in 0..LEVELS {
        let signatures = signatures(rules, some, level);
        // The same masks give the same tables.
        if before.as_ref() == Some(&signatures) {
            continue;
        }
        let tuples = tuples_of(&signatures, rest);
        before = Some(signatures);
        if let Some(tuples) = tuples
            && best
                .as_ref()
                .is_none_or(|best| tuples.estimate.ns() < best.estimate.ns())
        {
            best = Some(tuples);
        }
    }
    best
}

/// A table of the prefixes of one field, and tuples of the other rules.
fn with_prefixes(rules: &Encoded, field: Field, least: usize) -> Option<(Prefixes, Tuples)> {
    let mut prefixes = Vec::new();
    let mut others = Vec::new();
    for at in 0..rules.records.len() {
        match field.prefix_of(rules, at) {
            Some(prefix) => prefixes.push(prefix),
            None => others.push(at as u32),
        }
    }
    if prefixes.len() < least {
        return None;
    }
    let table = Prefixes::new(field, prefixes)?;
    let rest = Estimate {
        rules: rules.records.len() - others.len(),
        compared: table.compared,
        always: 0,
        lookup: SEARCH,
    };
    let tuples = best_tuples(rules, &others, rest)?;
    Some((table, tuples))
}

/// The tables of a chain, or why it has none. None for short chains.
pub fn plan(rules: &Encoded, family: Family, lookups: Lookups) -> Option<Plan> {
    let number = rules.records.len();
    match lookups {
        Lookups::Estimated if number >= MIN_RULES => Some(estimated(rules, family)),
        Lookups::Always if number > 0 => any(rules, family).and_then(Plan::of),
        _ => None,
    }
}

type Tables = (Option<Prefixes>, Tuples);

impl Plan {
    fn of((prefixes, tuples): Tables) -> Option<Plan> {
        let tables = tuples
            .list
            .iter()
            .map(|(signature, lists)| Table::new(*signature, lists));
        Some(Plan {
            prefixes,
            tuples: tables.collect::<Option<_>>()?,
            mean_list: tuples.estimate.mean_list(),
            estimate: tuples.estimate.ns(),
            why_linear: None,
        })
    }
}

/// Chooses by an estimate of the cost of a packet.
fn estimated(rules: &Encoded, family: Family) -> Plan {
    let linear = rules.records.len() as f64 * LINEAR;
    let none = |why: String| Plan {
        prefixes: None,
        tuples: Vec::new(),
        mean_list: 0.0,
        estimate: linear,
        why_linear: Some(why),
    };
    if is_uniform(rules) {
        return none("its rules compare no more than two different keys".to_owned());
    }
    let ns = |best: &Option<Tables>| {
        best.as_ref()
            .map_or(f64::INFINITY, |(_, tuples)| tuples.estimate.ns())
    };
    let mut best = best_tuples(rules, &all(rules), Estimate::default()).map(|best| (None, best));
    // Not cheaper than two tuples without lists.
    if ns(&best) > 2.0 * (SEARCH + RULE) {
        for field in prefix::fields(family) {
            if let Some((table, tuples)) = with_prefixes(rules, field, MIN_RULES)
                && tuples.estimate.ns() < ns(&best)
            {
                best = Some((Some(table), tuples));
            }
        }
    }
    let estimate = ns(&best);
    match best {
        None => none(format!(
            "its rules compare more than {MOST_TUPLES} sets of fields"
        )),
        Some(_) if estimate >= linear => none(format!(
            "a lookup is estimated at {estimate:.0} ns, {} rules in order at {linear:.0} ns",
            rules.records.len()
        )),
        Some(tables) => {
            Plan::of(tables).unwrap_or_else(|| none("the keys of its rules collide".to_owned()))
        }
    }
}

/// Tables of a kind that depends on the number of rules, so that sets of tests have all kinds.
fn any(rules: &Encoded, family: Family) -> Option<Tables> {
    let number = rules.records.len();
    let prefixes = prefix::fields(family)
        .into_iter()
        .find_map(|field| with_prefixes(rules, field, 1))
        .filter(|_| number.is_multiple_of(2));
    match prefixes {
        Some((table, tuples)) => Some((Some(table), tuples)),
        None => {
            let level = number as u32 / 2 % LEVELS;
            let signatures = signatures(rules, &all(rules), level);
            Some((None, tuples_of(&signatures, Estimate::default())?))
        }
    }
}

fn all(rules: &Encoded) -> Vec<u32> {
    (0..rules.records.len() as u32).collect()
}

/// Rules that were written, and the place of their lookup.
pub struct Pending<'a> {
    start: usize,
    /// Offsets of rules from the lookup.
    offsets: Vec<u32>,
    end: u32,
    plan: &'a Plan,
}

/// Writes the rules of a chain, with a lookup before them if the plan has tuples.
pub fn write<'a>(rules: &Encoded, plan: &'a Plan, out: &mut Vec<u8>) -> Option<Pending<'a>> {
    if plan.why_linear.is_some() {
        write_runs(rules, 0..rules.records.len(), out);
        return None;
    }
    let start = out.len();
    put_record(out, 1, record::LOOKUP, 0, 0, 0, 0);
    let mut offsets = Vec::with_capacity(rules.records.len());
    for rule in &rules.records {
        offsets.push((out.len() - start) as u32);
        out.extend_from_slice(rules.bytes_of(rule));
    }
    let end = (out.len() - start) as u32;
    put_record(out, 1, record::LEAVE, 0, 0, 0, 0);
    Some(Pending {
        start,
        offsets,
        end,
        plan,
    })
}

/// The hash of the core (`fp_rules_hash`).
fn hash(seed: u64, key: &Key, count: usize) -> u32 {
    let words = key.iter().take(count);
    let sum = words.fold(seed, |sum, word| mix(sum ^ word));
    ((sum >> 32) as u32).max(1)
}

/// Appends the tables of a chain after its end.
pub fn write_tables(pending: Option<Pending>, out: &mut Vec<u8>) {
    let Some(pending) = pending else { return };
    let start = pending.start;
    let lookup = (out.len() - start) as u32;
    out[start + 12..start + 16].copy_from_slice(&lookup.to_le_bytes());
    let Plan {
        prefixes, tuples, ..
    } = pending.plan;
    let words = tuples
        .iter()
        .flat_map(|table| table.signature.parts())
        .map(|(word, _)| 1 << word)
        .chain(prefixes.iter().map(|table| table.field.bit()))
        .fold(0u32, |all, bit| all | bit);
    let first = pending.offsets.first().copied().unwrap_or(pending.end);
    let number = usize::from(prefixes.is_some()) + tuples.len();
    for word in [number as u32, pending.end, first, words] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    const TUPLE: usize = 80;
    let mut header = out.len();
    out.resize(header + number * TUPLE, 0);
    if let Some(table) = prefixes {
        table.write(out, start, header, &pending.offsets);
        header += TUPLE;
    }
    for table in tuples {
        let entries = out.len();
        let shape = table
            .signature
            .parts()
            .enumerate()
            .fold(0u32, |all, (at, (word, _))| all | word << (5 * at));
        let fields = [
            shape,
            table.signature.count as u32,
            table.slots.len() as u32 - 1,
            (entries - start) as u32,
        ];
        for (at, word) in fields.into_iter().enumerate() {
            put(out, header + 4 * at, word);
        }
        for (at, (_, mask)) in table.signature.parts().enumerate() {
            put64(out, header + 16 + 8 * at, mask);
        }
        put64(out, header + 64, table.seed);
        out.resize(entries + table.slots.len() * 8, 0);
        for (at, slot) in table.slots.iter().enumerate() {
            if let Some((hash, rules)) = slot.map(|at| &table.lists[at as usize]) {
                let list = put_list(out, start, rules, &pending.offsets);
                put(out, entries + 8 * at, *hash);
                put(out, entries + 8 * at + 4, list);
            }
        }
        out.resize(out.len().next_multiple_of(8), 0);
        header += TUPLE;
    }
    out.resize(out.len().next_multiple_of(UNIT), 0);
}

pub fn put(out: &mut [u8], at: usize, word: u32) {
    out[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

pub fn put64(out: &mut [u8], at: usize, word: u64) {
    out[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// The place of some rules: of a single one, or of a list that is appended.
pub fn put_list(out: &mut Vec<u8>, segment: usize, rules: &[u32], offsets: &[u32]) -> u32 {
    if let [rule] = rules {
        return offsets[*rule as usize] | 1;
    }
    let at = (out.len() - segment) as u32;
    out.extend_from_slice(&(rules.len() as u32).to_le_bytes());
    for rule in rules {
        out.extend_from_slice(&offsets[*rule as usize].to_le_bytes());
    }
    at
}

/// The table of a tuple: open addressing in which every key is near its place.
struct Table {
    signature: Signature,
    /// Number of different ones.
    keys: usize,
    seed: u64,
    /// Hashes with their rules in order. Keys with equal hashes share a list.
    lists: Vec<(u32, Vec<u32>)>,
    /// Numbers of lists.
    slots: Vec<Option<u32>>,
}

impl Table {
    /// None if some keys collide under every seed.
    fn new(signature: Signature, lists: &Lists) -> Option<Table> {
        GROWTH
            .into_iter()
            .find_map(|growth| {
                let seed = seed(growth);
                let lists = hashed(lists, seed, signature.count)?;
                let hashes = lists.iter().map(|(hash, _)| *hash);
                let slots = place(hashes, lists.len(), growth, PROBES)?;
                Some((seed, lists, slots))
            })
            .map(|(seed, hashed, slots)| Table {
                signature,
                keys: lists.len(),
                seed,
                lists: hashed,
                slots,
            })
    }
}

/// Most keys with one hash of 32 bits: with a million keys, three are rare.
const MOST_EQUAL: usize = 4;

/// Rules by hash. None if more keys have one hash.
fn hashed(lists: &Lists, seed: u64, count: usize) -> Option<Vec<(u32, Vec<u32>)>> {
    let mut parts: Vec<(u32, &[u32])> = lists
        .iter()
        .map(|(key, rules)| (hash(seed, key, count), &rules[..]))
        .collect();
    parts.sort_unstable();
    let equal = parts.chunk_by(|(a, _), (b, _)| a == b);
    equal
        .map(|equal| {
            if equal.len() > MOST_EQUAL {
                return None;
            }
            let mut rules: Vec<u32> = equal
                .iter()
                .flat_map(|(_, rules)| *rules)
                .copied()
                .collect();
            rules.sort_unstable();
            Some((equal[0].0, rules))
        })
        .collect()
}

/// The name of a field.
fn field(word_at: u32, mask: u64) -> String {
    let parts: Vec<&str> = match word_at as usize {
        word::ADDR => [(0xffff_ffff, "source"), (0xffff_ffff << 32, "destination")]
            .iter()
            .filter(|(bits, _)| mask & bits != 0)
            .map(|(_, name)| *name)
            .collect(),
        word::ADDR1 => vec!["source (second half)"],
        word::ADDR2 | word::ADDR3 => vec!["destination"],
        word::L4 => [
            (0xffu64, "protocol"),
            (0xffff << 16, "source port"),
            (0xffff << 32, "destination port"),
            (0xff << 48, "TCP flags"),
        ]
        .iter()
        .filter(|(bits, _)| mask & bits != 0)
        .map(|(_, name)| *name)
        .collect(),
        word::IN | word::IN1 => vec!["input interface"],
        word::OUT | word::OUT1 => vec!["output interface"],
        word::SMAC => vec!["link-layer source"],
        word::DMAC => vec!["link-layer destination"],
        word::MARK => vec!["mark"],
        word::TYPE => vec!["address type"],
        word::ARP => vec!["ARP header"],
        _ => vec!["state, TOS or TTL"],
    };
    let bits = mask.count_ones();
    let all = matches!(word_at as usize, word::ADDR..=word::ADDR3);
    let name = parts.join(", ");
    if all {
        format!("{name} ({bits} bits)")
    } else {
        name
    }
}

/// The plan of a chain in words.
pub fn describe(table: usize, id: ChainId, chain: &Chain, plan: &Plan) -> ChainPlan {
    let rules = chain.rules.len();
    let segment = plan.why_linear.is_none().then(|| Segment {
        tuples: plan
            .prefixes
            .iter()
            .map(Prefixes::describe)
            .chain(plan.tuples.iter().map(|table| {
                let fields: Vec<String> = table
                    .signature
                    .parts()
                    .map(|(word, mask)| field(word, mask))
                    .collect();
                let fields = if fields.is_empty() {
                    "no field".to_owned()
                } else {
                    fields.join(" + ")
                };
                format!("{fields}: {} keys", table.keys)
            }))
            .collect(),
        mean_list: plan.mean_list,
    });
    let reason = match &plan.why_linear {
        Some(why) => format!("in order: {why}"),
        None => format!(
            "tables: a lookup is estimated at {:.0} ns, {rules} rules in order at {:.0} ns",
            plan.estimate,
            rules as f64 * LINEAR
        ),
    };
    ChainPlan {
        table,
        chain: id,
        rules,
        segment,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each seed, keys that share a place.
    #[test]
    fn keys_made_to_collide_have_no_table() {
        let number = 40 * GROWTH.count();
        let mut lists = Lists::default();
        for growth in GROWTH {
            let seed = seed(growth);
            let size = number.next_power_of_two() << growth;
            let colliding = (0..u64::MAX)
                .map(|address| [address, 0, 0, 0, 0, 0])
                .filter(|key| hash(seed, key, 1) as usize & (size - 1) == 0)
                .filter(|key| !lists.contains_key(key));
            let colliding: Vec<Key> = colliding.take(40).collect();
            for key in colliding {
                lists.insert(key, vec![lists.len() as u32]);
            }
        }
        assert_eq!(lists.len(), number);
        let signature = Signature {
            count: 1,
            ..Signature::default()
        };
        assert!(Table::new(signature, &lists).is_none());
        let hashes = hashed(&lists, seed(77), 1).expect("few equal ones");
        let hashes: Vec<u32> = hashes.iter().map(|(hash, _)| *hash).collect();
        assert!(
            place(hashes.clone().into_iter(), hashes.len(), 1, PROBES).is_some(),
            "another seed"
        );
    }
}
