//! Converts the core's events into records, a summary or a table.
//!
//! Nothing here reads a clock, queries an interface or prints.

pub mod json;
mod record;
mod summary;
mod table;
pub mod text;

pub use record::{Clock, Context, FlowLine, SampleLine, SideLine, endpoint};
pub use summary::{FlowRow, LegLine, LossLine, MAX_FLOW_ROWS, Summary, SummaryLine};
pub use table::{By, ListedRow, Listing, MAX_TABLE_BUCKETS, MAX_TABLE_ROWS, Order, Table};
