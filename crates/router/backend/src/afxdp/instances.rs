//! Both sides' shaper instances as what schedules the packets of AF_XDP.

use std::time::{Duration, Instant};

use fairpath_afxdp::{
    Arrival, ForwardCounts, Forwarder, FrameId, LinkState, Order, Outcome, QueueId, RingStatistics,
    Stop,
};
use fairpath_bpf::StackSent;
use fairpath_core::{Frame, FrameDirection, Link as LinkKind};
use fairpath_shape::{Both, Leaving, ShapeInstance, Side, StackCounts};
use fairpath_units::Nanos;

use super::ends::{Ends, Rings, first_queues};
use super::worker::Schedule;
use crate::monotonic_ns;
use crate::orders::{self, Command};
use crate::shape::Job;

/// Arrivals that are collected for one call of the scheduler without a departure.
const GATHERED: usize = 64;
/// The minimum time from one wake-up to the next one under load: 1 % of the burst of a link, so that no rate is
/// lost.
const INTERVAL: Nanos = Nanos(50_000);
/// How long packets that wait have to leave at the end.
const FLUSH: Duration = Duration::from_millis(300);

/// What the thread counts.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub forwarder: ForwardCounts,
    /// By the side that they leave by: packets that the kernel dropped before the scheduler, and that it could not
    /// send.
    pub rings: Both<RingStatistics>,
    pub refused: Both<u64>,
    /// Traffic of the stack by the same interfaces.
    pub stack: Both<StackCounts>,
    /// An interface that is no more.
    pub removed: Option<String>,
}

impl Counts {
    /// Adds those of another worker.
    pub fn add(&mut self, other: &Counts) {
        self.forwarder.add(&other.forwarder);
        for side in Side::BOTH {
            let (ring, more) = (self.rings.get_mut(side), other.rings.get(side));
            ring.rx_dropped += more.rx_dropped;
            ring.rx_ring_full += more.rx_ring_full;
            ring.tx_invalid += more.tx_invalid;
            *self.refused.get_mut(side) += other.refused.get(side);
            self.stack.get_mut(side).add(other.stack.get(side));
        }
        if self.removed.is_none() {
            self.removed.clone_from(&other.removed);
        }
    }
}

/// The shaper instances of both sides as the order of the forwarder. An egress number is a side.
pub struct ShapeInstances {
    instances: [ShapeInstance; 2],
    /// Class numbers by the monitor's slots.
    classes: Vec<u32>,
    /// Of the worker that charges it.
    sent: Option<StackSent>,
    /// The kernel forwards nothing: what the stack sends is its own.
    charging: bool,
    wake: [Option<u64>; 2],
    gathered: [usize; 2],
    first: [QueueId; 2],
    one_armed: bool,
    inside: u32,
    limit: u32,
    leaving: Vec<Leaving>,
    dropped: Vec<Leaving>,
    failed: u64,
}

impl ShapeInstances {
    pub fn new(
        instances: Both<ShapeInstance>,
        sent: Option<StackSent>,
        job: &Job<'_>,
        (ends, rings): (&Ends, &Rings),
        limits: [u32; 2],
    ) -> ShapeInstances {
        let limit: u32 = limits.iter().sum();
        let (first, one_armed) = (first_queues(ends, rings), ends.is_one_armed());
        ShapeInstances {
            instances: [instances.down, instances.up],
            classes: job.slots.to_vec(),
            sent,
            charging: false,
            wake: [None; 2],
            gathered: [0; 2],
            first: [first.down, first.up],
            one_armed,
            inside: ends.inside.ifindex.0,
            limit,
            leaving: Vec::new(),
            dropped: Vec::new(),
            failed: 0,
        }
    }

    /// One turn of a side. Departures are reported as outcomes.
    fn turn(&mut self, exit: usize, now: u64, capacity: u32, out: &mut Vec<Outcome>) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.append(&mut self.dropped);
        self.gathered[exit] = 0;
        match self.instances[exit].turn(now, capacity, &mut leaving) {
            Ok(next) => self.wake[exit] = next,
            // A native scheduler does not fail, whatever its policy does.
            Err(_) => self.failed += 1,
        }
        out.extend(leaving.drain(..).map(|leaving| match leaving {
            Leaving::Send { handle, change } => Outcome::Send(FrameId(handle - 1), change),
            Leaving::Drop { handle, .. } => Outcome::Drop(FrameId(handle - 1)),
        }));
        self.leaving = leaving;
    }

    /// Charges what the stack sends from now on. What it sent before was forwarded, too.
    fn begin_charges(&mut self) {
        self.charging = true;
        for instance in &mut self.instances {
            instance.pause_charges();
        }
    }
}

impl Order for ShapeInstances {
    fn arrive(&mut self, arrival: &Arrival, packet: &[u8], out: &mut Vec<Outcome>) {
        let exit = arrival.exit.min(1);
        let (handle, now) = (arrival.frame.0 + 1, arrival.now.0);
        match arrival.meta {
            Some(mut meta) => {
                let slot = meta.class_id as usize;
                meta.class_id = self.classes.get(slot).copied().unwrap_or(0);
                self.instances[exit].arrive_as(handle, now, meta);
            }
            None => {
                // Either leaves by the inside, or came by it.
                let direction = match exit {
                    0 => FrameDirection::Out,
                    _ => FrameDirection::In,
                };
                let frame = Frame {
                    now,
                    wire_len: arrival.bytes,
                    segs: 1,
                    ifindex: self.inside,
                    link: LinkKind::Ethernet as u16,
                    direction: direction as u8,
                    ..Frame::default()
                };
                self.instances[exit].arrive(handle, &frame, packet, arrival.bytes);
            }
        }
        self.gathered[exit] += 1;
        if self.gathered[exit] >= GATHERED {
            self.turn(exit, now, 0, out);
        }
    }

