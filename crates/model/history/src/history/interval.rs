//! The last interval: the counts of each active class and of its ancestors.

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP, prefetch};

use super::counts::Counts;
use super::pad::Sums;
use super::tally::Tally;
use crate::Histogram;
use crate::rows::IntervalRow;
use crate::snapshot::Kind;

const NONE: u32 = u32::MAX;
/// Distributions up to this size are not packed again, because a leg rarely has fewer buckets.
const MIN_REPACK_WORDS: usize = 64;

/// The interval of an active row.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub row: usize,
    pub tally: Tally,
    /// Packed distributions.
    pub words: Vec<u32>,
    /// The row was busy.
    pub busy: bool,
}

/// Entries of the active rows, sorted by row after [`Interval::roll_up`].
#[derive(Clone, Debug, Default)]
pub(super) struct Interval {
    pub unix_ns: u64,
    pub dt_ns: u64,
    pub entries: Vec<Entry>,
    /// Index of the entry of each row.
    at: Vec<u32>,
    /// Entries for reuse of their memory.
    spare: Vec<Entry>,
}

impl Interval {
    /// Removes all entries, and prepares for `rows` rows.
    pub fn reset(&mut self, rows: usize) {
        self.entries.clear();
        self.spare.clear();
        self.at.clear();
        self.at.resize(rows, NONE);
    }

    /// Begins the next interval.
    pub fn begin(&mut self, unix_ns: u64, dt_ns: u64) {
        for mut entry in self.entries.drain(..) {
            self.at[entry.row] = NONE;
            entry.tally = Tally::default();
            entry.words.clear();
            entry.busy = false;
            self.spare.push(entry);
        }
        self.unix_ns = unix_ns;
        self.dt_ns = dt_ns;
    }

    /// The entry of a row, created if missing.
    pub fn entry(&mut self, row: usize) -> &mut Entry {
        if self.at[row] == NONE {
            self.at[row] = self.entries.len() as u32;
            let spare = self.spare.pop().unwrap_or_default();
            self.entries.push(Entry { row, ..spare });
        }
        &mut self.entries[self.at[row] as usize]
    }

    /// Loads the entry of a row.
    pub fn prefetch(&self, row: usize) {
        self.get(row).inspect(|entry| prefetch(*entry));
    }

    /// The entry of a row, if it was active.
    pub fn get(&self, row: usize) -> Option<&Entry> {
        let at = self.at.get(row).filter(|at| **at != NONE)?;
        self.entries.get(*at as usize)
    }

    /// Adds the counts of rows to their ancestors, each row once. O(words). `parent` returns the parent,
    /// which has a lower index.
    pub fn roll_up(&mut self, parent: impl Fn(usize) -> Option<usize>, sums: &mut Sums) {
        let mut at = 0;
        while at < self.entries.len() {
            if let Some(above) = parent(self.entries[at].row) {
                self.entry(above);
            }
            at += 1;
        }
        self.entries.sort_unstable_by_key(|entry| entry.row);
        for (at, entry) in self.entries.iter().enumerate() {
            self.at[entry.row] = at as u32;
        }
        for at in (0..self.entries.len()).rev() {
            // All descendants are added: pack the words of several children together.
            let words = &mut self.entries[at].words;
            if words.len() > MIN_REPACK_WORDS {
                sums.set(&*words);
                sums.pack(words);
            }
            let Some(above) = parent(self.entries[at].row) else {
                continue;
            };
            let (before, from) = self.entries.split_at_mut(at);
            let (sum, part) = (&mut before[self.at[above] as usize], &from[0]);
            sum.tally.add(&part.tally);
            sum.words.extend(&part.words);
        }
    }

    /// Rates of an entry, bits per second, indexed by direction.
    pub fn rates_bps(&self, entry: &Entry) -> [f64; 2] {
        [UP, DOWN].map(|dir| rate_bps(entry.tally.dir[dir].bytes, self.dt_ns))
    }

