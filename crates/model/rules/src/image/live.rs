//! A set and its image, edited together while packets are evaluated.
//!
//! ```text
//!   edits ── transaction on the tree ── chains that changed ── their blobs ──> LiveImage, Patch
//!                 '── refused: undone          '── no space ── whole build ──> LiveImage, Carry
//! ```
//!
//! An edit costs what the chains cost that it changes. Records of rules that stay are copied, so they
//! keep their ids of counters and their slots of state. The records are the only place of these
//! numbers: ids and slots of rules that an edit removed are given to new ones.
//!
//! A rule stays if its chain had a rule with the same matches and target before the transaction. So a
//! chain that is flushed and filled again keeps the state of equal rules.
//!
//! Memory is bounded: an image has an eighth more chains, ids, slots and bytes than it uses (at
//! least [`SPARE`], and [`SPACE`] bytes). A transaction that needs more builds the image again, without gaps.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use fairpath_core::rules::{Carry, LiveImage, NONE, Patch, ReplaceError, UNIT, record, test};

use super::encoded::Encoded;
use super::rule::Encoder;
use super::table::Tables;
use super::{BuildError, Builder, CHAIN_HEADER, ChainEnd, Lookups, MAX_BYTES, entries};
use crate::names::Names;
use crate::place::ReadError;
use crate::read::{same, transact};
use crate::sets::Sets;
use crate::tree::{Chain, ChainId, Item, Journal, Rule, Ruleset, Table, Target};

/// Chains, ids and slots that an image has at least for edits.
pub const SPARE: u32 = 64;
/// Bytes that it has at least.
pub const SPACE: usize = 1 << 16;

/// Spare chains, ids or slots for edits.
pub(super) fn spare(count: u32) -> u32 {
    count / 8 + SPARE
}

/// A set with an image that follows its edits.
pub struct Live<'a> {
    ruleset: Ruleset,
    sets: Option<&'a Sets>,
    lookups: Lookups,
    image: LiveImage,
    encoder: Encoder<'a>,
    chain_base: Vec<u32>,
    ids: Ids,
    /// Slots of removed rules, which packets may still use.
    retired_slots: Vec<u32>,
}

/// Numbers of counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids {
    pub next: u32,
    free: Vec<u32>,
    /// Those of removed rules, which packets may still use.
    retired: Vec<u32>,
}

impl Ids {
    /// From this one on.
    pub fn from(next: u32) -> Ids {
        Ids {
            next,
            ..Ids::default()
        }
    }

    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

/// The effect of a transaction on the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// Parts of the image changed: [`fairpath_core::rules::Memory::apply`] copies them.
    Patch(Patch),
    /// The image is a new one: [`fairpath_core::rules::Memory::carry`] takes the state.
    Rebuilt(Carry),
}

/// A transaction was refused. Set and image are as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text has problems.
    #[error("{} ({} problems; nothing was changed)", problems[0], problems.len() as u64 + more)]
    Text {
        /// At least one.
        problems: Vec<ReadError>,
        /// Problems that are not kept.
        more: u64,
    },
    /// The set became too large.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A new jump leads back to its chain.
    #[error(
        "line {line}: the rule in chain {chain} of table {table} leads back to its chain: remove the jump"
    )]
    Loop {
        /// Name of the table.
        table: String,
        /// Name of the chain.
        chain: String,
        /// Line in the edit.
        line: u32,
    },
}

/// State of the encoder before an edit.
struct Saved {
    ids: Ids,
    slots: usize,
    free_slots: Vec<u32>,
    tables: Tables,
    sets: usize,
}

impl<'a> Live<'a> {
    /// Builds the image of a set.
    ///
    /// # Errors
    ///
    /// [`BuildError`]: the set is too large.
    pub fn new(
        ruleset: Ruleset,
        sets: Option<&'a Sets>,
        lookups: Lookups,
    ) -> Result<Self, BuildError> {
        let (image, encoder, chain_base, ids) = build(&ruleset, sets, lookups)?;
        Ok(Self {
            ruleset,
            sets,
            lookups,
            image,
            encoder,
            chain_base,
            ids,
            retired_slots: Vec::new(),
        })
    }

