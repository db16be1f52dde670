//! Begin and end of alerts about round-trip times and losses.
//!
//! The values of the window are compared. They are *above* only with statistical confidence
//! ([`super::baseline`]). An alert begins when the window was above in successive comparisons for its
//! own length and `begin_intervals` more. A shorter disturbance cannot begin an alert. An alert ends
//! when the window was halfway back for `end_intervals`. Intervals without new samples are skipped, so
//! the time since the first comparison may have gaps, which the alert reports. After [`UNJUDGED_NS`]
//! without a comparison they start again.

use fairpath_core::{INSIDE, OUTSIDE};
use fairpath_units::Nanos;
use serde::{Deserialize, Serialize};

use super::Sla;
use super::baseline::{Baseline, Judged, judge, share_at_least};
use super::fold::{FOLD_MIN_CLASSES, FOLD_SHARE};
use super::pad::Sums;
use super::tally::{Loss, Tally};
use super::tree::Place;
use crate::snapshot::{Alert, AlertKind, Kind};

/// Maximum number of active alerts of a condition and leg. Further ones are counted and wait.
pub const MAX_ACTIVE_ALERTS: usize = 4096;
/// Those of them that classes without classes below cannot use: interfaces, subnets and sites have them.
pub const RESERVED_ALERTS: usize = 1024;
/// Maximum number of alerts that begin or end in one interval. Further ones are counted and wait.
pub const MAX_ALERTS_PER_INTERVAL: usize = 256;
/// Time without a comparison after which an alert ends, and one that has not begun starts again.
pub const UNJUDGED_NS: u64 = 600_000_000_000;
/// Time after which a shift becomes the new baseline.
pub const ACCEPTED_NS: u64 = 24 * 3_600_000_000_000;
/// An alert that ends within this time was an excursion, which is normal for the class.
pub const EXCURSION_NS: u64 = 300_000_000_000;
/// Minimum number of data packets of a direction in the window for a comparison of loss.
pub const LOSS_MIN_PACKETS: u64 = 100;

/// The conditions of alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRules {
    /// Kinds of rows that have alerts.
    pub kinds: Vec<Kind>,
    /// Intervals, in addition to those of the window, for which it must be above.
    pub begin_intervals: u32,
    /// Intervals for which it must be below.
    pub end_intervals: u32,
    /// A shift exceeds the baseline by this factor ...
    pub shift_factor: f64,
    /// ... and by this time, nanoseconds.
    pub shift_floor_ns: u64,
    /// Minimum number of open flows for shifts of the outside leg. With fewer flows, another RTT means
    /// another remote host and not another path.
    pub outside_min_flows: u64,
    /// Loss ratio of a leg, in either direction.
    pub loss: f64,
    /// The service level of classes without classes below and without their own: maximum of the 95th
    /// percentile inside, nanoseconds.
    pub rtt_p95_ns: Option<u64>,
}

impl Default for AlertRules {
    fn default() -> AlertRules {
        AlertRules {
            kinds: vec![Kind::Class, Kind::Interface],
            begin_intervals: 10,
            end_intervals: 30,
            shift_factor: 1.5,
            shift_floor_ns: 5_000_000,
            outside_min_flows: 32,
            loss: 0.02,
            rtt_p95_ns: None,
        }
    }
}

impl AlertRules {
    /// Successive comparisons before an alert begins.
    pub(super) fn begins_after(&self, window_intervals: u32) -> u32 {
        window_intervals.saturating_add(self.begin_intervals)
    }

    /// Intervals for which an alert that ended still includes those of its tree: the time that the
    /// others need to end, too.
    pub(super) fn cover_intervals(&self, window_intervals: u32) -> u32 {
        window_intervals.saturating_add(self.end_intervals.max(1))
    }

