//! A table of round-trip times and loss by host, flow or class, at the end of a run.
//!
//! Rows have columns by name with JSON values, so that text, CSV and JSON show the same. Percentiles
//! come from the core's buckets: within 1.6 %. Minimum and maximum are exact by host and flow, and the
//! middle of their bucket by class, because the core counts classes in buckets.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::net::IpAddr;

use fairpath_class::ClassSet;
use fairpath_core::{
    ClassReading, DOWN, DirCounts, Event, FlowRecord, INSIDE, Key, OTHER, OUTSIDE, Sample, UP,
};
use fairpath_history::Histogram;
use serde_json::{Value, json};

use crate::record::{Context, protocol};
use crate::summary::LossLine;

/// Rows that a table keeps; samples of further hosts or flows are counted only.
pub const MAX_TABLE_ROWS: usize = 65_536;

/// One row for each of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Measured host and the interface towards it.
    Host,
    /// Flow and direction.
    Flow,
    /// Class and leg.
    Class,
}

/// The order of rows: largest value first, names ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the columns
pub enum Order {
    Samples,
    Min,
    P50,
    P95,
    P99,
    Max,
    Loss,
    Name,
}

/// Columns of every table, after those that name the row.
const VALUES: [&str; 9] = [
    "samples",
    "min_rtt_ns",
    "p50_rtt_ns",
    "p95_rtt_ns",
    "p99_rtt_ns",
    "max_rtt_ns",
    "data_packets",
    "upstream_loss_ratio",
    "downstream_loss_ratio",
];

impl By {
    /// The word of the command line and of JSON.
    pub fn name(self) -> &'static str {
        match self {
            By::Host => "host",
            By::Flow => "flow",
            By::Class => "class",
        }
    }

    /// Columns that name a row.
    fn names(self) -> &'static [&'static str] {
        match self {
            By::Host => &["host_address", "towards", "flows"],
            By::Flow => &[
                "protocol",
                "src_address",
                "src_port",
                "dst_address",
                "dst_port",
                "towards",
            ],
            By::Class => &["class", "leg"],
        }
    }
}

/// Identifies a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Host(IpAddr, u32),
    Flow(u32, usize),
    Class(u32, usize),
}

/// Counts of a row.
#[derive(Clone, Debug)]
struct Row {
    histogram: Histogram,
    min_ns: u64,
    max_ns: u64,
    flows: u64,
    loss: LossLine,
    /// Of a flow.
    key: Option<Key>,
    towards: u32,
}

impl Row {
    fn new(towards: u32, key: Option<Key>) -> Row {
        Row {
            histogram: Histogram::default(),
            min_ns: u64::MAX,
            max_ns: 0,
            flows: 0,
            loss: LossLine::default(),
            key,
            towards,
        }
    }

    fn record(&mut self, rtt_ns: u64) {
        self.histogram.record(rtt_ns);
        self.min_ns = self.min_ns.min(rtt_ns);
        self.max_ns = self.max_ns.max(rtt_ns);
    }

    /// A percentile, never outside of minimum and maximum.
    fn quantile_ns(&self, q: f64) -> u64 {
        let middle = self.histogram.quantile(q).unwrap_or(0);
        middle.clamp(self.min_ns.min(self.max_ns), self.max_ns)
    }

    /// The larger loss ratio of both; 0 where no data was sent.
    fn worst_loss(&self) -> f64 {
        self.loss.lost_before.max(self.loss.lost_beyond)
    }
}

/// Collects events or class readings, and orders them at the end.
#[derive(Debug)]
pub struct Table {
    by: By,
    rows: HashMap<Group, Row>,
    excluded_samples: u64,
}

/// The table, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Names, the same for every row.
    pub columns: Vec<&'static str>,
    /// Values; null for what is not known.
    pub rows: Vec<Vec<Value>>,
    /// Rows beyond the limit.
    pub rows_excluded: u64,
    /// Samples of hosts or flows beyond [`MAX_TABLE_ROWS`], or of classes without a free cell.
    pub samples_excluded: u64,
}

impl Table {
    /// An empty table.
    pub fn new(by: By) -> Table {
        Table {
            by,
            rows: HashMap::new(),
            excluded_samples: 0,
        }
    }

    /// Adds an event; by class, [`Table::add_classes`] does. O(log buckets).
    pub fn add(&mut self, event: &Event) {
        if self.by == By::Class {
            return;
        }
        match event {
            Event::Sample(sample) => self.add_sample(sample),
            Event::Opened(_) => {}
            Event::Closed(flow) | Event::Alive(flow) => self.add_flow(flow),
        }
    }

    fn add_sample(&mut self, sample: &Sample) {
        let (group, key) = match self.by {
            By::Host => {
                let host = sample.key.endpoint(sample.measured).ip();
                (Group::Host(host, sample.towards), None)
            }
            _ => (Group::Flow(sample.flow, sample.measured), Some(sample.key)),
        };
        if self.rows.len() >= MAX_TABLE_ROWS && !self.rows.contains_key(&group) {
            self.excluded_samples += 1;
            return;
        }
        let row = self.rows.entry(group);
        row.or_insert_with(|| Row::new(sample.towards, key))
            .record(sample.rtt);
    }

