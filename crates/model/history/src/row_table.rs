//! The row table: classes, monitored interfaces, subnets found in traffic and `other`, each with its
//! slot.
//!
//! ```text
//! configuration --.
//! interfaces ------+--> RowTable (slots) --> Layout: rows -> history; rules, slots -> kernel
//! traffic --------'
//! ```
//!
//! A name keeps its slot as long as it has a row. A released slot is reused only after
//! [`RowTable::read`], when its last counts were read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairpath_class::{Class, ClassSet, Criterion, Labels, SlotKey, Slots, Space};
use fairpath_core::{OTHER, Prefix, Rules};
use fairpath_units::IfIndex;

use crate::history::{NO_SLOT, RowSpec};
use crate::snapshot::Kind;

/// The name of the row of packets that match no class.
pub const OTHER_NAME: &str = "other";

/// The monitored interfaces.
pub struct Watched<'a> {
    /// Index and name of each monitored interface.
    pub interfaces: Vec<(IfIndex, &'a str)>,
    /// Indices of the uplinks.
    pub uplinks: Vec<u32>,
    /// Looks up the index of an interface by name.
    pub index_of: &'a dyn Fn(&str) -> Option<u32>,
}

/// Rows for the history, rules and slots for the kernel.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Rows in tree order.
    pub rows: Vec<RowSpec>,
    /// The rules of the kernel.
    pub rules: Rules,
    /// Slots with a new owner.
    pub begun: Vec<u32>,
    /// Slots of monitored interfaces, by index.
    pub interfaces: Vec<(IfIndex, u32)>,
    /// Number of rows without a slot. They count in [`OTHER`].
    pub refused: usize,
}

/// The result of [`RowTable::renew_subnets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Number of added subnets.
    pub arrived: usize,
    /// Number of removed subnets.
    pub went: usize,
}

/// Rows and their slots.
#[derive(Clone, Debug)]
pub struct RowTable {
    slots: Slots,
    classes: Arc<ClassSet>,
    labels: Arc<Labels>,
    /// Without duplicates.
    subnets: Vec<Prefix>,
    /// Released slots, whose last counts the next reading returns.
    released: Vec<u32>,
}

impl RowTable {
    /// A table without rows, for `capacity` slots of the kernel.
    pub fn new(capacity: u32) -> RowTable {
        RowTable {
            slots: Slots::new(capacity),
            classes: Arc::default(),
            labels: Arc::default(),
            subnets: Vec::new(),
            released: Vec::new(),
        }
    }

    /// Sets classes and labels. [`RowTable::layout`] applies them.
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

    /// Sets the subnets without duplicates. [`RowTable::layout`] applies them.
    pub fn set_subnets(&mut self, mut subnets: Vec<Prefix>) {
        let mut seen = HashSet::new();
        subnets.retain(|subnet| seen.insert(*subnet));
        self.subnets = subnets;
    }

    /// Removes `idle` subnets and those above `max`, then adds subnets of `found` in their order up to
    /// `max`. [`RowTable::layout`] applies this.
    ///
    /// `found` may include existing subnets, because a row without slot stays unmatched. O(subnets), and
    /// O(classes) if `found` is not empty.
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
            arrived: self.subnets.len() - kept,
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

    /// The slots of a class and of the classes below it.
    pub fn slots_below(&self, class: &str) -> Vec<u32> {
        let Some(at) = self.classes.position(class) else {
            return Vec::new();
        };
        let below = self.classes.classes()[self.classes.subtree(at)].iter();
        below
            .filter_map(|class| self.slots.class(&class.name))
            .collect()
    }

    /// Number of slots in use, and of all slots.
    pub fn slots(&self) -> [u64; 2] {
        [
            self.slots.used() as u64 + 1,
            u64::from(self.slots.capacity()),
        ]
    }

    /// Assigns slots, and returns the rows and rules. O(classes).
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
        let mut interface_rows = HashMap::new();
        for (ifindex, name) in &watched.interfaces {
            if let Some(slot) = self.slots.get(&SlotKey::Interface((*name).to_owned())) {
                layout.interfaces.push((*ifindex, slot));
                interface_rows.insert(*name, layout.rows.len());
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
        self.find_interfaces(watched, &interface_rows, &mut layout.rows);
        layout.rows.push(plain(OTHER, OTHER_NAME, Kind::Other));
        layout
    }

    fn assign(&mut self, watched: &Watched<'_>, layout: &mut Layout) {
        // A prefix of a class belongs to the class, even if a subnet was found there before.
        let taken = self.class_prefixes();
        self.subnets.retain(|subnet| !taken.contains(subnet));
        // A class without criteria counts only its children and needs no slot.
        let matched = self
            .classes
            .classes()
            .iter()
            .filter(|c| !c.criteria.is_empty());
        let classes = matched.map(|class| SlotKey::Class(class.name.clone()));
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
            self.released.extend(assigned.freed);
        }
    }

    /// The prefixes of classes.
    fn class_prefixes(&self) -> HashSet<Prefix> {
        let classes = self.classes.classes().iter();
        let criteria = classes.flat_map(|class| &class.criteria);
        let prefixes = criteria.filter_map(|criterion| match criterion {
            Criterion::Prefix(prefix) => Some(*prefix),
            _ => None,
        });
        prefixes.collect()
    }

    /// Adds the classes in tree order. The index of a class is that of its row.
    fn class_rows(&self, layout: &mut Layout) {
        let classes = self.classes.classes().iter();
        layout.rows.extend(classes.map(|class| {
            let slot = self.slots.class(&class.name);
            row(slot.unwrap_or(NO_SLOT), class)
        }));
    }

