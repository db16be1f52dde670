//! A loop that carries packets between interfaces, in an order that a scheduler decides.
//!
//! ```text
//!   receive -> complete the checksum -> Order::arrive        ... a batch from each queue
//!   Order::leave -> mark, send -> flush -> reap -> refill     ... a batch to each queue
//! ```
//!
//! Invariant: received + duplicates = sent + dropped + held by the order, at the end of every turn.
//! [`ForwardCounts`] counts drops here by reason. Packets do not change, except for partial
//! checksums and changes that the order requests ([`Change`]).
//!
//! A packet leaves by the queue of the egress interface that the XDP program recorded
//! ([`FrameMetadata`]: the other interface of a bridge, or the result of the kernel's FIB),
//! otherwise by the other queue of its pair.
//!
//! It runs in one thread: [`Forwarder::run`], or [`Forwarder::turn`] and [`Forwarder::sleep`].
//! Packets to a link that is down are dropped until it is up again. The removal of a link does not
//! affect the others. Deliberately absent: routes, neighbours, TTL (see the XDP program), and any
//! scheduling.

use std::io;

use fairpath_core::sched::{Change, Meta};
use fairpath_units::{IfIndex, Nanos};

use crate::checksum::Partial;
use crate::first::Awake;
use crate::frames::FrameId;
use crate::mark;
use crate::metadata::FrameMetadata;
use crate::moderation::Moderation;
use crate::network;
use crate::open::MAX_RING;
use crate::port::{LinkState, Port, QueueId};
use crate::wait::{self, Bell, Stop};

/// Maximum of packets of a queue per turn, received or sent: enough to share the cost of a system
/// call, and few enough that the other queues wait about 50 us.
const BATCH: u32 = 64;
/// Delay of a retry after the kernel reported "later": a full device queue empties in about this
/// time.
const RETRY: Nanos = Nanos(1_000_000);
/// Interval of link checks: a link that is removed or goes down while nothing is sent is not
/// reported otherwise.
const LOOK: Nanos = Nanos(1_000_000_000);
/// The same while a link is down.
const LOOK_DOWN: Nanos = Nanos(10_000_000);
/// Length of an Ethernet header, if no IP header follows.
const LINK_BYTES: usize = 14;
/// Maximum of egress interfaces. Metadata with a larger number is ignored.
pub const MAX_EXITS: usize = 16;

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its frame, which the order owns from now on.
    pub frame: FrameId,
    /// Its bytes from the Ethernet header on, in all frames.
    pub bytes: u32,
    /// Ingress queue.
    pub from: QueueId,
    /// Egress: if both directions use one interface, this distinguishes them.
    pub exit: usize,
    /// Egress queue.
    pub to: QueueId,
    /// Time of reception (`CLOCK_MONOTONIC`), read after the queue, so it is not too early.
    pub now: Nanos,
    /// Metadata for policies, if the XDP program recorded it. Its class is a slot of the kernel:
    /// check it before use as an index.
    pub meta: Option<Meta>,
}

/// The decision about a packet of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send it by the given queue after these changes.
    Send(FrameId, Change),
    /// Drop it. The order counts the reason.
    Drop(FrameId),
}

/// Decides which packets leave, and when. Returns every frame exactly once.
pub trait Order {
    /// Takes a packet. `packet` is its first frame, which begins with the Ethernet header and has all
    /// headers. Appends dropped packets to `out`, this one or others. Packets to be sent here are
    /// dropped, too.
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>);

    /// Appends packets that leave by `to` now, at most `capacity`, and packets that are dropped. A
    /// duplicated packet counts twice.
    fn leave(&mut self, to: QueueId, now: Nanos, capacity: u32, out: &mut Vec<Outcome>);

    /// Reports the result of the packets that [`Order::leave`] just appended for `to`, after the
    /// kernel has them.
    fn handed(&mut self, _to: QueueId, _done: &ForwardCounts) {}

    /// Maximum of packets that it holds. A port with fewer frames refuses it.
    fn limit(&self) -> u32;

    /// Packets that waited in a ring while the thread did not run for longer than this are dropped.
    /// `None`: they are not.
    fn max_pause(&self) -> Option<Nanos> {
        None
    }

    /// The time at which a waiting packet may leave. `None`: after the next arrival, or when there
    /// is capacity.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }
}