    /// The reason to end an active alert without a comparison: after a reload, nothing compares it.
    pub(super) fn unwatched(&self, place: &Place, watched: usize) -> Option<&'static str> {
        if !self.kinds.contains(&place.spec.kind) {
            return Some("over: rows of this kind have no alerts now");
        }
        let none = watched == BREACH && !self.has_level(place) && !self.folds(place);
        none.then_some("over: the class has no service level now")
    }

    /// True if a row has a service level.
    pub(super) fn has_level(&self, place: &Place) -> bool {
        let level = self.sla(place);
        level.rtt_p95_ns.is_some() || level.loss.is_some()
    }

    /// True if the service levels of the classes below decide ([`super::fold`]).
    pub(super) fn folds(&self, place: &Place) -> bool {
        let is_watched = self.kinds.contains(&Kind::Class) && place.spec.kind == Kind::Class;
        is_watched && place.children > 0 && !self.has_level(place)
    }

    /// The service levels of a row.
    pub(super) fn sla(&self, place: &Place) -> Sla {
        let own = place.spec.sla;
        let general = self.rtt_p95_ns.filter(|_| place.is_subscriber());
        Sla {
            rtt_p95_ns: own.rtt_p95_ns.or(general),
            ..own
        }
    }
}

/// The alerts of each class: kind and leg.
pub(super) const WATCHED: [(AlertKind, usize); 5] = [
    (AlertKind::RttShift, INSIDE),
    (AlertKind::RttShift, OUTSIDE),
    (AlertKind::Loss, INSIDE),
    (AlertKind::Loss, OUTSIDE),
    (AlertKind::SlaBreach, INSIDE),
];
/// The index of the service levels in [`WATCHED`].
pub(super) const BREACH: usize = 4;

/// Numbers of active alerts by condition and leg: of classes without classes below, and of other rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Active([[usize; 2]; WATCHED.len()]);

impl Active {
    pub fn total(&self) -> usize {
        self.0.iter().flatten().sum()
    }

    /// True if another one of this row must wait.
    pub fn is_full(&self, watched: usize, place: &Place) -> bool {
        let [subscribers, others] = self.0[watched];
        let own = place.is_subscriber() && subscribers >= MAX_ACTIVE_ALERTS - RESERVED_ALERTS;
        own || subscribers + others >= MAX_ACTIVE_ALERTS
    }

    pub fn begin(&mut self, watched: usize, place: &Place) {
        self.0[watched][usize::from(!place.is_subscriber())] += 1;
    }

    pub fn end(&mut self, watched: usize, place: &Place) {
        let active = &mut self.0[watched][usize::from(!place.is_subscriber())];
        *active = active.saturating_sub(1);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Above,
    Between,
    Below,
}

/// The result of one comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Finding {
    verdict: Verdict,
    value: f64,
    /// The value above which an alert begins.
    limit: f64,
    /// From which the limit of a shift is computed.
    baseline: Option<f64>,
    /// "median", "95th percentile", "loss", or "classes" for a number of classes of another number.
    of: &'static str,
}

/// The state of an alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub active: bool,
    /// Successive comparisons in favour of a change.
    run: u32,
    /// Unix time of the first of them.
    since_unix_ns: u64,
    since: u64,
    judged: u64,
    /// Successive comparisons of an active alert that were not in favour of its end.
    #[serde(skip)]
    stays: u32,
    /// Its begin was reported. The state file contains it separately.
    #[serde(skip)]
    pub reported: bool,
    /// The alert that included it has ended, or was active before a restart. [`Hold::stays`] decides
    /// when it is reported.
    #[serde(skip)]
    pub held: bool,
    /// History time until which an alert that ended still includes those of its tree.
    #[serde(skip)]
    pub covers_until: u64,
}

impl Hold {
    /// True if it ended, but still includes others.
    pub fn covers(&self, t: u64) -> bool {
        !self.active && self.covers_until > t
    }

    /// True if it was active when the other one ended.
    pub fn began_before_end_of(&self, other: &Hold) -> bool {
        self.since <= other.since
    }

    /// True if it was compared at `t`, and long enough without a sign of its end.
    pub fn stays(&self, t: u64, intervals: u32) -> bool {
        self.judged == t && self.stays >= intervals
    }

