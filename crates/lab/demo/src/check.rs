//! A claim that holds or does not, and the tolerances of all of them.

use std::fmt;

/// Tolerance of a leg's minimum RTT above the configured delay: the path through two stacks and the
/// wake-ups of the emulated links, on a busy machine.
pub const LEG_ABOVE_MS: f64 = 1.0;
/// It may fall short by this: the wires' and the kernel's clocks are read one after the other.
pub const LEG_BELOW_MS: f64 = 0.05;
/// The sum of both legs' least times may differ from another one's least time by this.
pub const PEER_MS: f64 = 1.0;
/// Tolerated loss without a configured one: a busy machine drops a packet now and then.
pub const CLEAN_SHARE: f64 = 0.005;

/// A claim, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// True if it holds.
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

    /// Checks that a leg's minimum RTT is the configured delay.
    pub fn leg(min_ms: Option<f64>, configured_ms: f64) -> Check {
        let (low, high) = (configured_ms - LEG_BELOW_MS, configured_ms + LEG_ABOVE_MS);
        let holds = min_ms.is_some_and(|min| (low..=high).contains(&min));
        Check::new(holds, format!("min in {low:.2} to {high:.2}"))
    }

    /// That two least times agree.
    pub fn agree(one_ms: Option<f64>, other_ms: Option<f64>, whose: &str) -> Check {
        let pair = one_ms.zip(other_ms);
        let holds = pair.is_some_and(|(one, other)| (one - other).abs() <= PEER_MS);
        Check::new(holds, format!("min within {PEER_MS:.1} of {whose}"))
    }

    /// That a median of the legs does not exceed what the ends see.
    ///
    /// The other way round nothing can be promised: on a busy machine ping itself waits for a CPU
    /// between reading the clock and sending, which the router cannot see.
    pub fn at_most(one_ms: Option<f64>, other_ms: Option<f64>, whose: &str) -> Check {
        let pair = one_ms.zip(other_ms);
        let holds = pair.is_some_and(|(one, other)| one <= other + PEER_MS);
        Check::new(holds, format!("median at most {whose} + {PEER_MS:.1}"))
    }

    /// Checks that a share is in an interval.
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
    fn legs_match_the_configured_delay_within_tolerance() {
        for (min, holds) in [(3.94, false), (3.96, true), (4.9, true), (5.1, false)] {
            assert_eq!(Check::leg(Some(min), 4.0).holds, holds, "{min}");
        }
        assert!(!Check::leg(None, 4.0).holds, "no samples are no proof");
    }

    #[test]
    fn minimum_times_agree_within_the_tolerance() {
        for (one, holds) in [(22.9, false), (23.1, true), (24.9, true), (25.1, false)] {
            let check = Check::agree(Some(one), Some(24.0), "ping's");
            assert_eq!(check.holds, holds, "{one}");
        }
        assert!(!Check::agree(Some(24.0), None, "ping's").holds);
    }

    #[test]
    fn a_median_may_be_any_amount_below_others() {
        for (one, holds) in [(12.0, true), (24.9, true), (25.1, false)] {
            let check = Check::at_most(Some(one), Some(24.0), "ping's");
            assert_eq!(check.holds, holds, "{one}");
        }
        assert!(!Check::at_most(None, Some(24.0), "ping's").holds);
    }
}
