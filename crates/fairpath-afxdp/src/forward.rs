//! A loop that carries packets between two interfaces, in an order that others decide.
//!
//! ```text
//!   receive -> complete the checksum -> Order::arrive        ... a batch from each queue
//!   Order::leave -> send -> flush -> reap -> refill           ... a batch to each queue
//! ```
//!
//! Invariant: received = sent + dropped + held by the order, at the end of every turn. Packets are
//! not changed, but for a checksum that their sender left open: the forwarder is a bridge's inside.
//!
//! One thread. Deliberately absent: routes, neighbours, TTL (a router's), and any scheduling.

use std::collections::VecDeque;

use fairpath_units::Nanos;

use crate::checksum::{self, Completion};
use crate::frames::FrameId;
use crate::port::{Gone, Port, QueueId};
use crate::wait::{self, Stop};

/// Packets of a queue that a turn takes or sends at most: enough to share the cost of a system call,
/// and few enough that the other queues wait some 50 us.
const BATCH: u32 = 64;
/// How long a turn that was told "later" waits before it tries again: a full device queue empties in
/// this order of time, and a link that is down costs 1,000 calls a second.
const RETRY: Nanos = Nanos(1_000_000);

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its frame, which the order holds from now on.
    pub frame: FrameId,
    /// By which queue it is to leave.
    pub to: QueueId,
    /// When the turn began that found it (`CLOCK_MONOTONIC`).
    pub now: Nanos,
}

/// What is to become of a packet that the order held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It leaves by the queue that was asked for.
    Send(FrameId),
    /// It is no more; why is the order's to count.
    Drop(FrameId),
}

/// Decides which packets leave, and when. Gives every frame that it was given back exactly once.
pub trait Order {
    /// Takes a packet, whose bytes begin with the Ethernet header. Appends what it drops for that to
    /// `out`, this packet or others; what it tells to send here is dropped, too.
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>);

    /// Appends what leaves by `to` now, `room` packets at most, and what it drops on the way.
    fn leave(&mut self, to: QueueId, now: Nanos, room: u32, out: &mut Vec<Outcome>);

    /// When a packet that is held back may leave; `None`: when another arrives, or there is room.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }
}

/// What a forwarder did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Packets taken from RX rings.
    pub received: u64,
    /// Packets put into TX rings.
    pub sent: u64,
    /// Packets that the order dropped.
    pub dropped: u64,
    /// Packets that the order sent where there was no room, or out of turn.
    pub no_room: u64,
    /// Checksums completed.
    pub completed: u64,
}

impl ForwardCounts {
    /// Packets that the order has and must have.
    pub fn held(&self) -> u64 {
        self.received - self.sent - self.dropped - self.no_room
    }
}

/// A forwarder could not go on, or not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Pairs that do not cover the port's queues.
    #[error(
        "forward between {pairs} pairs of queues of a port with {queues}: name every queue in one pair"
    )]
    Pairs {
        /// As given.
        pairs: usize,
        /// The port's.
        queues: usize,
    },
    /// See there.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// The loop and what it works on.
#[derive(Debug)]
pub struct Forwarder<O> {
    port: Port,
    order: O,
    /// By arrival's queue: the one to leave by.
    to: Vec<QueueId>,
    /// By queue: the order may have more than there was room for.
    more: Vec<bool>,
    counts: ForwardCounts,
    arrived: Vec<FrameId>,
    outcomes: Vec<Outcome>,
}