    /// The set.
    pub fn ruleset(&self) -> &Ruleset {
        &self.ruleset
    }

    /// The image.
    pub fn image(&self) -> &LiveImage {
        &self.image
    }

    /// First values of all slots, for a new memory.
    pub fn states(&self) -> &[u64] {
        &self.encoder.states
    }

    /// The number in the image of a chain.
    pub fn chain_number(&self, table: usize, chain: ChainId) -> u32 {
        self.chain_base[table] + chain.0
    }

    /// The ids of the counters of a chain's rules, in order. O(bytes of the chain).
    pub fn rule_ids(&self, table: usize, chain: ChainId) -> Vec<u32> {
        let blob = self.image.chain(self.chain_number(table, chain));
        records(blob).map(|record| number(record, 12)).collect()
    }

    /// The id of the counter of a base chain's policy.
    pub fn policy_id(&self, table: usize, chain: ChainId) -> Option<u32> {
        let id = number(self.image.chain(self.chain_number(table, chain)), 4);
        (id != NONE).then_some(id)
    }

    /// The slots of state of a chain's rules, in order. O(bytes of the chain).
    pub fn slots(&self, table: usize, chain: ChainId) -> Vec<u32> {
        let blob = self.image.chain(self.chain_number(table, chain));
        records(blob).flat_map(slots).collect()
    }

    /// Applies lines of `iptables-restore --noflush` as one transaction: all of them, or none.
    ///
    /// # Errors
    ///
    /// [`EditError`]: set and image are as before.
    pub fn apply(&mut self, text: &[u8], file: &str, names: &Names) -> Result<Applied, EditError> {
        let tables = self.ruleset.tables.len();
        let family = self.ruleset.family;
        let ruleset = std::mem::replace(&mut self.ruleset, Ruleset::new(family));
        let reading = transact(ruleset, &mut { text }, file, names, true)
            .expect("bytes in memory can be read");
        self.ruleset = reading.ruleset;
        let result = match reading.problems.is_empty() {
            true => self.commit(tables),
            false => Err(EditError::Text {
                problems: reading.problems,
                more: reading.more_problems,
            }),
        };
        match result {
            Ok(_) => self.ruleset.tables.iter_mut().for_each(Table::keep),
            Err(_) => {
                self.ruleset.tables.truncate(tables);
                self.ruleset.tables.iter_mut().for_each(Table::undo);
            }
        }
        result
    }

    /// Releases what earlier transactions replaced: blobs, ids and slots. The caller knows that no
    /// packet reads them any more: natively at once, in the kernel after a grace period. Without it
    /// each transaction takes new space.
    pub fn reclaim(&mut self) {
        self.image.reclaim();
        self.ids.free.append(&mut self.ids.retired);
        self.encoder.free_slots.append(&mut self.retired_slots);
    }

    fn commit(&mut self, tables: usize) -> Result<Applied, EditError> {
        for table in &self.ruleset.tables {
            find_loop(table)?;
        }
        let saved = Saved {
            ids: self.ids.clone(),
            slots: self.encoder.states.len(),
            free_slots: self.encoder.free_slots.clone(),
            tables: self.encoder.tables.clone(),
            sets: self.encoder.sets.len(),
        };
        let problem = match self.patch(tables, &saved) {
            Ok(Some(patch)) => return Ok(Applied::Patch(patch)),
            Ok(None) => match self.rebuild(&saved) {
                Ok(carry) => return Ok(Applied::Rebuilt(carry)),
                Err(problem) => problem,
            },
            Err(problem) => problem,
        };
        self.ids = saved.ids;
        self.encoder.states.truncate(saved.slots);
        self.encoder.free_slots = saved.free_slots;
        self.encoder.tables = saved.tables;
        self.encoder.sets.truncate(saved.sets);
        Err(problem.into())
    }

