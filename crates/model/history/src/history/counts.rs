//! Counts of a row over a time, which add up: for steps of any length.
//!
//! The history makes those of an interval ([`super::History::interval_counts`]). Their sum over
//! intervals is exact: numbers add, distributions merge by bucket, peaks are maxima.

use std::sync::Arc;

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};

use super::pad::{Sums, pack};
use super::tally::{DirectionTally, Rtts, Tally};
use crate::Histogram;
use crate::snapshot::Kind;

/// Words above this number are packed again: twice as many as all buckets of both legs.
const MAX_WORDS: usize = 4096;
/// Number of values in [`Counts::numbers`].
pub(super) const NUMBERS: usize = 28;

/// Counts of one row over a time. Arrays of directions are indexed by `UP` and `DOWN`, of legs by
/// `INSIDE` and `OUTSIDE`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub(super) tally: Tally,
    /// Maximum rate of an interval by direction, bits per second.
    pub peak_bps: [u64; 2],
    /// Time in which the row was busy ([`super::BUSY_SHARE`]), nanoseconds.
    pub busy_ns: u64,
    /// Measured time, nanoseconds. Kept once for all rows, so it is 0 for most of them.
    pub measured_ns: u64,
    /// Packed distributions of both legs.
    words: Vec<u32>,
}

/// A row by kind and name.
pub type RowName = (Kind, String);

/// The counts of one interval.
#[derive(Clone, Debug)]
pub struct IntervalCounts {
    /// Unix time of its begin, nanoseconds.
    pub unix_ns: u64,
    /// Its length by the monotonic clock, nanoseconds.
    pub length_ns: u64,
    /// All rows of the configuration. The same list until the rows change.
    pub names: Arc<[RowName]>,
    /// The active rows: index in `names`, and counts.
    pub rows: Vec<(u32, Counts)>,
}

/// Losses of one direction of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Lost packets.
    pub lost: u64,
    /// Data packets, including lost ones.
    pub data: u64,
}

impl Counts {
    pub(super) fn of(tally: &Tally, words: &[u32], peak_bps: [f64; 2], busy_ns: u64) -> Counts {
        Counts {
            tally: *tally,
            peak_bps: peak_bps.map(|rate| rate as u64),
            busy_ns,
            measured_ns: 0,
            words: words.to_vec(),
        }
    }

    /// Counts of measured time alone.
    pub fn measured(ns: u64) -> Counts {
        Counts {
            measured_ns: ns,
            ..Counts::default()
        }
    }

    /// Adds other counts. O(buckets of the other), amortised.
    pub fn add(&mut self, other: &Counts) {
        self.tally.add(&other.tally);
        for dir in [UP, DOWN] {
            self.peak_bps[dir] = self.peak_bps[dir].max(other.peak_bps[dir]);
        }
        self.busy_ns += other.busy_ns;
        self.measured_ns += other.measured_ns;
        self.words.extend_from_slice(&other.words);
        if self.words.len() > MAX_WORDS {
            self.pack();
        }
    }

    /// Packs the distributions, so that each bucket is there once.
    fn pack(&mut self) {
        let mut sums = Sums::default();
        sums.set(&self.words);
        sums.pack(&mut self.words);
    }

    /// IP bytes by direction.
    pub fn bytes(&self) -> [u64; 2] {
        [UP, DOWN].map(|dir| self.tally.dir[dir].bytes)
    }

    /// IP packets by direction.
    pub fn packets(&self) -> [u64; 2] {
        [UP, DOWN].map(|dir| self.tally.dir[dir].packets)
    }

    /// RTT samples by leg.
    pub fn samples(&self) -> [u64; 2] {
        [INSIDE, OUTSIDE].map(|leg| self.tally.leg[leg].samples)
    }

    /// The exact sum of RTTs by leg, nanoseconds.
    pub fn sum_ns(&self) -> [u64; 2] {
        [INSIDE, OUTSIDE].map(|leg| self.tally.leg[leg].sum_ns)
    }

    /// Distributions of RTTs by leg.
    pub fn histograms(&self) -> [Histogram; 2] {
        let mut sums = Sums::default();
        sums.set(&self.words);
        let mut histograms = Default::default();
        sums.add_to(&mut histograms);
        histograms
    }

