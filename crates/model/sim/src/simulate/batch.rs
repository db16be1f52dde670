//! Pending operations, and the state of every packet in the runtime.

use std::collections::BTreeMap;

use fairpath_core::sched::{Drop, NEVER, Op, Outcome, OutcomeKind, Over, SchedRuntime};

use super::findings::{Findings, Inversions, Measured};
use super::waiting::Waiting;
use super::{BATCH, SimulateError, Tap};
use crate::traffic::{Arrival, Arrivals, Finished, TrafficRow};
use fairpath_sched::tree::{Tree, exact_cost};

/// Policies in which only the ratios of weights matter. Others compare them with a rate or a quantum.
const BY_RATIO: [&str; 3] = ["hpfq", "sp_pifo", "stfq"];

/// A packet in the runtime, by its handle.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    rank: u64,
    bytes: u32,
    row: u32,
    sender: u32,
    node: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The handle is free.
    #[default]
    Free,
    /// The packet was passed to the runtime.
    Given,
    /// The runtime reported it as queued.
    Waits,
}

/// The result of a dequeue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Bytes of the packet that left, and its number of copies.
    pub sent: Option<(u32, u32)>,
    /// The time of the next request.
    pub again: u64,
}

/// The packet on the link.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    sender: u32,
    marked: bool,
}

pub(super) struct Batch<'h> {
    runtime: &'h mut dyn SchedRuntime,
    tree: &'h Tree,
    tap: Option<Tap<'h>>,
    ops: Vec<Op>,
    outcomes: Vec<Outcome>,
    packets: Vec<Entry>,
    free: Vec<u32>,
    rows: Vec<Measured>,
    /// The ranks of waiting packets by leaf, or `None` if no ideal PIFO is defined.
    waiting: Vec<Option<Waiting>>,
    inversions: Inversions,
    drops: [u64; 32],
    backlog: u64,
    max_backlog: u64,
    /// The backlog before the pending operations.
    backlog_before: u64,
    leaving: Option<Leaving>,
    weights_refused: u64,
}

impl<'h> Batch<'h> {
    pub fn new(
        runtime: &'h mut dyn SchedRuntime,
        tree: &'h Tree,
        tap: Option<Tap<'h>>,
    ) -> Batch<'h> {
        let plan = &tree.plan;
        // Packets in a delay queue have no rank yet.
        let checked =
            |over: Over, impair: u32| (over == Over::Packets && impair == 0).then(Waiting::default);
        Batch {
            runtime,
            tree,
            tap,
            ops: Vec::with_capacity(BATCH + 1),
            outcomes: Vec::with_capacity(2 * BATCH),
            packets: vec![Entry::default(); plan.config.packets as usize + 1],
            free: (1..=plan.config.packets).rev().collect(),
            rows: Vec::new(),
            waiting: plan
                .nodes
                .iter()
                .map(|node| checked(node.over, node.impair))
                .collect(),
            inversions: Inversions::default(),
            drops: [0; 32],
            backlog: 0,
            max_backlog: 0,
            backlog_before: 0,
            leaving: None,
            weights_refused: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.ops.len() >= BATCH
    }

    /// The time of the first pending operation, or the maximum time without one.
    pub fn since(&self) -> u64 {
        self.ops.first().map_or(NEVER, |op| op.now)
    }

    /// Waiting packets.
    pub fn backlog(&self) -> u64 {
        self.backlog
    }

    /// Waiting packets before the pending operations.
    pub fn backlog_before(&self) -> u64 {
        self.backlog_before
    }

    /// Sets the weights of flows before the first packet. Weight 1 has the cost `COST_ONE`, except where
    /// only ratios matter: there the heaviest has it, because costs of light flows are exact.
    pub fn set_weights<A: Arrivals>(&mut self, traffic: &mut A) -> Result<(), SimulateError> {
        let rows = traffic.rows();
        let heaviest = rows.iter().map(|row| row.weight).max().unwrap_or(1);
        if heaviest == 1 {
            return Ok(());
        }
        // Other flows have weight 1 and its cost.
        let all_known = rows.iter().all(|row| row.sample.is_some());
        let known = rows.iter().filter_map(|row| Some((row, row.sample?)));
        for (row, meta) in known {
            let Some(leaf) = self.tree.leaf(&meta) else {
                continue;
            };
            let policy = self.tree.names.policy(leaf);
            let by_ratio = policy.is_some_and(|policy| BY_RATIO.contains(&policy.name.as_str()));
            let one = if all_known && by_ratio { heaviest } else { 1 };
            let cost = exact_cost(row.weight.into(), one.into());
            let cost = cost.map_err(|why| SimulateError::Weight {
                flow: row.name.clone(),
                why,
            })?;
            self.ops.push(Op::weight(0, leaf, meta.flow_hash, cost));
        }
        self.run(traffic).map(|_| ())
    }

