//! The seed of random tests, and the share of their work that is done: the runner says both.
//!
//! Every test prints its seed, so a failure is repeated with the printed line. A failure that names another
//! seed (`seed 17, part 3`) is repeated with that one, which is then the first.

use std::env;

/// Names the seed, a decimal number; the runner takes it from the commit.
pub const TEST_SEED_ENV: &str = "FAIRPATH_TEST_SEED";
/// Says how much of the work is done: `full` or `fifth`.
pub const TEST_SHARE_ENV: &str = "FAIRPATH_TEST_SHARE";

/// The default seed.
const USUAL_SEED: u64 = 0;

/// The seed that all random choices of this test come from. Prints it.
///
/// Panics on a value that is no number: a run with another seed than the requested one proves nothing.
pub fn test_seed() -> u64 {
    let seed = parse_seed(env::var(TEST_SEED_ENV).ok().as_deref());
    println!("{TEST_SEED_ENV}={seed}");
    seed
}

fn parse_seed(text: Option<&str>) -> u64 {
    text.map_or(USUAL_SEED, |text| {
        let number = text.parse();
        number.unwrap_or_else(|_| panic!("{TEST_SEED_ENV}={text} is no number of 64 bits"))
    })
}

/// The share of its work that a test of minutes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All: `make soak`, and before a release.
    Full,
    /// 20 %: `make test`, a different part with every seed.
    Fifth,
}

impl Share {
    /// The value of the environment; 20 % without one.
    ///
    /// Panics on a word that is neither.
    pub fn reported() -> Share {
        Share::parse(env::var(TEST_SHARE_ENV).ok().as_deref())
    }

    fn parse(text: Option<&str>) -> Share {
        match text {
            Some("full") => Share::Full,
            Some("fifth") | None => Share::Fifth,
            Some(text) => panic!("{TEST_SHARE_ENV}={text}: full or fifth"),
        }
    }

    /// This share of `full`, at least one.
    pub fn of(self, full: u64) -> u64 {
        match self {
            Share::Full => full,
            Share::Fifth => full.div_ceil(5),
        }
    }

    /// One of two: what takes minutes, and what takes seconds.
    pub fn choose<T>(self, full: T, fifth: T) -> T {
        match self {
            Share::Full => full,
            Share::Fifth => fifth,
        }
    }
}

/// As many seeds as the environment's share of `full`, from [`test_seed`] on.
pub fn test_seeds(full: u64) -> impl Iterator<Item = u64> + Clone {
    let first = test_seed();
    (0..Share::reported().of(full)).map(move |n| first.wrapping_add(n))
}

/// The configuration of a property test: cases, and the seed of the environment.
///
/// A macro, so that this crate does not depend on `proptest`. Further fields may follow the cases.
#[macro_export]
macro_rules! property {
    ($cases:expr $(, $field:ident: $value:expr)* $(,)?) => {
        ::proptest::test_runner::Config {
            cases: $cases,
            rng_seed: ::proptest::test_runner::RngSeed::Fixed($crate::test_seed()),
            failure_persistence: None,
            $($field: $value,)*
            ..::proptest::test_runner::Config::default()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_comes_from_the_environment() {
        assert_eq!(parse_seed(None), USUAL_SEED);
        assert_eq!(parse_seed(Some("18446744073709551615")), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "FAIRPATH_TEST_SEED=0x7 is no number of 64 bits")]
    fn a_seed_that_is_no_number_is_refused() {
        parse_seed(Some("0x7"));
    }

    #[test]
    fn a_share_is_never_zero() {
        assert_eq!(Share::parse(None), Share::Fifth);
        assert_eq!(
            [1, 5, 6].map(|full| Share::parse(Some("fifth")).of(full)),
            [1, 1, 2]
        );
        assert_eq!(Share::parse(Some("full")).of(6), 6);
    }

    #[test]
    #[should_panic(expected = "FAIRPATH_TEST_SHARE=half: full or fifth")]
    fn a_share_that_is_unknown_is_refused() {
        Share::parse(Some("half"));
    }
}
