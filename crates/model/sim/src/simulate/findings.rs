//! What a simulation measured.

use fairpath_core::sched::{Drop, ImpairStats, NodeStats, Outcome, SchedStats};

use super::histogram::Histogram;
use super::series::Series;
use crate::traffic::Row;

/// Packets and bytes that had one fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How many packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    #[inline]
    pub(super) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    fn merge(&mut self, other: Count) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Of a flow, a group of flows, or a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Came.
    pub offered: Count,
    /// Left.
    pub sent: Count,
    /// Were dropped, for any reason.
    pub dropped: Count,
    /// Left with CE set by the scheduler.
    pub marked: u64,
    /// Left a second time: an impairment copied them. Not among those that were sent.
    pub copied: Count,
    /// Left with a bit turned over by an impairment.
    pub corrupted: u64,
    /// How long those that left had waited, ns.
    pub sojourn: Histogram,
    /// Bytes that left, over time.
    pub series: Series,
    /// How long flows of finite size took from their first packet's arrival to their last one's
    /// departure, ns; those that lost nothing.
    pub completion: Histogram,
    /// Flows of finite size that lost packets.
    pub incomplete: u64,
}

impl Measured {
    /// A packet left twice, or damaged.
    #[cold]
    pub(super) fn tampered(&mut self, outcome: &Outcome, bytes: u32) {
        if outcome.copied() {
            self.copied.add(bytes);
        }
        self.corrupted += u64::from(outcome.corrupted_bit().is_some());
    }

    /// Adds what another measured.
    pub fn merge(&mut self, other: &Measured) {
        self.offered.merge(other.offered);
        self.sent.merge(other.sent);
        self.dropped.merge(other.dropped);
        self.marked += other.marked;
        self.copied.merge(other.copied);
        self.corrupted += other.corrupted;
        self.sojourn.merge(&other.sojourn);
        self.series.merge(&other.series);
        self.completion.merge(&other.completion);
        self.incomplete += other.incomplete;
    }
}

/// Packets that left while others of lower rank waited at the same leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inversions {
    /// How many left from leaves over packets: only there an ideal PIFO is defined.
    pub judged: u64,
    /// Of them, those that left too early.
    pub packets: u64,
    /// Pairs: for each of those, the packets of lower rank that waited.
    pub overtaken: u64,
}

/// The link's time; the three idle ones and `busy_ns` are all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTime {
    /// Sending.
    pub busy_ns: u64,
    /// Nothing was there to send.
    pub idle_empty_ns: u64,
    /// Packets were there, and the scheduler said that none may leave yet.
    pub idle_held_ns: u64,
    /// The scheduler said to ask now, and gave nothing: it broke work conservation.
    pub idle_wrong_ns: u64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Virtual time that was simulated.
    pub duration_ns: u64,
    /// It was ended before that.
    pub interrupted: bool,
    /// Rows, in the order of the traffic.
    pub rows: Vec<(Row, Measured)>,
    /// Classes by number, with the sums of their rows.
    pub classes: Vec<(u32, Measured)>,
    /// Of everything.
    pub total: Measured,
    /// Packets that waited at the end.
    pub held: u64,
    /// Drops by reason, those that happened.
    pub drops: Vec<(Drop, u64)>,
    /// Order against the ideal PIFO's.
    pub inversions: Inversions,
    /// The link.
    pub link: LinkTime,
    /// Most packets that waited at once.
    pub most_held: u64,
    /// The scheduler's own counters.
    pub stats: SchedStats,
    /// Its nodes', from node 1 on.
    pub nodes: Vec<NodeStats>,
    /// What the tree's impairments did, by number less 1.
    pub impairments: Vec<ImpairStats>,
    /// Flows whose weight the scheduler refused.
    pub weights_refused: u64,
    /// What the traffic left out, by reason.
    pub left_out: Vec<(&'static str, u64)>,
}

impl Findings {
    /// Bits a second of payload and headers, as given by `bytes` over the whole time.
    pub fn rate_bps(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e9 / self.duration_ns.max(1) as f64
    }

    /// The share of the time in which the link sent.
    pub fn utilisation(&self) -> f64 {
        self.link.busy_ns as f64 / self.duration_ns.max(1) as f64
    }

    /// Jain's index over the rows' throughputs by weight, of rows to which packets came
    /// (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC-TR-301, 1984). 1 is equal shares.
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

    fn row(name: &str, weight: u32, bytes: u64) -> (Row, Measured) {
        let count = Count { packets: 1, bytes };
        let measured = Measured {
            offered: count,
            sent: count,
            ..Measured::default()
        };
        (
            Row {
                name: name.into(),
                class: 0,
                weight,
                sample: None,
            },
            measured,
        )
    }

    #[test]
    fn jains_index_is_1_for_shares_by_weight_and_a_half_if_one_of_two_has_all() {
        let mut findings = Findings {
            rows: vec![row("a", 1, 100), row("b", 3, 300)],
            ..Findings::default()
        };
        assert!((findings.jain() - 1.0).abs() < 1e-12);
        findings.rows = vec![row("a", 1, 100), row("b", 1, 0)];
        assert!((findings.jain() - 0.5).abs() < 1e-12);
    }
}
