//! The ledger: from what the core counted in each interval to everything that is shown of classes.
//!
//! ```text
//! Reading ─ meters (differences) ─ interval (own numbers, then those above) ─┬─ totals, window, load, day
//!   cells ───────────────────────────┘                                       ├─ alerts
//!   pairs ─ peers, unmatched subnets                                         └─ rows for export
//! ```
//!
//! Pure: reads no clock, does no I/O. An interval costs one comparison for each slot and work for
//! those rows only whose counters moved, and for the rows above them. A row's numbers include those
//! of the rows below it.
//!
//! Rates and ages are measured by a clock that is never set ([`Reading::mono_ns`]); Unix times
//! only say when.
//!
//! What belongs to a row stays with its (kind, name): slots, parents and plans may change. A row
//! that vanishes is parked, and forgotten after [`PARKED_NS`]: an interface that comes back, or a
//! class that was left out by mistake, goes on where it was.
//!
//! | what a row keeps | when | bytes |
//! |---|---|---|
//! | name, plan, totals | always | 600 |
//! | distributions of the totals | measured ever | 16 a bucket and leg that was ever hit |
//! | load, baselines, alerts | active ever | 700, and 8 a bucket of load |
//! | window | active in the window | up to twice its intervals: 112 each, and 4 a bucket and leg |
//! | sparkline | active ever | 1,000 |
//! | peers | active ever | 48 each, [`MAX_PEERS`] over all rows |
//! | day | [`MAX_DAY_CLASSES`] rows | 24 a five minutes with traffic, and the open step's buckets |

mod account;
mod alerts;
mod baseline;
mod configure;
mod day;
mod interval;
mod load;
mod pad;
mod peer_list;
mod peers;
mod show;
mod state;
mod take;
mod tally;
mod tree;
mod unmatched;
mod window;

use std::collections::{HashMap, VecDeque};

use fairpath_core::{Cell, ClassCounts, Pair, Prefix};

use crate::rows::IntervalRow;
use crate::snapshot::Kind;
use account::Account;
pub use alerts::{
    ACCEPTED_NS, AlertRules, EXCURSION_NS, LOSS_MIN_PACKETS, MAX_ACTIVE_ALERTS,
    MAX_ALERTS_PER_INTERVAL, UNJUDGED_NS,
};
pub use baseline::{BASELINE_NS, DEVIATIONS, MIN_SAMPLES, SURE, WARM_UP_NS};
use day::DayClock;
pub use day::{DAY_STEP_NS, DAY_STEPS, MAX_DAY_CLASSES};
pub use fairpath_class::Sla;
use interval::Interval;
pub use load::{
    BUSY_SHARE, GROWTH_UNFELT_NS, GROWTH_UNUSABLE_NS, IDLE_SHARE, LOAD_HALF_LIFE_NS,
    LOAD_MIN_SAMPLES, PEAK_FLOOR_BPS, PEAK_HALF_LIFE_NS, score,
};
use pad::Sums;
use peer_list::Places;
pub use peers::{
    MAX_PEERS, PEER_FORGOTTEN_NS, PEER_HALF_LIFE_NS, PEERS_PER_CLASS, WORST_MIN_SAMPLES,
};
pub use show::Meta;
pub use state::{STATE_VERSION, State, StateError};
use tally::Meter;
use tree::Place;
pub use tree::{ConfigureError, MAX_ROWS, NO_SLOT, RowSpec};
use unmatched::Unmatched;
pub use unmatched::{MAX_UNMATCHED, UNMATCHED_HALF_LIFE_NS, parse_subnet};
pub use window::HISTORY_POINTS;

/// Intervals that a window may have.
pub const MAX_WINDOW_INTERVALS: u32 = 120;
/// How long a row that vanished may come back to its numbers.
pub const PARKED_NS: u64 = 3_600_000_000_000;
/// Rows that may be parked at once, restored ones included; the oldest are dropped, and counted.
pub const MAX_PARKED: usize = MAX_ROWS;

/// What a ledger looks back over, and what it takes for an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Intervals that rates, quantiles and loss look back over: 1 to [`MAX_WINDOW_INTERVALS`].
    pub window_intervals: u32,
    /// What makes an alert.
    pub alerts: AlertRules,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            window_intervals: 10,
            alerts: AlertRules::default(),
        }
    }
}

/// A point of time by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Unix time; may be set.
    pub unix_ns: u64,
    /// A clock that is never set; where it begins does not matter.
    pub mono_ns: u64,
}

/// What was read of the core at the end of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// When, Unix time.
    pub unix_ns: u64,
    /// When, by the clock that is never set.
    pub mono_ns: u64,
    /// By slot: counters that only grow, and wrap.
    pub counts: &'a [ClassCounts],
    /// Round-trip times since the last reading.
    pub cells: &'a [Cell],
    /// Whom classes talked with since the last reading.
    pub pairs: &'a [Pair],
}

/// A row, its place and its numbers.
#[derive(Clone, Debug, Default)]
struct Node {
    place: Place,
    account: Account,
}

/// A slot's counters, and the row that they belong to.
#[derive(Clone, Copy, Debug)]
struct Slot {
    meter: Meter,
    /// [`NO_ROW`] if it belongs to none.
    row: u32,
}

const NO_ROW: u32 = u32::MAX;

/// A row that vanished, or was restored and is not wanted yet.
#[derive(Clone, Debug)]
struct Parked {
    account: Account,
    since: u64,
}

/// Times. Ledger time `t` goes on through restarts: nanoseconds, never back.
#[derive(Clone, Debug)]
struct Clock {
    last: Moment,
    /// Ledger time when this process began to count, and now.
    start_t: u64,
    t: u64,
    /// Number of the interval that was read last; the first is 1.
    interval: u64,
    /// Ends of the window's intervals, and the beginning of the first.
    ends: VecDeque<u64>,
}

