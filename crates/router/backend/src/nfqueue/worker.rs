//! A side's thread: packets from their queue, through the lane, and back.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fairpath_nfqueue::{Counters, Held, Holding, KernelCounts, Queue, QueueError, Verdict, Wait};
use fairpath_shape::{Lane, Leaving};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;

use super::packet::{At, describe};
use crate::monotonic_ns;
use crate::orders::{self, Command, Orders, Orphan};

/// Packets let go in one turn: some 100 us.
const TURN: u32 = 64;
/// How long leaving may take.
const DRAIN: Duration = Duration::from_secs(2);
/// Before verdicts that could not be sent are sent again.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(1);

/// What a thread counts.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub own: Counters,
    pub kernel: Option<KernelCounts>,
    /// Packets dropped because all handles were taken.
    pub no_handle: u64,
    /// Verdicts that could not be sent.
    pub failed: u64,
    /// What was held here when its interface went.
    pub held: u64,
}

/// What a thread works on.
pub struct Worker {
    queue: Queue<Holding>,
    lane: Lane,
    orders: Orders<Counts>,
    bell: Arc<EventFd>,
    at: At,
    /// By handle.
    held: Vec<Option<Held>>,
    free: Vec<u32>,
    leaving: Vec<Leaving>,
    no_handle: u64,
    failed: u64,
}

impl Worker {
    /// Of a lane that knows the handles 1 to `handles`; `bell` is rung with each order.
    pub fn new(
        queue: Queue<Holding>,
        lane: Lane,
        orders: Orders<Counts>,
        bell: Arc<EventFd>,
        at: At,
        handles: u32,
    ) -> Worker {
        Worker {
            queue,
            lane,
            orders,
            bell,
            at,
            held: (0..=handles).map(|_| None).collect(),
            free: (1..=handles).rev().collect(),
            leaving: Vec::new(),
            no_handle: 0,
            failed: 0,
        }
    }

    /// Until it is told to end, or nobody is left to tell it.
    pub fn run(mut self) {
        orders::prefer_this_thread();
        match self.serve() {
            Ok(()) => {}
            Err(error) => tracing::error!("shape {}: {error:#}", self.at.side.name()),
        }
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        loop {
            let came = self.take()?;
            let next = self.lane.turn(monotonic_ns()?, TURN, &mut self.leaving)?;
            let left = self.let_go()?;
            let mut told = false;
            loop {
                let command = match self.orders.next() {
                    Ok(Some(command)) => command,
                    Ok(None) => break,
                    Err(Orphan) => return Ok(()),
                };
                told = true;
                let now = monotonic_ns()?;
                let rest = orders::obey(&mut self.lane, command, now, &mut self.leaving);
                self.let_go()?;
                match rest {
                    Some(Command::Count(reply)) => drop(reply.try_send(self.counts())),
                    Some(Command::Stop(reply)) => {
                        let done = self.leave();
                        let _ = reply.try_send(done.map_err(|error| format!("{error:#}")));
                        return Ok(());
                    }
                    _ => {}
                }
            }
            // After a command, when to wake is another time.
            if came == 0 && left == 0 && !told {
                self.rest(next)?;
            }
        }
    }

    /// Takes what came; how many packets.
    fn take(&mut self) -> anyhow::Result<usize> {
        let (mut came, mut refused) = (0, Vec::new());
        let read = match self.queue.receive(Wait::Not) {
            // The kernel lacks memory for verdicts: they are kept, and sent with the next.
            Err(QueueError::Send { .. }) => {
                self.failed += 1;
                thread::sleep(SHORT_OF_MEMORY);
                return Ok(0);
            }
            read => read?,
        };
        // Read behind the queue: no packet came later than it says.
        let now = monotonic_ns()?;
        for (packet, held) in read.packets {
            came += 1;
            let Some(handle) = self.free.pop() else {
                refused.push(held);
                continue;
            };
            let (frame, head, bytes) = describe(&packet, now, &self.at);
            self.lane.arrive(handle, &frame, head.bytes(), bytes);
            self.held[handle as usize] = Some(held);
        }
        self.no_handle += refused.len() as u64;
        for held in refused {
            let given = self.queue.release().give(held, Verdict::DROP);
            self.failed += u64::from(given.is_err());
        }
        Ok(came)
    }

    /// Gives verdicts on what leaves; how many.
    fn let_go(&mut self) -> anyhow::Result<usize> {
        let mut verdicts = self.queue.release();
        let left = self.leaving.len();
        for leaving in self.leaving.drain(..) {
            let (handle, verdict) = match leaving {
                Leaving::Send { handle, .. } => (handle, Verdict::ACCEPT),
                Leaving::Drop { handle, .. } => (handle, Verdict::DROP),
            };
            if let Some(held) = self.held[handle as usize].take() {
                self.free.push(handle);
                // Kept where it could not be sent, and sent with the next.
                self.failed += u64::from(verdicts.give(held, verdict).is_err());
            }
        }
        if left > 0 {
            self.failed += u64::from(verdicts.flush().is_err());
        }
        Ok(left)
    }

    fn counts(&self) -> Counts {
        Counts {
            own: self.queue.counters(),
            kernel: self.queue.kernel_counts().ok(),
            no_handle: self.no_handle,
            failed: self.failed,
            held: self.queue.held(),
        }
    }

    /// Lets everything go, in the order of its arrival, and takes nothing more.
    fn leave(&mut self) -> anyhow::Result<u64> {
        let held = self.queue.held();
        self.queue.release_all(Verdict::ACCEPT)?;
        Ok(held + self.queue.drain(DRAIN, |_| Verdict::ACCEPT)?)
    }

    /// Until a packet comes, one may leave, or somebody wants something.
    fn rest(&self, next: Option<u64>) -> anyhow::Result<()> {
        let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
        let mut fds = [PollFd::new(self.queue.as_fd(), PollFlags::POLLIN), bell];
        let wait = match next {
            Some(at) => Some(Duration::from_nanos(at.saturating_sub(monotonic_ns()?))),
            None => None,
        };
        match ppoll(&mut fds, wait.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for packets"),
        }
        // It is rung after the telling: what comes after this reading rings it again.
        let _ = self.bell.read();
        Ok(())
    }
}
