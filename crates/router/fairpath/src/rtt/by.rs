//! `fairpath rtt --by`: one table at the end, with a row per host, flow or class.
//!
//! Hosts and flows are added by event. Classes are those of the core, which classifies every packet
//! by the rules of [`ByTable::rules`]; their counts are read from it.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyhow::Context;
use clap::ValueEnum;
use fairpath_class::{ClassSet, Criterion, Whom};
use fairpath_cli::wrong_usage;
use fairpath_core::{CELL_WAYS, ClassReading, Config, Event, Rules, TooManyRules};
use fairpath_rtt::{By, Listing, MAX_TABLE_BUCKETS, MAX_TABLE_ROWS, Order, Table};
use fairpath_units::Nanos;
use globset::GlobSet;
use serde_json::{Map, Value, json};

use super::args::{Args, Format};
use crate::class;

const SCHEMA: u32 = 1;

/// The key of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Key {
    /// Address of the host that answered
    Host,
    /// Protocol, addresses and ports; the destination is the host that answered
    Flow,
    /// Class and leg; needs --config or --class-file
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

impl Key {
    fn by(self) -> By {
        match self {
            Key::Host => By::Host,
            Key::Flow => By::Flow,
            Key::Class => By::Class,
        }
    }
}

impl Sort {
    fn order(self) -> Order {
        match self {
            Sort::P95 => Order::P95,
            Sort::P99 => Order::P99,
            Sort::P50 => Order::P50,
            Sort::Min => Order::Min,
            Sort::Max => Order::Max,
            Sort::Samples => Order::Samples,
            Sort::Loss => Order::Loss,
            Sort::Name => Order::Name,
        }
    }
}

/// The interfaces of a measurement, for rules.
pub struct Named<'a> {
    /// Looks up the index of an interface by name.
    pub index_of: &'a dyn Fn(&str) -> Option<u32>,
    /// Index and name of the interfaces that packets are observed at.
    pub interfaces: Vec<(u32, &'a str)>,
}

/// A table in the making, with its classes.
pub struct ByTable {
    table: Table,
    sort: Sort,
    limit: usize,
    uplinks: GlobSet,
    /// The interfaces that classes name.
    interfaces: HashSet<String>,
    reading: ClassReading,
}

impl ByTable {
    /// The table of the arguments; `None` without `--by`.
    ///
    /// # Errors
    /// Options contradict each other, or classes are invalid.
    pub fn new(args: &Args) -> anyhow::Result<Option<ByTable>> {
        let Some(key) = args.by else {
            return match args.format {
                Format::Csv => Err(wrong_usage("--format csv needs --by host, flow or class")),
                _ => Ok(None),
            };
        };
        let (set, uplinks) = match key {
            Key::Class => classes(args)?,
            _ if args.config.is_some() || !args.class_file.is_empty() => {
                return Err(wrong_usage("--config and --class-file are for --by class"));
            }
            _ => (ClassSet::default(), GlobSet::empty()),
        };
        let criteria = set.classes().iter().flat_map(|class| &class.criteria);
        let interfaces = criteria.filter_map(|criterion| match criterion {
            Criterion::Interface(name) => Some(name.clone()),
            _ => None,
        });
        let interfaces = interfaces.collect();
        Ok(Some(ByTable {
            table: Table::new(key.by(), set),
            sort: args.sort,
            limit: args.limit.unwrap_or(usize::MAX),
            uplinks,
            interfaces,
            reading: ClassReading::default(),
        }))
    }

    fn has_classes(&self) -> bool {
        self.table.by() == By::Class
    }

    /// The core's configuration for this table. Classes are counted without events, unless `--count`
    /// needs them.
    pub fn configured(&self, config: Config, needs_events: bool) -> Config {
        if !self.has_classes() {
            return config;
        }
        Config {
            quiet: u32::from(!needs_events),
            ..config.with_classes(self.table.classes().len() as u32)
        }
    }

    /// True if the rules depend on an interface of this name.
    pub fn names(&self, interface: &str) -> bool {
        self.has_classes()
            && (self.interfaces.contains(interface) || self.uplinks.is_match(interface))
    }

    /// The rules of the classes; `None` for hosts and flows.
    pub fn rules(&self, named: &Named<'_>) -> Option<Rules> {
        let watched = named.interfaces.iter();
        let uplinks: Vec<u32> = watched
            .filter(|(_, name)| self.uplinks.is_match(name))
            .map(|(index, _)| *index)
            .collect();
        let classes = self.table.classes();
        self.has_classes()
            .then(|| classes.numbered_rules(named.index_of, &uplinks))
    }

