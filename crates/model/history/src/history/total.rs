//! The traffic of all rows together: rows without parent, except interfaces, which count it again.
//!
//! It is not saved: after a restart it begins again.

use std::collections::VecDeque;

use fairpath_core::{DOWN, INSIDE, UP};

use super::day::{Day, DayClock};
use super::interval::{Entry, rate_bps};
use super::pad::Sums;
use super::tally::Tally;
use super::window::Mark;
use crate::snapshot::{DayPoint, Total};

/// Number of intervals of which the total is stored: five minutes of seconds.
pub const TOTAL_POINTS: usize = 300;

/// The last intervals and the last day of all rows.
#[derive(Clone, Debug, Default)]
pub(super) struct TotalMeter {
    recent: VecDeque<(u64, Mark)>,
    day: Day,
}

impl TotalMeter {
    /// Adds an interval of rows that do not include each other.
    pub fn add<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        unix_ns: u64,
        dt_ns: u64,
        step: u32,
        sums: &mut Sums,
    ) {
        let mut sum = Tally::default();
        entries.clone().for_each(|entry| sum.add(&entry.tally));
        sums.set(entries.flat_map(|entry| &entry.words));
        let rates = [UP, DOWN].map(|dir| rate_bps(sum.dir[dir].bytes, dt_ns));
        let mark = Mark::new(0, rates, sums, sum.loss(INSIDE).both());
        while self.recent.len() >= TOTAL_POINTS {
            self.recent.pop_front();
        }
        self.recent.push_back((unix_ns, mark));
        self.day.add(step, &sum, sums);
    }

    /// The points that begin after `after_unix_ns`. With 0 all of them, and the day.
    pub fn show(&self, after_unix_ns: u64, clock: &DayClock) -> Total {
        let recent = self.recent.iter().map(|(at, mark)| mark.day_point(*at));
        let recent: Vec<DayPoint> = recent
            .filter(|point| point.unix_ns > after_unix_ns || after_unix_ns == 0)
            .collect();
        let day = match after_unix_ns {
            0 => self.day.points(clock),
            _ => Vec::new(),
        };
        Total { recent, day }
    }
}
