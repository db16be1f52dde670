//! The share behind counts: Clopper and Pearson's interval (Biometrika 26, 1934).

pub use fairpath_statistics::binomial::at_most;
use fairpath_statistics::binomial::share_bounds;

use crate::statistics::{Interval, Method};

/// The interval of the share of which `hits` of `trials` were drawn, at least at `confidence`.
///
/// `None` without trials or with more hits than trials.
pub fn share_interval(hits: u64, trials: u64, confidence: f64) -> Option<Interval> {
    let (low, high) = share_bounds(hits as f64, trials as f64, 1.0 - confidence)?;
    Some(Interval {
        low,
        high,
        confidence,
        method: Method::Binomial,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_requested_confidence() {
        // scipy: stats.binomtest(3, 10).proportion_ci(0.95, 'exact').
        let interval = share_interval(3, 10, 0.95).unwrap();
        assert!((interval.low - 0.066_739_511_2).abs() < 1e-9);
        assert!((interval.high - 0.652_452_850_1).abs() < 1e-9);
        assert_eq!(
            (interval.confidence, interval.method),
            (0.95, Method::Binomial)
        );
        assert_eq!(share_interval(2, 1, 0.95), None);
    }
}
