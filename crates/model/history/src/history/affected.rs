//! Classes with excess delay or loss now, and since when.
//!
//! A leg is affected from the interval in which the 95th percentile of its window exceeds the usual RTT by
//! [`GROWTH_NS`], or its loss reaches [`LOSS`], until both are below half of that. The usual RTT inside is
//! the lowest RTT of three days, and without it the baseline of alerts, which is the usual RTT outside.
//! Alerts need more: confidence, and a time. So a class is affected before it has an alert.

use fairpath_core::{INSIDE, OUTSIDE};

use super::account::Learnt;
use super::alerts::{LOSS_MIN_PACKETS, When};
use super::baseline::MIN_SAMPLES;
use super::pad::Sums;
use super::tally::Tally;
use super::{History, Node};
use crate::judge::{GROWTH_NS, LOSS};
use crate::snapshot::Affected;

/// The state of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Affliction {
    /// Unix time from which it is affected, 0 if it is not.
    since_unix_ns: u64,
    /// History time of the last comparison.
    judged: u64,
    p95_rtt_ns: Option<u64>,
    excess_rtt_ns: Option<u64>,
    loss: Option<f32>,
}

impl Affliction {
    /// Its size relative to the thresholds: at least 1 where it begins.
    fn severity(&self) -> f64 {
        let delay = self.excess_rtt_ns.unwrap_or(0) as f64 / GROWTH_NS[0] as f64;
        let loss = f64::from(self.loss.unwrap_or(0.0)) / LOSS[0];
        delay.max(loss)
    }
}

/// Compares the window of a row without rows below. `many_flows`: outside delays of fewer flows mean other
/// remote hosts.
pub(super) fn note(learnt: &mut Learnt, spread: &Sums, sum: &Tally, many_flows: bool, when: &When) {
    for leg in [INSIDE, OUTSIDE] {
        let usual = usual_rtt(learnt, leg);
        let measured = spread.count(leg) >= MIN_SAMPLES && (leg == INSIDE || many_flows);
        let p95 = spread.quantile(leg, 0.95).filter(|_| measured);
        let loss = sum.loss(leg).both();
        let state = &mut learnt.afflictions[leg];
        // Nothing is known of a time without comparisons.
        let window_ns = u64::from(when.window_intervals).saturating_mul(when.dt_ns);
        if when.t.saturating_sub(state.judged) > window_ns {
            *state = Affliction::default();
        }
        let next = Affliction {
            since_unix_ns: state.since_unix_ns,
            judged: when.t,
            p95_rtt_ns: p95,
            excess_rtt_ns: p95.zip(usual).map(|(p95, usual)| p95.saturating_sub(usual)),
            loss: loss
                .value()
                .filter(|_| loss.of >= LOSS_MIN_PACKETS)
                .map(|share| share as f32),
        };
        let begins = next.severity() >= 1.0;
        let stays = state.since_unix_ns > 0 && next.severity() >= 0.5;
        *state = Affliction {
            since_unix_ns: match (begins, stays) {
                (_, true) => state.since_unix_ns,
                (true, false) => when.unix_ns,
                (false, false) => 0,
            },
            ..next
        };
    }
}

fn usual_rtt(learnt: &Learnt, leg: usize) -> Option<u64> {
    let baseline = || learnt.watch.usual_rtt(leg);
    match leg {
        INSIDE => learnt.load.base_rtt_ns().or_else(baseline),
        _ => baseline(),
    }
}

impl History {
    /// The affected legs, worst first, at most `limit`, and the number of all. O(rows with traffic).
    pub(super) fn affected(&self, limit: usize) -> (Vec<Affected>, u64) {
        let fresh = |state: &Affliction| {
            let age = self.clock.t.saturating_sub(state.judged);
            state.since_unix_ns > 0 && age <= self.clock.window_ns()
        };
        let mut found: Vec<(usize, usize, Affliction)> = Vec::new();
        for row in &self.recent {
            let learnt = self.nodes[*row].account.learnt.iter();
            let legs = learnt.flat_map(|learnt| learnt.afflictions.into_iter().enumerate());
            found.extend(
                legs.filter(|(_, state)| fresh(state))
                    .map(|(leg, state)| (*row, leg, state)),
            );
        }
        let total = found.len() as u64;
        found.sort_by(|a, b| {
            let worse = b.2.severity().total_cmp(&a.2.severity());
            worse.then((a.0, a.1).cmp(&(b.0, b.1)))
        });
        found.truncate(limit);
        let show = |(row, leg, state): (usize, usize, Affliction)| {
            let Node { place, .. } = &self.nodes[row];
            Affected {
                class: place.spec.name.clone(),
                kind: place.spec.kind,
                parent: self.parent_name(row).map(str::to_owned),
                leg: if leg == INSIDE { "inside" } else { "outside" }.to_owned(),
                since_unix_ns: state.since_unix_ns,
                p95_rtt_ns: state.p95_rtt_ns,
                excess_rtt_ns: state.excess_rtt_ns,
                loss_ratio: state.loss.map(f64::from),
            }
        };
        (found.into_iter().map(show).collect(), total)
    }
}
