//! Packed images for the core: `bpf/core/rules` interprets them.
//!
//! ```text
//!   Ruleset ── chain by chain ── rule.rs: comparisons, tests, action ── blob
//!                    '── lookup.rs: segments of long chains with tables
//! ```
//!
//! Building is linear in the bytes of the image. [`Built`] has the image, the first values of its
//! state, and the numbers that connect ids of counters with rules.

mod bridge;
mod covered;
mod lookup;
mod rule;
mod set;
mod table;

use fairpath_core::rules::{Header, MAGIC, NONE, UNIT, VERSION, action, record};

use crate::sets::Sets;
use crate::tree::{Chain, ChainId, Family, Hook, Policy, Ruleset, tables_of};

pub use covered::{Compared, Covered, RuleWords};
pub use lookup::{ChainPlan, Segment};
pub(crate) use set::mix;
pub use table::RECENT_ENTRIES;

/// Settings of a build.
#[derive(Debug, Clone, Copy)]
pub struct BuildOptions {
    /// Find rules of long chains by tables.
    pub optimise: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { optimise: true }
    }
}

/// A set of rules is too large for an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// More bytes than an offset can name.
    #[error("the image of the rules has more than {MAX_BYTES} bytes: divide the set")]
    TooLarge,
    /// Recent lists and limits by key need too much memory.
    #[error("recent lists and hashlimit tables need more than 1 GiB: lower --hashlimit-htable-max")]
    TablesTooLarge,
    /// A rule has too many matches.
    #[error("line {line}: the rule has more tests than an image can hold: divide it")]
    RuleTooLarge {
        /// Its line.
        line: u32,
    },
}

/// Most bytes of an image.
pub const MAX_BYTES: usize = 1 << 30;

/// A built image.
#[derive(Debug, Clone)]
pub struct Built {
    /// The bytes, in the format of docs/design/0019.
    pub image: Vec<u8>,
    /// First values of the slots of state.
    pub states: Vec<u64>,
    /// Of each table, of each chain number: the id of its first rule, and of its policy.
    first_ids: Vec<Vec<(u32, u32)>>,
    /// Of each table, the number in the image of its chain 0.
    pub chain_base: Vec<u32>,
    /// Ids in use.
    pub ids: u32,
    /// Chains with tables.
    pub plans: Vec<ChainPlan>,
}

/// An id of a counter as a place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// A rule: table, chain, index.
    Rule(usize, ChainId, usize),
    /// The policy of a base chain.
    Policy(usize, ChainId),
}

impl Built {
    /// The id of a rule's counter.
    pub fn rule_id(&self, table: usize, chain: ChainId, rule: usize) -> u32 {
        self.first_ids[table][chain.0 as usize].0 + rule as u32
    }

    /// The id of the counter of a base chain's policy.
    pub fn policy_id(&self, table: usize, chain: ChainId) -> Option<u32> {
        let (_, policy) = self.first_ids[table][chain.0 as usize];
        (policy != NONE).then_some(policy)
    }

    /// The number in the image of a chain.
    pub fn chain_number(&self, table: usize, chain: ChainId) -> u32 {
        self.chain_base[table] + chain.0
    }

    /// The place in the tree of an id. O(chains).
    pub fn place(&self, ruleset: &Ruleset, id: u32) -> Option<Counted> {
        for (table_at, table) in ruleset.tables.iter().enumerate() {
            for (chain_id, chain) in table.chains() {
                let (first, policy) = self.first_ids[table_at][chain_id.0 as usize];
                if policy == id {
                    return Some(Counted::Policy(table_at, chain_id));
                }
                if id.wrapping_sub(first) < chain.rules.len() as u32 {
                    let index = (id - first) as usize;
                    return Some(Counted::Rule(table_at, chain_id, index));
                }
            }
        }
        None
    }
}

/// Builds the image of a set.
///
/// # Errors
///
/// [`BuildError`]: the set is too large.
pub fn build(
    ruleset: &Ruleset,
    sets: Option<&Sets>,
    options: BuildOptions,
) -> Result<Built, BuildError> {
    let mut builder = Builder::new(ruleset, sets, options);
    builder.number();
    for table in 0..ruleset.tables.len() {
        builder.table(table)?;
    }
    builder.finish()
}

