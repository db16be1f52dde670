//! One direction: a shaper instance with its own clock.
//!
//! ```text
//!   arrive(at) --> instance, with the time of arrival --> ready: departed in virtual time
//!                                                          '--> take: the back end sends it, late or not
//! ```
//!
//! The scheduler runs at exactly the times that it returns, not at those at which this process runs. A
//! packet that is due at 20.000 ms leaves the instance at 20.000 ms, whenever the back end calls. So
//! rates and delays are exact, and the lateness of the back end is known for each packet. A late call
//! delays its packets, but not those behind them.
//!
//! Invariant: time only increases. A packet that is reported late arrives at the time of the clock.
//! The difference is lateness, and not part of the plan.

use std::collections::VecDeque;

use fairpath_core::Frame;
use fairpath_core::sched::{Change, Drop as Reason, Meta, SchedReader, SchedRuntimeError};
use fairpath_shape::{Leaving, Places, ShapeInstance};

use crate::counts::Counts;

/// Of an Ethernet header, which is no part of a packet.
const LINK_BYTES: u32 = 14;
/// Packets that leave the instance in one call.
const TURN: u32 = 64;

/// A packet that has left the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// As it came.
    pub handle: u32,
    /// When it was to leave.
    pub due: u64,
    /// Its treatment. An inverted bit is counted from the IP header.
    pub change: Change,
}

/// A packet on its way through, by its handle.
#[derive(Clone, Copy, Debug, Default)]
struct Passing {
    arrived: u64,
    /// The lateness of its report.
    behind: u64,
    number: u64,
    bytes: u32,
}

/// A packet that was taken, and is not yet known to be sent.
#[derive(Clone, Copy, Debug)]
struct Going {
    arrived: u64,
    /// The delay that was planned.
    planned: u64,
    bytes: u32,
}

/// See the file.
pub struct Path {
    instance: ShapeInstance,
    /// For what the queue behind the delay counts.
    reader: SchedReader,
    places: Places,
    /// Packets that may wait here.
    most: u64,
    clock: u64,
    /// The time of the next run of the instance.
    next: Option<u64>,
    fresh: bool,
    passing: Vec<Passing>,
    ready: VecDeque<Departure>,
    dropped: Vec<u32>,
    leaving: Vec<Leaving>,
    /// Taken, and not yet known to be sent.
    going: Vec<Going>,
    /// Packets leave in the order of their arrival, if all is well.
    in_order: bool,
    /// Of the last that left: its number, or when it was due.
    last: u64,
    counts: Counts,
}

impl Path {
    /// A path of an unused instance, whose figures are at `places`, for `most` packets at once. `in_order`:
    /// the instance keeps the order of arrivals.
    pub fn new(instance: ShapeInstance, places: Places, most: u32, in_order: bool) -> Path {
        Path {
            passing: vec![Passing::default(); instance.handles() as usize + 1],
            reader: instance.reader(),
            places,
            instance,
            most: most.into(),
            clock: 0,
            next: None,
            fresh: false,
            ready: VecDeque::new(),
            dropped: Vec::new(),
            leaving: Vec::new(),
            going: Vec::new(),
            in_order,
            last: 0,
            counts: Counts::default(),
        }
    }

    /// A parsed packet arrives. Returns false if the capacity is exhausted: then the back end drops the
    /// packet.
    ///
    /// # Errors
    /// As [`ShapeInstance::turn`], which a native scheduler keeps to itself.
    pub fn arrive_as(
        &mut self,
        handle: u32,
        arrived: u64,
        meta: Meta,
    ) -> Result<bool, SchedRuntimeError> {
        let Some(at) = self.begin(handle, arrived, meta.bytes, meta.segments.into())? else {
            return Ok(false);
        };
        self.instance.arrive_as(handle, at, meta);
        Ok(true)
    }

    /// As [`Path::arrive_as`], for a packet whose first bytes are `head`.
    ///
    /// # Errors
    /// As [`Path::arrive_as`].
    pub fn arrive(
        &mut self,
        handle: u32,
        frame: &Frame,
        head: &[u8],
        bytes: u32,
    ) -> Result<bool, SchedRuntimeError> {
        let Some(at) = self.begin(handle, frame.now, bytes, frame.segs)? else {
            return Ok(false);
        };
        let frame = Frame { now: at, ..*frame };
        self.instance.arrive(handle, &frame, head, bytes);
        Ok(true)
    }

    /// The arrival time by the clock of the instance; `None` if its capacity is exhausted.
    fn begin(
        &mut self,
        handle: u32,
        arrived: u64,
        bytes: u32,
        segs: u32,
    ) -> Result<Option<u64>, SchedRuntimeError> {
        let at = arrived.max(self.clock);
        if at > self.clock {
            self.run_to(at)?;
            self.clock = at;
        }
        if self.counts.held >= self.most {
            self.counts.own.no_place += 1;
            return Ok(None);
        }
        self.fresh = true;
        let number = self.counts.arrived;
        if let Some(place) = self.passing.get_mut(handle as usize) {
            *place = Passing {
                arrived,
                behind: at - arrived,
                number,
                bytes,
            };
        }
        self.counts.arrived += 1;
        self.counts.held += 1;
        self.counts.gso_packets += u64::from(segs > 1);
        Ok(Some(at))
    }

