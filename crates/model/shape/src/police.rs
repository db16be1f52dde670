//! From a tree to limits without queues: the ceiling of a node is a limit around those below it.

use fairpath_core::limit::{LEVELS, LimitConfig};
use fairpath_core::sched::{Setting, limit_rate};
use fairpath_sched::tree::Tree;

/// More limits are above each other than a packet can pay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "class {class:?}: {} rates are above each other, and limits without queues have at most {LEVELS}: remove rates, or use a back end with queues",
    LEVELS + 1
)]
pub struct TooManyLimits {
    /// The lowest class.
    pub class: String,
}

/// The limits of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicePlan {
    /// Parents before children.
    pub limits: Vec<LimitConfig>,
    /// By limit: the name of its node.
    pub names: Vec<String>,
    /// By class number: the number of its limit, from 1; 0: it has none.
    pub of_class: Vec<u32>,
    /// Nodes with a floor, which limits without queues cannot keep.
    pub floors: usize,
}

/// The limits of a tree.
///
/// # Errors
/// [`TooManyLimits`].
pub fn police_plan(tree: &Tree) -> Result<PolicePlan, TooManyLimits> {
    let mut plan = PolicePlan::default();
    // By node, the root first: the lowest limit at it or above it, and their number.
    let mut lowest: Vec<(Option<u32>, usize)> = Vec::new();
    for (node, name) in tree.plan.nodes.iter().zip(tree.names.nodes()) {
        let above = match node.parent {
            0 => (None, 0),
            parent => lowest[parent as usize - 1],
        };
        plan.floors += usize::from(node.floor != 0);
        if node.ceil == 0 {
            lowest.push(above);
            continue;
        }
        if above.1 == LEVELS {
            let class = name.clone();
            return Err(TooManyLimits { class });
        }
        lowest.push((Some(plan.limits.len() as u32), above.1 + 1));
        plan.limits.push(LimitConfig {
            rate: limit_rate(node, Setting::Ceil, node.ceil),
            parent: above.0,
        });
        plan.names.push(name.clone());
    }
    let of_leaf = |leaf: &u32| {
        let at = (*leaf as usize).checked_sub(1)?;
        lowest.get(at)?.0
    };
    let leaves = tree.plan.class_table.iter();
    plan.of_class = leaves
        .map(|leaf| of_leaf(leaf).map_or(0, |limit| limit + 1))
        .collect();
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use fairpath_class::{ClassSet, Drafts, Uplinks};

    use super::*;
    use crate::lines::{Both, Lines, Settings};

    fn classes(csv: &str) -> ClassSet {
        let mut drafts = Drafts::new();
        drafts.read_file("classes.csv", csv.as_bytes());
        ClassSet::build(drafts, Uplinks::Unknown).set.unwrap()
    }

    fn plan(csv: &str, bps: u64) -> Result<PolicePlan, TooManyLimits> {
        let settings = Settings {
            bps: Both { down: bps, up: bps },
            ..Settings::default()
        };
        police_plan(&Lines::new(&classes(csv), &settings).unwrap().trees.down)
    }

    #[test]
    fn limits_are_around_those_of_their_classes() {
        let csv = "name,parent,prefix,down\nsite,,10.1.0.0/16,50mbit\nanna,site,10.1.0.1/32,10mbit\n\
                   bert,site,10.1.0.2/32,\nfree,,10.2.0.0/16,\n";
        let plan = plan(csv, 100_000_000).unwrap();
        assert_eq!(plan.names, ["root", "site", "anna"]);
        let parents: Vec<_> = plan.limits.iter().map(|limit| limit.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1)]);
        let bits: Vec<u64> = plan.limits.iter().map(|limit| limit.rate.bits).collect();
        assert_eq!(bits, [100_000_000, 50_000_000, 10_000_000]);
        // Without a class, then in the order of the file: a class without a rate has that above it.
        assert_eq!(plan.of_class, [1, 2, 3, 2, 1]);
    }

    #[test]
    fn without_rates_there_are_no_limits() {
        let plan = plan("name,prefix\nanna,10.1.0.1/32\n", 0).unwrap();
        assert_eq!((plan.limits, plan.of_class), (vec![], vec![0, 0]));
    }

    #[test]
    fn more_levels_than_limits_are_refused() {
        let chain = |levels: usize| {
            let mut csv = "name,parent,prefix,down\n".to_owned();
            for level in 0..levels {
                let parent = match level {
                    0 => String::new(),
                    level => format!("c{}", level - 1),
                };
                csv += &format!("c{level},{parent},10.{level}.0.0/16,10mbit\n");
            }
            csv
        };
        assert!(plan(&chain(LEVELS - 1), 20_000_000).is_ok());
        let error = plan(&chain(LEVELS), 20_000_000).unwrap_err();
        assert_eq!(error.class, format!("c{}", LEVELS - 1));
    }
}
