//! Distributions of round-trip times in the core's buckets.

use std::cmp::Ordering;

pub use fairpath_core::bucket_middle;
use fairpath_core::{BUCKETS, bucket_of};
use serde::{Deserialize, Serialize};

/// A sparse histogram: (bucket, count), sorted by bucket, without zero counts.
///
/// Its size is the number of used buckets, at most [`BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram {
    counts: Vec<(u16, u64)>,
}

impl Histogram {
    /// Adds `count` samples to a bucket. Ignores buckets that do not exist.
    pub fn add(&mut self, bucket: u16, count: u64) {
        if count == 0 || usize::from(bucket) >= BUCKETS {
            return;
        }
        if self.counts.last().is_none_or(|(last, _)| *last < bucket) {
            return self.counts.push((bucket, count));
        }
        match self.counts.binary_search_by_key(&bucket, |(b, _)| *b) {
            Ok(at) => self.counts[at].1 += count,
            Err(at) => self.counts.insert(at, (bucket, count)),
        }
    }

    /// Adds buckets that are sorted. O(buckets of both) if it has them already.
    pub(crate) fn add_sorted(&mut self, buckets: impl Iterator<Item = (u16, u64)>) {
        let mut at = 0;
        for (bucket, count) in buckets.filter(|(_, count)| *count > 0) {
            while self.counts.get(at).is_some_and(|(b, _)| *b < bucket) {
                at += 1;
            }
            match self.counts.get_mut(at) {
                Some((there, sum)) if *there == bucket => *sum += count,
                _ => self.counts.insert(at, (bucket, count)),
            }
        }
    }

    /// Adds one sample.
    pub fn record(&mut self, rtt_ns: u64) {
        self.add(bucket_of(rtt_ns), 1);
    }

    /// True if it has samples in a bucket.
    pub fn has(&self, bucket: u16) -> bool {
        let counts = &self.counts;
        counts.binary_search_by_key(&bucket, |(b, _)| *b).is_ok()
    }

    /// Adds all of another histogram. O(buckets of both).
    pub fn merge(&mut self, other: &Histogram) {
        let mut merged = Vec::with_capacity(self.counts.len().max(other.counts.len()));
        let (mut mine, mut its) = (
            self.counts.iter().peekable(),
            other.counts.iter().peekable(),
        );
        while let (Some((a, n)), Some((b, m))) = (mine.peek(), its.peek()) {
            match a.cmp(b) {
                Ordering::Less => merged.extend(mine.next()),
                Ordering::Greater => merged.extend(its.next()),
                Ordering::Equal => {
                    merged.push((*a, n + m));
                    mine.next();
                    its.next();
                }
            }
        }
        merged.extend(mine.chain(its));
        self.counts = merged;
    }

    /// Subtracts the counts of another histogram, down to 0.
    pub fn subtract(&mut self, other: &Histogram) {
        for (bucket, count) in &other.counts {
            if let Ok(at) = self.counts.binary_search_by_key(bucket, |(b, _)| *b) {
                self.counts[at].1 = self.counts[at].1.saturating_sub(*count);
            }
        }
        self.counts.retain(|(_, count)| *count > 0);
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// True if it has no samples.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// The used buckets and their counts, sorted by bucket.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.counts.iter().copied()
    }

    /// The RTT that a fraction `q` (0 to 1) of the samples do not exceed, nanoseconds.
    ///
    /// It is the middle of a bucket, with an error of at most 1.6 %. `None` without samples.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((q * self.count() as f64).ceil() as u64).max(1);
        let mut counted = 0;
        for (bucket, count) in &self.counts {
            counted += count;
            if counted >= rank {
                return Some(bucket_middle(*bucket));
            }
        }
        self.counts.last().map(|(bucket, _)| bucket_middle(*bucket))
    }

    /// Number of samples in the buckets up to that of `rtt_ns`.
    pub fn count_up_to(&self, rtt_ns: u64) -> u64 {
        let last = bucket_of(rtt_ns);
        let below = self.counts.iter().take_while(|(bucket, _)| *bucket <= last);
        below.map(|(_, count)| count).sum()
    }

    /// Mean of the middles of buckets, nanoseconds.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        let sum: f64 = self
            .counts
            .iter()
            .map(|(bucket, n)| bucket_middle(*bucket) as f64 * *n as f64)
            .sum();
        (count > 0).then(|| sum / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_1_6_percent() {
        let mut values: Vec<u64> = (1..5000u64)
            .map(|i| 12_000 + i * i * i % 9_000_000_000)
            .collect();
        let mut histogram = Histogram::default();
        for value in &values {
            histogram.record(*value);
        }
        values.sort_unstable();
        for q in [0.01, 0.25, 0.5, 0.95, 0.99, 1.0] {
            let exact = values[((q * values.len() as f64).ceil() as usize).max(1) - 1] as f64;
            let value = histogram.quantile(q).unwrap() as f64;
            assert!((value / exact - 1.0).abs() <= 0.016, "{q}: {value} {exact}");
        }
    }

    #[test]
    fn subtract_reverses_merge() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record(20_000);
        b.record(20_000);
        b.record(70_000_000);
        let before = a.clone();
        a.merge(&b);
        assert_eq!(a.count(), 3);
        a.subtract(&b);
        assert_eq!(a, before);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
