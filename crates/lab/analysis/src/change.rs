//! The difference of a quantity between two sets of runs, and its meaning.

use fairpath_report::statistics::compare::MIN_CONFIDENCE;
use fairpath_report::statistics::{Comparison, Interval, Verdict, compare};
use serde::Serialize;

use super::{BOOTSTRAP_SEED, CONFIDENCE};
use crate::metrics::{Better, Metric};

/// From this ratio on, a change is stated as a factor: ten times as much.
const FACTOR_PERCENT: f64 = 900.0;

/// A change against a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Median before.
    pub from: f64,
    /// Median after.
    pub to: f64,
    /// The results of the statistics.
    pub comparison: Comparison,
}

/// The meaning of a change for users of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meaning {
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// It is higher, which is neither.
    Higher,
    /// It is lower, which is neither.
    Lower,
    /// No difference was shown.
    NotShown,
}

impl Change {
    /// From one set of values to another; none where one has none.
    pub fn between(from: &[f64], to: &[f64]) -> Option<Change> {
        Some(Change {
            from: fairpath_report::statistics::median(from)?,
            to: fairpath_report::statistics::median(to)?,
            comparison: compare(from, to, CONFIDENCE, BOOTSTRAP_SEED)?,
        })
    }

    /// True if a difference was shown at all.
    pub fn is_shown(&self) -> bool {
        self.comparison.verdict != Verdict::NotShown
    }

    /// True if this number of runs can show any difference.
    pub fn can_be_shown(&self) -> bool {
        let interval = self.comparison.difference.interval;
        interval.is_some_and(|i| i.confidence >= MIN_CONFIDENCE - 1e-9)
    }

    /// In percent of the baseline: -70.7; none where the baseline is not above zero.
    pub fn percent(&self) -> Option<f64> {
        (self.from > 0.0).then(|| (self.to / self.from - 1.0) * 100.0)
    }

    /// The interval of the change in percent, with its confidence.
    pub fn percent_interval(&self) -> Option<Interval> {
        let interval = self.comparison.ratio?.interval?;
        Some(Interval {
            low: (interval.low - 1.0) * 100.0,
            high: (interval.high - 1.0) * 100.0,
            ..interval
        })
    }

    /// The meaning, by the better direction of the metric.
    pub fn meaning(&self, metric: &Metric) -> Meaning {
        match (self.comparison.verdict, metric.better) {
            (Verdict::NotShown, _) => Meaning::NotShown,
            (Verdict::Higher, Better::Higher) | (Verdict::Lower, Better::Lower) => Meaning::Better,
            (Verdict::Higher, Better::Lower) | (Verdict::Lower, Better::Higher) => Meaning::Worse,
            (Verdict::Higher, Better::Neither) => Meaning::Higher,
            (Verdict::Lower, Better::Neither) => Meaning::Lower,
        }
    }

    /// The change in large type: "−71 %", or "×1100" where percent are hard to read; none where the
    /// baseline is not above zero.
    pub fn headline(&self) -> Option<String> {
        let percent = self.percent()?;
        Some(match percent >= FACTOR_PERCENT {
            true => format!("×{}", times(percent)),
            false => format!("{}\u{a0}%", signed(percent)),
        })
    }

    /// "−71 % [−75, −64; 90 % confidence]", or as factors; nothing where the baseline is zero.
    pub fn words(&self) -> String {
        let Some(percent) = self.percent() else {
            return String::new();
        };
        if percent >= FACTOR_PERCENT {
            let value = times(percent);
            return match self.percent_interval() {
                Some(i) => format!(
                    "{value} times as much [{}, {}; {} confidence]",
                    times(i.low),
                    times(i.high),
                    i.percent()
                ),
                None => format!("{value} times as much"),
            };
        }
        let value = signed(percent);
        match self.percent_interval() {
            Some(interval) => format!(
                "{value}\u{a0}% [{}, {}; {} confidence]",
                signed(interval.low),
                signed(interval.high),
                interval.percent()
            ),
            None => format!("{value}\u{a0}%"),
        }
    }
}

/// A change in percent as a factor with three significant digits.
fn times(percent: f64) -> String {
    fairpath_report::significant(1.0 + percent / 100.0, 3)
}

/// A percentage with its sign, two significant digits and no more than one after the point; what fell
/// but not to nothing is never 100.
pub fn signed(percent: f64) -> String {
    let shown = match percent.abs() {
        most if -100.0 < percent && percent < -99.0 => format!("{:.1}", most.min(99.9)),
        large if large >= 9.95 => format!("{:.0}", percent.abs()),
        small => format!("{:.1}", small),
    };
    match shown.trim_end_matches(['0', '.']).is_empty() {
        true => "0".to_owned(),
        false if percent < 0.0 => format!("\u{2212}{shown}"),
        false => format!("+{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn a_fall_is_shown_by_three_runs_each() {
        let change = Change::between(&[100.0, 104.0, 102.0], &[30.0, 28.0, 31.0]).unwrap();
        assert!((change.percent().unwrap() + 70.588).abs() < 1e-3);
        assert!(change.is_shown());
        let interval = change.percent_interval().unwrap();
        assert!((interval.confidence - 0.9).abs() < 1e-9, "{interval:?}");
        assert!(
            interval.low < -70.6 && interval.high > -70.6,
            "{interval:?}"
        );
        assert_eq!(
            change.meaning(metrics::find("goodput").unwrap().metric),
            Meaning::Worse
        );
        assert_eq!(
            change.meaning(metrics::find("ping-p50").unwrap().metric),
            Meaning::Better
        );
        assert_eq!(
            change.meaning(metrics::find("cwnd").unwrap().metric),
            Meaning::Lower
        );
        assert!(
            change.words().starts_with("\u{2212}71\u{a0}% ["),
            "{}",
            change.words()
        );
    }

    #[test]
    fn two_runs_show_nothing_however_far_they_lie() {
        let change = Change::between(&[100.0, 101.0], &[1.0, 2.0]).unwrap();
        assert!(!change.is_shown() && !change.can_be_shown());
    }

    #[test]
    fn overlapping_runs_show_nothing() {
        let change = Change::between(&[100.0, 90.0, 110.0], &[95.0, 105.0, 99.0]).unwrap();
        assert_eq!(
            change.meaning(metrics::find("goodput").unwrap().metric),
            Meaning::NotShown
        );
    }

    #[test]
    fn percentages_have_a_sign_and_no_needless_digits() {
        let shown: Vec<String> = [-70.7, -8.5, 0.04, 12.3, 9.96].map(signed).into();
        assert_eq!(shown, ["\u{2212}71", "\u{2212}8.5", "0", "+12", "+10"]);
        let shown = [-99.76, -99.99, -100.0].map(signed);
        assert_eq!(shown, ["\u{2212}99.8", "\u{2212}99.9", "\u{2212}100"]);
    }

    #[test]
    fn large_changes_are_factors() {
        let change = Change::between(&[1.0, 1.0, 1.0], &[25.0, 25.0, 25.0]).unwrap();
        assert_eq!(change.headline().unwrap(), "×25.0");
        assert!(
            change
                .words()
                .starts_with("25.0 times as much [25.0, 25.0;"),
            "{}",
            change.words()
        );
    }

    #[test]
    fn nothing_before_has_no_percent() {
        let change = Change::between(&[0.0, 0.0, 0.0], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((change.percent(), change.words()), (None, String::new()));
    }
}
