//! The last intervals of a class: sums, distributions, and the sparkline.
//!
//! An idle interval has no entry, so an idle class costs nothing after its last entry has left the
//! window. Distributions are packed. Queries add them up in plain arrays that fit into the cache.
//! Counts have a sum, to which an interval is added when it begins and subtracted when it leaves.

use std::collections::VecDeque;

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP, prefetch};

use super::day::{packed_loss, packed_rtt, unpacked_loss, unpacked_rtt};
use super::interval;
use super::pad::Sums;
use super::tally::{Share, Tally};
use crate::snapshot::{DayPoint, Point};

/// Points of a sparkline.
pub const HISTORY_POINTS: usize = 60;

/// Words of distributions that are loaded early.
const PREFETCHED_WORDS: usize = 128;

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
        self.apply(sum, u64::wrapping_add);
    }

    /// Applies `op` to each count of `sum` and its own.
    fn apply(&self, sum: &mut Tally, op: impl Fn(u64, u64) -> u64) {
        let apply = |sum: &mut u64, count: u64| *sum = op(*sum, count);
        for (dir, sum) in sum.dir.iter_mut().enumerate() {
            apply(&mut sum.bytes, self.bytes[dir]);
            apply(&mut sum.unmeasured_bytes, self.unmeasured_bytes[dir]);
            apply(&mut sum.packets, self.packets[dir].into());
            apply(&mut sum.data, self.data[dir].into());
            apply(&mut sum.lost_downstream, self.lost_downstream[dir].into());
            apply(&mut sum.lost_upstream, self.lost_upstream[dir].into());
        }
        for (leg, rtts) in sum.leg.iter_mut().enumerate() {
            apply(&mut rtts.samples, self.samples[leg].into());
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

/// The figures of one interval, 24 bytes. The numbers of intervals wrap after 136 years of seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    interval: u32,
    rates_bps: [f32; 2],
    p50: [u16; 2],
    p95: [u16; 2],
    loss: u16,
}

impl Mark {
    /// `sums` has the distributions of the interval, `loss` is that of the inside leg.
    pub fn new(interval: u64, rates_bps: [f64; 2], sums: &Sums, loss: Share) -> Mark {
        let rtts = |q: f64| [INSIDE, OUTSIDE].map(|leg| packed_rtt(sums.quantile(leg, q)));
        Mark {
            interval: interval as u32,
            rates_bps: rates_bps.map(|rate| rate as f32),
            p50: rtts(0.5),
            p95: rtts(0.95),
            loss: packed_loss(loss),
        }
    }

    fn point(&self) -> Point {
        Point {
            rate_bps: self.rates_bps.into_iter().map(f64::from).sum(),
            p95_rtt_ns: unpacked_rtt(self.p95[INSIDE]),
        }
    }

    /// The same with all figures.
    pub fn day_point(&self, unix_ns: u64) -> DayPoint {
        DayPoint {
            unix_ns,
            rate_up_bps: f64::from(self.rates_bps[UP]),
            rate_down_bps: f64::from(self.rates_bps[DOWN]),
            inside_p50_rtt_ns: unpacked_rtt(self.p50[INSIDE]),
            inside_p95_rtt_ns: unpacked_rtt(self.p95[INSIDE]),
            outside_p50_rtt_ns: unpacked_rtt(self.p50[OUTSIDE]),
            outside_p95_rtt_ns: unpacked_rtt(self.p95[OUTSIDE]),
            inside_loss_ratio: unpacked_loss(self.loss),
        }
    }
}

/// The last intervals of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    /// Also entries that are older than the window.
    entries: VecDeque<Entry>,
    /// Packed distributions of the entries, in their order.
    words: VecDeque<u32>,
    marks: VecDeque<Mark>,
    /// Number of entries that [`Window::advance`] excluded, and of their words.
    old: (usize, usize),
    /// The sum of the other entries.
    sum: Tally,
}

