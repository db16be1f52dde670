//! A class's last day, one point for each five minutes in which it had traffic.
//!
//! Steps are numbered by Unix time. If the clock is set back by up to [`MAX_STEPS_BACK`] steps, new
//! data belongs to the newest step. If it is set back further, later points had wrong times and are
//! dropped.

use std::collections::VecDeque;

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP, bucket_middle, bucket_of};
use serde::{Deserialize, Serialize};

use super::pad::Sums;
use super::tally::{Share, Tally};
use crate::Histogram;
use crate::snapshot::DayPoint;

/// Length of a step.
pub const DAY_STEP_NS: u64 = 300_000_000_000;
/// Number of stored steps.
pub const DAY_STEPS: usize = 288;
/// Maximum number of classes with a day: 28 MB if all have traffic all day. A new class evicts the
/// least recently active one.
pub const MAX_DAY_CLASSES: usize = 4096;
/// One hour, for clocks that are set back because of a wrong daylight saving time.
const MAX_STEPS_BACK: u32 = 12;

/// The steps of the last day, and the measured time of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DayClock {
    /// (step, measured nanoseconds), ascending, at most [`DAY_STEPS`].
    measured: VecDeque<(u32, u64)>,
}

impl DayClock {
    /// Advances by `dt_ns` of the monotonic clock.
    pub fn advance(&mut self, unix_ns: u64, dt_ns: u64) {
        let step = u32::try_from(unix_ns / DAY_STEP_NS).unwrap_or(u32::MAX - 1);
        while let Some((newest, _)) = self.measured.back()
            && *newest > step.saturating_add(MAX_STEPS_BACK)
        {
            self.measured.pop_back();
        }
        match self.measured.back_mut() {
            Some((newest, measured)) if *newest >= step => *measured += dt_ns,
            _ => self.measured.push_back((step, dt_ns)),
        }
        let oldest = (self.step() + 1).saturating_sub(DAY_STEPS as u32);
        while self
            .measured
            .front()
            .is_some_and(|(step, _)| *step < oldest)
        {
            self.measured.pop_front();
        }
    }

    /// The current step.
    pub fn step(&self) -> u32 {
        self.measured.back().map_or(0, |(step, _)| *step)
    }

    fn measured_ns(&self, step: u32) -> Option<u64> {
        let at = self.measured.binary_search_by_key(&step, |(step, _)| *step);
        at.ok().map(|at| self.measured[at].1)
    }
}

/// An invalid bucket, for no value.
const NONE: u16 = u16::MAX;
/// Loss of 1, in units of a [`Step`].
const ALL_LOST: f64 = 65_534.0;

/// A closed step in 24 bytes, with buckets for round-trip times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Step {
    number: u32,
    bytes: [f32; 2],
    p50: [u16; 2],
    p95: [u16; 2],
    loss: u16,
}

/// An RTT in two bytes, at the resolution of the core's buckets.
pub(super) fn packed_rtt(rtt_ns: Option<u64>) -> u16 {
    rtt_ns.map_or(NONE, bucket_of)
}

pub(super) fn unpacked_rtt(bucket: u16) -> Option<u64> {
    (bucket != NONE).then(|| bucket_middle(bucket))
}

/// A ratio in two bytes.
pub(super) fn packed_loss(loss: Share) -> u16 {
    let value = loss.value();
    value.map_or(NONE, |share| (share * ALL_LOST).round() as u16)
}

pub(super) fn unpacked_loss(loss: u16) -> Option<f64> {
    (loss != NONE).then(|| f64::from(loss) / ALL_LOST)
}

/// The current step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Open {
    number: u32,
    bytes: [u64; 2],
    spread: [Histogram; 2],
    lost: u64,
    data: u64,
}

impl Open {
    fn close(&self) -> Step {
        let bucket = |leg: usize, q: f64| packed_rtt(self.spread[leg].quantile(q));
        let loss = Share {
            lost: self.lost,
            of: self.data,
        };
        Step {
            number: self.number,
            bytes: self.bytes.map(|bytes| bytes as f32),
            p50: [INSIDE, OUTSIDE].map(|leg| bucket(leg, 0.5)),
            p95: [INSIDE, OUTSIDE].map(|leg| bucket(leg, 0.95)),
            loss: packed_loss(loss),
        }
    }
}

/// The last day of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Day {
    steps: VecDeque<Step>,
    open: Open,
}

impl Day {
    /// Adds counts of a step, or of a part of it. O(buckets).
    pub fn add(&mut self, step: u32, tally: &Tally, spread: &Sums) {
        if self.open.number != step {
            self.begin(step);
        }
        let open = &mut self.open;
        for dir in [UP, DOWN] {
            open.bytes[dir] += tally.dir[dir].bytes;
        }
        spread.add_to(&mut open.spread);
        let loss = tally.loss(INSIDE).both();
        open.lost += loss.lost;
        open.data += loss.of;
    }

