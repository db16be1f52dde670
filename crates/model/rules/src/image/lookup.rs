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
//!
//! Deliberately absent: trees that copy rules (HyperCuts, CutSplit), which a change would rebuild.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use fairpath_core::rules::{COMPARES, PROBES, TUPLES, UNIT, record, word};

use super::put_record;
use super::rule::Encoded;
use crate::tree::{Chain, ChainId};

/// Rules from which on a chain may have tables.
pub const MIN_RULES: usize = 64;

/// Nanoseconds of a probe, a comparison of a rule, and a rule of a linear walk: an estimate, only for
/// the choice.
const PROBE: f64 = 12.0;
const RULE: f64 = 3.0;
const LINEAR: f64 = 1.0;

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
    /// The fields of each tuple, in words.
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

/// A hash of words. Its seed is random, because rules may come from files of others.
#[derive(Clone, Copy)]
struct Keyed(u64);

impl Default for Keyed {
    fn default() -> Self {
        static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        Self(*SEED)
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
        self.0 = super::set::mix(self.0 ^ word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Chosen tuples, or none.
pub struct Plan {
    tuples: Vec<(Signature, Lists)>,
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

/// Rules that are compared before all are: equal ones need no tables.
const SAMPLE: usize = 64;

/// True if a sample of rules has almost no different keys, so that a table would hold long lists.
fn is_uniform(rules: &Encoded) -> bool {
    let step = (rules.records.len() / SAMPLE).max(1);
    let keys: std::collections::HashSet<(Signature, Key)> = (0..rules.records.len())
        .step_by(step)
        .map(|at| signature(rules, at, 0))
        .collect();
    keys.len() <= 2
}

fn plan_level(rules: &[(Signature, Key)]) -> Option<Plan> {
    let mut index: HashMap<Signature, usize, Keyed> = HashMap::default();
    let mut tuples: Vec<(Signature, Lists)> = Vec::new();
    for (at, (signature, key)) in rules.iter().enumerate() {
        let tuple = *index.entry(*signature).or_insert_with(|| {
            tuples.push((*signature, Lists::default()));
            tuples.len() - 1
        });
        if tuples.len() > TUPLES {
            return None;
        }
        tuples[tuple].1.entry(*key).or_default().push(at as u32);
    }
    let total = rules.len() as f64;
    let squares: f64 = tuples
        .iter()
        .flat_map(|(_, lists)| lists.values())
        .map(|list| (list.len() * list.len()) as f64)
        .sum();
    let mean_list = squares / total;
    // Rules that every packet meets are looked up for each packet.
    let always: usize = tuples
        .iter()
        .filter(|(signature, _)| signature.count == 0)
        .flat_map(|(_, lists)| lists.values())
        .map(Vec::len)
        .sum();
    let lookup = tuples.len() as f64 * PROBE;
    let estimate = (1.0 + mean_list + always as f64) * (lookup + RULE);
    Some(Plan {
        tuples,
        mean_list,
        estimate,
        why_linear: None,
    })
}

/// Chooses the tuples of a chain by an estimate of the cost of a packet.
pub fn plan(rules: &Encoded) -> Plan {
    let linear = rules.records.len() as f64 * LINEAR;
    let mut best: Option<Plan> = None;
    let none = |why: String| Plan {
        tuples: Vec::new(),
        mean_list: 0.0,
        estimate: linear,
        why_linear: Some(why),
    };
    if is_uniform(rules) {
        return none("nearly all of its rules compare the same".to_owned());
    }
    let mut before = Vec::new();
    for level in 0..LEVELS {
        let signatures: Vec<(Signature, Key)> = (0..rules.records.len())
            .map(|at| signature(rules, at, level))
            .collect();
        // The same masks give the same tables.
        if signatures == before {
            continue;
        }
        let plan = plan_level(&signatures);
        before = signatures;
        if let Some(plan) = plan
            && best
                .as_ref()
                .is_none_or(|best| plan.estimate < best.estimate)
        {
            best = Some(plan);
        }
    }
    match best {
        None => none(format!(
            "its rules compare more than {TUPLES} sets of fields"
        )),
        Some(plan) if plan.estimate >= linear => none(format!(
            "a lookup is estimated at {:.0} ns, {} rules in order at {linear:.0} ns",
            plan.estimate,
            rules.records.len()
        )),
        Some(plan) => plan,
    }
}

/// Rules that were written, and the place of their lookup.
pub struct Pending<'a> {
    start: usize,
    /// Offsets of rules from the lookup.
    offsets: Vec<u32>,
    end: u32,
    tuples: &'a [(Signature, Lists)],
}

/// Writes the rules of a chain, with a lookup before them if the plan has tuples.
pub fn write<'a>(rules: &Encoded, plan: &'a Plan, out: &mut Vec<u8>) -> Option<Pending<'a>> {
    if plan.tuples.is_empty() {
        super::write_runs(rules, 0..rules.records.len(), out);
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
        tuples: &plan.tuples,
    })
}

