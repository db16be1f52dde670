//! Random numbers: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
//! OOPSLA 2014). Eight bytes of state, the same numbers on every machine.

/// A sequence of random numbers, made by its seed.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// All 64-bit numbers are equally likely.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Less than `below`, all equally likely except for 1 part in 2^64 / `below`; 0 for 0.
    #[inline]
    pub fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(below)) >> 64) as u64
    }

    /// An index of a slice of this length, or 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// In (0, 1].
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// From `from` on and before `to`; `from` where that is nothing.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// True with this probability.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() <= probability
    }

    /// True in this number of a thousand cases.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// True once in this number of times, on average; never for 0.
    pub fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// One of them.
    ///
    /// # Panics
    /// Where there is none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Exponential with this mean, in whole units.
    #[inline]
    pub fn exponential(&mut self, mean: u64) -> u64 {
        (-self.unit().ln() * mean as f64).round() as u64
    }

    /// Pareto with this shape, between `min` and `most`.
    pub fn pareto(&mut self, shape: f64, min: u64, most: u64) -> u64 {
        let value = min as f64 / self.unit().powf(1.0 / shape);
        (value as u64).clamp(min, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.draw());
        assert_eq!(
            numbers,
            [
                6457827717110365317,
                3203168211198807973,
                9817491932198370423
            ]
        );
    }

    #[test]
    fn means_match_the_configuration() {
        let mut random = Random::new(1);
        let n = 200_000;
        let mean = |sum: u64| sum as f64 / f64::from(n);
        let exponential = mean((0..n).map(|_| random.exponential(1_000_000)).sum());
        assert!((exponential / 1e6 - 1.0).abs() < 0.01, "{exponential}");
        assert!((0..n).all(|_| !random.happens(0.0) && random.happens(1.0)));
        assert!((0..n).all(|_| (7..9).contains(&random.within(7, 9))));
        assert_eq!((random.within(9, 7), random.one_in(0)), (9, false));
        let uniform = mean((0..n).map(|_| random.below(1000)).sum());
        assert!((uniform / 499.5 - 1.0).abs() < 0.01, "{uniform}");
        assert!((0..n).all(|_| (10..=100).contains(&random.pareto(1.2, 10, 100))));
    }
}
