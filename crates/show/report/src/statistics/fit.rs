//! Tests of the distribution of samples: Kolmogorov and Smirnov's distance, Pearson's chi-square.

use crate::statistics::quantile::sorted;
use fairpath_statistics::special::gamma_upper;

/// The largest distance between the distribution of samples and `share_below`; `None` without samples.
pub fn kolmogorov(samples: &[f64], share_below: impl Fn(f64) -> f64) -> Option<f64> {
    let sorted = sorted(samples);
    let n = sorted.len() as f64;
    let distance = |(i, x): (usize, &f64)| {
        let wanted = share_below(*x);
        let (below, above) = (i as f64 / n, (i as f64 + 1.0) / n);
        (wanted - below).max(above - wanted)
    };
    sorted.iter().enumerate().map(distance).reduce(f64::max)
}

/// The probability of a distance this large or larger if `n` samples do come from the distribution.
///
/// Kolmogorov's limit with Stephens' correction (JRSS B 32, 1970): good from n = 8 on.
pub fn kolmogorov_tail(distance: f64, n: usize) -> f64 {
    let root = (n as f64).sqrt();
    limit_tail((root + 0.12 + 0.11 / root) * distance)
}

fn limit_tail(x: f64) -> f64 {
    // Below this the tail is one to ten digits, and the series needs many terms.
    if x < 0.27 {
        return 1.0;
    }
    let term = |k: i32| {
        let sign = if k % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * f64::from(k * k) * x * x).exp()
    };
    (1..=20).map(term).sum::<f64>().clamp(0.0, 1.0)
}

/// Pearson's statistic of counts against what was expected; classes of which nothing is expected must
/// be joined with others by the caller.
pub fn chi_square(observed: &[f64], expected: &[f64]) -> f64 {
    let term = |(o, e): (&f64, &f64)| (o - e).powi(2) / e;
    observed.iter().zip(expected).map(term).sum()
}

/// The probability of a chi-square statistic this large or larger.
pub fn chi_square_tail(statistic: f64, degrees_of_freedom: f64) -> f64 {
    gamma_upper(degrees_of_freedom / 2.0, statistic / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_kolmogorov_is_tabled() {
        // scipy: stats.kstwobign.sf.
        for (x, tail) in [
            (0.5, 0.963_945_24),
            (1.0, 0.269_999_67),
            (1.36, 0.049_485_88),
            (1.63, 0.009_846_36),
        ] {
            assert!((limit_tail(x) - tail).abs() < 1e-8, "{x}");
        }
        assert_eq!(limit_tail(0.1), 1.0);
    }

    #[test]
    fn distance_and_tail_of_a_worked_sample() {
        // Twenty-five numbers against the uniform distribution over -3..3; scipy: stats.kstest, exact.
        let samples = [
            0.61, 0.29, 0.06, 0.59, -1.73, -0.74, 0.51, -0.56, 0.39, 1.64, 0.05, -0.06, 0.64,
            -0.82, 0.37, 1.77, 1.09, -1.28, 2.36, 1.31, 1.05, -0.32, -0.40, 1.06, -2.47,
        ];
        let distance = kolmogorov(&samples, |x| (x + 3.0) / 6.0).unwrap();
        assert!((distance - 0.243333333333).abs() < 1e-9, "{distance}");
        let tail = kolmogorov_tail(distance, samples.len());
        assert!((tail - 0.086726).abs() < 0.01, "{tail}");
        assert_eq!(kolmogorov(&[], |_| 0.5), None);
    }

    #[test]
    fn chi_square_of_mendels_peas() {
        // Mendel (1866): 315, 108, 101, 32 against 9:3:3:1; chi-square 0.470, p = 0.925.
        let observed = [315.0, 108.0, 101.0, 32.0];
        let expected: Vec<f64> = [9.0, 3.0, 3.0, 1.0].map(|s| s / 16.0 * 556.0).to_vec();
        let statistic = chi_square(&observed, &expected);
        assert!((statistic - 0.470).abs() < 5e-4, "{statistic}");
        assert!((chi_square_tail(statistic, 3.0) - 0.925).abs() < 1e-3);
        // The 5 % points of tables.
        assert!((chi_square_tail(3.841_459, 1.0) - 0.05).abs() < 1e-6);
        assert!((chi_square_tail(18.307_04, 10.0) - 0.05).abs() < 1e-6);
    }
}
