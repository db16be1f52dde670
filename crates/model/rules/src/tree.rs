//! The rule tree: one for IPv4, IPv6, ARP and bridges.
//!
//! ```text
//!   Ruleset ── Table ── Chain ── Rule ── Item, Item, ...   target
//!    family     filter   INPUT            -s NET  -p 6  -m tcp  --dport 80   ACCEPT
//! ```
//!
//! A rule is a flat list of items: those of the frame's own header first ([`Kind::Ip`]), then each
//! match with its options in written order, then the options of the target. The order of matches is
//! kept, because stateful matches make it visible. Chains have numbers, and jumps use them, so that
//! a chain can be replaced without its callers. A large set takes about 80 bytes a rule.

use std::collections::BTreeMap;
use std::fmt;

use crate::spec::{Kind, Spec};

/// Longest name of a chain, in bytes (iptables: 28).
pub const MAX_CHAIN_NAME: usize = 28;
/// Most chains of a table.
pub const MAX_CHAINS: usize = 1 << 20;
/// Most rules of a table.
pub const MAX_RULES: usize = 1 << 23;

/// A protocol family: it selects the words of a file and the layout of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Family {
    /// Ipv4.
    Ipv4 = 0,
    /// Ipv6.
    Ipv6 = 1,
    /// ARP.
    Arp = 2,
    /// Bridge.
    Bridge = 3,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 4] = [Family::Ipv4, Family::Ipv6, Family::Arp, Family::Bridge];

    /// The program whose save format the family uses.
    pub fn tool(self) -> &'static str {
        match self {
            Family::Ipv4 => "iptables",
            Family::Ipv6 => "ip6tables",
            Family::Arp => "arptables",
            Family::Bridge => "ebtables",
        }
    }

    /// True for IPv4 and IPv6.
    pub fn is_ip(self) -> bool {
        matches!(self, Family::Ipv4 | Family::Ipv6)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
            Family::Arp => "ARP",
            Family::Bridge => "bridge",
        })
    }
}

/// A point of a packet's path at which base chains run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Hook {
    /// Before routing.
    Prerouting = 0,
    /// To this host.
    Input = 1,
    /// Through this host.
    Forward = 2,
    /// From this host.
    Output = 3,
    /// After routing.
    Postrouting = 4,
    /// Bridges only: before the bridge decides about a frame.
    Brouting = 5,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Hook; 6] = [
        Hook::Prerouting,
        Hook::Input,
        Hook::Forward,
        Hook::Output,
        Hook::Postrouting,
        Hook::Brouting,
    ];

    /// The base chain at this hook.
    pub fn chain(self) -> &'static str {
        match self {
            Hook::Prerouting => "PREROUTING",
            Hook::Input => "INPUT",
            Hook::Forward => "FORWARD",
            Hook::Output => "OUTPUT",
            Hook::Postrouting => "POSTROUTING",
            Hook::Brouting => "BROUTING",
        }
    }

    /// The hook of a base chain.
    pub fn of_chain(name: &[u8]) -> Option<Hook> {
        Hook::ALL
            .into_iter()
            .find(|hook| hook.chain().as_bytes() == name)
    }

    /// True if packets have an incoming interface here.
    pub fn has_input(self) -> bool {
        !matches!(self, Hook::Output | Hook::Postrouting)
    }

    /// True if packets have an outgoing interface here.
    pub fn has_output(self) -> bool {
        matches!(self, Hook::Forward | Hook::Output | Hook::Postrouting)
    }
}

/// Tables of a family with their hooks, in the order in which a packet meets them at a hook.
pub fn tables_of(family: Family) -> &'static [(&'static str, &'static [Hook])] {
    use Hook::{Brouting, Forward, Input, Output, Postrouting, Prerouting};
    match family {
        Family::Ipv4 | Family::Ipv6 => &[
            ("raw", &[Prerouting, Output]),
            ("mangle", &[Prerouting, Input, Forward, Output, Postrouting]),
            ("nat", &[Prerouting, Input, Output, Postrouting]),
            ("filter", &[Input, Forward, Output]),
            ("security", &[Input, Forward, Output]),
        ],
        Family::Arp => &[("filter", &[Input, Output, Forward])],
        Family::Bridge => &[
            ("broute", &[Brouting]),
            ("nat", &[Prerouting, Output, Postrouting]),
            ("filter", &[Input, Forward, Output]),
        ],
    }
}

