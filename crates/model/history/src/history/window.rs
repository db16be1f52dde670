//! The last intervals of a class: sums, distributions, and the sparkline.
//!
//! An idle interval has no entry, so an idle class costs nothing after its last entry has left the
//! window. Distributions are packed. Queries add them up in plain arrays that fit into the cache.

use std::collections::VecDeque;

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};

use super::interval;
use super::pad::Sums;
use super::tally::Tally;
use crate::Histogram;
use crate::snapshot::Point;

/// Points of a sparkline.
pub const HISTORY_POINTS: usize = 60;

/// The part of a tally that the window needs, in 72 bytes. Packets saturate.
#[derive(Clone, Copy, Debug)]
struct Compact {
    bytes: [u64; 2],
    unmeasured_bytes: [u64; 2],
    packets: [u32; 2],
    data: [u32; 2],
    lost_downstream: [u32; 2],
    lost_upstream: [u32; 2],
    samples: [u32; 2],
}

impl Compact {
    fn of(tally: &Tally) -> Compact {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let both = |value: fn(&super::tally::DirectionTally) -> u64| {
            [UP, DOWN].map(|dir| small(value(&tally.dir[dir])))
        };
        Compact {
            bytes: [UP, DOWN].map(|dir| tally.dir[dir].bytes),
            unmeasured_bytes: [UP, DOWN].map(|dir| tally.dir[dir].unmeasured_bytes),
            packets: both(|dir| dir.packets),
            data: both(|dir| dir.data),
            lost_downstream: both(|dir| dir.lost_downstream),
            lost_upstream: both(|dir| dir.lost_upstream),
            samples: [INSIDE, OUTSIDE].map(|leg| small(tally.leg[leg].samples)),
        }
    }

    fn add_to(&self, sum: &mut Tally) {
        for (dir, sum) in sum.dir.iter_mut().enumerate() {
            sum.bytes += self.bytes[dir];
            sum.unmeasured_bytes += self.unmeasured_bytes[dir];
            sum.packets += u64::from(self.packets[dir]);
            sum.data += u64::from(self.data[dir]);
            sum.lost_downstream += u64::from(self.lost_downstream[dir]);
            sum.lost_upstream += u64::from(self.lost_upstream[dir]);
        }
        for (leg, rtts) in sum.leg.iter_mut().enumerate() {
            rtts.samples += u64::from(self.samples[leg]);
        }
    }
}

/// One interval of a class.
#[derive(Clone, Debug)]
struct Entry {
    interval: u64,
    /// Its step of the day.
    step: u32,
    /// Its number of [`Window::words`].
    words: u32,
    counts: Compact,
}

/// The sum of entries that leave the window, for one step of the day.
#[derive(Clone, Debug)]
pub(super) struct Left {
    pub step: u32,
    pub sum: Tally,
    pub spread: [Histogram; 2],
}

/// One point of the sparkline, 16 bytes. An infinite time means no value.
#[derive(Clone, Copy, Debug)]
struct Mark {
    interval: u64,
    rate_bps: f32,
    p95_rtt_ns: f32,
}

/// The last intervals of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Also entries that are older than the window.
    entries: VecDeque<Entry>,
    /// Packed distributions of the entries, in their order.
    words: VecDeque<u32>,
    marks: VecDeque<Mark>,
}

