//! The history of the core's counts: snapshots, baselines, alerts, rows of an interval, state.
//!
//! Nothing here reads a clock, queries an interface or prints.

pub mod histogram;
pub mod history;
pub mod judge;
pub mod loaded_rules;
pub mod row_table;
pub mod rows;
pub mod rule_counts;
pub mod search;
pub mod series;
pub mod snapshot;

pub use histogram::Histogram;
pub use rows::IntervalRow;
