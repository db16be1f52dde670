//! Adds a reading.

use std::collections::BTreeSet;

use fairpath_core::{BUCKETS, Cell, ClassCounts, INSIDE, OUTSIDE, Pair, PairKind, prefetch};

use super::affected;
use super::alerts::{BREACH, Evidence, MAX_ALERTS_PER_INTERVAL, Proposal, When};
use super::day::MAX_DAY_CLASSES;
use super::interval::Entry;
use super::load::{BusyScore, Seen};
use super::pad::pack;
use super::window::Mark;
use super::{History, MAX_PAST_ALERTS, Moment, NO_ROW, Node, PARKED_NS, Reading};
use crate::snapshot::{Alert, Kind};

const LEGS: [usize; 2] = [INSIDE, OUTSIDE];
/// Each interval searches 1/64 of the rows for idle peers.
const FORGET_PARTS: usize = 64;
/// Rows, cells or pairs between an early load and the next one that depends on it, or the use. The
/// data of a row is in many lines of memory, which wait for each other otherwise.
const AHEAD: usize = 4;

impl History {
    /// Adds an interval, and returns the alerts that began or ended with it.
    ///
    /// O(slots) comparisons, and work for active rows and their ancestors. Slots, cells and pairs
    /// without row are ignored. Ignored cells and pairs are counted.
    pub fn take(&mut self, reading: &Reading) -> Vec<Alert> {
        self.tick(reading);
        self.read_counts(reading.counts);
        self.read_cells(reading.cells);
        let nodes = &self.nodes;
        let parent = |row: usize| nodes[row].place.spec.parent;
        self.interval.roll_up(parent, &mut self.sums);
        self.post();
        self.add_to_total();
        self.expire();
        self.read_pairs(reading.pairs);
        self.forget();
        let mut alerts = self.end_missing();
        alerts.extend(self.judge());
        self.note_past(&alerts);
        alerts
    }

    /// Adds the interval to the traffic of all rows. O(words of rows without parent).
    fn add_to_total(&mut self) {
        let is_top = |entry: &&Entry| {
            let spec = &self.nodes[entry.row].place.spec;
            spec.parent.is_none() && spec.kind != Kind::Interface
        };
        let entries = self.interval.entries.iter().filter(is_top);
        self.total.add(
            entries,
            self.interval.unix_ns,
            self.interval.dt_ns,
            self.day_clock.step(),
            &mut self.sums,
        );
    }

    /// Keeps the ends of alerts for snapshots.
    pub(super) fn note_past(&mut self, alerts: &[Alert]) {
        for alert in alerts.iter().filter(|alert| !alert.active) {
            self.past_alerts.push_front(alert.clone());
        }
        self.past_alerts.truncate(MAX_PAST_ALERTS);
    }

    fn tick(&mut self, reading: &Reading) {
        let clock = &mut self.clock;
        let mono_ns = reading.mono_ns.max(clock.last.mono_ns);
        let dt_ns = mono_ns - clock.last.mono_ns;
        clock.t += dt_ns;
        clock.interval += 1;
        clock.last = Moment {
            unix_ns: reading.unix_ns,
            mono_ns,
        };
        clock.ends.push_back(clock.t);
        while clock.ends.len() > self.settings.window_intervals as usize + 1 {
            clock.ends.pop_front();
        }
        self.day_clock.advance(reading.unix_ns, dt_ns);
        self.unmatched.fade(dt_ns);
        self.interval
            .begin(reading.unix_ns.saturating_sub(dt_ns), dt_ns);
    }

    fn read_counts(&mut self, counts: &[ClassCounts]) {
        for (slot, counts) in self.slots.iter_mut().zip(counts) {
            if slot.row == NO_ROW || slot.meter.is_at(counts) {
                continue;
            }
            match slot.meter.advance(counts) {
                Some(tally) => self.interval.entry(slot.row as usize).tally.add(&tally),
                None => self.counters.counters_reset += 1,
            }
        }
    }