impl Window {
    /// Adds an interval and its point of the sparkline. O(buckets).
    pub fn push(&mut self, interval: u64, step: u32, from: &interval::Entry, point: Point) {
        self.words.extend(&from.words);
        self.entries.push_back(Entry {
            interval,
            step,
            words: from.words.len() as u32,
            counts: Compact::of(&from.tally),
        });
        while self.marks.len() >= HISTORY_POINTS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark {
            interval,
            rate_bps: point.rate_bps as f32,
            p95_rtt_ns: point.p95_rtt_ns.map_or(f32::INFINITY, |ns| ns as f32),
        });
    }

    /// The last active interval.
    pub fn newest(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.interval)
    }

    /// Removes intervals before `oldest`, one step of the day per call. `None` if none are left.
    pub fn leave(&mut self, oldest: u64, sums: &mut Sums) -> Option<Left> {
        let step = self.entries.front()?.step;
        let leaves = |entry: &Entry| entry.interval < oldest && entry.step == step;
        let count = self
            .entries
            .iter()
            .take_while(|entry| leaves(entry))
            .count();
        if count == 0 {
            return None;
        }
        let (mut sum, mut words) = (Tally::default(), 0);
        for entry in self.entries.drain(..count) {
            entry.counts.add_to(&mut sum);
            words += entry.words as usize;
        }
        sums.set(self.words.range(..words));
        self.words.drain(..words);
        if self.entries.is_empty() {
            (self.entries, self.words) = Default::default();
        }
        Some(Left {
            step,
            sum,
            spread: sums.histograms(),
        })
    }

    /// The counts from `oldest` on, those of [`Compact`].
    pub fn sum(&self, oldest: u64) -> Tally {
        let mut sum = Tally::default();
        for entry in self.since(oldest) {
            entry.counts.add_to(&mut sum);
        }
        sum
    }

    /// Sets `sums` to the distributions from `oldest` on.
    pub fn add_up(&self, oldest: u64, sums: &mut Sums) {
        let words: u32 = self.since(oldest).map(|entry| entry.words).sum();
        sums.set(self.words.range(self.words.len() - words as usize..));
    }

    /// The sum of all distributions.
    pub fn spread(&self, sums: &mut Sums) -> [Histogram; 2] {
        self.add_up(0, sums);
        sums.histograms()
    }

    fn since(&self, oldest: u64) -> impl Iterator<Item = &Entry> {
        let newest_first = self.entries.iter().rev();
        newest_first.take_while(move |entry| entry.interval >= oldest)
    }

    /// One point for each interval from `first` (at most [`HISTORY_POINTS`]) to `last`.
    pub fn history(&self, first: u64, last: u64) -> Vec<Point> {
        let first = first.max((last + 1).saturating_sub(HISTORY_POINTS as u64));
        let mut points = vec![Point::default(); (last + 1).saturating_sub(first) as usize];
        for mark in &self.marks {
            let at = mark.interval.checked_sub(first);
            if let Some(point) = at.and_then(|at| points.get_mut(at as usize)) {
                point.rate_bps = f64::from(mark.rate_bps);
                let p95 = mark.p95_rtt_ns;
                point.p95_rtt_ns = p95.is_finite().then_some(p95 as u64);
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::pad;
    use fairpath_core::bucket_of;

    const POINT: Point = Point {
        rate_bps: 8.0,
        p95_rtt_ns: Some(5_000_000),
    };

    fn did(bytes: u64, rtts: &[u64]) -> interval::Entry {
        let mut entry = interval::Entry::default();
        entry.tally.dir[UP].bytes = bytes;
        entry.tally.leg[INSIDE].samples = rtts.len() as u64;
        for rtt in rtts {
            pad::pack(&mut entry.words, bucket_of(*rtt), INSIDE, 1);
        }
        entry
    }

    #[test]
    fn the_window_sums_the_last_intervals() {
        let (mut window, mut sums) = (Window::default(), Sums::default());
        for at in 0..5 {
            window.push(at, 7, &did(1 << at, &[1_000_000 << at]), POINT);
        }
        assert_eq!(window.sum(3).dir[UP].bytes, 8 + 16);
        window.add_up(3, &mut sums);
        assert_eq!(sums.count(INSIDE), 2);
        window.add_up(5, &mut sums);
        assert_eq!((sums.count(INSIDE), sums.quantile(INSIDE, 0.5)), (0, None));
    }

    #[test]
    fn intervals_leave_once_by_step_of_the_day() {
        let (mut window, mut sums) = (Window::default(), Sums::default());
        for at in 0..6u64 {
            window.push(at, at as u32 / 2, &did(1 << at, &[1_000_000]), POINT);
        }
        let mut left = Vec::new();
        while let Some(part) = window.leave(5, &mut sums) {
            let samples = part.spread[INSIDE].count();
            left.push((part.step, part.sum.dir[UP].bytes, samples));
        }
        assert_eq!(left, [(0, 1 + 2, 2), (1, 4 + 8, 2), (2, 16, 1)]);
        assert_eq!(window.sum(0).dir[UP].bytes, 32);
    }

    #[test]
    fn a_sparkline_has_points_for_idle_intervals() {
        let mut window = Window::default();
        window.push(2, 0, &did(1, &[5_000_000]), POINT);
        let points = window.history(0, 3);
        let rates: Vec<f64> = points.iter().map(|point| point.rate_bps).collect();
        assert_eq!(rates, [0.0, 0.0, 8.0, 0.0]);
        assert!(points[2].p95_rtt_ns.is_some() && points[3].p95_rtt_ns.is_none());
        assert_eq!(window.history(0, 100).len(), HISTORY_POINTS);
    }
}
