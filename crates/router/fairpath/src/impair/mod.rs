//! `fairpath impair`: a network that is worse on purpose, on real packets: the command.
//!
//! Directions and whether they were as asked for are `fairpath-impair`'s, packets `fairpath-backend`'s
//! ([0012](../../../docs/design/0012-impairment.md)).

mod args;
mod command;

pub use args::Args;
pub use command::run;
