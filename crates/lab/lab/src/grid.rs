//! The runs of an experiment and their order.
//!
//! Every repetition is a block with each setting once, in a random order: changes of the machine during
//! the grid affect all settings equally, and an interrupted grid is
//! balanced. Order and seeds come from the experiment's seed, the setting and the repetition alone.

use fairpath_analysis::experiment::document::{Document, LoadError, Setting};
use fairpath_analysis::experiment::{Experiment, FormName};

/// The share of the grid's runs that can be repeated because they were invalid.
const AGAIN_SHARE: f64 = 0.25;
/// Parts the draws for the order from those for the runs.
const ORDER: u64 = u64::MAX;

/// One run that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its position in the order, from 0; repeated runs come last.
    pub place: u32,
    /// The value of each axis.
    pub setting: Setting,
    /// Which repetition, from 0.
    pub repeat: u32,
    /// For the run's random numbers.
    pub seed: u64,
    /// The experiment at this setting.
    pub experiment: Experiment,
}

/// All runs of `form`, in order.
///
/// # Errors
/// A setting that is refused.
pub fn plan(document: &Document, form: FormName, seed: u64) -> Result<Vec<Cell>, LoadError> {
    let settings = document.settings(form);
    let mut cells = Vec::new();
    for (index, setting) in settings.iter().enumerate() {
        let experiment = document.at(form, setting)?;
        for repeat in 0..experiment.repeats {
            let index = index as u64;
            let cell = Cell {
                place: 0,
                setting: setting.clone(),
                repeat,
                seed: mixed(mixed(seed, index + 1), u64::from(repeat)),
                experiment: experiment.clone(),
            };
            cells.push(cell);
        }
    }
    // The high bits of a mixed number are as good as a draw; equal ones would keep the file's order.
    cells.sort_by_key(|cell| (cell.repeat, mixed(cell.seed, ORDER)));
    for (place, cell) in (0..).zip(&mut cells) {
        cell.place = place;
    }
    Ok(cells)
}

/// The number of runs that can be repeated in a grid of this size.
pub fn again_limit(runs: usize) -> usize {
    (runs as f64 * AGAIN_SHARE).ceil() as usize
}

/// Two numbers into one, each bit depending on all of both (splitmix64's finaliser).
pub fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_repetition_is_a_permutation_of_all_settings() {
        let document = Document::open("ripe88").unwrap();
        let cells = plan(&document, FormName::Quick, 88).unwrap();
        assert_eq!(cells.len(), 36);
        let blocks: Vec<Vec<Setting>> = (cells.chunks(12))
            .map(|block| block.iter().map(|cell| cell.setting.clone()).collect())
            .collect();
        for block in &blocks {
            assert_eq!(block.iter().collect::<BTreeSet<_>>().len(), 12);
        }
        assert_ne!(blocks[0], blocks[1]);
        let seeds: BTreeSet<u64> = cells.iter().map(|cell| cell.seed).collect();
        assert_eq!(seeds.len(), 36);
    }

    #[test]
    fn one_seed_makes_one_order_and_another_another() {
        let document = Document::open("ripe88").unwrap();
        let order = |seed| plan(&document, FormName::Quick, seed).unwrap();
        assert_eq!(order(1), order(1));
        let settings =
            |seed| -> Vec<Setting> { order(seed).into_iter().map(|c| c.setting).collect() };
        assert_ne!(settings(1), settings(2));
    }
}
