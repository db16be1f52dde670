//! The delay under load of a class: its RTT while busy compared with its RTT while idle.
//!
//! Passive: no test traffic is sent. An interval is *busy* if the rate of a direction is at least
//! [`BUSY_SHARE`] of its reference, *idle* if both are below [`IDLE_SHARE`] of theirs or below
//! [`IDLE_MAX_BPS`], and ignored otherwise. The reference of a direction is
//!
//! 1. the rate at which its line was saturated in the last [`SATURATED_NS`] ([`super::line`]),
//! 2. else the configured ceiling,
//! 3. else the maximum observed rate, which halves every [`PEAK_HALF_LIFE_NS`] and is at least
//!    [`PEAK_FLOOR_BPS`].
//!
//! A class that was not idle is compared with the lowest RTT of the last days, if it is far above.
//! Everything is learned again after a change of a ceiling, because the line is then another one.
//!
//! An interface and a class with classes below have many lines. Each of the classes reports its score
//! to them while it is busy. Their score is the mean, weighted by busy time, if that is lower than
//! their own.

use fairpath_core::{bucket_middle, prefetch};
use serde::{Deserialize, Serialize};

use super::line::{AccessLine, FAR_FACTOR};
use super::tally::Share;
use crate::snapshot::Load;

/// Minimum fraction of a direction's reference at which a class is busy.
pub const BUSY_SHARE: f64 = 0.5;
/// Fraction of both references below which it is idle.
pub const IDLE_SHARE: f64 = 0.1;
/// Rate below which a class is idle on any line, bits per second.
pub const IDLE_MAX_BPS: f64 = 50e3;
/// Time for which a saturation of the line is valid.
pub const SATURATED_NS: u64 = 24 * 3_600_000_000_000;
/// Minimum (decayed) busy time of classes for a score of an interface or of a class above them, seconds.
const CLASSES_MIN_BUSY_S: f32 = 10.0;
/// Weight of a saturated block for the rate of its line, if that is lower than before.
const SATURATED_WEIGHT: f32 = 0.25;
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

/// The growth that has a score, as of [`score`], nanoseconds.
fn growth_of(score: f64) -> u64 {
    let (best, worst) = (GROWTH_UNFELT_NS as f64, GROWTH_UNUSABLE_NS as f64);
    (best * (worst / best).powf(1.0 - score / 100.0)) as u64
}

/// The score of a class, for as long as it was busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BusyScore {
    seconds: f32,
    score: u8,
}

/// The mean score of classes, weighted by their busy time. It halves every [`LOAD_HALF_LIFE_NS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct MeanScore {
    seconds: f32,
    /// Sum of the products of seconds and scores.
    sum: f32,
    /// Time of both, seconds.
    at_s: u32,
}

impl MeanScore {
    fn add(&mut self, t: u64, busy: &BusyScore) {
        let left = self.left(t);
        self.seconds = self.seconds * left + busy.seconds;
        self.sum = self.sum * left + busy.seconds * f32::from(busy.score);
        self.at_s = seconds(t);
    }

    fn left(&self, t: u64) -> f32 {
        let passed = u64::from(seconds(t).saturating_sub(self.at_s));
        faded(passed * 1_000_000_000, LOAD_HALF_LIFE_NS) as f32
    }

    /// `None` for less than [`CLASSES_MIN_BUSY_S`].
    fn value(&self, t: u64) -> Option<f64> {
        let enough = self.seconds * self.left(t) >= CLASSES_MIN_BUSY_S;
        enough.then(|| f64::from(self.sum / self.seconds))
    }
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

fn seconds(ns: u64) -> u32 {
    (ns / 1_000_000_000) as u32
}

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

/// An interval of a class. Arrays are indexed by direction.
pub(super) struct Seen {
    pub dt_ns: u64,
    pub rates_bps: [f64; 2],
    /// The configured ceilings.
    pub plan_bps: [Option<u64>; 2],
    /// Loss of the inside leg.
    pub loss: Share,
    /// True if its hosts share one line. Hosts of an interface and of several classes do not.
    pub one_line: bool,
}

/// The load of a class. Arrays are indexed by direction, as the core's counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct LoadMeter {
    idle: Fading,
    busy: Fading,
    /// The rate that the line reached, bits per second: of saturated blocks, or the maximum rate.
    reached: [f32; 2],
    /// The references for which `idle` and `busy` are valid.
    valid_for: [f32; 2],
    at: u64,
    #[serde(skip)]
    pub line: Learned,
}

