//! A snapshot as metrics that Prometheus and its kin scrape.
//!
//! | file | what it holds |
//! |---|---|
//! | `families` | which metrics there are, and where in a row their values stand |
//! | `fold` | the limit on series: rows beyond it are summed |
//! | `text` | the two text formats |
//!
//! Counters grow since `counting_since` of the snapshot, which survives restarts of the daemon, and
//! begin anew when its state is lost: as Prometheus expects. The crate `prometheus-client` is not
//! used: it owns its metrics, so every scrape would copy all rows, and writes OpenMetrics only.

mod families;
mod fold;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;

use fairpath_history::snapshot::{Row, Snapshot};

use families::FAMILIES;
pub use text::Exposition;
use text::{Encoder, Kind};

/// Series that one answer may have, unless configured otherwise.
pub const MAX_SERIES: usize = 20_000;

/// Upper bounds of the histogram's buckets, seconds: dense where subscribers' round-trip times lie.
///
/// A bound is rounded up to the end of the core's bucket that it falls into, at most 3.2 % higher.
pub const RTT_BOUNDS_S: [f64; 19] = [
    0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.0, 5.0, 10.0,
];

/// Series beside those of rows and counters.
const FIXED_SERIES: usize = 16;

/// What metrics are told, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsOptions {
    /// Series at most; rows beyond it, those with the least traffic, are summed into `other`.
    pub max_series: usize,
    /// The dialect.
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

/// The metrics of a snapshot, which must have been taken with histograms.
///
/// Every row has the same number of series whether or not anything was measured, except for values
/// that are not known: those are left out. Text of about 80 bytes a series; O(n log n) in rows.
pub fn openmetrics(snapshot: &Snapshot, options: &MetricsOptions) -> String {
    let counters = counters(snapshot);
    let gauges = gauges(snapshot);
    let taken = FIXED_SERIES + counters.len() + gauges.len();
    let most_rows = options.max_series.saturating_sub(taken) / families::SERIES_PER_ROW;
    let folded = fold::fold(&snapshot.rows, most_rows);
    let mut encoder = Encoder::new(options.exposition);
    classes(&mut encoder, &folded.rows);
    monitor(&mut encoder, snapshot, folded.left_out);
    for (name, value) in &gauges {
        let name = format!("fairpath_monitor_{name}");
        encoder.family(&name, Kind::Gauge, "", "What the monitor holds now");
        encoder.sample("", &[], *value as f64);
    }
    for (name, value) in &counters {
        let name = format!("fairpath_monitor_{name}");
        encoder.family(
            &name,
            Kind::Counter,
            "",
            "A counter of the packet path or the daemon",
        );
        encoder.sample("", &[], *value as f64);
    }
    encoder.finish()
}

fn classes(encoder: &mut Encoder, rows: &[Cow<'_, Row>]) {
    families::rtt(encoder, rows);
    for family in FAMILIES {
        family.encode(encoder, rows);
    }
    families::alerts(encoder, rows);
    families::info(encoder, rows);
}

fn monitor(encoder: &mut Encoder, snapshot: &Snapshot, left_out: usize) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let gauges: [(&str, &str, &str, Option<f64>); 7] = [
        (
            "fairpath_rows",
            "",
            "Classes, interfaces and subnets that exist",
            Some(snapshot.rows_total as f64),
        ),
        (
            "fairpath_rows_folded",
            "",
            "Rows summed into class=\"other\" to keep to max_series",
            Some(left_out as f64),
        ),
        (
            "fairpath_configuration_generation",
            "",
            "Grows with each configuration taken in",
            Some(snapshot.configuration as f64),
        ),
        (
            "fairpath_uptime_seconds",
            "seconds",
            "Since this process began to count",
            Some(seconds(snapshot.up_ns)),
        ),
        (
            "fairpath_reading_timestamp_seconds",
            "seconds",
            "Unix time of the picture that these metrics show",
            Some(seconds(snapshot.unix_ns)),
        ),
        (
            "fairpath_counting_since_timestamp_seconds",
            "seconds",
            "Unix time since when counters count",
            Some(seconds(snapshot.counting_since_unix_ns)),
        ),
        (
            "fairpath_restart_gap_seconds",
            "seconds",
            "How long nothing was measured at the last restart",
            snapshot.gap_ns.map(seconds),
        ),
    ];
    for (name, unit, help, value) in gauges {
        encoder.family(name, Kind::Gauge, unit, help);
        if let Some(value) = value {
            encoder.sample("", &[], value);
        }
    }
    encoder.family("fairpath_build", Kind::Info, "", "The program that answers");
    encoder.sample("", &[("version", &snapshot.version)], 1.0);
}

/// The snapshot's counters under names that metrics may have; names that become the same are summed.
fn counters(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    by_metric_name(&snapshot.counters)
}

/// Likewise the gauges, but for names that a counter has already.
fn gauges(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let taken = counters(snapshot);
    let mut gauges = by_metric_name(&snapshot.gauges);
    gauges.retain(|name, _| !taken.contains_key(name));
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
