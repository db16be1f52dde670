//! Converts classes to the core's rules, and a slow lookup as reference for tests.

use std::collections::HashSet;

use fairpath_core::{OTHER, Rules};

use crate::class::{Class, ClassSet};
use crate::criterion::Endpoint;
use crate::labels::Labels;
use crate::slots::{SlotKey, Slots};

impl ClassSet {
    /// The key of each class in tree order, for [`Slots::assign`]. If slots are scarce, the first get them.
    pub fn slot_keys(&self) -> impl Iterator<Item = SlotKey> {
        let classes = self.classes().iter();
        classes.map(|class| SlotKey::Class(class.name.clone()))
    }

    /// The rules that assign packets to classes.
    ///
    /// `slots` are those assigned for this set. Classes without slot have [`OTHER`], which the core
    /// treats as "no rule" except for prefixes. Interfaces unknown to `ifindex_of` are omitted. `uplinks`
    /// are the indices of the uplinks. O(criteria).
    pub fn rules(
        &self,
        slots: &Slots,
        ifindex_of: impl Fn(&str) -> Option<u32>,
        labels: &Labels,
        uplinks: &[u32],
    ) -> Rules {
        let slot_of = |_: usize, class: &Class| slots.class(&class.name).unwrap_or(OTHER);
        Rules {
            labels: labels.prefixes().to_vec(),
            ..self.rules_by(slot_of, ifindex_of, uplinks)
        }
    }

    /// The same with the index of a class in tree order, from 1, as its slot.
    pub fn numbered_rules(
        &self,
        ifindex_of: impl Fn(&str) -> Option<u32>,
        uplinks: &[u32],
    ) -> Rules {
        self.rules_by(|at, _| at as u32 + 1, ifindex_of, uplinks)
    }

    fn rules_by(
        &self,
        slot_of: impl Fn(usize, &Class) -> u32,
        ifindex_of: impl Fn(&str) -> Option<u32>,
        uplinks: &[u32],
    ) -> Rules {
        let mut rules = Rules {
            uplinks: uplinks.to_vec(),
            ..Rules::default()
        };
        // Two names may be one interface (altnames): the first class that names it has it.
        let mut taken = HashSet::new();
        for (at, class) in self.classes().iter().enumerate() {
            let slot = slot_of(at, class);
            for criterion in &class.criteria {
                let index_of = |name: &str| ifindex_of(name).filter(|i| taken.insert(*i));
                criterion.add_to(&mut rules, slot, index_of);
            }
        }
        rules
    }

    /// The class of an endpoint, found by checking every criterion. Slow, as a reference for tests.
    /// O(criteria).
    pub fn classify(&self, endpoint: &Endpoint<'_>) -> Option<&Class> {
        let mut best = None;
        for class in self.classes() {
            for order in class.criteria.iter().filter_map(|c| c.fits(endpoint)) {
                if best.is_none_or(|(first, _)| order < first) {
                    best = Some((order, class));
                }
            }
        }
        best.map(|(_, class)| class)
    }
}
