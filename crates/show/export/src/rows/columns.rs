//! The columns of rows in files: `time`, then the fields of [`IntervalRow`] in their order.

use fairpath_history::snapshot::Kind;
use fairpath_history::{Histogram, IntervalRow};

/// One column.
pub(super) struct Column {
    /// Its name as it begins a member of a JSON object: `"NAME":`.
    pub key: &'static str,
    pub values: Values,
}

impl Column {
    pub fn name(&self) -> &'static str {
        self.key.trim_matches(['"', ':'])
    }
}

/// The values of a column.
pub(super) enum Values {
    /// `unix_ns` as a time.
    Time,
    Count(fn(&IntervalRow) -> u64),
    Maybe(fn(&IntervalRow) -> Option<u64>),
    Text(fn(&IntervalRow) -> &str),
    MaybeText(fn(&IntervalRow) -> Option<&str>),
}

/// Makes columns with the names of their fields.
macro_rules! columns {
    ($($values:ident $field:ident,)*) => {
        [$(Column {
            key: concat!("\"", stringify!($field), "\":"),
            values: Values::$values(|row| row.$field),
        },)*]
    };
}

const IDENTITY: [Column; 6] = [
    Column {
        key: "\"time\":",
        values: Values::Time,
    },
    Column {
        key: "\"unix_ns\":",
        values: Values::Count(|row| row.unix_ns),
    },
    Column {
        key: "\"interval_ns\":",
        values: Values::Count(|row| row.interval_ns),
    },
    Column {
        key: "\"name\":",
        values: Values::Text(|row| &row.name),
    },
    Column {
        key: "\"kind\":",
        values: Values::Text(kind),
    },
    Column {
        key: "\"parent\":",
        values: Values::MaybeText(|row| row.parent.as_deref()),
    },
];

const MEASURED: [Column; 36] = columns![
    Count bytes_up, Count bytes_down, Count packets_up, Count packets_down,
    Count unmeasured_bytes_up, Count unmeasured_bytes_down,
    Count inside_samples, Maybe inside_min_rtt_ns, Maybe inside_p50_rtt_ns, Maybe inside_p95_rtt_ns,
    Maybe inside_p99_rtt_ns, Maybe inside_max_rtt_ns, Maybe inside_mean_rtt_ns, Count inside_sum_rtt_ns,
    Count inside_lost_to_packets, Count inside_data_to_packets,
    Count inside_lost_from_packets, Count inside_data_from_packets,
    Count outside_samples, Maybe outside_min_rtt_ns, Maybe outside_p50_rtt_ns, Maybe outside_p95_rtt_ns,
    Maybe outside_p99_rtt_ns, Maybe outside_max_rtt_ns, Maybe outside_mean_rtt_ns, Count outside_sum_rtt_ns,
    Count outside_lost_to_packets, Count outside_data_to_packets,
    Count outside_lost_from_packets, Count outside_data_from_packets,
    Count reordered_packets_up, Count reordered_packets_down,
    Count flows_opened, Count flows_closed, Count handshakes_failed, Count flows_one_sided,
];

fn kind(row: &IntervalRow) -> &str {
    match row.kind {
        Kind::Class => "class",
        Kind::Subnet => "subnet",
        Kind::Interface => "interface",
        Kind::Other => "other",
    }
}

/// A list of numbers, one for each used bucket of a distribution.
pub(super) struct ListColumn {
    pub name: &'static str,
    pub histogram: fn(&IntervalRow) -> &Histogram,
    /// From the middle of a bucket and the number of its samples.
    pub value: fn(u64, u64) -> u64,
}

/// The distributions, which only Parquet files have.
pub(super) const LISTS: [ListColumn; 4] = [
    ListColumn {
        name: "inside_bucket_rtt_ns",
        histogram: |row| &row.inside_histogram,
        value: |middle, _| middle,
    },
    ListColumn {
        name: "inside_bucket_samples",
        histogram: |row| &row.inside_histogram,
        value: |_, samples| samples,
    },
    ListColumn {
        name: "outside_bucket_rtt_ns",
        histogram: |row| &row.outside_histogram,
        value: |middle, _| middle,
    },
    ListColumn {
        name: "outside_bucket_samples",
        histogram: |row| &row.outside_histogram,
        value: |_, samples| samples,
    },
];

/// The columns of one value in their order: all of JSON lines.
pub(super) fn columns() -> impl Iterator<Item = &'static Column> {
    IDENTITY.iter().chain(&MEASURED)
}
