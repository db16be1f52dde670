//! Impairments without a back end: what a network is configured to do to packets, and whether it did.
//!
//! ```text
//! words, options --> directions --> plan --> path: packets and times in, departures out
//!    (network)        tree, configured                '--> counts --> validation <-- configured
//!                                                                  '--> report: text, JSON
//! ```
//!
//! A direction is a tree of one impaired leaf on a link. The scheduler's core decides the outcome of
//! packets (docs/design/0012-impairment.md), and back ends carry it out. [`Path`] runs a shaper instance on its own
//! clock, so that the lateness of a back end is known for each packet. [`check`] tries a direction in
//! virtual time before packets are trusted to it. No clock, no socket, no kernel.

mod bursts;
pub mod check;
mod counts;
pub mod directions;
mod interval;
mod network;
mod own_drops;
mod path;
mod plan;
mod report;
mod round_trip;
mod validation;

pub use counts::Counts;
pub use directions::Ready;
pub use network::Network;
pub use own_drops::OwnDrops;
pub use path::{Departure, Path};
pub use plan::Plan;
pub use report::{Direction, ImpairmentReport, Json};
pub use round_trip::remark as round_trip_remark;
pub use validation::Configured;