/// Counters of a forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Packets taken from RX rings.
    pub received: u64,
    /// Packets put into TX rings.
    pub sent: u64,
    /// Packets dropped by the order.
    pub dropped: u64,
    /// Packets that the order sent without capacity, or outside of its turn.
    pub no_capacity: u64,
    /// Packets to a link that is down or removed.
    pub no_link: u64,
    /// Completed checksums.
    pub completed: u64,
    /// Sent packets marked CE.
    pub marked: u64,
    /// Sent duplicates.
    pub copies: u64,
    /// Duplicates without a free frame or capacity.
    pub not_copied: u64,
    /// Sent packets with an inverted bit.
    pub corrupted: u64,
    /// Packets dropped because the thread did not run ([`Order::max_pause`]).
    pub stale: u64,
    /// Received packets whose metadata named an unknown egress interface: they left by their pair.
    pub strange_exits: u64,
}

impl ForwardCounts {
    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, before: &ForwardCounts) -> ForwardCounts {
        ForwardCounts {
            received: self.received - before.received,
            sent: self.sent - before.sent,
            dropped: self.dropped - before.dropped,
            no_capacity: self.no_capacity - before.no_capacity,
            no_link: self.no_link - before.no_link,
            completed: self.completed - before.completed,
            marked: self.marked - before.marked,
            copies: self.copies - before.copies,
            not_copied: self.not_copied - before.not_copied,
            corrupted: self.corrupted - before.corrupted,
            stale: self.stale - before.stale,
            strange_exits: self.strange_exits - before.strange_exits,
        }
    }

    /// Adds those of another forwarder.
    pub fn add(&mut self, other: &ForwardCounts) {
        self.received += other.received;
        self.sent += other.sent;
        self.dropped += other.dropped;
        self.no_capacity += other.no_capacity;
        self.no_link += other.no_link;
        self.completed += other.completed;
        self.marked += other.marked;
        self.copies += other.copies;
        self.not_copied += other.not_copied;
        self.corrupted += other.corrupted;
        self.stale += other.stale;
        self.strange_exits += other.strange_exits;
    }

    /// The number of packets that the order must hold.
    pub fn held(&self) -> u64 {
        let ended = self.sent + self.dropped + self.stale + self.no_capacity + self.no_link;
        self.received + self.copies - ended
    }
}

/// A forwarder could not start.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// Pairs that do not cover the queues of the port.
    #[error(
        "forward between {pairs} pairs of queues of a back end with {queues} queues: name every queue in exactly one pair"
    )]
    Pairs {
        /// As given.
        pairs: usize,
        /// The port's.
        queues: usize,
    },
    /// An egress interface that the port does not have, or too many.
    #[error(
        "forward to egress {exit} by interface {}: the back end has no queue of it; name up to {MAX_EXITS} of its interfaces", .ifindex.0
    )]
    Exit {
        /// Its number.
        exit: usize,
        /// As given.
        ifindex: IfIndex,
    },
    /// The order may hold more packets than the port can.
    #[error(
        "forward with a scheduler of up to {limit} packets: only {holdable} of the {frames} frames are outside the rings; lower the scheduler's limit or add {} frames", limit - holdable
    )]
    Limit {
        /// The order's.
        limit: u32,
        /// The port's.
        holdable: u32,
        /// All of the port's.
        frames: u32,
    },
    /// No file descriptor is left for wake-ups.
    #[error("create an eventfd to wake the forwarder: {0}; raise the limit (ulimit -n)")]
    Bell(#[source] io::Error),
}

/// The loop and its state.
#[derive(Debug)]
pub struct Forwarder<O> {
    port: Port,
    order: O,
    /// By ingress queue: the egress of its pair.
    pair: Vec<usize>,
    /// By ingress queue and egress: the egress queue.
    to: Vec<Vec<QueueId>>,
    /// By queue: whether the order may have more packets than the last batch.
    more: Vec<bool>,
    /// By queue: the maximum number of packets to drop, because they came during a pause.
    stale: Vec<u32>,
    /// The time of the last turn.
    ran: Nanos,
    counts: ForwardCounts,
    arrived: Vec<FrameId>,
    outcomes: Vec<Outcome>,
    bell: Bell,
    /// Time of the next link check.
    next_check: Nanos,
    /// The sleep until shortly before the order's time.
    awake: Awake,
    /// Wake-ups under load.
    moderation: Moderation,
}

