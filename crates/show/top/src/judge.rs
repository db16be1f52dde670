//! What is worth a look and what is bad: the only place with thresholds.
//!
//! They are for the eye, on plain access lines. What an operator promised is for the daemon's alerts.

use fairpath_history::snapshot::{Leg, Row};

/// How a value is judged; shown by a mark, and by a colour where there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing to say, or not measured.
    #[default]
    Fine,
    /// Worth a look.
    Watch,
    /// People feel it.
    Bad,
}

impl Level {
    /// What stands behind the value, so that no meaning hangs on colour.
    pub fn mark(self) -> &'static str {
        match self {
            Level::Fine => " ",
            Level::Watch => "~",
            Level::Bad => "!",
        }
    }
}

const MS: u64 = 1_000_000;
/// 95th percentile towards the class's hosts: beyond, calls (ITU-T G.114: 150 ms one way, all of
/// the path) have little left for the rest of the way.
pub const INSIDE_P95_NS: [u64; 2] = [100 * MS, 250 * MS];
/// 95th percentile towards the rest of the world, which is further away.
pub const OUTSIDE_P95_NS: [u64; 2] = [200 * MS, 400 * MS];
/// Growth under load.
pub const GROWTH_NS: [u64; 2] = [30 * MS, 100 * MS];
/// Score of load, downwards.
pub const SCORE: [u8; 2] = [70, 40];
/// Share lost.
pub const LOSS: [f64; 2] = [0.01, 0.03];
/// Share of bytes whose flows gave no round-trip time.
pub const UNMEASURED: [f64; 2] = [0.5, 0.9];

fn rising<T: PartialOrd>(value: Option<T>, limits: &[T; 2]) -> Level {
    match value {
        Some(value) if value >= limits[1] => Level::Bad,
        Some(value) if value >= limits[0] => Level::Watch,
        _ => Level::Fine,
    }
}

/// Judges the 95th percentile inside.
pub fn inside_p95(leg: &Leg) -> Level {
    rising(leg.p95_rtt_ns, &INSIDE_P95_NS)
}

/// Judges the 95th percentile outside.
pub fn outside_p95(leg: &Leg) -> Level {
    rising(leg.p95_rtt_ns, &OUTSIDE_P95_NS)
}

/// Judges growth under load.
pub fn growth(row: &Row) -> Level {
    rising(row.load.growth_ns, &GROWTH_NS)
}

/// Judges the score of load.
pub fn score(row: &Row) -> Level {
    match row.load.score {
        Some(score) if score < SCORE[1] => Level::Bad,
        Some(score) if score < SCORE[0] => Level::Watch,
        _ => Level::Fine,
    }
}

/// Judges a share lost.
pub fn loss(share: Option<f64>) -> Level {
    rising(share, &LOSS)
}

/// Judges the unmeasured share.
pub fn unmeasured(share: Option<f64>) -> Level {
    rising(share, &UNMEASURED)
}

/// The greater share lost on a leg, of both ways.
pub fn greater_loss(leg: &Leg) -> Option<f64> {
    match (leg.loss_to, leg.loss_from) {
        (Some(to), Some(from)) => Some(to.max(from)),
        (to, from) => to.or(from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_judged_from_its_limit_on_and_the_unmeasured_is_fine() {
        let leg = |p95_rtt_ns| Leg {
            p95_rtt_ns,
            ..Leg::default()
        };
        assert_eq!(inside_p95(&leg(None)), Level::Fine);
        assert_eq!(inside_p95(&leg(Some(100 * MS - 1))), Level::Fine);
        assert_eq!(inside_p95(&leg(Some(100 * MS))), Level::Watch);
        assert_eq!(inside_p95(&leg(Some(250 * MS))), Level::Bad);
        assert_eq!(loss(Some(0.029)), Level::Watch);
        let mut row = Row::default();
        assert_eq!(score(&row), Level::Fine);
        row.load.score = Some(39);
        assert_eq!(score(&row), Level::Bad);
    }

    #[test]
    fn the_greater_loss_counts_and_one_way_is_enough() {
        let mut leg = Leg::default();
        assert_eq!(greater_loss(&leg), None);
        leg.loss_from = Some(0.0);
        assert_eq!(greater_loss(&leg), Some(0.0));
        leg.loss_to = Some(0.2);
        assert_eq!(greater_loss(&leg), Some(0.2));
    }
}
