//! Which rows there are and in which slots they count: classes, watched interfaces, subnets found in
//! traffic, and the rest.
//!
//! ```text
//! configuration --.
//! interfaces ------+--> RowTable (slots) --> Layout: rows -> ledger; rules, slots -> kernel
//! traffic --------'
//! ```
//!
//! A name keeps its slot as long as it has a row. A slot that is given up serves nobody else before
//! [`RowTable::read`] says that its last counts were read.

use std::collections::HashSet;
use std::sync::Arc;

use fairpath_class::{Class, ClassSet, Criterion, Labels, SlotKey, Slots, Space};
use fairpath_core::{OTHER, Prefix, Rules};
use fairpath_units::IfIndex;

use crate::ledger::{NO_SLOT, RowSpec};
use crate::snapshot::Kind;

/// The row of what no class matches.
pub const OTHER_NAME: &str = "other";

/// What is watched now.
pub struct Watched<'a> {
    /// Index and name of each watched interface.
    pub interfaces: Vec<(IfIndex, &'a str)>,
    /// Indices of those that lead to remote hosts.
    pub uplinks: Vec<u32>,
    /// The index of any link by its name.
    pub index_of: &'a dyn Fn(&str) -> Option<u32>,
}

/// What the kernel and the ledger are told.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// In the order of the tree.
    pub rows: Vec<RowSpec>,
    /// What leads to them.
    pub rules: Rules,
    /// Slots that belong to somebody new.
    pub begun: Vec<u32>,
    /// Where watched interfaces are counted, by index.
    pub interfaces: Vec<(IfIndex, u32)>,
    /// Rows that found no slot: they count in [`OTHER`].
    pub refused: usize,
}

/// What a renewal of subnets did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Subnets that are new.
    pub came: usize,
    /// Subnets that are no longer wanted.
    pub went: usize,
}

/// Rows and their slots.
#[derive(Clone, Debug)]
pub struct RowTable {
    slots: Slots,
    classes: Arc<ClassSet>,
    labels: Arc<Labels>,
    /// Each once.
    subnets: Vec<Prefix>,
    /// Given up; the next reading still tells their last counts.
    given_up: Vec<u32>,
}

impl RowTable {
    /// No rows yet, in a kernel that has `capacity` slots.
    pub fn new(capacity: u32) -> RowTable {
        RowTable {
            slots: Slots::new(capacity),
            classes: Arc::default(),
            labels: Arc::default(),
            subnets: Vec::new(),
            given_up: Vec::new(),
        }
    }

    /// Takes other classes and labels; [`RowTable::layout`] makes it so.
    pub fn set_classes(&mut self, classes: &Arc<ClassSet>, labels: &Arc<Labels>) {
        self.classes = Arc::clone(classes);
        self.labels = Arc::clone(labels);
    }

