//! Packed distributions, and the arrays in which they are added up.
//!
//! A word has bucket (10 bits), leg (1) and count (21). A distribution is a list of words in any order,
//! with repeated buckets. It takes a quarter of the memory of a histogram. Adding and copying need no
//! lookup, and the array for sums fits into the cache. A sum is a short list: a class uses a few of
//! the buckets.

use fairpath_core::{INSIDE, OUTSIDE, bucket_middle};

use crate::Histogram;

const COUNT_BITS: u32 = 21;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Number of buckets that a word can have.
const BUCKETS: usize = 1 << (u32::BITS - COUNT_BITS - 1);

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

/// The sum of distributions of both legs.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// Used buckets and their counts by leg, sorted by bucket.
    buckets: Vec<(u16, [u64; 2])>,
    /// Number of samples by leg.
    all: [u64; 2],
    /// For additions: counts by bucket and leg, all 0 between two calls.
    counts: Box<[[u64; 2]; BUCKETS]>,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            buckets: Vec::new(),
            all: [0; 2],
            counts: Box::new([[0; 2]; BUCKETS]),
        }
    }
}

impl Sums {
    /// Removes all samples.
    pub fn clear(&mut self) {
        self.buckets.clear();
        self.all = [0; 2];
    }

    /// Replaces the content by a sum. O(words + range of used buckets).
    pub fn set<'a>(&mut self, words: impl IntoIterator<Item = &'a u32>) {
        self.clear();
        let (mut from, mut to) = (BUCKETS, 0);
        for word in words {
            let (bucket, leg) = ((word >> COUNT_BITS >> 1) as usize, word >> COUNT_BITS & 1);
            self.counts[bucket][leg as usize] += u64::from(*word) & MAX_COUNT;
            (from, to) = (from.min(bucket), to.max(bucket + 1));
        }
        for bucket in from..to {
            let counts = std::mem::take(&mut self.counts[bucket]);
            if counts != [0; 2] {
                self.all[INSIDE] += counts[INSIDE];
                self.all[OUTSIDE] += counts[OUTSIDE];
                self.buckets.push((bucket as u16, counts));
            }
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
    pub fn buckets(&self, leg: usize) -> impl Iterator<Item = (u16, u64)> + Clone {
        let buckets = self.buckets.iter();
        buckets.map(move |(bucket, counts)| (*bucket, counts[leg]))
    }

    /// Adds it to histograms by leg.
    pub fn add_to(&self, histograms: &mut [Histogram; 2]) {
        for leg in [INSIDE, OUTSIDE] {
            histograms[leg].add_sorted(self.buckets(leg));
        }
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
        let histograms = |sums: &Sums| {
            let mut histograms = Default::default();
            sums.add_to(&mut histograms);
            histograms
        };
        sums.set(&words);
        assert_eq!(histograms(&sums), spread);
        for leg in [INSIDE, OUTSIDE] {
            assert_eq!(sums.count(leg), spread[leg].count());
            for q in [0.0, 0.5, 1.0] {
                assert_eq!(sums.quantile(leg, q), spread[leg].quantile(q));
            }
        }
        sums.pack(&mut words);
        sums.set(&words);
        assert_eq!(histograms(&sums), spread);
        sums.set(&[]);
        assert_eq!(histograms(&sums), <[Histogram; 2]>::default());
        assert_eq!(sums.quantile(INSIDE, 0.5), None);
    }
}