    /// Number of packets after which a capture is read for classes: they fill at most an eighth of
    /// the core's cells.
    pub fn packets_per_reading(config: &Config) -> u64 {
        (u64::from(config.cell_sets) * u64::from(CELL_WAYS) / 16).max(1)
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        self.table.add(event);
    }

    /// Adds what `read` takes from the core, for classes only.
    pub fn read_classes(&mut self, read: impl FnOnce(&mut ClassReading)) {
        if self.has_classes() {
            read(&mut self.reading);
            self.table.add_classes(&self.reading);
        }
    }

    /// True if a class has a criterion of this kind.
    pub fn uses(&self, is: impl Fn(&Criterion) -> bool) -> bool {
        uses(self.table.classes(), is)
    }

    /// The table in a format, and remarks on what it excludes.
    ///
    /// # Errors
    /// None in practice: the table is written to memory.
    pub fn finish(&self, format: Format) -> anyhow::Result<(String, Vec<String>)> {
        let listing = self.table.listing(self.sort.order(), self.limit);
        let kind = self.table.by().name();
        let text = match format {
            Format::Text => text(kind, &listing),
            Format::Json => json_lines(kind, &listing)?,
            Format::Csv => csv(&listing)?,
        };
        Ok((text, self.remarks(&listing)))
    }

    fn remarks(&self, listing: &Listing) -> Vec<String> {
        let cause = match self.has_classes() {
            true => format!(
                "the core had no free cell, or the table has {MAX_TABLE_BUCKETS} histogram buckets"
            ),
            false => format!(
                "the table has {MAX_TABLE_ROWS} rows or {MAX_TABLE_BUCKETS} histogram buckets"
            ),
        };
        let mut remarks = Vec::new();
        for (count, what) in [
            (listing.excluded_samples, "samples"),
            (listing.excluded_flows, "directions of flows"),
        ] {
            if count > 0 {
                remarks.push(format!("excluded: {count} {what}: {cause}"));
            }
        }
        remarks
    }
}

fn uses(set: &ClassSet, is: impl Fn(&Criterion) -> bool) -> bool {
    let mut criteria = set.classes().iter().flat_map(|class| &class.criteria);
    criteria.any(is)
}

/// The classes of `--config` or `--class-file`, and the uplinks.
fn classes(args: &Args) -> anyhow::Result<(ClassSet, GlobSet)> {
    let (set, uplinks) = match &args.config {
        Some(path) => {
            let config = fairpath_config::load(path)?;
            (ClassSet::clone(&config.classes.set), config.monitor.uplinks)
        }
        None if args.class_file.is_empty() => {
            return Err(wrong_usage(
                "--by class needs --config FILE or --class-file FILE",
            ));
        }
        None => {
            let set = class::load(&args.class_file, !args.uplinks.is_empty())?;
            (set, args.uplinks.clone())
        }
    };
    if uplinks.is_empty() && uses(&set, |criterion| criterion.whom() == Whom::Inside) {
        return Err(wrong_usage(
            "classes by mark or DSCP need the interfaces of remote hosts: add --uplink IF, or use --config FILE",
        ));
    }
    Ok((set, fairpath_watch::globs(&uplinks)?))
}

/// An error of too many criteria.
pub fn refused(error: &TooManyRules) -> anyhow::Error {
    anyhow::anyhow!("classify by --class-file: {error}")
}

/// A header and one record per row. A value that was not measured is empty.
fn csv(listing: &Listing) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let columns = writer.write_record(&listing.columns);
    columns.context("write the CSV header")?;
    for row in &listing.rows {
        let record = row.values.iter().map(|value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        });
        writer.write_record(record).context("write a CSV record")?;
    }
    let bytes = writer.into_inner().context("write the CSV table")?;
    Ok(String::from_utf8(bytes)?)
}

/// One JSON object per row and line.
fn json_lines(kind: &str, listing: &Listing) -> anyhow::Result<String> {
    let mut text = String::new();
    for row in &listing.rows {
        let mut object = Map::new();
        object.insert("schema".to_owned(), json!(SCHEMA));
        object.insert("type".to_owned(), json!(kind));
        let named = listing.columns.iter().zip(&row.values);
        object.extend(named.map(|(name, value)| ((*name).to_owned(), value.clone())));
        text += &serde_json::to_string(&object).context("write a row as JSON")?;
        text.push('\n');
    }
    Ok(text)
}

/// Columns of the text: heading, name in JSON, width.
const TEXT_COLUMNS: [(&str, &str, usize); 8] = [
    ("samples", "samples", 9),
    ("min", "min_rtt_ns", 11),
    ("p50", "p50_rtt_ns", 11),
    ("p95", "p95_rtt_ns", 11),
    ("p99", "p99_rtt_ns", 11),
    ("max", "max_rtt_ns", 11),
    ("upstream", "upstream_loss_ratio", 9),
    ("downstream", "downstream_loss_ratio", 10),
];

