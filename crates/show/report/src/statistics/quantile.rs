//! Mean, median and quantiles.
//!
//! Quantiles are type 7 of Hyndman and Fan (The American Statistician 50, 1996): linear between order
//! statistics, with the minimum at 0 and the maximum at 1; the default of R and NumPy. Non-finite values
//! are excluded everywhere.

/// The finite samples, ascending.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut kept: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    kept.sort_unstable_by(f64::total_cmp);
    kept
}

/// The quantile `p` (0 to 1) of samples in any order; `None` without samples. O(n log n).
pub fn quantile(samples: &[f64], p: f64) -> Option<f64> {
    of_sorted(&sorted(samples), p)
}

/// The same for finite samples in ascending order. O(1).
pub fn of_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = p.clamp(0.0, 1.0) * last as f64;
    let below = place.floor();
    let lower = sorted[below as usize];
    let upper = sorted[(below as usize + 1).min(last)];
    Some(lower + (place - below) * (upper - lower))
}

/// The median; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The arithmetic mean; `None` without samples.
pub fn mean(samples: &[f64]) -> Option<f64> {
    let kept: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// The standard deviation of a sample (n - 1); `None` below two samples.
pub fn standard_deviation(samples: &[f64]) -> Option<f64> {
    let centre = mean(samples)?;
    let kept = sorted(samples);
    let squares: f64 = kept.iter().map(|x| (x - centre).powi(2)).sum();
    (kept.len() > 1).then(|| (squares / (kept.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.6.2 (percentiles): twelve gauge readings.
    const GAUGE: [f64; 12] = [
        95.1772, 95.1567, 95.1937, 95.1959, 95.1442, 95.0610, 95.1591, 95.1195, 95.1065, 95.0925,
        95.1990, 95.1682,
    ];

    #[test]
    fn handbook_quantiles_are_of_type_seven() {
        // The handbook gives 95.1981 for its own definition and 95.1957 for Excel's, which is type 7.
        let p90 = quantile(&GAUGE, 0.9).unwrap();
        assert!((p90 - 95.195_68).abs() < 1e-5, "{p90}");
        let median = median(&GAUGE).unwrap();
        assert!((median - 95.1579).abs() < 1e-9, "{median}");
    }

    #[test]
    fn quantiles_0_and_1_are_the_extremes() {
        assert_eq!(quantile(&GAUGE, 0.0), Some(95.0610));
        assert_eq!(quantile(&GAUGE, 1.0), Some(95.1990));
        assert_eq!(quantile(&[7.0], 0.3), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[f64::NAN, 2.0, f64::INFINITY], 0.5), Some(2.0));
    }

    #[test]
    fn mean_and_deviation_of_a_worked_example() {
        let samples = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&samples), Some(5.0));
        let deviation = standard_deviation(&samples).unwrap();
        assert!((deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(standard_deviation(&[1.0]), None);
    }
}
