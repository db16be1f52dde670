//! A direction's thread: packets from their queue, through the path, and back.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fairpath_afxdp::Awake;
use fairpath_impair::{Counts, Departure, Path};
use fairpath_nfqueue::{Held, Holding, Packet, Queue, QueueError, Rewrite, Verdict, Wait};
use fairpath_shape::Side;
use fairpath_units::Nanos;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;

use super::again::Again;
use super::packet::{At, describe};
use crate::impair::awake_ns;
use crate::monotonic_ns;
use crate::orders::{Command, Orders, Orphan};

/// Packets let go before arrivals are looked at again: some 100 us.
const TURN: usize = 64;
/// How long leaving may take.
const DRAIN: Duration = Duration::from_secs(2);
/// Before verdicts that could not be sent are sent again.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(1);

/// What a thread works on.
pub struct Worker {
    queue: Queue<Holding>,
    path: Path,
    orders: Orders<Counts>,
    bell: Arc<EventFd>,
    at: At,
    /// Where packets are sent twice or damaged.
    again: Option<Again>,
    /// By handle: the packet, and its bytes where they are needed.
    held: Vec<Option<(Held, Option<Rewrite>)>>,
    free: Vec<u32>,
    awake: Awake,
}

impl Worker {
    /// Of a path for `packets` packets; `bell` is rung with each order.
    pub fn new(
        queue: Queue<Holding>,
        path: Path,
        orders: Orders<Counts>,
        bell: Arc<EventFd>,
        again: Option<Again>,
        packets: u32,
        mtu_bytes: u32,
    ) -> Worker {
        Worker {
            queue,
            path,
            orders,
            bell,
            again,
            at: At {
                side: Side::Down,
                inside: 0,
                out: 0,
                mtu_bytes,
            },
            held: (0..=packets).map(|_| None).collect(),
            free: (1..=packets).rev().collect(),
            awake: Awake::default(),
        }
    }

