//! Images whose state is shared with those that packets meet at the same time.
//!
//! ```text
//!   built image ─┬─ rules that stay ── carry ──> their numbers in the loaded image ──> image
//!   (0, 1, ...)  └─ new rules ── Used ──> the lowest numbers that no loaded image has
//! ```
//!
//! A number names a counter, a slot or the place of a table. So nothing is copied for a rule that
//! stays, and packets that meet the old or the new image count in the same place. Numbers stay below
//! the most that any two sets in a row have needed together.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use fairpath_core::rules::{
    Carry, Counter, Header, MSS_OF_PATH, NONE, Table as TableOf, UNIT, needs, record, set_kind,
    table, test, word,
};

use super::encoded::{Reads, reads_connection};
use super::live::{carry_chain, number, record_places, records, slot_places, slots};
use super::table::Tables;
use super::{BuildError, Built, CHAIN_HEADER};
use crate::reference::RuleAt;
use crate::tree::{ChainId, Rule, Ruleset, Table, Target};

/// Places of tables are multiples of it.
const ALIGN: u64 = 64;

/// The chains of an image that was built from a set.
#[derive(Debug)]
pub struct Chains<'a> {
    image: &'a [u8],
    /// Of each table, the number of its chain 0.
    base: Vec<u32>,
}

impl<'a> Chains<'a> {
    /// `image` was accepted by a check, and built from `ruleset` by [`super::build`].
    pub fn new(ruleset: &Ruleset, image: &'a [u8]) -> Self {
        let bounds = ruleset.tables.iter().map(Table::bound);
        let base = bounds.scan(0, |next, bound| {
            let base = *next;
            *next += bound;
            Some(base)
        });
        Self {
            image,
            base: base.collect(),
        }
    }

    /// The blob of a chain: its header, records and tables.
    fn blob(&self, table: usize, chain: ChainId) -> &'a [u8] {
        let number = self.base[table] + chain.0;
        &self.image[blob(self.image, number)]
    }

    /// The id of the counter of a base chain's policy.
    pub fn policy_id(&self, table: usize, chain: ChainId) -> Option<u32> {
        Some(number(self.blob(table, chain), 4)).filter(|id| *id != NONE)
    }

    /// The ids of the counters of a chain's rules, in order.
    pub fn rule_ids(&self, table: usize, chain: ChainId) -> impl Iterator<Item = u32> {
        records(self.blob(table, chain)).map(|record| number(record, 12))
    }
}

impl Chains<'_> {
    /// All rules of the set in the order of the image: the bytes of the record, the rule, and the id
    /// of its counter.
    pub fn rules(&self, ruleset: &Ruleset) -> Vec<(Range<usize>, RuleAt, u32)> {
        let mut out = Vec::new();
        for (table_at, table) in ruleset.tables.iter().enumerate() {
            for (chain, _) in table.chains() {
                let place = blob(self.image, self.base[table_at] + chain.0);
                let bytes = &self.image[place.clone()];
                out.extend(record_places(bytes).enumerate().map(|(rule, record)| {
                    let id = number(bytes, record.start + 12);
                    let at = RuleAt {
                        table: table_at,
                        chain,
                        rule,
                    };
                    (place.start + record.start..place.start + record.end, at, id)
                }));
            }
        }
        out.sort_unstable_by_key(|(place, ..)| place.start);
        out
    }
}

/// The places of the tables in their memory, of an image that a check accepted.
pub fn table_places(image: &[u8]) -> Vec<u64> {
    let header = Header::of(image).expect("an image has a header");
    tables(image, &header).map(|(_, table)| table.at).collect()
}

/// The place of a chain's blob.
pub(super) fn blob(image: &[u8], chain: u32) -> Range<usize> {
    let header = Header::of(image).expect("an image has a header");
    let first = number(image, header.chain_at as usize + 4 * chain as usize) as usize;
    let start = first - CHAIN_HEADER;
    start..start + number(image, start + 12) as usize
}

