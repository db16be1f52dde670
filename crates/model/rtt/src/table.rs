//! A table of round-trip times and loss: one row for each host, flow or class.
//!
//! Rows of hosts and flows come from events, rows of classes from the core's own classification
//! ([`ClassReading`]). Percentiles are those of the core's buckets, within 1.6 %. Minimum and maximum
//! are exact by host and flow. By class, they are the middles of their buckets.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use fairpath_class::ClassSet;
use fairpath_core::{
    ClassReading, Counts, DOWN, DirCounts, Event, FlowRecord, INSIDE, Key, OTHER, OUTSIDE, Sample,
    UP, bucket_of,
};
use fairpath_history::Histogram;
use fairpath_history::row_table::OTHER_NAME;
use serde_json::{Value, json};

use crate::record::protocol;

/// Maximum number of rows by host or flow. Classes are limited by their own number.
pub const MAX_TABLE_ROWS: usize = 65_536;
/// Maximum number of used histogram buckets of all rows together, 64 MiB.
pub const MAX_TABLE_BUCKETS: usize = 1 << 22;
const TCP: u8 = 6;

/// The key of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The host that answered. Both ends of a flow have a row if both legs were measured.
    Host,
    /// Protocol, addresses and ports. The destination is the host that answered.
    Flow,
    /// Class and leg. A class includes those below it.
    Class,
}

/// The order of the rows: highest value first, or names ascending. Rows with equal values are in
/// order of their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the columns
pub enum Order {
    P95,
    P99,
    P50,
    Min,
    Max,
    Samples,
    /// Upstream or downstream loss, whichever is higher.
    Loss,
    Name,
}

/// Columns after the key.
const FIGURES: [&str; 12] = [
    "samples",
    "min_rtt_ns",
    "p50_rtt_ns",
    "p95_rtt_ns",
    "p99_rtt_ns",
    "max_rtt_ns",
    "data_packets",
    "reordered_packets",
    "upstream_lost_packets",
    "downstream_lost_packets",
    "upstream_loss_ratio",
    "downstream_loss_ratio",
];

impl By {
    /// The word of the command line, of JSON and of the text's first column.
    pub fn name(self) -> &'static str {
        match self {
            By::Host => "host",
            By::Flow => "flow",
            By::Class => "class",
        }
    }

    fn key_columns(self) -> &'static [&'static str] {
        match self {
            By::Host => &["host_address"],
            By::Flow => &[
                "protocol",
                "src_address",
                "src_port",
                "dst_address",
                "dst_port",
            ],
            By::Class => &["class", "leg"],
        }
    }
}

/// Identifies a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Group {
    Host(IpAddr),
    Flow {
        protocol: &'static str,
        src: SocketAddr,
        dst: SocketAddr,
    },
    Class {
        slot: u32,
        leg: usize,
    },
}

/// The counts of data towards the hosts of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    data_packets: u64,
    reordered_packets: u64,
    upstream_packets: u64,
    downstream_packets: u64,
}

impl Loss {
    /// The TCP data that one side of a flow sent.
    fn of_side(counts: &Counts) -> Loss {
        Loss {
            data_packets: counts.data_packets.into(),
            reordered_packets: counts.reordered_packets.into(),
            upstream_packets: counts.upstream_lost_packets.into(),
            downstream_packets: counts
                .retransmitted_packets
                .saturating_sub(counts.spurious_packets)
                .into(),
        }
    }

    /// The data of one direction of a class since an earlier reading. The counters wrap.
    fn since(now: &DirCounts, before: &DirCounts) -> Loss {
        let grown = |of: fn(&DirCounts) -> u32| of(now).wrapping_sub(of(before));
        let repeated = grown(|c| c.retransmitted_packets);
        Loss {
            data_packets: grown(|c| c.data_packets).into(),
            reordered_packets: grown(|c| c.reordered_packets).into(),
            upstream_packets: grown(|c| c.upstream_lost_packets).into(),
            downstream_packets: repeated
                .saturating_sub(grown(|c| c.spurious_packets))
                .into(),
        }
    }

    fn is_empty(&self) -> bool {
        self.data_packets == 0 && self.upstream_packets == 0
    }

