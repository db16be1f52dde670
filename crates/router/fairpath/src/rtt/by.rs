//! `fairpath rtt --by`: one table at the end, with a row per host, flow or class.
//!
//! A sample belongs to the host that answered. Loss of a row is that of TCP data sent towards its
//! host. Percentiles come from histograms of two significant digits, so they are right within 1 %.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use clap::ValueEnum;
use fairpath_class::{ClassSet, Criterion, Endpoint};
use fairpath_core::{Counts, Event, Key};
use fairpath_units::Nanos;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// Rows of a table. Samples of further rows are counted as excluded.
const MAX_ROWS: usize = 1 << 16;
/// Two significant digits.
const DIGITS: u8 = 2;
const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 60_000_000_000;
const TCP: u8 = 6;
/// The class of hosts that no class has.
const OTHER: &str = "other";
const SCHEMA: u32 = 1;

/// The key of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Address of the measured host
    Host,
    /// Protocol, addresses and ports; the measured host is the destination
    Flow,
    /// Class and leg, by the prefixes of --class-file
    Class,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// 95th percentile of the RTT
    P95,
    /// 99th percentile
    P99,
    /// Median
    P50,
    /// Minimum
    Min,
    /// Maximum
    Max,
    /// Number of samples
    Samples,
    /// Upstream or downstream loss, whichever is higher
    Loss,
    /// Name of the row, ascending
    Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Group {
    Host(IpAddr),
    Flow {
        protocol: u8,
        src: SocketAddr,
        dst: SocketAddr,
    },
    Class {
        name: String,
        leg: &'static str,
    },
}

/// Collects events until the end of the measurement.
pub struct Table {
    by: By,
    sort: Sort,
    limit: usize,
    classes: Classes,
    rows: HashMap<Group, Row>,
    excluded_samples: u64,
}

impl Table {
    /// An empty table of at most `limit` printed rows. `set` is for [`By::Class`].
    pub fn new(by: By, sort: Sort, limit: usize, set: ClassSet) -> Table {
        Table {
            by,
            sort,
            limit,
            classes: Classes::new(set),
            rows: HashMap::new(),
            excluded_samples: 0,
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Sample(sample) => {
                for group in self.groups(&sample.key, sample.measured) {
                    match self.row(group) {
                        Some(row) => row.rtt.add(sample.rtt),
                        None => self.excluded_samples += 1,
                    }
                }
            }
            Event::Closed(flow) | Event::Alive(flow) if flow.key.proto == TCP => {
                for (side, counts) in flow.counts.iter().enumerate() {
                    for group in self.groups(&flow.key, 1 - side) {
                        if let Some(row) = self.row(group) {
                            row.loss.add(counts);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn row(&mut self, group: Group) -> Option<&mut Row> {
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&group) {
            return None;
        }
        Some(self.rows.entry(group).or_default())
    }

    /// The rows of a sample whose measured host is side `measured` of `key`.
    fn groups(&mut self, key: &Key, measured: usize) -> Vec<Group> {
        let (src, dst) = (key.endpoint(1 - measured), key.endpoint(measured));
        match self.by {
            By::Host => vec![Group::Host(dst.ip())],
            By::Flow => vec![Group::Flow {
                protocol: key.proto,
                src,
                dst,
            }],
            By::Class => {
                let class = |name: String, leg| Group::Class { name, leg };
                let inside = self.classes.of(dst.ip()).map(|name| class(name, "inside"));
                let outside = self.classes.of(src.ip()).map(|name| class(name, "outside"));
                let groups: Vec<Group> = inside.into_iter().chain(outside).collect();
                match groups.is_empty() {
                    true => vec![class(OTHER.to_owned(), "outside")],
                    false => groups,
                }
            }
        }
    }

    /// The printed rows, in order.
    fn sorted(&self) -> Vec<(&Group, &Row)> {
        let mut rows: Vec<(&Group, &Row)> = self.rows.iter().collect();
        rows.sort_by(|(a_name, a), (b_name, b)| {
            let order = match self.sort {
                Sort::Name => Ordering::Equal,
                Sort::Loss => b.loss.worst().total_cmp(&a.loss.worst()),
                sort => b.rtt.value(sort).cmp(&a.rtt.value(sort)),
            };
            order.then_with(|| a_name.cmp(b_name))
        });
        rows.truncate(self.limit);
        rows
    }

    /// Remarks on excluded samples and criteria.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.excluded_samples > 0 {
            remarks.push(format!(
                "{} samples are excluded: the table has {MAX_ROWS} rows",
                self.excluded_samples
            ));
        }
        if self.classes.ignored > 0 {
            remarks.push(format!(
                "{} criteria are ignored: --by class uses prefixes only",
                self.classes.ignored
            ));
        }
        remarks
    }

    /// One JSON object per row and line.
    ///
    /// # Errors
    /// None in practice: all values are numbers and texts.
    pub fn json(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        for (group, row) in self.sorted() {
            let mut object = Map::new();
            object.insert("schema".into(), json!(SCHEMA));
            object.insert("type".into(), json!(self.kind()));
            object.extend(group.columns().into_iter().map(named));
            object.extend(row.columns().into_iter().map(named));
            text += &serde_json::to_string(&object).context("write a row as JSON")?;
            text.push('\n');
        }
        Ok(text)
    }

    /// A header and one record per row. A value that was not measured is empty.
    ///
    /// # Errors
    /// None in practice: the records go to memory.
    pub fn csv(&self) -> anyhow::Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let header = self.key_names().iter().copied().chain(ROW_NAMES);
        writer
            .write_record(header)
            .context("write the CSV header")?;
        for (group, row) in self.sorted() {
            let values = group.columns().into_iter().chain(row.columns());
            let record = values.map(|(_, value)| match value {
                Value::Null => String::new(),
                Value::String(text) => text,
                number => number.to_string(),
            });
            writer.write_record(record).context("write a CSV record")?;
        }
        let bytes = writer.into_inner().context("write the CSV table")?;
        Ok(String::from_utf8(bytes)?)
    }

    /// The table for people.
    pub fn text(&self) -> String {
        let rows = self.sorted();
        let names: Vec<String> = rows.iter().map(|(group, _)| group.text()).collect();
        let width = names.iter().map(|name| name.chars().count()).max();
        let width = width.unwrap_or(0).max(self.kind().len());
        let mut out = format!(
            "{:<width$} {:>9} {:>11} {:>11} {:>11} {:>11} {:>11} {:>9} {:>10}\n",
            self.kind(),
            "samples",
            "min",
            "p50",
            "p95",
            "p99",
            "max",
            "upstream",
            "downstream",
        );
        for (name, (_, row)) in names.iter().zip(&rows) {
            let time = |sort| row.rtt.value(sort).map_or("-".to_owned(), time_text);
            let [upstream, downstream] = row.loss.ratios().map(|ratio| match ratio {
                Some(ratio) => format!("{:.2} %", 100.0 * ratio),
                None => "-".to_owned(),
            });
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "{name:<width$} {:>9} {:>11} {:>11} {:>11} {:>11} {:>11} {upstream:>9} {downstream:>10}",
                row.rtt.histogram.len(),
                time(Sort::Min),
                time(Sort::P50),
                time(Sort::P95),
                time(Sort::P99),
                time(Sort::Max),
            );
        }
        if rows.len() < self.rows.len() {
            let _ = writeln!(
                out,
                "{} more rows; --limit N prints more",
                self.rows.len() - rows.len()
            );
        }
        out
    }

    fn kind(&self) -> &'static str {
        match self.by {
            By::Host => "host",
            By::Flow => "flow",
            By::Class => "class",
        }
    }