    /// Lets packets that are due until `now` leave the instance.
    ///
    /// # Errors
    /// As [`Path::arrive_as`].
    pub fn run_to(&mut self, now: u64) -> Result<(), SchedRuntimeError> {
        if self.fresh {
            self.fresh = false;
            self.turn(self.clock)?;
        }
        while let Some(next) = self.next.filter(|next| *next <= now) {
            self.turn(next.max(self.clock))?;
        }
        Ok(())
    }

    /// Runs the instance at `at` until nothing more is due.
    fn turn(&mut self, at: u64) -> Result<(), SchedRuntimeError> {
        self.clock = at;
        loop {
            let next = self.instance.turn(at, TURN, &mut self.leaving)?;
            let mut sent = 0;
            for leaving in self.leaving.drain(..) {
                match leaving {
                    Leaving::Send { handle, change } => {
                        sent += 1;
                        let due = at;
                        self.ready.push_back(Departure {
                            handle,
                            due,
                            change,
                        });
                    }
                    Leaving::Drop { handle, reason } => {
                        self.counts.held -= 1;
                        *dropped_for(&mut self.counts, reason) += 1;
                        self.dropped.push(handle);
                    }
                }
            }
            if sent < TURN {
                self.next = next;
                return Ok(());
            }
        }
    }

    /// The next packet to send. [`Path::note_sent`] takes the time of its departure.
    pub fn take(&mut self) -> Option<Departure> {
        let mut departure = self.ready.pop_front()?;
        let counts = &mut self.counts;
        let Some(passing) = self.passing.get(departure.handle as usize) else {
            return Some(departure);
        };
        let flip = &mut departure.change.flip;
        *flip = flip.map(|bit| bit_of_packet(bit, passing.bytes));
        counts.held -= 1;
        self.going.push(Going {
            arrived: passing.arrived,
            planned: departure
                .due
                .saturating_sub(passing.arrived + passing.behind),
            bytes: passing.bytes,
        });
        let order = match self.in_order {
            true => passing.number,
            false => departure.due,
        };
        counts.reordered += u64::from(order < self.last);
        self.last = self.last.max(order);
        Some(departure)
    }

    /// The number of packets of the next one on the wire, a second one with it; `None` if none is ready.
    pub fn next_takes(&self) -> Option<u32> {
        let next = self.ready.front()?;
        Some(1 + u32::from(next.change.twice))
    }

    /// True if there are packets that were taken but not yet reported as sent.
    pub fn is_going(&self) -> bool {
        !self.going.is_empty()
    }

    /// The kernel had all that were taken by `now`, read when it had.
    pub fn note_sent(&mut self, now: u64) {
        for going in self.going.drain(..) {
            self.counts.sent += 1;
            self.counts.sent_bytes += u64::from(going.bytes);
            self.counts.note_left(going.arrived, going.planned, now);
        }
    }

    /// Nothing of what was taken was sent; the port counts why.
    pub fn note_unsent(&mut self) {
        self.going.clear();
    }

    /// A packet that was dropped, whose handle is free again.
    pub fn take_dropped(&mut self) -> Option<u32> {
        self.dropped.pop()
    }

    /// When the next packet is due; a time that is over where one is ready.
    pub fn wake_at(&self) -> Option<u64> {
        match (self.ready.front(), self.fresh) {
            (Some(departure), _) => Some(departure.due),
            (None, true) => Some(self.clock),
            (None, false) => self.next,
        }
    }

    /// The outcomes of packets.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The same, with the counters of the queue behind the delay; some microseconds.
    pub fn reported(&self) -> Counts {
        let mut counts = self.counts.clone();
        let node = |node| (self.reader.node_stats(node), self.reader.account(node));
        if let Some(root) = self.places.read(node).first() {
            let sojourns = &root.sojourns;
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| sojourns.quantile(share));
            counts.sojourn_ns = p50.zip(p95).zip(p99).map(|((a, b), c)| [a, b, c]);
            counts.marked = root.marked;
        }
        counts
    }

    /// For what only the port knows.
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

/// The bit of a packet, from its IP header on, for one that was drawn of all bits of its frame: in
/// proportion, so that no part of a packet is hit more often than another.
fn bit_of_packet(bit: u32, frame_bytes: u32) -> u32 {
    let (frame, packet) = (frame_bytes, frame_bytes.saturating_sub(LINK_BYTES));
    let bit = u64::from(bit) * u64::from(packet) / u64::from(frame.max(1));
    u32::try_from(bit).unwrap_or(0)
}

/// Where a drop is counted: planned ones are the impairment's or its queue's.
fn dropped_for(counts: &mut Counts, reason: Reason) -> &mut u64 {
    match reason {
        Reason::Impaired => &mut counts.lost,
        Reason::BadHandle
        | Reason::NoReference
        | Reason::NoFlow
        | Reason::NoLeaf
        | Reason::Broken
        | Reason::Item
        | Reason::Pifo
        | Reason::Rank => &mut counts.own.broken,
        _ => &mut counts.dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_is_uniform_over_the_packet() {
        // 64 bytes of IP, as many tenths of them as a frame of 78 has bits.
        let (frame, packet) = (78 * 8, 64 * 8);
        let mut tenths = [0u32; 10];
        for bit in 0..frame {
            let at = bit_of_packet(bit, 78);
            assert!(at < packet, "{bit}: {at}");
            tenths[(at * 10 / packet) as usize] += 1;
        }
        let even = frame / 10;
        for hits in tenths {
            assert!(hits.abs_diff(even) <= 3, "{tenths:?}");
        }
        assert_eq!(bit_of_packet(5, 0), 0);
    }
}
