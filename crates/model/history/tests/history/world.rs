//! A test core, with counters, cells, pairs and clocks that tests set.

use std::collections::BTreeMap;

use fairpath_core::{Cell, ClassCounts, Pair, bucket_of};
use fairpath_history::history::{History, Meta, Moment, NO_SLOT, Reading, RowSpec, Settings};
use fairpath_history::snapshot::{Alert, Kind, Query, Snapshot, SnapshotRow};

pub const SECOND: u64 = 1_000_000_000;
pub const MS: u64 = 1_000_000;
/// A Unix time.
pub const THEN: u64 = 1_800_000_000 * SECOND;

pub struct World {
    pub counts: Vec<ClassCounts>,
    pub pairs: Vec<Pair>,
    pub now: Moment,
    cells: BTreeMap<(u32, u8, u16), u32>,
}

impl World {
    pub fn new(slots: usize) -> World {
        World {
            counts: vec![ClassCounts::default(); slots],
            pairs: Vec::new(),
            now: Moment {
                unix_ns: THEN,
                mono_ns: 77 * SECOND,
            },
            cells: BTreeMap::new(),
        }
    }

    pub fn history(&self, rows: Vec<RowSpec>) -> History {
        let mut history = History::new(Settings::default(), self.now);
        history.configure(rows, &self.counts).unwrap();
        history
    }

    pub fn bytes(&mut self, slot: u32, dir: usize, packets: u64, bytes: u64) {
        let counts = &mut self.counts[slot as usize].dir[dir];
        counts.packets = counts.packets.wrapping_add(packets);
        counts.bytes = counts.bytes.wrapping_add(bytes);
    }

    pub fn rtt(&mut self, slot: u32, leg: usize, rtt_ns: u64) {
        let counts = &mut self.counts[slot as usize].leg[leg];
        counts.samples = counts.samples.wrapping_add(1);
        counts.sum_ns = counts.sum_ns.wrapping_add(rtt_ns);
        let key = (slot, leg as u8, bucket_of(rtt_ns));
        *self.cells.entry(key).or_default() += 1;
    }

    pub fn data(&mut self, slot: u32, dir: usize, data: u32, again: u32, before: u32) {
        let counts = &mut self.counts[slot as usize].dir[dir];
        counts.data_packets = counts.data_packets.wrapping_add(data);
        counts.retransmitted_packets = counts.retransmitted_packets.wrapping_add(again);
        counts.upstream_lost_packets = counts.upstream_lost_packets.wrapping_add(before);
    }

    /// The same counters for another history.
    pub fn fork(&self) -> World {
        World {
            counts: self.counts.clone(),
            pairs: self.pairs.clone(),
            cells: self.cells.clone(),
            ..*self
        }
    }

    /// Ends an interval of one second.
    pub fn second(&mut self, history: &mut History) -> Vec<Alert> {
        self.now.mono_ns += SECOND;
        self.now.unix_ns += SECOND;
        self.read(history)
    }

    pub fn read(&mut self, history: &mut History) -> Vec<Alert> {
        let cells = std::mem::take(&mut self.cells).into_iter();
        let cells = cells.map(|((slot, leg, bucket), count)| Cell {
            slot,
            leg,
            bucket,
            count,
        });
        history.take(&Reading {
            unix_ns: self.now.unix_ns,
            mono_ns: self.now.mono_ns,
            counts: &self.counts,
            cells: &cells.collect::<Vec<Cell>>(),
            pairs: &std::mem::take(&mut self.pairs),
        })
    }
}

pub fn class(name: &str, slot: u32) -> RowSpec {
    RowSpec {
        slot,
        name: name.into(),
        kind: Kind::Class,
        ..RowSpec::default()
    }
}

pub fn below(parent: usize, spec: RowSpec) -> RowSpec {
    RowSpec {
        parent: Some(parent),
        ..spec
    }
}

pub fn group(name: &str) -> RowSpec {
    class(name, NO_SLOT)
}

pub fn everything() -> Query {
    Query {
        histograms: true,
        history: true,
        alerts: true,
        ..Query::default()
    }
}

pub fn snapshot_of(history: &History) -> Snapshot {
    history.snapshot(&everything(), Meta::default())
}

pub fn row(history: &History, name: &str) -> SnapshotRow {
    let rows = snapshot_of(history).rows;
    rows.into_iter().find(|row| row.name == name).unwrap()
}

/// Splitmix64: pseudo-random numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }

    /// Uniform, 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, as a sum of twelve.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }

    /// Log-normal around a median, nanoseconds.
    pub fn rtt(&mut self, median_ms: f64, sigma: f64) -> u64 {
        (median_ms * 1e6 * (sigma * self.normal()).exp()) as u64
    }
}
