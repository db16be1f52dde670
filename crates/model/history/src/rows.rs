//! One flat row per class and interval, for JSON lines and Parquet files.
//!
//! Counts are those of the interval, so rows can be summed over time. The row of a class includes the
//! classes below it, so rows of one level can be summed over classes. A value that was not measured
//! is `None`, never 0. Times are nanoseconds.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
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
    /// Exact sum of the samples.
    pub inside_sum_rtt_ns: u64,
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
    /// As for the inside leg.
    pub outside_sum_rtt_ns: u64,
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

    /// The distribution of the inside leg. Only Parquet files have it.
    #[serde(skip)]
    pub inside_histogram: Histogram,
    /// The distribution of the outside leg.
    #[serde(skip)]
    pub outside_histogram: Histogram,
}

impl IntervalRow {
    /// Adds the counts of another interval, or of another row. Times, name, kind and parent stay.
    /// Percentiles are then invalid until [`IntervalRow::settle`]. O(buckets).
    pub fn merge(&mut self, other: &IntervalRow) {
        macro_rules! add {
            ($($field:ident)*) => { $(self.$field += other.$field;)* };
        }
        add!(bytes_up bytes_down packets_up packets_down unmeasured_bytes_up unmeasured_bytes_down
            inside_samples inside_sum_rtt_ns
            inside_lost_to_packets inside_data_to_packets
            inside_lost_from_packets inside_data_from_packets
            outside_samples outside_sum_rtt_ns
            outside_lost_to_packets outside_data_to_packets
            outside_lost_from_packets outside_data_from_packets
            reordered_packets_up reordered_packets_down
            flows_opened flows_closed handshakes_failed flows_one_sided);
        self.inside_histogram.merge(&other.inside_histogram);
        self.outside_histogram.merge(&other.outside_histogram);
    }

    /// Sets percentiles and means from distributions and sums.
    pub fn settle(&mut self) {
        let inside = &self.inside_histogram;
        self.inside_min_rtt_ns = inside.quantile(0.0);
        self.inside_p50_rtt_ns = inside.quantile(0.5);
        self.inside_p95_rtt_ns = inside.quantile(0.95);
        self.inside_p99_rtt_ns = inside.quantile(0.99);
        self.inside_max_rtt_ns = inside.quantile(1.0);
        self.inside_mean_rtt_ns = self.inside_sum_rtt_ns.checked_div(self.inside_samples);
        let outside = &self.outside_histogram;
        self.outside_min_rtt_ns = outside.quantile(0.0);
        self.outside_p50_rtt_ns = outside.quantile(0.5);
        self.outside_p95_rtt_ns = outside.quantile(0.95);
        self.outside_p99_rtt_ns = outside.quantile(0.99);
        self.outside_max_rtt_ns = outside.quantile(1.0);
        self.outside_mean_rtt_ns = self.outside_sum_rtt_ns.checked_div(self.outside_samples);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of samples, as the history makes it.
    fn row(rtts: &[u64], bytes: u64) -> IntervalRow {
        let mut row = IntervalRow {
            bytes_up: bytes,
            inside_samples: rtts.len() as u64,
            inside_sum_rtt_ns: rtts.iter().sum(),
            flows_one_sided: 1,
            ..IntervalRow::default()
        };
        rtts.iter()
            .for_each(|rtt| row.inside_histogram.record(*rtt));
        row.settle();
        row
    }

    #[test]
    fn merged_rows_are_those_of_all_samples() {
        let all: Vec<u64> = (1..200).map(|n| n * n * 37_000).collect();
        for at in [0, 1, 50, 198, 199] {
            let (mut first, second) = (row(&all[..at], 5), row(&all[at..], 7));
            first.merge(&second);
            first.settle();
            let expected = IntervalRow {
                flows_one_sided: 2,
                ..row(&all, 12)
            };
            assert_eq!(first, expected);
        }
        // Every number of a row is added, or is derived from what is.
        let serde_json::Value::Object(fields) =
            serde_json::to_value(IntervalRow::default()).unwrap()
        else {
            unreachable!()
        };
        let number = |name: &str| !["unix_ns", "interval_ns"].contains(&name);
        let counts = fields
            .iter()
            .filter(|(name, value)| value.is_u64() && number(name));
        for (name, _) in counts {
            let with = |n: u64| {
                let mut fields = fields.clone();
                fields[name] = n.into();
                serde_json::from_value::<IntervalRow>(serde_json::Value::Object(fields)).unwrap()
            };
            let mut sum = with(3);
            sum.merge(&with(4));
            assert_eq!(sum, with(7), "{name}");
        }
    }
}