    /// Until it is told to end, or nobody is left to tell it.
    pub fn run(mut self) {
        self.awake = Awake::before(Nanos(awake_ns()));
        if let Err(error) = self.serve() {
            eprintln!("fairpath impair: {error:#}");
        }
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        loop {
            let came = self.take()?;
            self.path.run_to(monotonic_ns()?)?;
            let left = self.let_go()?;
            let mut told = false;
            loop {
                match self.orders.next() {
                    Ok(Some(Command::Count(reply))) => drop(reply.try_send(self.counts())),
                    Ok(Some(Command::Stop(reply))) => {
                        let done = self.leave();
                        let _ = reply.try_send(done.map_err(|error| format!("{error:#}")));
                        return Ok(());
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(Orphan) => return Ok(()),
                }
                told = true;
            }
            // After an order, when to wake is another time.
            if came == 0 && left == 0 && !told {
                self.rest()?;
            }
        }
    }

    /// Takes what came; how many packets.
    fn take(&mut self) -> anyhow::Result<usize> {
        let (mut came, mut refused) = (0, Vec::new());
        let read = match self.queue.receive(Wait::Not) {
            // The kernel lacks memory for verdicts: they are kept, and sent with the next.
            Err(QueueError::Send { .. }) => {
                thread::sleep(SHORT_OF_MEMORY);
                return Ok(0);
            }
            read => read?,
        };
        // Behind the reading: by an older clock, what came meanwhile would leave too early.
        let now = monotonic_ns()?;
        for (packet, held) in read.packets {
            came += 1;
            let Some(handle) = self.free.pop() else {
                self.path.counts_mut().own.no_place += 1;
                refused.push(held);
                continue;
            };
            let (frame, head, bytes) = describe(&packet, now, &self.at);
            if self.path.arrive(handle, &frame, head.bytes(), bytes)? {
                let kept = self.again.as_ref().and_then(|_| kept(&packet));
                self.held[handle as usize] = Some((held, kept));
            } else {
                self.free.push(handle);
                refused.push(held);
            }
        }
        for held in refused {
            let given = self.queue.release().give(held, Verdict::DROP);
            self.path.counts_mut().own.refused += refused_now(&given);
        }
        Ok(came)
    }

    /// Gives verdicts on what leaves; how many.
    fn let_go(&mut self) -> anyhow::Result<usize> {
        let mut gone = 0;
        while let Some(handle) = self.path.take_dropped() {
            if let Some((held, _)) = self.held[handle as usize].take() {
                self.free.push(handle);
                let given = self.queue.release().give(held, Verdict::DROP);
                self.path.counts_mut().own.refused += refused_now(&given);
            }
            gone += 1;
        }
        for _ in 0..TURN {
            let Some(departure) = self.path.take() else {
                break;
            };
            self.send(departure);
            gone += 1;
        }
        // Verdicts that the kernel does not take are sent again with the next: packets are late by then.
        let is_sent = (gone == 0 && !self.path.is_going()) || self.queue.release().flush().is_ok();
        if is_sent {
            self.path.note_sent(monotonic_ns()?);
        }
        Ok(gone)
    }

    fn send(&mut self, departure: Departure) {
        let Departure { handle, deed, .. } = departure;
        let Some((held, kept)) = self.held[handle as usize].take() else {
            return;
        };
        self.free.push(handle);
        let mut verdicts = self.queue.release();
        let damaged = deed
            .flip
            .zip(kept.clone())
            .and_then(|(bit, mut packet)| packet.flip(bit).then_some(packet));
        // Kept where it could not be sent, and sent with the next.
        let given = match &damaged {
            Some(damaged) => verdicts.give_changed(held, Verdict::ACCEPT, damaged),
            None => verdicts.give(held, Verdict::ACCEPT),
        };
        let refused = refused_now(&given);
        if deed.twice {
            // In this order on the wire, too; what the kernel does not take now comes behind.
            let _ = verdicts.flush();
        }
        let counts = self.path.counts_mut();
        counts.own.refused += refused;
        counts.corrupted += u64::from(damaged.is_some());
        counts.own.not_damaged += u64::from(deed.flip.is_some() && damaged.is_none());
        if deed.twice {
            let second = damaged.or(kept);
            let sent = (second.zip(self.again.as_ref()))
                .is_some_and(|(packet, again)| again.send(packet.bytes()));
            let counts = self.path.counts_mut();
            counts.copies += u64::from(sent);
            counts.sent += u64::from(sent);
            counts.own.no_copy += u64::from(!sent);
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = self.path.told();
        match self.queue.kernel_counts() {
            Ok(kernel) => {
                let dropped = [kernel.queue_dropped, kernel.user_dropped].map(u64::from);
                counts.queue_dropped += dropped.iter().sum::<u64>();
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                counts.unread.push(format!("{error:#}"));
            }
        }
        counts.own.refused += self.queue.counters().packets.refused;
        counts
    }

    /// Lets everything go, in the order of its arrival, and takes nothing more.
    fn leave(&mut self) -> anyhow::Result<u64> {
        let held = self.queue.held();
        self.queue.release_all(Verdict::ACCEPT)?;
        Ok(held + self.queue.drain(DRAIN, |_| Verdict::ACCEPT)?)
    }

    /// Until a packet comes, one may leave, or somebody wants something; not at all shortly before
    /// one is due.
    fn rest(&mut self) -> anyhow::Result<()> {
        let wait = match self.path.wake_at() {
            Some(at) => {
                let now = monotonic_ns()?;
                match self.awake.until(Nanos(now), Nanos(at.saturating_sub(now))) {
                    None => return Ok(()),
                    Some(left) => Some(Duration::from_nanos(left.0)),
                }
            }
            None => None,
        };
        let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
        let mut fds = [PollFd::new(self.queue.as_fd(), PollFlags::POLLIN), bell];
        match ppoll(&mut fds, wait.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for packets"),
        }
        // It is rung after the telling: what comes after this reading rings it again.
        let _ = self.bell.read();
        Ok(())
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