    /// The counts of an entry.
    pub fn counts(&self, entry: &Entry) -> Counts {
        let busy_ns = if entry.busy { self.dt_ns } else { 0 };
        Counts::of(&entry.tally, &entry.words, self.rates_bps(entry), busy_ns)
    }

    /// The interval row of an entry. Without entry it has zero counts.
    pub fn row(
        &self,
        entry: Option<&Entry>,
        name: &str,
        kind: Kind,
        parent: Option<&str>,
        sums: &mut Sums,
    ) -> IntervalRow {
        let none = Entry::default();
        let Entry { tally, words, .. } = entry.unwrap_or(&none);
        sums.set(words);
        let (up, down) = (&tally.dir[UP], &tally.dir[DOWN]);
        let (inside, outside) = (tally.loss(INSIDE), tally.loss(OUTSIDE));
        let near = Times::of(tally, sums, INSIDE);
        let far = Times::of(tally, sums, OUTSIDE);
        let mut histograms = <[Histogram; 2]>::default();
        sums.add_to(&mut histograms);
        let [inside_histogram, outside_histogram] =
            [INSIDE, OUTSIDE].map(|leg| std::mem::take(&mut histograms[leg]));
        IntervalRow {
            unix_ns: self.unix_ns,
            interval_ns: self.dt_ns,
            name: name.to_owned(),
            kind,
            parent: parent.map(str::to_owned),
            bytes_up: up.bytes,
            bytes_down: down.bytes,
            packets_up: up.packets,
            packets_down: down.packets,
            unmeasured_bytes_up: up.unmeasured_bytes,
            unmeasured_bytes_down: down.unmeasured_bytes,
            inside_samples: near.samples,
            inside_min_rtt_ns: near.min,
            inside_p50_rtt_ns: near.p50,
            inside_p95_rtt_ns: near.p95,
            inside_p99_rtt_ns: near.p99,
            inside_max_rtt_ns: near.max,
            inside_mean_rtt_ns: near.mean,
            inside_sum_rtt_ns: tally.leg[INSIDE].sum_ns,
            inside_lost_to_packets: inside.to.lost,
            inside_data_to_packets: inside.to.of,
            inside_lost_from_packets: inside.from.lost,
            inside_data_from_packets: inside.from.of,
            outside_samples: far.samples,
            outside_min_rtt_ns: far.min,
            outside_p50_rtt_ns: far.p50,
            outside_p95_rtt_ns: far.p95,
            outside_p99_rtt_ns: far.p99,
            outside_max_rtt_ns: far.max,
            outside_mean_rtt_ns: far.mean,
            outside_sum_rtt_ns: tally.leg[OUTSIDE].sum_ns,
            outside_lost_to_packets: outside.to.lost,
            outside_data_to_packets: outside.to.of,
            outside_lost_from_packets: outside.from.lost,
            outside_data_from_packets: outside.from.of,
            reordered_packets_up: up.reordered,
            reordered_packets_down: down.reordered,
            flows_opened: tally.flows_opened,
            flows_closed: tally.flows_closed,
            handshakes_failed: tally.handshakes_failed,
            flows_one_sided: tally.one_sided,
            inside_histogram,
            outside_histogram,
        }
    }
}

/// Bits per second, 0 for no time.
pub(super) fn rate_bps(bytes: u64, ns: u64) -> f64 {
    if ns == 0 {
        return 0.0;
    }
    bytes as f64 * 8e9 / ns as f64
}

/// RTT values of a leg in an interval.
struct Times {
    samples: u64,
    min: Option<u64>,
    p50: Option<u64>,
    p95: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
    mean: Option<u64>,
}

impl Times {
    fn of(tally: &Tally, sums: &Sums, leg: usize) -> Times {
        let rtts = &tally.leg[leg];
        Times {
            samples: rtts.samples,
            min: sums.quantile(leg, 0.0),
            p50: sums.quantile(leg, 0.5),
            p95: sums.quantile(leg, 0.95),
            p99: sums.quantile(leg, 0.99),
            max: sums.quantile(leg, 1.0),
            mean: rtts.sum_ns.checked_div(rtts.samples),
        }
    }
}