    fn add(&mut self, other: &Loss) {
        self.data_packets += other.data_packets;
        self.reordered_packets += other.reordered_packets;
        self.upstream_packets += other.upstream_packets;
        self.downstream_packets += other.downstream_packets;
    }

    /// Upstream and downstream; `None` without data.
    fn ratios(&self) -> [Option<f64>; 2] {
        let sent = self.data_packets + self.upstream_packets;
        let ratio = |lost: u64, of: u64| (of > 0).then(|| lost as f64 / of as f64);
        [
            ratio(self.upstream_packets, sent),
            ratio(self.downstream_packets, self.data_packets),
        ]
    }

    fn worst(&self) -> f64 {
        let ratios = self.ratios().into_iter().flatten();
        ratios.fold(-1.0, f64::max)
    }
}

#[derive(Clone, Debug, Default)]
struct GroupRow {
    histogram: Histogram,
    /// Minimum and maximum, if they are known exactly.
    exact_ns: Option<[u64; 2]>,
    loss: Loss,
}

/// Samples, minimum, p50, p95, p99 and maximum; `None` without samples.
struct Times {
    samples: u64,
    rtt_ns: Option<[u64; 5]>,
}

impl GroupRow {
    fn note_exact(&mut self, rtt_ns: u64) {
        let [min, max] = self.exact_ns.unwrap_or([u64::MAX, 0]);
        self.exact_ns = Some([min.min(rtt_ns), max.max(rtt_ns)]);
    }

    fn times(&self) -> Times {
        let quantiles = [0.0, 0.50, 0.95, 0.99, 1.0].map(|q| self.histogram.quantile(q));
        let [Some(first), Some(p50), Some(p95), Some(p99), Some(last)] = quantiles else {
            return Times {
                samples: 0,
                rtt_ns: None,
            };
        };
        let [min, max] = self.exact_ns.unwrap_or([first, last]);
        let [p50, p95, p99] = [p50, p95, p99].map(|ns| ns.clamp(min, max));
        Times {
            samples: self.histogram.count(),
            rtt_ns: Some([min, p50, p95, p99, max]),
        }
    }
}

/// Collects events, or readings of classes, until the end of the measurement.
#[derive(Debug)]
pub struct Table {
    by: By,
    classes: ClassSet,
    rows: HashMap<Group, GroupRow>,
    buckets: usize,
    max_rows: usize,
    max_buckets: usize,
    /// Of the last reading, by slot: counters grow and wrap.
    counted: Vec<([DirCounts; 2], [u32; 2])>,
    excluded_samples: u64,
    excluded_flows: u64,
}

/// The rows of a table in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The names of the values, the same for every row.
    pub columns: Vec<&'static str>,
    /// At most as many as requested.
    pub rows: Vec<ListedRow>,
    /// Rows beyond that limit.
    pub further_rows: usize,
    /// Samples in no row: [`MAX_TABLE_ROWS`] or [`MAX_TABLE_BUCKETS`] was reached, or the core had
    /// no free cell for them.
    pub excluded_samples: u64,
    /// Directions of flows whose loss is in no row, because [`MAX_TABLE_ROWS`] was reached.
    pub excluded_flows: u64,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedRow {
    /// The key as one text.
    pub name: String,
    /// One value for each column; null if it was not measured.
    pub values: Vec<Value>,
}

impl Table {
    /// An empty table. `classes` are for [`By::Class`]; their slots are those of
    /// [`ClassSet::numbered_rules`].
    pub fn new(by: By, classes: ClassSet) -> Table {
        Table {
            by,
            classes,
            rows: HashMap::new(),
            buckets: 0,
            max_rows: MAX_TABLE_ROWS,
            max_buckets: MAX_TABLE_BUCKETS,
            counted: Vec::new(),
            excluded_samples: 0,
            excluded_flows: 0,
        }
    }

    /// The key of the rows.
    pub fn by(&self) -> By {
        self.by
    }

    /// The classes.
    pub fn classes(&self) -> &ClassSet {
        &self.classes
    }