/// The state that one set takes from the image of another: rules with the same matches and target
/// stay, in chains of the same name. O(bytes of both).
pub fn carry(old: (&Ruleset, &[u8]), new: (&Ruleset, &Built)) -> Carry {
    let mut carry = Carry {
        tables: carry_tables(old, new.1, |old, new| {
            *old == TableOf {
                at: old.at,
                ttl: old.ttl,
                ..*new
            }
        }),
        ..Carry::default()
    };
    let before = Chains::new(old.0, old.1);
    let after = Chains::new(new.0, &new.1.image);
    for (at, table) in new.0.tables.iter().enumerate() {
        let same = |other: &Table| other.name == table.name;
        let Some(old_at) = old.0.tables.iter().position(same) else {
            continue;
        };
        let old_table = &old.0.tables[old_at];
        for (id, chain) in table.chains() {
            let Some(old_id) = old_table.find(&chain.name) else {
                continue;
            };
            let rules = renamed(old_table, &old_table.get(old_id).rules, table);
            let blobs = (before.blob(old_at, old_id), after.blob(at, id));
            carry_chain(&mut carry, (&rules, blobs.0), (chain, blobs.1));
        }
    }
    carry
}

/// Tables that continue, by their descriptions in the images.
fn carry_tables(
    old: (&Ruleset, &[u8]),
    new: &Built,
    stays: impl Fn(&TableOf, &TableOf) -> bool,
) -> Vec<(u32, u32)> {
    let all = |image: &[u8]| -> Vec<TableOf> {
        let header = Header::of(image).expect("an image has a header");
        tables(image, &header).map(|(_, table)| table).collect()
    };
    let (before, after) = (all(old.1), all(&new.image));
    let mut pairs = Tables::of(old.0).named(&new.tables);
    pairs.retain(|(from, to)| stays(&before[*from as usize], &after[*to as usize]));
    pairs
}

/// The identity of a rule of a loaded set, in place of its line.
const LOADED: u32 = 1 << 31;

/// Gives each rule of a loaded set an identity, which it keeps through edits.
pub fn identify(ruleset: &mut Ruleset) {
    let mut next = LOADED;
    for table in &mut ruleset.tables {
        for (_, chain) in table.chains_mut() {
            for rule in &mut chain.rules {
                rule.line = next;
                next += 1;
            }
        }
    }
}

/// The number of a rule that [`identify`] saw, in order; `None` of another line.
pub fn identity(line: u32) -> Option<usize> {
    line.checked_sub(LOADED).map(|at| at as usize)
}

/// The state that an edited set takes: of rules that [`identify`] saw and that are still there, in any
/// chain. `edited` has the chains and rules of `new`. Tables stay as they are while a rule names them, as in
/// the kernel. O(bytes of both).
pub fn carry_edited(old: (&Ruleset, &[u8]), edited: &Ruleset, new: (&Ruleset, &Built)) -> Carry {
    let mut carry = Carry {
        tables: carry_tables(old, new.1, |old, new| match old.kind {
            table::RECENT => {
                *old == TableOf {
                    at: old.at,
                    ttl: old.ttl,
                    ..*new
                }
            }
            kind => kind == new.kind && old.counts_bytes() == new.counts_bytes(),
        }),
        ..Carry::default()
    };
    let before = Chains::new(old.0, old.1);
    let after = Chains::new(new.0, &new.1.image);
    let mut loaded: HashMap<u32, &[u8]> = HashMap::new();
    for (at, table) in old.0.tables.iter().enumerate() {
        for (id, chain) in table.chains() {
            let records = records(before.blob(at, id));
            loaded.extend(chain.rules.iter().map(|rule| rule.line).zip(records));
        }
    }
    for (at, table) in new.0.tables.iter().enumerate() {
        let find = |ruleset: &Ruleset| {
            let mut tables = ruleset.tables.iter();
            tables.position(|other| other.name == table.name)
        };
        let Some(edited_at) = find(edited) else {
            continue;
        };
        let (edited, old_at) = (&edited.tables[edited_at], find(old.0));
        for (id, chain) in table.chains() {
            let blob = after.blob(at, id);
            let old_chain = old_at.and_then(|at| Some((at, old.0.tables[at].find(&chain.name)?)));
            if let (Some((old_at, old_id)), true) = (old_chain, chain.hook.is_some()) {
                let policy = number(before.blob(old_at, old_id), 4);
                carry.ids.push((policy, number(blob, 4)));
            }
            let Some(same) = edited.find(&chain.name) else {
                continue;
            };
            for (rule, record) in edited.get(same).rules.iter().zip(records(blob)) {
                let Some(from) = loaded.remove(&rule.line) else {
                    continue;
                };
                carry.ids.push((number(from, 12), number(record, 12)));
                carry.slots.extend(slots(from).zip(slots(record)));
            }
        }
    }
    carry
}

