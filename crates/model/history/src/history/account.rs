//! The counts of a (kind, name), which stay when slots, parents and ceilings change.

use fairpath_core::prefetch;
use serde::{Deserialize, Serialize};

use super::affected::Affliction;
use super::alerts::{Hold, Watch};
use super::day::{Day, DayClock};
use super::interval::Entry;
use super::load::LoadMeter;
use super::pad::Sums;
use super::peers::Peers;
use super::tally::Tally;
use super::window::{Mark, Window};
use crate::Histogram;
use crate::snapshot::DayPoint;

/// Load and baselines of a class, created when it is first active.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learnt {
    pub load: LoadMeter,
    pub watch: Watch,
    /// By leg. Not saved.
    #[serde(skip)]
    pub afflictions: [Affliction; 2],
}

/// The stored data of a class, a few hundred bytes without traffic. See [`super`] for more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Account {
    pub totals: Tally,
    /// Distributions of the totals, without the window.
    spread: [Histogram; 2],
    /// History time of its last traffic, or of its creation.
    pub active_at: u64,
    pub learnt: Option<Box<Learnt>>,
    pub day: Option<Box<Day>>,
    /// Step of the day of its last traffic.
    #[serde(skip)]
    pub active_step: u32,
    /// First interval in which it existed.
    #[serde(skip)]
    pub first_interval: u64,
    /// The last intervals, not saved.
    #[serde(skip)]
    pub window: Option<Box<Window>>,
    /// True if its window has entries, and the row is in [`super::History`]'s list of such rows.
    #[serde(skip)]
    pub recent: bool,
    #[serde(skip)]
    pub peers: Option<Box<Peers>>,
}

impl Account {
    pub fn new(t: u64, first_interval: u64) -> Account {
        Account {
            active_at: t,
            first_interval,
            ..Account::default()
        }
    }

    /// Loads what an interval needs outside of this structure.
    pub fn prefetch(&self) {
        self.window.iter().for_each(|window| prefetch(&**window));
        self.learnt.iter().for_each(|learnt| prefetch(&**learnt));
    }

    /// The same for what those need, later.
    pub fn prefetch_more(&self) {
        self.window.iter().for_each(|window| window.prefetch());
        self.learnt.iter().for_each(|learnt| learnt.load.prefetch());
    }

    /// Adds an interval, except values that depend on ceilings.
    pub fn add(&mut self, t: u64, interval: u64, step: u32, entry: &Entry, mark: Mark) {
        self.active_at = t;
        self.active_step = step;
        self.totals.add(&entry.tally);
        let window = self.window.get_or_insert_default();
        window.push(interval, step, entry, mark);
    }

    /// Moves intervals before `oldest` from the window to distributions and day. O(buckets).
    pub fn settle(&mut self, oldest: u64, sums: &mut Sums) {
        let Some(window) = &mut self.window else {
            return;
        };
        let (spread, day) = (&mut self.spread, &mut self.day);
        window.leave(oldest, sums, |step, sum, part| {
            part.add_to(spread);
            if let Some(day) = day {
                day.add(step, sum, part);
            }
        });
    }

    /// A copy for the state file, with all intervals settled.
    pub fn saved(&self, sums: &mut Sums) -> Account {
        let mut saved = Account {
            totals: self.totals,
            spread: self.spread.clone(),
            active_at: self.active_at,
            learnt: self.learnt.clone(),
            day: self.day.clone(),
            ..Account::default()
        };
        if let Some(window) = &self.window {
            window.by_step(u64::MAX, sums, |step, sum, part| {
                part.add_to(&mut saved.spread);
                if let Some(day) = &mut saved.day {
                    day.add(step, sum, part);
                }
            });
        }
        saved
    }

    /// Distributions of the totals by leg.
    pub fn spread(&self, sums: &mut Sums) -> [Histogram; 2] {
        let mut spread = self.spread.clone();
        if let Some(window) = &self.window {
            window.add_up(0, sums);
            sums.add_to(&mut spread);
        }
        spread
    }

    /// The last day, oldest first.
    pub fn day_points(&self, clock: &DayClock, sums: &mut Sums) -> Vec<DayPoint> {
        let saved = self.saved(sums);
        let day = saved.day.iter();
        day.flat_map(|day| day.points(clock)).collect()
    }

    /// True with an active alert, or with one that ended and still includes others.
    pub fn alerting(&self, t: u64) -> bool {
        self.holds().any(|hold| hold.active || hold.covers(t))
    }

    /// Its alerts, in the order of [`super::alerts::WATCHED`]. Empty if it was never active.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.learnt.iter().flat_map(|learnt| &learnt.watch.holds)
    }
}