impl<O: Order> Forwarder<O> {
    /// Forwards between the two queues of each pair, in both directions. A queue can be paired with
    /// itself. Egress interfaces are the port's interfaces, in the order of its queues.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn new(
        port: Port,
        pairs: &[(QueueId, QueueId)],
        order: O,
    ) -> Result<Forwarder<O>, ForwardError> {
        let mut exits: Vec<IfIndex> = Vec::new();
        for queue in 0..port.len() {
            let ifindex = port.link(QueueId(queue)).ifindex;
            if !exits.contains(&ifindex) {
                exits.push(ifindex);
            }
        }
        Forwarder::with_exits(port, pairs, &exits, order)
    }

    /// Like [`Forwarder::new`], with the egress interfaces of the XDP programs, two of which can be
    /// one interface. A packet leaves by the queue with the number of its ingress queue, if it
    /// exists.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub fn with_exits(
        port: Port,
        pairs: &[(QueueId, QueueId)],
        exits: &[IfIndex],
        order: O,
    ) -> Result<Forwarder<O>, ForwardError> {
        let (limit, holdable) = (order.limit(), port.holdable());
        if limit > holdable {
            let frames = port.frames().all();
            return Err(ForwardError::Limit {
                limit,
                holdable,
                frames,
            });
        }
        let others = others(pairs, port.len())?;
        let pair = others.iter().map(|other| {
            let ifindex = port.link(*other).ifindex;
            let exit = exits.iter().position(|exit| *exit == ifindex);
            let exits = exits.len();
            exit.ok_or(ForwardError::Exit {
                exit: exits,
                ifindex,
            })
        });
        let queues = 0..port.len();
        Ok(Forwarder {
            pair: pair.collect::<Result<_, _>>()?,
            to: queues
                .map(|from| queues_to(&port, QueueId(from), exits))
                .collect::<Result<_, _>>()?,
            order,
            more: vec![false; port.len()],
            stale: vec![0; port.len()],
            ran: Nanos(0),
            counts: ForwardCounts::default(),
            arrived: Vec::new(),
            outcomes: Vec::new(),
            bell: Bell::new().map_err(ForwardError::Bell)?,
            next_check: Nanos(0),
            awake: Awake::default(),
            moderation: Moderation::default(),
            port,
        })
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// The order.
    pub fn order(&self) -> &O {
        &self.order
    }

    /// The order, for changes.
    pub fn order_mut(&mut self) -> &mut O {
        &mut self.order
    }

    /// The counters so far.
    pub fn counts(&self) -> ForwardCounts {
        self.counts
    }

    /// Stays awake before a packet is due ([`Order::wake_at`]), so that it leaves on time: waking up
    /// takes about 50 us. Costs that much of a CPU.
    pub fn stay_awake(&mut self, awake: Awake) {
        self.awake = awake;
    }

    /// Under load, wakes at most once in this time, with all packets that arrived or became due since:
    /// they wait for at most this time. Zero, the default: as each packet arrives or becomes due.
    pub fn moderate(&mut self, interval: Nanos) {
        self.moderation = Moderation::new(interval);
    }

    /// Wakes it from any thread.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// Carries packets until `stop` is set, and sleeps when idle.
    ///
    /// Calls `between` at every wake-up, within one turn after the bell, and under load once in 64
    /// turns (some milliseconds): for commands and reports.
    pub fn run(&mut self, stop: &Stop, mut between: impl FnMut(&mut Forwarder<O>)) {
        loop {
            // A busy loop checks `stop` once per this number of turns, because the check is a
            // system call.
            for _ in 0..BATCH {
                if !self.turn() {
                    self.sleep(stop);
                    break;
                }
            }
            let begin = wait::now();
            between(self);
            // The time of an order is no pause.
            self.ran = Nanos(self.ran.0 + wait::now().0 - begin.0);
            if stop.is_requested() {
                return;
            }
        }
    }

    /// Receives and sends a batch at every queue. Returns false if there was nothing to do.
    pub fn turn(&mut self) -> bool {
        let mut now = wait::now();
        let before = self.counts;
        if now >= self.next_check {
            self.look(now);
        }
        for queue in 0..self.to.len() {
            now = self.take(QueueId(queue));
        }
        for queue in 0..self.to.len() {
            self.give(QueueId(queue), now);
        }
        let worked = before != self.counts;
        if worked {
            self.moderation.note_work();
        }
        worked
    }

    /// Checks the links. Packets in a TX ring leave when a link is up again.
    fn look(&mut self, now: Nanos) {
        let states = (0..self.to.len()).map(|queue| self.port.look(QueueId(queue)));
        let down = states.filter(|state| *state == LinkState::Down).count() > 0;
        let next = if down { LOOK_DOWN } else { LOOK };
        self.next_check = Nanos(now.0 + next.0);
    }

    /// Receives the packets that came by a queue until the returned time.
    fn take(&mut self, from: QueueId) -> Nanos {
        let mut arrived = std::mem::take(&mut self.arrived);
        self.port.receive(from, BATCH as usize, &mut arrived);
        let now = wait::now();
        if self.ran.0 > 0 && self.paused(self.ran, now) {
            self.stale.fill(MAX_RING);
        }
        self.ran = now;
        self.counts.received += arrived.len() as u64;
        if self.stale[from.0] > 0 {
            self.drop_stale(from, &mut arrived);
        }
        // Another CPU wrote these lines. Loaded all at once, they delay the first packet only.
        for frame in &arrived {
            self.port.prefetch_head(*frame);
        }
        for frame in arrived.drain(..) {
            let bytes = self.complete(frame);
            let metadata = self.port.metadata(frame);
            let arrival = self.arrival((frame, bytes), from, now, metadata);
            let packet = self.port.bytes(frame);
            self.order.arrive(&arrival, packet, &mut self.outcomes);
        }
        self.arrived = arrived;
        self.settle(None);
        self.port.refill(from);
        now
    }

    /// Completes the checksum of a packet, if it is partial. Returns the packet's length.
    fn complete(&mut self, frame: FrameId) -> u32 {
        let first = self.port.bytes(frame);
        let bytes = self.port.length(frame, first.len());
        if let Some(partial) = Partial::of(first, bytes) {
            let checksum = partial.checksum(self.port.each(frame));
            let changed = partial.write(self.port.bytes_mut(frame), checksum);
            self.counts.completed += u64::from(changed);
        }
        bytes as u32
    }

    /// True if the thread did not run for too long.
    fn paused(&self, since: Nanos, now: Nanos) -> bool {
        let pause = Nanos(now.0.saturating_sub(since.0));
        self.order.max_pause().is_some_and(|most| pause > most)
    }

    /// Drops what was in the ring of a queue before the thread ran again: until the ring is empty.
    fn drop_stale(&mut self, from: QueueId, arrived: &mut Vec<FrameId>) {
        let stale = &mut self.stale[from.0];
        let count = arrived.len().min(*stale as usize);
        *stale = if arrived.is_empty() {
            0
        } else {
            *stale - count as u32
        };
        for frame in arrived.drain(..count) {
            self.counts.stale += u64::from(self.port.discard(frame));
        }
    }

    fn arrival(
        &mut self,
        (frame, bytes): (FrameId, u32),
        from: QueueId,
        now: Nanos,
        metadata: Option<FrameMetadata>,
    ) -> Arrival {
        let to = &self.to[from.0];
        let recorded = metadata.map(|metadata| metadata.exit as usize);
        let known = recorded.filter(|exit| *exit < to.len());
        self.counts.strange_exits += u64::from(known != recorded);
        let exit = known.unwrap_or(self.pair[from.0]);
        Arrival {
            frame,
            bytes,
            from,
            exit,
            to: to[exit],
            now,
            meta: metadata.map(|metadata| metadata.meta),
        }
    }

    fn give(&mut self, to: QueueId, now: Nanos) {
        self.port.reap(to);
        let up = self.port.state(to) == LinkState::Up;
        let capacity = if up {
            self.port.capacity(to, BATCH)
        } else {
            BATCH
        };
        let before = self.counts;
        if capacity > 0 {
            self.order.leave(to, now, capacity, &mut self.outcomes);
            self.drop_old_decisions(now);
            self.settle(Some((to, up)));
        }
        let left = self.counts.sent + self.counts.no_link - before.sent - before.no_link;
        self.more[to.0] = left == u64::from(capacity);
        if up {
            self.port.flush(to);
            if self.port.state(to) == LinkState::Down {
                self.next_check = Nanos(now.0 + LOOK_DOWN.0);
            }
        }
        if capacity > 0 {
            self.order.handed(to, &self.counts.since(&before));
        }
    }

    /// Drops packets that were to leave at `now`, if the thread was stopped since.
    fn drop_old_decisions(&mut self, now: Nanos) {
        if self.outcomes.is_empty() || !self.paused(now, wait::now()) {
            return;
        }
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.retain(|outcome| match outcome {
            Outcome::Drop(_) => true,
            Outcome::Send(frame, _) => {
                self.counts.stale += u64::from(self.port.discard(*frame));
                false
            }
        });
        self.outcomes = outcomes;
    }

    /// Carries out the decisions of the order.
    fn settle(&mut self, to: Option<(QueueId, bool)>) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        for outcome in outcomes.drain(..) {
            match outcome {
                Outcome::Drop(frame) => {
                    self.counts.dropped += u64::from(self.port.discard(frame));
                }
                Outcome::Send(frame, change) if change == Change::default() => {
                    self.send(to, frame);
                }
                Outcome::Send(frame, change) => self.send_changed(to, frame, change),
            }
        }
        self.outcomes = outcomes;
    }

    fn send_changed(&mut self, to: Option<(QueueId, bool)>, frame: FrameId, change: Change) {
        let packet = self.port.bytes_mut(frame);
        let marked = change.mark && mark::set_ce(packet);
        let corrupted = change.flip.is_some_and(|bit| self.flip(frame, bit));
        let copy = match change.twice {
            true => self.port.copy(frame),
            false => None,
        };
        let before = self.counts.sent;
        self.send(to, frame);
        if self.counts.sent > before {
            self.counts.marked += u64::from(marked);
            self.counts.corrupted += u64::from(corrupted);
        }
        if !change.twice {
            return;
        }
        let copied = match (copy, to) {
            (Some(copy), Some((to, true))) if self.port.send(to, copy) => true,
            (Some(copy), _) => {
                self.port.discard(copy);
                false
            }
            (None, _) => false,
        };
        self.counts.sent += u64::from(copied);
        self.counts.copies += u64::from(copied);
        self.counts.not_copied += u64::from(!copied);
    }

    /// Inverts a bit in the payload of a packet. False if it has none.
    fn flip(&mut self, frame: FrameId, bit: u32) -> bool {
        let first = self.port.bytes(frame);
        let bytes = self.port.length(frame, first.len());
        let place = place_of(bit, first, bytes);
        place.is_some_and(|(offset, mask)| self.port.invert(frame, offset, mask))
    }

    fn send(&mut self, to: Option<(QueueId, bool)>, frame: FrameId) {
        let count = match to {
            Some((to, true)) if self.port.send(to, frame) => {
                self.counts.sent += 1;
                return;
            }
            Some((_, false)) => &mut self.counts.no_link,
            _ => &mut self.counts.no_capacity,
        };
        *count += u64::from(self.port.discard(frame));
    }

    /// Waits for packets, for capacity, for the time of the order, for the bell, or for the end.
    pub fn sleep(&mut self, stop: &Stop) {
        let now = wait::now();
        if let Some(rest) = self.moderation.rest(now) {
            wait::rest(rest);
            self.moderation.rested(wait::now());
            return;
        }
        let queues = || (0..self.to.len()).map(QueueId);
        let up = |queue: &QueueId| self.port.state(*queue) == LinkState::Up;
        let retry = queues().filter(up).any(|queue| self.port.unsent(queue) > 0);
        let look = Nanos(self.next_check.0.saturating_sub(now.0));
        let due = self
            .order
            .wake_at()
            .map(|at| Nanos(at.0.saturating_sub(now.0)));
        let due = match due.map(|left| self.awake.until(now, left)) {
            Some(None) => return,
            Some(left) => left,
            None => None,
        };
        let most = if retry { look.min(RETRY) } else { look };
        // A longer sleep would look like a pause.
        let most = self
            .order
            .max_pause()
            .map_or(most, |pause| most.min(Nanos(pause.0 / 2)));
        let sockets = queues().filter_map(|queue| {
            let wanted = self.more[queue.0] && !retry && up(&queue);
            Some((self.port.socket(queue)?, wanted))
        });
        wait::wait(
            sockets,
            stop,
            &self.bell,
            Some(due.map_or(most, |due| due.min(most))),
        );
        self.moderation.woken(wait::now());
    }
}