    /// Rows exist for hosts that were measured: what a flow lost is added to these.
    fn add_flow(&mut self, flow: &FlowRecord) {
        for measured in 0..2 {
            let group = match self.by {
                By::Host => {
                    let host = flow.key.endpoint(measured).ip();
                    Group::Host(host, flow.towards[measured])
                }
                _ => Group::Flow(flow.flow, measured),
            };
            let Some(row) = self.rows.get_mut(&group) else {
                continue;
            };
            row.flows += 1;
            if flow.key.proto == 6 {
                row.loss.add(&flow.counts[1 - measured]);
            }
        }
    }

    /// Adds a reading of the core's classes, which are numbered as in `set` from 1 on; counts grow over
    /// readings, cells are those since the last one. A class includes those below it.
    pub fn add_classes(&mut self, reading: &ClassReading, set: &ClassSet) {
        for cell in &reading.cells {
            let leg = usize::from(cell.leg);
            for slot in above(cell.slot, set) {
                let row = self.rows.entry(Group::Class(slot, leg));
                let row = row.or_insert_with(|| Row::new(0, None));
                row.histogram.add(cell.bucket, u64::from(cell.count));
            }
        }
        self.excluded_samples = reading.counts.iter().fold(0, |sum, counts| {
            let legs = counts.leg.iter().map(|leg| u64::from(leg.unbinned));
            sum + legs.sum::<u64>()
        });
        for row in self.rows.values_mut() {
            row.loss = LossLine::default();
        }
        for (slot, counts) in reading.counts.iter().enumerate() {
            for (leg, towards) in [(INSIDE, DOWN), (OUTSIDE, UP)] {
                for slot in above(slot as u32, set) {
                    if let Some(row) = self.rows.get_mut(&Group::Class(slot, leg)) {
                        row.loss.add_direction(&counts.dir[towards]);
                    }
                }
            }
        }
    }

    /// The rows in order, at most `limit` of them; `set` names classes.
    pub fn listing(
        mut self,
        order: Order,
        limit: usize,
        context: &Context,
        set: &ClassSet,
    ) -> Listing {
        for row in self.rows.values_mut().filter(|_| self.by == By::Class) {
            row.min_ns = row.histogram.quantile(0.0).unwrap_or(0);
            row.max_ns = row.histogram.quantile(1.0).unwrap_or(0);
        }
        let named = self.rows.iter();
        let mut rows: Vec<(String, Vec<Value>, &Row)> = named
            .map(|(group, row)| {
                let names = names(*group, row, context, set);
                let sorted = names.iter().map(|name| format!("{name}\u{0}")).collect();
                (sorted, names, row)
            })
            .collect();
        rows.sort_by(|(a_name, _, a), (b_name, _, b)| {
            compare(order, a, b).then_with(|| a_name.cmp(b_name))
        });
        let rows_excluded = rows.len().saturating_sub(limit) as u64;
        let shown = rows.into_iter().take(limit);
        Listing {
            columns: [self.by.names(), &VALUES].concat(),
            rows: shown
                .map(|(_, mut names, row)| {
                    names.extend(values(row));
                    names
                })
                .collect(),
            rows_excluded,
            samples_excluded: self.excluded_samples,
        }
    }
}

/// A class's number and those of the classes above it.
fn above(slot: u32, set: &ClassSet) -> impl Iterator<Item = u32> + '_ {
    let position = (slot as usize).checked_sub(1);
    let own = (slot == OTHER).then_some(OTHER);
    let known = position.filter(|at| *at < set.len());
    let chain = std::iter::successors(known, |at| set.classes()[*at].parent);
    own.into_iter().chain(chain.map(|at| at as u32 + 1))
}

fn compare(order: Order, a: &Row, b: &Row) -> Ordering {
    let samples = || b.histogram.count().cmp(&a.histogram.count());
    let by = |value: fn(&Row) -> u64| value(b).cmp(&value(a)).then_with(samples);
    match order {
        Order::Samples => samples(),
        Order::Min => by(|row| row.min_ns),
        Order::P50 => by(|row| row.quantile_ns(0.50)),
        Order::P95 => by(|row| row.quantile_ns(0.95)),
        Order::P99 => by(|row| row.quantile_ns(0.99)),
        Order::Max => by(|row| row.max_ns),
        Order::Loss => b.worst_loss().total_cmp(&a.worst_loss()).then_with(samples),
        Order::Name => Ordering::Equal,
    }
}