    fn begin(&mut self, step: u32) {
        let open = std::mem::take(&mut self.open);
        if open.number > 0 {
            self.steps.push_back(open.close());
        }
        while self.steps.back().is_some_and(|last| last.number >= step) {
            self.steps.pop_back();
        }
        let oldest = step.saturating_sub(DAY_STEPS as u32 - 1);
        while self
            .steps
            .front()
            .is_some_and(|first| first.number < oldest)
        {
            self.steps.pop_front();
        }
        self.open.number = step;
    }

    /// The points with traffic, oldest first.
    pub fn points(&self, clock: &DayClock) -> Vec<DayPoint> {
        let open = (self.open.number > 0).then(|| self.open.close());
        let steps = self.steps.iter().copied().chain(open);
        steps.filter_map(|step| step.point(clock)).collect()
    }
}

impl Step {
    /// `None` for a step that is older than a day, or whose time was wrong.
    fn point(self, clock: &DayClock) -> Option<DayPoint> {
        let measured_ns = clock.measured_ns(self.number)?.max(1);
        let rate = |bytes: f32| f64::from(bytes) * 8e9 / measured_ns as f64;
        Some(DayPoint {
            unix_ns: u64::from(self.number) * DAY_STEP_NS,
            rate_up_bps: rate(self.bytes[UP]),
            rate_down_bps: rate(self.bytes[DOWN]),
            inside_p50_rtt_ns: unpacked_rtt(self.p50[INSIDE]),
            inside_p95_rtt_ns: unpacked_rtt(self.p95[INSIDE]),
            outside_p50_rtt_ns: unpacked_rtt(self.p50[OUTSIDE]),
            outside_p95_rtt_ns: unpacked_rtt(self.p95[OUTSIDE]),
            inside_loss_ratio: unpacked_loss(self.loss),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::pad::pack;
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// A Unix time.
    const THEN: u64 = 1_800_000_000 * SECOND;

    fn run(day: &mut Day, clock: &mut DayClock, unix_ns: u64, seconds: u64) {
        for second in 0..seconds {
            clock.advance(unix_ns + second * SECOND, SECOND);
            let mut tally = Tally::default();
            tally.dir[DOWN].bytes = 125_000;
            tally.dir[DOWN].data = 100;
            tally.dir[DOWN].lost_downstream = 1;
            let (mut words, mut sums) = (Vec::new(), Sums::default());
            pack(&mut words, bucket_of(20_000_000), INSIDE, 1);
            sums.set(&words);
            day.add(clock.step(), &tally, &sums);
        }
    }

    #[test]
    fn a_day_has_288_points_with_all_figures() {
        let (mut day, mut clock) = (Day::default(), DayClock::default());
        run(&mut day, &mut clock, THEN, 25 * 3600);
        let points = day.points(&clock);
        assert_eq!(points.len(), DAY_STEPS);
        assert!(points.is_sorted_by_key(|point| point.unix_ns));
        assert_eq!(points[0].unix_ns, THEN + 3600 * SECOND);
        for point in points {
            assert!((point.rate_down_bps / 1e6 - 1.0).abs() < 1e-6, "{point:?}");
            let p50 = point.inside_p50_rtt_ns.unwrap() as f64;
            assert!((p50 / 20e6 - 1.0).abs() < 0.016);
            assert!((point.inside_loss_ratio.unwrap() - 0.01).abs() < 1e-4);
            assert_eq!(point.outside_p95_rtt_ns, None);
        }
    }

    #[test]
    fn a_partly_measured_step_has_its_rate() {
        let (mut day, mut clock) = (Day::default(), DayClock::default());
        run(&mut day, &mut clock, THEN + 290 * SECOND, 10);
        let points = day.points(&clock);
        assert!((points[0].rate_down_bps / 1e6 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn points_stay_in_order_if_the_clock_changes() {
        let (mut day, mut clock) = (Day::default(), DayClock::default());
        let hour = 3600 * SECOND;
        run(&mut day, &mut clock, THEN, 900);
        // Half an hour back: data belongs to the newest step, at the right rate.
        run(&mut day, &mut clock, THEN - hour / 2, 600);
        assert_eq!(day.points(&clock).len(), 3);
        // Two hours forward, two hours back, and through the same hours again.
        run(&mut day, &mut clock, THEN + 2 * hour, 900);
        run(&mut day, &mut clock, THEN, 3 * 3600);
        let points = day.points(&clock);
        assert!(
            points.is_sorted_by(|a, b| a.unix_ns < b.unix_ns),
            "{points:?}"
        );
        // One year forward, then back.
        run(&mut day, &mut clock, THEN + 8766 * hour, 600);
        assert_eq!(
            day.points(&clock).last().unwrap().unix_ns,
            THEN + 8766 * hour + DAY_STEP_NS
        );
        run(&mut day, &mut clock, THEN + 4 * hour, 600);
        let points = day.points(&clock);
        assert!(
            points.is_sorted_by(|a, b| a.unix_ns < b.unix_ns),
            "{points:?}"
        );
        assert_eq!(
            points.last().unwrap().unix_ns,
            THEN + 4 * hour + DAY_STEP_NS
        );
        for point in points {
            assert!((point.rate_down_bps / 1e6 - 1.0).abs() < 1e-6, "{point:?}");
        }
    }
}