/// Rules whose targets are chains of another table, by name. A rule whose chain is not there leads
/// nowhere, so that no rule equals it.
fn renamed<'a>(from: &Table, rules: &'a [Rule], to: &Table) -> Cow<'a, [Rule]> {
    let there = |id: ChainId| to.find(&from.get(id).name).unwrap_or(ChainId(u32::MAX));
    let target = |target: Target| match target {
        Target::Jump(id) => Target::Jump(there(id)),
        Target::Goto(id) => Target::Goto(there(id)),
        other => other,
    };
    if rules.iter().all(|rule| target(rule.target) == rule.target) {
        return Cow::Borrowed(rules);
    }
    let rules = rules.iter().map(|rule| Rule {
        target: target(rule.target),
        ..rule.clone()
    });
    Cow::Owned(rules.collect())
}

/// Numbers of state that images use.
#[derive(Debug, Default)]
pub struct Used {
    ids: Numbers,
    slots: Numbers,
    /// Places in the memory of tables, in order.
    tables: Vec<Range<u64>>,
}

/// Numbers in use.
#[derive(Debug, Default)]
struct Numbers {
    used: Vec<bool>,
    /// All lower ones are in use.
    next: usize,
}

impl Numbers {
    fn add(&mut self, number: u32) {
        let number = number as usize;
        if self.used.len() <= number {
            self.used.resize(number + 1, false);
        }
        self.used[number] = true;
    }

    /// The lowest one that is free.
    fn take(&mut self) -> u32 {
        let free = self.used[self.next.min(self.used.len())..].iter();
        self.next += free.take_while(|used| **used).count();
        self.add(self.next as u32);
        self.next as u32
    }
}

/// An image with numbers that no other loaded rule has, but those that it stays.
#[derive(Debug)]
pub struct Placed {
    /// The bytes.
    pub image: Vec<u8>,
    /// Counters of new rules, which begin at 0.
    pub counters: Vec<(u32, Counter)>,
    /// Slots of new rules, with their first values.
    pub slots: Vec<(u32, u64)>,
    /// Parts of the memory of tables that begin empty.
    pub tables: Vec<Range<u64>>,
    /// Counters that continue.
    pub kept: usize,
    /// Facts that rules read, as bits of [`fairpath_core::rules::needs`].
    pub needs: u32,
}

impl Used {
    /// Adds the numbers of an image that a check accepted. O(bytes).
    pub fn add(&mut self, image: &[u8]) {
        let header = Header::of(image).expect("an image has a header");
        for chain in 0..header.chains {
            let blob = &image[blob(image, chain)];
            let policy = Some(number(blob, 4)).filter(|id| *id != NONE);
            let ids = records(blob).map(|record| number(record, 12));
            policy
                .into_iter()
                .chain(ids)
                .for_each(|id| self.ids.add(id));
            let slots = records(blob).flat_map(slots);
            slots.for_each(|slot| self.slots.add(slot));
        }
        for (_, table) in tables(image, &header) {
            self.add_table(place_of(&table));
        }
    }