impl<O: Order> Forwarder<O> {
    /// Between the two queues of each pair, both ways.
    ///
    /// # Errors
    /// [`ForwardError::Pairs`].
    pub fn new(
        port: Port,
        pairs: &[(QueueId, QueueId)],
        order: O,
    ) -> Result<Forwarder<O>, ForwardError> {
        let queues = port.len();
        let wrong = ForwardError::Pairs {
            pairs: pairs.len(),
            queues,
        };
        let mut to = vec![None; queues];
        for &(a, b) in pairs {
            for (from, other) in [(a, b), (b, a)] {
                match to.get_mut(from.0) {
                    Some(place @ None) if other.0 < queues => *place = Some(other),
                    _ => return Err(wrong),
                }
            }
        }
        let to: Option<Vec<_>> = to.into_iter().collect();
        Ok(Forwarder {
            port,
            order,
            to: to.ok_or(wrong)?,
            more: vec![false; queues],
            counts: ForwardCounts::default(),
            arrived: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// What it works on.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Who decides.
    pub fn order(&self) -> &O {
        &self.order
    }

    /// What it did so far.
    pub fn counts(&self) -> ForwardCounts {
        self.counts
    }

    /// Carries packets until `stop` is asked, sleeping where there is nothing to do.
    ///
    /// # Errors
    /// [`ForwardError::Gone`]; what was held then stays held.
    pub fn run(&mut self, stop: &Stop) -> Result<(), ForwardError> {
        loop {
            // A busy loop looks for its end once in so many turns: the look is a system call.
            for _ in 0..BATCH {
                if !self.turn()? {
                    self.sleep(stop);
                    break;
                }
            }
            if stop.is_asked() {
                return Ok(());
            }
        }
    }

    /// Takes and sends a batch at every queue. False: there was nothing to do.
    ///
    /// # Errors
    /// [`ForwardError::Gone`].
    pub fn turn(&mut self) -> Result<bool, ForwardError> {
        let now = wait::now();
        let before = (self.counts.received, self.counts.sent);
        for queue in 0..self.to.len() {
            self.take(QueueId(queue), now);
        }
        for queue in 0..self.to.len() {
            self.give(QueueId(queue), now)?;
        }
        Ok(before != (self.counts.received, self.counts.sent))
    }

    fn take(&mut self, from: QueueId, now: Nanos) {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.port.receive(from, BATCH as usize, &mut arrived);
        self.counts.received += arrived.len() as u64;
        let to = self.to[from.0];
        for frame in arrived.drain(..) {
            let packet = self.port.bytes_mut(frame);
            if checksum::complete(packet) == Completion::Completed {
                self.counts.completed += 1;
            }
            let arrival = Arrival { frame, to, now };
            self.order.arrive(&arrival, packet, &mut self.outcomes);
        }
        self.arrived = arrived;
        self.settle(None);
        self.port.refill(from);
    }

    fn give(&mut self, to: QueueId, now: Nanos) -> Result<(), ForwardError> {
        self.port.reap(to);
        let room = self.port.room(to, BATCH);
        let before = self.counts.sent;
        if room > 0 {
            self.order.leave(to, now, room, &mut self.outcomes);
            self.settle(Some(to));
        }
        self.more[to.0] = self.counts.sent - before == u64::from(room);
        self.port.flush(to)?;
        Ok(())
    }

    /// Does what the order said.
    fn settle(&mut self, to: Option<QueueId>) {
        for outcome in self.outcomes.drain(..) {
            let (frame, sent) = match outcome {
                Outcome::Send(frame) => (frame, to.is_some_and(|to| self.port.send(to, frame))),
                Outcome::Drop(frame) => {
                    self.counts.dropped += u64::from(self.port.discard(frame));
                    continue;
                }
            };
            if sent {
                self.counts.sent += 1;
            } else if self.port.discard(frame) {
                self.counts.no_room += 1;
            }
        }
    }

    fn sleep(&self, stop: &Stop) {
        let queues = || (0..self.to.len()).map(QueueId);
        let retry = queues().any(|queue| self.port.unsent(queue) > 0);
        let due = self.order.wake_at();
        let due = due.map(|at| Nanos(at.0.saturating_sub(wait::now().0)));
        let most = match (due, retry) {
            (Some(due), true) => Some(due.min(RETRY)),
            (None, true) => Some(RETRY),
            (due, false) => due,
        };
        let sockets = self.port.sockets().zip(&self.more);
        wait::wait(
            sockets.map(|((_, fd), more)| (fd, *more && !retry)),
            stop,
            most,
        );
    }
}

/// First in, first out, with a limit: the simplest order.
#[derive(Debug)]
pub struct Fifo {
    queues: Vec<VecDeque<FrameId>>,
    limit: usize,
    full: u64,
}

impl Fifo {
    /// Holds up to `limit` packets for each of `queues` queues, and drops what comes then.
    pub fn new(queues: usize, limit: usize) -> Fifo {
        Fifo {
            queues: vec![VecDeque::with_capacity(limit); queues],
            limit,
            full: 0,
        }
    }

    /// Packets dropped because their queue was full.
    pub fn full(&self) -> u64 {
        self.full
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}

impl Order for Fifo {
    fn arrive(&mut self, arrival: &Arrival, _packet: &[u8], out: &mut Vec<Outcome>) {
        match self.queues.get_mut(arrival.to.0) {
            Some(queue) if queue.len() < self.limit => queue.push_back(arrival.frame),
            _ => {
                self.full += 1;
                out.push(Outcome::Drop(arrival.frame));
            }
        }
    }

    fn leave(&mut self, to: QueueId, _now: Nanos, room: u32, out: &mut Vec<Outcome>) {
        let Some(queue) = self.queues.get_mut(to.0) else {
            return;
        };
        let leaving = queue.len().min(room as usize);
        out.extend(queue.drain(..leaving).map(Outcome::Send));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_keeps_order_by_queue_and_drops_what_comes_when_it_is_full() {
        let mut fifo = Fifo::new(2, 3);
        let mut out = Vec::new();
        for i in 0..5 {
            let arrival = Arrival {
                frame: FrameId(i),
                to: QueueId(1),
                now: Nanos(0),
            };
            fifo.arrive(&arrival, &[], &mut out);
        }
        let dropped = [3, 4].map(|i| Outcome::Drop(FrameId(i)));
        assert_eq!((&out[..], fifo.full()), (&dropped[..], 2));
        out.clear();
        fifo.leave(QueueId(0), Nanos(0), 9, &mut out);
        fifo.leave(QueueId(1), Nanos(0), 2, &mut out);
        assert_eq!(out, [0, 1].map(|i| Outcome::Send(FrameId(i))));
        assert_eq!(fifo.waiting(), 1);
    }
}