/// Offset and mask of a bit of the payload of an Ethernet frame of `bytes` bytes, which begins with
/// `first`. `None` if it has none.
fn place_of(bit: u32, first: &[u8], bytes: usize) -> Option<(usize, u8)> {
    let at = network::find(first).map_or(LINK_BYTES, |network| network.at());
    let payload = bytes.checked_sub(at).filter(|payload| *payload > 0)?;
    let bit = bit as usize % (payload * 8);
    Some((at + bit / 8, 0x80 >> (bit % 8)))
}

/// By queue: the other queue of its pair.
fn others(pairs: &[(QueueId, QueueId)], queues: usize) -> Result<Vec<QueueId>, ForwardError> {
    let wrong = || ForwardError::Pairs {
        pairs: pairs.len(),
        queues,
    };
    let mut others = vec![None; queues];
    let both =
        |&(a, b): &(QueueId, QueueId)| [(a, b), (b, a)].into_iter().take(1 + usize::from(a != b));
    for (from, other) in pairs.iter().flat_map(both) {
        match others.get_mut(from.0) {
            Some(place @ None) if other.0 < queues => *place = Some(other),
            _ => return Err(wrong()),
        }
    }
    let others: Option<Vec<_>> = others.into_iter().collect();
    others.ok_or_else(wrong)
}

