//! The delay under load of a class: its RTT while busy compared with its RTT while idle.
//!
//! Passive: no test traffic is sent. An interval is *busy* if the rate of a direction is at least
//! [`BUSY_SHARE`] of its ceiling, *idle* if both are below [`IDLE_SHARE`] of theirs, and ignored
//! otherwise. Without configured ceiling, the maximum observed rate is used. It halves every
//! [`PEAK_HALF_LIFE_NS`] and is at least [`PEAK_FLOOR_BPS`].

use fairpath_core::{bucket_middle, prefetch};
use serde::{Deserialize, Serialize};

use crate::snapshot::Load;

/// Minimum fraction of a direction's ceiling at which a class is busy.
pub const BUSY_SHARE: f64 = 0.5;
/// Fraction of both ceilings below which it is idle.
pub const IDLE_SHARE: f64 = 0.1;
/// Minimum ceiling of a direction without configured ceiling, bits per second. A lower rate does not
/// cause a queue on a current access link.
pub const PEAK_FLOOR_BPS: f64 = 1e6;
/// Half-life of the maximum rate, long enough for a night without traffic.
pub const PEAK_HALF_LIFE_NS: u64 = 24 * 3_600_000_000_000;
/// Half-life of the samples of idle and busy intervals.
pub const LOAD_HALF_LIFE_NS: u64 = 3_600_000_000_000;
/// Minimum number of (decayed) samples, idle and busy each, for a result.
pub const LOAD_MIN_SAMPLES: f64 = 50.0;
/// Maximum growth with score 100.
pub const GROWTH_UNFELT_NS: u64 = 5_000_000;
/// Minimum growth with score 0.
pub const GROWTH_UNUSABLE_NS: u64 = 400_000_000;

/// The score of a growth under load in nanoseconds: 100 up to 5 ms, 0 from 400 ms, and in between
///
/// ```text
/// score = 100 * (1 - ln(growth / 5 ms) / ln(400 ms / 5 ms))
/// ```
///
/// rounded. It never increases with growth. The bounds and the logarithmic scale follow the grades that
/// DSLReports published for the same quantity (<https://www.dslreports.com/faq/17930>): A+ below 5 ms,
/// A below 30, B below 60, C below 200, D below 400, F above. Their bounds have the scores 100, 59, 43,
/// 16 and 0.
pub fn score(rtt_growth_ns: u64) -> u8 {
    let growth = rtt_growth_ns.clamp(GROWTH_UNFELT_NS, GROWTH_UNUSABLE_NS) as f64;
    let (best, worst) = (GROWTH_UNFELT_NS as f64, GROWTH_UNUSABLE_NS as f64);
    (100.0 * (1.0 - (growth / best).ln() / (worst / best).ln())).round() as u8
}

/// A decaying distribution: each count halves in [`LOAD_HALF_LIFE_NS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Fading {
    /// (bucket, weight at `at`), by bucket.
    cells: Vec<(u16, f32)>,
    at: u64,
}

/// Minimum weight. Smaller ones are removed.
const MIN_WEIGHT: f32 = 0.01;

fn faded(ns: u64, half_life_ns: u64) -> f64 {
    (-(ns as f64) / half_life_ns as f64).exp2()
}

impl Fading {
    /// O(buckets).
    fn add(&mut self, t: u64, buckets: impl Iterator<Item = (u16, u64)>) {
        let mut buckets = buckets.filter(|(_, count)| *count > 0).peekable();
        if buckets.peek().is_none() {
            return;
        }
        let left = faded(t.saturating_sub(self.at), LOAD_HALF_LIFE_NS) as f32;
        self.at = t.max(self.at);
        for (_, weight) in &mut self.cells {
            *weight *= left;
        }
        self.cells.retain(|(_, weight)| *weight >= MIN_WEIGHT);
        for (bucket, count) in buckets {
            match self.cells.binary_search_by_key(&bucket, |(b, _)| *b) {
                Ok(at) => self.cells[at].1 += count as f32,
                Err(at) => self.cells.insert(at, (bucket, count as f32)),
            }
        }
    }

    fn weight(&self, t: u64) -> f64 {
        let sum: f64 = self
            .cells
            .iter()
            .map(|(_, weight)| f64::from(*weight))
            .sum();
        sum * faded(t.saturating_sub(self.at), LOAD_HALF_LIFE_NS)
    }

    /// `None` for fewer than [`LOAD_MIN_SAMPLES`].
    fn quantile(&self, t: u64, q: f64) -> Option<u64> {
        if self.weight(t) < LOAD_MIN_SAMPLES {
            return None;
        }
        let all: f64 = self
            .cells
            .iter()
            .map(|(_, weight)| f64::from(*weight))
            .sum();
        let mut counted = 0.0;
        let at = self.cells.iter().find(|(_, weight)| {
            counted += f64::from(*weight);
            counted >= q * all
        });
        at.or(self.cells.last())
            .map(|(bucket, _)| bucket_middle(*bucket))
    }
}

/// The load of a class. Arrays are indexed by direction, as the core's counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadMeter {
    idle: Fading,
    busy: Fading,
    /// The maximum rate at `at`, bits per second, and its value at the begin of `busy`.
    peak: [f32; 2],
    busy_since_peak: [f32; 2],
    at: u64,
}

