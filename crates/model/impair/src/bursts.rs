//! The inflation of the variance of a share of losses that come in bursts. Pure.
//!
//! The variance of the mean of `n` draws with autocovariances `c_k` is `(c_0 + 2 sum c_k) / n`; of
//! independent ones it is `c_0 / n`. For a chain with transitions `P`, stationary shares `pi` and
//! losses `e` in its states, `c_k = sum_i pi_i e_i (P^k e)_i - m^2`, and `c_0 = m (1 - m)`.

use fairpath_sched::impair::Loss;

/// Covariances below this part of the variance end the sum.
const MIN: f64 = 1e-9;
/// Steps of a chain that are summed at most; one that remembers longer is as good as unknown.
const STEPS: usize = 1_000_000;

/// The variance of a share of losses over that of independent losses; 1 where they are.
pub fn inflation(loss: &Loss) -> f64 {
    match *loss {
        Loss::Each { correlation, .. } if correlation > 0.0 => {
            (1.0 + correlation) / (1.0 - correlation)
        }
        Loss::GilbertElliott { p, r, bad, good } if p + r > 0.0 => {
            let shares = [r / (p + r), p / (p + r)];
            of_chain(shares, [[1.0 - p, p], [r, 1.0 - r]], [good, bad])
        }
        Loss::FourState {
            p13,
            p31,
            p32,
            p23,
            p14,
        } => {
            let weights = [p23 * p31, p13 * p32, p13 * p23, p14 * p23 * p31];
            let sum: f64 = weights.iter().sum();
            if sum <= 0.0 {
                return 1.0;
            }
            let moves = [
                [1.0 - p13 - p14, 0.0, p13, p14],
                [0.0, 1.0 - p23, p23, 0.0],
                [p31, p32, 1.0 - p31 - p32, 0.0],
                [1.0, 0.0, 0.0, 0.0],
            ];
            let shares = weights.map(|weight| weight / sum);
            of_chain(shares, moves, [0.0, 0.0, 1.0, 1.0])
        }
        _ => 1.0,
    }
}

fn of_chain<const N: usize>(shares: [f64; N], moves: [[f64; N]; N], losses: [f64; N]) -> f64 {
    let dot = |a: &[f64; N], b: &[f64; N]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let mean = dot(&shares, &losses);
    let variance = mean * (1.0 - mean);
    if variance <= 0.0 {
        return 1.0;
    }
    let weights: [f64; N] = std::array::from_fn(|state| shares[state] * losses[state]);
    let (mut ahead, mut sum) = (losses, 0.0);
    for _ in 0..STEPS {
        ahead = std::array::from_fn(|state| dot(&moves[state], &ahead));
        let covariance = dot(&weights, &ahead) - mean * mean;
        sum += covariance;
        if covariance.abs() < MIN * variance {
            break;
        }
    }
    // Losses that avoid each other vary less; the limits are not stricter for that.
    (1.0 + 2.0 * sum / variance).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, wanted: f64) {
        assert!(
            (value / wanted - 1.0).abs() < 1e-4,
            "{value} is not {wanted}"
        );
    }

    #[test]
    fn chain_of_two_states_has_the_closed_form() {
        // All is lost in bad: the autocorrelation is 1 - p - r to the k.
        let (p, r) = (0.01, 0.25);
        let loss = Loss::GilbertElliott {
            p,
            r,
            bad: 1.0,
            good: 0.0,
        };
        close(inflation(&loss), (2.0 - p - r) / (p + r));
        let same = Loss::Each {
            share: p / (p + r),
            correlation: 1.0 - p - r,
        };
        close(inflation(&same), inflation(&loss));
    }

    #[test]
    fn four_states_that_are_two_scatter_as_those() {
        let four = Loss::FourState {
            p13: 0.02,
            p31: 0.2,
            p32: 0.0,
            p23: 1.0,
            p14: 0.0,
        };
        let two = Loss::GilbertElliott {
            p: 0.02,
            r: 0.2,
            bad: 1.0,
            good: 0.0,
        };
        close(inflation(&four), inflation(&two));
    }

    #[test]
    fn independent_losses_and_patterns_are_not_inflated() {
        let each = Loss::Each {
            share: 0.1,
            correlation: 0.0,
        };
        let memoryless = Loss::GilbertElliott {
            p: 0.5,
            r: 0.5,
            bad: 0.3,
            good: 0.1,
        };
        for loss in [
            Loss::None,
            each,
            memoryless,
            Loss::Pattern(vec![true, false]),
        ] {
            close(inflation(&loss), 1.0);
        }
    }
}