struct Builder<'a> {
    ruleset: &'a Ruleset,
    options: BuildOptions,
    bytes: Vec<u8>,
    chain_at: Vec<u32>,
    first_ids: Vec<Vec<(u32, u32)>>,
    chain_base: Vec<u32>,
    ids: u32,
    encoder: rule::Encoder<'a>,
    plans: Vec<ChainPlan>,
}

impl<'a> Builder<'a> {
    fn new(ruleset: &'a Ruleset, sets: Option<&'a Sets>, options: BuildOptions) -> Self {
        Self {
            ruleset,
            options,
            bytes: vec![0; size_of::<Header>()],
            chain_at: Vec::new(),
            first_ids: Vec::new(),
            chain_base: Vec::new(),
            ids: 0,
            encoder: rule::Encoder::new(ruleset.family, sets),
            plans: Vec::new(),
        }
    }

    /// Gives numbers to chains, and ids to rules and policies.
    fn number(&mut self) {
        let mut chains = 0;
        for table in &self.ruleset.tables {
            self.chain_base.push(chains);
            chains += table.bound();
            let mut ids = vec![(NONE, NONE); table.bound() as usize];
            for (id, chain) in table.chains() {
                let policy = if chain.hook.is_some() {
                    self.ids += 1;
                    self.ids - 1
                } else {
                    NONE
                };
                ids[id.0 as usize] = (self.ids, policy);
                self.ids += chain.rules.len() as u32;
            }
            self.first_ids.push(ids);
        }
        self.chain_at = vec![0; chains as usize];
    }

    fn table(&mut self, table: usize) -> Result<(), BuildError> {
        let base = self.chain_base[table];
        let tree = &self.ruleset.tables[table];
        for number in 0..tree.bound() {
            let id = ChainId(number);
            match tree.try_get(id) {
                Some(chain) => self.chain(table, id, chain)?,
                // A free number: a chain that returns.
                None => self.empty_chain(base + number),
            }
            if self.bytes.len() > MAX_BYTES {
                return Err(BuildError::TooLarge);
            }
        }
        Ok(())
    }

    fn empty_chain(&mut self, number: u32) {
        let start = self.begin_chain(number, action::ACCEPT, NONE);
        self.end_chain(start, action::RETURN, NONE);
    }

