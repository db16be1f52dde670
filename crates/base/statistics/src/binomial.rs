//! The share behind counts: Clopper and Pearson's interval (Biometrika 26, 1934).

use crate::special::beta;

/// Halvings that end the search: 2^-60 is below the steps of a f64 near one.
const HALVINGS: usize = 60;

/// P(X <= k) of n draws with probability p.
pub fn at_most(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    beta(1.0 - p, (n - k) as f64, k as f64 + 1.0)
}

/// The shares that fit this number of hits, except in `outside` of all cases, both sides together.
///
/// Counts need not be whole: of correlated draws, as many are counted as independent ones would say the
/// same, and the beta distribution is continuous. `None` without trials or with more hits than trials.
pub fn share_bounds(hits: f64, trials: f64, outside: f64) -> Option<(f64, f64)> {
    let misses = trials - hits;
    if trials <= 0.0 || hits < 0.0 || misses < 0.0 {
        return None;
    }
    let tail = outside / 2.0;
    // The share at which this many or more is as rare as the tail.
    let low = match hits > 0.0 {
        true => search(|p| beta(p, hits, misses + 1.0) < tail),
        false => 0.0,
    };
    let high = match misses > 0.0 {
        true => search(|p| beta(1.0 - p, misses, hits + 1.0) > tail),
        false => 1.0,
    };
    Some((low, high))
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
    use crate::special::ln_gamma;

    #[test]
    fn intervals_agree_with_scipys_exact_ones() {
        // scipy: stats.binomtest(k, n).proportion_ci(c, 'exact').
        for (hits, trials, confidence, low, high) in [
            (0_u32, 10_u32, 0.95, 0.0, 0.308_497_107_8),
            (10, 10, 0.95, 0.691_502_892_2, 1.0),
            (3, 10, 0.95, 0.066_739_511_2, 0.652_452_850_1),
            (3, 10, 0.999, 0.016_566_615_0, 0.816_394_377_0),
            (1000, 100_000, 0.95, 0.009_392_556_09, 0.010_636_111_53),
            (1000, 100_000, 0.999, 0.008_996_586_33, 0.011_077_920_23),
        ] {
            let reported = share_bounds(hits.into(), trials.into(), 1.0 - confidence).unwrap();
            let is_near = |value: f64, wanted: f64| (value - wanted).abs() < 1e-9;
            assert!(
                is_near(reported.0, low) && is_near(reported.1, high),
                "{hits}/{trials}: {reported:?}"
            );
        }
        assert_eq!(share_bounds(0.0, 0.0, 0.05), None);
        assert_eq!(share_bounds(2.0, 1.0, 0.05), None);
    }

    #[test]
    fn interval_without_hits_is_known_in_closed_form() {
        let (low, high) = share_bounds(0.0, 1000.0, 0.001).unwrap();
        assert_eq!(low, 0.0);
        assert!((high - (1.0 - 0.0005_f64.powf(1.0 / 1000.0))).abs() < 1e-9);
        assert_eq!(share_bounds(1000.0, 1000.0, 0.001).unwrap().1, 1.0);
    }

    #[test]
    fn the_ends_leave_their_tails_outside() {
        // By summing the binomial itself: 7 of 50.
        let (low, high) = share_bounds(7.0, 50.0, 0.001).unwrap();
        let sum = |p: f64, from: u64, to: u64| -> f64 {
            let term = |k: u64| {
                let (n, k) = (50.0, k as f64);
                let combinations = ln_gamma(n + 1.0) - ln_gamma(k + 1.0) - ln_gamma(n - k + 1.0);
                (combinations + k * p.ln() + (n - k) * (1.0 - p).ln()).exp()
            };
            (from..=to).map(term).sum()
        };
        assert!((sum(low, 7, 50) - 0.0005).abs() < 1e-9);
        assert!((sum(high, 0, 7) - 0.0005).abs() < 1e-9);
    }

    #[test]
    fn large_counts_agree_with_the_normal_distribution() {
        // 99.9 % of a normal distribution are within 3.2905 deviations. A long run's worth of packets.
        for trials in [1e6, 4e9] {
            let (low, high) = share_bounds(0.01 * trials, trials, 0.001).unwrap();
            let deviation = (0.01 * 0.99 / trials).sqrt();
            for (end, side) in [(low, -1.0), (high, 1.0)] {
                let wanted = 0.01 + side * 3.2905 * deviation;
                assert!((end - wanted).abs() < 0.06 * deviation, "{end} {wanted}");
            }
        }
    }

    #[test]
    fn tails_are_those_of_coins() {
        assert!((at_most(1, 3, 0.5) - 0.5).abs() < 1e-12);
        assert!((at_most(0, 3, 0.5) - 0.125).abs() < 1e-12);
        assert!((at_most(3, 3, 0.5) - 1.0).abs() < 1e-12);
    }
}