    fn add_table(&mut self, part: Range<u64>) {
        let at = self
            .tables
            .partition_point(|other| other.start < part.start);
        self.tables.insert(at, part);
    }

    /// The first free place for a table. `None`: there is none.
    fn take_table(&mut self, bytes: u64) -> Option<Range<u64>> {
        let mut free = 0;
        for other in &self.tables {
            if other.start >= free + bytes {
                break;
            }
            free = other.end.next_multiple_of(ALIGN);
        }
        let part = free..free + bytes;
        (part.end <= table::BYTES).then(|| {
            self.add_table(part.clone());
            part
        })
    }

    /// Gives numbers to an image: those of the loaded image to rules that stay, others to new ones.
    /// O(bytes).
    ///
    /// # Errors
    ///
    /// [`BuildError::TablesTooLarge`]: with those of the loaded images.
    pub fn place(
        &mut self,
        built: Built,
        loaded: Option<(&[u8], &Carry)>,
    ) -> Result<Placed, BuildError> {
        let reads = built.reads;
        let Built {
            mut image, states, ..
        } = built;
        let mut header = Header::of(&image).expect("a built image has a header");
        let mut ids = vec![NONE; header.rules as usize];
        let mut slots = vec![NONE; header.slots as usize];
        let mut places = vec![None; header.tables as usize];
        let mut kept = 0;
        if let Some((old, carry)) = loaded {
            for (from, to) in carry.ids.iter().filter(|(from, to)| *from.max(to) != NONE) {
                ids[*to as usize] = *from;
                kept += 1;
            }
            for (from, to) in &carry.slots {
                slots[*to as usize] = *from;
            }
            let header = Header::of(old).expect("a loaded image has a header");
            let old: Vec<_> = tables(old, &header).map(|(_, table)| table).collect();
            for (from, to) in &carry.tables {
                places[*to as usize] = Some(old[*from as usize]);
            }
        }
        let mut placed = Placed {
            image: Vec::new(),
            counters: Vec::new(),
            slots: Vec::new(),
            tables: Vec::new(),
            kept,
            needs: needs_of_words(&reads) | needs_of_sets(&image, &header),
        };
        let new = self.ids.fill(&mut ids).into_iter();
        placed.counters = new.map(|id| (id, Counter::default())).collect();
        let new = slots.iter().map(|slot| *slot == NONE).collect::<Vec<_>>();
        self.slots.fill(&mut slots);
        let states = states.iter().zip(&slots).zip(new).filter(|(_, new)| *new);
        placed.slots = states.map(|((state, slot), _)| (*slot, *state)).collect();
        for chain in 0..header.chains {
            let part = blob(&image, chain);
            let rules = records(&image[part.clone()]);
            placed.needs |= rules.map(needs_of_tests).fold(0, |all, one| all | one);
            renumber(&mut image[part], &ids, &slots);
        }
        let built: Vec<_> = tables(&image, &header).collect();
        header.table_bytes = 0;
        for ((at, mut table), place) in built.into_iter().zip(places) {
            let bytes = place_of(&table).end - table.at;
            match place {
                Some(old) => {
                    table = TableOf {
                        ttl: table.ttl,
                        ..old
                    }
                }
                None => {
                    let part = self.take_table(bytes);
                    let part = part.ok_or(BuildError::TablesTooLarge)?;
                    table.at = part.start;
                    placed.tables.push(part);
                }
            }
            header.table_bytes = header.table_bytes.max(place_of(&table).end);
            image[at..at + size_of::<TableOf>()].copy_from_slice(&table.to_bytes());
        }
        let bound = |numbers: &[u32]| numbers.iter().max().map_or(0, |last| last + 1);
        header.rules = bound(&ids);
        header.slots = bound(&slots);
        header.write_to(&mut image);
        placed.image = image;
        Ok(placed)
    }
}

