//! A set of round-trip times and its quantiles; all values are kept.

/// Round-trip times in milliseconds, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread(Vec<f64>);

impl Spread {
    /// Takes the values in any order.
    pub fn new(values_ms: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values_ms.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Spread(values)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The least; `None` of nothing.
    pub fn min(&self) -> Option<f64> {
        self.0.first().copied()
    }

    /// The largest.
    pub fn max(&self) -> Option<f64> {
        self.0.last().copied()
    }

    /// The nearest-rank quantile: the least value that at least `share` of all do not exceed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied()
    }

    /// The median.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_set_by_nearest_rank() {
        let spread = Spread::new([5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((spread.min(), spread.max()), (Some(1.0), Some(5.0)));
        assert_eq!(spread.median(), Some(3.0));
        assert_eq!(spread.quantile(0.8), Some(4.0));
        assert_eq!(spread.quantile(0.81), Some(5.0));
        assert_eq!(Spread::default().median(), None);
    }
}