    fn begin_chain(&mut self, number: u32, policy: u32, policy_id: u32) -> usize {
        let start = self.bytes.len();
        for word in [policy, policy_id, number, 0] {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.chain_at[number as usize] = self.bytes.len() as u32;
        start
    }

    fn end_chain(&mut self, start: usize, verdict: u32, id: u32) {
        put_record(&mut self.bytes, 1, record::END, 0, 0, verdict, id);
        let bytes = (self.bytes.len() - start) as u32;
        self.bytes[start + 12..start + 16].copy_from_slice(&bytes.to_le_bytes());
    }

    fn chain(&mut self, table: usize, id: ChainId, chain: &Chain) -> Result<(), BuildError> {
        let (first, policy_id) = self.first_ids[table][id.0 as usize];
        let number = self.chain_base[table] + id.0;
        let policy = policy_action(chain);
        let start = self.begin_chain(number, policy, policy_id);
        self.encoder.chain_base = self.chain_base[table];
        let mut rules = rule::Encoded::default();
        for (index, rule) in chain.rules.iter().enumerate() {
            self.encoder
                .encode(rule, first + index as u32, &mut rules)?;
        }
        let verdict = match (chain.hook, self.ruleset.family) {
            (None, Family::Bridge) => match chain.policy {
                Policy::Accept => action::ACCEPT,
                Policy::Drop => action::DROP,
                Policy::Return => action::RETURN,
            },
            (None, _) => action::RETURN,
            (Some(_), _) => policy,
        };
        if self.options.optimise && chain.rules.len() >= lookup::MIN_RULES {
            let plan = lookup::plan(&rules);
            let tables = lookup::write(&rules, &plan, &mut self.bytes);
            put_record(&mut self.bytes, 1, record::END, 0, 0, verdict, policy_id);
            lookup::write_tables(&rules, tables, &mut self.bytes);
            self.plans.push(lookup::describe(table, id, chain, &plan));
            let bytes = (self.bytes.len() - start) as u32;
            self.bytes[start + 12..start + 16].copy_from_slice(&bytes.to_le_bytes());
        } else {
            write_runs(&rules, 0..rules.records.len(), &mut self.bytes);
            self.end_chain(start, verdict, policy_id);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Built, BuildError> {
        let set_offsets = self.encoder.write_sets(&mut self.bytes);
        let chain_at = self.put_table(&self.chain_at.clone());
        let set_at = self.put_table(&set_offsets);
        let table_at = self.bytes.len() as u32;
        let (tables, table_bytes) = self.encoder.tables.write(&mut self.bytes)?;
        self.bytes
            .resize(self.bytes.len().next_multiple_of(UNIT), 0);
        if self.bytes.len() > MAX_BYTES {
            return Err(BuildError::TooLarge);
        }
        let mut entry = [[[NONE; 5]; 6]; 4];
        let mut nat = [[0u32; 6]; 4];
        let family = self.ruleset.family as usize;
        for (at, (name, _)) in tables_of(self.ruleset.family).iter().enumerate() {
            let Some(table) = self
                .ruleset
                .tables
                .iter()
                .position(|table| *table.name == **name)
            else {
                continue;
            };
            for (id, chain) in self.ruleset.tables[table].chains() {
                let Some(hook) = chain.hook else { continue };
                let is_nat = *name == "nat" && self.ruleset.family.is_ip();
                if is_nat && chain.rules.is_empty() && chain.policy == Policy::Accept {
                    continue;
                }
                let at = order(at, hook, self.ruleset.family);
                entry[family][hook as usize][at] = self.chain_base[table] + id.0;
                nat[family][hook as usize] |= u32::from(is_nat) << at;
            }
        }
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            bytes: self.bytes.len() as u32,
            generation: 1,
            chains: self.chain_at.len() as u32,
            rules: self.ids,
            slots: self.encoder.states.len() as u32,
            chain_at,
            set_at,
            sets: set_offsets.len() as u32,
            table_at,
            tables,
            table_bytes,
            zero: [0; 2],
            entry,
            nat,
        };
        header.write_to(&mut self.bytes);
        Ok(Built {
            image: self.bytes,
            states: self.encoder.states,
            first_ids: self.first_ids,
            chain_base: self.chain_base,
            ids: self.ids,
            plans: self.plans,
        })
    }

    fn put_table(&mut self, numbers: &[u32]) -> u32 {
        let at = self.bytes.len() as u32;
        for number in numbers {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        at
    }
}

/// The place of a table at a hook. The kernel translates addresses last at INPUT.
fn order(at: usize, hook: Hook, family: Family) -> usize {
    match (at, hook, family.is_ip()) {
        (2, Hook::Input, true) => 4,
        (3 | 4, Hook::Input, true) => at - 1,
        _ => at,
    }
}

fn policy_action(chain: &Chain) -> u32 {
    match chain.policy {
        Policy::Drop => action::DROP,
        _ => action::ACCEPT,
    }
}

fn put_record(out: &mut Vec<u8>, units: u16, words: u8, tests: u8, shape: u32, act: u32, id: u32) {
    out.extend_from_slice(&units.to_le_bytes());
    out.push(words);
    out.push(tests);
    for word in [shape, act, id] {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Rules of equal shape that make a run worthwhile.
const MIN_RUN: usize = 4;

/// Writes rules, those of equal shape as runs.
fn write_runs(rules: &rule::Encoded, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
    let mut at = range.start;
    while at < range.end {
        let first = &rules.records[at];
        let same = |record: &rule::Placed| {
            record.units == first.units
                && record.first_shape == first.first_shape
                && record.first_shape.is_some()
        };
        let mut count = rules.records[at..range.end]
            .iter()
            .take_while(|record| same(record))
            .count();
        if count >= MIN_RUN && first.units < 256 {
            let first_shape = first.first_shape.unwrap_or_default();
            put_record(
                out,
                1,
                record::RUN,
                first.units as u8,
                first_shape,
                0,
                count as u32,
            );
        } else {
            count = count.max(1);
        }
        for record in &rules.records[at..at + count] {
            out.extend_from_slice(rules.bytes_of(record));
        }
        at += count;
    }
}
