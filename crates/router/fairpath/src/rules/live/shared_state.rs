//! State that rules of several tables use together: recent lists, tables of hashlimit, and sets that rules
//! change. It is exact only if all these tables are on one side, with iptables or at the hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fairpath_rules::spec::Kind;
use fairpath_rules::{Family, Hook, Rule, Sets, Table, Target, Value};
use serde::{Deserialize, Serialize};

use super::super::check::hooks_of;
use super::egress::limits_mss;
use super::given::NAT;

/// A piece of state. That of a family (true for IPv4) is not seen by the other one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum State {
    Recent(bool, Vec<u8>),
    Hashlimit(bool, Vec<u8>),
    Set(String),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, name) = match self {
            State::Recent(_, name) => ("recent list", String::from_utf8_lossy(name)),
            State::Hashlimit(_, name) => ("hashlimit table", String::from_utf8_lossy(name)),
            State::Set(name) => ("set", name.into()),
        };
        write!(f, "{what} {}", fairpath_units::text::line(&name))
    }
}

/// State that tables of iptables use, each with the name of a table.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Elsewhere {
    /// It must not be used at the hooks. Of sets, those that rules change.
    taken: BTreeSet<(State, String)>,
    /// Sets of the kernel that rules match or change.
    sets: BTreeSet<(String, String)>,
    /// Families whose table nat reads or sets marks in POSTROUTING, as [`State::Recent`] has them.
    marks: BTreeSet<bool>,
    /// Families whose table nat matches in POSTROUTING what rules change in headers.
    #[serde(default)]
    headers: BTreeSet<bool>,
    /// Families with a table that matches the MSS or the length behind FORWARD of mangle.
    #[serde(default)]
    sizes: BTreeSet<bool>,
}

impl Elsewhere {
    /// Adds a table that iptables has.
    pub fn add(&mut self, family: Family, table: &Table, sets: Option<&Sets>) {
        let of_table = || table.name.to_string();
        if &*table.name == NAT && of_postrouting(table).any(uses_marks) {
            self.marks.insert(family == Family::Ipv4);
        }
        if &*table.name == NAT && of_postrouting(table).any(matches_headers) {
            self.headers.insert(family == Family::Ipv4);
        }
        if matches_sizes(table) {
            self.sizes.insert(family == Family::Ipv4);
        }
        for rule in table.chains().flat_map(|(_, chain)| &chain.rules) {
            let changed = names_of_sets(rule, Kind::TargetSet, sets);
            let states = named(rule, family).chain(changed.iter().cloned().map(State::Set));
            self.taken.extend(states.map(|state| (state, of_table())));
            let used = names_of_sets(rule, Kind::Set, sets).into_iter();
            let used = used.chain(changed);
            self.sets.extend(used.map(|name| (name, of_table())));
        }
    }

    /// A table of iptables whose rules use a set of the kernel.
    pub fn table_with_set(&self, name: &str) -> Option<&str> {
        let mut sets = self.sets.iter();
        let found = sets.find(|(set, _)| set == name)?;
        Some(&found.1)
    }

    /// The first table for each piece of state.
    pub fn by_state(&self) -> ByState<'_> {
        let all = self.taken.iter().rev();
        ByState {
            tables: all.map(|(state, table)| (state, &table[..])).collect(),
            marks: &self.marks,
            headers: &self.headers,
            sizes: &self.sizes,
        }
    }
}

/// Tables of iptables by the state that they use.
pub struct ByState<'e> {
    tables: BTreeMap<&'e State, &'e str>,
    marks: &'e BTreeSet<bool>,
    headers: &'e BTreeSet<bool>,
    sizes: &'e BTreeSet<bool>,
}

impl ByState<'_> {
    /// The reason if a rule at the hooks uses some of it.
    pub fn reason(&self, rule: &Rule, family: Family, sets: Option<&Sets>) -> Option<String> {
        if self.marks.contains(&(family == Family::Ipv4)) && sets_mark(rule) {
            return Some(MARKS.to_owned());
        }
        if self.headers.contains(&(family == Family::Ipv4)) && changes_header(rule) {
            return Some(HEADERS.to_owned());
        }
        if self.sizes.contains(&(family == Family::Ipv4)) && limits_mss(rule) {
            return Some(SIZES.to_owned());
        }
        if self.tables.is_empty() {
            return None;
        }
        let read = names_of_sets(rule, Kind::Set, sets);
        let mut states = named(rule, family).chain(read.into_iter().map(State::Set));
        states.find_map(|state| {
            let table = self.tables.get(&state)?;
            Some(format!(
                "{state} is used by table {table}, which iptables has"
            ))
        })
    }
}

