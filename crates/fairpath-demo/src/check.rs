//! A claim that holds or does not, and the tolerances of all of them.

use std::fmt;

use crate::spread::Spread;

/// A leg's least round-trip time may exceed the planted delay by this: the way through two stacks and
/// the wires' wake-ups, on a machine that is busy.
pub const LEG_ABOVE_MS: f64 = 1.0;
/// It may fall short by this: the wires' and the kernel's clocks are read one after the other.
pub const LEG_BELOW_MS: f64 = 0.05;
/// The sum of both legs' least times may differ from another one's least time by this.
pub const PEER_MS: f64 = 1.0;
/// Their medians, by this: on a busy machine ping itself waits for a CPU between reading the clock and
/// sending, which the router cannot see.
pub const MEDIAN_MS: f64 = 3.0;
/// Loss where none was planted: a busy machine drops a packet now and then.
pub const CLEAN_SHARE: f64 = 0.005;

/// A claim, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Whether it holds.
    pub holds: bool,
    /// The claim with its tolerance.
    pub claim: String,
}

impl Check {
    /// A claim.
    pub fn new(holds: bool, claim: impl Into<String>) -> Check {
        Check {
            holds,
            claim: claim.into(),
        }
    }

    /// That a leg's least time is the planted delay.
    pub fn leg(min_ms: Option<f64>, planted_ms: f64) -> Check {
        let (low, high) = (planted_ms - LEG_BELOW_MS, planted_ms + LEG_ABOVE_MS);
        let holds = min_ms.is_some_and(|min| (low..=high).contains(&min));
        Check::new(holds, format!("min in {low:.2} to {high:.2}"))
    }

    /// That two least times agree.
    pub fn agree(one_ms: Option<f64>, other_ms: Option<f64>, whose: &str) -> Check {
        let holds = near(one_ms, other_ms, PEER_MS);
        Check::new(holds, format!("min within {PEER_MS:.1} of {whose}"))
    }

    /// That two spreads agree in the middle as well: for those that saw the same packets.
    pub fn agree_in_the_middle(
        one: &Spread,
        other_min_ms: Option<f64>,
        other_median_ms: Option<f64>,
    ) -> Check {
        let holds = near(one.min(), other_min_ms, PEER_MS)
            && near(one.median(), other_median_ms, MEDIAN_MS);
        let claim = format!("min within {PEER_MS:.1}, median {MEDIAN_MS:.1}");
        Check::new(holds, claim)
    }

    /// That a share lies in an interval.
    pub fn within(share: f64, (low, high): (f64, f64), what: &str) -> Check {
        let claim = format!("{what} in {:.2} to {:.2} %", low * 100.0, high * 100.0);
        Check::new((low..=high).contains(&share), claim)
    }

    /// That a share is that of an undisturbed path.
    pub fn clean(share: f64, what: &str) -> Check {
        let claim = format!("{what} at most {:.1} %", CLEAN_SHARE * 100.0);
        Check::new(share <= CLEAN_SHARE, claim)
    }
}

fn near(one: Option<f64>, other: Option<f64>, tolerance: f64) -> bool {
    let pair = one.zip(other);
    pair.is_some_and(|(one, other)| (one - other).abs() <= tolerance)
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.holds { '✓' } else { '✗' };
        write!(out, "{mark} {}", self.claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_holds_from_just_below_the_planted_delay_to_a_tolerance_above() {
        for (min, holds) in [(3.94, false), (3.96, true), (4.9, true), (5.1, false)] {
            assert_eq!(Check::leg(Some(min), 4.0).holds, holds, "{min}");
        }
        assert!(!Check::leg(None, 4.0).holds, "no samples are no proof");
    }

    #[test]
    fn least_times_agree_within_the_tolerance_either_way() {
        for (one, holds) in [(22.9, false), (23.1, true), (24.9, true), (25.1, false)] {
            let check = Check::agree(Some(one), Some(24.0), "ping's");
            assert_eq!(check.holds, holds, "{one}");
        }
        assert!(!Check::agree(Some(24.0), None, "ping's").holds);
    }

    #[test]
    fn spreads_agree_only_where_both_least_times_and_medians_do() {
        let ping = Spread::new([24.2, 24.4, 25.0]);
        let agrees = |min, median| Check::agree_in_the_middle(&ping, min, median).holds;
        assert!(agrees(Some(24.1), Some(24.3)));
        assert!(!agrees(Some(22.1), Some(24.3)), "least time");
        assert!(!agrees(Some(24.1), Some(20.3)), "median");
        assert!(!agrees(Some(24.1), None));
    }
}
