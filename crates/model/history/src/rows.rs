//! One flat row per class and interval, for JSON lines and Parquet files.
//!
//! Counts are those of the interval, so rows can be summed over time. The row of a class includes the
//! classes below it, so rows of one level can be summed over classes. A value that was not measured
//! is `None`, never 0. Times are nanoseconds.

use serde::{Deserialize, Serialize};

use crate::snapshot::Kind;

/// The counts of one class, interface or subnet in one interval.
///
/// *Up* is what its hosts send, *down* what they receive. *Inside* is the leg between this router
/// and them, *outside* the leg to their remote hosts. *To* is the direction towards the far end of a
/// leg, *from* the opposite one. The loss ratio of a leg and direction is `lost` divided by `data`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalRow {
    /// Unix time of the begin of the interval, nanoseconds.
    pub unix_ns: u64,
    /// Its length by the monotonic clock, nanoseconds.
    pub interval_ns: u64,
    /// Unique among rows of its kind.
    pub name: String,
    /// Its origin.
    pub kind: Kind,
    /// Its parent class.
    pub parent: Option<String>,

    /// IP bytes that its hosts sent.
    pub bytes_up: u64,
    /// IP bytes that they received.
    pub bytes_down: u64,
    /// IP packets that they sent.
    pub packets_up: u64,
    /// IP packets that they received.
    pub packets_down: u64,
    /// Bytes of `bytes_up` in flows without an RTT sample.
    pub unmeasured_bytes_up: u64,
    /// Bytes of `bytes_down` in flows without an RTT sample.
    pub unmeasured_bytes_down: u64,

    /// RTT samples between this router and its hosts.
    pub inside_samples: u64,
    /// Minimum: the middle of a bucket, as for percentiles, with an error of at most 1.6 %.
    pub inside_min_rtt_ns: Option<u64>,
    /// Median.
    pub inside_p50_rtt_ns: Option<u64>,
    /// 95th percentile.
    pub inside_p95_rtt_ns: Option<u64>,
    /// 99th percentile.
    pub inside_p99_rtt_ns: Option<u64>,
    /// Maximum: the middle of a bucket.
    pub inside_max_rtt_ns: Option<u64>,
    /// Exact mean, from the sum.
    pub inside_mean_rtt_ns: Option<u64>,
    /// Packets lost between this router and its hosts, towards them.
    pub inside_lost_to_packets: u64,
    /// Data packets in this direction.
    pub inside_data_to_packets: u64,
    /// Packets lost from them.
    pub inside_lost_from_packets: u64,
    /// Data packets in this direction, including lost ones.
    pub inside_data_from_packets: u64,

    /// RTT samples between this router and the remote hosts.
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
    /// Packets lost between this router and the remote hosts, towards them.
    pub outside_lost_to_packets: u64,
    /// Data packets in this direction.
    pub outside_data_to_packets: u64,
    /// Packets lost from them.
    pub outside_lost_from_packets: u64,
    /// Data packets in this direction, including lost ones.
    pub outside_data_from_packets: u64,

    /// Packets of its hosts that arrived here out of order.
    pub reordered_packets_up: u64,
    /// Packets to its hosts that arrived here out of order.
    pub reordered_packets_down: u64,

    /// Flows with packets of both sides.
    pub flows_opened: u64,
    /// Opened flows of any age that ended.
    pub flows_closed: u64,
    /// Handshakes that were reset or never completed.
    pub handshakes_failed: u64,
    /// Flows that ended with packets of one side only.
    pub flows_one_sided: u64,
}
