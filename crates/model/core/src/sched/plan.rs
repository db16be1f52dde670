//! The plan of a scheduler.

use super::{ImpairConfig, NodeConfig, SchedConfig};

/// The tree and its tables. `fairpath-sched` builds it from a tree in TOML or from classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Sizes and limits; `nodes`, `classes`, `splits`, `impairments` and `words` are set from the tables.
    pub config: SchedConfig,
    /// Parents before children; the first is the root. Node ids are indices plus 1.
    pub nodes: Vec<NodeConfig>,
    /// Node for each class number; an entry of 0 has no leaf. Classes above the table use entry 0.
    pub class_table: Vec<u32>,
    /// Children by DSCP, [`super::SPLIT`] entries for each node that splits.
    pub splits: Vec<u32>,
    /// The impairments of leaves, by number minus 1.
    pub impairments: Vec<ImpairConfig>,
    /// Tables and traces of impairments.
    pub words: Vec<u64>,
}
