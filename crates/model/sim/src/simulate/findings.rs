//! The measurements of a simulation.

use fairpath_core::sched::{Drop, ImpairStats, NodeStats, Outcome, SchedStats};

use super::histogram::Histogram;
use super::series::Series;
use crate::traffic::TrafficRow;

/// Packets and bytes with the same outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    fn merge(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Measurements of a flow, a group of flows, or a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Enqueued.
    pub offered: Count,
    /// Sent.
    pub sent: Count,
    /// Dropped for any reason.
    pub dropped: Count,
    /// Sent with CE set by the scheduler.
    pub marked: u64,
    /// Duplicates from an impairment, which `sent` does not include.
    pub duplicated: Count,
    /// Sent with a bit inverted by an impairment.
    pub corrupted: u64,
    /// Sojourn times of sent packets, ns.
    pub sojourn: Histogram,
    /// Bytes sent over time.
    pub series: Series,
    /// Completion times of flows of finite size without loss, ns: from the arrival of the first packet
    /// to the departure of the last.
    pub completion: Histogram,
    /// Flows of finite size that lost packets.
    pub incomplete: u64,
}

impl Measured {
    /// Counts duplication and corruption of a packet.
    #[cold]
    pub(super) fn count_impairment(&mut self, outcome: &Outcome, bytes: u32) {
        if outcome.copied() {
            self.duplicated.add(bytes);
        }
        self.corrupted += u64::from(outcome.corrupted_bit().is_some());
    }

    /// Adds other measurements.
    pub fn merge(&mut self, other: &Measured) {
        self.offered.merge(other.offered);
        self.sent.merge(other.sent);
        self.dropped.merge(other.dropped);
        self.marked += other.marked;
        self.duplicated.merge(other.duplicated);
        self.corrupted += other.corrupted;
        self.sojourn.merge(&other.sojourn);
        self.series.merge(&other.series);
        self.completion.merge(&other.completion);
        self.incomplete += other.incomplete;
    }
}

/// Packets sent while packets of lower rank waited at the same leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inversions {
    /// Packets sent from leaves that rank packets. An ideal PIFO is defined for these only.
    pub checked: u64,
    /// Packets among them that were sent before a lower rank.
    pub packets: u64,
    /// Pairs of such a packet and a waiting packet of lower rank.
    pub pairs: u64,
}

/// The time of the link, divided into `busy_ns` and three idle times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTime {
    /// Sending.
    pub busy_ns: u64,
    /// The queue was empty.
    pub idle_empty_ns: u64,
    /// Packets waited, but the scheduler throttled all of them.
    pub idle_throttled_ns: u64,
    /// The scheduler returned the current time but no packet: it was not work-conserving.
    pub idle_wrong_ns: u64,
}

/// All measurements.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The simulated virtual time.
    pub duration_ns: u64,
    /// True if the simulation was interrupted.
    pub interrupted: bool,
    /// Rows in the order of the traffic.
    pub rows: Vec<(TrafficRow, Measured)>,
    /// Classes by number, with the sums of their rows.
    pub classes: Vec<(u32, Measured)>,
    /// The total.
    pub total: Measured,
    /// The backlog at the end, packets.
    pub backlog: u64,
    /// Drops by reason.
    pub drops: Vec<(Drop, u64)>,
    /// Deviations from the order of an ideal PIFO.
    pub inversions: Inversions,
    /// The link.
    pub link: LinkTime,
    /// The maximum backlog, packets.
    pub max_backlog: u64,
    /// The counters of the scheduler.
    pub stats: SchedStats,
    /// The counters of its nodes, beginning with node 1.
    pub nodes: Vec<NodeStats>,
    /// The counters of the impairments, by number minus 1.
    pub impairments: Vec<ImpairStats>,
    /// Flows whose weight the scheduler refused.
    pub weights_refused: u64,
    /// Packets or flows that the traffic excluded, by reason.
    pub excluded: Vec<(&'static str, u64)>,
}

impl Findings {
    /// The mean rate of `bytes` over the whole time, bits per second.
    pub fn rate_bps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e9 / self.duration_ns.max(1) as f64
    }

    /// The share of the time in which the link sent.
    pub fn utilisation(&self) -> f64 {
        self.link.busy_ns as f64 / self.duration_ns.max(1) as f64
    }

    /// Jain's index of throughput by weight, over rows with packets (Jain, Chiu, Hawe: A Quantitative
    /// Measure of Fairness, DEC-TR-301, 1984). 1 means equal shares.
    pub fn jain(&self) -> f64 {
        jain(
            self.rows
                .iter()
                .map(|(row, measured)| (row.weight, measured)),
        )
    }

    /// Jain's index over the rows of one class.
    pub fn jain_of_class(&self, class: u32) -> f64 {
        let rows = self.rows.iter().filter(|(row, _)| row.class == class);
        jain(rows.map(|(row, measured)| (row.weight, measured)))
    }
}

fn jain<'a>(rows: impl Iterator<Item = (u32, &'a Measured)>) -> f64 {
    let offered = rows.filter(|(_, measured)| measured.offered.packets > 0);
    let shares = offered.map(|(weight, m)| m.sent.bytes as f64 / f64::from(weight.max(1)));
    let (count, sum, squares) = shares.fold((0.0, 0.0, 0.0), |(count, sum, squares), share| {
        (count + 1.0, sum + share, squares + share * share)
    });
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (count * squares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, weight: u32, bytes: u64) -> (TrafficRow, Measured) {
        let count = Count { packets: 1, bytes };
        let measured = Measured {
            offered: count,
            sent: count,
            ..Measured::default()
        };
        (
            TrafficRow {
                name: name.into(),
                class: 0,
                weight,
                sample: None,
            },
            measured,
        )
    }

    #[test]
    fn jains_index_is_one_for_weighted_shares() {
        let mut findings = Findings {
            rows: vec![row("a", 1, 100), row("b", 3, 300)],
            ..Findings::default()
        };
        assert!((findings.jain() - 1.0).abs() < 1e-12);
        findings.rows = vec![row("a", 1, 100), row("b", 1, 0)];
        assert!((findings.jain() - 0.5).abs() < 1e-12);
    }
}
