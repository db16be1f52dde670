//! Resampling with numbers that depend on seed and place only, so that a report is the same again.

/// Resamples of one interval. The ends of a 95 % interval then vary by about 0.3 points of probability
/// between seeds, far less than the uncertainty of few repeats.
pub const RESAMPLES: usize = 4_000;

/// The `n`-th number of a seed: SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014) over a counter.
pub fn number(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Draws with replacement.
pub struct Draws {
    seed: u64,
    drawn: u64,
    /// Kept between resamples, so that none allocates.
    resample: Vec<f64>,
}

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws {
            seed,
            drawn: 0,
            resample: Vec::new(),
        }
    }

    /// The median of one resample. `samples` are finite and not empty.
    pub fn median(&mut self, samples: &[f64]) -> f64 {
        self.resample.clear();
        for _ in samples {
            // The upper half of a product of 64 bits each: a place without a division.
            let wide = u128::from(number(self.seed, self.drawn)) * samples.len() as u128;
            self.resample.push(samples[(wide >> 64) as usize]);
            self.drawn += 1;
        }
        middle(&mut self.resample)
    }
}

/// The median by selection. O(n).
fn middle(values: &mut [f64]) -> f64 {
    let odd = values.len() % 2 == 1;
    let half = values.len() / 2;
    let (below, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    if odd {
        return *upper;
    }
    let upper = *upper;
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * (lower + upper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::median;

    #[test]
    fn selection_finds_the_median() {
        for samples in [
            vec![3.0],
            vec![4.0, 1.0],
            vec![9.0, 2.0, 7.0],
            vec![8.0, 1.0, 3.0, 2.0],
        ] {
            assert_eq!(Some(middle(&mut samples.clone())), median(&samples));
        }
    }

    #[test]
    fn draws_are_even_over_all_places() {
        let samples: Vec<f64> = (0..5).map(f64::from).collect();
        let mut counts = [0_u32; 5];
        let mut draws = Draws::new(1);
        for _ in 0..10_000 {
            draws.median(&samples);
            for drawn in &draws.resample {
                counts[*drawn as usize] += 1;
            }
        }
        // Fifty thousand draws: 10,000 each, standard deviation 89.
        assert!(
            counts.iter().all(|n| n.abs_diff(10_000) < 450),
            "{counts:?}"
        );
    }
}