/// Packets and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Counters {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The number of a chain in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(pub u32);

/// The value of an option, 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// No argument, or no target.
    None,
    /// A number, a choice, or a set of bits.
    Number(u64),
    /// A range (first, last), a value and its mask, or an IPv4 address and its mask.
    Pair(u32, u32),
    /// The same of 64 bits: bytes, or a link-layer address and its mask.
    Wide(Box<[u64; 2]>),
    /// An IPv6 address and its mask, or a range.
    Ipv6(Box<[u128; 2]>),
    /// Bytes, as the file has them after quotes were removed.
    Text(Box<Box<[u8]>>),
    /// Ranges of 16-bit numbers, in written order.
    Ranges(Box<Box<[(u16, u16)]>>),
    /// Numbers or addresses.
    Numbers(Box<Box<[u128]>>),
    /// A set and the fields that are looked up in it: bit n for the n-th, 1 destination.
    Set(Box<SetMatch>),
    /// U32.
    U32(Box<crate::spec::U32Test>),
    /// Words of an extension that is not known.
    Words(Box<Box<[Box<[u8]>]>>),
}

/// A reference to a set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SetMatch {
    /// Name.
    pub name: Box<[u8]>,
    /// True for `dst`, for each dimension.
    pub destinations: Vec<bool>,
}

/// An option of a match or a target with its value, or the head of a match (`-m NAME`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Item {
    /// The kind.
    pub kind: Kind,
    /// Index into the options of the kind's [`Spec`], or [`Item::HEAD`].
    pub option: u8,
    /// True if negated.
    pub not: bool,
    /// The value.
    pub value: Value,
}

impl Item {
    /// The option number of a head.
    pub const HEAD: u8 = u8::MAX;

    /// The head of a match.
    pub fn head(kind: Kind) -> Self {
        Self {
            kind,
            option: Self::HEAD,
            not: false,
            value: Value::None,
        }
    }

    /// True for `-m NAME`.
    pub fn is_head(&self) -> bool {
        self.option == Self::HEAD
    }

    /// The canonical name of the option, `-m` for a head.
    pub fn name(&self) -> &'static str {
        match self.kind.spec().options.get(usize::from(self.option)) {
            Some(option) => option.names[0],
            None => "-m",
        }
    }
}

/// The end of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// No target: the rule only counts.
    None,
    /// Ends the table: the packet passes.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Back to the caller, or the policy.
    Return,
    /// The old QUEUE: user space decides.
    Queue,
    /// Bridges: the next rule.
    Continue,
    /// To a chain, and back at its end.
    Jump(ChainId),
    /// To a chain; its end is that of the present one.
    Goto(ChainId),
    /// An extension: its options are the items of this kind at the end of the rule.
    Extension(Kind),
}

/// The items of a rule. A single one, as most rules of large sets have, is in the rule itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Items(Stored);

#[derive(Clone, PartialEq, Eq)]
enum Stored {
    One(Item),
    Several(Box<[Item]>),
}

impl From<Vec<Item>> for Items {
    fn from(items: Vec<Item>) -> Self {
        Self(match <[Item; 1]>::try_from(items) {
            Ok([item]) => Stored::One(item),
            Err(items) => Stored::Several(items.into()),
        })
    }
}

impl std::ops::Deref for Items {
    type Target = [Item];

    fn deref(&self) -> &[Item] {
        match &self.0 {
            Stored::One(item) => std::slice::from_ref(item),
            Stored::Several(items) => items,
        }
    }
}

impl std::fmt::Debug for Items {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Matches and options.
    pub items: Items,
    /// The target.
    pub target: Target,
    /// The line in its file, 0 if it came from elsewhere.
    pub line: u32,
    /// Counters that the file had.
    pub counters: Option<Box<Counters>>,
}

/// A match of a rule: its head, or items of the frame's header, with options.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// The kind.
    pub kind: Kind,
    /// Matches and options.
    pub items: &'a [Item],
}