    fn read_cells(&mut self, cells: &[Cell]) {
        for (at, cell) in cells.iter().enumerate() {
            let slot = |ahead: usize| {
                let cell = cells.get(at + ahead)?;
                self.slots.get(cell.slot as usize)
            };
            slot(4 * AHEAD).inspect(|slot| prefetch(&slot.row));
            slot(2 * AHEAD).inspect(|slot| self.interval.prefetch(slot.row as usize));
            let slot = self.slots.get(cell.slot as usize);
            let row = slot.map(|slot| slot.row).filter(|row| *row != NO_ROW);
            let exists = usize::from(cell.bucket) < BUCKETS && cell.leg <= OUTSIDE as u8;
            let Some(row) = row.filter(|_| exists) else {
                self.counters.cells_without_row += u64::from(cell.count);
                continue;
            };
            let words = &mut self.interval.entry(row as usize).words;
            pack(
                words,
                cell.bucket,
                usize::from(cell.leg),
                u64::from(cell.count),
            );
        }
    }

    fn read_pairs(&mut self, pairs: &[Pair]) {
        for (at, pair) in pairs.iter().enumerate() {
            let peers = |ahead: usize| {
                let pair = pairs.get(at + ahead)?;
                let slot = self.slots.get(pair.slot as usize)?;
                let node = self.nodes.get(slot.row as usize)?;
                Some(&node.account.peers)
            };
            if let Some(pair) = pairs.get(at + 4 * AHEAD) {
                let slot = self.slots.get(pair.slot as usize);
                slot.inspect(|slot| prefetch(&slot.row));
            }
            peers(3 * AHEAD).inspect(|peers| prefetch(*peers));
            if let Some(Some(peers)) = peers(2 * AHEAD) {
                prefetch(&**peers);
            }
            if let Some(Some(peers)) = peers(AHEAD) {
                peers.prefetch(pairs[at + AHEAD].kind);
            }
            if pair.kind == PairKind::Unmatched {
                self.unmatched.add(pair);
                continue;
            }
            let slot = self.slots.get(pair.slot as usize);
            let node = slot.and_then(|slot| self.nodes.get_mut(slot.row as usize));
            let Some(node) = node else {
                self.counters.pairs_without_row += 1;
                continue;
            };
            let peers = node.account.peers.get_or_insert_default();
            peers.add(pair, self.clock.t, &mut self.places);
        }
        self.unmatched.bound();
    }

    /// Adds the interval to the data of its rows.
    fn post(&mut self) {
        let step = self.day_clock.step();
        let mut without_day = Vec::new();
        let (mut busy, mut scores) = (Vec::new(), Vec::new());
        for (at, entry) in self.interval.entries.iter().enumerate() {
            prefetch_rows(&self.interval.entries, at, &self.nodes);
            let Node { place, account } = &mut self.nodes[entry.row];
            let rates = self.interval.rates_bps(entry);
            self.sums.set(&entry.words);
            let loss = entry.tally.loss(INSIDE).both();
            let mark = Mark::new(self.clock.interval, rates, &self.sums, loss);
            account.add(self.clock.t, self.clock.interval, step, entry, mark);
            if !account.recent {
                account.recent = true;
                self.recent.push(entry.row);
            }
            let learnt = account.learnt.get_or_insert_default();
            let seen = Seen {
                dt_ns: self.interval.dt_ns,
                rates_bps: rates,
                plan_bps: [place.spec.ceil_up_bps, place.spec.ceil_down_bps],
                loss,
                one_line: place.one_line(),
            };
            let inside = self.sums.buckets(INSIDE);
            let judged = learnt.load.note(self.clock.t, &seen, inside);
            busy.extend(judged.busy.then_some(at));
            scores.extend(judged.score.map(|score| (entry.row, score)));
            if account.day.is_none() {
                without_day.push(entry.row);
            }
        }
        self.assign_days(&without_day);
        for at in busy {
            self.interval.entries[at].busy = true;
        }
        for (row, score) in scores {
            self.note_class(row, &score);
        }
    }

