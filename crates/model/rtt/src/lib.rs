//! From the core's events to records and the closing summary.
//!
//! Pure: times are the driver's, names of interfaces are given, nothing is printed here.

mod record;
mod summary;
mod table;

pub use record::{Clock, Context, FlowLine, SampleLine, SideLine, endpoint};
pub use summary::{FlowRow, LegLine, LossLine, MAX_FLOW_ROWS, Summary, SummaryLine};
pub use table::{By, Listing, MAX_TABLE_ROWS, Order, Table};
