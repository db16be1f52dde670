//! One plan at several transmit queues: the part of each queue in the rate and ceiling of each class.
//!
//! ```text
//! counters by queue and class --> demands --claims--> parts --> changes: decreases first
//! ```
//!
//! Each queue has the whole tree, and HTB knows one queue. So the ceilings of a class at all queues together are its
//! ceiling: queues where packets wait have what one scheduler would give them ([`crate::claims`]), and others have what
//! they send. A queue without packets keeps [`SPARE`], and never less: HTB stores the debt of a packet as a time, which
//! another rate does not shorten. At a low rate, the first packet would hold the queue for the time of that rate.
//!
//! Invariants: guaranteed rates of a class at all queues are at most its rate, and at each queue those of children fit
//! into their parent's, except for changes below [`SAME`]. What a class sent above its ceiling by a change, all queues pay back ([`PAY_NS`]). So it has its
//! ceiling in the long run, whatever the counters show.

use super::{HtbNode, HtbPlan, MAX_QUANTUM_BYTES, MIN_BPS, MIN_QUANTUM_BYTES, burst_bytes};
use crate::claims::{Below, Claim, Claimant, Demand, GROWTH};

/// Nanoseconds between two readings of the counters, unless they take more than a fiftieth of a CPU.
pub const QUEUE_INTERVAL_NS: u64 = 5_000_000;
/// The ceilings of all queues without packets are together this part of the ceiling of the class.
const SPARE: f64 = 0.25;
/// The ceiling of a queue that sends below it, of what it sent.
const HEADROOM: f64 = 1.125;
/// Of the ceiling divided by the queues: the minimum of a queue where packets wait.
const MIN_PART: f64 = 0.0625;
/// A queue waits for its ceiling for this time after packets waited, while it uses half of its part.
const WAITS_NS: u64 = 40_000_000;
/// The time constant of measured rates.
const RATE_NS: f64 = 40e6;
/// What was sent above a ceiling is paid back in this time, or until the next reading, with half of the rate at most.
const PAY_NS: f64 = 50e6;
/// Counters that were read within this time have one time. Of others, and of slower readings, sums above a ceiling are
/// not known: they count with the next reading that is fast enough.
const EXACT_NS: u64 = 1_000_000;
/// A reading of many classes is exact if it takes this part of the time since the one before.
const EXACT_PART: u64 = 25;
/// A part that differs by less than this share of it needs no change.
const SAME: f64 = 1.0 / 128.0;
/// Nor does one that differs by less than this share of the ceiling, divided by the queues.
const SAME_OF_ALL: f64 = 1.0 / 128.0;
/// The weight of a leaf that claims no more than its guaranteed rate, of its claim.
const GUARANTEED: f64 = 1.0 / 64.0;
/// HTB's lowest rate: a byte a second.
const MIN_OF_ALL_BPS: u64 = 8;

/// The counters of a class at one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueCounts {
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that wait.
    pub waiting: u32,
    /// The number of times that it was above its ceiling; it wraps.
    pub throttled: u32,
    /// Flows of its packets.
    pub flows: f64,
}

/// A class at one queue has other rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueChange {
    /// From 0.
    pub queue: usize,
    /// Its new rates.
    pub class: HtbNode,
}

/// A class at one queue, as it was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    counts: Option<QueueCounts>,
    /// Bits a second.
    rate: f64,
    /// When packets waited.
    waited: u64,
    waits: bool,
}

/// What a queue has of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rates {
    rate_bps: u64,
    ceil_bps: u64,
    quantum_bytes: u32,
}

/// A class, and its parts.
#[derive(Debug)]
struct Class {
    node: HtbNode,
    parent: Option<usize>,
    children: Vec<usize>,
    /// Bits that it sent above its ceiling.
    ahead: f64,
    /// Bytes that it had sent, by all queues, and when.
    exact: Option<(u64, u64)>,
    /// Nanoseconds between the last two readings: the parts are for as long.
    turn_ns: f64,
    /// By queue.
    seen: Vec<Seen>,
    given: Vec<Rates>,
}

/// The parts of queues in the rates of a plan.
#[derive(Debug)]
pub struct QueueRates {
    classes: Vec<Class>,
    queues: usize,
    frame_bytes: u32,
    looked: u64,
}

