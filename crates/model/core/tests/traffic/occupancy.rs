//! The number of keys that a table of sets may refuse.

/// The maximum of keys, of `keys`, that find their set full if the hash distributes them at random.
///
/// A set gets a number of keys that is Poisson distributed with mean `keys / sets`. It refuses those
/// beyond `capacity`; let `e` be their mean and `q` the mean of their square. The numbers of the sets
/// are negatively associated, because their sum is fixed, so the variance of all refusals is at
/// most `sets * q`. The bound is the mean and six standard deviations. It has five in addition,
/// because the distribution of few refusals is skewed: one set can refuse several.
pub fn refusals(keys: u32, sets: u32, capacity: u32) -> u64 {
    let mean = f64::from(keys) / f64::from(sets);
    let mut probability = (-mean).exp();
    let (mut e, mut q) = (0.0, 0.0);
    for n in 1..200 {
        probability *= mean / f64::from(n);
        let beyond = f64::from(n) - f64::from(capacity);
        if beyond > 0.0 {
            e += probability * beyond;
            q += probability * beyond * beyond;
        }
    }
    let sets = f64::from(sets);
    (sets * e + 6.0 * (sets * q).sqrt() + 5.0) as u64
}
