//! `fairpath impair`: impair real packets, and validate the result.
//!
//! `fairpath-impair` has directions and validation, `fairpath-backend` the packets
//! ([0012](../../../docs/design/0012-impairment.md)).

mod args;
mod command;

pub use args::Args;
pub use command::run;