    pub fn enqueue<A: Arrivals>(
        &mut self,
        now: u64,
        arrival: Arrival,
        traffic: &mut A,
    ) -> Result<(), SimulateError> {
        if self.free.is_empty() {
            self.run(traffic)?;
        }
        let Some(handle) = self.free.pop() else {
            return Err(SimulateError::Handles {
                at_ns: now,
                backlog: self.backlog,
            });
        };
        let bytes = arrival.meta.bytes;
        self.packets[handle as usize] = Entry {
            bytes,
            row: arrival.row,
            sender: arrival.sender,
            state: State::Given,
            ..Entry::default()
        };
        if self.rows.len() <= arrival.row as usize {
            self.rows
                .resize(arrival.row as usize + 1, Measured::default());
        }
        self.rows[arrival.row as usize].offered.add(bytes);
        self.ops.push(Op::enqueue(now, handle, arrival.meta));
        Ok(())
    }

    pub fn dequeue(&mut self, now: u64) {
        self.ops.push(Op::dequeue(now, 1));
    }

    /// Runs the pending operations and counts their outcomes.
    pub fn run<A: Arrivals>(&mut self, traffic: &mut A) -> Result<Answer, SimulateError> {
        self.outcomes.clear();
        self.runtime.run(&self.ops, &mut self.outcomes)?;
        if let Some(tap) = &mut self.tap {
            tap(&self.ops, &self.outcomes);
        }
        let mut answer = Answer {
            sent: None,
            again: NEVER,
        };
        for at in 0..self.outcomes.len() {
            let outcome = self.outcomes[at];
            let now = self.ops.get(outcome.op as usize).map_or(0, |op| op.now);
            match outcome.kind {
                OutcomeKind::Queued => self.queued(&outcome, now)?,
                OutcomeKind::Sent => answer.sent = Some(self.sent(&outcome, now)?),
                OutcomeKind::Dropped => self.dropped(&outcome, now, traffic)?,
                OutcomeKind::Nothing => answer.again = outcome.at,
                OutcomeKind::Failed => self.weights_refused += 1,
                OutcomeKind::Done => {}
            }
        }
        self.ops.clear();
        self.backlog_before = self.backlog;
        Ok(answer)
    }

    /// The packet of an outcome. It must be in the runtime.
    #[inline]
    fn packet(&mut self, outcome: &Outcome, now: u64) -> Result<&mut Entry, SimulateError> {
        match self.packets.get_mut(outcome.handle as usize) {
            Some(packet) if packet.state != State::Free => Ok(packet),
            _ => Err(SimulateError::Accounting {
                at_ns: now,
                wrong: format!(
                    "packet {} is {:?} but was not in the queue",
                    outcome.handle, outcome.kind
                ),
            }),
        }
    }

    #[inline]
    fn queued(&mut self, outcome: &Outcome, now: u64) -> Result<(), SimulateError> {
        let packet = self.packet(outcome, now)?;
        packet.rank = outcome.rank;
        packet.node = outcome.node;
        packet.state = State::Waits;
        self.backlog += 1;
        self.max_backlog = self.max_backlog.max(self.backlog);
        if let Some(Some(waiting)) = self
            .waiting
            .get_mut((outcome.node as usize).wrapping_sub(1))
        {
            waiting.add(outcome.rank);
        }
        Ok(())
    }

    /// Removes a packet. Returns it and the number of waiting packets with a lower rank.
    #[inline]
    fn take(&mut self, outcome: &Outcome, now: u64) -> Result<(Entry, Option<u64>), SimulateError> {
        let packet = self.packet(outcome, now)?;
        let taken = *packet;
        packet.state = State::Free;
        self.free.push(outcome.handle);
        let mut lower = None;
        if taken.state == State::Waits {
            self.backlog -= 1;
            if let Some(Some(waiting)) = self.waiting.get_mut((taken.node as usize).wrapping_sub(1))
            {
                lower = waiting.remove(taken.rank);
            }
        }
        Ok((taken, lower))
    }

