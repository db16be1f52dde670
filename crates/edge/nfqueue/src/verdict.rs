//! Verdicts on packets, many of them in one datagram to the kernel.
//!
//! ```text
//! give(held, verdict) ─► [verdict|verdict|verdict|...] ─ flush: one sendmsg ─► the kernel works them off in order
//! ```
//!
//! Invariant: verdicts leave in the order in which they were given, and none waits during a sleep.
//! A datagram stays below the size that the kernel allocates without `vmalloc` (`NLMSG_GOODSIZE`,
//! less than a page), except for a single larger payload. Sending is slow by design: the kernel
//! runs the rest of the packet path (forward, transmit) in the system call.

use std::num::NonZeroU32;

use crate::counters::VerdictCounters;
use crate::error::QueueError;
use crate::message::{REQUEST, VERDICT, VERDICT_BATCH, put, write};
use crate::rewrite::Rewrite;
use crate::socket::Socket;

const NFQA_VERDICT_HDR: u16 = 2;
const NFQA_MARK: u16 = 3;
const NFQA_PAYLOAD: u16 = 10;
/// A page, less the kernel's overhead per datagram.
const DATAGRAM_BYTES: usize = 3_700;
/// Maximum of decided but unsent packets: two GSO packets, or more small ones than a read returns.
/// More would stall the window of a flow here.
const DECIDED_LIMIT_BYTES: u64 = 128 << 10;
/// A verdict with a mark, the longest one without payload.
const LONGEST_BYTES: usize = 40;
/// The kernel's flag for `--queue-bypass` in a verdict (`NF_VERDICT_FLAG_QUEUE_BYPASS`).
const FLAG_QUEUE_BYPASS: u32 = 0x8000;

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It continues after the rules of this hook. Later tables still process it.
    Accept,
    /// It is freed.
    Drop,
    /// It goes to another queue of the same kind, which then owns it.
    Queue {
        /// The queue's number.
        number: u16,
        /// If that queue is not bound, accept it instead of dropping it.
        bypass: bool,
    },
    /// It restarts at the first rule of this hook: change its mark, or it loops.
    Repeat,
}

impl Action {
    fn number(self) -> u32 {
        match self {
            Action::Drop => 0,
            Action::Accept => 1,
            Action::Queue { number, bypass } => {
                let flag = if bypass { FLAG_QUEUE_BYPASS } else { 0 };
                u32::from(number) << 16 | flag | 3
            }
            Action::Repeat => 4,
        }
    }
}

/// An action, and the new mark of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    action: Action,
    mark: Option<u32>,
}

impl Verdict {
    /// Accepted.
    pub const ACCEPT: Verdict = Verdict::new(Action::Accept);
    /// Dropped.
    pub const DROP: Verdict = Verdict::new(Action::Drop);

    /// The action with the mark unchanged.
    pub const fn new(action: Action) -> Verdict {
        Verdict { action, mark: None }
    }

    /// With the whole mark set to `mark`, visible to later rules, routing and qdiscs.
    #[must_use]
    pub const fn with_mark(mut self, mark: u32) -> Verdict {
        self.mark = Some(mark);
        self
    }

    /// The action.
    pub const fn action(self) -> Action {
        self.action
    }

    /// The new mark, if any.
    pub const fn mark(self) -> Option<u32> {
        self.mark
    }
}

/// The right to give one packet its verdict, at any time and in any order.
///
/// It has twelve bytes and cannot be copied, so there is never a second verdict. If it is dropped,
/// its packet stays in the kernel (and counts for the queue's length) until
/// [`Queue::release_all`](crate::Queue::release_all) or the end of the queue.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "the packet waits in the kernel until it gets a verdict"]
pub struct Held {
    pub(crate) id: u32,
    pub(crate) len: u32,
    pub(crate) of: NonZeroU32,
}

impl Held {
    /// The packet's id, as [`Packet::id`](crate::Packet::id).
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// The number of packets with one verdict, and their bytes as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub packets: u64,
    pub bytes: u64,
}

impl Load {
    /// Of one packet.
    pub fn of(len: u32) -> Load {
        Load {
            packets: 1,
            bytes: len.into(),
        }
    }

    pub fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
    }

    /// True if their verdict should be sent.
    pub fn is_full(&self) -> bool {
        self.bytes >= DECIDED_LIMIT_BYTES
    }
}

/// Unsent verdicts.
#[derive(Debug)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    pub(crate) queue: u16,
    /// The owner of these packets; changes when all held packets are released.
    pub(crate) of: NonZeroU32,
    /// The packets with unsent verdicts.
    decided: Load,
    /// Held packets with a verdict, in total.
    pub(crate) settled: u64,
    pub(crate) counters: VerdictCounters,
}

/// The sink for verdicts. They are sent when a datagram is full, after about 128 KiB of packets, at
/// [`Verdicts::flush`], and before the queue receives again.
#[derive(Debug)]
pub struct Verdicts<'a> {
    pub(crate) pending: &'a mut Pending,
    pub(crate) socket: &'a Socket,
}

impl Pending {
    pub(crate) fn new(queue: u16, of: NonZeroU32) -> Pending {
        Pending {
            bytes: Vec::with_capacity(DATAGRAM_BYTES),
            queue,
            of,
            decided: Load::default(),
            settled: 0,
            counters: VerdictCounters::default(),
        }
    }

