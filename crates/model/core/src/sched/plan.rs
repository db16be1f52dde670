//! A scheduler as the core lays it out.

use super::{ImpairConfig, NodeConfig, SchedConfig};

/// The tree and its tables. Made from a tree in TOML or from classes by `fairpath-sched`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Sizes and limits; `nodes`, `classes`, `splits`, `impairments` and `words` are set from the tables.
    pub config: SchedConfig,
    /// Parents before children; the first is the root. Node ids are indices plus 1.
    pub nodes: Vec<NodeConfig>,
    /// Node for each class number; an entry of 0 has no leaf. Classes beyond the table take entry 0.
    pub class_table: Vec<u32>,
    /// Children by DSCP, [`super::SPLIT`] entries for each splitting node.
    pub splits: Vec<u32>,
    /// What is before leaves, by number less 1.
    pub impairments: Vec<ImpairConfig>,
    /// What impairments look up: tables and traces.
    pub words: Vec<u64>,
}
