//! One fault, one alert: which of the active alerts are reported.
//!
//! A fault at a class also raises the alerts of its ancestors, which include it, and a fault at a site
//! raises those of the classes below. So of a tree of active alerts with the same condition and leg:
//!
//! - An alert with exactly one alerting branch below is explained by it, and is not reported.
//! - Any other alert is a fault, except below a fault. It is reported with the number of alerts below.
//! - Below an alert that was reported, no other one is reported.
//!
//! An alert that was reported once is reported again when it ends, and only then. It includes the other
//! alerts of its tree for [`AlertRules::cover_intervals`] more, because they end within this time: at
//! most [`MAX_ALERTS_PER_INTERVAL`] in an interval, and each with its own noise. After it, an alert is
//! reported that shows no sign of its end for the time that a begin needs.
//!
//! [`AlertRules::cover_intervals`]: super::alerts::AlertRules::cover_intervals

use std::collections::BTreeMap;

use fairpath_core::INSIDE;

use super::alerts::{BREACH, Hold, MAX_ALERTS_PER_INTERVAL, Proposal, WATCHED};
use super::{History, Node};
use crate::snapshot::{ALERT_SCHEMA, Alert, Kind};

/// An active alert: kind and name of its row, and its index in [`WATCHED`].
type Key = (Kind, String, usize);

/// The active alerts of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// As they began, with [`Alert::below`] of now. Their texts do not contain this number.
    standing: BTreeMap<Key, Alert>,
    /// History time from which an interval without begins and ends may have something to report.
    due_at: Option<u64>,
}

/// The part of a tree that includes an alert.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Included {
    No,
    /// In an active alert.
    InActive,
    /// In one that ended.
    InEnded,
}

/// The alerts of one condition and leg, in tree order: active ones, and those that still include others.
struct Tree {
    rows: Vec<usize>,
    /// Index after the last descendant of each row.
    ends: Vec<usize>,
    holds: Vec<Hold>,
}

impl Tree {
    fn of(nodes: &[Node], alerting: &[usize], watched: usize, t: u64) -> Tree {
        let hold = |row: &usize| {
            let learnt = nodes[*row].account.learnt.as_ref()?;
            let hold = learnt.watch.holds[watched];
            (hold.active || hold.covers(t)).then_some((*row, hold))
        };
        let (rows, holds): (Vec<usize>, Vec<Hold>) = alerting.iter().filter_map(hold).unzip();
        let ends = rows.iter().map(|row| nodes[*row].place.end).collect();
        Tree { rows, ends, holds }
    }

    /// Index after the last descendant of `at` in this list.
    fn end(&self, at: usize) -> usize {
        let end = self.ends[at];
        at + self.rows[at..].partition_point(|row| *row < end)
    }

    /// The branch below that explains the alert `at`: its only active one, or one that ended.
    fn branch(&self, at: usize) -> Included {
        let (mut active, mut ended, mut next) = (0, 0, at + 1);
        while next < self.end(at) {
            match self.holds[next].active {
                true => active += 1,
                false => ended += 1,
            }
            next = self.end(next);
        }
        match (active, ended) {
            (1, _) => Included::InActive,
            (0, 1..) => Included::InEnded,
            _ => Included::No,
        }
    }
}