/// The part of a [`LoadMeter`] that the state file has since its version 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learned {
    /// The ceilings for which everything is valid, 0 for none.
    plan_bps: [f32; 2],
    line: AccessLine,
    /// History time of the last saturation, seconds, 0 for none.
    saturated_s: [u32; 2],
    /// Busy time in the current block of the line, seconds.
    busy_s: f32,
    /// The scores of the classes below.
    classes: MeanScore,
}

/// The result of [`LoadMeter::note`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    /// The interval was busy.
    pub busy: bool,
    /// For rows above, once per block of the line in which it was busy.
    pub score: Option<BusyScore>,
}

impl LoadMeter {
    /// Adds an interval that ends at `t`, with the buckets of the inside leg. O(buckets).
    pub fn note(
        &mut self,
        t: u64,
        seen: &Seen,
        inside: impl Iterator<Item = (u16, u64)> + Clone,
    ) -> Judged {
        let plan_bps = seen.plan_bps.map(|plan| plan.unwrap_or(0) as f32);
        if self.line.plan_bps != plan_bps {
            *self = LoadMeter::default();
            self.line.plan_bps = plan_bps;
        }
        self.note_peaks(t, seen.rates_bps);
        let reference = self.references(t);
        self.drop_invalid(reference);
        let shares = [0, 1].map(|dir| seen.rates_bps[dir] / reference[dir]);
        let busy = shares.iter().any(|share| *share >= BUSY_SHARE);
        if busy {
            self.busy.add(t, inside.clone());
            self.line.busy_s += seen.dt_ns as f32 / 1e9;
        } else if shares.iter().all(|share| *share < IDLE_SHARE)
            || seen.rates_bps.iter().all(|rate| *rate < IDLE_MAX_BPS)
        {
            self.idle.add(t, inside.clone());
        }
        let ended = seen.one_line && self.note_line(t, seen, reference, inside);
        Judged {
            busy,
            score: ended.then(|| self.end_block(t)).flatten(),
        }
    }

    /// The score for the busy time since the last block.
    fn end_block(&mut self, t: u64) -> Option<BusyScore> {
        let seconds = std::mem::take(&mut self.line.busy_s);
        let score = self.load(t).score.filter(|_| seconds > 0.0)?;
        Some(BusyScore { seconds, score })
    }

    /// Adds the score of a class below.
    pub fn note_class(&mut self, t: u64, busy: &BusyScore) {
        self.line.classes.add(t, busy);
    }

    /// Updates the maximum rates of directions that are not saturated.
    fn note_peaks(&mut self, t: u64, rates_bps: [f64; 2]) {
        let left = faded(t.saturating_sub(self.at), PEAK_HALF_LIFE_NS) as f32;
        self.at = t.max(self.at);
        for (dir, rate) in rates_bps.into_iter().enumerate() {
            if !self.saturated(t, dir) {
                self.reached[dir] = (self.reached[dir] * left).max(rate as f32);
            }
        }
    }

    /// Updates the rates of directions that are saturated, or were. Returns true at the end of a block.
    fn note_line(
        &mut self,
        t: u64,
        seen: &Seen,
        reference: [f64; 2],
        inside: impl Iterator<Item = (u16, u64)>,
    ) -> bool {
        let line = &mut self.line.line;
        let Some(block) = line.add(seen.dt_ns, seen.rates_bps, seen.loss, inside) else {
            return false;
        };
        let now = line.learn(t, &block, reference);
        for dir in 0..2 {
            let (rate, known) = (block.rates_bps[dir] as f32, self.saturated(t, dir));
            if now == Some(dir) && !known {
                self.reached[dir] = rate;
            } else if now == Some(dir) {
                self.reached[dir] += SATURATED_WEIGHT * (rate - self.reached[dir]);
            }
            if known {
                self.reached[dir] = self.reached[dir].max(rate);
            }
        }
        if let Some(dir) = now {
            self.line.saturated_s[dir] = seconds(t).max(1);
        }
        true
    }