impl<'a> Group<'a> {
    /// The entry of the table.
    pub fn spec(&self) -> &'static Spec {
        self.kind.spec()
    }

    /// The item of the option with this canonical name.
    pub fn get(&self, name: &str) -> Option<&'a Item> {
        let index = self.spec().option_index(name)?;
        self.items.iter().find(|item| item.option == index)
    }

    /// The number of an option, and whether it is negated.
    pub fn number(&self, name: &str) -> Option<(u64, bool)> {
        match self.get(name)? {
            Item {
                value: Value::Number(number),
                not,
                ..
            } => Some((*number, *not)),
            _ => None,
        }
    }

    /// The two numbers of an option, and whether it is negated.
    pub fn pair(&self, name: &str) -> Option<(u32, u32, bool)> {
        match self.get(name)? {
            Item {
                value: Value::Pair(a, b),
                not,
                ..
            } => Some((*a, *b, *not)),
            _ => None,
        }
    }

    /// The text of an option.
    pub fn text(&self, name: &str) -> Option<&'a [u8]> {
        match self.get(name)? {
            Item {
                value: Value::Text(text),
                ..
            } => Some(text),
            _ => None,
        }
    }

    /// True if a CONNMARK target shifts the mark, which no evaluator computes.
    pub fn shifts_mark(&self) -> bool {
        self.has("--left-shift-mark") || self.has("--right-shift-mark")
    }

    /// True if the option is given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

impl Rule {
    /// The matches in order: the header's items are the first group, if there are any.
    pub fn matches(&self) -> impl Iterator<Item = Group<'_>> {
        self.groups().filter(|group| !group.kind.is_target())
    }

    /// The options of the target, if it is an extension.
    pub fn target_options(&self) -> Group<'_> {
        let kind = match self.target {
            Target::Extension(kind) => kind,
            _ => Kind::OpaqueTarget,
        };
        let start = self
            .items
            .iter()
            .position(|item| item.kind.is_target())
            .unwrap_or(self.items.len());
        Group {
            kind,
            items: &self.items[start..],
        }
    }

    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        let mut rest = &self.items[..];
        std::iter::from_fn(move || {
            let first = rest.first()?;
            let length = 1 + rest[1..]
                .iter()
                .take_while(|item| item.kind == first.kind && !item.is_head())
                .count();
            let (group, after) = rest.split_at(length);
            rest = after;
            Some(Group {
                kind: first.kind,
                items: group,
            })
        })
    }
}

/// The verdict at the end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Ends the table: the packet passes.
    Accept,
    /// The packet is dropped.
    Drop,
    /// User chains: back to the caller.
    Return,
}

impl Policy {
    /// The word in files.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Accept => "ACCEPT",
            Policy::Drop => "DROP",
            Policy::Return => "RETURN",
        }
    }
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Name.
    pub name: Box<[u8]>,
    /// The hook of a base chain.
    pub hook: Option<Hook>,
    /// Verdict at the end.
    pub policy: Policy,
    /// Packets and bytes.
    pub counters: Counters,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Line in the file, 0 if it has none.
    pub line: u32,
}

impl Chain {
    /// The name as text.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.name)
    }
}

/// A table: its chains by number. A number whose chain was deleted is free (`None`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Name.
    pub name: Box<str>,
    chains: Vec<Option<Chain>>,
    free: Vec<u32>,
    by_name: ChainIndex,
    edits: Edits,
    /// Line in the file, 0 if it has none.
    pub line: u32,
}

/// The state of a table during edits.
#[derive(Debug, Clone, Default)]
struct Edits {
    journal: Option<Box<Journal>>,
    /// The number of rules, if only edits changed it since it was counted.
    rules: Option<usize>,
}

/// It follows from the chains.
impl PartialEq for Edits {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Edits {}

/// A rule of a chain: a rule that is equal to it, and the number of equal ones before.
pub(crate) type NthRule = (Rule, usize);

/// The table before an edit, to undo it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    /// Chains that the edit changed, by number; `None`: the number was free.
    pub before: BTreeMap<u32, Option<Chain>>,
    /// Counters that it set to 0: of a chain, or of one of its rules.
    pub zeroed: Vec<(ChainId, Option<NthRule>)>,
    free: Vec<u32>,
    bound: usize,
}

/// Chains by name: numbers, sorted by a hash of the name in open addressing. A large set has about
/// 150,000 names, so they are not stored twice.
#[derive(Debug, Clone, Default)]
struct ChainIndex {
    slots: Vec<u32>,
    used: usize,
}