impl QueueRates {
    /// For a plan whose counters are not known yet. O(classes × queues).
    pub fn new(plan: &HtbPlan, queues: usize) -> QueueRates {
        let at: std::collections::HashMap<u16, usize> = (plan.classes.iter().enumerate())
            .map(|(at, class)| (class.minor, at))
            .collect();
        let mut classes: Vec<Class> = (plan.classes.iter())
            .map(|node| Class {
                node: node.clone(),
                parent: at.get(&node.parent).copied(),
                children: Vec::new(),
                ahead: 0.0,
                exact: None,
                turn_ns: 0.0,
                seen: vec![Seen::default(); queues],
                given: vec![Rates::default(); queues],
            })
            .collect();
        for child in 0..classes.len() {
            if let Some(parent) = classes[child].parent {
                classes[parent].children.push(child);
            }
        }
        let mut rates = QueueRates {
            classes,
            queues,
            frame_bytes: plan.frame_bytes,
            looked: 0,
        };
        rates.give(rates.parts());
        rates
    }

    /// Continues with another plan: classes with the same number keep their demands.
    pub fn follow(&mut self, plan: &HtbPlan) {
        let next = QueueRates::new(plan, self.queues);
        let looked = self.looked;
        let before = std::mem::replace(self, next);
        let mut before: std::collections::HashMap<u16, Class> = (before.classes.into_iter())
            .map(|class| (class.node.minor, class))
            .collect();
        for class in &mut self.classes {
            if let Some(before) = before.remove(&class.node.minor) {
                (class.seen, class.ahead) = (before.seen, before.ahead);
                class.exact = before.exact;
            }
        }
        self.looked = looked;
        self.give(self.parts());
    }