    fn saturated(&self, t: u64, dir: usize) -> bool {
        let at = self.line.saturated_s[dir];
        at > 0 && seconds(t).saturating_sub(at) < seconds(SATURATED_NS)
    }

    /// The rates that a busy line is compared with, bits per second.
    fn references(&self, t: u64) -> [f64; 2] {
        [0, 1].map(|dir| {
            let (plan, reached) = (self.line.plan_bps[dir], f64::from(self.reached[dir]));
            if self.saturated(t, dir) {
                reached
            } else if plan > 0.0 {
                f64::from(plan)
            } else {
                reached.max(PEAK_FLOOR_BPS)
            }
        })
    }

    /// Intervals were not busy if a reference has doubled since. If it has halved, they were not idle,
    /// and busy on another line.
    fn drop_invalid(&mut self, reference: [f64; 2]) {
        for (valid_for, now) in self.valid_for.iter_mut().zip(reference) {
            let (now, before) = (now as f32, *valid_for);
            if (0.5 * before..=2.0 * before).contains(&now) {
                continue;
            }
            self.busy = Fading::default();
            if now < before {
                self.idle = Fading::default();
            }
            *valid_for = now;
        }
    }

    /// Loads what [`LoadMeter::note`] needs.
    pub fn prefetch(&self) {
        prefetch(&*self.idle.cells);
        prefetch(&*self.busy.cells);
    }

    /// The lowest RTT of three days.
    pub fn base_rtt_ns(&self) -> Option<u64> {
        self.line.line.base.value()
    }