/// The table for people.
fn text(kind: &str, listing: &Listing) -> String {
    let names = listing.rows.iter().map(|row| row.name.chars().count());
    let width = names.chain([kind.len()]).max().unwrap_or_default();
    let mut out = format!("{kind:<width$}");
    // Writing to a string cannot fail.
    for (heading, _, width) in TEXT_COLUMNS {
        let _ = write!(out, " {heading:>width$}");
    }
    out.push('\n');
    for row in &listing.rows {
        let _ = write!(out, "{:<width$}", row.name);
        for (_, column, width) in TEXT_COLUMNS {
            let at = listing.columns.iter().position(|name| *name == column);
            let cell = at.map_or_else(String::new, |at| readable(column, &row.values[at]));
            let _ = write!(out, " {cell:>width$}");
        }
        out.push('\n');
    }
    let _ = match listing.further_rows {
        0 => Ok(()),
        1 => writeln!(out, "1 more row; --limit N prints more"),
        more => writeln!(out, "{more} more rows; --limit N prints more"),
    };
    out
}

/// A value with its unit.
fn readable(column: &str, value: &Value) -> String {
    match (value.as_u64(), value.as_f64()) {
        (Some(ns), _) if column.ends_with("_ns") => Nanos(ns).to_string(),
        (Some(count), _) => count.to_string(),
        (None, Some(ratio)) => format!("{:.2} %", 100.0 * ratio),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_class::{Drafts, Uplinks};
    use fairpath_core::{Cell, ClassCounts, DOWN, INSIDE, bucket_of};

    const CSV: &str = "name,prefix\n\"Hof, \"\"Nord\"\"\",10.0.0.1/32\nanna,10.0.0.2/32\n";

    /// Two classes: the first with a name that CSV must quote, the second without loss.
    fn by_class(limit: usize) -> ByTable {
        let mut drafts = Drafts::new();
        drafts.read_csv("test.csv", CSV);
        let set = ClassSet::build(drafts, Uplinks::Unknown).set.unwrap();
        let mut counts = vec![ClassCounts::default(); 3];
        counts[1].dir[DOWN].data_packets = 200;
        counts[1].dir[DOWN].retransmitted_packets = 3;
        let cell = |slot, rtt_ns, count| Cell {
            slot,
            leg: INSIDE as u8,
            bucket: bucket_of(rtt_ns),
            count,
        };
        let mut table = Table::new(By::Class, set);
        table.add_classes(&ClassReading {
            counts,
            cells: vec![cell(1, 10_092_544, 4), cell(2, 1_007_616, 7)],
            ..ClassReading::default()
        });
        ByTable {
            table,
            sort: Sort::P95,
            limit,
            uplinks: GlobSet::empty(),
            interfaces: HashSet::new(),
            reading: ClassReading::default(),
        }
    }

    #[test]
    fn csv_quotes_names_with_commas_and_quotes() {
        let (csv, remarks) = by_class(9).finish(Format::Csv).unwrap();
        let expected = "\
class,leg,samples,min_rtt_ns,p50_rtt_ns,p95_rtt_ns,p99_rtt_ns,max_rtt_ns,data_packets,\
reordered_packets,upstream_lost_packets,downstream_lost_packets,upstream_loss_ratio,\
downstream_loss_ratio
\"Hof, \"\"Nord\"\"\",inside,4,10092544,10092544,10092544,10092544,10092544,200,0,0,3,0.0,0.015
anna,inside,7,1007616,1007616,1007616,1007616,1007616,0,0,0,0,,
";
        assert_eq!(csv, expected);
        assert!(remarks.is_empty(), "{remarks:?}");
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let first = reader.records().next().unwrap().unwrap();
        assert_eq!(first.get(0), Some("Hof, \"Nord\""));
    }

    #[test]
    fn text_names_rows_and_those_beyond_the_limit() {
        let (text, _) = by_class(1).finish(Format::Text).unwrap();
        let expected = "\
class                samples         min         p50         p95         p99         max  upstream downstream
Hof, \"Nord\" inside         4   10.093 ms   10.093 ms   10.093 ms   10.093 ms   10.093 ms    0.00 %     1.50 %
1 more row; --limit N prints more
";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_the_columns_of_csv() {
        let table = by_class(9);
        let (csv, _) = table.finish(Format::Csv).unwrap();
        let (json, _) = table.finish(Format::Json).unwrap();
        let row: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        for column in csv.lines().next().unwrap().split(',') {
            assert!(row.get(column).is_some(), "{column}: {row}");
        }
        assert_eq!(row["class"], "Hof, \"Nord\"");
        assert_eq!(row["downstream_loss_ratio"], 0.015);
    }
}