    /// Adds the score of a busy class to the rows above it, and to its interface. O(depth).
    fn note_class(&mut self, class: usize, score: &BusyScore) {
        let above = |row: &usize| self.nodes[*row].place.spec.parent;
        let mut rows: Vec<usize> = std::iter::successors(Some(class), above).collect();
        let mut interfaces = rows.iter().map(|row| self.nodes[*row].place.spec.interface);
        let interface = interfaces.find_map(|interface| interface);
        rows.extend(interface);
        for row in &rows[1..] {
            let learnt = self.nodes[*row].account.learnt.get_or_insert_default();
            learnt.load.note_class(self.clock.t, score);
        }
    }

    /// Assigns days to rows. If there are too many, rows are evicted that were not active in the
    /// current step, the least recently active first.
    fn assign_days(&mut self, rows: &[usize]) {
        let missing = (self.days + rows.len()).saturating_sub(MAX_DAY_CLASSES);
        if missing > 0 {
            self.evict_days(missing);
        }
        for row in rows {
            if self.days >= MAX_DAY_CLASSES {
                self.counters.days_refused += 1;
                continue;
            }
            self.days += 1;
            self.nodes[*row].account.day = Some(Box::default());
        }
    }

    fn evict_days(&mut self, mut missing: usize) {
        let parked = self.parked.values_mut();
        let parked = parked.filter(|parked| parked.account.day.is_some());
        for parked in parked.take(missing) {
            parked.account.day = None;
            self.days -= 1;
            self.counters.days_evicted += 1;
            missing -= 1;
        }
        if missing == 0 {
            return;
        }
        let step = self.day_clock.step();
        let idle = self.nodes.iter().enumerate().filter_map(|(row, node)| {
            let account = &node.account;
            let is_idle = account.day.is_some() && account.active_step < step;
            is_idle.then_some((account.active_at, row))
        });
        let mut idle: Vec<(u64, usize)> = idle.collect();
        idle.sort_unstable();
        for (_, row) in idle.into_iter().take(missing) {
            self.nodes[row].account.day = None;
            self.days -= 1;
            self.counters.days_evicted += 1;
        }
    }

    /// Removes old intervals from the windows of idle rows. [`History::judge`] does so for others.
    fn expire(&mut self) {
        let (now, oldest) = (self.clock.interval, self.clock.oldest());
        let (nodes, sums, interval) = (&mut self.nodes, &mut self.sums, &self.interval);
        let length = self.settings.window_intervals;
        self.recent.retain(|row| {
            if interval.get(*row).is_some() {
                return true;
            }
            let account = &mut nodes[*row].account;
            let newest = account.window.as_ref().and_then(|window| window.newest());
            account.recent = newest.is_some_and(|newest| newest >= oldest);
            if !account.recent || is_due(*row, now, length) {
                account.settle(oldest, sums);
            }
            account.recent
        });
    }

    /// Drops idle peers, and rows that were parked for [`PARKED_NS`].
    fn forget(&mut self) {
        let part = (self.clock.interval as usize) % FORGET_PARTS;
        for node in self.nodes.iter_mut().skip(part).step_by(FORGET_PARTS) {
            if let Some(peers) = &mut node.account.peers {
                peers.forget(self.clock.t, &mut self.places);
            }
        }
        if part == 0 {
            let (t, days) = (self.clock.t, &mut self.days);
            self.parked.retain(|_, parked| {
                let stays = t.saturating_sub(parked.since) < PARKED_NS;
                *days -= usize::from(!stays && parked.account.day.is_some());
                stays
            });
        }
    }

