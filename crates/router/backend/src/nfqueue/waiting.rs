//! Packets that wait for a verdict, in one queue or in three.
//!
//! ```text
//!  rules --> queue: GSO packets whole --+--> verdict
//!                                       +--> segments: the kernel splits -------------> verdict
//!  decided to be marked, from either ------> marks: whole copies --> verdict with CE in the packet
//! ```
//!
//! A message of NFQUEUE has one verdict, so a GSO packet cannot be split by its verdicts. But a verdict can send it
//! to another queue, and the kernel segments what comes to a queue that takes no GSO packets. This is synchronous:
//! when the verdict is sent, all segments are there. A verdict with CE needs the whole packet, and few packets are
//! marked: only these are copied, when the scheduler has decided.

use anyhow::Context;
use fairpath_nfqueue::{
    Action, Config, Counters, Held, Holding, KernelCounts, Queue, QueueError, Verdict, Wait,
};

use super::packet::HEADER_BYTES;

/// Packets that are marked at once: one, or the segments of one.
const MARKS_AT_ONCE: usize = 8;
/// Packets that wait in the kernel to be marked: the segments of one, however small.
const MARKS: u32 = 4096;

/// The queue that a packet waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where rules send it.
    Main,
    /// Where the kernel has split it.
    Segments,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    Accepted,
    /// With Congestion Experienced.
    Marked,
    Dropped,
}

/// The queues that only verdicts send packets to.
pub struct SideQueues {
    /// For the segments of GSO packets.
    segments: Queue<Holding>,
    /// For packets that are marked now.
    marks: Queue<Holding>,
}

impl SideQueues {
    /// Binds them. `length`: packets that may wait as segments.
    ///
    /// # Errors
    /// A number is taken.
    pub fn bind(segments: u16, marks: u16, length: u32) -> anyhow::Result<SideQueues> {
        let of_segments = Config::new(segments)
            .copy_bytes(HEADER_BYTES)
            .gso(false)
            .length(length);
        // Without GSO the kernel completes checksums, too.
        let of_marks = Config::new(marks)
            .gso(false)
            .length(MARKS)
            .at_once(MARKS_AT_ONCE);
        let why = "bind a queue that splits or marks packets";
        Ok(SideQueues {
            segments: of_segments.bind().context(why)?,
            marks: of_marks.bind().context(why)?,
        })
    }
}

/// A packet's place, and what is kept for it.
struct Entry<K> {
    place: Place,
    held: Held,
    /// In the order of arrival.
    number: u64,
    kept: K,
}

/// Packets that wait for a verdict, by handle.
pub struct Waiting<K> {
    /// For verdicts.
    pub queue: Queue<Holding>,
    sides: Option<SideQueues>,
    entries: Vec<Option<Entry<K>>>,
    free: Vec<u32>,
    arrived: u64,
    /// A GSO packet was sent to `segments`, and not all of them were read.
    splitting: bool,
    /// A packet may be in `marks`, because a verdict could not be sent.
    marking: bool,
    split: u64,
    marked: u64,
}

/// The counters of all queues.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCounts {
    /// Packets that came to the scheduler: segments where they were split.
    pub received: u64,
    pub accepted: u64,
    pub dropped: u64,
    /// Verdicts that the kernel refused.
    pub refused: u64,
    /// GSO packets that were split.
    pub split: u64,
    /// Packets that left with CE.
    pub marked: u64,
    pub held: u64,
    pub kernel: Option<KernelSums>,
}

impl QueueCounts {
    /// Adds those of another worker.
    pub fn add(&mut self, other: &QueueCounts) {
        self.received += other.received;
        self.accepted += other.accepted;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.split += other.split;
        self.marked += other.marked;
        self.held += other.held;
        if let Some(more) = other.kernel {
            let sum = self.kernel.get_or_insert_default();
            sum.waiting += more.waiting;
            sum.queue_dropped += more.queue_dropped;
            sum.user_dropped += more.user_dropped;
        }
    }
}

/// The kernel's columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelSums {
    pub waiting: u64,
    pub queue_dropped: u64,
    pub user_dropped: u64,
}