impl Faults {
    /// There may be something to report at `t`.
    fn due(&mut self, t: u64) {
        self.due_at = Some(self.due_at.map_or(t, |due| due.min(t)));
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
    /// The active alerts that were reported, by kind and name. O(active alerts).
    pub(super) fn reported_alerts(&self) -> Vec<Alert> {
        let mut alerts: Vec<(Key, Alert)> = Vec::new();
        for row in &self.alerting {
            for (watched, hold) in self.nodes[*row].account.holds().enumerate() {
                let key = self.alert_key(*row, watched);
                let standing = self.faults.standing.get(&key).filter(|_| hold.reported);
                alerts.extend(standing.map(|alert| (key, counted(alert))));
            }
        }
        alerts.sort_by(|a, b| a.0.cmp(&b.0));
        alerts.into_iter().map(|(_, alert)| alert).collect()
    }

    fn alert_key(&self, row: usize, watched: usize) -> Key {
        let spec = &self.nodes[row].place.spec;
        (spec.kind, spec.name.clone(), watched)
    }

    /// Takes begins and ends that were applied, with true for a reported one. Returns those that are
    /// reported: ends first.
    pub(super) fn report(&mut self, settled: Vec<(usize, Proposal, bool)>) -> Vec<Alert> {
        let is_due = self.faults.due_at.is_some_and(|due| due <= self.clock.t);
        if settled.is_empty() && !is_due {
            return Vec::new();
        }
        let unix_ns = self.clock.last.unix_ns;
        let mut alerts = Vec::new();
        for (row, proposal, reported) in settled {
            let key = self.alert_key(row, proposal.watched);
            let alert = record((key.0, &key.1), &proposal, unix_ns);
            if proposal.begins {
                self.faults.standing.insert(key, alert);
                continue;
            }
            self.faults.standing.remove(&key);
            alerts.extend(reported.then_some(alert));
        }
        self.list_alerting();
        self.report_faults(alerts)
    }

    /// Takes the ends of alerts of a removed row, with true for a reported one. Returns those.
    pub(super) fn report_removed(
        &mut self,
        row: (Kind, &str),
        settled: &[(Proposal, bool)],
    ) -> Vec<Alert> {
        let unix_ns = self.clock.last.unix_ns;
        let mut alerts = Vec::new();
        for (proposal, reported) in settled {
            let key = (row.0, row.1.to_owned(), proposal.watched);
            self.faults.standing.remove(&key);
            alerts.extend(reported.then(|| record(row, proposal, unix_ns)));
        }
        alerts
    }

    /// Lists the active alerts of new rows, and adds those that are to report.
    pub(super) fn report_rows(&mut self, alerts: Vec<Alert>) -> Vec<Alert> {
        for row in &self.alerting {
            let spec = &self.nodes[*row].place.spec;
            let holds = self.nodes[*row].account.holds().enumerate();
            for (watched, hold) in holds.filter(|(_, hold)| hold.active) {
                let key = self.alert_key(*row, watched);
                let begun = || continuing((spec.kind, &spec.name), watched, hold);
                self.faults.standing.entry(key).or_insert_with(begun);
            }
        }
        self.report_faults(alerts)
    }

    /// Adds the faults that are not reported yet. O(active alerts).
    fn report_faults(&mut self, mut alerts: Vec<Alert>) -> Vec<Alert> {
        self.faults.due_at = None;
        for watched in 0..WATCHED.len() {
            let mut tree = Tree::of(&self.nodes, &self.alerting, watched, self.clock.t);
            self.report_tree(watched, &mut tree, &mut alerts);
            for (row, hold) in tree.rows.iter().zip(&tree.holds) {
                if let Some(learnt) = &mut self.nodes[*row].account.learnt {
                    learnt.watch.holds[watched] = *hold;
                }
            }
        }
        alerts
    }

    fn report_tree(&mut self, watched: usize, tree: &mut Tree, alerts: &mut Vec<Alert>) {
        let (t, unix_ns) = (self.clock.t, self.clock.last.unix_ns);
        let settings = &self.settings;
        let needed = settings.alerts.begins_after(settings.window_intervals);
        let mut includes = vec![Included::No; tree.rows.len()];
        for at in 0..tree.rows.len() {
            let (below, hold) = (at + 1..tree.end(at), tree.holds[at]);
            if !hold.active {
                self.faults.due(hold.covers_until);
                for other in below.filter(|other| tree.holds[*other].began_before_end_of(&hold)) {
                    if includes[other] == Included::No {
                        includes[other] = Included::InEnded;
                    }
                }
                continue;
            }
            let rises = watched == BREACH && self.parent_rises(tree.rows[at], needed);
            let key = self.alert_key(tree.rows[at], watched);
            let Some(alert) = self.faults.standing.get_mut(&key) else {
                continue;
            };
            let active = tree.holds[below.clone()].iter().filter(|hold| hold.active);
            alert.below = active.count() as u64;
            let included = match includes[at] {
                Included::No => tree.branch(at),
                included => included,
            };
            let hold = &mut tree.holds[at];
            hold.held |= included == Included::InEnded;
            hold.held &= includes[at] != Included::InActive;
            if included == Included::No && !hold.reported {
                let waits = rises || hold.held && !hold.stays(t, needed);
                if waits || alerts.len() >= MAX_ALERTS_PER_INTERVAL {
                    self.faults.due(t);
                    continue;
                }
                hold.reported = true;
                alert.unix_ns = unix_ns;
                alerts.push(counted(alert));
            }
            if hold.reported {
                includes[below].fill(Included::InActive);
            }
        }
    }
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
fn continuing((kind, class): (Kind, &str), watched: usize, hold: &Hold) -> Alert {
    let (alert, leg) = WATCHED[watched];
    let since_unix_ns = hold.condition_unix_ns();
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