    /// Unix time at which its condition began.
    pub fn condition_unix_ns(&self) -> u64 {
        self.since_unix_ns
    }

    /// True while it is active or its last comparison was above.
    pub fn is_above(&self) -> bool {
        self.active || self.run > 0
    }

    /// True while it needs more comparisons to begin, and in the interval of its begin.
    pub fn rises(&self, needed: u32) -> bool {
        !self.active && (1..=needed).contains(&self.run)
    }

    /// True if it was ever compared.
    pub fn compared(&self) -> bool {
        self.judged > 0
    }

    /// True if its last comparison is within the time that a begin needs.
    pub fn is_recent(&self, rules: &AlertRules, when: &When) -> bool {
        let intervals = u64::from(rules.begins_after(when.window_intervals));
        let ns = when.dt_ns.saturating_mul(intervals);
        self.compared() && when.t.saturating_sub(self.judged) <= ns
    }

    /// The measured part of the time since the first comparison of a beginning alert, if not all of it.
    fn gaps(&self, when: &When) -> String {
        let dt_ns = when.dt_ns.max(1);
        let elapsed_ns = when.unix_ns.saturating_sub(self.since_unix_ns);
        let intervals = (elapsed_ns + dt_ns / 2) / dt_ns + 1;
        match !self.active && intervals > u64::from(self.run) {
            true => format!(", measured in {} of {intervals} intervals", self.run),
            false => String::new(),
        }
    }
}

impl Proposal {
    /// Writes the compared values into a record.
    pub fn fill(&self, alert: &mut Alert) {
        let Some(finding) = &self.finding else { return };
        let ns = |value: f64| Some(value as u64);
        let statistic = match finding.of {
            "classes" => return,
            "loss" => {
                alert.loss_ratio = Some(finding.value);
                alert.limit_loss_ratio = Some(finding.limit);
                "loss"
            }
            of => {
                alert.rtt_ns = ns(finding.value);
                alert.limit_rtt_ns = ns(finding.limit);
                alert.baseline_rtt_ns = finding.baseline.and_then(ns);
                if of == "median" { "p50" } else { "p95" }
            }
        };
        alert.statistic = Some(statistic.to_owned());
    }
}

/// A proposed begin or end. [`Watch::settle`] applies it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Proposal {
    pub watched: usize,
    pub begins: bool,
    /// `None` without a comparison.
    finding: Option<Finding>,
    pub since_unix_ns: u64,
    pub text: String,
    accepted: bool,
}

/// The time of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct When {
    pub t: u64,
    pub dt_ns: u64,
    pub unix_ns: u64,
    pub window_intervals: u32,
}

/// The classes below a parent that were compared with their service levels.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Below {
    pub compared: u64,
    pub above: u64,
}

/// The values of a class in one interval.
pub(super) struct Evidence<'a> {
    pub when: When,
    /// Distributions and sums of the window.
    pub spread: &'a Sums,
    pub sum: &'a Tally,
    /// By leg: whether the interval has new samples, and new data packets.
    pub new_rtts: [bool; 2],
    pub new_data: [bool; 2],
    pub open_flows: u64,
    pub sla: &'a Sla,
}

/// Baselines and alerts of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Watch {
    /// By leg, for the median and the 95th percentile.
    baselines: [[Baseline; 2]; 2],
    pub holds: [Hold; 5],
}