    /// Adds an event to the row of a host or a flow. O(buckets of the row).
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Sample(sample) => self.add_sample(sample),
            Event::Closed(flow) | Event::Alive(flow) => self.add_flow(flow),
            Event::Opened(_) => {}
        }
    }

    fn group(&self, key: &Key, measured: usize) -> Option<Group> {
        let (src, dst) = (key.endpoint(1 - measured), key.endpoint(measured));
        match self.by {
            By::Host => Some(Group::Host(dst.ip())),
            By::Flow => Some(Group::Flow {
                protocol: protocol(key),
                src,
                dst,
            }),
            By::Class => None,
        }
    }

    fn add_sample(&mut self, sample: &Sample) {
        let Some(group) = self.group(&sample.key, sample.measured) else {
            return;
        };
        if let Some(row) = self.record(group, bucket_of(sample.rtt), 1) {
            row.note_exact(sample.rtt);
        }
    }

    /// Data sent towards a host counts for its row, even if the host never answered.
    fn add_flow(&mut self, flow: &FlowRecord) {
        if flow.key.proto != TCP {
            return;
        }
        for measured in 0..2 {
            let loss = Loss::of_side(&flow.counts[1 - measured]);
            let Some(group) = self.group(&flow.key, measured) else {
                continue;
            };
            if loss.is_empty() {
                continue;
            }
            match self.row(group) {
                Some(row) => row.loss.add(&loss),
                None => self.excluded_flows += 1,
            }
        }
    }

    /// Adds a reading of the core's classes, with all cells since the last one.
    pub fn add_classes(&mut self, reading: &ClassReading) {
        for cell in &reading.cells {
            let (leg, count) = (usize::from(cell.leg), u64::from(cell.count));
            for slot in self.slots_up(cell.slot) {
                self.record(Group::Class { slot, leg }, cell.bucket, count);
            }
        }
        let slots = reading.counts.len();
        self.counted.resize(slots, Default::default());
        for slot in 0..slots {
            let now = &reading.counts[slot];
            let unbinned = [now.leg[INSIDE].unbinned, now.leg[OUTSIDE].unbinned];
            let before = std::mem::replace(&mut self.counted[slot], (now.dir, unbinned));
            for leg in [INSIDE, OUTSIDE] {
                self.excluded_samples += u64::from(unbinned[leg].wrapping_sub(before.1[leg]));
            }
            self.add_loss(
                slot as u32,
                INSIDE,
                &Loss::since(&now.dir[DOWN], &before.0[DOWN]),
            );
            // A packet of `other` counts in both directions, and its samples are inside.
            if slot as u32 != OTHER {
                self.add_loss(
                    slot as u32,
                    OUTSIDE,
                    &Loss::since(&now.dir[UP], &before.0[UP]),
                );
            }
        }
    }

    fn add_loss(&mut self, slot: u32, leg: usize, loss: &Loss) {
        if loss.is_empty() {
            return;
        }
        for slot in self.slots_up(slot) {
            if let Some(row) = self.row(Group::Class { slot, leg }) {
                row.loss.add(loss);
            }
        }
    }

    /// The slot of a class and of those above it.
    fn slots_up(&self, slot: u32) -> Vec<u32> {
        let classes = self.classes.classes();
        let Some(own) = (slot as usize).checked_sub(1) else {
            return vec![OTHER];
        };
        let own = Some(own).filter(|at| *at < classes.len());
        let up = std::iter::successors(own, |at| classes[*at].parent);
        up.map(|at| at as u32 + 1).collect()
    }

    /// The row of a group; `None` if it is new and the table is full.
    fn row(&mut self, group: Group) -> Option<&mut GroupRow> {
        let is_class = matches!(group, Group::Class { .. });
        if !is_class && self.rows.len() >= self.max_rows && !self.rows.contains_key(&group) {
            return None;
        }
        Some(self.rows.entry(group).or_default())
    }

    /// Records samples of one bucket. Without a free row or bucket, they are excluded.
    fn record(&mut self, group: Group, bucket: u16, count: u64) -> Option<&mut GroupRow> {
        let is_full = self.buckets >= self.max_buckets;
        let has_bucket = |row: &GroupRow| row.histogram.has(bucket);
        let is_new = !self.rows.get(&group).is_some_and(has_bucket);
        if (is_new && is_full) || self.row(group).is_none() {
            self.excluded_samples += count;
            return None;
        }
        self.buckets += usize::from(is_new);
        let row = self.rows.get_mut(&group)?;
        row.histogram.add(bucket, count);
        Some(row)
    }

    /// At most `limit` rows in order.
    pub fn listing(&self, order: Order, limit: usize) -> Listing {
        let mut rows: Vec<(&Group, &GroupRow, Times)> = self
            .rows
            .iter()
            .map(|(group, row)| (group, row, row.times()))
            .collect();
        rows.sort_by(|(a_group, a_row, a), (b_group, b_row, b)| {
            compare(order, (a, &a_row.loss), (b, &b_row.loss))
                .then_with(|| self.compare_keys(a_group, b_group))
        });
        let listed = rows.iter().take(limit).map(|(group, row, times)| {
            let (name, mut values) = self.key(group);
            values.extend(figures(times, &row.loss));
            ListedRow { name, values }
        });
        Listing {
            columns: [self.by.key_columns(), &FIGURES].concat(),
            rows: listed.collect(),
            further_rows: rows.len().saturating_sub(limit),
            excluded_samples: self.excluded_samples,
            excluded_flows: self.excluded_flows,
        }
    }

    fn compare_keys(&self, a: &Group, b: &Group) -> Ordering {
        match (a, b) {
            (Group::Class { slot: s, leg: l }, Group::Class { slot: t, leg: m }) => {
                (self.class_name(*s), l, s).cmp(&(self.class_name(*t), m, t))
            }
            _ => a.cmp(b),
        }
    }

    fn class_name(&self, slot: u32) -> &str {
        let at = (slot as usize).checked_sub(1);
        let class = at.and_then(|at| self.classes.classes().get(at));
        class.map_or(OTHER_NAME, |class| class.name.as_str())
    }

    /// The key of a row, as one text and as values.
    fn key(&self, group: &Group) -> (String, Vec<Value>) {
        match group {
            Group::Host(address) => (address.to_string(), vec![json!(address)]),
            Group::Flow { protocol, src, dst } => {
                let name = match *protocol {
                    "tcp" => format!("{src} -> {dst}"),
                    _ => format!("{} -> {}", src.ip(), dst.ip()),
                };
                let values = vec![
                    json!(protocol),
                    json!(src.ip()),
                    json!(src.port()),
                    json!(dst.ip()),
                    json!(dst.port()),
                ];
                (name, values)
            }
            Group::Class { slot, leg } => {
                let (name, leg) = (self.class_name(*slot), LEGS[*leg]);
                (format!("{name} {leg}"), vec![json!(name), json!(leg)])
            }
        }
    }
}