    /// Sets the interface of classes and subnets where it is known: by the class itself, or because all
    /// monitored interfaces but one are uplinks.
    fn find_interfaces(
        &self,
        watched: &Watched<'_>,
        rows_of: &HashMap<&str, usize>,
        rows: &mut [RowSpec],
    ) {
        let is_uplink = |index: &IfIndex| watched.uplinks.contains(&index.0);
        let inside = watched.interfaces.iter();
        let mut inside = inside.filter(|(index, _)| !is_uplink(index));
        let only = inside.next().map(|(_, name)| *name);
        let only = only.filter(|_| inside.next().is_none());
        let (classes, others) = rows.split_at_mut(self.classes.classes().len());
        for row in others.iter_mut().filter(|row| row.kind == Kind::Subnet) {
            row.interface = only.and_then(|name| rows_of.get(name)).copied();
        }
        for (class, row) in self.classes.classes().iter().zip(classes) {
            let named = class.criteria.iter().find_map(|criterion| match criterion {
                Criterion::Interface(name) => Some(name.as_str()),
                _ => None,
            });
            let name = named.or(only.filter(|_| class.parent.is_none()));
            row.interface = name.and_then(|name| rows_of.get(name)).copied();
        }
    }

    /// Releases slots after a reading that followed the last active [`RowTable::layout`]. Returns
    /// whether a slot became free.
    pub fn read(&mut self) -> bool {
        let any = !self.released.is_empty();
        for slot in self.released.drain(..) {
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
        ceil_up_bps: class.up.ceil_bps,
        ceil_down_bps: class.down.ceil_bps,
        sla: class.sla,
        interface: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::history::History;

    use super::*;
    use fairpath_class::{Drafts, Uplinks};

    fn net(third: u8) -> Prefix {
        Prefix::new([10, 10, third, 0].into(), 24)
    }

    fn layout(table: &mut RowTable) -> Layout {
        let watched = Watched {
            interfaces: Vec::new(),
            uplinks: Vec::new(),
            index_of: &|_| None,
        };
        let layout = table.layout(&watched);
        History::check(&layout.rows).unwrap();
        layout
    }

    fn renewed(arrived: usize, went: usize) -> Renewed {
        Renewed { arrived, went }
    }

    #[test]
    fn subnet_that_is_found_again_has_one_row() {
        let mut table = RowTable::new(16);
        assert_eq!(table.renew_subnets(&[], &[net(2)], 9), renewed(1, 0));
        layout(&mut table);
        let again = [net(2), net(3), net(3)];
        assert_eq!(table.renew_subnets(&[], &again, 9), renewed(1, 0));
        assert_eq!(table.subnets(), [net(2), net(3)]);
        let rows = layout(&mut table).rows;
        let subnets = rows.iter().filter(|row| row.kind == Kind::Subnet);
        assert_eq!(subnets.count(), 2);
        // As from a state file with a duplicate.
        table.set_subnets(vec![net(2), net(3), net(2)]);
        layout(&mut table);
    }

    #[test]
    fn classes_have_the_interfaces_that_are_known() {
        let mut drafts = Drafts::new();
        let text = "[[class]]\nname = \"site\"\n\
                    [[class]]\nname = \"emil\"\nparent = \"site\"\nprefix = \"10.10.4.0/24\"\n\
                    [[class]]\nname = \"frida\"\ninterface = \"ppp0\"\n";
        drafts.read_toml("f.toml", text);
        let built = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
        let interfaces_of = |names: &[&'static str], uplinks: Vec<u32>| {
            let mut table = RowTable::new(64);
            table.set_classes(&Arc::new(built.clone()), &Arc::default());
            table.set_subnets(vec![net(2)]);
            let numbered = (1..).map(IfIndex).zip(names.iter().copied());
            let rows = table.layout(&Watched {
                interfaces: numbered.collect(),
                uplinks,
                index_of: &|_| None,
            });
            History::check(&rows.rows).unwrap();
            let classes = ["site", "emil", "frida", "10.10.2.0/24"].map(|class| {
                let row = rows.rows.iter().find(|row| row.name == class).unwrap();
                row.interface.map(|at| rows.rows[at].name.clone())
            });
            classes.map(|name| name.unwrap_or_default())
        };
        // Classes below have that of their parent.
        assert_eq!(
            interfaces_of(&["lan0", "wan0"], vec![2]),
            ["lan0", "", "", "lan0"]
        );
        assert_eq!(interfaces_of(&["lan0", "wan0"], vec![]), ["", "", "", ""]);
        assert_eq!(
            interfaces_of(&["lan0", "ppp0", "wan0"], vec![3]),
            ["", "", "ppp0", ""]
        );
        assert_eq!(interfaces_of(&["lan0"], vec![]), ["lan0", "", "", "lan0"]);
    }

    #[test]
    fn a_subnet_without_slot_is_added_once() {
        let mut table = RowTable::new(2);
        table.renew_subnets(&[], &[net(2), net(3)], 9);
        assert_eq!(layout(&mut table).refused, 1);
        // Without a row it is unmatched for as long as it has traffic.
        assert_eq!(table.renew_subnets(&[], &[net(3)], 9), renewed(0, 0));
        assert_eq!(table.renew_subnets(&[net(2)], &[net(3)], 9), renewed(0, 1));
        layout(&mut table);
        assert!(table.read());
        assert_eq!(layout(&mut table).refused, 0);
    }

    #[test]
    fn renewal_respects_the_limit_and_class_prefixes() {
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
        layout(&mut table);
    }
}