    /// The classes.
    pub fn classes(&self) -> &ClassSet {
        &self.classes
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Takes other subnets, each once; [`RowTable::layout`] makes it so.
    pub fn set_subnets(&mut self, mut subnets: Vec<Prefix>) {
        let mut seen = HashSet::new();
        subnets.retain(|subnet| seen.insert(*subnet));
        self.subnets = subnets;
    }

    /// Lets go of `idle` subnets and of those beyond `max`, then takes as many of `found`, in their
    /// order, as there is room for; [`RowTable::layout`] makes it so.
    ///
    /// What is found may be there already: a row that found no slot stays unmatched. O(subnets), and
    /// O(classes) where anything was found.
    pub fn renew_subnets(&mut self, idle: &[Prefix], found: &[Prefix], max: usize) -> Renewed {
        let before = self.subnets.len();
        self.subnets.retain(|subnet| !idle.contains(subnet));
        self.subnets.truncate(max);
        let kept = self.subnets.len();
        if !found.is_empty() {
            let taken = self.class_prefixes();
            let free = found.iter().filter(|subnet| !taken.contains(subnet));
            self.set_subnets(self.subnets.iter().chain(free).copied().collect());
            self.subnets.truncate(max);
        }
        Renewed {
            came: self.subnets.len() - kept,
            went: before - kept,
        }
    }

    /// The subnets that have rows.
    pub fn subnets(&self) -> &[Prefix] {
        &self.subnets
    }

    /// The slot of a row.
    pub fn slot(&self, key: &SlotKey) -> Option<u32> {
        self.slots.get(key)
    }

    /// The slots of a class and of those below it.
    pub fn slots_below(&self, class: &str) -> Vec<u32> {
        let Some(at) = self.classes.position(class) else {
            return Vec::new();
        };
        let below = self.classes.classes()[self.classes.subtree(at)].iter();
        below
            .filter_map(|class| self.slots.class(&class.name))
            .collect()
    }

    /// Slots in use, and how many there are.
    pub fn slots(&self) -> [u64; 2] {
        [
            self.slots.used() as u64 + 1,
            u64::from(self.slots.capacity()),
        ]
    }

    /// Gives every row its slot and says what follows. O(classes).
    pub fn layout(&mut self, watched: &Watched<'_>) -> Layout {
        let mut layout = Layout::default();
        self.assign(watched, &mut layout);
        layout.rules = self.classes.rules(
            &self.slots,
            watched.index_of,
            &self.labels,
            &watched.uplinks,
        );
        self.class_rows(&mut layout);
        for (ifindex, name) in &watched.interfaces {
            if let Some(slot) = self.slots.get(&SlotKey::Interface((*name).to_owned())) {
                layout.interfaces.push((*ifindex, slot));
                layout.rows.push(plain(slot, name, Kind::Interface));
            }
        }
        for subnet in &self.subnets {
            if let Some(slot) = self.slots.get(&SlotKey::Subnet(*subnet)) {
                layout.rules.prefixes.push((*subnet, slot));
                layout
                    .rows
                    .push(plain(slot, &subnet.to_string(), Kind::Subnet));
            }
        }
        layout.rows.push(plain(OTHER, OTHER_NAME, Kind::Other));
        layout
    }

    fn assign(&mut self, watched: &Watched<'_>, layout: &mut Layout) {
        // A prefix of a class is the class's, even if a subnet was found there before.
        let taken = self.class_prefixes();
        self.subnets.retain(|subnet| !taken.contains(subnet));
        // A class that nothing leads to counts what is below it, and needs no slot for that.
        let led_to = self
            .classes
            .classes()
            .iter()
            .filter(|c| !c.criteria.is_empty());
        let classes = led_to.map(|class| SlotKey::Class(class.name.clone()));
        let names = watched.interfaces.iter();
        let interfaces = names.map(|(_, name)| SlotKey::Interface((*name).to_owned()));
        let subnets = self.subnets.iter().map(|prefix| SlotKey::Subnet(*prefix));
        for assigned in [
            self.slots.assign(Space::Class, classes),
            self.slots.assign(Space::Interface, interfaces),
            self.slots.assign(Space::Subnet, subnets),
        ] {
            layout.begun.extend(assigned.added);
            layout.refused += assigned.refused;
            self.given_up.extend(assigned.freed);
        }
    }

    /// The prefixes that lead to classes.
    fn class_prefixes(&self) -> HashSet<Prefix> {
        let classes = self.classes.classes().iter();
        let criteria = classes.flat_map(|class| &class.criteria);
        let prefixes = criteria.filter_map(|criterion| match criterion {
            Criterion::Prefix(prefix) => Some(*prefix),
            _ => None,
        });
        prefixes.collect()
    }

    /// Classes in tree order; positions of rows are those of classes.
    fn class_rows(&self, layout: &mut Layout) {
        let classes = self.classes.classes().iter();
        layout.rows.extend(classes.map(|class| {
            let slot = self.slots.class(&class.name);
            row(slot.unwrap_or(NO_SLOT), class)
        }));
    }

    /// A reading after the last [`RowTable::layout`] came into force has been taken: what was given up
    /// before it may serve others. Says whether anything is free again.
    pub fn read(&mut self) -> bool {
        let any = !self.given_up.is_empty();
        for slot in self.given_up.drain(..) {
            self.slots.release(slot);
        }
        any
    }
}

fn plain(slot: u32, name: &str, kind: Kind) -> RowSpec {
    RowSpec {
        slot,
        name: name.to_owned(),
        kind,
        ..RowSpec::default()
    }
}

fn row(slot: u32, class: &Class) -> RowSpec {
    RowSpec {
        slot,
        name: class.name.clone(),
        kind: Kind::Class,
        parent: class.parent,
        plan_up_bps: class.up.ceil_bps,
        plan_down_bps: class.down.ceil_bps,
        sla: class.sla,
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::Ledger;

    use super::*;
    use fairpath_class::{Drafts, Uplinks};

    fn net(third: u8) -> Prefix {
        Prefix::new([10, 10, third, 0].into(), 24)
    }

    fn laid_out(table: &mut RowTable) -> Layout {
        let watched = Watched {
            interfaces: Vec::new(),
            uplinks: Vec::new(),
            index_of: &|_| None,
        };
        let layout = table.layout(&watched);
        Ledger::check(&layout.rows).unwrap();
        layout
    }

    fn renewed(came: usize, went: usize) -> Renewed {
        Renewed { came, went }
    }

    #[test]
    fn a_subnet_that_is_found_again_has_one_row() {
        let mut table = RowTable::new(16);
        assert_eq!(table.renew_subnets(&[], &[net(2)], 9), renewed(1, 0));
        laid_out(&mut table);
        let again = [net(2), net(3), net(3)];
        assert_eq!(table.renew_subnets(&[], &again, 9), renewed(1, 0));
        assert_eq!(table.subnets(), [net(2), net(3)]);
        let rows = laid_out(&mut table).rows;
        let subnets = rows.iter().filter(|row| row.kind == Kind::Subnet);
        assert_eq!(subnets.count(), 2);
        // As a state file that names one twice would have it.
        table.set_subnets(vec![net(2), net(3), net(2)]);
        laid_out(&mut table);
    }

    #[test]
    fn a_subnet_that_waits_for_a_slot_is_not_added_again_each_time_it_is_found() {
        let mut table = RowTable::new(2);
        table.renew_subnets(&[], &[net(2), net(3)], 9);
        assert_eq!(laid_out(&mut table).refused, 1);
        // Without a row it is unmatched for as long as it has traffic.
        assert_eq!(table.renew_subnets(&[], &[net(3)], 9), renewed(0, 0));
        assert_eq!(table.renew_subnets(&[net(2)], &[net(3)], 9), renewed(0, 1));
        laid_out(&mut table);
        assert!(table.read());
        assert_eq!(laid_out(&mut table).refused, 0);
    }

    #[test]
    fn renewal_keeps_to_the_limit_and_leaves_classes_their_prefixes() {
        let mut drafts = Drafts::new();
        drafts.read_toml(
            "f.toml",
            "[[class]]\nname = \"emil\"\nprefix = \"10.10.4.0/24\"\n",
        );
        let built = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
        let mut table = RowTable::new(16);
        table.set_classes(&Arc::new(built), &Arc::default());
        let found = [net(4), net(2), net(3), net(5)];
        assert_eq!(table.renew_subnets(&[], &found, 2), renewed(2, 0));
        assert_eq!(table.subnets(), [net(2), net(3)]);
        assert_eq!(table.renew_subnets(&[net(2)], &[net(5)], 2), renewed(1, 1));
        assert_eq!(table.renew_subnets(&[], &[], 1), renewed(0, 1));
        assert_eq!(table.subnets(), [net(3)]);
        laid_out(&mut table);
    }
}
