//! Packed distributions, and the arrays in which they are added up.
//!
//! A word has bucket (10 bits), leg (1) and count (21). A distribution is a list of words in any order,
//! with repeated buckets. It takes a quarter of the memory of a histogram. Adding and copying need no
//! lookup, and the array for sums fits into the cache.

use fairpath_core::{INSIDE, OUTSIDE, bucket_middle};

use crate::Histogram;

const COUNT_BITS: u32 = 21;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Number of array entries: bucket and leg, with the leg in the lowest bit.
const ENTRIES: usize = 1 << (u32::BITS - COUNT_BITS);

/// Adds `count` samples of a bucket to a distribution.
pub(super) fn pack(words: &mut Vec<u32>, bucket: u16, leg: usize, count: u64) {
    let entry = (u32::from(bucket) << 1 | leg as u32) << COUNT_BITS;
    let mut left = count;
    while left > 0 {
        let part = left.min(MAX_COUNT);
        words.push(entry | part as u32);
        left -= part;
    }
}

/// Distributions of both legs in an array.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// By entry.
    counts: Vec<u64>,
    /// Used entries: from, to (exclusive), both even.
    used: (usize, usize),
    /// Number of samples by leg.
    all: [u64; 2],
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            counts: vec![0; ENTRIES],
            used: (0, 0),
            all: [0; 2],
        }
    }
}

impl Sums {
    /// Removes all samples.
    pub fn clear(&mut self) {
        self.counts[self.used.0..self.used.1].fill(0);
        (self.used, self.all) = Default::default();
    }

    /// Replaces the content by a sum. O(words + range of used buckets).
    pub fn set<'a>(&mut self, words: impl IntoIterator<Item = &'a u32>) {
        self.clear();
        let (mut from, mut to) = (ENTRIES - 2, 0);
        for word in words {
            let entry = (word >> COUNT_BITS) as usize;
            self.counts[entry] += u64::from(*word) & MAX_COUNT;
            (from, to) = (from.min(entry), to.max(entry));
        }
        if from <= to {
            self.used = (from & !1, (to | 1) + 1);
        }
        for pair in self.counts[self.used.0..self.used.1].chunks_exact(2) {
            self.all[INSIDE] += pair[INSIDE];
            self.all[OUTSIDE] += pair[OUTSIDE];
        }
    }

    /// Number of samples of a leg.
    pub fn count(&self, leg: usize) -> u64 {
        self.all[leg]
    }

    /// As [`Histogram::quantile`].
    pub fn quantile(&self, leg: usize, q: f64) -> Option<u64> {
        let rank = ((q * self.all[leg] as f64).ceil() as u64).max(1);
        let mut counted = 0;
        let mut buckets = self.buckets(leg);
        let at = buckets.find(|(_, count)| {
            counted += count;
            counted >= rank
        });
        at.map(|(bucket, _)| bucket_middle(bucket))
    }

    /// The buckets of a leg and their counts, sorted by bucket. Counts may be 0.
    pub fn buckets(&self, leg: usize) -> impl Iterator<Item = (u16, u64)> {
        let (from, to) = self.used;
        let pairs = self.counts[from..to].chunks_exact(2).enumerate();
        pairs.map(move |(at, pair)| ((from / 2 + at) as u16, pair[leg]))
    }

    /// The histograms by leg.
    pub fn histograms(&self) -> [Histogram; 2] {
        [INSIDE, OUTSIDE].map(|leg| {
            let mut histogram = Histogram::default();
            for (bucket, count) in self.buckets(leg) {
                histogram.add(bucket, count);
            }
            histogram
        })
    }

    /// Replaces `words` by the packed content, with each bucket once.
    pub fn pack(&self, words: &mut Vec<u32>) {
        words.clear();
        for leg in [INSIDE, OUTSIDE] {
            for (bucket, count) in self.buckets(leg) {
                pack(words, bucket, leg, count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_preserves_distributions() {
        let mut spread = <[Histogram; 2]>::default();
        let mut words = Vec::new();
        for (bucket, leg, count) in [
            (735, OUTSIDE, 1),
            (735, INSIDE, MAX_COUNT * 3 + 5),
            (0, INSIDE, 1),
            (300, INSIDE, 7),
            (735, INSIDE, MAX_COUNT),
        ] {
            pack(&mut words, bucket, leg, count);
            spread[leg].add(bucket, count);
        }
        let mut sums = Sums::default();
        sums.set(&words);
        assert_eq!(sums.histograms(), spread);
        for leg in [INSIDE, OUTSIDE] {
            assert_eq!(sums.count(leg), spread[leg].count());
            for q in [0.0, 0.5, 1.0] {
                assert_eq!(sums.quantile(leg, q), spread[leg].quantile(q));
            }
        }
        sums.pack(&mut words);
        sums.set(&words);
        assert_eq!(sums.histograms(), spread);
        sums.set(&[]);
        assert_eq!(sums.histograms(), <[Histogram; 2]>::default());
        assert_eq!(sums.quantile(INSIDE, 0.5), None);
    }
}