/// The index follows from the chains.
impl PartialEq for ChainIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ChainIndex {}

const FREE: u32 = u32::MAX;
const DELETED: u32 = u32::MAX - 1;

fn hash_name(name: &[u8]) -> usize {
    use std::hash::BuildHasher;
    // Names come from files of others, so the hash has a random key.
    static KEYS: std::sync::LazyLock<std::hash::RandomState> =
        std::sync::LazyLock::new(std::hash::RandomState::new);
    KEYS.hash_one(name) as usize
}

/// Refused edits of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Exists.
    #[error("chain already exists")]
    Exists,
    /// Too many chains.
    #[error("too many chains: a table has at most {MAX_CHAINS}")]
    TooManyChains,
}

impl Table {
    /// A table without chains.
    pub fn new(name: &str, line: u32) -> Self {
        Self {
            name: name.into(),
            chains: Vec::new(),
            free: Vec::new(),
            by_name: ChainIndex::default(),
            edits: Edits::default(),
            line,
        }
    }

    /// The chains with their numbers, in order of their numbers.
    pub fn chains(&self) -> impl Iterator<Item = (ChainId, &Chain)> {
        self.chains
            .iter()
            .enumerate()
            .filter_map(|(at, chain)| Some((ChainId(at as u32), chain.as_ref()?)))
    }

    /// The same, to change them.
    pub fn chains_mut(&mut self) -> impl Iterator<Item = (ChainId, &mut Chain)> {
        self.edits = Edits::default();
        self.chains
            .iter_mut()
            .enumerate()
            .filter_map(|(at, chain)| Some((ChainId(at as u32), chain.as_mut()?)))
    }

    /// The chains in the order of save files: base chains by their hooks, the others by name.
    pub fn sorted(&self) -> Vec<(ChainId, &Chain)> {
        let mut chains: Vec<_> = self.chains().collect();
        chains.sort_by(|(_, a), (_, b)| {
            (a.hook.is_none(), a.hook, &a.name).cmp(&(b.hook.is_none(), b.hook, &b.name))
        });
        chains
    }

    /// One more than the largest number of a chain.
    pub fn bound(&self) -> u32 {
        self.chains.len() as u32
    }

    /// A chain that exists.
    pub fn get(&self, id: ChainId) -> &Chain {
        self.chains[id.0 as usize]
            .as_ref()
            .expect("jumps lead to chains that exist")
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, id: ChainId) -> &mut Chain {
        self.note(id);
        self.chains[id.0 as usize]
            .as_mut()
            .expect("jumps lead to chains that exist")
    }

    /// A chain, or none if the number is free.
    pub fn try_get(&self, id: ChainId) -> Option<&Chain> {
        self.chains.get(id.0 as usize)?.as_ref()
    }

    /// The number of rules.
    pub fn rules(&self) -> usize {
        let count = || self.chains().map(|(_, chain)| chain.rules.len()).sum();
        self.edits.rules.unwrap_or_else(count)
    }

    /// Keeps the chain as it is, for [`Table::undo`].
    fn note(&mut self, id: ChainId) {
        let Some(journal) = &mut self.edits.journal else {
            self.edits.rules = None;
            return;
        };
        let chain = || self.chains.get(id.0 as usize).cloned().flatten();
        journal.before.entry(id.0).or_insert_with(chain);
    }

    /// Begins an edit, or continues one.
    pub(crate) fn begin_edit(&mut self) {
        if self.edits.journal.is_none() {
            self.edits.journal = Some(Box::new(Journal {
                free: self.free.clone(),
                bound: self.chains.len(),
                ..Journal::default()
            }));
        }
    }

