//! Distributions of the delay as tables of quantiles over normal numbers.
//!
//! A delay is a constant part plus a deviation, which is a function of a normal number z. It is the
//! quantile of the distribution at the share of normal numbers below z. So correlation does not
//! change the distribution.

use std::sync::OnceLock;

use super::normal::{above, entries};

/// The distribution of delays around the constant part.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Uniform, with the jitter as maximum deviation.
    #[default]
    Uniform,
    /// Normal, with the jitter as standard deviation.
    Normal,
    /// Pareto of shape 3, with a long tail and its mean at the constant part.
    Pareto,
    /// A sum of 25 % normal and 75 % Pareto at the same quantile.
    ParetoNormal,
    /// Measured delays, which are added to the constant part and replace the jitter.
    Measured {
        /// The name of the file.
        file: String,
        /// The delays in ascending order.
        delays_ns: Vec<u64>,
    },
}

/// Shape of Pareto's distribution: the variance is finite, the third moment is not.
const SHAPE: f64 = 3.0;
const PARETO_MEAN: f64 = SHAPE / (SHAPE - 1.0);
/// Its standard deviation: the square root of 3/4.
const PARETO_SIGMA: f64 = 0.866_025_403_784_438_6;

/// Pareto's quantile with mean 0 and standard deviation 1.
fn pareto(z: f64) -> f64 {
    (above(z).powf(-1.0 / SHAPE) - PARETO_MEAN) / PARETO_SIGMA
}

fn pareto_normal(z: f64) -> f64 {
    (0.25 * z + 0.75 * pareto(z)) / pareto_normal_sigma()
}

/// The standard deviation of the mix: with c the covariance of both parts, the square root of
/// 0.25^2 + 0.75^2 + 2 * 0.25 * 0.75 * c.
fn pareto_normal_sigma() -> f64 {
    static SIGMA: OnceLock<f64> = OnceLock::new();
    *SIGMA.get_or_init(|| (0.0625 + 0.5625 + 0.375 * covariance()).sqrt())
}

/// The covariance of z and the quantile of Pareto at z.
fn covariance() -> f64 {
    let z: Vec<f64> = entries().collect();
    z.windows(2)
        .map(|pair| {
            let middle = f64::midpoint(pair[0], pair[1]);
            (above(pair[0]) - above(pair[1])) * middle * pareto(middle)
        })
        .sum()
}

/// The quantile of measured values at the share below z, interpolated between the nearest two.
fn measured(delays_ns: &[u64], z: f64) -> f64 {
    let last = delays_ns.len() - 1;
    let at = (1.0 - above(z)) * last as f64;
    let before = (at as usize).min(last);
    let [low, high] = [before, (before + 1).min(last)].map(|place| delays_ns[place] as f64);
    low + (high - low) * (at - before as f64)
}

impl Distribution {
    /// The names of distributions without a file.
    pub const NAMES: [(&'static str, Distribution); 4] = [
        ("uniform", Distribution::Uniform),
        ("normal", Distribution::Normal),
        ("pareto", Distribution::Pareto),
        ("paretonormal", Distribution::ParetoNormal),
    ];

    /// The deviation in ns at each entry of a table, which is empty without jitter.
    pub(super) fn deviations(&self, jitter_ns: u64) -> Vec<f64> {
        let jitter = jitter_ns as f64;
        let by_z: &dyn Fn(f64) -> f64 = match self {
            Distribution::Measured { delays_ns, .. } if !delays_ns.is_empty() => {
                &|z| measured(delays_ns, z)
            }
            _ if jitter_ns == 0 => return Vec::new(),
            Distribution::Uniform => &|z| jitter * (1.0 - 2.0 * above(z)),
            Distribution::Normal => &|z| jitter * z,
            Distribution::Pareto => &|z| jitter * pareto(z),
            Distribution::ParetoNormal => &|z| jitter * pareto_normal(z),
            Distribution::Measured { .. } => return Vec::new(),
        };
        entries().map(by_z).collect()
    }

    /// The share of deviations below `deviation_ns`, for validation and tests.
    pub fn share_below(&self, jitter_ns: u64, deviation_ns: f64) -> f64 {
        let quantile = |z: f64| match self {
            Distribution::Measured { delays_ns, .. } => measured(delays_ns, z),
            Distribution::Uniform => jitter_ns as f64 * (1.0 - 2.0 * above(z)),
            Distribution::Normal => jitter_ns as f64 * z,
            Distribution::Pareto => jitter_ns as f64 * pareto(z),
            Distribution::ParetoNormal => jitter_ns as f64 * pareto_normal(z),
        };
        // Quantiles increase with z, so a binary search finds the share.
        let (mut low, mut high) = (-9.0, 9.0);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if quantile(middle) < deviation_ns {
                low = middle;
            } else {
                high = middle;
            }
        }
        1.0 - above(low)
    }
}
