//! From classes to the core's rules, and the slow lookup that those rules are held against.

use std::collections::HashSet;
use std::net::IpAddr;

use fairpath_core::{OTHER, Rules};

use crate::class::{Class, ClassSet, Criterion};
use crate::labels::Labels;
use crate::slots::{SlotKey, Slots};

/// What is known of one endpoint of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// Its address.
    pub address: IpAddr,
    /// Packet mark, if it speaks of this endpoint.
    pub mark: Option<u32>,
    /// Link-layer address, if it is the endpoint's.
    pub mac: Option<[u8; 6]>,
    /// Outermost VLAN by which it is reached.
    pub vlan: Option<u16>,
    /// Code point, if it speaks of this endpoint.
    pub dscp: Option<u8>,
    /// Interface by which it is reached.
    pub interface: Option<&'a str>,
}

impl ClassSet {
    /// The key of each class, in the order of the tree: what [`Slots::assign`] wants. Where slots
    /// are short, the first have them.
    pub fn slot_keys(&self) -> impl Iterator<Item = SlotKey> {
        let classes = self.classes().iter();
        classes.map(|class| SlotKey::Class(class.name.clone()))
    }

    /// What the core needs to find a packet's class.
    ///
    /// `slots` has what was assigned for this set; classes without slot lead to [`OTHER`],
    /// which the core takes for "no rule" unless it is a prefix's.
    /// Interfaces that `ifindex_of` does not know are left out until they are there. `uplinks` are
    /// the indices of the interfaces whose hosts are remote. O(criteria).
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

    /// The same where a class's slot is its number: its place in the order of the tree, from 1.
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
                match criterion {
                    Criterion::Mark(mark) => rules.marks.push((*mark, slot)),
                    Criterion::Mac(mac) => rules.macs.push((*mac, slot)),
                    Criterion::Prefix(prefix) => rules.prefixes.push((*prefix, slot)),
                    Criterion::Vlan(vlan) => rules.vlans.push((*vlan, slot)),
                    Criterion::Dscp(dscp) => rules.dscps.push((*dscp, slot)),
                    Criterion::Interface(name) => {
                        let index = ifindex_of(name).filter(|index| taken.insert(*index));
                        rules.interfaces.extend(index.map(|index| (index, slot)));
                    }
                }
            }
        }
        rules
    }

    /// The class of an endpoint, found by looking at every criterion: obviously right, and slow.
    /// What is fast is tested against it. O(criteria).
    pub fn classify(&self, endpoint: &Endpoint<'_>) -> Option<&Class> {
        let found = |fits: &dyn Fn(&Criterion) -> bool| {
            self.classes()
                .iter()
                .find(|class| class.criteria.iter().any(fits))
        };
        found(&|c| matches!(c, Criterion::Mark(mark) if Some(*mark) == endpoint.mark))
            .or_else(|| found(&|c| matches!(c, Criterion::Mac(mac) if Some(*mac) == endpoint.mac)))
            .or_else(|| self.longest_prefix(endpoint.address))
            .or_else(|| found(&|c| matches!(c, Criterion::Vlan(vlan) if Some(*vlan) == endpoint.vlan)))
            .or_else(|| found(&|c| matches!(c, Criterion::Dscp(dscp) if Some(*dscp) == endpoint.dscp)))
            .or_else(|| found(&|c| matches!(c, Criterion::Interface(name) if Some(name.as_str()) == endpoint.interface)))
    }

    fn longest_prefix(&self, address: IpAddr) -> Option<&Class> {
        let mut longest: Option<(u8, &Class)> = None;
        for class in self.classes() {
            for criterion in &class.criteria {
                if let Criterion::Prefix(prefix) = criterion
                    && prefix.contains(address)
                    && longest.is_none_or(|(len, _)| len < prefix.len)
                {
                    longest = Some((prefix.len, class));
                }
            }
        }
        longest.map(|(_, class)| class)
    }
}