fn names(group: Group, row: &Row, context: &Context, set: &ClassSet) -> Vec<Value> {
    match group {
        Group::Host(host, towards) => {
            vec![
                json!(host.to_string()),
                json!(context.interface(towards)),
                json!(row.flows),
            ]
        }
        Group::Flow(_, measured) => {
            let Some(key) = &row.key else {
                return vec![Value::Null; By::Flow.names().len()];
            };
            let (src, dst) = (key.endpoint(1 - measured), key.endpoint(measured));
            vec![
                json!(protocol(key)),
                json!(src.ip().to_string()),
                json!(src.port()),
                json!(dst.ip().to_string()),
                json!(dst.port()),
                json!(context.interface(row.towards)),
            ]
        }
        Group::Class(slot, leg) => {
            let class = (slot as usize).checked_sub(1);
            let class = class.and_then(|at| set.classes().get(at));
            let name = class.map_or("other", |class| class.name.as_str());
            vec![json!(name), json!(["inside", "outside"][leg])]
        }
    }
}

fn values(row: &Row) -> Vec<Value> {
    let loss = &row.loss;
    let ratio = |lost: f64, of: u64| if of > 0 { json!(lost) } else { Value::Null };
    vec![
        json!(row.histogram.count()),
        json!(row.min_ns),
        json!(row.quantile_ns(0.50)),
        json!(row.quantile_ns(0.95)),
        json!(row.quantile_ns(0.99)),
        json!(row.max_ns),
        json!(loss.data_packets),
        ratio(
            loss.lost_before,
            loss.data_packets + loss.upstream_lost_packets,
        ),
        ratio(loss.lost_beyond, loss.data_packets),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_class::{Drafts, Uplinks};
    use fairpath_core::{Cell, ClassCounts};

    fn set(csv: &str) -> ClassSet {
        let mut drafts = Drafts::new();
        drafts.read_csv("test.csv", csv);
        ClassSet::build(drafts, Uplinks::Unknown).set.unwrap()
    }

    fn cell(slot: u32, leg: usize, rtt_ns: u64, count: u32) -> Cell {
        Cell {
            slot,
            leg: leg as u8,
            bucket: fairpath_core::bucket_of(rtt_ns),
            count,
        }
    }

    fn column(listing: &Listing, name: &str) -> Vec<Value> {
        let at = listing.columns.iter().position(|column| *column == name);
        let at = at.unwrap();
        listing.rows.iter().map(|row| row[at].clone()).collect()
    }

    #[test]
    fn parents_include_their_children() {
        let set = set("name,parent,prefix\nsite,,\nanna,site,10.0.0.1/32\nbert,site,10.0.0.2/32\n");
        let slot = |name| set.position(name).unwrap() as u32 + 1;
        let mut counts = vec![ClassCounts::default(); set.len() + 1];
        let anna = &mut counts[slot("anna") as usize];
        anna.dir[DOWN].data_packets = 100;
        anna.dir[DOWN].retransmitted_packets = 2;
        anna.leg[INSIDE].unbinned = 3;
        let reading = ClassReading {
            counts,
            cells: vec![
                cell(slot("anna"), INSIDE, 1_000_000, 2),
                cell(slot("bert"), INSIDE, 9_000_000, 1),
                cell(OTHER, OUTSIDE, 5_000_000, 4),
            ],
            ..ClassReading::default()
        };
        let mut table = Table::new(By::Class);
        // A second reading adds cells, while counts are those of now.
        for _ in 0..2 {
            table.add_classes(&reading, &set);
        }
        let listing = table.listing(Order::Name, 10, &Context::default(), &set);
        assert_eq!(column(&listing, "class"), ["anna", "bert", "other", "site"]);
        assert_eq!(column(&listing, "samples"), [4, 2, 8, 6]);
        assert_eq!(column(&listing, "data_packets"), [100, 0, 0, 100]);
        let loss = column(&listing, "downstream_loss_ratio");
        assert_eq!(loss, [json!(0.02), Value::Null, Value::Null, json!(0.02)]);
        assert_eq!(listing.samples_excluded, 3);
    }

    #[test]
    fn the_largest_value_is_first_and_the_rest_is_counted() {
        let set = set("name,parent,prefix\na,,10.0.0.1/32\nb,,10.0.0.2/32\nc,,10.0.0.3/32\n");
        let cells = [(1, 1_000_000, 9), (2, 3_000_000, 1), (3, 2_000_000, 5)];
        let reading = ClassReading {
            cells: cells
                .map(|(slot, rtt, n)| cell(slot, INSIDE, rtt, n))
                .to_vec(),
            ..ClassReading::default()
        };
        for (order, names) in [
            (Order::P95, ["b", "c"]),
            (Order::Samples, ["a", "c"]),
            (Order::Name, ["a", "b"]),
        ] {
            let mut table = Table::new(By::Class);
            table.add_classes(&reading, &set);
            let listing = table.listing(order, 2, &Context::default(), &set);
            assert_eq!(column(&listing, "class"), names, "{order:?}");
            assert_eq!(listing.rows_excluded, 1);
        }
    }
}
