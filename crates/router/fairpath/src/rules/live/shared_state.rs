//! State that rules of several tables use together: recent lists, tables of hashlimit, and sets that rules
//! change. It is exact only if all these tables are on one side, with iptables or at the hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use fairpath_rules::spec::Kind;
use fairpath_rules::{Family, Rule, Sets, Table, Value};
use serde::{Deserialize, Serialize};

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
}

impl Elsewhere {
    /// Adds a table that iptables has.
    pub fn add(&mut self, family: Family, table: &Table, sets: Option<&Sets>) {
        let of_table = || table.name.to_string();
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
        ByState(all.map(|(state, table)| (state, &table[..])).collect())
    }
}

/// Tables of iptables by the state that they use.
pub struct ByState<'e>(BTreeMap<&'e State, &'e str>);

impl ByState<'_> {
    /// The reason if a rule at the hooks uses some of it.
    pub fn reason(&self, rule: &Rule, family: Family, sets: Option<&Sets>) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let read = names_of_sets(rule, Kind::Set, sets);
        let mut states = named(rule, family).chain(read.into_iter().map(State::Set));
        states.find_map(|state| {
            let table = self.0.get(&state)?;
            Some(format!(
                "{state} is used by table {table}, which iptables has"
            ))
        })
    }
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
