//! The median and its interval.
//!
//! Few samples: order statistics x(k) and x(n+1-k) hold the median with probability
//! 1 - 2 P(Bin(n, 1/2) < k), whatever the distribution (Conover, Practical Nonparametric Statistics,
//! 3.2). Many: the percentile bootstrap (Efron, 1979), whose ends are at or between order statistics. The
//! stated confidence is that of the order statistics inside, so it is never above the achieved one.

use crate::statistics::binomial::at_most;
use crate::statistics::bootstrap::{Draws, RESAMPLES};
use crate::statistics::quantile::{of_sorted, sorted};
use crate::statistics::{Estimate, Interval, Method};

/// Below this many samples intervals are made of order statistics, not of resamples.
pub const FEW: usize = 8;

/// The median with an interval at `confidence` (0.95), or at what so few samples can give.
///
/// `None` without finite samples; no interval for a single one. The same seed gives the same interval.
/// O(n * [`RESAMPLES`]).
pub fn median_with_interval(samples: &[f64], confidence: f64, seed: u64) -> Option<Estimate> {
    let sorted = sorted(samples);
    let interval = match sorted.len() {
        0 | 1 => None,
        few if few < FEW => order_interval(&sorted, confidence),
        _ => bootstrap_interval(&sorted, confidence, seed),
    };
    Some(Estimate {
        value: of_sorted(&sorted, 0.5)?,
        interval,
        samples: sorted.len(),
    })
}

/// The narrowest symmetric pair of order statistics that reaches `confidence`, or the widest there is.
fn order_interval(sorted: &[f64], confidence: f64) -> Option<Interval> {
    let n = sorted.len();
    let reached = |k: usize| order_confidence(n, k, n + 1 - k);
    // A hair less, so that a confidence computed as 0.7499999 is 0.75.
    let enough = |k: &usize| reached(*k) >= confidence - 1e-12;
    let k = (1..=n / 2).rev().find(enough).unwrap_or(1);
    Some(Interval {
        low: *sorted.get(k - 1)?,
        high: *sorted.get(n - k)?,
        confidence: reached(k),
        method: Method::OrderStatistics,
    })
}

/// The probability that the median lies between x(low) and x(high), counted from 1.
fn order_confidence(n: usize, low: usize, high: usize) -> f64 {
    if low >= high {
        return 0.0;
    }
    let below = |k: usize| match k {
        0 => 0.0,
        k => at_most(k as u64 - 1, n as u64, 0.5),
    };
    below(high) - below(low)
}

fn bootstrap_interval(sorted: &[f64], confidence: f64, seed: u64) -> Option<Interval> {
    let mut draws = Draws::new(seed);
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| draws.median(sorted)).collect();
    medians.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - confidence) / 2.0;
    let low = of_sorted(&medians, tail)?;
    let high = of_sorted(&medians, 1.0 - tail)?;
    let first_inside = sorted.partition_point(|x| *x < low) + 1;
    let last_inside = sorted.partition_point(|x| *x <= high);
    let reached = order_confidence(sorted.len(), first_inside, last_inside);
    Some(Interval {
        low,
        high,
        confidence: reached.min(confidence),
        method: Method::Bootstrap,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(n: u32) -> Interval {
        let samples: Vec<f64> = (1..=n).map(f64::from).collect();
        let estimate = median_with_interval(&samples, 0.95, 7).unwrap();
        estimate.interval.unwrap()
    }

    #[test]
    fn few_samples_have_their_actual_confidence() {
        // 1 - 2^(1-n) for least and largest; the tables of Conover (A3) for the rest.
        for (n, low, high, confidence) in [
            (2, 1.0, 2.0, 0.5),
            (3, 1.0, 3.0, 0.75),
            (4, 1.0, 4.0, 0.875),
            (5, 1.0, 5.0, 0.9375),
            (6, 1.0, 6.0, 0.968_75),
            (7, 1.0, 7.0, 0.984_375),
        ] {
            let found = interval(n);
            assert_eq!((found.low, found.high), (low, high), "n = {n}");
            assert!((found.confidence - confidence).abs() < 1e-12, "{found:?}");
            assert_eq!(found.method, Method::OrderStatistics);
        }
    }

    #[test]
    fn a_lower_confidence_gives_a_narrower_pair() {
        let samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let estimate = median_with_interval(&samples, 0.85, 7).unwrap();
        let found = estimate.interval.unwrap();
        assert_eq!((found.low, found.high), (2.0, 6.0));
        assert!((found.confidence - 0.875).abs() < 1e-12);
    }

    #[test]
    fn a_single_sample_has_no_interval() {
        let one = median_with_interval(&[5.0, f64::NAN], 0.95, 1).unwrap();
        assert_eq!((one.value, one.interval, one.samples), (5.0, None, 1));
        assert_eq!(median_with_interval(&[], 0.95, 1), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_bootstrap() {
        let samples: Vec<f64> = (0..20).map(|i| f64::from(i * i % 17)).collect();
        let with = |seed| median_with_interval(&samples, 0.95, seed);
        assert_eq!(with(3), with(3));
        let found = with(3).unwrap();
        assert!(found.interval.unwrap().holds(found.value));
    }

    /// A sample of a distribution from two uniform numbers.
    type Shape = fn(f64, f64) -> f64;

    /// Box and Muller (1958).
    fn normal(u: f64, v: f64) -> f64 {
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn exponential(u: f64, _: f64) -> f64 {
        -u.ln()
    }

    /// Stated confidence against the share of intervals that contain the median of known distributions.
    #[test]
    fn intervals_contain_the_median_as_often_as_stated() {
        let shapes: [(Shape, f64); 2] = [(normal, 0.0), (exponential, std::f64::consts::LN_2)];
        for (shape, median) in shapes {
            for n in [3, 5, 10] {
                let (held, reported) = coverage(shape, median, n);
                // 300 trials: a standard deviation of 0.013 near 0.95, 0.025 near 0.75.
                assert!(
                    held > reported - 0.06,
                    "n = {n}: achieved {held}, stated {reported}"
                );
                assert!(n >= 6 || reported < 0.95, "n = {n} stated {reported}");
            }
        }
    }

    /// Share of intervals that contain the median, and their mean stated confidence.
    fn coverage(shape: Shape, median: f64, n: usize) -> (f64, f64) {
        const TRIALS: u64 = 300;
        let mut place = 0_u64;
        let mut uniform = || {
            place += 1;
            let wide = crate::statistics::bootstrap::number(42, place);
            (wide as f64 + 0.5) / 2.0_f64.powi(64)
        };
        let (mut held, mut reported) = (0.0, 0.0);
        for seed in 0..TRIALS {
            let samples: Vec<f64> = (0..n).map(|_| shape(uniform(), uniform())).collect();
            let estimate = median_with_interval(&samples, 0.95, seed).unwrap();
            let interval = estimate.interval.unwrap();
            held += f64::from(u8::from(interval.holds(median)));
            reported += interval.confidence;
        }
        (held / TRIALS as f64, reported / TRIALS as f64)
    }
}
