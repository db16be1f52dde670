//! Statistics of few and of many repeats, with the confidence that they really have.
//!
//! Repeats of an experiment are few (3 to 10), skewed and without a known distribution. So the centre is
//! the median, and an interval of few samples is made of order statistics, whose confidence is exact
//! and printed: of three samples no interval reaches more than 75 %.
//!
//! Own code and not `statrs`: these are five functions; what others need, too, is `fairpath-statistics`.

pub mod binomial;
mod bootstrap;
pub mod compare;
pub mod fit;
pub mod median;
pub mod quantile;

use serde::{Deserialize, Serialize};

pub use bootstrap::RESAMPLES;
pub use compare::{Comparison, Verdict, compare};
pub use median::{FEW, median_with_interval};
pub use quantile::{mean, median, quantile, standard_deviation};

/// An interval for an unknown value, with the confidence that it really has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The probability that such an interval holds the value: 0.75, 0.95.
    pub confidence: f64,
    /// The method.
    pub method: Method,
}

/// The basis of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Order statistics; the confidence is exact (at least) for any continuous distribution.
    OrderStatistics,
    /// Percentile bootstrap; the confidence is nominal.
    Bootstrap,
    /// Order statistics of all pairwise differences (Hodges and Lehmann, 1963); exact if both have the
    /// same shape.
    RankSum,
    /// Clopper and Pearson; at least this confidence for any share.
    Binomial,
}

/// A value, its interval if there is one, and how many samples it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// None for a single sample.
    pub interval: Option<Interval>,
    /// The number of samples.
    pub samples: usize,
}

impl Interval {
    /// True if a value is in it, ends included.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// "75 %", "99.9 %": rounded down, never up.
    pub fn percent(&self) -> String {
        // A hair more, so that 0.75 computed as 0.7499999999 is not called 74.9.
        let tenths = (self.confidence * 1000.0 + 1e-6).floor() / 10.0;
        format!("{}\u{a0}%", crate::number::short(tenths, 3))
    }
}

impl Estimate {
    /// "n = 3, 75 % confidence", or "n = 1".
    pub fn note(&self) -> String {
        match &self.interval {
            Some(interval) => {
                let percent = interval.percent();
                format!("n\u{a0}=\u{a0}{}, {percent} confidence", self.samples)
            }
            None => format!("n\u{a0}=\u{a0}{}", self.samples),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_never_rounded_up() {
        let percent = |confidence| {
            let interval = Interval {
                low: 0.0,
                high: 1.0,
                confidence,
                method: Method::Bootstrap,
            };
            interval.percent()
        };
        assert_eq!(percent(0.75), "75\u{a0}%");
        assert_eq!(percent(0.949_9), "94.9\u{a0}%");
        assert_eq!(percent(0.999), "99.9\u{a0}%");
        assert_eq!(percent(0.875), "87.5\u{a0}%");
        assert_eq!(percent(0.999_99), "99.9\u{a0}%");
    }
}