    /// The number of queues.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// The classes of a queue with their parts, parents first.
    pub fn classes(&self, queue: usize) -> impl Iterator<Item = HtbNode> + '_ {
        let class = move |class: &Class| self.node(class, queue);
        self.classes.iter().map(class)
    }

    /// Takes the counters by queue and minor, which were read `within` ns before `now` (ns), and returns the changes in their order: decreases first, so
    /// that the sum is never above both the old and the new one. O(classes × queues).
    pub fn look(
        &mut self,
        (now, within): (u64, u64),
        counts: impl Fn(usize, u16) -> Option<QueueCounts>,
    ) -> Vec<QueueChange> {
        let ns = now.saturating_sub(std::mem::replace(&mut self.looked, now)) as f64;
        for class in &mut self.classes {
            let minor = class.node.minor;
            class.see(now, ns, |queue| counts(queue, minor));
            class.charge(now, within);
        }
        self.give(self.parts())
    }

    /// Parts by class and queue.
    fn parts(&self) -> Vec<Vec<Rates>> {
        let mut claims = vec![None; self.classes.len()];
        for top in self.tops() {
            let claimant = self.claimant(top);
            let mut found = Vec::new();
            claimant.divide(claimant.wanted(), &mut found);
            for claim in found {
                let at = claim.node as usize;
                claims[at] = Some(claim);
            }
        }
        let claims: Vec<Claim> = claims.into_iter().flatten().collect();
        let mut parts: Vec<Vec<Rates>> = Vec::with_capacity(self.classes.len());
        for (class, claim) in self.classes.iter().zip(&claims) {
            let above = class.parent.map(|parent| &parts[parent]);
            let ceil = |queue: usize| {
                let ceil = class.ceil(claim, queue, self.queues) as u64;
                let above = above.map_or(u64::MAX, |above| above[queue].ceil_bps);
                ceil.min(above).max(MIN_OF_ALL_BPS)
            };
            let rates = |queue| Rates {
                ceil_bps: ceil(queue),
                ..Rates::default()
            };
            parts.push((0..self.queues).map(rates).collect());
        }
        for queue in 0..self.queues {
            self.guarantee(queue, &claims, &mut parts);
            self.weigh(queue, &claims, &mut parts);
        }
        parts
    }

    fn tops(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.classes.len()).filter(|at| self.classes[*at].parent.is_none())
    }

    fn claimant(&self, at: usize) -> Claimant {
        let class = &self.classes[at];
        let demand = |seen: &Seen| Demand {
            // A queue that sends below its ceiling has its ceiling anyway: others get all the rest.
            rate: seen.rate / GROWTH,
            waiting: match seen.waits {
                true => seen.counts.map_or(1.0, |counts| counts.flows.max(1.0)),
                false => 0.0,
            },
        };
        let children = class.children.iter().map(|child| self.claimant(*child));
        Claimant {
            node: at as u32,
            floor: match class.node.rate_bps {
                rate if rate > MIN_BPS => rate as f64,
                _ => 0.0,
            },
            ceil: class.affordable(),
            weight: f64::from(class.node.quantum_bytes.max(1)),
            below: match class.node.leaf {
                true => Below::Flows(class.seen.iter().map(demand).collect()),
                false => Below::Children(children.collect()),
            },
        }
    }

    /// Guaranteed rates of a queue: by claims, and never more than that of the parent.
    fn guarantee(&self, queue: usize, claims: &[Claim], parts: &mut [Vec<Rates>]) {
        let mut needs = vec![0.0f64; self.classes.len()];
        let mut below = vec![0.0f64; self.classes.len()];
        for (at, class) in self.classes.iter().enumerate().rev() {
            let rate = class.node.rate_bps as f64;
            let part = rate * share(&claims[at].by_worker, queue);
            needs[at] = part.max(rate.min(MIN_BPS as f64)).max(below[at]);
            if let Some(parent) = class.parent {
                below[parent] += needs[at];
            }
        }
        for (at, class) in self.classes.iter().enumerate() {
            let own = parts[at][queue].ceil_bps;
            let rate = match class.parent {
                None => own as f64,
                Some(parent) => {
                    let given = parts[parent][queue].rate_bps as f64;
                    needs[at] * (given / below[parent].max(1.0)).min(1.0)
                }
            };
            let part = &mut parts[at][queue];
            part.rate_bps = (rate as u64).min(own).max(MIN_OF_ALL_BPS);
        }
    }

    /// Quanta of leaves at a queue: siblings whose packets wait share what they claim there above their guaranteed rates.
    /// The lightest keeps its quantum, which holds a GSO packet where a turn allows.
    fn weigh(&self, queue: usize, claims: &[Claim], parts: &mut [Vec<Rates>]) {
        let borrowed: Vec<Option<f64>> = (claims.iter().zip(&*parts))
            .map(|(claim, parts)| {
                let all = claim.by_worker[queue];
                let above = (all - parts[queue].rate_bps as f64).max(all * GUARANTEED);
                (claim.waits[queue] && all > 0.0).then_some(above)
            })
            .collect();
        let claim = |at: usize| borrowed[at];
        let own = |at: usize| f64::from(self.classes[at].node.quantum_bytes.max(1));
        let family = |at: usize| self.classes[at].parent.map_or(0, |parent| parent + 1);
        let (mut least, mut most) = (
            vec![f64::INFINITY; self.classes.len() + 1],
            vec![0.0f64; self.classes.len() + 1],
        );
        for (at, claim) in (0..self.classes.len()).filter_map(|at| Some((at, claim(at)?))) {
            least[family(at)] = least[family(at)].min(claim / own(at));
            most[family(at)] = most[family(at)].max(claim);
        }
        let lowest = MIN_QUANTUM_BYTES.max(self.frame_bytes.min(MAX_QUANTUM_BYTES));
        for (at, parts) in parts.iter_mut().enumerate() {
            let quantum = claim(at).map(|claim| {
                let largest = most[family(at)] / least[family(at)];
                let scale = (f64::from(MAX_QUANTUM_BYTES) / largest).min(1.0);
                (claim / least[family(at)] * scale) as u32
            });
            parts[queue].quantum_bytes = match quantum {
                Some(quantum) => quantum.clamp(lowest, MAX_QUANTUM_BYTES),
                None => self.classes[at].node.quantum_bytes,
            };
        }
    }

    /// The kernel may have others than those that were given: the next look gives all.
    pub fn give_again(&mut self) {
        for class in &mut self.classes {
            class.given.fill(Rates::default());
        }
    }

    /// Replaces the parts of classes that differ, of all queues or none: so their sum is that of one division.
    fn give(&mut self, parts: Vec<Vec<Rates>>) -> Vec<QueueChange> {
        let (mut less, mut more) = (Vec::new(), Vec::new());
        for (at, parts) in parts.into_iter().enumerate() {
            let class = &self.classes[at];
            let mut each = class.given.iter().zip(&parts);
            if each.all(|(old, new)| class.is_same(old, new, self.queues)) {
                continue;
            }
            let old = std::mem::replace(&mut self.classes[at].given, parts);
            for (queue, old) in old.into_iter().enumerate() {
                let class = &self.classes[at];
                let new = class.given[queue];
                if new != old {
                    let list = match new.ceil_bps > old.ceil_bps {
                        true => &mut more,
                        false => &mut less,
                    };
                    list.push(QueueChange {
                        queue,
                        class: self.node(class, queue),
                    });
                }
            }
        }
        less.append(&mut more);
        less
    }

    fn node(&self, class: &Class, queue: usize) -> HtbNode {
        let Rates {
            rate_bps,
            ceil_bps,
            quantum_bytes,
        } = class.given[queue];
        HtbNode {
            rate_bps,
            ceil_bps,
            quantum_bytes,
            burst_bytes: burst_bytes(rate_bps, self.frame_bytes),
            cburst_bytes: burst_bytes(ceil_bps, self.frame_bytes),
            ..class.node.clone()
        }
    }
}