    fn write(&mut self, kind: u16, id: u32, verdict: Verdict, payload: Option<&[u8]>) {
        let header = [verdict.action.number().to_be_bytes(), id.to_be_bytes()];
        write(&mut self.bytes, kind, REQUEST, id, self.queue, |out| {
            put(out, NFQA_VERDICT_HDR, header.as_flattened());
            if let Some(mark) = verdict.mark {
                put(out, NFQA_MARK, &mark.to_be_bytes());
            }
            if let Some(payload) = payload {
                put(out, NFQA_PAYLOAD, payload);
            }
        });
    }
}

impl Verdicts<'_> {
    /// Gives a packet its verdict, in any order. Takes tens of nanoseconds, sometimes a system
    /// call.
    ///
    /// # Errors
    /// If the packet is not held in this queue, or a full datagram could not be sent (the verdict
    /// stays queued and leaves with the next one).
    pub fn give(&mut self, held: Held, verdict: Verdict) -> Result<(), QueueError> {
        self.settle(&held)?;
        self.one(held.id, verdict, held.len)
    }

    /// Gives a packet its verdict and new content from [`Packet::rewrite`](crate::Packet::rewrite).
    ///
    /// # Errors
    /// As [`Verdicts::give`]; also if `rewrite` belongs to another packet.
    pub fn give_changed(
        &mut self,
        held: Held,
        verdict: Verdict,
        rewrite: &Rewrite,
    ) -> Result<(), QueueError> {
        if rewrite.id() != held.id {
            return Err(self.other_queue(rewrite.id()));
        }
        self.settle(&held)?;
        self.changed(held.id, verdict, rewrite)
    }

    fn settle(&mut self, held: &Held) -> Result<(), QueueError> {
        if held.of != self.pending.of {
            return Err(self.other_queue(held.id));
        }
        self.pending.settled += 1;
        Ok(())
    }

    pub(crate) fn other_queue(&self, id: u32) -> QueueError {
        let queue = self.pending.queue;
        QueueError::OtherQueue { queue, id }
    }

    /// The verdict on one packet.
    pub(crate) fn one(&mut self, id: u32, verdict: Verdict, len: u32) -> Result<(), QueueError> {
        self.put(VERDICT, id, verdict, Load::of(len), None)
    }

    /// The verdict on those packets that are still queued with ids up to `last`.
    pub(crate) fn up_to(
        &mut self,
        last: u32,
        verdict: Verdict,
        load: Load,
    ) -> Result<(), QueueError> {
        self.put(VERDICT_BATCH, last, verdict, load, None)
    }

    /// The verdict on one packet, with new content.
    pub(crate) fn changed(
        &mut self,
        id: u32,
        verdict: Verdict,
        rewrite: &Rewrite,
    ) -> Result<(), QueueError> {
        self.pending.counters.rewritten += 1;
        let bytes = rewrite.bytes();
        self.put(
            VERDICT,
            id,
            verdict,
            Load::of(bytes.len() as u32),
            Some(bytes),
        )
    }

    fn put(
        &mut self,
        kind: u16,
        id: u32,
        verdict: Verdict,
        load: Load,
        payload: Option<&[u8]>,
    ) -> Result<(), QueueError> {
        let longest = LONGEST_BYTES + payload.map_or(0, |payload| payload.len() + 8);
        let full = self.pending.bytes.len() + longest > DATAGRAM_BYTES;
        let flushed = if full { self.flush() } else { Ok(()) };
        // Kept even if the others could not be sent: the packet was decided.
        self.pending.write(kind, id, verdict, payload);
        self.pending.counters.add(verdict.action, load.packets);
        self.pending.decided.bytes += load.bytes;
        if flushed.is_ok() && self.pending.decided.is_full() {
            return self.flush();
        }
        flushed
    }

    /// Sends the queued verdicts.
    ///
    /// # Errors
    /// If the kernel accepts nothing (out of memory): all of it stays queued and may be sent again.
    pub fn flush(&mut self) -> Result<(), QueueError> {
        if self.pending.bytes.is_empty() {
            return Ok(());
        }
        self.pending.counters.sends += 1;
        let sent = self.socket.send(&self.pending.bytes);
        sent.map_err(|source| QueueError::Send {
            queue: self.pending.queue,
            source,
        })?;
        self.pending.bytes.clear();
        self.pending.decided = Load::default();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_the_kernels_numbers() {
        let queue = |number, bypass| Action::Queue { number, bypass }.number();
        assert_eq!(
            [Action::Drop, Action::Accept, Action::Repeat].map(Action::number),
            [0, 1, 4]
        );
        assert_eq!(queue(0x1234, false), 0x1234_0003);
        assert_eq!(queue(1, true), 0x0001_8003);
    }

    #[test]
    fn a_verdict_has_the_length_the_kernel_reads() {
        let mut verdicts = Pending::new(3, NonZeroU32::MIN);
        verdicts.write(VERDICT, 9, Verdict::ACCEPT, None);
        assert_eq!(verdicts.bytes.len(), 32);
        assert_eq!(
            verdicts.bytes[18..],
            [0, 3, 12, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 9]
        );
        verdicts.bytes.clear();
        verdicts.write(VERDICT, 9, Verdict::DROP.with_mark(7), None);
        assert_eq!(verdicts.bytes.len(), LONGEST_BYTES);
        assert_eq!(verdicts.bytes[32..], [8, 0, 3, 0, 0, 0, 0, 7]);
    }
}
