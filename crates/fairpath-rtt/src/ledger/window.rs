//! What a class did in the last intervals: sums, distributions, and its sparkline.
//!
//! Entries carry the number of their interval. An interval in which nothing happened has no entry,
//! so that a class that rests costs nothing once its last entry has left.

use std::collections::VecDeque;

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};

use super::tally::Tally;
use crate::Histogram;
use crate::snapshot::Point;

/// Points of a sparkline.
pub const HISTORY_POINTS: usize = 60;

/// What the window needs of a tally, in 72 bytes; packets saturate.
#[derive(Clone, Copy, Debug)]
struct Slim {
    bytes: [u64; 2],
    unmeasured_bytes: [u64; 2],
    packets: [u32; 2],
    data: [u32; 2],
    lost_beyond: [u32; 2],
    lost_before: [u32; 2],
    samples: [u32; 2],
}

impl Slim {
    fn of(tally: &Tally) -> Slim {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let both = |value: fn(&super::tally::Way) -> u64| {
            [UP, DOWN].map(|dir| small(value(&tally.dir[dir])))
        };
        Slim {
            bytes: [UP, DOWN].map(|dir| tally.dir[dir].bytes),
            unmeasured_bytes: [UP, DOWN].map(|dir| tally.dir[dir].unmeasured_bytes),
            packets: both(|way| way.packets),
            data: both(|way| way.data),
            lost_beyond: both(|way| way.lost_beyond),
            lost_before: both(|way| way.lost_before),
            samples: [INSIDE, OUTSIDE].map(|leg| small(tally.leg[leg].samples)),
        }
    }

    fn add_to(&self, sum: &mut Tally) {
        for (dir, way) in sum.dir.iter_mut().enumerate() {
            way.bytes += self.bytes[dir];
            way.unmeasured_bytes += self.unmeasured_bytes[dir];
            way.packets += u64::from(self.packets[dir]);
            way.data += u64::from(self.data[dir]);
            way.lost_beyond += u64::from(self.lost_beyond[dir]);
            way.lost_before += u64::from(self.lost_before[dir]);
        }
        for (leg, rtts) in sum.leg.iter_mut().enumerate() {
            rtts.samples += u64::from(self.samples[leg]);
        }
    }
}

/// An interval's distribution: bucket (10 bits), leg (1), count (21) in a word.
type Packed = Box<[u32]>;

const COUNT_BITS: u32 = 21;
const MOST_IN_A_WORD: u64 = (1 << COUNT_BITS) - 1;

fn pack(spread: &[Histogram; 2]) -> Packed {
    let mut words = Vec::new();
    for (leg, histogram) in spread.iter().enumerate() {
        for (bucket, mut count) in histogram.buckets() {
            while count > 0 {
                let part = count.min(MOST_IN_A_WORD);
                words.push((u32::from(bucket) << 22) | ((leg as u32) << 21) | part as u32);
                count -= part;
            }
        }
    }
    words.into_boxed_slice()
}

fn unpack(words: &[u32]) -> [Histogram; 2] {
    let mut spread = <[Histogram; 2]>::default();
    for word in words {
        let leg = (word >> 21 & 1) as usize;
        spread[leg].add((word >> 22) as u16, u64::from(*word) & MOST_IN_A_WORD);
    }
    spread
}

#[derive(Clone, Debug)]
struct Entry {
    interval: u64,
    slim: Slim,
    cells: Packed,
}

/// One step of the sparkline, 16 bytes; an infinite time stands for none.
#[derive(Clone, Copy, Debug)]
struct Mark {
    interval: u64,
    rate_bps: f32,
    p95_rtt_ns: f32,
}

/// The last intervals of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    entries: VecDeque<Entry>,
    /// Of all entries.
    pub spread: [Histogram; 2],
    marks: VecDeque<Mark>,
}

impl Window {
    /// Takes in an interval's numbers. O(buckets).
    pub fn push(&mut self, interval: u64, tally: &Tally, spread: &[Histogram; 2], rate_bps: f64) {
        for (sum, part) in self.spread.iter_mut().zip(spread) {
            sum.merge(part);
        }
        self.entries.push_back(Entry {
            interval,
            slim: Slim::of(tally),
            cells: pack(spread),
        });
        let p95 = spread[INSIDE].quantile(0.95);
        while self.marks.len() >= HISTORY_POINTS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark {
            interval,
            rate_bps: rate_bps as f32,
            p95_rtt_ns: p95.map_or(f32::INFINITY, |ns| ns as f32),
        });
    }

    /// Forgets intervals before `oldest`; tells whether any is left.
    pub fn expire(&mut self, oldest: u64) -> bool {
        while let Some(entry) = self.entries.front()
            && entry.interval < oldest
        {
            let gone = unpack(&entry.cells);
            for (sum, part) in self.spread.iter_mut().zip(&gone) {
                sum.subtract(part);
            }
            self.entries.pop_front();
        }
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
            self.spread = <[Histogram; 2]>::default();
        }
        !self.entries.is_empty()
    }

    /// What was counted in the window; only what [`Slim`] keeps.
    pub fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        for entry in &self.entries {
            entry.slim.add_to(&mut sum);
        }
        sum
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

    fn interval(bytes: u64, rtts: &[u64]) -> (Tally, [Histogram; 2]) {
        let (mut tally, mut spread) = (Tally::default(), <[Histogram; 2]>::default());
        tally.dir[UP].bytes = bytes;
        tally.leg[INSIDE].samples = rtts.len() as u64;
        for rtt in rtts {
            spread[INSIDE].record(*rtt);
        }
        (tally, spread)
    }

    #[test]
    fn the_window_holds_the_last_intervals_and_nothing_else() {
        let mut window = Window::default();
        for at in 0..5 {
            let (tally, spread) = interval(1 << at, &[1_000_000 << at]);
            window.push(at, &tally, &spread, 8.0);
        }
        assert!(window.expire(3));
        assert_eq!(window.sum().dir[UP].bytes, 8 + 16);
        assert_eq!(window.spread[INSIDE].count(), 2);
        assert!(!window.expire(5));
        assert!(window.spread[INSIDE].is_empty());
    }

    #[test]
    fn distributions_survive_packing_whatever_their_counts() {
        let mut spread = <[Histogram; 2]>::default();
        spread[INSIDE].add(0, 1);
        spread[INSIDE].add(735, MOST_IN_A_WORD * 3 + 5);
        spread[OUTSIDE].add(735, 1);
        assert_eq!(unpack(&pack(&spread)), spread);
    }

    #[test]
    fn a_sparkline_has_a_point_for_silent_intervals_too() {
        let mut window = Window::default();
        let (tally, spread) = interval(1, &[5_000_000]);
        window.push(2, &tally, &spread, 8.0);
        let points = window.history(0, 3);
        let rates: Vec<f64> = points.iter().map(|point| point.rate_bps).collect();
        assert_eq!(rates, [0.0, 0.0, 8.0, 0.0]);
        assert!(points[2].p95_rtt_ns.is_some() && points[3].p95_rtt_ns.is_none());
        assert_eq!(window.history(0, 100).len(), HISTORY_POINTS);
    }
}