    /// Removes old intervals from the windows of active rows, once per window length. Compares active
    /// rows, and rows with active alerts.
    fn judge(&mut self) -> Vec<Alert> {
        let mut proposals: Vec<(usize, Proposal)> = Vec::new();
        let (now, oldest) = (self.clock.interval, self.clock.oldest());
        let length = self.settings.window_intervals;
        let when = When {
            t: self.clock.t,
            dt_ns: self.interval.dt_ns,
            unix_ns: self.clock.last.unix_ns,
            window_intervals: length,
        };
        let mut parents = BTreeSet::new();
        for (at, entry) in self.interval.entries.iter().enumerate() {
            prefetch_rows(&self.interval.entries, at, &self.nodes);
            let Node { place, account } = &mut self.nodes[entry.row];
            if is_due(entry.row, now, length) {
                account.settle(oldest, &mut self.sums);
            }
            let (Some(learnt), Some(window)) = (&mut account.learnt, &mut account.window) else {
                continue;
            };
            window.advance(oldest);
            let watched = self.settings.alerts.kinds.contains(&place.spec.kind);
            if !watched && !place.one_line() {
                continue;
            }
            window.add_up(oldest, &mut self.sums);
            if place.one_line() {
                let known = self.settings.alerts.outside_min_flows;
                let many = account.totals.flows().open() >= known;
                affected::note(learnt, &self.sums, &window.sum(oldest), many, &when);
            }
            if !watched {
                continue;
            }
            let sla = self.settings.alerts.sla(place);
            let evidence = Evidence {
                when,
                spread: &self.sums,
                sum: &window.sum(oldest),
                new_rtts: LEGS.map(|leg| entry.tally.leg[leg].samples > 0),
                new_data: LEGS.map(|leg| entry.tally.loss(leg).both().of > 0),
                open_flows: account.totals.flows().open(),
                sla: &sla,
            };
            let judged = learnt.watch.judge(&self.settings.alerts, &evidence);
            proposals.extend(judged.into_iter().map(|proposal| (entry.row, proposal)));
            if learnt.watch.holds[BREACH].is_above() {
                parents.extend(place.spec.parent);
            }
        }
        proposals.extend(self.judge_parents(parents, &when));
        for row in &self.alerting {
            let Node { place, account } = &self.nodes[*row];
            let (rules, t) = (&self.settings.alerts, self.clock.t);
            let learnt = account.learnt.iter();
            let over = learnt.flat_map(|learnt| learnt.watch.rest(rules, place, t));
            proposals.extend(over.map(|proposal| (*row, proposal)));
        }
        // Those of parents first.
        proposals.sort_by_key(|(row, _)| *row);
        self.settle(proposals)
    }

    /// Updates the list of rows with active alerts, or with some that still include others.
    pub(super) fn list_alerting(&mut self) {
        self.alerting.sort_unstable();
        self.alerting.dedup();
        let (nodes, t) = (&self.nodes, self.clock.t);
        self.alerting.retain(|row| nodes[*row].account.alerting(t));
    }

    fn settle(&mut self, proposals: Vec<(usize, Proposal)>) -> Vec<Alert> {
        let mut settled = Vec::new();
        self.alerts_waiting = 0;
        let cover = self
            .settings
            .alerts
            .cover_intervals(self.settings.window_intervals);
        let cover_ns = u64::from(cover).saturating_mul(self.interval.dt_ns);
        for (row, proposal) in proposals {
            let Node { place, account } = &mut self.nodes[row];
            let (active, watched) = (&mut self.active_alerts, proposal.watched);
            let full = proposal.begins && active.is_full(watched, place);
            if full || settled.len() >= MAX_ALERTS_PER_INTERVAL {
                self.alerts_waiting += 1;
                continue;
            }
            let Some(learnt) = &mut account.learnt else {
                continue;
            };
            let reported = learnt.watch.settle(&proposal, self.clock.t, cover_ns);
            if proposal.begins {
                active.begin(watched, place);
                self.alerting.push(row);
            } else {
                active.end(watched, place);
            }
            settled.push((row, proposal, reported));
        }
        self.report(settled)
    }
}

/// True once per window length, at different times for different rows.
fn is_due(row: usize, now: u64, length: u32) -> bool {
    (now + row as u64).is_multiple_of(u64::from(length))
}

/// Loads the data of rows that follow the entry `at`.
fn prefetch_rows(entries: &[Entry], at: usize, nodes: &[Node]) {
    let account = |ahead: usize| {
        let entry = entries.get(at + ahead)?;
        Some(&nodes[entry.row].account)
    };
    account(3 * AHEAD).inspect(|account| prefetch(*account));
    account(2 * AHEAD).inspect(|account| account.prefetch());
    account(AHEAD).inspect(|account| account.prefetch_more());
}