    fn leave(&mut self, to: QueueId, now: Nanos, capacity: u32, out: &mut Vec<Outcome>) {
        let mut left = capacity;
        for exit in 0..2 {
            if self.first[exit] != to {
                continue;
            }
            if let Some(sent) = self.sent.as_ref().filter(|_| self.charging) {
                let sent = sent.read(exit);
                self.instances[exit].charge_packets(now.0, sent.bytes, sent.packets);
            }
            // One interface has one ring for both sides: the first leaves half of it at least.
            let share = match self.one_armed && exit == 0 {
                true => left.div_ceil(2),
                false => left,
            };
            let share = match self.instances[exit].copies() {
                // A duplicated packet uses two entries.
                true if share == 1 => {
                    self.wake[exit] = Some(now.0);
                    continue;
                }
                true => share / 2,
                false => share,
            };
            let before = out.len();
            self.turn(exit, now.0, share, out);
            let taken: u32 = out[before..].iter().map(capacity_of).sum();
            left = left.saturating_sub(taken);
        }
    }

    fn limit(&self) -> u32 {
        self.limit
    }

    fn max_pause(&self) -> Option<Nanos> {
        Some(Nanos(orders::MAX_PAUSE_NS))
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.wake.iter().flatten().min().map(|at| Nanos(*at))
    }
}

/// Places of a TX ring that an outcome takes.
fn capacity_of(outcome: &Outcome) -> u32 {
    match outcome {
        Outcome::Drop(_) => 0,
        Outcome::Send(_, change) => 1 + u32::from(change.twice),
    }
}

impl Schedule for ShapeInstances {
    type Counts = Counts;

    fn begin(forwarder: &mut Forwarder<ShapeInstances>) {
        orders::prefer_this_thread();
        forwarder.moderate(INTERVAL);
    }

    fn not_pinned(why: &str) {
        tracing::warn!("{why}");
    }

    fn counts(forwarder: &Forwarder<ShapeInstances>) -> Counts {
        counts(forwarder)
    }

    fn obey(forwarder: &mut Forwarder<ShapeInstances>, order: Command<Counts>) {
        match order {
            Command::Classes(classes) => forwarder.order_mut().classes = classes,
            Command::Begin => forwarder.order_mut().begin_charges(),
            Command::Apply(side, ..) | Command::Replace(side, ..) => {
                let now = monotonic_ns().unwrap_or(0);
                let exit = usize::from(side == Side::Up);
                let instances = forwarder.order_mut();
                // What has no place any more goes with the next turn.
                let instance = &mut instances.instances[exit];
                orders::obey(instance, order, now, &mut instances.dropped);
            }
            // The worker's own.
            Command::Count(_) | Command::Stop(_) => {}
        }
    }

    /// Packets that wait leave at their rate, for a while.
    fn end(forwarder: &mut Forwarder<ShapeInstances>) -> Result<u64, String> {
        // The kernel forwards again.
        forwarder.order_mut().charging = false;
        let begin = Instant::now();
        let quiet = Stop::new();
        while forwarder.counts().held() > 0 && begin.elapsed() < FLUSH {
            if !forwarder.turn()
                && let Ok(quiet) = &quiet
            {
                forwarder.sleep(quiet);
            }
        }
        match forwarder.counts().held() {
            0 => Ok(forwarder.counts().sent),
            left => Err(format!(
                "{left} packets queued for more than {FLUSH:?} were dropped"
            )),
        }
    }
}

fn counts(forwarder: &Forwarder<ShapeInstances>) -> Counts {
    let port = forwarder.port();
    let [down, up] = forwarder.order().first;
    let mut counts = Counts {
        forwarder: forwarder.counts(),
        ..Counts::default()
    };
    for queue in (0..port.len()).map(QueueId) {
        let side = match up != down && queue.0 >= up.0 {
            true => Side::Up,
            false => Side::Down,
        };
        if let Ok(ring) = port.statistics(queue) {
            // Packets leave by the other interface than they come by. One interface has the rings of both sides.
            let leaves_by = match side {
                Side::Down if up != down => Side::Up,
                _ => Side::Down,
            };
            let sum = counts.rings.get_mut(leaves_by);
            sum.rx_dropped += ring.rx_dropped;
            sum.rx_ring_full += ring.rx_ring_full;
            counts.rings.get_mut(side).tx_invalid += ring.tx_invalid;
        }
        if port.state(queue) == LinkState::Removed {
            counts.removed = Some(port.link(queue).name.clone());
        }
        let own = port.counts(queue);
        *counts.refused.get_mut(side) += own.refused + own.lost;
    }
    let [down, up] = &forwarder.order().instances;
    counts.stack = Both {
        down: down.stack_counts(),
        up: up.stack_counts(),
    };
    counts
}
