//! Which tests run: a share of a live suite, chosen by the commit.
//!
//! Every test is in exactly one shard of a suite, and the shards are of equal size within one test. The
//! first test of a suite is in each of them.

use anyhow::{Context, Result, ensure};
use std::fmt;
use std::str::FromStr;

/// Commits take turns: each runs one of this number of shares of a live suite.
pub const SHARDS: u64 = 4;
/// Digits of a commit's id that make a number.
const DIGITS: usize = 16;
/// The seed of a tree that no commit names.
const SEED_WITHOUT_COMMIT: u64 = 20_260_101;

/// One share of a number of shares, `2/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    number: u64,
    of: u64,
}

impl Shard {
    /// The share that is a commit's turn.
    pub fn of_commit(commit: &str) -> Option<Shard> {
        Some(Shard {
            number: number(commit)? % SHARDS + 1,
            of: SHARDS,
        })
    }

    /// Twice as much: of this share and another one.
    pub fn doubled(self) -> Shard {
        let of = (self.of / 2).max(1);
        Shard {
            number: (self.number - 1) % of + 1,
            of,
        }
    }

    /// True if the test at this place of its suite's list is in the share.
    pub fn holds(self, index: usize) -> bool {
        index as u64 % self.of == self.number - 1
    }

    pub fn is_first(self) -> bool {
        self.number == 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = anyhow::Error;

    /// `2/4`, or `2` of [`SHARDS`].
    fn from_str(text: &str) -> Result<Shard> {
        let (number, of) = text.split_once('/').unwrap_or((text, ""));
        let of = if of.is_empty() && !text.contains('/') {
            SHARDS
        } else {
            of.parse()
                .with_context(|| format!("shard {text:?}: write 2/4"))?
        };
        let number = number
            .parse()
            .with_context(|| format!("shard {text:?}: write 2/4"))?;
        ensure!(
            (1..=of).contains(&number),
            "shard {text:?}: the number is from 1 to {of}"
        );
        Ok(Shard { number, of })
    }
}

/// The part of a suite that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    Share(Shard),
}

impl Part {
    /// Those of a list that run.
    pub fn choose<T: Clone>(self, all: &[T]) -> Vec<T> {
        let runs = |index: usize| match self {
            Part::Whole => true,
            Part::Share(shard) => index == 0 || shard.holds(index),
        };
        let chosen = all.iter().enumerate().filter(|(index, _)| runs(*index));
        chosen.map(|(_, test)| test.clone()).collect()
    }
}

/// The seed of tests that draw their input, for a commit: the same for who runs it again.
pub fn seed(commit: Option<&str>) -> u64 {
    commit.and_then(number).unwrap_or(SEED_WITHOUT_COMMIT)
}

fn number(commit: &str) -> Option<u64> {
    u64::from_str_radix(commit.get(..DIGITS)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "252c535d1dbbefc7b416a781355f9e2b72257f8e";

    fn shards() -> [Shard; 4] {
        [1, 2, 3, 4].map(|number| Shard { number, of: SHARDS })
    }

    #[test]
    fn each_test_is_in_exactly_one_shard() {
        for length in [0, 1, 3, 4, 5, 38, 41] {
            for index in 0..length {
                let holders = shards().iter().filter(|s| s.holds(index)).count();
                assert_eq!(holders, 1, "{index} of {length}");
            }
        }
    }

    #[test]
    fn the_shards_together_are_the_suite() {
        let tests: Vec<usize> = (0..38).collect();
        let mut seen = Vec::new();
        for shard in shards() {
            let chosen = Part::Share(shard).choose(&tests);
            assert_eq!(chosen[0], 0);
            assert!(chosen.len() <= tests.len() / 4 + 2, "{shard}: {chosen:?}");
            seen.extend(chosen);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, tests);
        assert_eq!(Part::Whole.choose(&tests), tests);
    }

    #[test]
    fn a_doubled_shard_has_the_tests_of_two() {
        let tests: Vec<usize> = (0..38).collect();
        for shard in shards() {
            let (one, two) = (Part::Share(shard), Part::Share(shard.doubled()));
            let (one, two) = (one.choose(&tests), two.choose(&tests));
            assert!(one.iter().all(|test| two.contains(test)), "{shard}");
            assert!((19..=20).contains(&two.len()), "{shard}: {two:?}");
        }
        assert_eq!("1/1".parse::<Shard>().unwrap().doubled().to_string(), "1/1");
    }

    #[test]
    fn shard_and_seed_follow_from_the_commit() {
        let first_digits = 0x252c_535d_1dbb_efc7_u64;
        assert_eq!(seed(Some(COMMIT)), first_digits);
        assert_eq!(
            Shard::of_commit(COMMIT).unwrap().number,
            first_digits % 4 + 1
        );
        let other = COMMIT.replace("efc7", "efc4");
        assert_ne!(Shard::of_commit(&other), Shard::of_commit(COMMIT));
        assert_eq!(seed(None), SEED_WITHOUT_COMMIT);
        assert_eq!(Shard::of_commit("no commit"), None);
    }

    #[test]
    fn a_shard_is_named_by_number_and_count() {
        assert_eq!("2/4".parse::<Shard>().unwrap(), Shard { number: 2, of: 4 });
        assert_eq!("3".parse::<Shard>().unwrap(), Shard { number: 3, of: 4 });
        for wrong in ["", "0/4", "5/4", "x/4", "1/", "/", "1/0", "-1"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong:?}");
        }
    }
}
