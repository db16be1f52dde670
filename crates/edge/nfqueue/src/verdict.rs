//! What shall become of a packet, and how that is told to the kernel: many verdicts in one datagram.
//!
//! ```text
//! give(held, verdict) ─► [verdict|verdict|verdict|...] ─ flush: one sendmsg ─► the kernel works them off in order
//! ```
//!
//! Invariant: a verdict leaves in the order in which it was given, and none waits while we sleep. A
//! datagram stays below what the kernel allocates without `vmalloc` (`NLMSG_GOODSIZE`, less than a
//! page), unless one changed payload alone is larger. Sending is slow deliberately: the kernel walks the
//! rest of the packet's way (forward, transmit) inside our system call.

use std::num::NonZeroU32;

use crate::counters::VerdictCounters;
use crate::error::QueueError;
use crate::message::{REQUEST, VERDICT, VERDICT_BATCH, put, write};
use crate::rewrite::Rewrite;
use crate::socket::Socket;

const NFQA_VERDICT_HDR: u16 = 2;
const NFQA_MARK: u16 = 3;
const NFQA_PAYLOAD: u16 = 10;
/// A page, less the kernel's bookkeeping beside a datagram.
const DATAGRAM_BYTES: usize = 3_700;
/// What may be decided and not yet on its way: two GSO packets, or more small ones than a read brings.
/// More would leave the flow's window standing here while sender and receiver wait.
const DECIDED_LIMIT_BYTES: u64 = 128 << 10;
/// A verdict with a mark, the longest without payload.
const LONGEST_BYTES: usize = 40;
/// Verdicts that say so with the flag `--queue-bypass` (`NF_VERDICT_FLAG_QUEUE_BYPASS`).
const FLAG_QUEUE_BYPASS: u32 = 0x8000;

/// What shall become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It goes on after this hook's rules; tables that come later still see it.
    Accept,
    /// It is freed.
    Drop,
    /// It goes to another queue of the same kind, and is then that queue's.
    Queue {
        /// The queue's number.
        number: u16,
        /// Where nobody is bound there, it is accepted instead of dropped.
        bypass: bool,
    },
    /// It meets this hook's rules again from the start: change its mark, or it comes back without limit.
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

/// An action, and the mark the packet gets with it.
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

    /// The action, the mark left as it is.
    pub const fn new(action: Action) -> Verdict {
        Verdict { action, mark: None }
    }

    /// With the whole mark set to `mark`: later rules, routing and qdiscs see it.
    #[must_use]
    pub const fn with_mark(mut self, mark: u32) -> Verdict {
        self.mark = Some(mark);
        self
    }

    /// What becomes of the packet.
    pub const fn action(self) -> Action {
        self.action
    }

    /// The mark it gets, if any.
    pub const fn mark(self) -> Option<u32> {
        self.mark
    }
}

/// The right to give one packet its verdict, at any time and in any order.
///
/// Twelve bytes; it cannot be copied, so there is never a second verdict. One that is dropped leaves
/// its packet in the kernel (where it counts against the queue's length) until
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

/// Packets with one verdict: how many, and their bytes as far as they are known.
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

    /// Whether their verdict should be on its way.
    pub fn is_full(&self) -> bool {
        self.bytes >= DECIDED_LIMIT_BYTES
    }
}

/// Verdicts that have not left yet.
#[derive(Debug)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    pub(crate) queue: u16,
    /// Whose packets these verdicts are for; changes when all that was held is let go.
    pub(crate) of: NonZeroU32,
    /// The packets whose verdicts wait.
    decided: Load,
    /// Packets that were held and have got their verdict, in all.
    pub(crate) settled: u64,
    pub(crate) counters: VerdictCounters,
}

/// Where verdicts go: they leave when a datagram is full, when they are about 128 KiB of packets, at
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
    /// Gives a packet its verdict; in any order, tens of nanoseconds, now and then a system call.
    ///
    /// # Errors
    /// Where the packet is not held in this queue, or a full datagram could not be sent (the verdict is
    /// kept and leaves with the next).
    pub fn give(&mut self, held: Held, verdict: Verdict) -> Result<(), QueueError> {
        self.settle(&held)?;
        self.one(held.id, verdict, held.len)
    }

    /// Gives a packet its verdict and new content, made by [`Packet::rewrite`](crate::Packet::rewrite).
    ///
    /// # Errors
    /// As [`Verdicts::give`]; also where `rewrite` was made for another packet.
    pub fn give_changed(
        &mut self,
        held: Held,
        verdict: Verdict,
        rewrite: &Rewrite,
    ) -> Result<(), QueueError> {
        if rewrite.id() != held.id {
            return Err(self.foreign(rewrite.id()));
        }
        self.settle(&held)?;
        self.changed(held.id, verdict, rewrite)
    }

    fn settle(&mut self, held: &Held) -> Result<(), QueueError> {
        if held.of != self.pending.of {
            return Err(self.foreign(held.id));
        }
        self.pending.settled += 1;
        Ok(())
    }

    pub(crate) fn foreign(&self, id: u32) -> QueueError {
        let queue = self.pending.queue;
        QueueError::Foreign { queue, id }
    }

    /// One packet's verdict.
    pub(crate) fn one(&mut self, id: u32, verdict: Verdict, len: u32) -> Result<(), QueueError> {
        self.put(VERDICT, id, verdict, Load::of(len), None)
    }

    /// The verdict of those packets that are still queued and have ids up to `last`.
    pub(crate) fn up_to(
        &mut self,
        last: u32,
        verdict: Verdict,
        load: Load,
    ) -> Result<(), QueueError> {
        self.put(VERDICT_BATCH, last, verdict, load, None)
    }

    /// One packet's verdict and new content.
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
        // Kept even where the others could not be sent: the packet has had its decision.
        self.pending.write(kind, id, verdict, payload);
        self.pending.counters.add(verdict.action, load.packets);
        self.pending.decided.bytes += load.bytes;
        if flushed.is_ok() && self.pending.decided.is_full() {
            return self.flush();
        }
        flushed
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// Where the kernel takes nothing (it lacks memory): all of it still waits and may be sent again.
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
    fn a_verdict_is_as_long_as_the_kernel_reads_it() {
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