impl Watch {
    /// Compares a class, and returns what should begin or end.
    pub fn judge(&mut self, rules: &AlertRules, evidence: &Evidence) -> Vec<Proposal> {
        let judged = [INSIDE, OUTSIDE].map(|leg| {
            let new = evidence.new_rtts[leg];
            let count = evidence.spread.count(leg);
            new.then(|| judge(count, |q| evidence.spread.quantile(leg, q)))
                .flatten()
        });
        let findings = [
            judged[INSIDE].and_then(|j| self.shift(rules, INSIDE, &j)),
            judged[OUTSIDE]
                .filter(|_| evidence.open_flows >= rules.outside_min_flows)
                .and_then(|j| self.shift(rules, OUTSIDE, &j)),
            lossy(evidence, INSIDE, rules.loss),
            lossy(evidence, OUTSIDE, rules.loss),
            breach(evidence, judged[INSIDE].map(|[_, p95]| p95)),
        ];
        let mut proposals = Vec::new();
        for (watched, finding) in findings.into_iter().enumerate() {
            proposals.extend(self.step(watched, finding, rules, &evidence.when));
        }
        for (leg, judged) in judged.iter().enumerate() {
            self.learn(leg, judged.as_ref(), evidence);
        }
        proposals
    }

    /// Compares a parent with the service levels of the classes below. Ends its alert at once with the
    /// reason `over`.
    pub fn judge_below(
        &mut self,
        rules: &AlertRules,
        when: &When,
        below: &Below,
        over: Option<&str>,
    ) -> Option<Proposal> {
        let finding = share(below);
        if finding.is_none() && !self.holds[BREACH].active {
            self.holds[BREACH].run = 0;
        }
        if over.is_some() {
            let mut ends = self.end(|watched, _| over.filter(|_| watched == BREACH));
            return ends.pop();
        }
        self.step(BREACH, finding, rules, when)
    }

    /// The active alerts that were reported, as bits in the order of [`WATCHED`].
    pub fn reported(&self) -> u8 {
        let holds = self.holds.iter().enumerate();
        let reported = holds.filter(|(_, hold)| hold.active && hold.reported);
        reported.fold(0, |bits, (at, _)| bits | 1 << at)
    }

    /// Marks these of its active alerts as reported.
    pub fn set_reported(&mut self, bits: u8) {
        for (at, hold) in self.holds.iter_mut().enumerate() {
            hold.reported = hold.active && bits & 1 << at != 0;
        }
    }

    /// Continues after a restart. It is not known which alerts included those that were not reported.
    pub fn restore(&mut self) {
        for hold in &mut self.holds {
            hold.held = hold.active && !hold.reported;
            (hold.stays, hold.covers_until) = (0, 0);
        }
    }

    /// Ends alerts that nothing compares, and those without comparison for [`UNJUDGED_NS`].
    pub fn rest(&self, rules: &AlertRules, place: &Place, t: u64) -> Vec<Proposal> {
        self.end(|watched, hold| {
            let silent = t.saturating_sub(hold.judged) > UNJUDGED_NS;
            let silent = silent.then_some("over: too little traffic to measure");
            rules.unwatched(place, watched).or(silent)
        })
    }

    /// Ends all alerts of a removed row. Returns the ends, with true for a reported alert.
    pub fn remove(&mut self, text: &str, t: u64) -> Vec<(Proposal, bool)> {
        let ends = self.end(|_, _| Some(text)).into_iter();
        let settled = ends.map(|proposal| {
            let reported = self.settle(&proposal, t, 0);
            (proposal, reported)
        });
        settled.collect()
    }

