//! The thresholds for warnings and critical values.
//!
//! They suit common access links and only mark values on the screen. Configured thresholds and
//! service levels belong to the daemon's alerts.

use crate::snapshot::{Leg, SnapshotRow};

/// The level of a value, shown by a mark, and by a colour if the terminal has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Below the thresholds, or not measured.
    #[default]
    Normal,
    /// At or above the first threshold.
    Warning,
    /// At or above the second threshold: users notice it.
    Critical,
}

impl Level {
    /// The mark after the value, so that colour is never the only sign.
    pub fn mark(self) -> &'static str {
        match self {
            Level::Normal => " ",
            Level::Warning => "~",
            Level::Critical => "!",
        }
    }
}

const MS: u64 = 1_000_000;
/// 95th percentile of the inside leg. Above it, calls have little delay left for the rest of the path
/// (ITU-T G.114: 150 ms one-way for the whole path).
pub const INSIDE_P95_NS: [u64; 2] = [100 * MS, 250 * MS];
/// 95th percentile of the outside leg, which is longer.
pub const OUTSIDE_P95_NS: [u64; 2] = [200 * MS, 400 * MS];
/// Growth under load.
pub const GROWTH_NS: [u64; 2] = [30 * MS, 100 * MS];
/// Load score. Lower values are worse.
pub const SCORE: [u8; 2] = [70, 40];
/// Loss ratio.
pub const LOSS: [f64; 2] = [0.01, 0.03];
/// Fraction of bytes in flows without RTT samples.
pub const UNMEASURED: [f64; 2] = [0.5, 0.9];

fn rising<T: PartialOrd>(value: Option<T>, limits: &[T; 2]) -> Level {
    match value {
        Some(value) if value >= limits[1] => Level::Critical,
        Some(value) if value >= limits[0] => Level::Warning,
        _ => Level::Normal,
    }
}

/// Level of the 95th percentile inside.
pub fn inside_p95(leg: &Leg) -> Level {
    rising(leg.p95_rtt_ns, &INSIDE_P95_NS)
}

/// Level of the 95th percentile outside.
pub fn outside_p95(leg: &Leg) -> Level {
    rising(leg.p95_rtt_ns, &OUTSIDE_P95_NS)
}

/// Level of the RTT above the usual one: that of growth under load.
pub fn excess(rtt_ns: Option<u64>) -> Level {
    rising(rtt_ns, &GROWTH_NS)
}

/// Level of the growth under load.
pub fn growth(row: &SnapshotRow) -> Level {
    rising(row.load.rtt_growth_ns, &GROWTH_NS)
}

/// Level of the load score.
pub fn score(row: &SnapshotRow) -> Level {
    match row.load.score {
        Some(score) if score < SCORE[1] => Level::Critical,
        Some(score) if score < SCORE[0] => Level::Warning,
        _ => Level::Normal,
    }
}

/// Level of a loss ratio.
pub fn loss(share: Option<f64>) -> Level {
    rising(share, &LOSS)
}

/// Level of the unmeasured fraction.
pub fn unmeasured(share: Option<f64>) -> Level {
    rising(share, &UNMEASURED)
}

/// The larger loss ratio of the two directions of a leg.
pub fn larger_loss(leg: &Leg) -> Option<f64> {
    match (leg.loss_to_ratio, leg.loss_from_ratio) {
        (Some(to), Some(from)) => Some(to.max(from)),
        (to, from) => to.or(from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_begins_at_its_threshold() {
        let leg = |p95_rtt_ns| Leg {
            p95_rtt_ns,
            ..Leg::default()
        };
        assert_eq!(inside_p95(&leg(None)), Level::Normal);
        assert_eq!(inside_p95(&leg(Some(100 * MS - 1))), Level::Normal);
        assert_eq!(inside_p95(&leg(Some(100 * MS))), Level::Warning);
        assert_eq!(inside_p95(&leg(Some(250 * MS))), Level::Critical);
        assert_eq!(loss(Some(0.029)), Level::Warning);
        let mut row = SnapshotRow::default();
        assert_eq!(score(&row), Level::Normal);
        row.load.score = Some(39);
        assert_eq!(score(&row), Level::Critical);
    }

    #[test]
    fn larger_loss_accepts_one_direction() {
        let mut leg = Leg::default();
        assert_eq!(larger_loss(&leg), None);
        leg.loss_from_ratio = Some(0.0);
        assert_eq!(larger_loss(&leg), Some(0.0));
        leg.loss_to_ratio = Some(0.2);
        assert_eq!(larger_loss(&leg), Some(0.2));
    }
}
