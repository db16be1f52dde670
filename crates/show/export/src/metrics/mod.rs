//! A snapshot as metrics for Prometheus and compatible scrapers.
//!
//! | file | content |
//! |---|---|
//! | `families` | the metrics of rows |
//! | `fold` | the limit on series: excess rows are summed |
//! | `rules` | the metrics of loaded rules |
//! | `text` | the two text formats |
//!
//! Counters grow since `counting_since_unix_ns` of the snapshot. They survive restarts of the daemon,
//! and restart at 0 when its state file is lost, as Prometheus expects. The crate `prometheus-client` is not
//! used: it owns its metrics, so every scrape would copy all rows, and writes OpenMetrics only.

mod families;
mod fold;
mod rules;
mod text;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use fairpath_history::snapshot::{Alert, AlertKind, Kind as RowKind, Snapshot, SnapshotRow};

use families::FAMILIES;
pub use rules::rule_series;
pub use text::Exposition;
use text::{Encoder, Kind};

/// Default maximum number of series in one answer: of 6,000 rows, so 5,000 subscribers with their
/// sites, subnets and interfaces. An answer has at most about 80 bytes for each.
pub const MAX_SERIES: usize = 500_000;

/// Upper bounds of the histogram's buckets, seconds: dense in the usual range of subscribers' RTTs.
///
/// A bound is rounded up to the end of the core's bucket that contains it, at most 3.2 % higher.
pub const RTT_BOUNDS_S: [f64; 19] = [
    0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.0, 5.0, 10.0,
];

/// Series for counters of the daemon, and for what belongs to no row. There are fewer than these.
const OWN_SERIES: usize = 200;

/// The value of `max_series` with which no row of `rows` rows is summed, next to the series of loaded
/// rules. O(1).
pub fn series_needed(rows: usize, rule_series: usize) -> usize {
    OWN_SERIES + rule_series + rows * families::SERIES_PER_ROW
}

/// Format and limit of metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsOptions {
    /// Maximum number of series. Excess rows, those with the least traffic, are summed into `other`.
    pub max_series: usize,
    /// The text format.
    pub exposition: Exposition,
}

impl Default for MetricsOptions {
    fn default() -> MetricsOptions {
        MetricsOptions {
            max_series: MAX_SERIES,
            exposition: Exposition::OpenMetrics,
        }
    }
}

/// The metrics of a snapshot, which must include histograms.
///
/// Values that were not measured have no series. The text has about 80 bytes per series.
/// O(n log n) in rows.
pub fn openmetrics(snapshot: &Snapshot, options: &MetricsOptions) -> String {
    let counters = counters(snapshot);
    let gauges = gauges(snapshot);
    // All metrics of the rules or none: they are few.
    let rules = snapshot.rules.as_deref();
    let needed_by_rules = rules.map_or(0, rule_series);
    let rules = rules.filter(|_| OWN_SERIES + needed_by_rules <= options.max_series);
    let own = OWN_SERIES + rules.map_or(0, rule_series);
    let max_rows = options.max_series.saturating_sub(own) / families::SERIES_PER_ROW;
    let reported = Reported::new(&snapshot.alerts);
    let folded = fold::fold(&snapshot.rows, max_rows, &reported);
    let mut encoder = Encoder::new(options.exposition);
    classes(&mut encoder, &folded.rows, &reported);
    if let Some(rules) = rules {
        rules::encode(&mut encoder, rules);
    }
    let needed = series_needed(snapshot.rows.len(), needed_by_rules);
    monitor(&mut encoder, snapshot, folded.summed, needed);
    for (name, value) in &gauges {
        let name = format!("fairpath_monitor_{name}");
        encoder.family(
            &name,
            Kind::Gauge,
            "",
            "Current value, as in the gauges of the snapshot",
        );
        encoder.sample("", &[], *value as f64);
    }
    for (name, value) in &counters {
        let name = format!("fairpath_monitor_{name}");
        encoder.family(
            &name,
            Kind::Counter,
            "",
            "Counter of the packet path or of the daemon",
        );
        encoder.sample("", &[], *value as f64);
    }
    encoder.finish()
}

/// The alerts that were reported, one per fault: kind and name of the row, and condition.
struct Reported<'a>(HashSet<(RowKind, &'a str, AlertKind)>);

impl<'a> Reported<'a> {
    fn new(alerts: &'a [Alert]) -> Reported<'a> {
        let keys = alerts.iter().map(|a| (a.kind, a.class.as_str(), a.alert));
        Reported(keys.collect())
    }

    /// The reported alerts of a row.
    fn of(&self, row: &SnapshotRow) -> impl Iterator<Item = AlertKind> {
        let alerts = row.alerts.iter().copied();
        alerts.filter(|alert| self.0.contains(&(row.kind, row.name.as_str(), *alert)))
    }
}

fn classes(encoder: &mut Encoder, rows: &[Cow<'_, SnapshotRow>], reported: &Reported<'_>) {
    families::rtt(encoder, rows);
    for family in FAMILIES {
        family.encode(encoder, rows);
    }
    families::alerts(encoder, rows, reported);
    families::info(encoder, rows);
}

fn monitor(encoder: &mut Encoder, snapshot: &Snapshot, summed: usize, needed: usize) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let gauges: [(&str, &str, &str, Option<f64>); 8] = [
        (
            "fairpath_rows",
            "",
            "Rows: classes, subnets, interfaces and other",
            Some(snapshot.rows_total as f64),
        ),
        (
            "fairpath_rows_folded",
            "",
            "Rows summed into class=\"other\": raise [metrics] max_series to fairpath_series_needed",
            Some(summed as f64),
        ),
        (
            "fairpath_series_needed",
            "",
            "The value of [metrics] max_series with which no row is summed",
            Some(needed as f64),
        ),
        (
            "fairpath_configuration_generation",
            "",
            "Number of the applied configuration, grows with each reload",
            Some(snapshot.configuration as f64),
        ),
        (
            "fairpath_uptime_seconds",
            "seconds",
            "Time since this process began to count",
            Some(seconds(snapshot.up_ns)),
        ),
        (
            "fairpath_snapshot_timestamp_seconds",
            "seconds",
            "Unix time of the snapshot that these metrics show",
            Some(seconds(snapshot.unix_ns)),
        ),
        (
            "fairpath_counting_since_timestamp_seconds",
            "seconds",
            "Unix time from which counters count",
            Some(seconds(snapshot.counting_since_unix_ns)),
        ),
        (
            "fairpath_restart_gap_seconds",
            "seconds",
            "Time without measurement at the last restart",
            snapshot.gap_ns.map(seconds),
        ),
    ];
    for (name, unit, help, value) in gauges {
        encoder.family(name, Kind::Gauge, unit, help);
        if let Some(value) = value {
            encoder.sample("", &[], value);
        }
    }
    encoder.family("fairpath_build", Kind::Info, "", "Version of the program");
    encoder.sample("", &[("version", &snapshot.version)], 1.0);
}

/// The snapshot's counters under valid metric names. Counters with equal metric names are summed.
fn counters(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    by_metric_name(&snapshot.counters)
}

/// The gauges in the same way, except names that a counter has.
fn gauges(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let counters = counters(snapshot);
    let mut gauges = by_metric_name(&snapshot.gauges);
    gauges.retain(|name, _| !counters.contains_key(name));
    gauges
}

fn by_metric_name(values: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    for (name, value) in values {
        let sum: &mut u64 = named.entry(metric_name(name)).or_default();
        *sum = sum.wrapping_add(*value);
    }
    named
}

fn metric_name(name: &str) -> String {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    name.chars().map(allowed).collect()
}
