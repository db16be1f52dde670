//! First in, first out: the simplest order, and the baseline for others.

use std::collections::VecDeque;

use fairpath_core::sched::Change;
use fairpath_units::Nanos;

use crate::forward::{Arrival, Order, Outcome};
use crate::frames::FrameId;
use crate::port::QueueId;

/// First in, first out, with a limit: the simplest order.
#[derive(Debug)]
pub struct Fifo {
    queues: Vec<VecDeque<FrameId>>,
    limit: usize,
    full: u64,
}

impl Fifo {
    /// Holds up to `limit` packets for each of `queues` queues, and drops further ones.
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

    fn limit(&self) -> u32 {
        (self.limit * self.queues.len()) as u32
    }

    fn leave(&mut self, to: QueueId, _now: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        let Some(queue) = self.queues.get_mut(to.0) else {
            return;
        };
        let leaving = queue.len().min(capacity as usize);
        out.extend(
            queue
                .drain(..leaving)
                .map(|frame| Outcome::Send(frame, Change::default())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifo_keeps_order_and_drops_when_full() {
        let mut fifo = Fifo::new(2, 3);
        let mut out = Vec::new();
        for i in 0..5 {
            let arrival = Arrival {
                frame: FrameId(i),
                bytes: 60,
                from: QueueId(0),
                exit: 1,
                to: QueueId(1),
                now: Nanos(0),
                meta: None,
            };
            fifo.arrive(&arrival, &[], &mut out);
        }
        let dropped = [3, 4].map(|i| Outcome::Drop(FrameId(i)));
        assert_eq!((&out[..], fifo.full()), (&dropped[..], 2));
        out.clear();
        fifo.leave(QueueId(0), Nanos(0), 9, &mut out);
        fifo.leave(QueueId(1), Nanos(0), 2, &mut out);
        assert_eq!(
            out,
            [0, 1].map(|i| Outcome::Send(FrameId(i), Change::default()))
        );
        assert_eq!(fifo.waiting(), 1);
    }
}