/// By egress: the queue for packets of `from`.
fn queues_to(port: &Port, from: QueueId, exits: &[IfIndex]) -> Result<Vec<QueueId>, ForwardError> {
    let number = port.link(from).queue as usize;
    let one = |(exit, &ifindex): (usize, &IfIndex)| {
        let of = |queue: &QueueId| port.link(*queue).ifindex == ifindex;
        let queues: Vec<_> = (0..port.len()).map(QueueId).filter(of).collect();
        match queues.len() {
            0 => Err(ForwardError::Exit { exit, ifindex }),
            _ if exit >= MAX_EXITS => Err(ForwardError::Exit { exit, ifindex }),
            n => Ok(queues[number % n]),
        }
    };
    exits.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverted_bits_count_from_the_ip_header() {
        let mut frame = [0u8; 14 + 20];
        (frame[12], frame[14]) = (8, 0x45);
        assert_eq!(place_of(9, &frame, 34), Some((15, 0x40)));
        assert_eq!(place_of(9 + 20 * 8, &frame, 34), Some((15, 0x40)));
        assert_eq!(place_of(9 + 20 * 8, &frame, 9000), Some((35, 0x40)));
        assert_eq!(place_of(3, &frame[..14], 14), None);
    }

    #[test]
    fn every_queue_is_in_exactly_one_pair() {
        let q = |pairs: &[(usize, usize)]| -> Vec<_> {
            pairs
                .iter()
                .map(|&(a, b)| (QueueId(a), QueueId(b)))
                .collect()
        };
        let other = |pairs, queues| others(&q(pairs), queues).ok();
        let both = [1, 0].map(QueueId).to_vec();
        assert_eq!(other(&[(0, 1)], 2), Some(both));
        assert_eq!(other(&[(0, 0)], 1), Some(vec![QueueId(0)]));
        for (pairs, queues) in [
            (&[][..], 1),
            (&[(0, 1)][..], 3),
            (&[(0, 1), (1, 2)][..], 3),
            (&[(0, 2)][..], 2),
        ] {
            assert_eq!(other(pairs, queues), None, "{pairs:?} {queues}");
        }
    }
}
