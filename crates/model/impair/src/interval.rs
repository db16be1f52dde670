//! The exact interval of a share of losses (Clopper and Pearson, Biometrika 26, 1934).
//!
//! For `lost` of `arrived` packets, the interval contains every probability that is compatible with this
//! number. Bursty losses count as fewer packets: a mean of correlated draws varies like one
//! of `arrived / inflation` independent ones, and the interval is made for these. Pure.

use fairpath_statistics::binomial::share_bounds;

/// The probability outside of the interval, both sides together: one run in a thousand.
pub const OUTSIDE: f64 = 0.001;

/// The interval of the probability of a loss, with an error in [`OUTSIDE`] of all runs.
///
/// `inflation` is the variance of the share over that of independent losses, 1 or more. Without
/// packets nothing is known: (0, 1).
pub fn of_share(lost: u64, arrived: u64, inflation: f64) -> (f64, f64) {
    of_share_but(OUTSIDE, lost, arrived, inflation)
}

/// The same, with an error in `outside` of all runs.
pub fn of_share_but(outside: f64, lost: u64, arrived: u64, inflation: f64) -> (f64, f64) {
    let (lost, arrived) = (lost as f64 / inflation, arrived as f64 / inflation);
    share_bounds(lost, arrived, outside).unwrap_or((0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_without_packets() {
        assert_eq!(of_share(0, 0, 1.0), (0.0, 1.0));
        let (low, high) = of_share(10, 1000, 1.0);
        assert!(low > 0.002 && low < 0.01 && high > 0.01 && high < 0.03);
    }

    #[test]
    fn bursts_widen_intervals_by_root_of_their_inflation() {
        let width = |inflation| {
            let (low, high) = of_share(50_000, 1_000_000, inflation);
            high - low
        };
        assert!((width(9.0) / width(1.0) - 3.0).abs() < 0.05);
    }
}
