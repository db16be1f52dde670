//! Baselines of round-trip times, and the statistical bounds above them.
//!
//! A baseline is a slow mean, in logarithms, of a quantile of the window. A step or an outlier moves
//! it by a bounded amount. The standard deviation widens the bound for classes whose RTT varies
//! normally.

use serde::{Deserialize, Serialize};

/// Time constant of baselines.
pub const BASELINE_NS: u64 = 3_600_000_000_000;
/// Measured time before a baseline is used.
pub const WARM_UP_NS: u64 = 600_000_000_000;
/// Minimum number of samples in a window for a comparison and for the baseline.
pub const MIN_SAMPLES: u64 = 30;
/// Standard deviations above the baseline that count as normal. A level that
/// lasts for more than 1/16 (1 / 4^2) of the time is normal, however high.
pub const DEVIATIONS: f64 = 4.0;
/// Standard errors between a quantile and its lower bound.
pub const SURE: f64 = 3.0;

/// Maximum factor by which a value counts as distant from the baseline in one step.
const MAX_STEP: f64 = 1.25;
/// Maximum factor of a deviation.
const MAX_DEVIATION: f64 = 4.0;
/// Maximum duration of a step, so that idle time does not count.
const MAX_STEP_NS: u64 = 10_000_000_000;

/// The slow mean of a quantile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// Logarithm of the mean in nanoseconds.
    ln: f64,
    /// Mean square of the distance from it, in the same logarithm.
    variance: f64,
    learnt_ns: u64,
    /// Time and time-weighted sum of squares during an active alert.
    alert_ns: u64,
    alert_squares: f64,
}

impl Baseline {
    /// Adds `rtt_ns`, which lasted for `dt_ns`.
    ///
    /// A plain mean during [`WARM_UP_NS`]. After that, steps are bounded, and after [`BASELINE_NS`] the
    /// mean is exponential.
    pub fn learn(&mut self, rtt_ns: u64, dt_ns: u64) {
        let value = (rtt_ns.max(1) as f64).ln();
        let dt = dt_ns.min(MAX_STEP_NS);
        if self.learnt_ns == 0 {
            self.ln = value;
        }
        self.learnt_ns = self.learnt_ns.saturating_add(dt);
        let share = dt as f64 / self.learnt_ns.clamp(1, BASELINE_NS) as f64;
        let distance = value - self.ln;
        let warm = self.learnt_ns > WARM_UP_NS;
        let step = if warm { MAX_STEP.ln() } else { f64::INFINITY };
        self.ln += share * distance.clamp(-step, step);
        self.variance += share * (square(distance) - self.variance);
    }

    /// Records the distance of `rtt_ns` during an active alert, without moving the baseline.
    pub fn record_during_alert(&mut self, rtt_ns: u64, dt_ns: u64) {
        let dt = dt_ns.min(MAX_STEP_NS);
        self.alert_ns += dt;
        self.alert_squares += square((rtt_ns.max(1) as f64).ln() - self.ln) * dt as f64;
    }

    /// Ends an alert. After an excursion, the recorded distances widen the deviation.
    pub fn resume(&mut self, excursion: bool) {
        let (ns, sum) = (self.alert_ns, self.alert_squares);
        (self.alert_ns, self.alert_squares) = Default::default();
        if excursion && ns > 0 {
            self.learnt_ns = self.learnt_ns.saturating_add(ns);
            let share = ns as f64 / self.learnt_ns.clamp(1, BASELINE_NS).max(ns) as f64;
            self.variance += share * (sum / ns as f64 - self.variance);
        }
    }

    /// The mean, nanoseconds. `None` before the first value.
    pub fn value(&self) -> Option<f64> {
        (self.learnt_ns > 0).then(|| self.ln.exp())
    }

    /// The upper bound of normal values: the baseline plus the largest of `factor`, `floor_ns` and
    /// [`DEVIATIONS`]. `None` during [`WARM_UP_NS`].
    pub fn bound(&self, factor: f64, floor_ns: u64) -> Option<f64> {
        let value = self.value().filter(|_| self.learnt_ns >= WARM_UP_NS)?;
        let wide = (DEVIATIONS * self.variance.sqrt()).exp();
        Some((value * factor.max(wide)).max(value + floor_ns as f64))
    }
}

