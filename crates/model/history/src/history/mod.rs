//! The history of classes: from the core's counts of each interval to the values of a snapshot.
//!
//! ```text
//! Reading ─ meters (differences) ─ interval (own counts, then ancestors) ─────┬─ totals, window, load, day
//!   cells ───────────────────────────┘                                       ├─ alerts
//!   pairs ─ peers, unmatched subnets                                         └─ rows for export
//! ```
//!
//! Pure: reads no clock, does no I/O. An interval costs one comparison for each slot, and work for
//! rows whose counters changed and for their ancestors. Values of a row include those of its
//! descendants.
//!
//! Rates and ages use the monotonic clock ([`Reading::mono_ns`]). Unix times are only labels.
//!
//! The data of a row belongs to its (kind, name), so slots, parents and ceilings may change. A removed
//! row is parked for [`PARKED_NS`]. An interface that returns, or a class that was removed by mistake,
//! continues with its data.
//!
//! | data of a row | present | bytes |
//! |---|---|---|
//! | name, ceilings, totals | always | 600 |
//! | distributions of the totals | once measured | 16 per used bucket and leg |
//! | load, baselines, alerts | once active | 800, and 8 per bucket of load |
//! | window | active in the window | 300, and up to twice its intervals: 112 each, and 4 per bucket and leg |
//! | sparkline | once active | 1,500 |
//! | peers | once active | 48 each, [`MAX_PEERS`] over all rows |
//! | day | [`MAX_DAY_CLASSES`] rows | 24 per five minutes with traffic, and the buckets of the open step |

mod account;
mod affected;
mod alerts;
mod baseline;
mod blocks;
mod configure;
mod counts;
mod day;
mod faults;
mod fold;
mod interval;
mod line;
mod load;
mod pad;
mod peer_list;
mod peers;
mod show;
mod state;
mod take;
mod tally;
mod total;
mod tree;
mod unmatched;
mod window;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fairpath_core::{Cell, ClassCounts, Pair, Prefix};

use crate::rows::IntervalRow;
use crate::snapshot::{Alert, Kind};
use account::Account;
use alerts::Active;
pub use alerts::{
    ACCEPTED_NS, AlertRules, EXCURSION_NS, LOSS_MIN_PACKETS, MAX_ACTIVE_ALERTS,
    MAX_ALERTS_PER_INTERVAL, RESERVED_ALERTS, UNJUDGED_NS,
};
pub use baseline::{BASELINE_NS, DEVIATIONS, MIN_SAMPLES, SURE, WARM_UP_NS};
pub use blocks::{BlockError, Effort, MAX_BLOCK_BYTES, decode, encode};
pub use counts::{Counts, IntervalCounts, Losses, RowName};
use day::DayClock;
pub use day::{DAY_STEP_NS, DAY_STEPS, MAX_DAY_CLASSES};
pub use fairpath_class::Sla;
use faults::Faults;
pub use fold::{FOLD_MIN_CLASSES, FOLD_SHARE};
use interval::Interval;
pub use line::{
    BASE_SLOT_NS, BASE_SLOTS, BLOCK_MIN_SAMPLES, BLOCK_NS, FAR_FACTOR, SATURATED_FACTOR,
    SATURATED_FLOOR_NS, SATURATED_LOSS, SATURATED_MIN_BPS,
};
pub use load::{
    BUSY_SHARE, GROWTH_UNFELT_NS, GROWTH_UNUSABLE_NS, IDLE_MAX_BPS, IDLE_SHARE, LOAD_HALF_LIFE_NS,
    LOAD_MIN_SAMPLES, PEAK_FLOOR_BPS, PEAK_HALF_LIFE_NS, SATURATED_NS, score,
};
use pad::Sums;
use peer_list::Places;
pub use peers::{
    MAX_PEERS, PEER_FORGOTTEN_NS, PEER_HALF_LIFE_NS, PEERS_PER_CLASS, WORST_MIN_SAMPLES,
};
pub use show::Meta;
pub use state::{STATE_VERSION, State, StateError};
use tally::Meter;
pub use total::TOTAL_POINTS;
use total::TotalMeter;
use tree::Place;
pub use tree::{ConfigureError, MAX_ROWS, NO_SLOT, RowSpec};
use unmatched::Unmatched;
pub use unmatched::{MAX_UNMATCHED, UNMATCHED_HALF_LIFE_NS, parse_subnet};
pub use window::HISTORY_POINTS;

