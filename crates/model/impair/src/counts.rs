//! Outcomes of one direction's packets, as its back end counts them.

use hdrhistogram::Histogram;

use crate::own_drops::OwnDrops;

/// Lateness beyond this counts as this: a minute.
const LATEST_NS: u64 = 60_000_000_000;
/// Digits of a histogram's values that are kept.
const DIGITS: u8 = 2;

/// Counts since the start. A port that has no part in a column leaves it 0.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Packets that met the impairment.
    pub arrived: u64,
    /// Packets that bypassed the impairment; they are not in `arrived`.
    pub passed: u64,
    /// Of those, packets that should have met it.
    pub slipped: u64,
    /// Of them that came, lost as planned.
    pub lost: u64,
    /// Dropped by the queue behind the impairment: its limit, its policy.
    pub dropped: u64,
    /// Packets that left, second ones among them.
    pub sent: u64,
    /// Bytes of them on the wire, as the rate counts.
    pub sent_bytes: u64,
    /// Second ones.
    pub copies: u64,
    /// Packets that were sent with an inverted bit.
    pub corrupted: u64,
    /// Packets that wait.
    pub held: u64,
    /// Packets of several segments with one outcome.
    pub gso_packets: u64,
    /// Of those that left, with CE set by the queue's policy.
    pub marked: u64,
    /// The sojourn time in the queue behind the delay, by the plan: p50, p95, p99, ns.
    pub sojourn_ns: Option<[u64; 3]>,
    /// Dropped here, or not treated as it was to be, against the plan.
    pub own: OwnDrops,
    /// Dropped by the kernel before: its queues and rings were full.
    pub queue_dropped: u64,
    /// Minimum number of sent packets that were dropped later, by other rules or connection tracking.
    pub stopped: u64,
    /// Counters that could not be read, and the reasons: where it should say what was dropped, nothing
    /// is known.
    pub unread: Vec<String>,
    /// Left after one that came later, against the plan.
    pub reordered: u64,
    /// Time from arrival to departure, summed over sent packets, ns, without duplicates.
    pub delay_sum_ns: u128,
    /// Squares of the same, ns squared.
    pub delay_squares: u128,
    /// The same as planned.
    pub planned_sum_ns: u128,
    /// Squares of planned delays, ns squared.
    pub planned_squares: u128,
    /// Squares of the differences of added and planned delays, ns squared.
    pub late_squares: u128,
    /// Packets in both sums.
    pub delays: u64,
    /// The time between the planned and the actual departure of packets, ns.
    pub lateness: Histogram<u64>,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            arrived: 0,
            passed: 0,
            slipped: 0,
            lost: 0,
            dropped: 0,
            sent: 0,
            sent_bytes: 0,
            copies: 0,
            corrupted: 0,
            held: 0,
            gso_packets: 0,
            marked: 0,
            sojourn_ns: None,
            own: OwnDrops::default(),
            queue_dropped: 0,
            stopped: 0,
            unread: Vec::new(),
            reordered: 0,
            delay_sum_ns: 0,
            delay_squares: 0,
            planned_sum_ns: 0,
            planned_squares: 0,
            late_squares: 0,
            delays: 0,
            lateness: Histogram::new_with_bounds(1, LATEST_NS, DIGITS)
                .expect("bounds and digits are in range"),
        }
    }
}

impl Counts {
    /// A packet left that came at `arrived`, was to leave `planned` later, and left at `left`.
    pub fn note_left(&mut self, arrived: u64, planned: u64, left: u64) {
        let added = left.saturating_sub(arrived);
        self.delays += 1;
        self.delay_sum_ns += u128::from(added);
        self.delay_squares += u128::from(added).pow(2);
        self.planned_sum_ns += u128::from(planned);
        self.planned_squares += u128::from(planned).pow(2);
        self.late_squares += u128::from(added.abs_diff(planned)).pow(2);
        self.lateness
            .saturating_record(added.saturating_sub(planned));
    }

    /// The mean delay that was added, and the one that was planned, ns.
    pub fn mean_delays_ns(&self) -> Option<(f64, f64)> {
        let mean = |sum: u128| sum as f64 / self.delays as f64;
        (self.delays > 0).then(|| (mean(self.delay_sum_ns), mean(self.planned_sum_ns)))
    }

    /// The standard deviation of the delay that was added, ns.
    pub fn delay_deviation_ns(&self) -> Option<f64> {
        let (mean, _) = self.mean_delays_ns()?;
        Some(self.deviation(self.delay_squares, mean))
    }

    /// The standard deviation of the planned delay, ns.
    pub fn planned_deviation_ns(&self) -> Option<f64> {
        let (_, mean) = self.mean_delays_ns()?;
        Some(self.deviation(self.planned_squares, mean))
    }

    /// The standard deviation of the lateness, ns.
    pub fn lateness_deviation_ns(&self) -> Option<f64> {
        let (added, planned) = self.mean_delays_ns()?;
        Some(self.deviation(self.late_squares, added - planned))
    }

    fn deviation(&self, squares: u128, mean: f64) -> f64 {
        let square = squares as f64 / self.delays as f64;
        (square - mean * mean).max(0.0).sqrt()
    }

    /// Lateness that half, 99 %, 99.9 % and all packets do not exceed, ns.
    pub fn lateness_ns(&self) -> Option<[u64; 4]> {
        let all = &self.lateness;
        (!all.is_empty()).then(|| {
            let at = |share| all.value_at_quantile(share);
            [at(0.5), at(0.99), at(0.999), all.max()]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_means_and_lateness_is_a_distribution() {
        let mut counts = Counts::default();
        assert_eq!(
            (counts.mean_delays_ns(), counts.lateness_ns()),
            (None, None)
        );
        for i in 0..1000 {
            counts.note_left(5_000, 20_000, 25_000 + i);
        }
        let (added, planned) = counts.mean_delays_ns().unwrap();
        assert_eq!((added, planned), (20_499.5, 20_000.0));
        // Of a thousand whole numbers in a row: the root of (1000^2 - 1) / 12.
        let deviation = counts.delay_deviation_ns().unwrap();
        assert!((deviation - 288.675).abs() < 0.001, "{deviation}");
        let lateness = counts.lateness_deviation_ns().unwrap();
        assert!((lateness - 288.675).abs() < 0.001, "{lateness}");
        assert_eq!(counts.planned_deviation_ns(), Some(0.0));
        let [p50, p99, p999, most] = counts.lateness_ns().unwrap();
        let near = |value: u64, wanted: u64| value.abs_diff(wanted) <= wanted / 50 + 1;
        assert!(
            near(p50, 500) && near(p99, 990) && near(p999, 999),
            "{p50} {p99} {p999}"
        );
        assert!((999..1_010).contains(&most), "{most}");
    }
}