/// The hash of the core (`fp_rules_hash`).
fn hash(seed: u64, key: &Key, count: usize) -> u32 {
    let mut sum = seed;
    for (at, word) in key.iter().enumerate() {
        if at < count {
            sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        sum ^= sum >> 29;
    }
    (sum >> 32) as u32 | 1
}

/// Appends the tables of a chain after its end.
pub fn write_tables(pending: Option<Pending>, out: &mut Vec<u8>) {
    let Some(pending) = pending else { return };
    let start = pending.start;
    let lookup = (out.len() - start) as u32;
    out[start + 12..start + 16].copy_from_slice(&lookup.to_le_bytes());
    let words = pending
        .tuples
        .iter()
        .flat_map(|(signature, _)| signature.parts())
        .fold(0u32, |all, (word, _)| all | 1 << word);
    let first = pending.offsets.first().copied().unwrap_or(pending.end);
    for word in [pending.tuples.len() as u32, pending.end, first, words] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let headers = out.len();
    const TUPLE: usize = 80;
    out.resize(headers + pending.tuples.len() * TUPLE, 0);
    for (at, (signature, lists)) in pending.tuples.iter().enumerate() {
        let table = place(lists, signature.count);
        let entries = (out.len() - start) as u32;
        let header = headers + at * TUPLE;
        let shape = signature
            .parts()
            .enumerate()
            .fold(0u32, |all, (at, (word, _))| all | word << (5 * at));
        let fields = [
            shape,
            signature.count as u32,
            table.slots.len() as u32 - 1,
            entries,
        ];
        for (at, word) in fields.iter().enumerate() {
            out[header + 4 * at..header + 4 * at + 4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, (_, mask)) in signature.parts().enumerate() {
            let place = header + 16 + 8 * at;
            out[place..place + 8].copy_from_slice(&mask.to_le_bytes());
        }
        out[header + 64..header + 72].copy_from_slice(&table.seed.to_le_bytes());
        let mut list_at = entries as usize + table.slots.len() * 8;
        let mut lists = Vec::new();
        for slot in &table.slots {
            let (hash, list) = match slot.map(|at| &table.keys[at as usize]) {
                None => (0, 0),
                Some((hash, rules)) if rules.len() == 1 => {
                    (*hash, pending.offsets[rules[0] as usize] | 1)
                }
                Some((hash, rules)) => {
                    let at = list_at as u32;
                    lists.push(rules.len() as u32);
                    lists.extend(rules.iter().map(|rule| pending.offsets[*rule as usize]));
                    list_at += 4 * (1 + rules.len());
                    (*hash, at)
                }
            };
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(&list.to_le_bytes());
        }
        for word in &lists {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(8), 0);
    }
    out.resize(out.len().next_multiple_of(UNIT), 0);
}

struct Placed<'a> {
    seed: u64,
    /// Hashes with their rules in order.
    keys: Vec<(u32, Cow<'a, [u32]>)>,
    /// Numbers of them.
    slots: Vec<Option<u32>>,
}

/// Open addressing in which every hash is near its place. Keys with equal hashes share a list.
fn place(lists: &Lists, count: usize) -> Placed<'_> {
    let seed = super::set::mix(lists.len() as u64 + 1);
    let mut keys: Vec<(u32, Cow<[u32]>)> = lists
        .iter()
        .map(|(key, rules)| (hash(seed, key, count), Cow::from(rules)))
        .collect();
    // The image of the same rules is the same in every process.
    keys.sort_unstable();
    keys.dedup_by(|(hash, rules), (before, all)| {
        let equal = hash == before;
        if equal {
            all.to_mut().extend_from_slice(rules);
            all.to_mut().sort_unstable();
        }
        equal
    });
    let mut size = (keys.len() * 2).next_power_of_two();
    'larger: loop {
        let mut slots = vec![None; size];
        for (at, (hash, _)) in keys.iter().enumerate() {
            let free = (0..PROBES.min(size))
                .map(|step| (*hash as usize + step) & (size - 1))
                .find(|slot| slots[*slot].is_none());
            match free {
                Some(slot) => slots[slot] = Some(at as u32),
                None => {
                    size *= 2;
                    continue 'larger;
                }
            }
        }
        return Placed { seed, keys, slots };
    }
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
            .tuples
            .iter()
            .map(|(signature, lists)| {
                let fields: Vec<String> = signature
                    .parts()
                    .map(|(word, mask)| field(word, mask))
                    .collect();
                let fields = if fields.is_empty() {
                    "no field".to_owned()
                } else {
                    fields.join(" + ")
                };
                format!("{fields}: {} keys", lists.len())
            })
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
