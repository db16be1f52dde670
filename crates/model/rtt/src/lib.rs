//! From the core's events and counts to records, histograms, summaries and snapshots.
//!
//! Pure: times are the driver's, names of interfaces are given, nothing is printed here.

pub mod histogram;
pub mod ledger;
mod record;
pub mod rows;
pub mod snapshot;
mod summary;

pub use histogram::Histogram;
pub use record::{Clock, Context, FlowLine, SampleLine, SideLine, endpoint};
pub use rows::IntervalRow;
pub use summary::{FlowRow, LegLine, LossLine, MAX_FLOW_ROWS, Summary, SummaryLine};
