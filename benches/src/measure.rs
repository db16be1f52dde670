//! Medians, spread, and targets.

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Nanoseconds that this thread had a CPU: what others take does not count.
///
/// # Errors
/// There is no such clock.
pub fn thread_ns() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// Several measurements of one thing.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// In the order they were taken.
    pub each: Vec<f64>,
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub most: f64,
}

impl Measured {
    /// Of at least one measurement; of none, all is 0.
    pub fn of(each: Vec<f64>) -> Measured {
        let mut sorted = each.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        let half = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) && half > 0 {
            (at(half - 1) + at(half)) / 2.0
        } else {
            at(half)
        };
        Measured {
            median,
            min: at(0),
            most: at(sorted.len().saturating_sub(1)),
            each,
        }
    }

    /// `f` of each pair, which were taken one after the other.
    pub fn pairs(&self, other: &Measured, f: impl Fn(f64, f64) -> f64) -> Measured {
        let pairs = self.each.iter().zip(&other.each);
        Measured::of(pairs.map(|(a, b)| f(*a, *b)).collect())
    }

    /// Half the distance from least to most, as a share of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.most - self.min) / 2.0 / self.median.abs()
        }
    }
}

/// A figure with what it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// The measured quantity.
    pub what: String,
    /// The measured value.
    pub figure: f64,
    /// The maximum (or minimum) value.
    pub bound: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// The bound is the least that is good enough.
    pub at_least: bool,
    /// True if it is.
    pub met: bool,
}

impl Target {
    /// Met by what is not above `bound`.
    pub fn at_most(what: String, figure: f64, bound: f64, unit: &'static str) -> Target {
        Target {
            met: figure <= bound,
            at_least: false,
            what,
            figure,
            bound,
            unit,
        }
    }

    /// Met by what is not below `bound`.
    pub fn at_least(what: String, figure: f64, bound: f64, unit: &'static str) -> Target {
        Target {
            met: figure >= bound,
            at_least: true,
            what,
            figure,
            bound,
            unit,
        }
    }

    /// A line for people.
    pub fn text(&self) -> String {
        format!(
            "  {:<6} {}: {:.1} {unit}, target {} {} {unit}\n",
            if self.met { "ok" } else { "missed" },
            self.what,
            self.figure,
            if self.at_least { "at least" } else { "at most" },
            self.bound,
            unit = self.unit,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_middle_values() {
        for (each, median) in [
            (vec![], 0.0),
            (vec![3.0], 3.0),
            (vec![9.0, 1.0, 2.0], 2.0),
            (vec![4.0, 1.0, 2.0, 9.0], 3.0),
        ] {
            assert_eq!(Measured::of(each.clone()).median, median, "{each:?}");
        }
    }

    #[test]
    fn pairs_are_those_taken_one_after_the_other() {
        let (a, b) = (Measured::of(vec![1.0, 9.0]), Measured::of(vec![2.0, 8.0]));
        assert_eq!(a.pairs(&b, |a, b| a - b).each, [-1.0, 1.0]);
    }
}
