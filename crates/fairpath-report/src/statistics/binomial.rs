//! The share behind counts: Clopper and Pearson's interval (Biometrika 26, 1934).

use crate::statistics::special::beta;
use crate::statistics::{Interval, Method};

/// Halvings that end the search: 2^-60 is below the steps of a f64 near one.
const HALVINGS: usize = 60;

/// P(X <= k) of n draws with probability p.
pub fn at_most(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    beta(1.0 - p, (n - k) as f64, k as f64 + 1.0)
}

/// The interval of the share of which `hits` of `trials` were drawn, at least at `confidence`.
///
/// `None` without trials or with more hits than trials.
pub fn share_interval(hits: u64, trials: u64, confidence: f64) -> Option<Interval> {
    if trials == 0 || hits > trials {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let low = match hits {
        0 => 0.0,
        // The share at which this many or more is as rare as the tail.
        _ => search(|p| 1.0 - at_most(hits - 1, trials, p) < tail),
    };
    let high = match hits {
        all if all == trials => 1.0,
        _ => search(|p| at_most(hits, trials, p) > tail),
    };
    Some(Interval {
        low,
        high,
        confidence,
        method: Method::Binomial,
    })
}

/// The place in 0..1 up to which a condition holds.
fn search(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (low + high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_agree_with_scipys_exact_ones() {
        // scipy: stats.binomtest(k, n).proportion_ci(c, 'exact').
        for (hits, trials, confidence, low, high) in [
            (0, 10, 0.95, 0.0, 0.308_497_107_8),
            (10, 10, 0.95, 0.691_502_892_2, 1.0),
            (3, 10, 0.95, 0.066_739_511_2, 0.652_452_850_1),
            (3, 10, 0.999, 0.016_566_615_0, 0.816_394_377_0),
            (1000, 100_000, 0.95, 0.009_392_556_09, 0.010_636_111_53),
            (1000, 100_000, 0.999, 0.008_996_586_33, 0.011_077_920_23),
        ] {
            let interval = share_interval(hits, trials, confidence).unwrap();
            assert!(
                (interval.low - low).abs() < 1e-9,
                "{hits}/{trials}: {interval:?}"
            );
            assert!(
                (interval.high - high).abs() < 1e-9,
                "{hits}/{trials}: {interval:?}"
            );
        }
        assert_eq!(share_interval(0, 0, 0.95), None);
        assert_eq!(share_interval(2, 1, 0.95), None);
    }

    #[test]
    fn tails_are_those_of_coins() {
        assert!((at_most(1, 3, 0.5) - 0.5).abs() < 1e-12);
        assert!((at_most(0, 3, 0.5) - 0.125).abs() < 1e-12);
        assert!((at_most(3, 3, 0.5) - 1.0).abs() < 1e-12);
    }
}
