//! Distributions in packed form, and the scratch pad on which they are added up.
//!
//! A word holds bucket (10 bits), leg (1) and count (21); a distribution is words in any order, a
//! bucket as often as it likes. That takes a quarter of a histogram's memory, is added to and copied
//! without looking anything up, and is added up in an array that stays in a cache.

use fairpath_core::{INSIDE, OUTSIDE, bucket_middle};

use crate::Histogram;

const COUNT_BITS: u32 = 21;
const MOST_IN_A_WORD: u64 = (1 << COUNT_BITS) - 1;
/// Places of a word: bucket and leg, the leg in the lowest bit.
const PLACES: usize = 1 << (u32::BITS - COUNT_BITS);

/// Adds `count` round-trip times of a bucket to a distribution.
pub(super) fn pack(words: &mut Vec<u32>, bucket: u16, leg: usize, count: u64) {
    let place = (u32::from(bucket) << 1 | leg as u32) << COUNT_BITS;
    let mut left = count;
    while left > 0 {
        let part = left.min(MOST_IN_A_WORD);
        words.push(place | part as u32);
        left -= part;
    }
}

/// Distributions of both legs in a plain array.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// By place.
    counts: Vec<u64>,
    /// Places used: from, to (exclusive), both even.
    used: (usize, usize),
    /// By leg.
    all: [u64; 2],
}

impl Default for Sums {
    fn default() -> Sums {
        Sums {
            counts: vec![0; PLACES],
            used: (0, 0),
            all: [0; 2],
        }
    }
}

impl Sums {
    /// Empty again.
    pub fn clear(&mut self) {
        self.counts[self.used.0..self.used.1].fill(0);
        (self.used, self.all) = Default::default();
    }

    /// Puts a sum on the pad, instead of what is there. O(words + buckets between the outermost).
    pub fn set<'a>(&mut self, words: impl IntoIterator<Item = &'a u32>) {
        self.clear();
        let (mut from, mut to) = (PLACES - 2, 0);
        for word in words {
            let place = (word >> COUNT_BITS) as usize;
            self.counts[place] += u64::from(*word) & MOST_IN_A_WORD;
            (from, to) = (from.min(place), to.max(place));
        }
        if from <= to {
            self.used = (from & !1, (to | 1) + 1);
        }
        for pair in self.counts[self.used.0..self.used.1].chunks_exact(2) {
            self.all[INSIDE] += pair[INSIDE];
            self.all[OUTSIDE] += pair[OUTSIDE];
        }
    }

    /// How many round-trip times a leg has.
    pub fn count(&self, leg: usize) -> u64 {
        self.all[leg]
    }

    /// As [`Histogram::quantile`].
    pub fn quantile(&self, leg: usize, q: f64) -> Option<u64> {
        let rank = ((q * self.all[leg] as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let mut buckets = self.buckets(leg);
        let at = buckets.find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        at.map(|(bucket, _)| bucket_middle(bucket))
    }

    /// The buckets of a leg and their counts, by bucket; some are 0.
    pub fn buckets(&self, leg: usize) -> impl Iterator<Item = (u16, u64)> {
        let (from, to) = self.used;
        let pairs = self.counts[from..to].chunks_exact(2).enumerate();
        pairs.map(move |(at, pair)| ((from / 2 + at) as u16, pair[leg]))
    }

    /// As histograms, by leg.
    pub fn histograms(&self) -> [Histogram; 2] {
        [INSIDE, OUTSIDE].map(|leg| {
            let mut histogram = Histogram::default();
            for (bucket, count) in self.buckets(leg) {
                histogram.add(bucket, count);
            }
            histogram
        })
    }

    /// Packs what is on the pad, each bucket once, in place of what is in `words`.
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
    fn distributions_survive_packing_whatever_their_counts() {
        let mut spread = <[Histogram; 2]>::default();
        let mut words = Vec::new();
        for (bucket, leg, count) in [
            (735, OUTSIDE, 1),
            (735, INSIDE, MOST_IN_A_WORD * 3 + 5),
            (0, INSIDE, 1),
            (300, INSIDE, 7),
            (735, INSIDE, MOST_IN_A_WORD),
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
