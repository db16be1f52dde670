//! The history of the core's counts: snapshots, baselines, alerts, rows of an interval, state.
//!
//! Pure: times are the driver's, names of interfaces are given, nothing is printed here.

pub mod histogram;
pub mod ledger;
pub mod row_table;
pub mod rows;
pub mod snapshot;

pub use histogram::Histogram;
pub use rows::IntervalRow;