    /// Replaces the chains that changed. `None`: there is no space for them.
    fn patch(&mut self, tables: usize, saved: &Saved) -> Result<Option<Patch>, BuildError> {
        if self.ruleset.tables.len() > tables {
            return Ok(None);
        }
        let mut change = Change::default();
        let header = self.image.header();
        for (at, table) in self.ruleset.tables.iter().enumerate() {
            let Some(journal) = table.journal() else {
                continue;
            };
            let base = self.chain_base[at];
            let end = self.chain_base.get(at + 1).unwrap_or(&header.chains);
            if base + table.bound() > *end {
                return Ok(None);
            }
            self.encoder.chain_base = base;
            for (id, before) in &journal.before {
                let blob = self.image.chain(base + id);
                let chains = (before.as_ref(), table.try_get(ChainId(*id)));
                let ids = &mut self.ids;
                if let Some(rules) = change.chain(chains, blob, &mut self.encoder, ids)? {
                    let policy_id = number(blob, 4);
                    let end = match chains.1 {
                        Some(chain) => {
                            ChainEnd::of(chain, self.ruleset.family, base + id, policy_id)
                        }
                        None => ChainEnd::returning(base + id),
                    };
                    let mut out = Vec::new();
                    super::write_chain(&rules, self.ruleset.family, end, self.lookups, &mut out);
                    change.chains.push((base + id, out));
                }
            }
            for id in zeroed(table, journal, |id| change.blob(&self.image, base + id.0)) {
                change.zeroed.push(id);
            }
        }
        if self.encoder.sets.len() > saved.sets
            || self.encoder.tables != saved.tables
            || self.ids.next > header.rules
            || self.encoder.states.len() > header.slots as usize
        {
            return Ok(None);
        }
        let entries = entries(&self.ruleset, &self.chain_base);
        let mut patch = match self.image.replace(&change.chains, &entries) {
            Ok(patch) => patch,
            Err(ReplaceError::Full) => return Ok(None),
            Err(ReplaceError::Image(problem)) => {
                unreachable!("a chain that was just built is valid: {problem}")
            }
        };
        self.ids.retired.append(&mut change.old_ids);
        self.retired_slots.append(&mut change.old_slots);
        patch.slots = change.slots;
        patch.zeroed = change.zeroed;
        Ok(Some(patch))
    }

    /// Builds the image again, with space for edits. Rules that stay keep their state.
    fn rebuild(&mut self, saved: &Saved) -> Result<Carry, BuildError> {
        let (image, encoder, chain_base, ids) = build(&self.ruleset, self.sets, self.lookups)?;
        let mut carry = Carry {
            tables: saved.tables.equal(&encoder.tables),
            ..Carry::default()
        };
        for (at, table) in self.ruleset.tables.iter().enumerate() {
            let base = chain_base[at];
            let Some(old_base) = self.chain_base.get(at) else {
                continue;
            };
            let zeroed: HashSet<u32> = table.journal().map_or_else(HashSet::new, |journal| {
                let blob = |id: ChainId| image.chain(base + id.0);
                zeroed(table, journal, blob).into_iter().collect()
            });
            for (id, chain) in table.chains() {
                let changed = table.journal().map(|journal| journal.before.get(&id.0));
                let before = match changed.flatten() {
                    // A new chain has no state.
                    Some(None) => continue,
                    Some(Some(before)) => before,
                    None => chain,
                };
                let old = (&before.rules[..], self.image.chain(old_base + id.0));
                carry_chain(&mut carry, old, (chain, image.chain(base + id.0)));
            }
            carry.ids.retain(|(_, id)| !zeroed.contains(id));
        }
        self.image = image;
        self.encoder = encoder;
        self.chain_base = chain_base;
        self.ids = ids;
        self.retired_slots.clear();
        Ok(carry)
    }
}

type Parts<'a> = (LiveImage, Encoder<'a>, Vec<u32>, Ids);