    /// Ends the active alerts that have a reason.
    fn end<'a>(&self, reason: impl Fn(usize, &Hold) -> Option<&'a str>) -> Vec<Proposal> {
        let holds = self.holds.iter().enumerate();
        let ends = holds.filter(|(_, hold)| hold.active);
        ends.filter_map(|(watched, hold)| {
            Some(Proposal {
                watched,
                begins: false,
                finding: None,
                since_unix_ns: hold.since_unix_ns,
                text: reason(watched, hold)?.to_owned(),
                accepted: false,
            })
        })
        .collect()
    }

    /// Applies a proposal. A reported alert that ends includes others for `cover_ns` more. Returns true
    /// if the alert was reported before.
    pub fn settle(&mut self, proposal: &Proposal, t: u64, cover_ns: u64) -> bool {
        let (kind, leg) = WATCHED[proposal.watched];
        let hold = &mut self.holds[proposal.watched];
        let held = t.saturating_sub(hold.since);
        let reported = hold.reported;
        *hold = Hold {
            active: proposal.begins,
            since_unix_ns: proposal.since_unix_ns,
            since: t,
            judged: t,
            covers_until: if reported { t + cover_ns } else { 0 },
            ..Hold::default()
        };
        if kind != AlertKind::RttShift || proposal.begins {
            return reported;
        }
        for baseline in &mut self.baselines[leg] {
            if proposal.accepted {
                *baseline = Baseline::default();
            } else {
                baseline.resume(held < EXCURSION_NS);
            }
        }
        reported
    }

    fn step(
        &mut self,
        watched: usize,
        finding: Option<Finding>,
        rules: &AlertRules,
        when: &When,
    ) -> Option<Proposal> {
        let hold = &mut self.holds[watched];
        let finding = finding?;
        if !hold.active && when.t.saturating_sub(hold.judged) > UNJUDGED_NS {
            hold.run = 0;
        }
        hold.judged = when.t;
        let counts = match finding.verdict {
            Verdict::Above => !hold.active,
            Verdict::Below => hold.active,
            Verdict::Between => false,
        };
        hold.run = if counts {
            hold.run.saturating_add(1)
        } else {
            0
        };
        hold.stays = if hold.active && !counts {
            hold.stays.saturating_add(1)
        } else {
            0
        };
        if hold.run == 1 && !hold.active {
            hold.since_unix_ns = when.unix_ns;
        }
        let needed = if hold.active {
            rules.end_intervals.max(1)
        } else {
            rules.begins_after(when.window_intervals)
        };
        let kind = WATCHED[watched].0;
        let held = when.t.saturating_sub(hold.since);
        let accepted = hold.active && kind == AlertKind::RttShift && held >= ACCEPTED_NS;
        (hold.run >= needed || accepted).then(|| Proposal {
            watched,
            begins: !hold.active,
            finding: Some(finding),
            since_unix_ns: hold.since_unix_ns,
            text: describe(&finding, kind, !hold.active, accepted) + &hold.gaps(when),
            accepted,
        })
    }

    /// Updates baselines, except during an alert of their leg. Its first minutes are recorded: if it ends
    /// by then, they count as normal.
    fn learn(&mut self, leg: usize, judged: Option<&[Judged; 2]>, evidence: &Evidence) {
        let hold = self.holds[leg];
        let young = evidence.when.t.saturating_sub(hold.since) < EXCURSION_NS;
        let judged = judged.into_iter().flatten();
        for (baseline, judged) in self.baselines[leg].iter_mut().zip(judged) {
            match (hold.active, young) {
                (false, _) => baseline.learn(judged.value, evidence.when.dt_ns),
                (true, true) => baseline.record_during_alert(judged.value, evidence.when.dt_ns),
                (true, false) => {}
            }
        }
    }

    /// The baseline of the median of a leg, nanoseconds.
    pub fn usual_rtt(&self, leg: usize) -> Option<u64> {
        self.baselines[leg][0].value().map(|value| value as u64)
    }

    /// The comparison of the quantile that is furthest above its baseline.
    fn shift(&self, rules: &AlertRules, leg: usize, judged: &[Judged; 2]) -> Option<Finding> {
        let findings = self.baselines[leg].iter().zip(judged);
        let findings = findings.zip(["median", "95th percentile"]);
        let findings = findings.filter_map(|((baseline, judged), of)| {
            let bound = baseline.bound(rules.shift_factor, rules.shift_floor_ns)?;
            let normal = baseline.value()?;
            let value = judged.value as f64;
            let verdict = if judged.at_least as f64 > bound {
                Verdict::Above
            } else if value < (normal + bound) / 2.0 {
                Verdict::Below
            } else {
                Verdict::Between
            };
            Some(Finding {
                verdict,
                value,
                limit: bound,
                baseline: Some(normal),
                of,
            })
        });
        worst(findings)
    }
}