impl KernelSums {
    fn add(self, counts: &KernelCounts) -> KernelSums {
        KernelSums {
            waiting: self.waiting + u64::from(counts.waiting),
            queue_dropped: self.queue_dropped + u64::from(counts.queue_dropped),
            user_dropped: self.user_dropped + u64::from(counts.user_dropped),
        }
    }
}

impl<K> Waiting<K> {
    pub fn new(queue: Queue<Holding>, sides: Option<SideQueues>, handles: u32) -> Waiting<K> {
        Waiting {
            queue,
            sides,
            entries: (0..=handles).map(|_| None).collect(),
            free: (1..=handles).rev().collect(),
            arrived: 0,
            splitting: false,
            marking: false,
            split: 0,
            marked: 0,
        }
    }

    /// The queue to read next: segments of a packet come before what arrived after it.
    ///
    /// # Errors
    /// The kernel lacks memory for verdicts: they are kept.
    pub fn next_place(&mut self) -> Result<Place, QueueError> {
        if self.splitting || self.marking {
            // Until the verdict that sends it is sent, the packet is not there.
            self.flush(Place::Main)?;
            self.flush(Place::Segments)?;
        }
        if self.marking {
            self.mark_all()?;
        }
        Ok(if self.splitting {
            Place::Segments
        } else {
            Place::Main
        })
    }

    /// All segments were read.
    pub fn note_all_segments(&mut self) {
        self.splitting = false;
    }

    /// True if packets are on their way between queues, which nothing reports.
    pub fn is_between(&self) -> bool {
        self.splitting || self.marking
    }

    /// True if a GSO packet can be split.
    pub fn can_split(&self) -> bool {
        self.sides.is_some()
    }

    /// The queue at a place, and the handles that are free.
    pub fn at(&mut self, place: Place) -> (&mut Queue<Holding>, &mut Vec<u32>) {
        (
            of_place(&mut self.queue, self.sides.as_mut(), place),
            &mut self.free,
        )
    }

    /// The number of packets in the kernel that were not read, `u32::MAX` if it is unknown.
    pub fn unread(&mut self, place: Place) -> u32 {
        let (queue, _) = self.at(place);
        let held = queue.held() as u32;
        queue
            .kernel_counts()
            .map_or(u32::MAX, |counts| counts.waiting.saturating_sub(held))
    }

    /// Keeps a packet that arrived.
    pub fn keep(&mut self, handle: u32, place: Place, held: Held, kept: K) {
        self.arrived += 1;
        self.entries[handle as usize] = Some(Entry {
            place,
            held,
            number: self.arrived,
            kept,
        });
    }

    /// Sends a packet of the main queue to be split.
    pub fn split(&mut self, held: Held) -> Result<(), QueueError> {
        let Some(sides) = &self.sides else {
            return self.queue.release().give(held, Verdict::ACCEPT);
        };
        self.splitting = true;
        self.split += 1;
        let to = to(&sides.segments);
        self.queue.release().give(held, to)?;
        self.flush(Place::Main)
    }

    /// The packet of a handle, which is free from now on.
    pub fn take(&mut self, handle: u32) -> Option<(Held, K)> {
        let Entry { held, kept, .. } = self.take_entry(handle)?;
        Some((held, kept))
    }

    fn take_entry(&mut self, handle: u32) -> Option<Entry<K>> {
        let taken = self.entries[handle as usize].take()?;
        self.free.push(handle);
        Some(taken)
    }

    /// Gives each of these its verdict, in this order; what was kept for each that is sent goes to `sent`. Returns how
    /// many are left, and how many verdicts failed.
    pub fn give_all(
        &mut self,
        departures: impl Iterator<Item = (u32, Departure)>,
        mut sent: impl FnMut(K),
    ) -> (usize, u64) {
        let (mut left, mut failed) = (0, 0);
        let mut last = None;
        for (handle, departure) in departures {
            left += 1;
            let Some(Entry {
                place, held, kept, ..
            }) = self.take_entry(handle)
            else {
                continue;
            };
            // Verdicts of one queue are sent together, in order only with each other.
            if let Some(last) = last.replace(place).filter(|last| *last != place) {
                failed += u64::from(self.flush(last).is_err());
            }
            let given = match departure {
                Departure::Accepted => self.at(place).0.release().give(held, Verdict::ACCEPT),
                Departure::Dropped => self.at(place).0.release().give(held, Verdict::DROP),
                Departure::Marked => self.mark(place, held),
            };
            // Kept where it could not be sent, and sent with the next.
            failed += u64::from(given.is_err());
            if departure != Departure::Dropped {
                sent(kept);
            }
        }
        if let Some(last) = last {
            failed += u64::from(self.flush(last).is_err());
        }
        (left, failed)
    }

