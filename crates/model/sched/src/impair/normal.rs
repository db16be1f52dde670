//! The normal distribution and its tables for the core.
//!
//! The distribution function uses Marsaglia's series (Evaluating the Normal Distribution, JSS 2004)
//! near the middle, and Laplace's continued fraction elsewhere. Quantiles use Newton's method.

use std::sync::OnceLock;

use fairpath_core::sched::{TABLE_PARTS, Z_MOST, Z_SHIFT};

/// Above this value the continued fraction is exact with few terms.
const FAR: f64 = 3.0;
/// Terms of the continued fraction.
const TERMS: u32 = 60;
/// Steps of Newton's method. Each doubles the number of exact digits.
const STEPS: u32 = 12;
/// The end of the last part of the normal table. About one draw in 10^9 is near it.
const LAST_Z: f64 = 6.0;

fn density(z: f64) -> f64 {
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The probability of a normal number above `z`.
pub(super) fn above(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - above(-z);
    }
    if z > FAR {
        let fraction = (1..=TERMS)
            .rev()
            .fold(z, |rest, term| z + f64::from(term) / rest);
        return density(z) / fraction;
    }
    let (mut sum, mut term, mut odd) = (z, z, 1.0);
    while term > sum * f64::EPSILON / 2.0 {
        odd += 2.0;
        term *= z * z / odd;
        sum += term;
    }
    0.5 - sum * density(z)
}

/// The number that a share of normal numbers exceeds. The share is at most one half, and `from` is a
/// lower starting value.
fn quantile(share: f64, from: f64) -> f64 {
    (0..STEPS).fold(from, |z, _| z + (above(z) - share) / density(z))
}

/// Normal numbers by draw: a table of the upper half, and a finer table of its last part.
pub(super) fn table() -> &'static [u64] {
    static TABLE: OnceLock<Vec<u64>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let parts = TABLE_PARTS as f64;
        let mut table = Vec::with_capacity(2 * (TABLE_PARTS + 1));
        let mut from = 0.0;
        for min in [0.5, 0.5 / parts] {
            for entry in 0..=TABLE_PARTS {
                let share = min * (1.0 - entry as f64 / parts);
                from = match entry {
                    TABLE_PARTS => LAST_Z,
                    _ => quantile(share, from),
                };
                let fixed = from * f64::from(1u32 << Z_SHIFT);
                table.push(fixed.round() as i64 as u64);
            }
            // The last part begins at the second to last entry of the first table.
            from = quantile(0.5 / parts, 0.0);
        }
        table
    })
}

/// The value z of each entry of a table of deviations.
pub(super) fn entries() -> impl Iterator<Item = f64> {
    let width = 2.0 * Z_MOST / TABLE_PARTS as f64;
    (0..=TABLE_PARTS).map(move |entry| entry as f64 * width - Z_MOST)
}

/// The mean of a constant delay and deviations by z. Negative delays count as 0.
pub(super) fn mean_of_delay(standing: u64, deviations: &[f64]) -> f64 {
    if deviations.is_empty() {
        return standing as f64;
    }
    over_parts(standing, deviations, |from, to| (from + to) / 2.0)
}

/// The standard deviation of the same.
pub(super) fn deviation_of_delay(standing: u64, deviations: &[f64]) -> f64 {
    if deviations.is_empty() {
        return 0.0;
    }
    let mean = mean_of_delay(standing, deviations);
    // The mean square of what rises evenly between two values.
    let square = |from: f64, to: f64| {
        let (from, to) = (from - mean, to - mean);
        (from * from + from * to + to * to) / 3.0
    };
    over_parts(standing, deviations, square).max(0.0).sqrt()
}

/// The sum over the parts between entries, each with its probability.
fn over_parts(standing: u64, deviations: &[f64], of: impl Fn(f64, f64) -> f64) -> f64 {
    let delay = |deviation: f64| (standing as f64 + deviation).max(0.0);
    let bounds: Vec<f64> = entries().map(above).collect();
    let parts = bounds.windows(2).zip(deviations.windows(2));
    parts
        .map(|(bound, ends)| (bound[0] - bound[1]) * of(delay(ends[0]), delay(ends[1])))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_match_published_tables() {
        // Abramowitz and Stegun, tables 26.1 and 26.2.
        for (z, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457),
            (2.0, 0.022_750_131_948_179),
            (3.0, 0.001_349_898_031_630),
            (4.0, 3.167_124_183_311_998e-5),
            (5.0, 2.866_515_719e-7),
        ] {
            let error = (above(z) - tail).abs() / tail;
            assert!(error < 1e-9, "{z}: {error}");
        }
        assert!((above(-1.0) - 0.841_344_746_068_543).abs() < 1e-12);
    }

    #[test]
    fn draw_table_preserves_shares() {
        let table = table();
        let z = |entry: usize| table[entry] as i64 as f64 / f64::from(1u32 << Z_SHIFT);
        assert_eq!(table.len(), 2 * (TABLE_PARTS + 1));
        assert_eq!(z(0), 0.0);
        for entry in [1, 512, 1000, 1023] {
            let share = 0.5 * (1.0 - entry as f64 / 1024.0);
            assert!((above(z(entry)) - share).abs() < 1e-7, "{entry}");
        }
        assert!((z(1025) - z(1023)).abs() < 1e-7);
        assert!(table.windows(2).filter(|pair| pair[1] < pair[0]).count() == 1);
    }
}
