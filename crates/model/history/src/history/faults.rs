//! One fault, one alert: which of the active alerts are reported.
//!
//! A fault at a class also raises the alerts of its ancestors, which include it, and a fault at a site
//! raises those of the classes below. So of a tree of active alerts with the same condition and leg:
//!
//! - An alert with exactly one alerting branch below is explained by it, and is not reported.
//! - Any other alert is a fault, except below a fault. It is reported with the number of alerts below.
//! - Below an alert that was reported, no other one is reported.
//!
//! An alert that was reported once is reported again when it ends, and only then. When the alert above
//! it ends first, an alert that is still active is reported.

use std::collections::BTreeMap;

use fairpath_core::INSIDE;

use super::alerts::{MAX_ALERTS_PER_INTERVAL, Proposal, WATCHED};
use super::{History, Node};
use crate::snapshot::{ALERT_SCHEMA, Alert, Kind};

/// An active alert: kind and name of its row, and its index in [`WATCHED`].
type Key = (Kind, String, usize);

/// An active alert.
#[derive(Clone, Debug)]
struct Standing {
    /// As it began, with [`Alert::below`] of now. Its text does not contain this number.
    alert: Alert,
    reported: bool,
}

/// The active alerts of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    standing: BTreeMap<Key, Standing>,
    /// More was to report than an interval permits.
    due: bool,
}

impl Faults {
    /// The active alerts that were reported, by kind and name.
    pub fn reported(&self) -> Vec<Alert> {
        let reported = self.standing.values().filter(|standing| standing.reported);
        reported.map(|standing| counted(&standing.alert)).collect()
    }

    fn end(&mut self, key: &Key) -> bool {
        self.standing
            .remove(key)
            .is_some_and(|standing| standing.reported)
    }
}

/// The alert with the number of those below in its text.
fn counted(alert: &Alert) -> Alert {
    let mut alert = alert.clone();
    if alert.below > 0 {
        alert.text += &format!(", and {} below", alert.below);
    }
    alert
}

impl History {
    /// Takes begins and ends that were applied. Returns those that are reported: ends first.
    pub(super) fn report(&mut self, settled: Vec<(usize, Proposal)>) -> Vec<Alert> {
        if settled.is_empty() && !self.faults.due {
            return Vec::new();
        }
        let unix_ns = self.clock.last.unix_ns;
        let mut alerts = Vec::new();
        for (row, proposal) in settled {
            let spec = &self.nodes[row].place.spec;
            let alert = record((spec.kind, &spec.name), &proposal, unix_ns);
            let key = (spec.kind, spec.name.clone(), proposal.watched);
            if proposal.begins {
                let reported = false;
                self.faults
                    .standing
                    .insert(key, Standing { alert, reported });
            } else if self.faults.end(&key) {
                alerts.push(alert);
            }
        }
        self.report_faults(alerts)
    }

    /// Takes the ends of alerts of a removed row. Returns those that are reported.
    pub(super) fn report_removed(
        &mut self,
        row: (Kind, &str),
        proposals: &[Proposal],
    ) -> Vec<Alert> {
        let unix_ns = self.clock.last.unix_ns;
        let mut alerts = Vec::new();
        for proposal in proposals {
            let key = (row.0, row.1.to_owned(), proposal.watched);
            if self.faults.end(&key) {
                alerts.push(record(row, proposal, unix_ns));
            }
        }
        alerts
    }

    /// Lists the active alerts of new rows. Those of a restored state were reported before it was saved.
    pub(super) fn report_rows(&mut self, mut alerts: Vec<Alert>, restored: bool) -> Vec<Alert> {
        for row in &self.alerting {
            let Node { place, account } = &self.nodes[*row];
            let holds = account.learnt.iter().flat_map(|learnt| &learnt.watch.holds);
            for (watched, hold) in holds.enumerate().filter(|(_, hold)| hold.active) {
                let key = (place.spec.kind, place.spec.name.clone(), watched);
                self.faults.standing.entry(key).or_insert_with(|| Standing {
                    alert: continuing(
                        (place.spec.kind, &place.spec.name),
                        watched,
                        hold.condition_unix_ns(),
                    ),
                    reported: false,
                });
            }
        }
        let reported = self.report_faults(Vec::new());
        if !restored {
            alerts.extend(reported);
        }
        alerts
    }

    /// Adds the faults that are not reported yet. O(active alerts).
    fn report_faults(&mut self, mut alerts: Vec<Alert>) -> Vec<Alert> {
        self.faults.due = false;
        let unix_ns = self.clock.last.unix_ns;
        for watched in 0..WATCHED.len() {
            let nodes = &self.nodes;
            let is_active = |row: &&usize| {
                let learnt = nodes[**row].account.learnt.as_ref();
                learnt.is_some_and(|learnt| learnt.watch.holds[watched].active)
            };
            let rows: Vec<usize> = self.alerting.iter().filter(is_active).copied().collect();
            let ends: Vec<usize> = rows.iter().map(|row| nodes[*row].place.end).collect();
            let mut covered = vec![false; rows.len()];
            for (at, row) in rows.iter().enumerate() {
                let below = rows[at..].partition_point(|other| *other < ends[at]) - 1;
                let spec = &nodes[*row].place.spec;
                let key = (spec.kind, spec.name.clone(), watched);
                let Some(standing) = self.faults.standing.get_mut(&key) else {
                    continue;
                };
                standing.alert.below = below as u64;
                let is_fault = branches(&ends, &rows, at, below) != 1 && !covered[at];
                if is_fault && !standing.reported {
                    if alerts.len() >= MAX_ALERTS_PER_INTERVAL {
                        self.faults.due = true;
                        continue;
                    }
                    standing.reported = true;
                    standing.alert.unix_ns = unix_ns;
                    alerts.push(counted(&standing.alert));
                }
                if standing.reported {
                    covered[at + 1..=at + below].fill(true);
                }
            }
        }
        alerts
    }
}

/// The number of alerting rows below `rows[at]` without another one between.
fn branches(ends: &[usize], rows: &[usize], at: usize, below: usize) -> usize {
    let (mut count, mut next) = (0, at + 1);
    while next <= at + below {
        count += 1;
        next += rows[next..].partition_point(|row| *row < ends[next]);
    }
    count
}

/// The record of a begin or an end.
fn record((kind, class): (Kind, &str), proposal: &Proposal, unix_ns: u64) -> Alert {
    let (alert, leg) = WATCHED[proposal.watched];
    let leg = if leg == INSIDE { "inside" } else { "outside" };
    let mut alert = Alert {
        schema: ALERT_SCHEMA,
        unix_ns,
        active: proposal.begins,
        class: class.to_owned(),
        kind,
        alert,
        leg: leg.to_owned(),
        since_unix_ns: proposal.since_unix_ns,
        text: format!("{class}: {leg}: {}", proposal.text),
        ..Alert::default()
    };
    proposal.fill(&mut alert);
    alert
}

/// The record of an alert that began before this process. Its values were not saved.
fn continuing((kind, class): (Kind, &str), watched: usize, since_unix_ns: u64) -> Alert {
    let (alert, leg) = WATCHED[watched];
    let leg = if leg == INSIDE { "inside" } else { "outside" };
    Alert {
        schema: ALERT_SCHEMA,
        unix_ns: since_unix_ns,
        active: true,
        class: class.to_owned(),
        kind,
        alert,
        leg: leg.to_owned(),
        since_unix_ns,
        text: format!("{class}: {leg}: active since before the start of the daemon"),
        ..Alert::default()
    }
}
