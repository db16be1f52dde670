//! The correlation of a quantity with an axis: Spearman's rank correlation, and how often chance does
//! as much.
//!
//! C. Spearman, American Journal of Psychology 15, 1904: Pearson's correlation of ranks, where equal values
//! share the mean of their ranks; 1 if one always rises with the other. The probability by chance comes
//! from permutations of the runs, which is exact for any distribution and for few runs.

/// Permutations; the smallest share that they can show is one in [`PERMUTATIONS`] + 1.
pub const PERMUTATIONS: u32 = 2_000;
/// Fewer pairs are not significant: with four even the best order is one of 24.
pub const MIN_PAIRS: usize = 5;

/// The correlation of two quantities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correlation {
    /// Spearman's rho, -1 to 1.
    pub rho: f64,
    /// Pairs.
    pub pairs: usize,
    /// The probability that runs in random order correlate as much or more, in either direction.
    pub by_chance: f64,
}

/// The rank correlation of pairs; none with fewer than [`MIN_PAIRS`], or where either never differs.
///
/// O([`PERMUTATIONS`] * n). The same seed gives the same result.
pub fn spearman(pairs: &[(f64, f64)], seed: u64) -> Option<Correlation> {
    if pairs.len() < MIN_PAIRS {
        return None;
    }
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (x, mut y) = (centred(ranks(&x)), centred(ranks(&y)));
    let scale = (squares(&x) * squares(&y)).sqrt();
    if scale == 0.0 {
        return None;
    }
    let rho = product(&x, &y) / scale;
    let mut state = seed;
    let mut as_much = 0;
    for _ in 0..PERMUTATIONS {
        shuffle(&mut y, &mut state);
        // A hair less, so that the same order is as much as itself.
        as_much += u32::from((product(&x, &y) / scale).abs() >= rho.abs() - 1e-12);
    }
    Some(Correlation {
        rho,
        pairs: pairs.len(),
        by_chance: f64::from(as_much + 1) / f64::from(PERMUTATIONS + 1),
    })
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let value = values[order[begin]];
        let same = order[begin..]
            .iter()
            .take_while(|i| values[**i] == value)
            .count();
        let mean = begin as f64 + (same as f64 + 1.0) / 2.0;
        for index in &order[begin..begin + same] {
            ranks[*index] = mean;
        }
        begin += same;
    }
    ranks
}

fn centred(mut values: Vec<f64>) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter_mut().for_each(|value| *value -= mean);
    values
}

fn product(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn squares(x: &[f64]) -> f64 {
    product(x, x)
}

/// Fisher and Yates, with numbers of SplitMix64.
fn shuffle(values: &mut [f64], state: &mut u64) {
    for i in (1..values.len()).rev() {
        let wide = u128::from(next(state)) * (i as u128 + 1);
        values.swap(i, (wide >> 64) as usize);
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IQ and hours of television, ten people (the worked example of Wikipedia's article on Spearman's
    /// coefficient): rho = -29/165, p = 0.627 by Student's t.
    #[test]
    fn a_worked_example() {
        let pairs = [
            (106.0, 7.0),
            (100.0, 27.0),
            (86.0, 2.0),
            (101.0, 50.0),
            (99.0, 28.0),
            (103.0, 29.0),
            (97.0, 20.0),
            (113.0, 12.0),
            (112.0, 6.0),
            (110.0, 17.0),
        ];
        let found = spearman(&pairs, 1).unwrap();
        assert!((found.rho + 29.0 / 165.0).abs() < 1e-12, "{found:?}");
        assert!((found.by_chance - 0.627).abs() < 0.04, "{found:?}");
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        // Pearson's correlation of the ranks (1.5, 1.5, 3.5, 3.5, 5.5, 5.5) and (1..6).
        let pairs = [
            (0.0, 1.0),
            (0.0, 2.0),
            (1.0, 3.0),
            (1.0, 4.0),
            (2.0, 5.0),
            (2.0, 6.0),
        ];
        let found = spearman(&pairs, 1).unwrap();
        assert!(
            (found.rho - 16.0 / (16.0f64 * 17.5).sqrt()).abs() < 1e-12,
            "{found:?}"
        );
    }

    #[test]
    fn a_perfect_order_of_many_is_significant() {
        let pairs: Vec<(f64, f64)> = (0..12)
            .map(|i| (f64::from(i), -f64::from(i).exp()))
            .collect();
        let found = spearman(&pairs, 7).unwrap();
        assert_eq!(found.rho, -1.0);
        assert!(found.by_chance <= 1.0 / 2001.0 + 1e-12, "{found:?}");
    }

    #[test]
    fn few_or_constant_values_have_no_correlation() {
        assert_eq!(
            spearman(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)], 1),
            None
        );
        assert_eq!(spearman(&[(1.0, 2.0); 9], 1), None);
    }
}
