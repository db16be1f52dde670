//! A queue's worker: packets from their queue, through what schedules them, and back.
//!
//! ```text
//!  wake-up: receive --> read the clock --> arrive --> turn --> verdicts --> orders --> rest
//! ```
//!
//! Written once for the shaper and for impairments; [`Schedule`] says what differs.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use fairpath_core::Frame;
use fairpath_nfqueue::{Holding, Packet, Queue, QueueError, Verdict, Wait};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use super::packet::{At, describe};
use super::waiting::{Place, SideQueues, Waiting};
use crate::monotonic_ns;
use crate::orders::{self, Command, Lead, Orders, Orphan, Ran};

/// The maximum time for leaving.
const DRAIN: Duration = Duration::from_secs(2);
/// Before verdicts that could not be sent are sent again.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(1);

/// The decisions about a queue's packets: a shaper instance, or the path of an impairment.
pub trait Schedule: Send + 'static {
    /// The counters.
    type Counts: Send + 'static;
    /// The data of a packet until its verdict, next to its place in the queue.
    type Kept: Send;

    /// The worker begins, in its thread.
    fn begin(&mut self);

    /// A packet came.
    ///
    /// # Errors
    /// The worker failed.
    fn arrive(&mut self, arrival: &Arrival<'_>) -> anyhow::Result<Arrived<Self::Kept>>;

    /// A packet came, and there was no handle for it: it is dropped.
    fn note_no_handle(&mut self);

    /// Packets that waited in the kernel while the worker did not run for longer than this are dropped;
    /// `None`: they are not.
    fn max_pause_ns(&self) -> Option<u64> {
        None
    }

    /// A packet was dropped because the worker did not run.
    fn note_stale(&mut self) {}

    /// The outcome of the verdict on a packet that was not accepted.
    fn note_refused(&mut self, given: Result<(), QueueError>);

    /// The kernel lacked memory for verdicts.
    fn note_short_of_memory(&mut self) {}

    /// Lets packets leave that are due.
    ///
    /// # Errors
    /// The worker failed.
    fn turn(&mut self, now: u64) -> anyhow::Result<()>;

    /// Gives verdicts on what leaves; how many.
    ///
    /// # Errors
    /// The worker failed.
    fn release(&mut self, waiting: &mut Waiting<Self::Kept>) -> anyhow::Result<usize>;

    /// When the next packet may leave.
    fn wake_at(&self) -> Option<u64>;

    /// The time to sleep if the next packet is due `left` after `now`; `None` if there is no sleep.
    fn sleep(&mut self, now: u64, left: u64) -> Option<u64>;

    /// Carries out an order about its packets.
    ///
    /// # Errors
    /// The worker failed.
    fn obey(
        &mut self,
        order: Command<Self::Counts>,
        waiting: &mut Waiting<Self::Kept>,
    ) -> anyhow::Result<()>;

    /// Returns the counters, including those of the queues.
    fn counts(&self, waiting: &Waiting<Self::Kept>) -> Self::Counts;

    /// The reason why the worker failed.
    fn failed(&self, error: &anyhow::Error);
}

/// The answer to a packet that came.
pub enum Arrived<K> {
    /// It waits, and this is kept for it.
    Waits(K),
    /// It is dropped.
    Refused,
    /// It is a GSO packet, and comes again as its segments.
    Split,
}

/// A packet that came.
pub struct Arrival<'a> {
    /// Its name from now on.
    pub handle: u32,
    /// Where it comes from.
    pub packet: &'a Packet<'a>,
    /// As the classifier knows it.
    pub frame: &'a Frame,
    /// Its first bytes, from an Ethernet header on.
    pub head: &'a [u8],
    /// Bytes on the wire.
    pub bytes: u32,
    /// It may be [`Arrived::Split`].
    pub can_split: bool,
}