/// Maximum number of intervals in a window.
pub const MAX_WINDOW_INTERVALS: u32 = 120;
/// Time for which the data of a removed row is kept.
pub const PARKED_NS: u64 = 3_600_000_000_000;
/// Maximum number of parked rows, including restored ones. The oldest are dropped and counted.
pub const MAX_PARKED: usize = MAX_ROWS;

/// Maximum number of ended alerts in a snapshot. Older ones are only in logs and files.
pub const MAX_PAST_ALERTS: usize = 100;

/// Settings of window and alerts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Number of intervals that rates, percentiles and loss cover: 1 to [`MAX_WINDOW_INTERVALS`].
    pub window_intervals: u32,
    /// The conditions of alerts.
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

/// A time by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Unix time. The clock may be set.
    pub unix_ns: u64,
    /// Monotonic time, from any origin.
    pub mono_ns: u64,
}

/// The core's counts at the end of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Unix time of the reading.
    pub unix_ns: u64,
    /// Monotonic time of the reading.
    pub mono_ns: u64,
    /// Counters by slot, which only grow, and wrap.
    pub counts: &'a [ClassCounts],
    /// RTT samples since the last reading.
    pub cells: &'a [Cell],
    /// Traffic of peers since the last reading.
    pub pairs: &'a [Pair],
}

/// A row, its position in the tree and its data.
#[derive(Clone, Debug, Default)]
struct Node {
    place: Place,
    account: Account,
}

/// The counters of a slot, and its row.
#[derive(Clone, Copy, Debug)]
struct Slot {
    meter: Meter,
    /// [`NO_ROW`] without row.
    row: u32,
}

const NO_ROW: u32 = u32::MAX;

/// A removed row, or a restored row that is not configured yet.
#[derive(Clone, Debug)]
struct Parked {
    account: Account,
    since: u64,
}

/// Times. History time `t` continues across restarts and never decreases, nanoseconds.
#[derive(Clone, Debug)]
struct Clock {
    last: Moment,
    /// History time of the start of this process, and of the last reading.
    start_t: u64,
    t: u64,
    /// Number of the last interval, from 1.
    interval: u64,
    /// Ends of the intervals in the window, after the begin of the first.
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

/// Counters of dropped data since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    cells_without_row: u64,
    pairs_without_row: u64,
    counters_reset: u64,
    days_evicted: u64,
    days_refused: u64,
    parked_dropped: u64,
}

/// The history of all classes.
///
/// [`History::take`] adds an interval. To apply a new configuration: take a last reading, set the core's
/// rules, clear new slots, then call [`History::configure`] with the current counts.
#[derive(Clone, Debug)]
pub struct History {
    settings: Settings,
    nodes: Vec<Node>,
    slots: Vec<Slot>,
    parked: HashMap<(Kind, String), Parked>,
    clock: Clock,
    day_clock: DayClock,
    interval: Interval,
    /// Rows with entries in their window, and the arrays in which windows are added up.
    recent: Vec<usize>,
    sums: Sums,
    /// Number of active alerts, and the rows that have any.
    active_alerts: Active,
    /// Number of begins and ends that the last interval did not apply.
    alerts_waiting: u64,
    alerting: Vec<usize>,
    faults: Faults,
    /// The last ends of reported alerts, newest first.
    past_alerts: VecDeque<Alert>,
    total: TotalMeter,
    /// Parents whose classes exceed their service levels.
    folding: Vec<usize>,
    /// Restored rows with reported alerts that are not configured since the start.
    missing: Vec<(Kind, String)>,
    /// Number of rows with a day, including parked ones.
    days: usize,
    unmatched: Unmatched,
    places: Places,
    labels: HashMap<u32, String>,
    counters: Counters,
    configuration: u64,
    /// The rows, for [`History::interval_counts`]. Made when first needed.
    names: Option<Arc<[RowName]>>,
    counting_since_unix_ns: u64,
    gap_ns: Option<u64>,
}

