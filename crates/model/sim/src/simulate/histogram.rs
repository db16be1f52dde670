//! A log-linear histogram of times with 32 steps per octave. A quantile is at most 3 % too large.
//!
//! It takes 5 kB, and one addition per value. The maximum is exact.

/// Steps per octave, as a power of two.
const STEPS_SHIFT: u32 = 5;
const STEPS: u64 = 1 << STEPS_SHIFT;
/// Values of at least 2^41 ns (36 minutes) share one bucket.
const OCTAVES: u64 = 41 - STEPS_SHIFT as u64 + 1;
const BUCKETS: usize = (OCTAVES * STEPS) as usize;

/// Counts of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    count: u64,
    sum: u128,
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            sum: 0,
            largest: 0,
        }
    }
}

#[inline]
fn bucket(value: u64) -> usize {
    let octave = (64 - STEPS_SHIFT).saturating_sub((value | 1).leading_zeros() + 1);
    let octave = u64::from(octave);
    let place = octave * STEPS + (value >> octave);
    (place as usize).min(BUCKETS - 1)
}

/// The maximum value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket.checked_sub(2 * STEPS) {
        None => bucket,
        Some(_) => {
            let octave = bucket / STEPS - 1;
            let step = bucket % STEPS + STEPS;
            ((step + 1) << octave) - 1
        }
    }
}

impl Histogram {
    /// Bytes of the counts.
    pub const BYTES: u64 = (BUCKETS * size_of::<u32>()) as u64;

    /// Counts a value. O(1).
    #[inline]
    pub fn record(&mut self, value: u64) {
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(1);
        self.count += 1;
        self.sum += u128::from(value);
        self.largest = self.largest.max(value);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact maximum, or 0 without values.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The mean, rounded down, or 0 without values.
    pub fn mean(&self) -> u64 {
        (self.sum / u128::from(self.count.max(1))) as u64
    }

    /// The quantile, at most 3 % too large. O(buckets).
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return upper(bucket).min(self.largest);
            }
        }
        self.largest
    }

    /// Adds another histogram. O(buckets).
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count = count.saturating_add(*more);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.largest = self.largest.max(other.largest);
    }

    /// The cumulative distribution: values, and the share of values that do not exceed each.
    pub fn distribution(&self) -> Vec<(u64, f64)> {
        let mut seen = 0;
        let mut steps = Vec::new();
        for (bucket, count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            seen += u64::from(*count);
            steps.push((
                upper(bucket).min(self.largest),
                seen as f64 / self.count as f64,
            ));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_statistics::Random;

    #[test]
    fn bucket_bounds_exceed_values_by_under_3_percent() {
        let mut random = Random::new(3);
        let edges = (0..41).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let drawn: Vec<u64> = (0..10_000)
            .map(|_| random.draw() >> (23 + random.below(41)))
            .collect();
        for value in edges.chain(drawn).filter(|value| *value < 1 << 41) {
            let end = upper(bucket(value));
            assert!(end >= value && end - value <= value / 32, "{value} {end}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_exact_within_3_percent() {
        let mut random = Random::new(5);
        let mut values: Vec<u64> = (0..20_000).map(|_| random.exponential(1_000_000)).collect();
        let (mut whole, mut half) = (Histogram::default(), Histogram::default());
        for (at, value) in values.iter().enumerate() {
            let part = if at % 2 == 0 { &mut whole } else { &mut half };
            part.record(*value);
        }
        whole.merge(&half);
        values.sort_unstable();
        for share in [0.01, 0.5, 0.95, 0.99, 1.0] {
            let exact = values[((share * 20_000.0) as usize).max(1) - 1];
            let reported = whole.quantile(share);
            assert!(
                reported >= exact && reported - exact <= exact / 32,
                "{share}: {reported} {exact}"
            );
        }
        assert_eq!((whole.count(), whole.largest()), (20_000, values[19_999]));
        assert_eq!(whole.distribution().last(), Some(&(values[19_999], 1.0)));
    }
}
