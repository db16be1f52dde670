//! Rules in the shadow: their verdicts compared with those of the rules that run (`rules_shadow.h`).
//!
//! A record that is still there after a grace period is that of a dropped packet, unless a queue of user
//! space has it: no other packet pauses at a hook.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use fairpath_core::rules::{NONE, action, needs};

use super::replace::queued;
use super::{HookRules, IP_FAMILIES, PAGE, SHADOW, links, monotonic};
use crate::arena;
use crate::rtt::wait_for_programs;

/// Facts that every record has.
pub(super) const NEEDS: u32 = needs::TIME | needs::NAMES;
/// Records of packets at hooks (`SHADOW_BUCKETS` * `SHADOW_ENTRIES`).
const RECORDS: usize = 8192 * 4;
/// Time for which a queue may keep a packet (`SHADOW_WAIT`).
const WAIT: Duration = Duration::from_secs(10);
/// Rules that disagree, each with a hook and a kind (`SHADOW_ROWS`).
pub const SHADOW_ROWS: usize = 1024;
/// Example packets of each.
pub const SHADOW_EXAMPLES: usize = 4;
/// Bytes of a packet in a record (`SHADOW_BYTES`).
const HEAD: usize = 128;
/// A key that is no address: the record has an owner, or is a complete example.
const WRITING: u64 = 1;

/// `struct rules_shadowed`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    key: u64,
    version: u64,
    time: u64,
    generation: u64,
    input: [u8; 16],
    output: [u8; 16],
    rule: u32,
    mark: u32,
    length: u32,
    captured: u32,
    family: u8,
    hook: u8,
    program: u8,
    verdict: u8,
    pad: u32,
    head: [u8; HEAD],
    spare: [u64; 5],
}

/// `struct rules_disagreement`.
#[repr(C)]
struct RuleRow {
    key: u64,
    count: u64,
    spare: [u64; 6],
    examples: [Record; SHADOW_EXAMPLES],
}

/// Packets of a hook and family by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ShadowOutcomes {
    /// Both accept.
    pub accepted: u64,
    /// Both drop.
    pub dropped: u64,
    /// Only these rules drop.
    pub ours: u64,
    /// Only those that run drop.
    pub theirs: u64,
    /// Those that run dropped before all of these tables were evaluated.
    pub early: u64,
    /// Not compared: too many records.
    pub full: u64,
    /// Not compared: accepted by those that run, without a record.
    pub unknown: u64,
    /// Disagree, and are in no [`Disagreement`]: there are too many.
    pub unlisted: u64,
}

impl ShadowOutcomes {
    /// Packets that were compared.
    pub fn compared(&self) -> u64 {
        self.accepted + self.dropped + self.ours + self.theirs + self.early
    }

    /// Adds the packets of another hook or CPU.
    pub fn add(&mut self, other: &ShadowOutcomes) {
        for (sum, one) in [
            (&mut self.accepted, other.accepted),
            (&mut self.dropped, other.dropped),
            (&mut self.ours, other.ours),
            (&mut self.theirs, other.theirs),
            (&mut self.early, other.early),
            (&mut self.full, other.full),
            (&mut self.unknown, other.unknown),
            (&mut self.unlisted, other.unlisted),
        ] {
            *sum += one;
        }
    }
}

const _: () = assert!(size_of::<Record>() == 256 && size_of::<RuleRow>() == 1088);

/// `struct rules_outcomes`.
type OfHooks = [[ShadowOutcomes; IP_FAMILIES]; links::HOOKS.len()];

/// The kind of a disagreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShadowKind {
    /// Only these rules drop.
    Ours,
    /// Only those that run drop.
    Theirs,
    /// Those that run dropped before all of these tables were evaluated.
    Early,
}

/// `SHADOW_OURS` and so on.
const KINDS: [(u64, ShadowKind); 3] = [
    (2, ShadowKind::Ours),
    (3, ShadowKind::Theirs),
    (4, ShadowKind::Early),
];

/// An example packet, at the first table of the hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowPacket {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Name of the input; empty: none.
    pub input: Vec<u8>,
    /// Of the output.
    pub output: Vec<u8>,
    /// The mark.
    pub mark: u32,
    /// Of the packet from its network header on.
    pub length: u32,
    /// The first of them.
    pub bytes: Vec<u8>,
    /// The verdict of these rules (`fairpath_core::rules::action`).
    pub verdict: u32,
}

/// Packets about which a rule and those that run disagree.
#[derive(Debug, Clone)]
pub struct Disagreement {
    /// The side that drops.
    pub kind: ShadowKind,
    /// The counter of the rule or policy that decided last. `None`: no rule did.
    pub id: Option<u32>,
    /// IPv4, else IPv6.
    pub is_ipv4: bool,
    /// `NF_INET_PRE_ROUTING` (0) to `NF_INET_POST_ROUTING` (4).
    pub hook: usize,
    /// Their number.
    pub packets: u64,
    /// The first ones, at most [`SHADOW_EXAMPLES`].
    pub examples: Vec<ShadowPacket>,
}

