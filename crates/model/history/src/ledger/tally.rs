//! What was counted: differences of the kernel's counters, and their sums.
//!
//! Everything here only adds: a class's tally is that of its own slot and of the classes below it.

use fairpath_core::{ClassCounts, DOWN, DirCounts, INSIDE, UP};
use serde::{Deserialize, Serialize};

use crate::snapshot::FlowCounts;

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Way {
    pub bytes: u64,
    pub packets: u64,
    pub unmeasured_bytes: u64,
    pub data: u64,
    /// Retransmissions that passed, less the spurious ones: lost beyond this router.
    pub lost_beyond: u64,
    pub lost_before: u64,
    pub reordered: u64,
}

/// One leg's round-trip times, without their distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rtts {
    pub samples: u64,
    pub unbinned: u64,
    pub sum_ns: u64,
}

/// All that is counted of a class; indexed as [`ClassCounts`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub dir: [Way; 2],
    pub leg: [Rtts; 2],
    pub flows_opened: u64,
    pub flows_closed: u64,
    pub handshakes_failed: u64,
    pub one_sided: u64,
}

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub lost: u64,
    pub of: u64,
}

impl Share {
    /// `None` of nothing; at most 1, since losses may be told before the data they belong to.
    pub fn value(self) -> Option<f64> {
        (self.of > 0).then(|| (self.lost as f64 / self.of as f64).min(1.0))
    }
}

/// Loss of one leg: on the way to its far end, and from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub to: Share,
    pub from: Share,
}

impl Loss {
    /// Both ways together.
    pub fn both(self) -> Share {
        Share {
            lost: self.to.lost + self.from.lost,
            of: self.to.of + self.from.of,
        }
    }
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        for (mine, its) in self.dir.iter_mut().zip(&other.dir) {
            mine.bytes += its.bytes;
            mine.packets += its.packets;
            mine.unmeasured_bytes += its.unmeasured_bytes;
            mine.data += its.data;
            mine.lost_beyond += its.lost_beyond;
            mine.lost_before += its.lost_before;
            mine.reordered += its.reordered;
        }
        for (mine, its) in self.leg.iter_mut().zip(&other.leg) {
            mine.samples += its.samples;
            mine.unbinned += its.unbinned;
            mine.sum_ns += its.sum_ns;
        }
        self.flows_opened += other.flows_opened;
        self.flows_closed += other.flows_closed;
        self.handshakes_failed += other.handshakes_failed;
        self.one_sided += other.one_sided;
    }

    /// Loss on a leg. The hosts' data is lost before this router on the inside leg, and beyond it
    /// on the outside leg; for what they receive it is the other way round.
    pub fn loss(&self, leg: usize) -> Loss {
        let (near, far) = if leg == INSIDE {
            (UP, DOWN)
        } else {
            (DOWN, UP)
        };
        let (near, far) = (&self.dir[near], &self.dir[far]);
        Loss {
            to: Share {
                lost: far.lost_beyond,
                of: far.data,
            },
            from: Share {
                lost: near.lost_before,
                of: near.data + near.lost_before,
            },
        }
    }

    /// Packets reordered before this router, on a leg.
    pub fn reordered(&self, leg: usize) -> u64 {
        self.dir[if leg == INSIDE { UP } else { DOWN }].reordered
    }

    /// Both directions.
    pub fn bytes(&self) -> u64 {
        self.dir[UP].bytes + self.dir[DOWN].bytes
    }

    pub fn flows(&self) -> FlowCounts {
        FlowCounts {
            opened: self.flows_opened,
            closed: self.flows_closed,
            handshakes_failed: self.handshakes_failed,
            one_sided: self.one_sided,
        }
    }
}

/// A slot's counters as last read.
///
/// A retransmission may be told to be spurious an interval after it was counted. What is spurious
/// beyond an interval's retransmissions is taken off those to come, so that no interval is
/// negative and their sum is right.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    last: ClassCounts,
    spurious_owed: [u64; 2],
}

/// A 64-bit counter that seems to have grown by more than this was set back.
const MOST: u64 = u64::MAX / 2;

impl Meter {
    /// Counts from here.
    pub fn new(counts: &ClassCounts) -> Meter {
        Meter {
            last: *counts,
            spurious_owed: [0; 2],
        }
    }

    /// Nothing was counted since the last reading.
    pub fn is_at(&self, counts: &ClassCounts) -> bool {
        self.last == *counts
    }