impl Class {
    /// Takes the counters of all queues, `ns` after those before.
    fn see(&mut self, now: u64, ns: f64, counts: impl Fn(usize) -> Option<QueueCounts>) {
        self.turn_ns = ns;
        for (queue, (seen, given)) in self.seen.iter_mut().zip(&self.given).enumerate() {
            let Some(counts) = counts(queue) else {
                *seen = Seen::default();
                continue;
            };
            let before = seen.counts.replace(counts);
            let Some(before) = before.filter(|_| ns > 0.0) else {
                seen.waits = counts.waiting > 0;
                continue;
            };
            let bits = counts.sent_bytes.saturating_sub(before.sent_bytes) as f64 * 8.0;
            seen.rate += (bits * 1e9 / ns - seen.rate) * (ns / RATE_NS).min(1.0);
            let uses = seen.rate >= given.ceil_bps as f64 / 2.0;
            if counts.waiting > 0 || (uses && counts.throttled != before.throttled) {
                seen.waited = now;
            }
            let recently = now.saturating_sub(seen.waited) < WAITS_NS;
            seen.waits = counts.waiting > 0 || (uses && recently);
        }
    }

    /// Charges what all queues sent above the ceiling.
    fn charge(&mut self, now: u64, within: u64) {
        let sent = self.seen.iter().filter_map(|seen| seen.counts);
        let sent: u64 = sent.map(|counts| counts.sent_bytes).sum();
        let Some((before, at)) = self.exact else {
            self.exact = Some((sent, now));
            return;
        };
        let ns = now.saturating_sub(at);
        if within <= EXACT_NS.max(ns / EXACT_PART) {
            self.exact = Some((sent, now));
            let bits = sent.saturating_sub(before) as f64 * 8.0;
            let ceil = self.node.ceil_bps as f64;
            self.ahead = (self.ahead + bits - ceil * ns as f64 / 1e9).clamp(0.0, ceil);
        }
    }

    /// The ceiling, less what is paid back: what is above a burst and the time of a reading.
    fn affordable(&self) -> f64 {
        let ceil = self.node.ceil_bps as f64;
        let read = ceil * EXACT_NS as f64 / 1e9;
        let burst = f64::from(self.node.cburst_bytes) * 8.0 + read;
        let debt = (self.ahead - burst).max(0.0);
        (ceil - debt * 1e9 / PAY_NS.max(self.turn_ns)).max(ceil / 2.0)
    }

    /// The ceiling of a queue, bit/s.
    fn ceil(&self, claim: &Claim, queue: usize, queues: usize) -> f64 {
        let (all, queues) = (self.affordable(), queues as f64);
        let claimed: f64 = claim.by_worker.iter().sum();
        // What its parent does not let it have.
        let rest = (all - claimed).max(0.0) / queues;
        let part = claim.by_worker[queue] + rest;
        let minimum = match claim.waits[queue] {
            true => all * MIN_PART / queues,
            false => {
                let spare = all * SPARE / (queues - 1.0).max(1.0);
                spare.max(self.seen[queue].rate * HEADROOM)
            }
        };
        part.max(minimum).min(self.node.ceil_bps as f64)
    }

