//! A shaper instance as what schedules a queue's packets.
//!
//! A GSO packet that takes more than 1 ms at a ceiling above it is split, as is a packet of 64 KiB below 524 Mbit/s.
//! The core decides this for each packet ([`ShapeInstance::takes_longer`]), by the rates as they are then.

use fairpath_nfqueue::QueueError;
use fairpath_shape::{Leaving, ShapeInstance, Side};

use super::passed::Passed;
use super::waiting::{Departure, QueueCounts, Waiting};
use super::worker::{Arrival, Arrived, Schedule};
use crate::monotonic_ns;
use crate::orders::{self, Command};

/// Packets released in one turn: about 100 us.
const TURN: u32 = 64;

/// A GSO packet that takes longer than this at its rate is split.
const LONGEST_NS: u64 = 1_000_000;

/// The counters of a worker, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub own: QueueCounts,
    /// Packets dropped because all handles were taken.
    pub no_handle: u64,
    /// Packets dropped because the worker did not run.
    pub stale: u64,
    /// Verdicts that could not be sent.
    pub failed: u64,
}

impl Counts {
    /// Adds those of another worker.
    pub fn add(&mut self, other: &Counts) {
        self.own.add(&other.own);
        self.no_handle += other.no_handle;
        self.stale += other.stale;
        self.failed += other.failed;
    }
}

/// A side's instance.
pub struct Instance {
    shaping: ShapeInstance,
    side: Side,
    leaving: Vec<Leaving>,
    passed: Passed,
    next: Option<u64>,
    /// When the packets in `leaving` were decided on.
    decided: u64,
    no_handle: u64,
    stale: u64,
    failed: u64,
}

impl Instance {
    pub fn new(shaping: ShapeInstance, side: Side) -> Instance {
        Instance {
            shaping,
            side,
            leaving: Vec::new(),
            passed: Passed::default(),
            next: None,
            decided: 0,
            no_handle: 0,
            stale: 0,
            failed: 0,
        }
    }
}

impl Schedule for Instance {
    type Counts = Counts;
    /// The flow of a UDP packet, otherwise 0.
    type Kept = u32;

    fn begin(&mut self) {
        orders::prefer_this_thread();
    }

    fn arrive(&mut self, arrival: &Arrival<'_>) -> anyhow::Result<Arrived<u32>> {
        let Arrival {
            handle,
            frame,
            head,
            bytes,
            ..
        } = *arrival;
        let mut meta = self.shaping.look(frame, head, bytes);
        let flow = Passed::flow(&meta);
        if arrival.packet.info().gso() {
            let has_passed = self.passed.has(flow, frame.now);
            if arrival.can_split && has_passed && self.shaping.takes_longer(&meta, LONGEST_NS) {
                return Ok(Arrived::Split);
            }
            // A mark splits it.
            meta.ecn = if has_passed { meta.ecn } else { 0 };
        }
        self.shaping.arrive_as(handle, frame.now, meta);
        Ok(Arrived::Waits(flow))
    }

    fn note_no_handle(&mut self) {
        self.no_handle += 1;
    }

    fn max_pause_ns(&self) -> Option<u64> {
        Some(orders::MAX_PAUSE_NS)
    }

    fn note_stale(&mut self) {
        self.stale += 1;
    }

    fn note_refused(&mut self, given: Result<(), QueueError>) {
        self.failed += u64::from(given.is_err());
    }

    fn note_short_of_memory(&mut self) {
        self.failed += 1;
    }

    fn turn(&mut self, now: u64) -> anyhow::Result<()> {
        self.next = self.shaping.turn(now, TURN, &mut self.leaving)?;
        self.decided = now;
        Ok(())
    }

    fn release(&mut self, waiting: &mut Waiting<u32>) -> anyhow::Result<usize> {
        let now = monotonic_ns()?;
        // The thread was stopped, and these are as old as what waited in the kernel.
        let too_late = now.saturating_sub(self.decided) > orders::MAX_PAUSE_NS;
        let stale = &mut self.stale;
        let departures = self.leaving.drain(..).map(|leaving| match leaving {
            Leaving::Send { handle, .. } if too_late => {
                *stale += 1;
                (handle, Departure::Dropped)
            }
            Leaving::Send { handle, change } if change.mark => (handle, Departure::Marked),
            Leaving::Send { handle, .. } => (handle, Departure::Accepted),
            Leaving::Drop { handle, .. } => (handle, Departure::Dropped),
        });
        let passed = &mut self.passed;
        let (left, failed) = waiting.give_all(departures, |flow| passed.note(flow, now));
        self.failed += failed;
        Ok(left)
    }

    fn wake_at(&self) -> Option<u64> {
        self.next
    }

    fn sleep(&mut self, _: u64, left: u64) -> Option<u64> {
        Some(left)
    }

    fn obey(&mut self, order: Command<Counts>, waiting: &mut Waiting<u32>) -> anyhow::Result<()> {
        orders::obey(&mut self.shaping, order, monotonic_ns()?, &mut self.leaving);
        self.decided = monotonic_ns()?;
        self.release(waiting)?;
        Ok(())
    }

    fn counts(&self, waiting: &Waiting<u32>) -> Counts {
        Counts {
            own: waiting.counts(),
            no_handle: self.no_handle,
            stale: self.stale,
            failed: self.failed,
        }
    }

    fn failed(&self, error: &anyhow::Error) {
        tracing::error!("shape {}: {error:#}", self.side.name());
    }
}