fn build<'a>(
    ruleset: &Ruleset,
    sets: Option<&'a Sets>,
    lookups: Lookups,
) -> Result<Parts<'a>, BuildError> {
    let (built, encoder) = Builder::new(ruleset, sets, lookups).build(true)?;
    let space = built.image.len() / 8 + SPACE;
    let space = space.min(MAX_BYTES - built.image.len());
    let image = LiveImage::new(built.image, space).expect("an image that was just built is valid");
    let ids = Ids {
        next: built.ids,
        ..Ids::default()
    };
    Ok((image, encoder, built.chain_base, ids))
}

/// Chains of a transaction, and numbers of their rules.
#[derive(Default)]
pub(super) struct Change {
    chains: Vec<(u32, Vec<u8>)>,
    pub slots: Vec<(u32, u64)>,
    zeroed: Vec<u32>,
    old_ids: Vec<u32>,
    old_slots: Vec<u32>,
}

impl Change {
    /// The records of a chain after an edit; `None`: they are as before.
    pub fn chain(
        &mut self,
        (before, after): (Option<&Chain>, Option<&Chain>),
        blob: &[u8],
        encoder: &mut Encoder,
        ids: &mut Ids,
    ) -> Result<Option<Encoded>, BuildError> {
        let old: Vec<&[u8]> = records(blob).collect();
        let kept = kept(rules(before), rules(after));
        let stays = kept.len() == old.len() && kept.iter().copied().eq((0..old.len()).map(Some));
        if stays && before.map(|chain| chain.policy) == after.map(|chain| chain.policy) {
            return Ok(None);
        }
        let mut out = Encoded::default();
        let mut removed = vec![true; old.len()];
        for (rule, from) in rules(after).iter().zip(kept) {
            if let Some(from) = from {
                removed[from] = false;
                out.copy(old[from]);
                continue;
            }
            let id = ids.take();
            self.zeroed.push(id);
            encoder.encode(rule, id, &mut out)?;
            let record = out.records.last().expect("encode() adds a record");
            let first = |slot: u32| (slot, encoder.states[slot as usize]);
            self.slots.extend(slots(out.bytes_of(record)).map(first));
        }
        for (record, _) in old.iter().zip(removed).filter(|(_, removed)| *removed) {
            self.old_ids.push(number(record, 12));
            self.old_slots.extend(slots(record));
        }
        Ok(Some(out))
    }

    fn blob<'a>(&'a self, image: &'a LiveImage, number: u32) -> &'a [u8] {
        match self
            .chains
            .binary_search_by_key(&number, |(number, _)| *number)
        {
            Ok(at) => &self.chains[at].1,
            Err(_) => image.chain(number),
        }
    }
}

fn rules(chain: Option<&Chain>) -> &[Rule] {
    chain.map_or(&[], |chain| &chain.rules)
}

pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The records of the rules of a blob.
pub(super) fn records(blob: &[u8]) -> impl Iterator<Item = &[u8]> {
    record_places(blob).map(|place| &blob[place])
}

/// Places in a blob of the records of its rules.
pub(super) fn record_places(blob: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = CHAIN_HEADER;
    std::iter::from_fn(move || {
        loop {
            let start = at;
            let units = usize::from(blob[at]) | usize::from(blob[at + 1]) << 8;
            match blob[at + 2] {
                record::END => return None,
                record::RUN | record::LOOKUP | record::LEAVE => at += UNIT,
                _ => {
                    at += units * UNIT;
                    return Some(start..at);
                }
            }
        }
    })
}

/// The slots of a rule, in order.
pub(super) fn slots(record: &[u8]) -> impl Iterator<Item = u32> {
    slot_places(record).map(|at| number(record, at))
}

/// Offsets in a record of the numbers of its slots.
pub(super) fn slot_places(record: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = UNIT * (1 + usize::from(record[2]));
    (0..record[3]).filter_map(move |_| {
        let start = at;
        at += usize::from(record[at + 1]) * UNIT;
        let stateful = matches!(
            record[start],
            test::LIMIT | test::QUOTA | test::NTH | test::SET_TEMPLATE
        );
        stateful.then_some(start + 4)
    })
}