/// The most severe finding, and of equal ones that with the largest ratio to its limit.
fn worst(findings: impl Iterator<Item = Finding>) -> Option<Finding> {
    let severity = |finding: &Finding| {
        let rank = match finding.verdict {
            Verdict::Above => 2.0,
            Verdict::Between => 1.0,
            Verdict::Below => 0.0,
        };
        (rank, finding.value / finding.limit.max(f64::MIN_POSITIVE))
    };
    findings.max_by(|a, b| {
        severity(a)
            .partial_cmp(&severity(b))
            .unwrap_or(std::cmp::Ordering::Equal)
    })
}

/// Compares the loss of both directions of a leg with a threshold. Below means half of it.
fn lossy(evidence: &Evidence, leg: usize, threshold: f64) -> Option<Finding> {
    if !evidence.new_data[leg] {
        return None;
    }
    let Loss { to, from } = evidence.sum.loss(leg);
    let directions = [to, from]
        .into_iter()
        .filter(|loss| loss.of >= LOSS_MIN_PACKETS);
    worst(directions.map(|loss| {
        let value = loss.value().unwrap_or_default();
        let verdict = if share_at_least(loss.lost, loss.of) > threshold {
            Verdict::Above
        } else if value <= threshold / 2.0 {
            Verdict::Below
        } else {
            Verdict::Between
        };
        Finding {
            verdict,
            value,
            limit: threshold,
            baseline: None,
            of: "loss",
        }
    }))
}

/// Compares the inside leg with the service levels. Below means 90 % of the round-trip time.
fn breach(evidence: &Evidence, p95: Option<Judged>) -> Option<Finding> {
    let rtt = evidence
        .sla
        .rtt_p95_ns
        .zip(p95)
        .map(|(limit, p95)| Finding {
            verdict: if p95.at_least > limit {
                Verdict::Above
            } else if p95.value as f64 <= 0.9 * limit as f64 {
                Verdict::Below
            } else {
                Verdict::Between
            },
            value: p95.value as f64,
            limit: limit as f64,
            baseline: None,
            of: "95th percentile",
        });
    let loss = evidence
        .sla
        .loss
        .and_then(|limit| lossy(evidence, INSIDE, limit));
    worst(rtt.into_iter().chain(loss))
}

/// Compares the share of classes below that exceed their service levels. Below means half of the share.
fn share(below: &Below) -> Option<Finding> {
    let (above, compared) = (below.above as f64, below.compared as f64);
    let verdict = if above >= FOLD_SHARE * compared && below.above >= FOLD_MIN_CLASSES {
        Verdict::Above
    } else if above <= FOLD_SHARE / 2.0 * compared {
        Verdict::Below
    } else {
        Verdict::Between
    };
    (below.compared > 0).then_some(Finding {
        verdict,
        value: above,
        limit: compared,
        baseline: None,
        of: "classes",
    })
}

/// The text of an alert, without class and leg.
fn describe(finding: &Finding, kind: AlertKind, begins: bool, accepted: bool) -> String {
    if finding.of == "classes" {
        let (above, of) = (finding.value, finding.limit);
        let over = if begins { "" } else { "over: " };
        return format!("{over}{above:.0} of {of:.0} classes exceed their service level");
    }
    let show = |value: f64| match finding.of {
        "loss" => format!("{:.2} %", value * 100.0),
        _ => Nanos(value as u64).to_string(),
    };
    let limit = finding.baseline.unwrap_or(finding.limit);
    let (value, limit, of) = (show(finding.value), show(limit), finding.of);
    let against = match kind {
        AlertKind::RttShift => "baseline",
        AlertKind::Loss => "threshold",
        AlertKind::SlaBreach => "service level",
    };
    match (accepted, begins) {
        (true, _) => {
            format!("over: {of} {value} for a day is the new baseline, previously {limit}")
        }
        (false, true) => format!("{of} {value}, {against} {limit}"),
        (false, false) => format!("over: {of} {value}, {against} {limit}"),
    }
}
