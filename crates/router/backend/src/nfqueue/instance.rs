//! A shaper instance as what schedules a queue's packets.

use fairpath_nfqueue::{Counters, Holding, KernelCounts, Queue, QueueError, Verdict};
use fairpath_shape::{Leaving, ShapeInstance, Side};

use super::worker::{Arrival, Schedule, Waiting};
use crate::monotonic_ns;
use crate::orders::{self, Command};

/// Packets released in one turn: about 100 us.
const TURN: u32 = 64;

/// The counters of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub own: Counters,
    pub kernel: Option<KernelCounts>,
    /// Packets dropped because all handles were taken.
    pub no_handle: u64,
    /// Verdicts that could not be sent.
    pub failed: u64,
    /// Packets in the queue when the interface was removed.
    pub held: u64,
}

/// A side's instance.
pub struct Instance {
    shaping: ShapeInstance,
    side: Side,
    leaving: Vec<Leaving>,
    next: Option<u64>,
    no_handle: u64,
    failed: u64,
}

impl Instance {
    pub fn new(shaping: ShapeInstance, side: Side) -> Instance {
        Instance {
            shaping,
            side,
            leaving: Vec::new(),
            next: None,
            no_handle: 0,
            failed: 0,
        }
    }
}

impl Schedule for Instance {
    type Counts = Counts;
    type Kept = ();

    fn begin(&mut self) {
        orders::prefer_this_thread();
    }

    fn arrive(&mut self, arrival: &Arrival<'_>) -> anyhow::Result<Option<()>> {
        let Arrival {
            handle,
            frame,
            head,
            bytes,
            ..
        } = *arrival;
        self.shaping.arrive(handle, frame, head, bytes);
        Ok(Some(()))
    }

    fn note_no_handle(&mut self) {
        self.no_handle += 1;
    }

    fn note_refused(&mut self, given: Result<(), QueueError>) {
        self.failed += u64::from(given.is_err());
    }

    fn note_short_of_memory(&mut self) {
        self.failed += 1;
    }

    fn turn(&mut self, now: u64) -> anyhow::Result<()> {
        self.next = self.shaping.turn(now, TURN, &mut self.leaving)?;
        Ok(())
    }

    fn release(&mut self, waiting: &mut Waiting<()>) -> anyhow::Result<usize> {
        let verdicts = self.leaving.drain(..).map(|leaving| match leaving {
            Leaving::Send { handle, .. } => (handle, Verdict::ACCEPT),
            Leaving::Drop { handle, .. } => (handle, Verdict::DROP),
        });
        let (left, failed) = waiting.give_all(verdicts);
        self.failed += failed;
        Ok(left)
    }

    fn wake_at(&self) -> Option<u64> {
        self.next
    }

    fn sleep(&mut self, _: u64, left: u64) -> Option<u64> {
        Some(left)
    }

    fn obey(&mut self, order: Command<Counts>, waiting: &mut Waiting<()>) -> anyhow::Result<()> {
        orders::obey(&mut self.shaping, order, monotonic_ns()?, &mut self.leaving);
        self.release(waiting)?;
        Ok(())
    }

    fn counts(&self, queue: &Queue<Holding>) -> Counts {
        Counts {
            own: queue.counters(),
            kernel: queue.kernel_counts().ok(),
            no_handle: self.no_handle,
            failed: self.failed,
            held: queue.held(),
        }
    }

    fn failed(&self, error: &anyhow::Error) {
        tracing::error!("shape {}: {error:#}", self.side.name());
    }
}