impl History {
    /// A history without rows. The first interval begins at `start`.
    pub fn new(settings: Settings, start: Moment) -> History {
        let mut history = History {
            settings: Settings::default(),
            nodes: Vec::new(),
            slots: Vec::new(),
            parked: HashMap::new(),
            clock: Clock::new(start, 0),
            day_clock: DayClock::default(),
            interval: Interval::default(),
            recent: Vec::new(),
            sums: Sums::default(),
            active_alerts: Active::default(),
            alerts_waiting: 0,
            alerting: Vec::new(),
            faults: Faults::default(),
            past_alerts: VecDeque::new(),
            total: TotalMeter::default(),
            folding: Vec::new(),
            missing: Vec::new(),
            days: 0,
            unmatched: Unmatched::default(),
            places: Places::default(),
            labels: HashMap::new(),
            counters: Counters::default(),
            configuration: 0,
            names: None,
            counting_since_unix_ns: start.unix_ns,
            gap_ns: None,
        };
        history.set_settings(settings);
        history
    }

    /// Applies settings from the next interval on. The window is limited to its range.
    pub fn set_settings(&mut self, mut settings: Settings) {
        settings.window_intervals = settings.window_intervals.clamp(1, MAX_WINDOW_INTERVALS);
        self.settings = settings;
    }

    /// Sets the names of labels by number ([`Pair::label`]). A label without name appears as its number.
    pub fn set_labels(&mut self, labels: HashMap<u32, String>) {
        self.labels = labels;
    }

    /// Time without measurement at the last restart.
    pub fn gap_ns(&self) -> Option<u64> {
        self.gap_ns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.nodes.len()
    }

    /// Subnets of hosts that match no class: the `n` with the most bytes, which halve every
    /// [`UNMATCHED_HALF_LIFE_NS`], most bytes first. Excludes subnets that have a row of kind
    /// [`Kind::Subnet`].
    pub fn unmatched(&self, n: usize) -> Vec<(Prefix, u64)> {
        let busiest = self.unmatched.busiest(n).into_iter();
        busiest
            .map(|(prefix, bytes)| (prefix, bytes as u64))
            .collect()
    }

    /// Names of the rows of a kind without traffic for at least `older_than_ns`.
    pub fn idle_rows(&self, kind: Kind, older_than_ns: u64) -> Vec<&str> {
        let nodes = self.nodes.iter().filter(|node| {
            node.place.spec.kind == kind
                && self.clock.t.saturating_sub(node.account.active_at) >= older_than_ns
        });
        nodes.map(|node| node.place.spec.name.as_str()).collect()
    }

    /// The last interval of each active row, in tree order. A row is active if a descendant is. Empty
    /// between [`History::configure`] and the next reading.
    pub fn interval_rows(&self) -> impl Iterator<Item = IntervalRow> + '_ {
        let rows = self.interval.entries.iter().map(|entry| entry.row);
        let mut sums = Sums::default();
        rows.map(move |row| self.interval_row(row, &mut sums))
    }

    /// The last interval of every row, in tree order. Idle rows have zero counts.
    pub fn all_interval_rows(&self) -> impl Iterator<Item = IntervalRow> + '_ {
        let mut sums = Sums::default();
        (0..self.nodes.len()).map(move |row| self.interval_row(row, &mut sums))
    }

    /// The last interval as counts that add up. O(active rows and their buckets), and O(rows) after a
    /// configuration.
    pub fn interval_counts(&mut self) -> IntervalCounts {
        let nodes = self.nodes.iter().map(|node| &node.place.spec);
        let names = self
            .names
            .get_or_insert_with(|| nodes.map(|spec| (spec.kind, spec.name.clone())).collect());
        let interval = &self.interval;
        let entries = interval.entries.iter();
        IntervalCounts {
            unix_ns: interval.unix_ns,
            length_ns: interval.dt_ns,
            names: Arc::clone(names),
            rows: entries
                .map(|entry| (entry.row as u32, interval.counts(entry)))
                .collect(),
        }
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