    /// Losses of a leg, of both directions.
    pub fn losses(&self, leg: usize) -> Losses {
        let both = self.tally.loss(leg).both();
        Losses {
            lost: both.lost,
            data: both.of,
        }
    }

    /// True without any count.
    pub fn is_empty(&self) -> bool {
        self.numbers() == [0; NUMBERS] && self.words.is_empty()
    }

    /// All numbers, in the order of the files.
    pub(super) fn numbers(&self) -> [u64; NUMBERS] {
        let [up, down] = [UP, DOWN].map(|dir| &self.tally.dir[dir]);
        let [near, far] = [INSIDE, OUTSIDE].map(|leg| &self.tally.leg[leg]);
        [
            up.bytes,
            down.bytes,
            up.packets,
            down.packets,
            up.unmeasured_bytes,
            down.unmeasured_bytes,
            up.data,
            down.data,
            up.lost_downstream,
            down.lost_downstream,
            up.lost_upstream,
            down.lost_upstream,
            up.reordered,
            down.reordered,
            near.samples,
            far.samples,
            near.unbinned,
            far.unbinned,
            near.sum_ns,
            far.sum_ns,
            self.tally.flows_opened,
            self.tally.flows_closed,
            self.tally.handshakes_failed,
            self.tally.one_sided,
            self.peak_bps[UP],
            self.peak_bps[DOWN],
            self.busy_ns,
            self.measured_ns,
        ]
    }

    /// Reverses [`Counts::numbers`]. The distributions are empty.
    pub(super) fn from_numbers(numbers: &[u64; NUMBERS]) -> Counts {
        let direction = |at: usize| DirectionTally {
            bytes: numbers[at],
            packets: numbers[2 + at],
            unmeasured_bytes: numbers[4 + at],
            data: numbers[6 + at],
            lost_downstream: numbers[8 + at],
            lost_upstream: numbers[10 + at],
            reordered: numbers[12 + at],
        };
        let rtts = |at: usize| Rtts {
            samples: numbers[14 + at],
            unbinned: numbers[16 + at],
            sum_ns: numbers[18 + at],
        };
        let mut tally = Tally {
            flows_opened: numbers[20],
            flows_closed: numbers[21],
            handshakes_failed: numbers[22],
            one_sided: numbers[23],
            ..Tally::default()
        };
        (tally.dir[UP], tally.dir[DOWN]) = (direction(0), direction(1));
        (tally.leg[INSIDE], tally.leg[OUTSIDE]) = (rtts(0), rtts(1));
        let mut counts = Counts {
            tally,
            busy_ns: numbers[26],
            measured_ns: numbers[27],
            ..Counts::default()
        };
        (counts.peak_bps[UP], counts.peak_bps[DOWN]) = (numbers[24], numbers[25]);
        counts
    }

    /// Adds samples of a bucket.
    pub(super) fn add_bucket(&mut self, leg: usize, bucket: u16, count: u64) {
        pack(&mut self.words, bucket, leg, count);
    }

    /// The sum of the distributions.
    pub(super) fn add_up(&self, sums: &mut Sums) {
        sums.set(&self.words);
    }
}

impl PartialEq for Counts {
    /// Distributions are equal if their histograms are.
    fn eq(&self, other: &Counts) -> bool {
        self.numbers() == other.numbers() && self.histograms() == other.histograms()
    }
}

#[cfg(test)]
mod tests {
    use fairpath_core::BUCKETS;

    use super::*;

    #[test]
    fn sums_of_many_parts_stay_small_and_exact() {
        let mut sum = Counts::default();
        for at in 0..3_000u64 {
            let mut part = Counts::measured(1);
            for bucket in 0..40 {
                part.add_bucket(
                    bucket % 2,
                    ((at * 7 + bucket as u64) % BUCKETS as u64) as u16,
                    3,
                );
            }
            sum.add(&part);
            assert!(sum.words.len() <= MAX_WORDS + 40);
        }
        assert_eq!(sum.measured_ns, 3_000);
        let histograms = sum.histograms();
        assert_eq!(
            [0, 1].map(|leg: usize| histograms[leg].count()),
            [3_000 * 20 * 3; 2]
        );
    }
}