/// By [`INSIDE`] and [`OUTSIDE`].
const LEGS: [&str; 2] = ["inside", "outside"];

fn compare(order: Order, (a, a_loss): (&Times, &Loss), (b, b_loss): (&Times, &Loss)) -> Ordering {
    let by = |at: usize| {
        let value = |times: &Times| Reverse(times.rtt_ns.map(|rtt_ns| rtt_ns[at]));
        value(a).cmp(&value(b))
    };
    match order {
        Order::Min => by(0),
        Order::P50 => by(1),
        Order::P95 => by(2),
        Order::P99 => by(3),
        Order::Max => by(4),
        Order::Samples => b.samples.cmp(&a.samples),
        Order::Loss => b_loss.worst().total_cmp(&a_loss.worst()),
        Order::Name => Ordering::Equal,
    }
}

/// The values of [`FIGURES`].
fn figures(times: &Times, loss: &Loss) -> [Value; 12] {
    let rtt = |at: usize| json!(times.rtt_ns.map(|rtt_ns| rtt_ns[at]));
    let [upstream, downstream] = loss.ratios();
    [
        json!(times.samples),
        rtt(0),
        rtt(1),
        rtt(2),
        rtt(3),
        rtt(4),
        json!(loss.data_packets),
        json!(loss.reordered_packets),
        json!(loss.upstream_packets),
        json!(loss.downstream_packets),
        json!(upstream),
        json!(downstream),
    ]
}

#[cfg(test)]
mod tests;
