//! Packed images for the core: `bpf/core/rules` interprets them.
//!
//! ```text
//!   Ruleset ── chain by chain ── rule.rs: comparisons, tests, action ── blob
//!                    '── lookup.rs: segments of long chains with tables: hashes, prefix.rs
//! ```
//!
//! Building is linear in the bytes of the image. [`Built`] has the image, the first values of its
//! state, and the numbers that connect ids of counters with rules.

mod bridge;
mod chain_edit;
mod covered;
mod encoded;
mod hash;
mod live;
mod lookup;
mod matches;
mod prefix;
mod rule;
mod set;
mod set_edit;
mod shared;
mod table;
mod target;

use fairpath_core::rules::{Entries, Header, MAGIC, NONE, UNIT, VERSION, action, record};

use encoded::{Encoded, put_record, write_runs};

use crate::sets::Sets;
use crate::tree::{Chain, ChainId, Family, Hook, Policy, Ruleset, tables_of};

pub use chain_edit::{ChainEdit, Free, edit_chains, touched};
pub use covered::{Compared, Covered, RuleWords};
pub(crate) use encoded::reads_connection;
pub(crate) use hash::mix;
pub use live::{Applied, EditError, Live, SPACE, SPARE, kept};
pub use lookup::{ChainPlan, Segment};
pub use rule::name_words;
pub use set_edit::{NotEdited, SetBytes, SetEdit};
pub use shared::{Chains, Placed, Used, carry, carry_edited, identify, identity, table_places};
pub use table::RECENT_ENTRIES;

/// Which chains find their rules by tables. The outcome of a packet is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lookups {
    /// None: `--no-optimise`.
    Never,
    /// Long ones, if an estimate of a packet's cost is lower.
    #[default]
    Estimated,
    /// All that can, whatever it costs: for tests.
    Always,
}

impl Lookups {
    /// All values.
    pub const ALL: [Lookups; 3] = [Lookups::Never, Lookups::Estimated, Lookups::Always];
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
    /// Members of a set were made to share a place of a hash table.
    #[error("members of the set {name} collide under each of four random seeds: try again")]
    SetCollides {
        /// Its name.
        name: String,
    },
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
    /// Bits of each word of a packet that rules read.
    pub(crate) reads: encoded::Reads,
    /// Names of the sets that rules use, by number.
    pub sets: Vec<String>,
    /// Chains with tables.
    pub plans: Vec<ChainPlan>,
    /// Recent lists and limits by key.
    pub(crate) tables: table::Tables,
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
    lookups: Lookups,
) -> Result<Built, BuildError> {
    Ok(Builder::new(ruleset, sets, lookups).build(false)?.0)
}

struct Builder<'r, 'a> {
    ruleset: &'r Ruleset,
    lookups: Lookups,
    bytes: Vec<u8>,
    chain_at: Vec<u32>,
    first_ids: Vec<Vec<(u32, u32)>>,
    chain_base: Vec<u32>,
    ids: u32,
    reads: encoded::Reads,
    encoder: rule::Encoder<'a>,
    plans: Vec<ChainPlan>,
}

impl<'r, 'a> Builder<'r, 'a> {
    fn new(ruleset: &'r Ruleset, sets: Option<&'a Sets>, lookups: Lookups) -> Self {
        Self {
            ruleset,
            lookups,
            bytes: vec![0; size_of::<Header>()],
            chain_at: Vec::new(),
            first_ids: Vec::new(),
            chain_base: Vec::new(),
            ids: 0,
            reads: encoded::Reads::default(),
            encoder: rule::Encoder::new(ruleset.family, sets),
            plans: Vec::new(),
        }
    }

    /// Builds the image, with numbers for edits if it has `spare` ones. The encoder has its state.
    fn build(mut self, spare: bool) -> Result<(Built, rule::Encoder<'a>), BuildError> {
        self.number(spare);
        self.encoder.prepare(self.ruleset);
        for table in 0..self.ruleset.tables.len() {
            self.table(table)?;
        }
        self.finish(spare)
    }