/// The square of a logarithmic distance, limited to [`MAX_DEVIATION`].
fn square(distance: f64) -> f64 {
    distance.abs().min(MAX_DEVIATION.ln()).powi(2)
}

/// A quantile of a window, and its lower confidence bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub value: u64,
    /// The quantile [`SURE`] standard errors lower in rank (normal approximation of the binomial).
    pub at_least: u64,
}

/// Median and 95th percentile of `count` samples. `None` for fewer than [`MIN_SAMPLES`].
pub(super) fn judge(count: u64, quantile: impl Fn(f64) -> Option<u64>) -> Option<[Judged; 2]> {
    (count >= MIN_SAMPLES).then(|| {
        [0.5, 0.95].map(|q: f64| Judged {
            value: quantile(q).unwrap_or_default(),
            at_least: {
                let error = SURE * (q * (1.0 - q) / count as f64).sqrt();
                quantile(q - error).unwrap_or_default()
            },
        })
    })
}

/// The lower bound of a ratio with [`SURE`] standard errors (Wilson's score interval).
pub(super) fn share_at_least(lost: u64, of: u64) -> f64 {
    if of == 0 {
        return 0.0;
    }
    let (n, p) = (of as f64, (lost as f64 / of as f64).min(1.0));
    let z2 = SURE * SURE;
    let centre = p + z2 / (2.0 * n);
    let spread = SURE * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    ((centre - spread) / (1.0 + z2 / n)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    #[test]
    fn a_baseline_adapts_quickly_then_slowly() {
        let mut baseline = Baseline::default();
        baseline.learn(500 * MS, SECOND);
        for _ in 0..600 {
            baseline.learn(20 * MS, SECOND);
        }
        let value = baseline.value().unwrap();
        assert!((value / 20e6 - 1.0).abs() < 0.1, "{value}");
        for _ in 0..60 {
            baseline.learn(200 * MS, SECOND);
        }
        // After one hour, a minute at the tenfold value moves it by less than 0.5 %.
        let mut old = Baseline {
            learnt_ns: BASELINE_NS,
            ..baseline
        };
        let before = old.value().unwrap();
        for _ in 0..60 {
            old.learn(2_000 * MS, SECOND);
        }
        assert!(old.value().unwrap() / before < 1.005);
    }

    #[test]
    fn normal_variation_widens_the_bound() {
        let bound = |swing: u64| {
            let mut baseline = Baseline::default();
            for second in 0..900 {
                baseline.learn(20 * MS + (second % 2) * swing, SECOND);
            }
            baseline.bound(1.5, 5 * MS).unwrap() / baseline.value().unwrap()
        };
        assert!((bound(0) - 1.5).abs() < 0.01);
        assert!(bound(40 * MS) > 3.0);
    }

    #[test]
    fn a_baseline_needs_its_warm_up() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.bound(1.5, 0), None);
        baseline.learn(20 * MS, SECOND);
        assert_eq!(baseline.bound(1.5, 0), None);
        // An idle hour does not count.
        baseline.learn(20 * MS, BASELINE_NS);
        assert_eq!(baseline.bound(1.5, 0), None);
    }

    #[test]
    fn few_samples_have_wide_bounds() {
        let mut histogram = Histogram::default();
        for i in 0..MIN_SAMPLES - 1 {
            histogram.record((i + 1) * MS);
        }
        let few = judge(histogram.count(), |q| histogram.quantile(q));
        assert_eq!(few, None);
        histogram.record(MIN_SAMPLES * MS);
        let enough = judge(histogram.count(), |q| histogram.quantile(q));
        let [median, _] = enough.unwrap();
        assert!(median.value > 14 * MS && median.value < 16 * MS);
        assert!(median.at_least < 8 * MS, "{median:?}");
        assert!(share_at_least(1, 10) < 0.01);
        assert!(share_at_least(1_000, 10_000) > 0.09);
        assert_eq!(share_at_least(0, 1_000), 0.0);
    }
}