/// A worker in its thread.
pub struct Running<C> {
    lead: Lead<C>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Send + 'static> Running<C> {
    /// Starts a worker called `name` for packets of `queue`, of which `handles` may wait. With `sides`, it can split
    /// and mark packets.
    ///
    /// # Errors
    /// Where no thread or descriptor is left.
    pub fn start<S: Schedule<Counts = C>>(
        name: String,
        queue: Queue<Holding>,
        sides: Option<SideQueues>,
        schedule: S,
        at: At,
        handles: u32,
    ) -> anyhow::Result<Running<C>> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.context("create the descriptor that wakes the thread")?);
        let rung = Arc::clone(&bell);
        let (lead, orders) = orders::pair(move || {
            // Only a full counter refuses, and then the thread is woken anyway.
            let _ = rung.write(1);
        });
        let worker = Worker {
            waiting: Waiting::new(queue, sides, handles),
            ran: monotonic_ns()?,
            stale: Stale::default(),
            schedule,
            orders,
            bell,
            at,
        };
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || worker.run())
            .context("start a thread for a packet queue")?;
        Ok(Running {
            lead,
            thread: Some(thread),
        })
    }

    /// The channel for its orders.
    pub fn lead(&self) -> &Lead<C> {
        &self.lead
    }

    /// Ends the thread, and returns the number of released packets.
    ///
    /// # Errors
    /// What was lost, or where the thread does not answer.
    pub fn stop(&mut self) -> anyhow::Result<u64> {
        let release = self.lead.stop()?;
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed.
            let _ = thread.join();
        }
        Ok(release)
    }
}

/// The state of a thread.
struct Worker<S: Schedule> {
    waiting: Waiting<S::Kept>,
    /// When packets were read last.
    ran: u64,
    stale: Stale,
    schedule: S,
    orders: Orders<S::Counts>,
    bell: Arc<EventFd>,
    at: At,
}

/// Packets to drop, because they came during a pause: by the queue that they waited in. The pause is noticed once,
/// by the queue that is read first.
#[derive(Debug, Default)]
struct Stale {
    main: u32,
    segments: u32,
}

impl Stale {
    /// All that waits now.
    fn of(mut unread: impl FnMut(Place) -> u32) -> Stale {
        Stale {
            main: unread(Place::Main),
            segments: unread(Place::Segments),
        }
    }

    fn left(&mut self, place: Place) -> &mut u32 {
        match place {
            Place::Main => &mut self.main,
            Place::Segments => &mut self.segments,
        }
    }

    /// True if the next packet of this queue is one of them.
    fn take(&mut self, place: Place) -> bool {
        let left = self.left(place);
        let is_stale = *left > 0;
        *left = left.saturating_sub(1);
        is_stale
    }

    /// This queue is empty.
    fn end(&mut self, place: Place) {
        *self.left(place) = 0;
    }
}

impl<S: Schedule> Worker<S> {
    /// Runs until an order ends it, or the other side of the channel is dropped.
    fn run(mut self) {
        self.schedule.begin();
        if let Err(error) = self.serve() {
            self.schedule.failed(&error);
        }
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        loop {
            let arrived = self.take()?;
            self.schedule.turn(monotonic_ns()?)?;
            let left = self.schedule.release(&mut self.waiting)?;
            let mut reported = false;
            loop {
                match self.orders.next() {
                    Ok(Some(Command::Count(reply))) => {
                        drop(reply.try_send((self.counts(), Ran::now())))
                    }
                    Ok(Some(Command::Stop(reply))) => {
                        let done = self.leave();
                        let _ = reply.try_send(done.map_err(|error| format!("{error:#}")));
                        return Ok(());
                    }
                    Ok(Some(order)) => {
                        self.schedule.obey(order, &mut self.waiting)?;
                        // It may take long, and no packet is lost by it.
                        self.ran = monotonic_ns()?;
                    }
                    Ok(None) => break,
                    Err(Orphan) => return Ok(()),
                }
                reported = true;
            }
            // After an order, when to wake is another time.
            if arrived == 0 && left == 0 && !reported && !self.waiting.is_between() {
                self.rest()?;
            }
        }
    }

    fn counts(&self) -> S::Counts {
        self.schedule.counts(&self.waiting)
    }

    /// Takes what came; how many packets.
    fn take(&mut self) -> anyhow::Result<usize> {
        let taken = match self.waiting.next_place() {
            Ok(place) => self.take_from(place),
            Err(error) => Err(error.into()),
        };
        match taken {
            // The kernel lacks memory for verdicts: they are kept, and sent with the next.
            Err(error) if is_short_of_memory(&error) => {
                self.schedule.note_short_of_memory();
                thread::sleep(SHORT_OF_MEMORY);
                Ok(0)
            }
            taken => taken,
        }
    }