    fn is_same(&self, old: &Rates, new: &Rates, queues: usize) -> bool {
        let near = |old: u64, new: u64, all: u64| {
            let share = (old as f64 * SAME).max(all as f64 * SAME_OF_ALL / queues as f64);
            (old as f64 - new as f64).abs() <= share
        };
        let quanta = [old, new].map(|rates| u64::from(rates.quantum_bytes));
        near(old.rate_bps, new.rate_bps, self.node.rate_bps)
            && near(old.ceil_bps, new.ceil_bps, self.node.ceil_bps)
            && near(quanta[0], quanta[1], quanta[0] * 4)
    }
}

/// The share of a queue; equal ones if nothing is claimed.
fn share(claims: &[f64], queue: usize) -> f64 {
    let all: f64 = claims.iter().sum();
    match all > 0.0 {
        true => claims[queue] / all,
        false => 1.0 / claims.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const MBIT: u64 = 1_000_000;
    const STEP_NS: u64 = QUEUE_INTERVAL_NS;
    /// The interior class, and its leaves from [`FIRST`].
    const SITE: u16 = 1;
    const FIRST: u16 = 2;

    fn class(minor: u16, parent: u16, rate_bps: u64, ceil_bps: u64) -> HtbNode {
        HtbNode {
            node: minor.into(),
            minor,
            parent,
            leaf: parent != 0,
            rate_bps,
            ceil_bps,
            burst_bytes: burst_bytes(rate_bps, 1514),
            cburst_bytes: burst_bytes(ceil_bps, 1514),
            quantum_bytes: 10_000,
        }
    }

    /// A site of 40 Mbit/s with leaves of these rates and ceilings, in Mbit/s.
    fn plan(leaves: &[(u64, u64)]) -> HtbPlan {
        let site = class(SITE, 0, 40 * MBIT, 40 * MBIT);
        let leaf = |(minor, (rate, ceil)): (u16, &(u64, u64))| {
            let rate = (rate * MBIT).max(MIN_BPS);
            class(minor, SITE, rate, ceil * MBIT)
        };
        HtbPlan {
            classes: std::iter::once(site)
                .chain((FIRST..).zip(leaves).map(leaf))
                .collect(),
            frame_bytes: 1514,
            ..HtbPlan::default()
        }
    }

    /// Counters of a router whose classes send at these rates.
    struct Router {
        rates: QueueRates,
        now: u64,
        counts: HashMap<(usize, u16), QueueCounts>,
    }

    impl Router {
        fn new(leaves: &[(u64, u64)], queues: usize) -> Router {
            Router {
                rates: QueueRates::new(&plan(leaves), queues),
                now: STEP_NS,
                counts: HashMap::new(),
            }
        }

        /// A turn in which each class of `sends` (queue, minor, Mbit/s) sent at this rate, and has packets if `waits`.
        fn turn(&mut self, sends: &[(usize, u16, f64, bool)]) -> Vec<QueueChange> {
            for count in self.counts.values_mut() {
                count.waiting = 0;
            }
            for (queue, minor, mbit, waits) in sends {
                let bytes = (mbit * 1e6 * STEP_NS as f64 / 8e9) as u64;
                for minor in [*minor, SITE] {
                    let count = self.counts.entry((*queue, minor)).or_default();
                    count.sent_bytes += bytes;
                    count.waiting += u32::from(*waits);
                    count.flows = 1.0;
                }
            }
            self.now += STEP_NS;
            let all = &self.counts;
            (self.rates).look((self.now, 0), |queue, minor| {
                Some(all.get(&(queue, minor)).copied().unwrap_or_default())
            })
        }

        /// Turns in which classes with packets send at their ceilings.
        fn settle(&mut self, sends: &[(usize, u16, f64, bool)]) {
            for _ in 0..60 {
                self.turn(sends);
            }
        }

        fn node(&self, queue: usize, minor: u16) -> HtbNode {
            let mut classes = self.rates.classes(queue);
            classes.find(|class| class.minor == minor).unwrap()
        }

        fn ceil(&self, queue: usize, minor: u16) -> f64 {
            self.node(queue, minor).ceil_bps as f64 / 1e6
        }
    }

    #[test]
    fn one_busy_queue_has_the_whole_ceiling() {
        for queues in [2, 8, 64] {
            let mut router = Router::new(&[(0, 40)], queues);
            router.settle(&[(1, FIRST, 39.9, true), (0, FIRST, 0.1, false)]);
            let busy = router.ceil(1, FIRST);
            assert!((39.5..=40.0).contains(&busy), "{busy} at {queues}");
            let idle: f64 = (0..queues)
                .filter(|queue| *queue != 1)
                .map(|queue| router.ceil(queue, FIRST))
                .sum();
            assert!((9.9..=10.1).contains(&idle), "{idle} at {queues}");
        }
    }

    #[test]
    fn busy_queues_share_the_ceiling_exactly() {
        let mut router = Router::new(&[(0, 40)], 2);
        router.settle(&[(0, FIRST, 20.0, true), (1, FIRST, 20.0, true)]);
        let parts = [0, 1].map(|queue| router.ceil(queue, FIRST));
        assert!(
            parts.iter().sum::<f64>() <= 40.0 && parts[0] > 19.8,
            "{parts:?}"
        );
        // Settled queues need no message.
        let sends = [(0, FIRST, 20.0, true), (1, FIRST, 20.0, true)];
        assert_eq!(router.turn(&sends), []);
    }

    #[test]
    fn a_beginning_queue_has_its_part_at_once() {
        let mut router = Router::new(&[(0, 40)], 2);
        router.settle(&[(0, FIRST, 40.0, true)]);
        let changes = router.turn(&[(0, FIRST, 39.0, true), (1, FIRST, 1.0, true)]);
        assert!(router.ceil(1, FIRST) > 19.0);
        // Decreases come first.
        let ceilings: Vec<(usize, u64)> = (changes.iter())
            .map(|change| (change.queue, change.class.ceil_bps / MBIT))
            .collect();
        let first_of_1 = ceilings.iter().position(|(queue, _)| *queue == 1).unwrap();
        assert!(
            ceilings[..first_of_1].iter().all(|(queue, _)| *queue == 0)
                && ceilings[first_of_1..].iter().all(|(queue, _)| *queue == 1),
            "{ceilings:?}"
        );
    }

    #[test]
    fn floors_follow_the_packets_of_their_class() {
        let mut router = Router::new(&[(30, 40), (0, 40)], 2);
        router.settle(&[
            (0, FIRST, 30.0, true),
            (0, FIRST + 1, 5.0, true),
            (1, FIRST + 1, 5.0, true),
        ]);
        let floor = router.node(0, FIRST).rate_bps;
        assert!(floor > 29 * MBIT, "{floor}");
        let site = [0, 1].map(|queue| router.ceil(queue, SITE));
        assert!(
            (34.0..=36.0).contains(&site[0]) && site[1] > 4.0,
            "{site:?}"
        );
        // The floor is served first: the rest is for the other class.
        let [anna, others] = [FIRST, FIRST + 1].map(|minor| router.node(0, minor).quantum_bytes);
        assert!(others > 5 * anna, "{anna} and {others}");
    }

    #[test]
    fn bytes_above_the_ceiling_are_paid_back() {
        let mut router = Router::new(&[(0, 40)], 2);
        let busy = |mbit| [(0, FIRST, mbit, true), (1, FIRST, mbit, true)];
        router.settle(&busy(20.0));
        // 40 ms at twice the rate: a burst of 5 ms is free.
        for _ in 0..8 {
            router.turn(&busy(40.0));
        }
        let mut sent = 8.0 * 80.0;
        let mut turns = 8.0;
        for _ in 0..200 {
            let mbit = router.ceil(0, FIRST);
            router.turn(&busy(mbit));
            (sent, turns) = (sent + 2.0 * mbit, turns + 1.0);
        }
        let above = (sent - turns * 40.0) * 5e3 / 8.0;
        let burst = f64::from(burst_bytes(40 * MBIT, 1514)) + 40e6 * 1e-3 / 8.0;
        // The last part of a debt is paid slowly.
        assert!(above <= burst * 1.3, "{above} bytes above of {burst}");
    }

    #[test]
    fn slow_readings_charge_nothing_alone() {
        let mut rates = QueueRates::new(&plan(&[(0, 40)]), 2);
        let read = |rates: &mut QueueRates, at: u64, within: u64, sent_bytes: u64| {
            rates.look((at, within), |queue, _| {
                Some(QueueCounts {
                    sent_bytes: if queue == 0 { sent_bytes } else { 0 },
                    waiting: 1,
                    ..QueueCounts::default()
                })
            });
        };
        read(&mut rates, 1_000_000_000, 0, 0);
        // A pause between counters and clock, both ways: the sum is that of the rate.
        read(&mut rates, 1_005_000_000, 20_000_000, 100_000);
        read(&mut rates, 1_050_000_000, 20_000_000, 100_000);
        read(&mut rates, 1_100_000_000, 0, 500_000);
        assert!(rates.classes.iter().all(|class| class.ahead == 0.0));
        read(&mut rates, 1_105_000_000, 0, 625_000);
        assert_eq!(rates.classes[0].ahead, 800_000.0);
    }

    #[test]
    fn another_plan_keeps_demands_of_its_classes() {
        let mut router = Router::new(&[(0, 40)], 2);
        router.settle(&[(1, FIRST, 40.0, true)]);
        router.rates.follow(&plan(&[(0, 20), (0, 20)]));
        assert!(router.ceil(1, FIRST) > 19.0);
        assert_eq!(router.ceil(0, FIRST + 1), 10.0);
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        #[test]
        fn sums_of_queues_are_bounded(
            leaves in prop::collection::vec((0u64..20, 20u64..60), 1..6),
            queues in 2usize..9,
            sends in prop::collection::vec((0usize..8, 0u16..6, 0.0f64..30.0, any::<bool>()), 0..60),
        ) {
            // A plan's rates fit into that of the site.
            let all: u64 = leaves.iter().map(|(rate, _)| rate).sum();
            let leaves: Vec<(u64, u64)> = (leaves.iter())
                .map(|(rate, ceil)| (rate * 39 / all.max(39), (*ceil).min(40)))
                .collect();
            let mut router = Router::new(&leaves, queues);
            for turn in sends.chunks(4) {
                let turn: Vec<_> = (turn.iter())
                    .map(|(queue, leaf, mbit, waits)| {
                        (queue % queues, FIRST + leaf % leaves.len() as u16, *mbit, *waits)
                    })
                    .collect();
                router.turn(&turn);
                for whole in &plan(&leaves).classes {
                    let each: Vec<HtbNode> =
                        (0..queues).map(|queue| router.node(queue, whole.minor)).collect();
                    let sum = |get: fn(&HtbNode) -> u64| each.iter().map(get).sum::<u64>();
                    // What the invariants of this file promise, and 8 bit/s a queue.
                    let seen = &router.rates.classes[usize::from(whole.minor) - 1].seen;
                    let quiet = seen.iter().filter(|seen| !seen.waits);
                    let measured: f64 = quiet.map(|seen| seen.rate * HEADROOM).sum();
                    let most = whole.ceil_bps as f64 * (1.0 + SPARE + MIN_PART + SAME) + measured;
                    prop_assert!(sum(|c| c.ceil_bps) as f64 <= most + 8.0 * queues as f64);
                    prop_assert!(each.iter().all(|c| c.rate_bps <= c.ceil_bps && c.rate_bps >= 8));
                    prop_assert!(each.iter().all(|c| c.ceil_bps <= whole.ceil_bps));
                    let rate = whole.rate_bps + queues as u64 * MIN_BPS;
                    prop_assert!(whole.minor == SITE || sum(|c| c.rate_bps) <= rate);
                }
                for queue in 0..queues {
                    let site = router.node(queue, SITE);
                    let below: u64 = (FIRST..FIRST + leaves.len() as u16)
                        .map(|minor| router.node(queue, minor).rate_bps)
                        .sum();
                    // Changes that are too small to be sent, of parent and children.
                    let most = site.rate_bps as f64 + 40e6 * 4.0 * SAME;
                    prop_assert!(below as f64 <= most, "{below} of {site:?}");
                }
            }
        }
    }
}
