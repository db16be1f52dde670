//! Shaping: classes scheduled on real packets, through one of four ports.
//!
//! ```text
//!                                  .-- kernel   HTB, in the kernel's egress qdisc
//! [shape], classes --> shaping ----+-- qdisc    our scheduler as a BPF qdisc
//!   (daemon's loop)    figures     +-- nfqueue  lanes in threads, packets by netfilter
//!                                  '-- afxdp    lanes in a thread, packets by XDP
//! ```
//!
//! One trait ([`backend::Backend`]), the same classes, trees, parameters and figures for all. The
//! daemon's loop owns a [`Shaping`]; `fairpath shape` asks it.

pub mod afxdp;
mod backend;
mod choose;
mod command;
pub mod diversion;
mod kernel;
pub mod lanes;
pub mod nfqueue;
mod prepared;
mod qdisc;
mod record;
mod shaping;
pub mod skipped;
mod text;

pub use command::{Args, run};
pub use fairpath_config::{Mode, OnFailure, Via, is_own};
pub use fairpath_shape::Side;
pub use prepared::Prepared;
pub use shaping::{Leads, Shaping};