    /// What was counted since the last reading; 32-bit counters may have wrapped once.
    ///
    /// `None` if the counters were set back, which they never are by wrapping: 2^63 bytes do not
    /// pass between two readings. Counting then goes on from `counts`.
    pub fn advance(&mut self, counts: &ClassCounts) -> Option<Tally> {
        let last = std::mem::replace(&mut self.last, *counts);
        let mut tally = Tally {
            flows_opened: since(counts.flows_opened, last.flows_opened),
            flows_closed: since(counts.flows_closed, last.flows_closed),
            handshakes_failed: since(counts.handshakes_failed, last.handshakes_failed),
            one_sided: since(counts.one_sided, last.one_sided),
            ..Tally::default()
        };
        for (dir, owed) in self.spurious_owed.iter_mut().enumerate() {
            tally.dir[dir] = way(&counts.dir[dir], &last.dir[dir]);
            let spurious = since(
                counts.dir[dir].spurious_packets,
                last.dir[dir].spurious_packets,
            ) + *owed;
            let again = tally.dir[dir].lost_beyond;
            tally.dir[dir].lost_beyond = again.saturating_sub(spurious);
            *owed = spurious.saturating_sub(again);
        }
        for (leg, rtts) in tally.leg.iter_mut().enumerate() {
            let (now, before) = (&counts.leg[leg], &last.leg[leg]);
            rtts.samples = since(now.samples, before.samples);
            rtts.unbinned = since(now.unbinned, before.unbinned);
            rtts.sum_ns = now.sum_ns.wrapping_sub(before.sum_ns);
        }
        let set_back = tally
            .dir
            .iter()
            .any(|way| way.bytes.max(way.packets) > MOST || way.unmeasured_bytes > MOST)
            || tally.leg.iter().any(|rtts| rtts.sum_ns > MOST);
        if set_back {
            self.spurious_owed = [0; 2];
        }
        (!set_back).then_some(tally)
    }
}

fn since(now: u32, before: u32) -> u64 {
    u64::from(now.wrapping_sub(before))
}

/// Retransmissions are in `lost_beyond`, with the spurious ones.
fn way(now: &DirCounts, before: &DirCounts) -> Way {
    Way {
        bytes: now.bytes.wrapping_sub(before.bytes),
        packets: now.packets.wrapping_sub(before.packets),
        unmeasured_bytes: now.unmeasured_bytes.wrapping_sub(before.unmeasured_bytes),
        data: since(now.data_packets, before.data_packets),
        lost_beyond: since(now.retransmitted_packets, before.retransmitted_packets),
        lost_before: since(now.lost_before_packets, before.lost_before_packets),
        reordered: since(now.reordered_packets, before.reordered_packets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_core::OUTSIDE;

    fn counts(data: u32, retransmitted: u32, spurious: u32, bytes: u64) -> ClassCounts {
        let mut counts = ClassCounts::default();
        counts.dir[DOWN].data_packets = data;
        counts.dir[DOWN].retransmitted_packets = retransmitted;
        counts.dir[DOWN].spurious_packets = spurious;
        counts.dir[DOWN].bytes = bytes;
        counts
    }

    #[test]
    fn counters_of_32_and_64_bits_may_wrap() {
        let mut meter = Meter::new(&counts(u32::MAX - 2, u32::MAX, 0, u64::MAX - 9));
        let tally = meter.advance(&counts(7, 1, 0, 90)).unwrap();
        assert_eq!(tally.dir[DOWN].data, 10);
        assert_eq!(tally.dir[DOWN].lost_beyond, 2);
        assert_eq!(tally.dir[DOWN].bytes, 100);
    }

    #[test]
    fn counters_that_were_set_back_count_nothing_and_go_on_from_there() {
        let mut meter = Meter::new(&counts(500, 0, 0, 1_000_000));
        assert_eq!(meter.advance(&counts(1, 0, 0, 1_500)), None);
        let tally = meter.advance(&counts(3, 0, 0, 4_500)).unwrap();
        assert_eq!((tally.dir[DOWN].data, tally.dir[DOWN].bytes), (2, 3_000));
    }

    #[test]
    fn spurious_told_later_is_taken_off_later_losses() {
        let mut meter = Meter::default();
        let mut lost = Vec::new();
        for (again, spurious) in [(5, 0), (5, 3), (6, 3), (9, 3)] {
            let tally = meter.advance(&counts(100, again, spurious, 1)).unwrap();
            lost.push(tally.dir[DOWN].lost_beyond);
        }
        // The last interval's three less the two that were still owed.
        assert_eq!(lost, [5, 0, 0, 1]);
        assert_eq!(lost.iter().sum::<u64>(), 9 - 3);
    }

    #[test]
    fn loss_is_told_by_leg_and_way() {
        let mut tally = Tally::default();
        tally.dir[UP].data = 95;
        tally.dir[UP].lost_before = 5;
        tally.dir[UP].lost_beyond = 19;
        tally.dir[DOWN].data = 200;
        tally.dir[DOWN].lost_beyond = 2;
        let (inside, outside) = (tally.loss(INSIDE), tally.loss(OUTSIDE));
        assert_eq!(inside.from.value(), Some(0.05));
        assert_eq!(inside.to.value(), Some(0.01));
        assert_eq!(outside.to.value(), Some(0.2));
        assert_eq!(outside.from.value(), Some(0.0));
        assert_eq!(Tally::default().loss(INSIDE).both().value(), None);
    }
}
