//! Loss models and their means.
//!
//! The Gilbert-Elliott and the four-state model are from Salsano and others, Definition of a general
//! and intuitive loss model for packet networks and its implementation in the Netem module, 2012.

use fairpath_core::sched::{LossConfig, LossModel, PATTERN_WORDS, chance};

/// Maximum bits of a pattern.
pub(super) const MAX_PATTERN: usize = PATTERN_WORDS * 64;

/// The loss model. Shares and probabilities are 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with the same probability.
    Each {
        /// The share of lost packets.
        share: f64,
        /// The correlation of consecutive losses, 0 to 1. The share stays the same, and the mean
        /// length of bursts is 1 / ((1 - share) (1 - correlation)).
        correlation: f64,
    },
    /// A good and a bad state.
    GilbertElliott {
        /// The probability of the transition from good to bad, per packet.
        p: f64,
        /// The probability of the transition from bad to good.
        r: f64,
        /// The loss in the bad state (1 - h in the paper).
        bad: f64,
        /// The loss in the good state (1 - k in the paper).
        good: f64,
    },
    /// Received (1), received within a burst (2), lost within a burst (3), lost alone (4).
    FourState {
        /// The probability that a burst begins.
        p13: f64,
        /// The probability that a burst ends.
        p31: f64,
        /// The probability that received packets within a burst begin.
        p32: f64,
        /// The probability that received packets within a burst end.
        p23: f64,
        /// The probability of a single loss.
        p14: f64,
    },
    /// A repeated list in which true is a lost packet.
    Pattern(Vec<bool>),
}

impl Loss {
    /// The expected share of lost packets.
    ///
    /// ```
    /// use fairpath_sched::impair::Loss;
    ///
    /// let loss = Loss::GilbertElliott { p: 0.01, r: 0.25, bad: 0.7, good: 0.001 };
    /// assert_eq!((loss.mean() * 1e5).round(), 2788.0);
    /// ```
    pub fn mean(&self) -> f64 {
        match self {
            Loss::None => 0.0,
            Loss::Each { share, .. } => *share,
            Loss::GilbertElliott { p, r, bad, good } => {
                let in_bad = in_bad(*p, *r);
                in_bad * bad + (1.0 - in_bad) * good
            }
            Loss::FourState { .. } => {
                let states = self.four_states();
                states[2] + states[3]
            }
            Loss::Pattern(bits) => {
                let lost = bits.iter().filter(|lost| **lost).count();
                lost as f64 / bits.len().max(1) as f64
            }
        }
    }

    /// The stationary distribution of the four states.
    fn four_states(&self) -> [f64; 4] {
        let Loss::FourState {
            p13,
            p31,
            p32,
            p23,
            p14,
        } = self
        else {
            return [1.0, 0.0, 0.0, 0.0];
        };
        let weights = [p23 * p31, p13 * p32, p13 * p23, p14 * p23 * p31];
        let sum: f64 = weights.iter().sum();
        // A chain without transitions starts in the received state and stays there.
        if sum > 0.0 {
            weights.map(|weight| weight / sum)
        } else {
            [1.0, 0.0, 0.0, 0.0]
        }
    }

    /// The configuration for the core and XDP programs.
    pub fn to_config(&self, seed: u64) -> LossConfig {
        let mut config = LossConfig {
            seed,
            ..LossConfig::default()
        };
        let two = |p: f64, r: f64, good: f64, bad: f64, begins: f64| {
            [p, r, good, bad, begins, 0.0, 0.0, 0.0].map(chance)
        };
        let (model, chances) = match *self {
            Loss::None => (LossModel::None, [0; 8]),
            Loss::Each { share, correlation } if correlation > 0.0 => {
                let (p, r) = chain(share, correlation);
                (LossModel::Two, two(p, r, 0.0, 1.0, share))
            }
            Loss::Each { share, .. } => (LossModel::Each, two(share, 0.0, 0.0, 0.0, 0.0)),
            Loss::GilbertElliott { p, r, bad, good } => {
                (LossModel::Two, two(p, r, good, bad, in_bad(p, r)))
            }
            Loss::FourState {
                p13,
                p31,
                p32,
                p23,
                p14,
            } => {
                let [one, two, three, _] = self.four_states();
                let chances = [
                    p13,
                    p13 + p14,
                    p23,
                    p31,
                    p31 + p32,
                    one,
                    one + two,
                    one + two + three,
                ];
                (LossModel::Four, chances.map(|p| chance(p.min(1.0))))
            }
            Loss::Pattern(ref bits) => {
                config.bits = bits.len().min(MAX_PATTERN) as u32;
                for (at, lost) in bits.iter().take(MAX_PATTERN).enumerate() {
                    config.pattern[at / 64] |= u64::from(*lost) << (at % 64);
                }
                (LossModel::Pattern, [0; 8])
            }
        };
        (config.model, config.chances) = (model as u32, chances);
        config
    }
}

/// The stationary share of packets in the bad state.
fn in_bad(p: f64, r: f64) -> f64 {
    if p + r > 0.0 { p / (p + r) } else { 0.0 }
}

/// The two-state chain with this share of loss and correlation.
fn chain(share: f64, correlation: f64) -> (f64, f64) {
    (
        share * (1.0 - correlation),
        (1.0 - share) * (1.0 - correlation),
    )
}
