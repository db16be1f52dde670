//! Operations on their way to the home, and the book of every packet that is in there.

use std::collections::BTreeMap;

use fairpath_core::sched::{Drop, Home, NEVER, Op, Outcome, OutcomeKind, Over};

use super::findings::{Findings, Inversions, Measured};
use super::waiting::Waiting;
use super::{BATCH, SimulateError, Tap};
use crate::traffic::{Arrival, Arrivals, Finished, Row};
use fairpath_sched::tree::{Tree, cost};

/// A packet in the home, by its handle.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
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
    /// Given to the home.
    Given,
    /// The home said that it waits.
    Waits,
}

/// What a dequeue came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Bytes of the packet that left, and how often.
    pub sent: Option<(u32, u32)>,
    /// When to ask again.
    pub again: u64,
}

/// Who sent the packet that is on the link.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    sender: u32,
    marked: bool,
}

pub(super) struct Batch<'h> {
    home: &'h mut dyn Home,
    tree: &'h Tree,
    tap: Option<Tap<'h>>,
    ops: Vec<Op>,
    outcomes: Vec<Outcome>,
    packets: Vec<Held>,
    free: Vec<u32>,
    rows: Vec<Measured>,
    /// Ranks that wait, by leaf; `None` where no ideal PIFO is defined.
    waiting: Vec<Option<Waiting>>,
    inversions: Inversions,
    drops: [u64; 32],
    held: u64,
    most_held: u64,
    /// `held` before the operations that are on their way.
    held_before: u64,
    leaving: Option<Leaving>,
    weights_refused: u64,
}

impl<'h> Batch<'h> {
    pub fn new(home: &'h mut dyn Home, tree: &'h Tree, tap: Option<Tap<'h>>) -> Batch<'h> {
        let plan = &tree.plan;
        // What waits at a gate has no rank yet.
        let judged =
            |over: Over, impair: u32| (over == Over::Packets && impair == 0).then(Waiting::default);
        Batch {
            home,
            tree,
            tap,
            ops: Vec::with_capacity(BATCH + 1),
            outcomes: Vec::with_capacity(2 * BATCH),
            packets: vec![Held::default(); plan.config.packets as usize + 1],
            free: (1..=plan.config.packets).rev().collect(),
            rows: Vec::new(),
            waiting: plan
                .nodes
                .iter()
                .map(|node| judged(node.over, node.impair))
                .collect(),
            inversions: Inversions::default(),
            drops: [0; 32],
            held: 0,
            most_held: 0,
            held_before: 0,
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

    /// The time of the first operation that is on its way; none is as late as can be.
    pub fn since(&self) -> u64 {
        self.ops.first().map_or(NEVER, |op| op.now)
    }

    /// Packets that wait.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Packets that waited before the operations that are on their way.
    pub fn held_before(&self) -> u64 {
        self.held_before
    }

    /// Flows that are to have more than others get their weights before the first packet.
    pub fn set_weights<A: Arrivals>(&mut self, traffic: &mut A) -> Result<(), SimulateError> {
        let rows = traffic.rows();
        let heaviest = rows.iter().map(|row| row.weight).max().unwrap_or(1);
        if heaviest == 1 {
            return Ok(());
        }
        let known = rows
            .iter()
            .filter_map(|row| Some((row.weight, row.sample?)));
        for (weight, meta) in known {
            let Some(leaf) = self.tree.leaf(&meta) else {
                continue;
            };
            let cost = cost(heaviest.into(), weight.into());
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
                held: self.held,
            });
        };
        let bytes = arrival.meta.bytes;
        self.packets[handle as usize] = Held {
            bytes,
            row: arrival.row,
            sender: arrival.sender,
            state: State::Given,
            ..Held::default()
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

    /// Runs what is on its way and books what became of it.
    pub fn run<A: Arrivals>(&mut self, traffic: &mut A) -> Result<Answer, SimulateError> {
        self.outcomes.clear();
        self.home.run(&self.ops, &mut self.outcomes)?;
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
        self.held_before = self.held;
        Ok(answer)
    }

    /// The packet of an outcome, which must be in the home.
    #[inline]
    fn packet(&mut self, outcome: &Outcome, now: u64) -> Result<&mut Held, SimulateError> {
        match self.packets.get_mut(outcome.handle as usize) {
            Some(packet) if packet.state != State::Free => Ok(packet),
            _ => Err(SimulateError::Accounting {
                at_ns: now,
                wrong: format!(
                    "packet {} is {:?} and was not there",
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
        self.held += 1;
        self.most_held = self.most_held.max(self.held);
        if let Some(Some(waiting)) = self
            .waiting
            .get_mut((outcome.node as usize).wrapping_sub(1))
        {
            waiting.add(outcome.rank);
        }
        Ok(())
    }

    /// Takes a packet out of the book. Gives it, and how many of lower rank waited with it.
    #[inline]
    fn take(&mut self, outcome: &Outcome, now: u64) -> Result<(Held, Option<u64>), SimulateError> {
        let packet = self.packet(outcome, now)?;
        let taken = *packet;
        packet.state = State::Free;
        self.free.push(outcome.handle);
        let mut lower = None;
        if taken.state == State::Waits {
            self.held -= 1;
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
            self.inversions.judged += 1;
            self.inversions.packets += u64::from(lower > 0);
            self.inversions.overtaken += lower;
        }
        let marked = outcome.marked();
        let row = &mut self.rows[packet.row as usize];
        row.sent.add(packet.bytes);
        row.marked += u64::from(marked);
        if outcome.flags & (Outcome::COPY | Outcome::CORRUPT) != 0 {
            row.tampered(outcome, packet.bytes);
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

    /// The packet that was sent last has left the link.
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

    /// Sums everything up, if it adds up.
    pub fn finish(
        mut self,
        mut findings: Findings,
        rows: &[Row],
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
        findings.held = self.held;
        findings.most_held = self.most_held;
        findings.inversions = self.inversions;
        findings.weights_refused = self.weights_refused;
        findings.stats = self.home.stats();
        let nodes = 1..=self.tree.plan.nodes.len() as u32;
        let impairments = 1..=self.tree.plan.impairments.len() as u32;
        findings.impairments = impairments
            .map(|number| self.home.impair_stats(number))
            .collect();
        findings.nodes = nodes.map(|node| self.home.node_stats(node)).collect();
        let wrong = |wrong| SimulateError::Accounting {
            at_ns: findings.duration_ns,
            wrong,
        };
        account(&findings).map_err(wrong)?;
        self.home.audit().map_err(wrong)?;
        Ok(findings)
    }
}

/// What came, left, was dropped and waits, by our count and by the scheduler's.
fn account(findings: &Findings) -> Result<(), String> {
    let Findings {
        total, stats, held, ..
    } = findings;
    let (offered, sent, dropped) = (
        total.offered.packets,
        total.sent.packets,
        total.dropped.packets,
    );
    if offered != sent + dropped + held {
        return Err(format!(
            "{offered} packets came; {sent} left, {dropped} were dropped and {held} wait"
        ));
    }
    let counted = [
        ("that came", stats.enqueued, offered),
        ("that left", stats.sent, sent),
        ("bytes that left", stats.sent_bytes, total.sent.bytes),
        ("dropped", stats.dropped.iter().sum(), dropped),
    ];
    match counted.into_iter().find(|(_, theirs, ours)| theirs != ours) {
        Some((what, theirs, ours)) => Err(format!(
            "of packets {what}, it counts {theirs} and we {ours}"
        )),
        None => Ok(()),
    }
}
