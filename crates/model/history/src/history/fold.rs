//! Service levels of many classes of one parent: one alert of the parent.
//!
//! The round-trip time of a parent is that of its busiest classes, so a parent without its own service
//! level is compared with theirs. It is above while [`FOLD_SHARE`] of its classes are, and at least
//! [`FOLD_MIN_CLASSES`]. It is below at half of this share. Parents are classes of the parents above
//! them in the same way. A class waits with its report while a parent is about to begin.

use std::collections::BTreeSet;

use super::alerts::{BREACH, Below, Hold, Proposal, When};
use super::{History, Node};
use crate::snapshot::Kind;

/// Share of the classes below a parent, of those compared, from which its alert begins.
pub const FOLD_SHARE: f64 = 0.5;
/// Minimum number of these classes.
pub const FOLD_MIN_CLASSES: u64 = 3;

impl History {
    /// Compares the parents of classes above their service levels, and those that were above. Returns
    /// their begins and ends. O(children of these parents).
    pub(super) fn judge_parents(
        &mut self,
        mut parents: BTreeSet<usize>,
        when: &When,
    ) -> Vec<(usize, Proposal)> {
        let mut proposals = Vec::new();
        parents.extend(self.folding.drain(..));
        while let Some(row) = parents.pop_last() {
            if !self.settings.alerts.folds(&self.nodes[row].place) {
                continue;
            }
            let below = self.below(row, when);
            let over = self.no_comparison_below(row);
            let Node { place, account } = &mut self.nodes[row];
            let Some(learnt) = &mut account.learnt else {
                continue;
            };
            let watch = &mut learnt.watch;
            let proposal = watch.judge_below(&self.settings.alerts, when, &below, over);
            if watch.holds[BREACH].is_above() {
                self.folding.push(row);
                parents.extend(place.spec.parent);
            }
            proposals.extend(proposal.map(|proposal| (row, proposal)));
        }
        proposals
    }

    /// The parents that are above, or whose alert is active.
    pub(super) fn list_folding(&mut self) {
        let nodes = self.nodes.iter().enumerate();
        let above = nodes.filter(|(_, Node { place, account })| {
            let breach = account.holds().nth(BREACH);
            place.children > 0 && breach.is_some_and(|hold| hold.is_above())
        });
        self.folding = above.map(|(row, _)| row).collect();
    }

    /// True while a parent of the row is about to begin, with an alert that would include the row's.
    pub(super) fn parent_rises(&self, row: usize, needed: u32) -> bool {
        let parent = |row: &usize| self.nodes[*row].place.spec.parent;
        let mut above = std::iter::successors(parent(&row), parent);
        above.any(|row| {
            let breach = self.nodes[row].account.holds().nth(BREACH);
            breach.is_some_and(|hold| hold.rises(needed))
        })
    }

    /// The children of a row that were compared within the time that a begin needs.
    fn below(&self, row: usize, when: &When) -> Below {
        let mut below = Below::default();
        let mut next = row + 1;
        while next < self.nodes[row].place.end {
            let Node { place, account } = &self.nodes[next];
            next = place.end;
            let breach = account.holds().nth(BREACH);
            let compared = breach.filter(|hold| hold.is_recent(&self.settings.alerts, when));
            if let Some(hold) = compared.filter(|_| place.spec.kind == Kind::Class) {
                below.compared += 1;
                below.above += u64::from(hold.is_above());
            }
        }
        below
    }

    /// The reason to end an alert of a parent at once: nothing below was compared. Then O(descendants).
    fn no_comparison_below(&self, row: usize) -> Option<&'static str> {
        let below = &self.nodes[row + 1..self.nodes[row].place.end];
        let mut levels = below
            .iter()
            .filter(|node| self.settings.alerts.has_level(&node.place))
            .peekable();
        if levels.peek().is_none() {
            return Some("over: no class below has a service level now");
        }
        let compared = |node: &Node| node.account.holds().nth(BREACH).is_some_and(Hold::compared);
        match levels.any(compared) {
            true => None,
            false => Some("over: the service levels of the classes below decide now"),
        }
    }
}