impl Window {
    /// Adds an interval and its point of the sparkline. O(buckets).
    pub fn push(&mut self, interval: u64, step: u32, from: &interval::Entry, mark: Mark) {
        let counts = Compact::of(&from.tally);
        counts.add_to(&mut self.sum);
        self.words.extend(&from.words);
        self.entries.push_back(Entry {
            interval,
            step,
            words: from.words.len() as u32,
            counts,
        });
        while self.marks.len() >= HISTORY_POINTS {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    /// Loads what the next interval needs.
    pub fn prefetch(&self) {
        self.entries.back().inspect(|entry| prefetch(*entry));
        self.entries
            .get(self.old.0)
            .inspect(|entry| prefetch(*entry));
        self.marks.back().inspect(|mark| prefetch(*mark));
        for words in <[&[u32]; 2]>::from(self.words.as_slices()) {
            prefetch(&words[words.len().saturating_sub(PREFETCHED_WORDS)..]);
        }
    }

    /// The last active interval.
    pub fn newest(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.interval)
    }

    /// Excludes intervals before `oldest` from the sum, which [`Window::sum`] then need not add up.
    /// Later calls have no earlier interval.
    pub fn advance(&mut self, oldest: u64) {
        while let Some(entry) = self.entries.get(self.old.0)
            && entry.interval < oldest
        {
            entry.counts.apply(&mut self.sum, u64::wrapping_sub);
            self.old.0 += 1;
            self.old.1 += entry.words as usize;
        }
    }

    /// Removes intervals before `oldest`, and calls `take` with their counts and their distribution, once
    /// for each step of the day.
    pub fn leave(&mut self, oldest: u64, sums: &mut Sums, take: impl FnMut(u32, &Tally, &Sums)) {
        self.advance(oldest);
        let (entries, words) = self.by_step(oldest, sums, take);
        self.entries.drain(..entries);
        self.words.drain(..words);
        self.old = (self.old.0 - entries, self.old.1 - words);
        if self.entries.is_empty() {
            (self.entries, self.words) = Default::default();
        }
    }

    /// As [`Window::leave`], but removes nothing. Returns the number of intervals and of their words.
    pub fn by_step(
        &self,
        oldest: u64,
        sums: &mut Sums,
        mut take: impl FnMut(u32, &Tally, &Sums),
    ) -> (usize, usize) {
        let (mut at, mut words) = (0, 0);
        while let Some(first) = self.entries.get(at).filter(|e| e.interval < oldest) {
            let leaves = |entry: &&Entry| entry.interval < oldest && entry.step == first.step;
            let (mut sum, begin) = (Tally::default(), words);
            for entry in self.entries.range(at..).take_while(leaves) {
                entry.counts.add_to(&mut sum);
                words += entry.words as usize;
                at += 1;
            }
            sums.set(self.words.range(begin..words));
            take(first.step, &sum, sums);
        }
        (at, words)
    }

    /// The counts from `oldest` on, those of [`Compact`].
    pub fn sum(&self, oldest: u64) -> Tally {
        if self.is_at(oldest) {
            return self.sum;
        }
        let mut sum = Tally::default();
        for entry in self.since(oldest) {
            entry.counts.add_to(&mut sum);
        }
        sum
    }

    /// Sets `sums` to the distributions from `oldest` on.
    pub fn add_up(&self, oldest: u64, sums: &mut Sums) {
        let begin = if self.is_at(oldest) {
            self.old.1
        } else {
            let words: u32 = self.since(oldest).map(|entry| entry.words).sum();
            self.words.len() - words as usize
        };
        sums.set(self.words.range(begin..));
    }

    /// True if exactly the intervals before `oldest` are excluded.
    fn is_at(&self, oldest: u64) -> bool {
        let is_old = |entry: &Entry| entry.interval < oldest;
        let newest_old = self
            .old
            .0
            .checked_sub(1)
            .and_then(|at| self.entries.get(at));
        newest_old.is_none_or(is_old) && !self.entries.get(self.old.0).is_some_and(is_old)
    }

    fn since(&self, oldest: u64) -> impl Iterator<Item = &Entry> {
        let newest_first = self.entries.iter().rev();
        newest_first.take_while(move |entry| entry.interval >= oldest)
    }

    /// One point for each interval from `first` (at most [`HISTORY_POINTS`]) to `last`.
    pub fn history(&self, first: u64, last: u64) -> Vec<Point> {
        let marks = self.marks_of(first, last).into_iter();
        marks
            .map(|mark| mark.map_or_else(Point::default, Mark::point))
            .collect()
    }

    /// The same with all figures. The last interval begins at `unix_ns`, each has `dt_ns`.
    pub fn recent(&self, first: u64, last: u64, unix_ns: u64, dt_ns: u64) -> Vec<DayPoint> {
        let marks = self.marks_of(first, last);
        let begin = |at: usize| unix_ns.saturating_sub((marks.len() - 1 - at) as u64 * dt_ns);
        let point = |(at, mark): (usize, &Option<&Mark>)| match mark {
            Some(mark) => mark.day_point(begin(at)),
            None => DayPoint {
                unix_ns: begin(at),
                ..DayPoint::default()
            },
        };
        marks.iter().enumerate().map(point).collect()
    }

    /// The mark of each interval from `first` (at most [`HISTORY_POINTS`]) to `last`.
    fn marks_of(&self, first: u64, last: u64) -> Vec<Option<&Mark>> {
        let first = first.max((last + 1).saturating_sub(HISTORY_POINTS as u64));
        let mut marks = vec![None; (last + 1).saturating_sub(first) as usize];
        for mark in &self.marks {
            let at = u64::from(mark.interval).checked_sub(first);
            if let Some(place) = at.and_then(|at| marks.get_mut(at as usize)) {
                *place = Some(mark);
            }
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::pad;
    use fairpath_core::bucket_of;

    fn mark(interval: u64, entry: &interval::Entry) -> Mark {
        let mut sums = Sums::default();
        sums.set(&entry.words);
        Mark::new(interval, [3.0, 5.0], &sums, entry.tally.loss(INSIDE).both())
    }

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
            let entry = did(1 << at, &[1_000_000 << at]);
            window.push(at, 7, &entry, mark(at, &entry));
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
            let entry = did(1 << at, &[1_000_000]);
            window.push(at, at as u32 / 2, &entry, mark(at, &entry));
        }
        let mut left = Vec::new();
        window.leave(5, &mut sums, |step, sum, part| {
            left.push((step, sum.dir[UP].bytes, part.count(INSIDE)));
        });
        assert_eq!(left, [(0, 1 + 2, 2), (1, 4 + 8, 2), (2, 16, 1)]);
        assert_eq!(window.sum(0).dir[UP].bytes, 32);
    }

    #[test]
    fn sums_are_those_of_the_entries() {
        let (mut window, mut sums) = (Window::default(), Sums::default());
        let mut bytes = Vec::new();
        for at in 1..200u64 {
            // Some intervals are idle, and the window changes its length.
            if at % 7 > 1 {
                let entry = did(at * at, &[1_000_000; 3][..(at % 4) as usize]);
                window.push(at, 0, &entry, mark(at, &entry));
                bytes.push((at, at * at, at % 4));
            }
            let oldest = at.saturating_sub(if at < 100 { 10 } else { 5 });
            if at % 3 > 0 {
                window.advance(oldest);
            }
            if at % 11 == 0 {
                window.leave(oldest, &mut sums, |_, _, _| ());
            }
            let recent = bytes.iter().filter(|(at, _, _)| *at >= oldest);
            let (wanted, count) = recent.fold((0, 0), |sum, (_, n, k)| (sum.0 + n, sum.1 + k));
            window.add_up(oldest, &mut sums);
            assert_eq!(window.sum(oldest).dir[UP].bytes, wanted, "{at}");
            assert_eq!(sums.count(INSIDE), count, "{at}");
        }
    }

    #[test]
    fn a_sparkline_has_points_for_idle_intervals() {
        let mut window = Window::default();
        let entry = did(1, &[5_000_000]);
        window.push(2, 0, &entry, mark(2, &entry));
        let points = window.history(0, 3);
        let rates: Vec<f64> = points.iter().map(|point| point.rate_bps).collect();
        assert_eq!(rates, [0.0, 0.0, 8.0, 0.0]);
        assert!(points[2].p95_rtt_ns.is_some() && points[3].p95_rtt_ns.is_none());
        assert_eq!(window.history(0, 100).len(), HISTORY_POINTS);
    }
}
