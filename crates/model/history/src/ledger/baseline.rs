//! What is normal for a class's round-trip times, and what lies surely above it.
//!
//! A baseline is a slow mean, in logarithms, of a quantile of the window: a step or an outlier
//! moves it by a bounded amount. Beside it goes the standard deviation, so that a class whose
//! times swing by nature is held to a wider bound.

use serde::{Deserialize, Serialize};

/// Time constant of baselines.
pub const BASELINE_NS: u64 = 3_600_000_000_000;
/// Measured time before a baseline is held against anything.
pub const WARM_UP_NS: u64 = 600_000_000_000;
/// Round-trip times that a window needs to be judged, and to be learnt from.
pub const MIN_SAMPLES: u64 = 30;
/// Standard deviations above the baseline that are within what is normal. A level that a class
/// takes for more than a sixteenth (1 / 4^2) of the time is normal, however high.
pub const DEVIATIONS: f64 = 4.0;
/// Standard errors that a quantile must be sure by.
pub const SURE: f64 = 3.0;

/// One step moves the baseline as if it were at most this factor away.
const MOST_STEP: f64 = 1.25;
/// Deviations beyond this factor count as this.
const MOST_DEVIATION: f64 = 4.0;
/// A silence teaches nothing: no step counts for longer.
const LONGEST_STEP_NS: u64 = 10_000_000_000;

/// The slow mean of a quantile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// Of nanoseconds.
    ln: f64,
    /// Mean square of the distance from it, in the same logarithm.
    variance: f64,
    learnt_ns: u64,
    /// What an alert that holds sets aside: time, and the sum of squares by time.
    aside_ns: u64,
    aside: f64,
}

impl Baseline {
    /// Learns from `rtt_ns`, which held for `dt_ns`. A plain mean while it warms up; then steps
    /// are bounded, and from [`BASELINE_NS`] on the mean is an exponential one.
    pub fn learn(&mut self, rtt_ns: u64, dt_ns: u64) {
        let seen = (rtt_ns.max(1) as f64).ln();
        let dt = dt_ns.min(LONGEST_STEP_NS);
        if self.learnt_ns == 0 {
            self.ln = seen;
        }
        self.learnt_ns = self.learnt_ns.saturating_add(dt);
        let share = dt as f64 / self.learnt_ns.clamp(1, BASELINE_NS) as f64;
        let away = seen - self.ln;
        let warm = self.learnt_ns > WARM_UP_NS;
        let step = if warm { MOST_STEP.ln() } else { f64::INFINITY };
        self.ln += share * away.clamp(-step, step);
        self.variance += share * (square(away) - self.variance);
    }

    /// While an alert holds: remembers how far away `rtt_ns` is, and learns nothing.
    pub fn set_aside(&mut self, rtt_ns: u64, dt_ns: u64) {
        let dt = dt_ns.min(LONGEST_STEP_NS);
        self.aside_ns += dt;
        self.aside += square((rtt_ns.max(1) as f64).ln() - self.ln) * dt as f64;
    }

    /// The alert is over. If it was an excursion, what was set aside widens the deviation.
    pub fn resume(&mut self, excursion: bool) {
        let (ns, sum) = (self.aside_ns, self.aside);
        (self.aside_ns, self.aside) = Default::default();
        if excursion && ns > 0 {
            self.learnt_ns = self.learnt_ns.saturating_add(ns);
            let share = ns as f64 / self.learnt_ns.clamp(1, BASELINE_NS).max(ns) as f64;
            self.variance += share * (sum / ns as f64 - self.variance);
        }
    }

    /// Nanoseconds; `None` before anything was learnt.
    pub fn value(&self) -> Option<f64> {
        (self.learnt_ns > 0).then(|| self.ln.exp())
    }

    /// What lies above this has left the baseline: by `factor`, by `floor_ns` and by
    /// [`DEVIATIONS`]. `None` before [`WARM_UP_NS`] were learnt from.
    pub fn bound(&self, factor: f64, floor_ns: u64) -> Option<f64> {
        let value = self.value().filter(|_| self.learnt_ns >= WARM_UP_NS)?;
        let wide = (DEVIATIONS * self.variance.sqrt()).exp();
        Some((value * factor.max(wide)).max(value + floor_ns as f64))
    }
}

/// Of a distance in logarithms; far ones count as [`MOST_DEVIATION`].
fn square(away: f64) -> f64 {
    away.abs().min(MOST_DEVIATION.ln()).powi(2)
}

/// A quantile of a window, and what it surely is at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub value: u64,
    /// The quantile [`SURE`] standard errors of its rank lower (normal approximation to the
    /// binomial): what few samples can say is little.
    pub at_least: u64,
}

/// Median and 95th percentile of `count` round-trip times; `None` of fewer than [`MIN_SAMPLES`].
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

/// What a share surely is at least, [`SURE`] standard errors below (Wilson's score interval).
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
    fn a_baseline_is_reached_soon_and_then_moves_by_hours() {
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
        // A minute at ten times the value moves it by a few per cent, once it is an hour old.
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
    fn a_class_that_swings_by_nature_has_a_wider_bound() {
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
    fn nothing_is_held_against_what_was_hardly_learnt() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.bound(1.5, 0), None);
        baseline.learn(20 * MS, SECOND);
        assert_eq!(baseline.bound(1.5, 0), None);
        // An hour of silence is no hour of learning.
        baseline.learn(20 * MS, BASELINE_NS);
        assert_eq!(baseline.bound(1.5, 0), None);
    }

    #[test]
    fn few_samples_say_little() {
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
