//! Tests of the distribution of values (Kolmogorov 1933, Smirnov 1948).

/// The maximum distance between the shares of `sorted` values and those of the distribution, computed at
/// `places` positions: between them it barely changes.
///
/// `share_below` returns the share of the distribution below a value; `None` where it jumps there,
/// and there is nothing to be compared. Without values it is 0.
pub fn distance(sorted: &[u64], places: usize, share_below: impl Fn(u64) -> Option<f64>) -> f64 {
    let count = sorted.len() as f64;
    let step = (sorted.len() / places.max(1)).max(1);
    let apart = (0..sorted.len()).step_by(step);
    let apart = apart.filter_map(|at| Some((share_below(sorted[at])? - at as f64 / count).abs()));
    apart.fold(0.0, f64::max)
}

/// The distance that this number of independent values exceeds in a share `outside` of all cases (the
/// first term of Kolmogorov's series, which suffices for small shares and many values).
pub fn most(outside: f64, values: u64) -> f64 {
    (-(outside / 2.0).ln() / 2.0).sqrt() / (values.max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_that_of_the_worst_place() {
        let even: Vec<u64> = (0..1000).collect();
        let uniform = |value: u64| Some(value as f64 / 1000.0);
        assert!(distance(&even, 1000, uniform) < 1e-9);
        let squeezed: Vec<u64> = even.iter().map(|value| value / 2).collect();
        assert!((distance(&squeezed, 1000, uniform) - 0.5).abs() < 0.002);
        let only_high = |value: u64| uniform(value).filter(|_| value > 400);
        assert!(distance(&squeezed, 1000, only_high) > 0.4);
        assert_eq!(distance(&[], 1000, uniform), 0.0);
    }

    #[test]
    fn bounds_are_those_of_the_tables() {
        // Smirnov's table for large n: 1.3581 at 5 %, 1.6276 at 1 %, over the root of n.
        assert!((most(0.05, 10_000) * 100.0 - 1.3581).abs() < 1e-4);
        assert!((most(0.01, 10_000) * 100.0 - 1.6276).abs() < 1e-4);
    }
}
