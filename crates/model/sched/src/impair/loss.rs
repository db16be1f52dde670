//! Models of loss and their means.
//!
//! Gilbert-Elliott and the four states are those of Salsano and others, Definition of a general and
//! intuitive loss model for packet networks and its implementation in the Netem module, 2012.

use fairpath_core::sched::{LossConfig, LossModel, PATTERN_WORDS, chance};

/// Bits of a pattern, at most.
pub(super) const MAX_PATTERN: usize = PATTERN_WORDS * 64;

/// Which packets are lost. Shares and chances are 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same chance.
    Each {
        /// The share that is lost.
        share: f64,
        /// Of one packet's fate with the last one's, 0 to 1: the share stays and bursts become
        /// 1 / ((1 - share) (1 - correlation)) long.
        correlation: f64,
    },
    /// A good state and a bad one.
    GilbertElliott {
        /// Chance of going from good to bad, with each packet.
        p: f64,
        /// Chance of going from bad to good.
        r: f64,
        /// Share that is lost in the bad state (1 - h in the paper).
        bad: f64,
        /// Share that is lost in the good state (1 - k in the paper).
        good: f64,
    },
    /// Received (1), received within a burst (2), lost within a burst (3), lost alone (4).
    FourState {
        /// Chance of a burst.
        p13: f64,
        /// Chance of the end of one.
        p31: f64,
        /// Chance that packets are received within a burst.
        p32: f64,
        /// Chance that these end.
        p23: f64,
        /// Chance of being lost alone.
        p14: f64,
    },
    /// By a list, over and over: true is lost.
    Pattern(Vec<bool>),
}

impl Loss {
    /// The share of packets that are lost in the long run.
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

    /// Shares of packets in the four states in the long run.
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
        // Chains that do not come together begin, and stay, where all is well.
        if sum > 0.0 {
            weights.map(|weight| weight / sum)
        } else {
            [1.0, 0.0, 0.0, 0.0]
        }
    }

    /// As the core and XDP programs read it.
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

/// The share of packets in the bad state in the long run.
fn in_bad(p: f64, r: f64) -> f64 {
    if p + r > 0.0 { p / (p + r) } else { 0.0 }
}

/// The chain of good and bad that loses `share` and whose neighbours are correlated.
fn chain(share: f64, correlation: f64) -> (f64, f64) {
    (
        share * (1.0 - correlation),
        (1.0 - share) * (1.0 - correlation),
    )
}
