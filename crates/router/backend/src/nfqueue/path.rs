//! The path of an impairment as what schedules a queue's packets.

use fairpath_afxdp::Awake;
use fairpath_impair::{Counts, Departure, Path};
use fairpath_nfqueue::{Packet, QueueError, Rewrite, Verdict};
use fairpath_units::Nanos;

use super::waiting::Waiting;
use super::worker::{Arrival, Arrived, Schedule};
use crate::impair;
use crate::monotonic_ns;
use crate::orders::Command;
use crate::raw::RawSockets;

/// Packets released before arrivals are read again: about 100 us.
const TURN: usize = 64;

/// A direction's path.
pub struct Impaired {
    path: Path,
    /// For duplicated or corrupted packets.
    again: Option<RawSockets>,
    awake: Awake,
    precise: bool,
}

impl Impaired {
    pub fn new(path: Path, again: Option<RawSockets>, precise: bool) -> Impaired {
        Impaired {
            path,
            again,
            awake: Awake::default(),
            precise,
        }
    }

    fn send(&mut self, departure: Departure, waiting: &mut Waiting<Option<Rewrite>>) {
        let Departure { handle, change, .. } = departure;
        let Some((held, kept)) = waiting.take(handle) else {
            return;
        };
        let mut verdicts = waiting.queue.release();
        let corrupted = change
            .flip
            .zip(kept.clone())
            .and_then(|(bit, mut packet)| packet.flip(bit).then_some(packet));
        // Kept where it could not be sent, and sent with the next.
        let given = match &corrupted {
            Some(corrupted) => verdicts.give_changed(held, Verdict::ACCEPT, corrupted),
            None => verdicts.give(held, Verdict::ACCEPT),
        };
        let refused = refused_now(&given);
        if change.twice {
            // In this order on the wire, too; what the kernel does not take now comes behind.
            let _ = verdicts.flush();
        }
        let counts = self.path.counts_mut();
        counts.own.refused += refused;
        counts.corrupted += u64::from(corrupted.is_some());
        counts.own.not_corrupted += u64::from(change.flip.is_some() && corrupted.is_none());
        if change.twice {
            let second = corrupted.or(kept);
            let sent = (second.zip(self.again.as_ref()))
                .is_some_and(|(packet, again)| again.send(packet.bytes(), 0).is_ok());
            let counts = self.path.counts_mut();
            counts.copies += u64::from(sent);
            counts.sent += u64::from(sent);
            counts.own.no_copy += u64::from(!sent);
        }
    }
}

impl Schedule for Impaired {
    type Counts = Counts;
    /// Its bytes, where they are needed.
    type Kept = Option<Rewrite>;

    fn begin(&mut self) {
        self.awake = impair::awake(self.precise);
    }

    fn arrive(&mut self, arrival: &Arrival<'_>) -> anyhow::Result<Arrived<Option<Rewrite>>> {
        let Arrival {
            handle,
            packet,
            frame,
            head,
            bytes,
            ..
        } = *arrival;
        if !self.path.arrive(handle, frame, head, bytes)? {
            return Ok(Arrived::Refused);
        }
        let kept = self.again.as_ref().and_then(|_| kept(packet));
        Ok(Arrived::Waits(kept))
    }

    fn note_no_handle(&mut self) {
        self.path.counts_mut().own.no_place += 1;
    }

    fn note_refused(&mut self, given: Result<(), QueueError>) {
        self.path.counts_mut().own.refused += refused_now(&given);
    }

    fn turn(&mut self, now: u64) -> anyhow::Result<()> {
        Ok(self.path.run_to(now)?)
    }

    fn release(&mut self, waiting: &mut Waiting<Option<Rewrite>>) -> anyhow::Result<usize> {
        let mut removed = 0;
        while let Some(handle) = self.path.take_dropped() {
            if let Some((held, _)) = waiting.take(handle) {
                let given = waiting.queue.release().give(held, Verdict::DROP);
                self.note_refused(given);
            }
            removed += 1;
        }
        for _ in 0..TURN {
            let Some(departure) = self.path.take() else {
                break;
            };
            self.send(departure, waiting);
            removed += 1;
        }
        // Verdicts that the kernel does not take are sent again with the next: packets are late by then.
        let nothing = removed == 0 && !self.path.is_going();
        if nothing || waiting.queue.release().flush().is_ok() {
            self.path.note_sent(monotonic_ns()?);
        }
        Ok(removed)
    }

    fn wake_at(&self) -> Option<u64> {
        self.path.wake_at()
    }

    /// Not at all shortly before a packet is due.
    fn sleep(&mut self, now: u64, left: u64) -> Option<u64> {
        let left = self.awake.until(Nanos(now), Nanos(left))?;
        Some(left.0)
    }

    /// A path runs as it began.
    fn obey(&mut self, _: Command<Counts>, _: &mut Waiting<Option<Rewrite>>) -> anyhow::Result<()> {
        Ok(())
    }

    fn counts(&self, waiting: &Waiting<Option<Rewrite>>) -> Counts {
        let queue = &waiting.queue;
        let mut counts = self.path.reported();
        match queue.kernel_counts() {
            Ok(kernel) => {
                let dropped = [kernel.queue_dropped, kernel.user_dropped].map(u64::from);
                counts.queue_dropped += dropped.iter().sum::<u64>();
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                counts.unread.push(format!("{error:#}"));
            }
        }
        counts.own.refused += queue.counters().packets.refused;
        counts
    }

    fn failed(&self, error: &anyhow::Error) {
        fairpath_cli::note(format_args!("{error:#}"));
    }
}

/// 1 where a verdict is the kernel's no more: one that could not be sent is kept, and sent again.
fn refused_now(given: &Result<(), QueueError>) -> u64 {
    let is_kept = matches!(given, Ok(()) | Err(QueueError::Send { .. }));
    u64::from(!is_kept)
}

/// A packet's bytes, where they are all there and right.
fn kept(packet: &Packet<'_>) -> Option<Rewrite> {
    packet.verbatim().ok()
}
