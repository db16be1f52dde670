//! Converts the core's events into records and a summary.
//!
//! Nothing here reads a clock, queries an interface or prints.

mod record;
mod summary;

pub use record::{Clock, Context, FlowLine, SampleLine, SideLine, endpoint};
pub use summary::{FlowRow, LegLine, LossLine, MAX_FLOW_ROWS, Summary, SummaryLine};
