//! One row per class and interval, flat: what JSON lines and Parquet files hold.
//!
//! Counts are those of the interval, not totals: rows can be summed over time. A class's row
//! includes the classes below it: rows of one level can be summed over classes. What was not
//! measured is `None`, never 0. Times are nanoseconds.

use serde::{Deserialize, Serialize};

use crate::snapshot::Kind;

/// What one class, interface or subnet did in one interval.
///
/// *Up* is what its hosts send, *down* what they receive; *inside* is the leg between this router
/// and them, *outside* the leg beyond. *To* is on the way to the leg's far end, *from* on the way
/// from there. A leg and way's loss is its `lost` as a share of its `data`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalRow {
    /// Unix time at which the interval began, nanoseconds.
    pub unix_ns: u64,
    /// How long it was by a clock that is never set, nanoseconds.
    pub interval_ns: u64,
    /// Unique among rows of its kind.
    pub name: String,
    /// Where the row comes from.
    pub kind: Kind,
    /// The class above it.
    pub parent: Option<String>,

    /// IP bytes that its hosts sent.
    pub bytes_up: u64,
    /// IP bytes that they received.
    pub bytes_down: u64,
    /// IP packets that they sent.
    pub packets_up: u64,
    /// IP packets that they received.
    pub packets_down: u64,
    /// Of `bytes_up`, those whose flows gave no round-trip time.
    pub unmeasured_bytes_up: u64,
    /// Of `bytes_down`, likewise.
    pub unmeasured_bytes_down: u64,

    /// Round-trip times between this router and its hosts.
    pub inside_samples: u64,
    /// The least: the middle of its bucket, as the quantiles are (at most 1.6 % off).
    pub inside_min_rtt_ns: Option<u64>,
    /// Median.
    pub inside_p50_rtt_ns: Option<u64>,
    /// 95th percentile.
    pub inside_p95_rtt_ns: Option<u64>,
    /// 99th percentile.
    pub inside_p99_rtt_ns: Option<u64>,
    /// The greatest: the middle of its bucket.
    pub inside_max_rtt_ns: Option<u64>,
    /// Mean: exact, from the sum.
    pub inside_mean_rtt_ns: Option<u64>,
    /// Lost between this router and its hosts, on the way to them, packets.
    pub inside_lost_to_packets: u64,
    /// Of so many data packets.
    pub inside_data_to_packets: u64,
    /// Lost on the way from them, packets.
    pub inside_lost_from_packets: u64,
    /// Of so many data packets, lost ones included.
    pub inside_data_from_packets: u64,

    /// Round-trip times between this router and those that its hosts talk with.
    pub outside_samples: u64,
    /// As for the inside leg.
    pub outside_min_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_p50_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_p95_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_p99_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_max_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_mean_rtt_ns: Option<u64>,
    /// Lost beyond this router, on the way from its hosts to those they talk with, packets.
    pub outside_lost_to_packets: u64,
    /// Of so many data packets.
    pub outside_data_to_packets: u64,
    /// Lost on the way from those, packets.
    pub outside_lost_from_packets: u64,
    /// Of so many data packets, lost ones included.
    pub outside_data_from_packets: u64,

    /// Sent by its hosts and late at this router, packets.
    pub reordered_packets_up: u64,
    /// Sent to its hosts and late at this router, packets.
    pub reordered_packets_down: u64,

    /// Flows of which both sides were seen.
    pub flows_opened: u64,
    /// Of those (of any age), how many ended.
    pub flows_closed: u64,
    /// Handshakes that were reset, or never completed.
    pub handshakes_failed: u64,
    /// Flows that ended with one side seen.
    pub flows_one_sided: u64,
}