    /// Accepts all packets, in the order of arrival. Returns how many.
    pub fn accept_all(&mut self) -> u64 {
        let entries = self.entries.iter().enumerate();
        let mut order: Vec<(u64, u32)> = entries
            .filter_map(|(handle, entry)| Some((entry.as_ref()?.number, handle as u32)))
            .collect();
        order.sort_unstable();
        let departures = order
            .iter()
            .map(|(_, handle)| (*handle, Departure::Accepted));
        self.give_all(departures, drop);
        order.len() as u64
    }

    /// All queues, those first whose packets arrived earlier.
    pub fn queues(&mut self) -> impl Iterator<Item = &mut Queue<Holding>> {
        let sides = self.sides.as_mut();
        sides
            .into_iter()
            .flat_map(|sides| [&mut sides.marks, &mut sides.segments])
            .chain([&mut self.queue])
    }

    fn flush(&mut self, place: Place) -> Result<(), QueueError> {
        self.at(place).0.release().flush()
    }

    /// Sends a packet to be marked, and accepts it marked.
    fn mark(&mut self, place: Place, held: Held) -> Result<(), QueueError> {
        let to = match &self.sides {
            Some(sides) => to(&sides.marks),
            None => Verdict::ACCEPT,
        };
        self.marking = self.sides.is_some();
        self.at(place).0.release().give(held, to)?;
        self.flush(place)?;
        self.mark_all()
    }

    /// Marks and accepts what is in the queue for it: a packet, or the segments of a GSO packet.
    fn mark_all(&mut self) -> Result<(), QueueError> {
        while let Some(sides) = &mut self.sides {
            let mut read = sides.marks.receive(Wait::Not)?;
            let mut some = false;
            for (packet, held) in read.packets {
                some = true;
                match packet.marked() {
                    Ok(Some(marked)) => {
                        self.marked += 1;
                        read.verdicts.give_changed(held, Verdict::ACCEPT, &marked)?;
                    }
                    // Only ECT packets are to be marked.
                    Ok(None) | Err(_) => read.verdicts.give(held, Verdict::ACCEPT)?,
                }
            }
            if !some {
                break;
            }
        }
        self.marking = false;
        Ok(())
    }

    /// Of all queues.
    pub fn counts(&self) -> QueueCounts {
        let sides = self
            .sides
            .iter()
            .flat_map(|sides| [&sides.segments, &sides.marks]);
        let queues = || [&self.queue].into_iter().chain(sides.clone());
        let sum = |of: fn(Counters) -> u64| queues().map(|queue| of(queue.counters())).sum();
        let received = |queue: &Queue<Holding>| queue.counters().packets.received;
        let segments = self.sides.as_ref().map_or(0, |s| received(&s.segments));
        let kernel = queues().try_fold(KernelSums::default(), |sums, queue| {
            Some(sums.add(&queue.kernel_counts().ok()?))
        });
        QueueCounts {
            received: received(&self.queue) - self.split + segments,
            accepted: sum(|counts| counts.verdicts.accepted),
            dropped: sum(|counts| counts.verdicts.dropped),
            refused: sum(|counts| counts.packets.refused),
            split: self.split,
            marked: self.marked,
            held: queues().map(Queue::held).sum(),
            kernel,
        }
    }
}

/// The verdict that sends a packet to a queue. It is ours as long as we are, so it does not have to be bypassed.
fn to(queue: &Queue<Holding>) -> Verdict {
    let number = queue.number();
    Verdict::new(Action::Queue {
        number,
        bypass: true,
    })
}

fn of_place<'a>(
    main: &'a mut Queue<Holding>,
    sides: Option<&'a mut SideQueues>,
    place: Place,
) -> &'a mut Queue<Holding> {
    match (place, sides) {
        (Place::Segments, Some(sides)) => &mut sides.segments,
        _ => main,
    }
}
