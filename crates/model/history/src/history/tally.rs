//! Counts: differences of the core's counters, and their sums.
//!
//! The tally of a class is the sum of its slot and of its descendants.

use fairpath_core::{ClassCounts, DOWN, DirCounts, INSIDE, UP};
use serde::{Deserialize, Serialize};

use crate::snapshot::FlowCounts;

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectionTally {
    pub bytes: u64,
    pub packets: u64,
    pub unmeasured_bytes: u64,
    pub data: u64,
    /// Downstream losses: retransmissions that passed, minus spurious ones.
    pub lost_downstream: u64,
    pub lost_upstream: u64,
    pub reordered: u64,
}

/// RTT samples of one leg, without their distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rtts {
    pub samples: u64,
    pub unbinned: u64,
    pub sum_ns: u64,
}

/// All counts of a class, indexed as [`ClassCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub dir: [DirectionTally; 2],
    pub leg: [Rtts; 2],
    pub flows_opened: u64,
    pub flows_closed: u64,
    pub handshakes_failed: u64,
    pub one_sided: u64,
}

/// A ratio of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub lost: u64,
    pub of: u64,
}

impl Share {
    /// The ratio, `None` if `of` is 0. At most 1, because losses may be counted before their data.
    pub fn value(self) -> Option<f64> {
        (self.of > 0).then(|| (self.lost as f64 / self.of as f64).min(1.0))
    }
}

/// Loss of one leg: towards its far end, and from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    pub to: Share,
    pub from: Share,
}

impl Loss {
    /// The sum of both directions.
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
            mine.lost_downstream += its.lost_downstream;
            mine.lost_upstream += its.lost_upstream;
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

    /// Loss on a leg. Data of the hosts is lost upstream on the inside leg and downstream on the outside
    /// leg. For data to the hosts it is the opposite.
    pub fn loss(&self, leg: usize) -> Loss {
        let (near, far) = if leg == INSIDE {
            (UP, DOWN)
        } else {
            (DOWN, UP)
        };
        let (near, far) = (&self.dir[near], &self.dir[far]);
        Loss {
            to: Share {
                lost: far.lost_downstream,
                of: far.data,
            },
            from: Share {
                lost: near.lost_upstream,
                of: near.data + near.lost_upstream,
            },
        }
    }

    /// Packets reordered upstream of this router, on a leg.
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

/// The last counters of a slot.
///
/// A retransmission may turn out to be spurious in a later interval. Spurious retransmissions in excess
/// of those of an interval are subtracted from the following ones. So no interval is negative, and the
/// sum is exact.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meter {
    last: ClassCounts,
    spurious_owed: [u64; 2],
}

/// A 64-bit counter that grew by more than this was reset.
const MAX_GROWTH: u64 = u64::MAX / 2;

impl Meter {
    /// Begins at `counts`.
    pub fn new(counts: &ClassCounts) -> Meter {
        Meter {
            last: *counts,
            spurious_owed: [0; 2],
        }
    }

    /// True if the counters are unchanged since the last reading.
    pub fn is_at(&self, counts: &ClassCounts) -> bool {
        self.last == *counts
    }

    /// The counts since the last reading. 32-bit counters may have wrapped once.
    ///
    /// `None` if the counters were reset. Counting then continues from `counts`. Wrapping is no reset,
    /// because 2^63 bytes do not pass between two readings.
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
            tally.dir[dir] = direction(&counts.dir[dir], &last.dir[dir]);
            let spurious = since(
                counts.dir[dir].spurious_packets,
                last.dir[dir].spurious_packets,
            ) + *owed;
            let again = tally.dir[dir].lost_downstream;
            tally.dir[dir].lost_downstream = again.saturating_sub(spurious);
            *owed = spurious.saturating_sub(again);
        }
        for (leg, rtts) in tally.leg.iter_mut().enumerate() {
            let (now, before) = (&counts.leg[leg], &last.leg[leg]);
            rtts.samples = since(now.samples, before.samples);
            rtts.unbinned = since(now.unbinned, before.unbinned);
            rtts.sum_ns = now.sum_ns.wrapping_sub(before.sum_ns);
        }
        let reset = tally.dir.iter().any(|dir| {
            dir.bytes.max(dir.packets) > MAX_GROWTH || dir.unmeasured_bytes > MAX_GROWTH
        }) || tally.leg.iter().any(|rtts| rtts.sum_ns > MAX_GROWTH);
        if reset {
            self.spurious_owed = [0; 2];
        }
        (!reset).then_some(tally)
    }
}

fn since(now: u32, before: u32) -> u64 {
    u64::from(now.wrapping_sub(before))
}

/// `lost_downstream` includes spurious retransmissions.
fn direction(now: &DirCounts, before: &DirCounts) -> DirectionTally {
    DirectionTally {
        bytes: now.bytes.wrapping_sub(before.bytes),
        packets: now.packets.wrapping_sub(before.packets),
        unmeasured_bytes: now.unmeasured_bytes.wrapping_sub(before.unmeasured_bytes),
        data: since(now.data_packets, before.data_packets),
        lost_downstream: since(now.retransmitted_packets, before.retransmitted_packets),
        lost_upstream: since(now.upstream_lost_packets, before.upstream_lost_packets),
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
        assert_eq!(tally.dir[DOWN].lost_downstream, 2);
        assert_eq!(tally.dir[DOWN].bytes, 100);
    }

    #[test]
    fn reset_counters_count_nothing() {
        let mut meter = Meter::new(&counts(500, 0, 0, 1_000_000));
        assert_eq!(meter.advance(&counts(1, 0, 0, 1_500)), None);
        let tally = meter.advance(&counts(3, 0, 0, 4_500)).unwrap();
        assert_eq!((tally.dir[DOWN].data, tally.dir[DOWN].bytes), (2, 3_000));
    }

    #[test]
    fn late_spurious_reports_reduce_later_losses() {
        let mut meter = Meter::default();
        let mut lost = Vec::new();
        for (again, spurious) in [(5, 0), (5, 3), (6, 3), (9, 3)] {
            let tally = meter.advance(&counts(100, again, spurious, 1)).unwrap();
            lost.push(tally.dir[DOWN].lost_downstream);
        }
        // Three of the last interval, minus the two that were still to be subtracted.
        assert_eq!(lost, [5, 0, 0, 1]);
        assert_eq!(lost.iter().sum::<u64>(), 9 - 3);
    }

    #[test]
    fn loss_has_leg_and_direction() {
        let mut tally = Tally::default();
        tally.dir[UP].data = 95;
        tally.dir[UP].lost_upstream = 5;
        tally.dir[UP].lost_downstream = 19;
        tally.dir[DOWN].data = 200;
        tally.dir[DOWN].lost_downstream = 2;
        let (inside, outside) = (tally.loss(INSIDE), tally.loss(OUTSIDE));
        assert_eq!(inside.from.value(), Some(0.05));
        assert_eq!(inside.to.value(), Some(0.01));
        assert_eq!(outside.to.value(), Some(0.2));
        assert_eq!(outside.from.value(), Some(0.0));
        assert_eq!(Tally::default().loss(INSIDE).both().value(), None);
    }
}