    /// The edit that was begun.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.edits.journal.as_deref()
    }

    /// Notes that counters were set to 0.
    pub(crate) fn note_zero(&mut self, id: ChainId, rule: Option<NthRule>) {
        if let Some(journal) = &mut self.edits.journal {
            journal.zeroed.push((id, rule));
        }
    }

    /// Ends an edit, after which the table has this number of rules.
    pub(crate) fn end_edit(&mut self, rules: usize) {
        self.edits.rules = Some(rules);
    }

    /// Forgets how to undo an edit.
    pub(crate) fn keep(&mut self) {
        self.edits.journal = None;
    }

    /// Undoes an edit.
    pub(crate) fn undo(&mut self) {
        self.edits.rules = None;
        let Some(journal) = self.edits.journal.take() else {
            return;
        };
        let mut renamed = false;
        for (id, before) in journal.before {
            let place = &mut self.chains[id as usize];
            let name = |chain: &Option<Chain>| chain.as_ref().map(|chain| chain.name.clone());
            renamed |= name(place) != name(&before);
            *place = before;
        }
        self.chains.truncate(journal.bound);
        self.free = journal.free;
        if renamed {
            self.rehash();
        }
    }

    fn slot(&self, name: &[u8]) -> Result<usize, usize> {
        let mask = self.by_name.slots.len() - 1;
        let mut at = hash_name(name) & mask;
        let mut reuse = None;
        loop {
            match self.by_name.slots[at] {
                FREE => return Err(reuse.unwrap_or(at)),
                DELETED => reuse = reuse.or(Some(at)),
                id => {
                    if *self.get(ChainId(id)).name == *name {
                        return Ok(at);
                    }
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The chain with a name.
    pub fn find(&self, name: &[u8]) -> Option<ChainId> {
        if self.by_name.slots.is_empty() {
            return None;
        }
        let slot = self.slot(name).ok()?;
        Some(ChainId(self.by_name.slots[slot]))
    }

    /// Adds an empty chain.
    ///
    /// # Errors
    ///
    /// The name is taken, or the table is full.
    pub fn add(&mut self, chain: Chain) -> Result<ChainId, TableError> {
        if (self.by_name.used + 1) * 2 > self.by_name.slots.len() {
            self.rehash();
        }
        let Err(slot) = self.slot(&chain.name) else {
            return Err(TableError::Exists);
        };
        let id = match self.free.pop() {
            Some(free) => free,
            None if self.chains.len() == MAX_CHAINS => return Err(TableError::TooManyChains),
            None => self.chains.len() as u32,
        };
        if self.by_name.slots[slot] == FREE {
            self.by_name.used += 1;
        }
        self.note(ChainId(id));
        self.by_name.slots[slot] = id;
        if id as usize == self.chains.len() {
            self.chains.push(Some(chain));
        } else {
            self.chains[id as usize] = Some(chain);
        }
        Ok(ChainId(id))
    }

    fn rehash(&mut self) {
        let live = self.chains().count();
        let size = ((live + 1) * 4).next_power_of_two().max(16);
        self.by_name = ChainIndex {
            slots: vec![FREE; size],
            used: live,
        };
        let ids: Vec<u32> = self.chains().map(|(id, _)| id.0).collect();
        for id in ids {
            let name = self.get(ChainId(id)).name.clone();
            let slot = self.slot(&name).expect_err("each name occurs once");
            self.by_name.slots[slot] = id;
        }
    }

    /// Removes a chain. The caller ensures that no rule refers to it.
    pub fn remove(&mut self, id: ChainId) -> Chain {
        let slot = self
            .slot(&self.get(id).name)
            .expect("every chain is in the index");
        self.note(id);
        self.by_name.slots[slot] = DELETED;
        self.free.push(id.0);
        self.chains[id.0 as usize]
            .take()
            .expect("the caller names a chain that exists")
    }

    /// Releases memory that was reserved while the table grew.
    pub fn shrink(&mut self) {
        for chain in self.chains.iter_mut().flatten() {
            chain.rules.shrink_to_fit();
        }
        self.chains.shrink_to_fit();
    }
}

/// All tables of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// The protocol family.
    pub family: Family,
    /// The tables.
    pub tables: Vec<Table>,
}

impl Ruleset {
    /// A set without tables.
    pub fn new(family: Family) -> Self {
        Self {
            family,
            tables: Vec::new(),
        }
    }

    /// The table with a name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| &*table.name == name)
    }

    /// The same, to change it.
    pub fn table_mut(&mut self, name: &str) -> Option<&mut Table> {
        self.tables.iter_mut().find(|table| &*table.name == name)
    }

    /// The number of rules.
    pub fn rules(&self) -> usize {
        self.tables.iter().map(Table::rules).sum()
    }

    /// The number of chains.
    pub fn chains(&self) -> usize {
        self.tables.iter().map(|table| table.chains().count()).sum()
    }
}