/// Adds what a chain keeps: of rules and their blob before, for a chain and its blob after it.
pub(super) fn carry_chain(carry: &mut Carry, old: (&[Rule], &[u8]), new: (&Chain, &[u8])) {
    if new.0.hook.is_some() {
        carry.ids.push((number(old.1, 4), number(new.1, 4)));
    }
    let before: Vec<&[u8]> = records(old.1).collect();
    for (record, from) in records(new.1).zip(kept(old.0, &new.0.rules)) {
        let Some(from) = from else { continue };
        carry
            .ids
            .push((number(before[from], 12), number(record, 12)));
        carry.slots.extend(slots(before[from]).zip(slots(record)));
    }
}

/// For each rule after an edit, the place before of the rule that it is.
pub fn kept(before: &[Rule], after: &[Rule]) -> Vec<Option<usize>> {
    let equal = |(a, b): &(&Rule, &Rule)| same(a, b);
    let first = before.iter().zip(after).take_while(equal).count();
    let (old, new) = (&before[first..], &after[first..]);
    let rev = old.iter().rev().zip(new.iter().rev());
    let last = rev.take_while(equal).count();
    let mut places: HashMap<(&[Item], Target), VecDeque<usize>> = HashMap::new();
    for (at, rule) in old[..old.len() - last].iter().enumerate() {
        let places = places.entry((&rule.items, rule.target)).or_default();
        places.push_back(first + at);
    }
    let middle = new[..new.len() - last].iter().map(|rule| {
        places
            .get_mut(&(&rule.items[..], rule.target))
            .and_then(VecDeque::pop_front)
    });
    (0..first)
        .map(Some)
        .chain(middle)
        .chain((before.len() - last..before.len()).map(Some))
        .collect()
}

/// Ids whose counters an edit set to 0, in blobs after it.
fn zeroed<'b>(table: &Table, journal: &Journal, blob: impl Fn(ChainId) -> &'b [u8]) -> Vec<u32> {
    let mut out = Vec::new();
    for (id, rule) in &journal.zeroed {
        // The chain may have been deleted after it.
        let Some(chain) = table.try_get(*id) else {
            continue;
        };
        let blob = blob(*id);
        let ids = records(blob).map(|record| number(record, 12));
        match rule {
            None => {
                out.extend(ids);
                out.extend(Some(number(blob, 4)).filter(|id| *id != NONE));
            }
            Some((rule, nth)) => {
                let equal = ids.zip(&chain.rules).filter(|(_, other)| same(other, rule));
                out.extend(equal.map(|(id, _)| id).nth(*nth));
            }
        }
    }
    out
}

/// Refuses new jumps that lead back to their chain. O(rules that can be reached from them).
fn find_loop(table: &Table) -> Result<(), EditError> {
    let Some(journal) = table.journal() else {
        return Ok(());
    };
    let target = |rule: &Rule| match rule.target {
        Target::Jump(to) | Target::Goto(to) => Some(to),
        _ => None,
    };
    for (id, before) in &journal.before {
        let Some(chain) = table.try_get(ChainId(*id)) else {
            continue;
        };
        if chain.rules.iter().all(|rule| target(rule).is_none()) {
            continue;
        }
        let kept = kept(rules(before.as_ref()), &chain.rules);
        let new = chain
            .rules
            .iter()
            .zip(kept)
            .filter(|(_, from)| from.is_none());
        for (rule, to) in new.filter_map(|(rule, _)| Some((rule, target(rule)?))) {
            let mut open = vec![to];
            let mut seen = HashSet::from([to]);
            while let Some(next) = open.pop() {
                if next.0 == *id {
                    return Err(EditError::Loop {
                        table: table.name.to_string(),
                        chain: chain.name().into_owned(),
                        line: rule.line,
                    });
                }
                let targets = table.get(next).rules.iter().filter_map(target);
                open.extend(targets.filter(|to| seen.insert(*to)));
            }
        }
    }
    Ok(())
}