    fn key_names(&self) -> &'static [&'static str] {
        match self.by {
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

fn time_text(ns: u64) -> String {
    Nanos(ns).to_string()
}

fn named((name, value): (&'static str, Value)) -> (String, Value) {
    (name.to_owned(), value)
}

impl Group {
    fn text(&self) -> String {
        match self {
            Group::Host(address) => address.to_string(),
            Group::Flow { src, dst, protocol } if *protocol == TCP => format!("{src} -> {dst}"),
            Group::Flow { src, dst, .. } => format!("{} -> {}", src.ip(), dst.ip()),
            Group::Class { name, leg } => format!("{name} {leg}"),
        }
    }

    fn columns(&self) -> Vec<(&'static str, Value)> {
        match self {
            Group::Host(address) => vec![("host_address", json!(address))],
            Group::Flow { protocol, src, dst } => vec![
                ("protocol", json!(protocol_name(*protocol))),
                ("src_address", json!(src.ip())),
                ("src_port", json!(src.port())),
                ("dst_address", json!(dst.ip())),
                ("dst_port", json!(dst.port())),
            ],
            Group::Class { name, leg } => vec![("class", json!(name)), ("leg", json!(leg))],
        }
    }
}

fn protocol_name(protocol: u8) -> &'static str {
    match protocol {
        TCP => "tcp",
        1 => "icmp",
        _ => "icmpv6",
    }
}

/// Classes by prefix, with the result of each address.
struct Classes {
    set: ClassSet,
    /// Criteria that are not prefixes.
    ignored: usize,
    found: HashMap<IpAddr, Option<String>>,
}

impl Classes {
    fn new(set: ClassSet) -> Classes {
        let criteria = set.classes().iter().flat_map(|class| &class.criteria);
        let ignored = criteria
            .filter(|criterion| !matches!(criterion, Criterion::Prefix(_)))
            .count();
        Classes {
            set,
            ignored,
            found: HashMap::new(),
        }
    }

    fn of(&mut self, address: IpAddr) -> Option<String> {
        if let Some(found) = self.found.get(&address) {
            return found.clone();
        }
        let endpoint = Endpoint {
            address,
            mark: None,
            mac: None,
            vlan: None,
            dscp: None,
            interface: None,
        };
        let found = self.set.classify(&endpoint).map(|class| class.name.clone());
        if self.found.len() < MAX_ROWS {
            self.found.insert(address, found.clone());
        }
        found
    }
}

/// Columns after the key.
const ROW_NAMES: [&str; 12] = [
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

#[derive(Default)]
struct Row {
    rtt: Distribution,
    loss: Loss,
}

impl Row {
    fn columns(&self) -> Vec<(&'static str, Value)> {
        let rtt = |sort| json!(self.rtt.value(sort));
        let [upstream, downstream] = self.loss.ratios();
        let values = [
            json!(self.rtt.histogram.len()),
            rtt(Sort::Min),
            rtt(Sort::P50),
            rtt(Sort::P95),
            rtt(Sort::P99),
            rtt(Sort::Max),
            json!(self.loss.data_packets),
            json!(self.loss.reordered_packets),
            json!(self.loss.upstream_packets),
            json!(self.loss.downstream_packets),
            json!(upstream),
            json!(downstream),
        ];
        ROW_NAMES.into_iter().zip(values).collect()
    }
}

/// RTTs with exact extremes.
struct Distribution {
    histogram: Histogram<u32>,
    min: u64,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        // It grows to the recorded values, since most rows have few of them.
        let mut histogram = Histogram::new_with_bounds(LOWEST_NS, 2 * LOWEST_NS, DIGITS)
            .expect("constant bounds are valid");
        histogram.auto(true);
        Distribution {
            histogram,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Distribution {
    fn add(&mut self, rtt_ns: u64) {
        // Growth up to HIGHEST_NS cannot fail.
        let _ = self.histogram.record(rtt_ns.clamp(LOWEST_NS, HIGHEST_NS));
        self.min = self.min.min(rtt_ns);
        self.max = self.max.max(rtt_ns);
    }

    /// The value that rows are sorted by; `None` without samples.
    fn value(&self, sort: Sort) -> Option<u64> {
        let samples = self.histogram.len();
        if samples == 0 {
            return (sort == Sort::Samples).then_some(0);
        }
        let quantile = |q| {
            self.histogram
                .value_at_quantile(q)
                .clamp(self.min, self.max)
        };
        Some(match sort {
            Sort::P50 => quantile(0.50),
            Sort::P95 => quantile(0.95),
            Sort::P99 => quantile(0.99),
            Sort::Min => self.min,
            Sort::Max => self.max,
            Sort::Samples | Sort::Loss | Sort::Name => samples,
        })
    }
}

/// Loss of TCP data towards the hosts of a row.
#[derive(Default)]
struct Loss {
    data_packets: u64,
    reordered_packets: u64,
    upstream_packets: u64,
    downstream_packets: u64,
}

impl Loss {
    fn add(&mut self, counts: &Counts) {
        self.data_packets += u64::from(counts.data_packets);
        self.reordered_packets += u64::from(counts.reordered_packets);
        self.upstream_packets += u64::from(counts.upstream_lost_packets);
        let repeated = counts
            .retransmitted_packets
            .saturating_sub(counts.spurious_packets);
        self.downstream_packets += u64::from(repeated);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(sort: Sort, limit: usize) -> Table {
        let mut table = Table::new(By::Host, sort, limit, ClassSet::default());
        for (host, rtts) in [(1, &[10, 20, 30][..]), (2, &[500]), (3, &[40, 50])] {
            let group = Group::Host(IpAddr::from([192, 0, 2, host]));
            let row = table.row(group).unwrap();
            for rtt in rtts {
                row.rtt.add(rtt * 1_000_000);
            }
        }
        table
    }

    fn hosts(table: &Table) -> Vec<String> {
        table.sorted().iter().map(|(g, _)| g.text()).collect()
    }

    #[test]
    fn rows_are_sorted_and_limited() {
        assert_eq!(hosts(&table(Sort::P95, 2)), ["192.0.2.2", "192.0.2.3"]);
        assert_eq!(hosts(&table(Sort::Samples, 1)), ["192.0.2.1"]);
        let by_name = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
        assert_eq!(hosts(&table(Sort::Name, 9)), by_name);
        assert!(table(Sort::P95, 2).text().contains("1 more rows"));
    }

    #[test]
    fn csv_and_json_have_the_same_columns() {
        let table = table(Sort::P95, 1);
        let csv = table.csv().unwrap();
        let mut lines = csv.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let record: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(header.len(), record.len());
        assert_eq!(record[..2], ["192.0.2.2", "1"]);
        let json: Value = serde_json::from_str(&table.json().unwrap()).unwrap();
        for name in &header {
            assert!(json.get(*name).is_some(), "{name}: {json}");
        }
        assert_eq!(json["max_rtt_ns"], 500_000_000);
        assert_eq!(json["upstream_loss_ratio"], Value::Null);
    }
}