/// The verdicts of rules in the shadow next to those that run.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// By hook and family.
    pub outcomes: OfHooks,
    /// By rule; the most packets first.
    pub disagreements: Vec<Disagreement>,
    /// Packets that may wait in a queue of user space.
    pub waiting: u64,
}

/// Bytes of all parts: records, rows and outcomes of both places.
pub(super) fn bytes(cpus: usize) -> usize {
    OUTCOMES + 2 * cpus * size_of::<OfHooks>()
}

/// Offsets behind the records.
const ROWS: usize = RECORDS * size_of::<Record>();
const OUTCOMES: usize = ROWS + 2 * SHADOW_ROWS * size_of::<RuleRow>();

/// The key of a row.
fn key(kind: u64, record: &Record) -> u64 {
    let (family, hook) = (u64::from(record.family), u64::from(record.hook));
    1 << 63 | kind << 40 | family << 36 | hook << 32 | u64::from(record.rule)
}

impl Disagreement {
    /// `None`: the key is free.
    fn of(key: u64) -> Option<Disagreement> {
        let (_, kind) = KINDS
            .into_iter()
            .find(|(kind, _)| key >> 40 & 0xff == *kind)?;
        Some(Disagreement {
            kind,
            id: Some(key as u32).filter(|id| *id != NONE),
            is_ipv4: key >> 36 & 1 == 0,
            hook: (key >> 32 & 7).min(4) as usize,
            packets: 0,
            examples: Vec::new(),
        })
    }
}

impl ShadowPacket {
    fn of(record: &Record) -> ShadowPacket {
        let name = |name: &[u8; 16]| {
            let end = name.iter().position(|byte| *byte == 0);
            name[..end.unwrap_or(name.len())].to_vec()
        };
        ShadowPacket {
            time: record.time,
            input: name(&record.input),
            output: name(&record.output),
            mark: record.mark,
            length: record.length,
            bytes: record.head[..HEAD.min(record.captured as usize)].to_vec(),
            verdict: record.verdict.into(),
        }
    }
}

impl HookRules {
    /// True if the opened rules are in the shadow: they decide nothing.
    pub fn is_shadow(&self) -> bool {
        let programs = &self.header().programs[self.seen.place];
        let mut words = programs.iter().map(|word| word.load(Ordering::Acquire));
        words.any(|word| word & SHADOW != 0)
    }

    /// A new comparison for a place that no packet meets.
    pub(super) fn begin_comparison(&self, place: usize) {
        let cpus = self.header().cpus as usize;
        let shadow = self.parts().shadow;
        // SAFETY: load() reserved the addresses.
        let at = unsafe { self.base.add(shadow) };
        if self.header().shadow.load(Ordering::Acquire) == 0 {
            // Only rules in the shadow need these pages.
            let pages = (bytes(cpus) as u64).div_ceil(PAGE);
            // SAFETY: inside of the mapping; no program uses them before the number is stored.
            unsafe { arena::touch(at, pages) };
            self.header().shadow.store(shadow as u64, Ordering::Release);
        }
        let rows = SHADOW_ROWS * size_of::<RuleRow>();
        let outcomes = cpus * size_of::<OfHooks>();
        for (start, bytes) in [(ROWS, rows), (OUTCOMES, outcomes)] {
            // SAFETY: both places have the part.
            let part = unsafe { at.add(start + place * bytes) };
            // SAFETY: as above; the place has no generation, so programs count nothing there.
            unsafe { part.write_bytes(0, bytes) };
        }
    }

    /// Compares the verdicts of the opened rules with those of the rules that run. Takes grace periods.
    /// `None`: they are not in the shadow, or were replaced.
    pub fn comparison(&self) -> Option<Comparison> {
        if !self.is_shadow() || !self.is_current() {
            return None;
        }
        let present: Vec<_> = (0..RECORDS)
            .filter_map(|number| {
                let record = self.record(number)?;
                Some((number, record.key, record.version))
            })
            .collect();
        // All packets that had records are behind the hook then, or in a queue; those that left a queue in
        // between are behind it, too.
        wait_for_programs();
        let is_queue_empty = queued() == 0;
        wait_for_programs();
        let place = self.seen.place;
        let mut rows = self.rows(place);
        let mut outcomes = self.outcomes(place);
        let old = monotonic().saturating_sub(WAIT.as_nanos() as u64);
        let mut waiting = 0;
        for (number, key, version) in present {
            let record = self.record(number);
            let record = record.filter(|now| (now.key, now.version) == (key, version));
            let record = record.filter(|record| record.generation == self.seen.generation);
            match record {
                Some(record) if is_queue_empty || record.time < old => {
                    self.add_dropped(&record, &mut outcomes, &mut rows);
                }
                Some(_) => waiting += 1,
                None => {}
            }
        }
        let mut disagreements: Vec<_> = rows.into_values().collect();
        disagreements.sort_by_key(|row| (std::cmp::Reverse(row.packets), row.hook, row.id));
        self.is_current().then_some(Comparison {
            outcomes,
            disagreements,
            waiting,
        })
    }