impl Clock {
    fn new(start: Moment, t: u64) -> Clock {
        Clock {
            last: start,
            start_t: t,
            t,
            interval: 0,
            ends: VecDeque::from([t]),
        }
    }

    /// The first interval of the window.
    fn oldest(&self) -> u64 {
        (self.interval + 2).saturating_sub(self.ends.len() as u64)
    }

    fn window_ns(&self) -> u64 {
        self.t - self.ends.front().copied().unwrap_or(self.t)
    }
}

/// What was dropped or waits, since the ledger was made.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    cells_without_row: u64,
    pairs_without_row: u64,
    counts_set_back: u64,
    days_given_up: u64,
    days_refused: u64,
    alerts_waiting: u64,
    parked_dropped: u64,
}

/// Everything known of all classes.
///
/// An interval: [`Ledger::take`]. A new configuration: read the core and [`Ledger::take`] it, give
/// the core its rules, clear the slots that are new, then [`Ledger::configure`] with the counts
/// as they are then.
#[derive(Clone, Debug)]
pub struct Ledger {
    settings: Settings,
    nodes: Vec<Node>,
    slots: Vec<Slot>,
    parked: HashMap<(Kind, String), Parked>,
    clock: Clock,
    day_clock: DayClock,
    interval: Interval,
    /// Rows whose window holds something, and the pad on which windows are added up.
    recent: Vec<usize>,
    sums: Sums,
    /// Alerts that hold, over all rows, and the rows that have any.
    active_alerts: usize,
    alerting: Vec<usize>,
    /// Rows that have a day, parked ones included.
    days: usize,
    unmatched: Unmatched,
    places: Places,
    labels: HashMap<u32, String>,
    counters: Counters,
    configuration: u64,
    counting_since_unix_ns: u64,
    gap_ns: Option<u64>,
}

impl Ledger {
    /// Without rows. The first interval begins at `start`.
    pub fn new(settings: Settings, start: Moment) -> Ledger {
        let mut ledger = Ledger {
            settings: Settings::default(),
            nodes: Vec::new(),
            slots: Vec::new(),
            parked: HashMap::new(),
            clock: Clock::new(start, 0),
            day_clock: DayClock::default(),
            interval: Interval::default(),
            recent: Vec::new(),
            sums: Sums::default(),
            active_alerts: 0,
            alerting: Vec::new(),
            days: 0,
            unmatched: Unmatched::default(),
            places: Places::default(),
            labels: HashMap::new(),
            counters: Counters::default(),
            configuration: 0,
            counting_since_unix_ns: start.unix_ns,
            gap_ns: None,
        };
        ledger.set_settings(settings);
        ledger
    }

    /// From the next interval on; a window out of its bounds is taken as the nearest within.
    pub fn set_settings(&mut self, mut settings: Settings) {
        settings.window_intervals = settings.window_intervals.clamp(1, MAX_WINDOW_INTERVALS);
        self.settings = settings;
    }

    /// Names of labels by number ([`Pair::label`]); a label without name is shown as its number.
    pub fn set_labels(&mut self, labels: HashMap<u32, String>) {
        self.labels = labels;
    }

    /// How long nothing was measured at the last restart.
    pub fn gap_ns(&self) -> Option<u64> {
        self.gap_ns
    }

    /// Rows that exist.
    pub fn rows(&self) -> usize {
        self.nodes.len()
    }

    /// Subnets of endpoints that no class matched: the `n` with the most bytes of the last half
    /// minute (they halve every [`UNMATCHED_HALF_LIFE_NS`]), most first. A subnet that has
    /// become a row of kind [`Kind::Subnet`] by its name is not among them.
    pub fn unmatched(&self, n: usize) -> Vec<(Prefix, u64)> {
        let busiest = self.unmatched.busiest(n).into_iter();
        busiest
            .map(|(prefix, bytes)| (prefix, bytes as u64))
            .collect()
    }

    /// Names of the rows of a kind that had no traffic for at least `older_than_ns`.
    pub fn idle_rows(&self, kind: Kind, older_than_ns: u64) -> Vec<&str> {
        let nodes = self.nodes.iter().filter(|node| {
            node.place.spec.kind == kind
                && self.clock.t.saturating_sub(node.account.active_at) >= older_than_ns
        });
        nodes.map(|node| node.place.spec.name.as_str()).collect()
    }

    /// The last interval of each row that was active in it, or whose children were; in tree order.
    /// None after [`Ledger::configure`], until the next reading.
    pub fn interval_rows(&self) -> impl Iterator<Item = IntervalRow> + '_ {
        let rows = self.interval.entries.iter().map(|entry| entry.row);
        let mut sums = Sums::default();
        rows.map(move |row| self.interval_row(row, &mut sums))
    }

    /// The last interval of every row, in tree order; those that rested have zero counts.
    pub fn all_interval_rows(&self) -> impl Iterator<Item = IntervalRow> + '_ {
        let mut sums = Sums::default();
        (0..self.nodes.len()).map(move |row| self.interval_row(row, &mut sums))
    }

    fn interval_row(&self, row: usize, sums: &mut Sums) -> IntervalRow {
        let spec = &self.nodes[row].place.spec;
        let entry = self.interval.get(row);
        self.interval
            .row(entry, &spec.name, spec.kind, self.parent_name(row), sums)
    }

    fn parent_name(&self, row: usize) -> Option<&str> {
        let parent = self.nodes[row].place.spec.parent?;
        Some(self.nodes[parent].place.spec.name.as_str())
    }
}