    #[inline]
    fn sent(&mut self, outcome: &Outcome, now: u64) -> Result<(u32, u32), SimulateError> {
        let (packet, lower) = self.take(outcome, now)?;
        if let Some(lower) = lower {
            self.inversions.checked += 1;
            self.inversions.packets += u64::from(lower > 0);
            self.inversions.pairs += lower;
        }
        let marked = outcome.marked();
        let row = &mut self.rows[packet.row as usize];
        row.sent.add(packet.bytes);
        row.marked += u64::from(marked);
        if outcome.flags & (Outcome::COPY | Outcome::CORRUPT) != 0 {
            row.count_impairment(outcome, packet.bytes);
        }
        row.sojourn.record(outcome.at);
        row.series.add(now, packet.bytes);
        self.leaving = Some(Leaving {
            sender: packet.sender,
            marked,
        });
        Ok((packet.bytes, 1 + u32::from(outcome.copied())))
    }

    fn dropped<A: Arrivals>(
        &mut self,
        outcome: &Outcome,
        now: u64,
        traffic: &mut A,
    ) -> Result<(), SimulateError> {
        let (packet, _) = self.take(outcome, now)?;
        self.rows[packet.row as usize].dropped.add(packet.bytes);
        self.drops[usize::from(outcome.reason) % 32] += 1;
        let finished = traffic.dropped(packet.sender, now);
        self.finished(finished);
        Ok(())
    }

    /// Completes the transmission of the last packet.
    pub fn departed<A: Arrivals>(&mut self, traffic: &mut A, now: u64) {
        if let Some(Leaving { sender, marked }) = self.leaving.take() {
            let finished = traffic.sent(sender, now, marked);
            self.finished(finished);
        }
    }

    fn finished(&mut self, finished: Option<Finished>) {
        let Some(finished) = finished else {
            return;
        };
        let row = &mut self.rows[finished.row as usize];
        if finished.lost {
            row.incomplete += 1;
        } else {
            row.completion.record(finished.took_ns);
        }
    }

    /// Computes the sums and checks that they add up.
    pub fn finish(
        mut self,
        mut findings: Findings,
        rows: &[TrafficRow],
    ) -> Result<Findings, SimulateError> {
        self.rows.resize_with(rows.len(), Measured::default);
        let mut classes: BTreeMap<u32, Measured> = BTreeMap::new();
        for (row, measured) in rows.iter().zip(self.rows.drain(..)) {
            findings.total.merge(&measured);
            classes.entry(row.class).or_default().merge(&measured);
            findings.rows.push((row.clone(), measured));
        }
        findings.classes = classes.into_iter().collect();
        let known = Drop::ALL.into_iter();
        let drops = known.map(|reason| (reason, self.drops[reason as usize % 32]));
        findings.drops = drops.filter(|(_, count)| *count > 0).collect();
        findings.backlog = self.backlog;
        findings.max_backlog = self.max_backlog;
        findings.inversions = self.inversions;
        findings.weights_refused = self.weights_refused;
        findings.stats = self.runtime.stats();
        let nodes = 1..=self.tree.plan.nodes.len() as u32;
        let impairments = 1..=self.tree.plan.impairments.len() as u32;
        findings.impairments = impairments
            .map(|number| self.runtime.impair_stats(number))
            .collect();
        findings.nodes = nodes.map(|node| self.runtime.node_stats(node)).collect();
        let wrong = |wrong| SimulateError::Accounting {
            at_ns: findings.duration_ns,
            wrong,
        };
        account(&findings).map_err(wrong)?;
        self.runtime.audit().map_err(wrong)?;
        Ok(findings)
    }
}

/// Compares the counts of the simulator with those of the scheduler.
fn account(findings: &Findings) -> Result<(), String> {
    let Findings {
        total,
        stats,
        backlog,
        ..
    } = findings;
    let (offered, sent, dropped) = (
        total.offered.packets,
        total.sent.packets,
        total.dropped.packets,
    );
    if offered != sent + dropped + backlog {
        return Err(format!(
            "{offered} packets enqueued, but {sent} sent, {dropped} dropped and {backlog} in the queue"
        ));
    }
    let counted = [
        ("enqueued packets", stats.enqueued, offered),
        ("sent packets", stats.sent, sent),
        ("sent bytes", stats.sent_bytes, total.sent.bytes),
        ("dropped packets", stats.dropped.iter().sum(), dropped),
    ];
    match counted.into_iter().find(|(_, theirs, ours)| theirs != ours) {
        Some((what, theirs, ours)) => Err(format!(
            "{what}: the scheduler counts {theirs}, the simulator {ours}"
        )),
        None => Ok(()),
    }
}