impl Numbers {
    /// Gives free numbers to those that have none. Returns them.
    fn fill(&mut self, numbers: &mut [u32]) -> Vec<u32> {
        let mut new = Vec::new();
        for number in numbers.iter_mut().filter(|number| **number == NONE) {
            *number = self.take();
            new.push(*number);
        }
        new
    }
}

/// Facts that are read as words of the packet.
pub(super) fn needs_of_words(reads: &Reads) -> u32 {
    let names = [word::IN, word::IN + 1, word::OUT, word::OUT + 1];
    let by_name = names.iter().any(|word| reads[*word] != 0);
    u32::from(by_name) * needs::NAMES
        + u32::from(reads_connection(reads)) * needs::CONNECTION
        + u32::from(reads[word::SMAC] != 0 || reads[word::TYPE] != 0) * needs::RECEIVED
}

/// Facts that sets need: the time, if entries end.
fn needs_of_sets(image: &[u8], header: &Header) -> u32 {
    let mut kinds = (0..header.sets as usize).map(|set| {
        let at = number(image, header.set_at as usize + 4 * set) as usize;
        number(image, at + 12)
    });
    u32::from(kinds.any(|kind| kind & set_kind::ENDS != 0)) * needs::TIME
}

/// Facts that the tests of a rule read otherwise.
pub(super) fn needs_of_tests(record: &[u8]) -> u32 {
    let mut at = UNIT * (1 + usize::from(record[2]));
    let all = (0..record[3]).map(|_| {
        let (kind, argument) = (record[at], number(record, at + 4));
        at += UNIT * usize::from(record[at + 1]);
        match kind {
            test::WORDS | test::RANGE | test::ANY_BITS | test::PORTS | test::ADDRESSES => 0,
            test::ECN | test::SPI | test::QUOTA | test::NTH | test::SET => 0,
            test::UNKNOWN | test::NEVER | test::ADDRTYPE | test::SET_LOGGED => 0,
            test::LIMIT | test::HASHLIMIT => needs::TIME,
            test::RECENT => needs::TIME | needs::NAMES,
            test::RANDOM => needs::RANDOM,
            test::OWNER => needs::OWNER,
            test::TIME => needs::DATE,
            test::SET_MSS if argument == MSS_OF_PATH => needs::BYTES | needs::TIME | needs::PATH,
            _ => needs::BYTES | needs::TIME,
        }
    });
    all.fold(0, |all, one| all | one)
}

/// Descriptions of the tables of an image, and their offsets.
fn tables(image: &[u8], header: &Header) -> impl Iterator<Item = (usize, TableOf)> {
    (0..header.tables as usize).map(move |number| {
        let at = header.table_at as usize + number * size_of::<TableOf>();
        let bytes = image[at..at + size_of::<TableOf>()].try_into();
        (
            at,
            TableOf::from_bytes(bytes.expect("the bytes of a table")),
        )
    })
}

/// The memory of a table.
fn place_of(table: &TableOf) -> Range<u64> {
    let bytes = table.bytes().expect("an image that was checked");
    table.at..table.at + bytes
}

/// Replaces the numbers of a blob by those with their index.
fn renumber(blob: &mut [u8], ids: &[u32], slots: &[u32]) {
    let records: Vec<_> = record_places(blob).collect();
    let mut end = records.last().map_or(CHAIN_HEADER, |last| last.end);
    while blob[end + 2] != record::END {
        end += UNIT;
    }
    let mut replace = |at: usize, numbers: &[u32]| {
        let old = number(blob, at);
        if old != NONE {
            blob[at..at + 4].copy_from_slice(&numbers[old as usize].to_le_bytes());
        }
    };
    replace(4, ids);
    replace(end + 12, ids);
    for record in &records {
        replace(record.start + 12, ids);
    }
    for record in records {
        let places: Vec<_> = slot_places(&blob[record.clone()]).collect();
        for at in places {
            let at = record.start + at;
            let old = number(blob, at) as usize;
            blob[at..at + 4].copy_from_slice(&slots[old].to_le_bytes());
        }
    }
}