    /// A packet that did not leave its hook: `judge()` of the programs.
    fn add_dropped(
        &self,
        record: &Record,
        outcomes: &mut OfHooks,
        rows: &mut HashMap<u64, Disagreement>,
    ) {
        let (hook, family) = (usize::from(record.hook), usize::from(record.family & 1));
        let Some(sums) = outcomes.get_mut(hook).map(|sums| &mut sums[family]) else {
            return;
        };
        if u32::from(record.verdict) != action::ACCEPT {
            sums.dropped += 1;
            return;
        }
        let drops = self.header().drops[self.seen.place][family].load(Ordering::Acquire);
        let later = usize::from(record.program) + 1..links::PROGRAMS.len() - 1;
        let mut later = later.map(|program| drops >> (program * links::HOOKS.len() + hook) & 1);
        let kind = match later.any(|bit| bit == 1) {
            true => {
                sums.early += 1;
                4
            }
            false => {
                sums.theirs += 1;
                3
            }
        };
        let key = key(kind, record);
        let new = Disagreement::of(key).expect("the kind is one of them");
        let row = rows.entry(key).or_insert(new);
        row.packets += 1;
        if row.examples.len() < SHADOW_EXAMPLES {
            row.examples.push(ShadowPacket::of(record));
        }
    }

    /// A part of the shadow's memory.
    fn part<T>(&self, offset: usize) -> NonNull<T> {
        // SAFETY: load() reserved the addresses, and callers name parts of them.
        unsafe { self.base.add(self.parts().shadow + offset) }.cast()
    }

    /// A record of a packet. `None`: it is free, or changes now.
    fn record(&self, number: usize) -> Option<Record> {
        let place = self.part::<Record>(number * size_of::<Record>());
        self.read_record(place)
            .filter(|record| record.key > WRITING)
    }

    /// Programs write it at the same time, so the first two words are compared.
    fn read_record(&self, place: NonNull<Record>) -> Option<Record> {
        // SAFETY: the record begins with its key, aligned to 8.
        let key = unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) };
        let before = key.load(Ordering::Acquire);
        if before == 0 {
            return None;
        }
        // SAFETY: the record is inside of the mapping.
        let record = unsafe { place.read_volatile() };
        fence(Ordering::Acquire);
        let whole = key.load(Ordering::Relaxed) == before && record.key == before;
        // SAFETY: as above.
        let again = unsafe { place.read_volatile() };
        (whole && again.version == record.version).then_some(record)
    }

    fn rows(&self, place: usize) -> HashMap<u64, Disagreement> {
        let mut out = HashMap::new();
        for number in 0..SHADOW_ROWS {
            let at = ROWS + (place * SHADOW_ROWS + number) * size_of::<RuleRow>();
            let words = self.part::<u64>(at).as_ptr();
            // SAFETY: the row begins with its key, aligned to 8.
            let key = unsafe { AtomicU64::from_ptr(words) }.load(Ordering::Acquire);
            let Some(mut row) = Disagreement::of(key) else {
                continue;
            };
            // SAFETY: the number of packets follows.
            let count = unsafe { words.add(1) };
            // SAFETY: aligned to 8.
            row.packets = unsafe { AtomicU64::from_ptr(count) }.load(Ordering::Acquire);
            let first = at + std::mem::offset_of!(RuleRow, examples);
            row.examples = (0..SHADOW_EXAMPLES)
                .filter_map(|example| {
                    let example = self.part(first + example * size_of::<Record>());
                    Some(ShadowPacket::of(&self.read_record(example)?))
                })
                .collect();
            out.insert(key, row);
        }
        out
    }

    fn outcomes(&self, place: usize) -> OfHooks {
        let cpus = self.header().cpus as usize;
        let mut sums = OfHooks::default();
        for cpu in 0..cpus {
            let at = OUTCOMES + (place * cpus + cpu) * size_of::<OfHooks>();
            // SAFETY: inside of the mapping; plain numbers, which programs add to at the same time.
            let one = unsafe { self.part::<OfHooks>(at).read_volatile() };
            let all = sums.iter_mut().flatten().zip(one.iter().flatten());
            all.for_each(|(sum, one)| sum.add(one));
        }
        sums
    }
}
