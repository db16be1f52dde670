//! `fairpath impair`: a network that is worse on purpose, on real packets.
//!
//! ```text
//!                                          .-- xdp      loss alone, in the kernel
//! arguments --> directions --> engine -----+-- afxdp    paths in a thread, packets by XDP
//!               tree, asked     counts     '-- nfqueue  paths in threads, packets by netfilter
//!                  '--> truth <---'  --> report: text, JSON, exit status
//! ```
//!
//! A direction is a tree of one impaired leaf on a line; the scheduler's core decides what becomes of
//! packets ([0012](../../../docs/design/0012-impairment.md)), ports do it. [`path`] runs a lane on its
//! own clock, so that how late this process was is known for each packet; [`truth`] holds what came of
//! it against what was asked for.

mod afxdp;
mod args;
mod bursts;
mod check;
mod choose;
mod command;
mod counts;
mod directions;
mod engine;
mod interfaces;
mod interval;
mod login;
mod nfqueue;
mod own_drops;
mod path;
mod report;
mod start;
mod truth;
mod watch;
mod xdp;

pub use args::Args;
pub use command::run;
