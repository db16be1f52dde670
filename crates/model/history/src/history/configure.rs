//! Applies a new set of rows, and keeps the data of rows that stay.

use std::collections::HashMap;

use fairpath_core::ClassCounts;

use super::account::Account;
use super::alerts::{Active, MAX_ALERTS_PER_INTERVAL, UNJUDGED_NS};
use super::tally::Meter;
use super::tree::{self, ConfigureError, NO_SLOT, Place, RowSpec};
use super::unmatched::parse_subnet;
use super::{History, MAX_PARKED, NO_ROW, Node, Parked, Slot};
use crate::snapshot::{Alert, Kind};

/// The previous rows.
struct Before {
    accounts: HashMap<(Kind, String), (Account, u32)>,
    slots: Vec<Slot>,
}

impl History {
    /// Checks that [`History::configure`] accepts these rows, before they are used elsewhere. O(rows).
    pub fn check(rows: &[RowSpec]) -> Result<(), ConfigureError> {
        tree::check(rows)
    }

    /// Sets the rows. A parent must precede its children, and siblings are in display order. Returns
    /// the alerts that end because their row was removed.
    ///
    /// A row with the kind and name of a current row, or of one removed within [`super::PARKED_NS`],
    /// keeps its data. `counts` are the core's current counters by slot, *after* slots with a new owner
    /// were cleared. Counting of new slots begins there. A row that keeps its slot is counted without
    /// a gap, unless the slot was reset. A row that changes its slot loses the counts since the last
    /// reading. A parent keeps the counts of removed children.
    ///
    /// Changes nothing if a row is invalid. O(rows).
    pub fn configure(
        &mut self,
        rows: Vec<RowSpec>,
        counts: &[ClassCounts],
    ) -> Result<Vec<Alert>, ConfigureError> {
        let places = tree::arrange(rows)?;
        self.configuration += 1;
        self.forget_subnets(&places);
        let mut before = self.take_rows();
        for place in places {
            self.add_row(place, &mut before, counts);
        }
        let alerts = self.park(before.accounts);
        self.list_rows();
        let alerts = self.report_rows(alerts);
        self.note_past(&alerts);
        Ok(alerts)
    }

    fn forget_subnets(&mut self, places: &[Place]) {
        let subnets = places.iter().map(|place| &place.spec);
        let subnets = subnets.filter(|spec| spec.kind == Kind::Subnet);
        let prefixes = subnets.filter_map(|spec| parse_subnet(&spec.name));
        self.unmatched.set_rows(prefixes.collect());
    }

    fn take_rows(&mut self) -> Before {
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let accounts = nodes.map(|Node { place, account }| {
            let spec = place.spec;
            ((spec.kind, spec.name), (account, spec.slot))
        });
        Before {
            accounts: accounts.collect(),
            slots: std::mem::take(&mut self.slots),
        }
    }

    fn add_row(&mut self, place: Place, before: &mut Before, counts: &[ClassCounts]) {
        let key = (place.spec.kind, place.spec.name.clone());
        let next = self.clock.interval + 1;
        let (account, old_slot) = match before.accounts.remove(&key) {
            Some(current) => current,
            None => match self.parked.remove(&key) {
                Some(parked) => {
                    let mut account = parked.account;
                    account.first_interval = next;
                    (account, NO_SLOT)
                }
                None => (Account::new(self.clock.t, next), NO_SLOT),
            },
        };
        let slot = place.spec.slot;
        if slot != NO_SLOT {
            let at = slot as usize;
            let kept = before.slots.get(at).filter(|_| slot == old_slot);
            let meter = meter(kept.map(|slot| slot.meter), counts.get(at));
            if self.slots.len() <= at {
                let none = Slot {
                    meter: Meter::default(),
                    row: NO_ROW,
                };
                self.slots.resize(at + 1, none);
            }
            let row = self.nodes.len() as u32;
            self.slots[at] = Slot { meter, row };
        }
        self.nodes.push(Node { place, account });
    }

    /// Parks removed rows with the data that a restart keeps, and ends their alerts.
    fn park(&mut self, removed: HashMap<(Kind, String), (Account, u32)>) -> Vec<Alert> {
        let mut alerts = Vec::new();
        let t = self.clock.t;
        for ((kind, name), (mut account, _)) in removed {
            if let Some(learnt) = &mut account.learnt {
                let ends = learnt.watch.remove("over: the class was removed", t);
                alerts.extend(self.report_removed((kind, &name), &ends));
            }
            self.places.used -= account.peers.as_ref().map_or(0, |peers| peers.places());
            let account = account.saved(&mut self.sums);
            self.parked
                .insert((kind, name), Parked { account, since: t });
        }
        self.drop_parked();
        alerts.sort_by(|a, b| a.class.cmp(&b.class));
        alerts
    }

    /// Ends the alerts of restored rows that are missing for [`UNJUDGED_NS`], at most
    /// [`MAX_ALERTS_PER_INTERVAL`] rows at once.
    pub(super) fn end_missing(&mut self) -> Vec<Alert> {
        let t = self.clock.t;
        if t - self.clock.start_t < UNJUDGED_NS {
            return Vec::new();
        }
        let rows = self.missing.len().min(MAX_ALERTS_PER_INTERVAL);
        let missing: Vec<_> = self.missing.drain(..rows).collect();
        let mut alerts = Vec::new();
        for key in missing {
            let parked = self.parked.get_mut(&key);
            let learnt = parked.and_then(|parked| parked.account.learnt.as_mut());
            let text = "over: the row has been missing since the restart";
            let ends = learnt.map(|learnt| learnt.watch.remove(text, t));
            alerts.extend(self.report_removed((key.0, &key.1), &ends.unwrap_or_default()));
        }
        alerts
    }

    fn drop_parked(&mut self) {
        let Some(excess) = self.parked.len().checked_sub(MAX_PARKED) else {
            return;
        };
        let parked = self.parked.iter();
        let mut oldest: Vec<_> = parked.map(|(key, row)| (row.since, key.clone())).collect();
        oldest.sort_unstable();
        for (_, key) in oldest.into_iter().take(excess) {
            self.parked.remove(&key);
            self.counters.parked_dropped += 1;
        }
    }

    /// Rebuilds lists and sums over rows.
    pub(super) fn list_rows(&mut self) {
        self.names = None;
        self.interval.reset(self.nodes.len());
        let rows = 0..self.nodes.len();
        let account = |row: &usize| &self.nodes[*row].account;
        self.recent = rows.clone().filter(|row| account(row).recent).collect();
        self.alerting = rows
            .filter(|row| account(row).alerting(self.clock.t))
            .collect();
        self.list_folding();
        self.active_alerts = Active::default();
        for Node { place, account } in &self.nodes {
            let active = account.holds().enumerate().filter(|(_, hold)| hold.active);
            active.for_each(|(watched, _)| self.active_alerts.begin(watched, place));
        }
        let nodes = self.nodes.iter().map(|node| &node.account);
        let parked = self.parked.values().map(|parked| &parked.account);
        let all = nodes.chain(parked);
        self.days = all.filter(|account| account.day.is_some()).count();
    }
}

/// Continues `kept` unless the counters were reset. A new meter begins at `counts`.
fn meter(kept: Option<Meter>, counts: Option<&ClassCounts>) -> Meter {
    let new = Meter::new(&counts.copied().unwrap_or_default());
    let Some(kept) = kept else {
        return new;
    };
    let reset = counts.is_some_and(|counts| { kept }.advance(counts).is_none());
    if reset { new } else { kept }
}