    /// The load at `t`.
    pub fn load(&self, t: u64) -> Load {
        let loaded = self.busy.quantile(t, 0.5);
        // A class that is always busy may have a queue in its base too: without idle time, a delay is
        // evidence, and no delay is none.
        let base = || loaded.and_then(|loaded| self.line.line.base.below(loaded, FAR_FACTOR));
        let idle = self.idle.quantile(t, 0.5).or_else(base);
        let growth = idle
            .zip(loaded)
            .map(|(idle, loaded)| loaded.saturating_sub(idle));
        let growth = growth.max(self.line.classes.value(t).map(growth_of));
        Load {
            idle_p50_rtt_ns: idle,
            base_rtt_ns: self.base_rtt_ns(),
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

    fn at(rtt_ms: u64, count: u64) -> impl Iterator<Item = (u16, u64)> + Clone {
        let bucket = fairpath_core::bucket_of(rtt_ms * 1_000_000);
        std::iter::once((bucket, count))
    }

    fn note(
        meter: &mut LoadMeter,
        t: u64,
        rates_bps: [f64; 2],
        plan_bps: [Option<u64>; 2],
        inside: impl Iterator<Item = (u16, u64)> + Clone,
    ) {
        let seen = Seen {
            dt_ns: SECOND,
            rates_bps,
            plan_bps,
            loss: Share::default(),
            one_line: true,
        };
        let _ = meter.note(t, &seen, inside);
    }

    #[test]
    fn a_line_takes_96_bytes() {
        assert_eq!(size_of::<Learned>(), 96);
    }

    #[test]
    fn scores_match_the_published_grades() {
        let at = |ms: u64| score(ms * 1_000_000);
        assert_eq!(
            [0, 5, 30, 60, 200, 400, 9_000].map(at),
            [100, 100, 59, 43, 16, 0, 0]
        );
        assert!((0..500).map(at).is_sorted_by(|a, b| a >= b));
        assert!((0..=100).all(|n| score(growth_of(f64::from(n))) == n));
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
            note(&mut meter, second * SECOND, rates, plan, at(rtt, 10));
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
        note(&mut meter, 0, [6e6, 0.0], plan, at(90, 60));
        let load = meter.load(0);
        assert!(load.loaded_p50_rtt_ns.is_some() && load.idle_p50_rtt_ns.is_none());
        assert_eq!((load.rtt_growth_ns, load.score), (None, None));
    }

    #[test]
    fn without_ceiling_the_maximum_rate_decides() {
        let mut meter = LoadMeter::default();
        let none = [None, None];
        note(&mut meter, 0, [0.0, 2e6], none, at(20, 300));
        assert!(meter.load(0).loaded_p50_rtt_ns.is_some());
        // At a much higher rate, earlier intervals were not busy.
        note(&mut meter, SECOND, [0.0, 50e6], none, at(100, 100));
        note(&mut meter, 2 * SECOND, [0.0, 4e6], none, at(20, 100));
        let load = meter.load(2 * SECOND);
        assert!(load.loaded_p50_rtt_ns.unwrap() > 98_000_000, "{load:?}");
        assert!(load.idle_p50_rtt_ns.unwrap() < 21_000_000, "{load:?}");
    }

    /// Ten minutes of a line that carries 8 of 105 Mbit/s, half of them with a full queue.
    fn slow_line(meter: &mut LoadMeter, from: u64) {
        let plan = [Some(18_000_000), Some(105_000_000)];
        for second in from..from + 600 {
            let (rate, rtt) = if second % 100 < 50 {
                (8e6, 250)
            } else {
                (30e3, 15)
            };
            note(meter, second * SECOND, [20e3, rate], plan, at(rtt, 10));
        }
    }

    #[test]
    fn a_slow_line_has_its_own_reference() {
        let mut meter = LoadMeter::default();
        slow_line(&mut meter, 0);
        let load = meter.load(600 * SECOND);
        assert_eq!(load.score, Some(score(235_000_000)), "{load:?}");
        // Hours of load do not raise the base, and idle samples are too old.
        let plan = [Some(18_000_000), Some(105_000_000)];
        for second in 600..600 + 12 * 3600 {
            note(&mut meter, second * SECOND, [20e3, 8e6], plan, at(250, 10));
        }
        let load = meter.load((600 + 12 * 3600) * SECOND);
        assert_eq!(load.score, Some(score(235_000_000)), "{load:?}");
        // A day without saturation: the plan counts again.
        let later = 600 + 37 * 3600;
        note(&mut meter, later * SECOND, [20e3, 8e6], plan, at(15, 500));
        let load = meter.load(later * SECOND);
        assert_eq!(
            (load.loaded_p50_rtt_ns, load.score),
            (None, None),
            "{load:?}"
        );
    }

    #[test]
    fn a_repaired_line_has_its_new_rate() {
        let mut meter = LoadMeter::default();
        slow_line(&mut meter, 0);
        let plan = [Some(18_000_000), Some(105_000_000)];
        for second in 600..700 {
            let (rate, rtt) = if second % 2 == 0 {
                (90e6, 18)
            } else {
                (30e3, 15)
            };
            note(&mut meter, second * SECOND, [20e3, rate], plan, at(rtt, 10));
        }
        assert_eq!(meter.load(700 * SECOND).score, Some(100));
    }

    #[test]
    fn a_new_plan_begins_again() {
        let mut meter = LoadMeter::default();
        slow_line(&mut meter, 0);
        let plan = [Some(2_000_000), Some(8_000_000)];
        note(&mut meter, 600 * SECOND, [0.0, 7e6], plan, at(100, 60));
        let load = meter.load(600 * SECOND);
        assert_eq!((load.idle_p50_rtt_ns, load.score), (None, None), "{load:?}");
        assert!(load.loaded_p50_rtt_ns.unwrap() < 105_000_000, "{load:?}");
    }

    #[test]
    fn a_class_always_busy_has_no_score() {
        let mut meter = LoadMeter::default();
        let plan = [None, Some(100_000_000)];
        for second in 0..600 {
            note(&mut meter, second * SECOND, [1e6, 95e6], plan, at(200, 10));
        }
        let load = meter.load(600 * SECOND);
        assert!(load.loaded_p50_rtt_ns.is_some(), "{load:?}");
        assert_eq!(load.score, None, "{load:?}");
    }

    #[test]
    fn old_samples_decay_until_no_result() {
        let mut meter = LoadMeter::default();
        let plan = [None, Some(1_000_000)];
        note(&mut meter, 0, [0.0, 1e6], plan, at(20, 400));
        note(
            &mut meter,
            3 * LOAD_HALF_LIFE_NS,
            [0.0, 1e6],
            plan,
            at(60, 60),
        );
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