    /// Gives numbers to chains, and ids to rules and policies.
    fn number(&mut self, spare: bool) {
        let mut chains = 0;
        for table in &self.ruleset.tables {
            self.chain_base.push(chains);
            chains += table.bound();
            if spare {
                chains += live::spare(table.bound());
            }
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
        let end = match self.chain_base.get(table + 1) {
            Some(next) => *next,
            None => self.chain_at.len() as u32,
        };
        for number in 0..end - base {
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
        let end = ChainEnd::returning(number);
        self.put_chain(&Encoded::default(), end);
    }

    fn chain(&mut self, table: usize, id: ChainId, chain: &Chain) -> Result<(), BuildError> {
        let (first, policy_id) = self.first_ids[table][id.0 as usize];
        let number = self.chain_base[table] + id.0;
        self.encoder.chain_base = self.chain_base[table];
        let mut rules = Encoded::default();
        for (index, rule) in chain.rules.iter().enumerate() {
            self.encoder
                .encode(rule, first + index as u32, &mut rules)?;
        }
        let end = ChainEnd::of(chain, self.ruleset.family, number, policy_id);
        if let Some(plan) = self.put_chain(&rules, end) {
            self.plans.push(lookup::describe(table, id, chain, &plan));
        }
        Ok(())
    }

    fn put_chain(&mut self, rules: &Encoded, end: ChainEnd) -> Option<lookup::Plan> {
        self.chain_at[end.number as usize] = (self.bytes.len() + CHAIN_HEADER) as u32;
        rules.reads(&mut self.reads);
        write_chain(
            rules,
            self.ruleset.family,
            end,
            self.lookups,
            &mut self.bytes,
        )
    }

    fn finish(mut self, spare: bool) -> Result<(Built, rule::Encoder<'a>), BuildError> {
        let set_offsets = self.encoder.write_sets(&mut self.bytes)?;
        let chain_at = self.put_table(&self.chain_at.clone());
        let set_at = self.put_table(&set_offsets);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let table_at = self.bytes.len() as u32;
        let (tables, table_bytes) = self.encoder.tables.write(&mut self.bytes)?;
        self.bytes
            .resize(self.bytes.len().next_multiple_of(UNIT), 0);
        if self.bytes.len() > MAX_BYTES {
            return Err(BuildError::TooLarge);
        }
        let (entry, nat) = entries(self.ruleset, &self.chain_base);
        let states = self.encoder.states.clone();
        let (mut ids, mut slots) = (self.ids, states.len() as u32);
        if spare {
            ids += live::spare(ids);
            slots += live::spare(slots);
        }
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            bytes: self.bytes.len() as u32,
            generation: 1,
            chains: self.chain_at.len() as u32,
            rules: ids,
            slots,
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
        let built = Built {
            image: self.bytes,
            states,
            first_ids: self.first_ids,
            chain_base: self.chain_base,
            ids: self.ids,
            reads: self.reads,
            sets: self.encoder.sets.names(),
            plans: self.plans,
            tables: self.encoder.tables.clone(),
        };
        Ok((built, self.encoder))
    }

    fn put_table(&mut self, numbers: &[u32]) -> u32 {
        let at = self.bytes.len() as u32;
        for number in numbers {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        at
    }
}

/// Base chains by hook, and bits of those of table nat.
fn entries(ruleset: &Ruleset, chain_base: &[u32]) -> Entries {
    let mut entry = [[[NONE; 5]; 6]; 4];
    let mut nat = [[0u32; 6]; 4];
    let family = ruleset.family;
    for (at, (name, hooks)) in tables_of(family).iter().enumerate() {
        let place = ruleset
            .tables
            .iter()
            .position(|table| *table.name == **name);
        let Some(table) = place else { continue };
        let base = chain_base[table];
        let table = &ruleset.tables[table];
        for hook in *hooks {
            let Some(id) = table.find(hook.chain().as_bytes()) else {
                continue;
            };
            let is_nat = *name == "nat" && family.is_ip();
            let at = order(at, *hook, family);
            entry[family as usize][*hook as usize][at] = base + id.0;
            nat[family as usize][*hook as usize] |= u32::from(is_nat) << at;
        }
    }
    (entry, nat)
}

const CHAIN_HEADER: usize = 16;

/// Header and end of a chain.
#[derive(Debug, Clone, Copy)]
struct ChainEnd {
    policy: u32,
    policy_id: u32,
    number: u32,
    /// The action after the last rule.
    action: u32,
}

impl ChainEnd {
    /// A chain without a policy.
    fn returning(number: u32) -> Self {
        Self {
            policy: action::ACCEPT,
            policy_id: NONE,
            number,
            action: action::RETURN,
        }
    }

    fn of(chain: &Chain, family: Family, number: u32, policy_id: u32) -> Self {
        let policy = match chain.policy {
            Policy::Drop => action::DROP,
            _ => action::ACCEPT,
        };
        let action = match (chain.hook, family, chain.policy) {
            (None, Family::Bridge, Policy::Return) => action::RETURN,
            (None, Family::Bridge, _) | (Some(_), ..) => policy,
            (None, ..) => action::RETURN,
        };
        Self {
            policy,
            policy_id,
            number,
            action,
        }
    }
}

/// Appends the blob of a chain. Returns the plan of a long one.
fn write_chain(
    rules: &Encoded,
    family: Family,
    end: ChainEnd,
    lookups: Lookups,
    out: &mut Vec<u8>,
) -> Option<lookup::Plan> {
    let start = out.len();
    for word in [end.policy, end.policy_id, end.number, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let plan = lookup::plan(rules, family, lookups);
    let tables = match &plan {
        Some(plan) => lookup::write(rules, plan, out),
        None => {
            write_runs(rules, 0..rules.records.len(), out);
            None
        }
    };
    put_record(out, 1, record::END, 0, 0, end.action, end.policy_id);
    lookup::write_tables(tables, out);
    let bytes = (out.len() - start) as u32;
    out[start + 12..start + 16].copy_from_slice(&bytes.to_le_bytes());
    plan
}

/// The place of a table at a hook. The kernel translates addresses last at INPUT.
fn order(at: usize, hook: Hook, family: Family) -> usize {
    match (at, hook, family.is_ip()) {
        (2, Hook::Input, true) => 4,
        (3 | 4, Hook::Input, true) => at - 1,
        _ => at,
    }
}