    fn take_from(&mut self, place: Place) -> anyhow::Result<usize> {
        let (mut arrived, mut taken, mut refused) = (0, Vec::new(), Vec::new());
        let mut split = None;
        let can_split = place == Place::Main && self.waiting.can_split();
        let (mut queue, mut free) = self.waiting.at(place);
        let mut read = queue.receive(Wait::Not)?;
        // Read the clock after the packets, so that no packet arrived later than the clock shows. With an
        // earlier reading, packets that arrived in between would leave too early.
        let now = monotonic_ns()?;
        let pause = now.saturating_sub(self.ran);
        self.ran = now;
        if self
            .schedule
            .max_pause_ns()
            .is_some_and(|most| pause > most)
        {
            self.stale = Stale::of(|place| self.waiting.unread(place));
            // The same packets again, of which none was taken.
            (queue, free) = self.waiting.at(place);
            read = queue.receive(Wait::Not)?;
        }
        for (packet, held) in read.packets {
            arrived += 1;
            if self.stale.take(place) {
                self.schedule.note_stale();
                refused.push(held);
                continue;
            }
            let Some(handle) = free.pop() else {
                self.schedule.note_no_handle();
                refused.push(held);
                continue;
            };
            let (frame, head, bytes) = describe(&packet, now, &self.at);
            let arrival = Arrival {
                handle,
                packet: &packet,
                frame: &frame,
                head: head.bytes(),
                bytes,
                can_split: can_split && packet.info().gso(),
            };
            match self.schedule.arrive(&arrival)? {
                Arrived::Waits(kept) => taken.push((handle, held, kept)),
                Arrived::Refused => {
                    free.push(handle);
                    refused.push(held);
                }
                Arrived::Split => {
                    free.push(handle);
                    split = Some(held);
                    // Its segments come before what is behind it.
                    break;
                }
            }
        }
        if arrived == 0 {
            self.stale.end(place);
        }
        for held in refused {
            let given = queue.release().give(held, Verdict::DROP);
            self.schedule.note_refused(given);
        }
        for (handle, held, kept) in taken {
            self.waiting.keep(handle, place, held, kept);
        }
        if place == Place::Segments && arrived == 0 {
            self.waiting.note_all_segments();
            return self.take_from(Place::Main);
        }
        if let Some(held) = split {
            self.waiting.split(held)?;
        }
        Ok(arrived)
    }

    /// Lets everything go, in the order of its arrival, and takes nothing more.
    fn leave(&mut self) -> anyhow::Result<u64> {
        let mut release = self.waiting.accept_all();
        for queue in self.waiting.queues() {
            release += queue.drain(DRAIN, |_| Verdict::ACCEPT)?;
        }
        Ok(release)
    }

    /// Waits for a packet, a departure or an order. Does not wait if the schedule stays awake for a
    /// deadline.
    fn rest(&mut self) -> anyhow::Result<()> {
        let wait = match self.schedule.wake_at() {
            Some(at) => {
                let now = monotonic_ns()?;
                match self.schedule.sleep(now, at.saturating_sub(now)) {
                    None => return Ok(()),
                    Some(left) => Some(Duration::from_nanos(left)),
                }
            }
            None => None,
        };
        // A longer sleep would look like a pause.
        let most = self
            .schedule
            .max_pause_ns()
            .map(|ns| Duration::from_nanos(ns / 2));
        let wait = wait.into_iter().chain(most).min();
        let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
        let queue = PollFd::new(self.waiting.queue.as_fd(), PollFlags::POLLIN);
        match ppoll(&mut [queue, bell], wait.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for packets"),
        }
        // The bell rings after the message, so a message after this reading rings it again.
        let _ = self.bell.read();
        Ok(())
    }
}

fn is_short_of_memory(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(QueueError::Send { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_segments_hide_no_stale_packets() {
        let mut stale = Stale::of(|place| match place {
            Place::Main => 2,
            Place::Segments => 5,
        });
        assert!(stale.take(Place::Segments));
        stale.end(Place::Segments);
        assert!(!stale.take(Place::Segments));
        let taken = [(); 3].map(|()| stale.take(Place::Main));
        assert_eq!(taken, [true, true, false]);
    }
}
