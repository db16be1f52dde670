//! What belongs to a (kind, name) and stays with it when slots, parents and plans change.

use serde::{Deserialize, Serialize};

use super::alerts::Watch;
use super::day::Day;
use super::load::LoadMeter;
use super::peers::Peers;
use super::tally::Tally;
use super::window::Window;
use crate::Histogram;

/// What a class learnt of itself; made when it is first active.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learnt {
    pub load: LoadMeter,
    pub watch: Watch,
}

/// All that is kept of a class. Without traffic it is a few hundred bytes; see [`super`] for more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Account {
    pub totals: Tally,
    /// Distributions of the totals.
    pub spread: [Histogram; 2],
    /// Ledger time of its last traffic; of its beginning before any.
    pub active_at: u64,
    pub learnt: Option<Box<Learnt>>,
    pub day: Option<Box<Day>>,
    /// First interval that it could have been active in.
    #[serde(skip)]
    pub first_interval: u64,
    /// The last intervals; those that are all over are not saved.
    #[serde(skip)]
    pub window: Option<Box<Window>>,
    /// Its window holds something: the row is in [`super::Ledger`]'s list of such.
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

    /// Without what only the running process needs.
    pub fn saved(&self) -> Account {
        Account {
            totals: self.totals,
            spread: self.spread.clone(),
            active_at: self.active_at,
            learnt: self.learnt.clone(),
            day: self.day.clone(),
            ..Account::default()
        }
    }

    /// How many alerts hold.
    pub fn alerts(&self) -> usize {
        let holds = self.learnt.iter().flat_map(|learnt| &learnt.watch.holds);
        holds.filter(|hold| hold.active).count()
    }
}