impl LoadMeter {
    /// Adds an interval that ends at `t`: its rates, the configured ceilings, and the buckets of the
    /// inside leg.
    pub fn note(
        &mut self,
        t: u64,
        rates_bps: [f64; 2],
        plan_bps: [Option<u64>; 2],
        inside: impl Iterator<Item = (u16, u64)>,
    ) {
        self.note_peaks(t, rates_bps, plan_bps);
        let mut share = 0.0f64;
        for dir in 0..2 {
            let ceiling = match plan_bps[dir] {
                Some(plan) if plan > 0 => plan as f64,
                _ => f64::from(self.peak[dir]).max(PEAK_FLOOR_BPS),
            };
            share = share.max(rates_bps[dir] / ceiling);
        }
        if share >= BUSY_SHARE {
            self.busy.add(t, inside);
        } else if share < IDLE_SHARE {
            self.idle.add(t, inside);
        }
    }

    /// Without configured ceiling, intervals were not busy if the maximum rate has doubled since. So
    /// `busy` is cleared each time it doubles.
    fn note_peaks(&mut self, t: u64, rates_bps: [f64; 2], plan_bps: [Option<u64>; 2]) {
        let left = faded(t.saturating_sub(self.at), PEAK_HALF_LIFE_NS) as f32;
        self.at = t.max(self.at);
        for dir in 0..2 {
            self.peak[dir] = (self.peak[dir] * left).max(rates_bps[dir] as f32);
            let began = self.busy_since_peak[dir].max(PEAK_FLOOR_BPS as f32);
            if self.peak[dir] > 2.0 * began {
                self.busy_since_peak[dir] = self.peak[dir];
                if plan_bps[dir].is_none() {
                    self.busy = Fading::default();
                }
            }
        }
    }

    /// Loads what [`LoadMeter::note`] needs.
    pub fn prefetch(&self) {
        prefetch(&*self.idle.cells);
        prefetch(&*self.busy.cells);
    }

    /// The load at `t`.
    pub fn load(&self, t: u64) -> Load {
        let idle = self.idle.quantile(t, 0.5);
        let loaded = self.busy.quantile(t, 0.5);
        let growth = idle
            .zip(loaded)
            .map(|(idle, loaded)| loaded.saturating_sub(idle));
        Load {
            idle_p50_rtt_ns: idle,
            loaded_p50_rtt_ns: loaded,
            loaded_p95_rtt_ns: self.busy.quantile(t, 0.95),
            rtt_growth_ns: growth,
            score: growth.map(score),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(rtt_ms: u64, count: u64) -> impl Iterator<Item = (u16, u64)> {
        let bucket = fairpath_core::bucket_of(rtt_ms * 1_000_000);
        std::iter::once((bucket, count))
    }

    #[test]
    fn scores_match_the_published_grades() {
        let at = |ms: u64| score(ms * 1_000_000);
        assert_eq!(
            [0, 5, 30, 60, 200, 400, 9_000].map(at),
            [100, 100, 59, 43, 16, 0, 0]
        );
        assert!((0..500).map(at).is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn growth_is_busy_median_minus_idle_median() {
        let mut meter = LoadMeter::default();
        let plan = [Some(10_000_000), Some(100_000_000)];
        for second in 0..20 {
            let (rates, rtt) = match second % 3 {
                0 => ([0.0, 60e6], 80),
                1 => ([0.1e6, 5e6], 20),
                _ => ([0.0, 30e6], 50),
            };
            meter.note(second * SECOND, rates, plan, at(rtt, 10));
        }
        let load = meter.load(20 * SECOND);
        let growth = load.rtt_growth_ns.unwrap() as f64;
        assert!((growth / 60e6 - 1.0).abs() < 0.03, "{load:?}");
        assert_eq!(load.score, Some(score(load.rtt_growth_ns.unwrap())));
    }

    #[test]
    fn an_upload_alone_makes_a_class_busy() {
        let mut meter = LoadMeter::default();
        let plan = [Some(10_000_000), Some(100_000_000)];
        meter.note(0, [6e6, 0.0], plan, at(90, 60));
        let load = meter.load(0);
        assert!(load.loaded_p50_rtt_ns.is_some() && load.idle_p50_rtt_ns.is_none());
        assert_eq!((load.rtt_growth_ns, load.score), (None, None));
    }

    #[test]
    fn without_ceiling_the_maximum_rate_decides() {
        let mut meter = LoadMeter::default();
        let none = [None, None];
        meter.note(0, [0.0, 2e6], none, at(20, 300));
        assert!(meter.load(0).loaded_p50_rtt_ns.is_some());
        // At a much higher rate, earlier intervals were not busy.
        meter.note(SECOND, [0.0, 50e6], none, at(100, 100));
        meter.note(2 * SECOND, [0.0, 4e6], none, at(20, 100));
        let load = meter.load(2 * SECOND);
        assert!(load.loaded_p50_rtt_ns.unwrap() > 98_000_000, "{load:?}");
        assert!(load.idle_p50_rtt_ns.unwrap() < 21_000_000, "{load:?}");
    }

    #[test]
    fn old_samples_decay_until_no_result() {
        let mut meter = LoadMeter::default();
        let plan = [None, Some(1_000_000)];
        meter.note(0, [0.0, 1e6], plan, at(20, 400));
        meter.note(3 * LOAD_HALF_LIFE_NS, [0.0, 1e6], plan, at(60, 60));
        let load = meter.load(3 * LOAD_HALF_LIFE_NS);
        assert!(load.loaded_p50_rtt_ns.unwrap() > 58_000_000, "{load:?}");
        assert!(
            meter
                .load(5 * LOAD_HALF_LIFE_NS)
                .loaded_p50_rtt_ns
                .is_none()
        );
    }
}