/// Marks that change at tcx egress, after POSTROUTING of nat.
const MARKS: &str = "table nat matches marks in POSTROUTING, which comes before tcx egress";

/// Headers that change at tcx egress.
const HEADERS: &str =
    "table nat matches headers in POSTROUTING that change behind it, at tcx egress";

/// A limit of the MSS that is carried out at tcx egress.
const SIZES: &str =
    "a table of iptables matches the MSS or the length of packets, which comes before tcx egress";

/// True if rules behind FORWARD of mangle match what TCPMSS changes.
fn matches_sizes(table: &Table) -> bool {
    const BEHIND: [(&str, Hook); 3] = [
        (NAT, Hook::Postrouting),
        ("filter", Hook::Forward),
        ("security", Hook::Forward),
    ];
    let hooks = hooks_of(table);
    let is_behind = |hooks: &[Hook]| {
        let mut at = BEHIND.iter().filter(|(name, _)| *name == &*table.name);
        at.any(|(_, hook)| hooks.contains(hook))
    };
    let mut chains = table
        .chains()
        .filter(|(id, _)| is_behind(&hooks[id.0 as usize]));
    chains.any(|(_, chain)| {
        let mut kinds = chain.rules.iter().flat_map(Rule::matches);
        kinds.any(|group| {
            matches!(
                group.kind,
                Kind::Tcpmss | Kind::U32 | Kind::Length | Kind::Opaque
            )
        })
    })
}

fn sets_mark(rule: &Rule) -> bool {
    matches!(
        rule.target,
        Target::Extension(Kind::TargetMark | Kind::TargetConnmark)
    )
}

fn changes_header(rule: &Rule) -> bool {
    matches!(
        rule.target,
        Target::Extension(Kind::TargetDscp | Kind::TargetTos | Kind::TargetTtl | Kind::TargetHl)
    )
}

/// Rules that POSTROUTING reaches.
fn of_postrouting(table: &Table) -> impl Iterator<Item = &Rule> {
    let hooks = hooks_of(table);
    let chains = table
        .chains()
        .filter(move |(id, _)| hooks[id.0 as usize].contains(&Hook::Postrouting));
    chains.flat_map(|(_, chain)| &chain.rules)
}

fn uses_marks(rule: &Rule) -> bool {
    let mut kinds = rule.matches().map(|group| group.kind);
    sets_mark(rule) || kinds.any(|kind| matches!(kind, Kind::Mark | Kind::Connmark | Kind::Opaque))
}

fn matches_headers(rule: &Rule) -> bool {
    let mut kinds = rule.matches().map(|group| group.kind);
    kinds.any(|kind| {
        matches!(
            kind,
            Kind::Dscp | Kind::Tos | Kind::Ttl | Kind::Hl | Kind::Ecn | Kind::U32 | Kind::Opaque
        )
    })
}

/// Recent lists and tables of hashlimit of a rule.
fn named(rule: &Rule, family: Family) -> impl Iterator<Item = State> {
    let family = family == Family::Ipv4;
    rule.matches().filter_map(move |group| {
        let name = |option| group.text(option).unwrap_or_default().to_vec();
        match group.kind {
            Kind::Recent => Some(State::Recent(family, name("--name"))),
            Kind::Hashlimit => Some(State::Hashlimit(family, name("--hashlimit-name"))),
            _ => None,
        }
    })
}

/// Sets of a match or target of a rule, with the members of lists.
fn names_of_sets(rule: &Rule, kind: Kind, sets: Option<&Sets>) -> BTreeSet<String> {
    let items = rule.items.iter().filter(|item| item.kind == kind);
    let mut names = BTreeSet::new();
    for item in items {
        let Value::Set(set) = &item.value else {
            continue;
        };
        let name = String::from_utf8_lossy(&set.name).into_owned();
        if let Some(set) = sets.and_then(|sets| sets.get(&name)) {
            names.extend(set.members().map(str::to_owned));
        }
        names.insert(name);
    }
    names
}

/// Sets that rules of a table match.
pub fn matched_sets(table: &Table) -> BTreeSet<String> {
    let rules = table.chains().flat_map(|(_, chain)| &chain.rules);
    rules
        .flat_map(|rule| names_of_sets(rule, Kind::Set, None))
        .collect()
}
