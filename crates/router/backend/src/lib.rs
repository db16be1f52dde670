//! Back ends: how packets reach the scheduler's core and leave it, for shaping and impairments.
//!
//! ```text
//!                    .-- htb      HTB in the kernel's egress qdisc
//! Shaping -----------+-- qdisc    our scheduler as a BPF qdisc
//!   (daemon's loop)  +-- nfqueue  a worker a queue, packets by netfilter <--+--- Engine
//!                    '-- afxdp    a worker, packets by XDP <----------------+   (fairpath impair)
//!                                 xdp: loss alone, in the kernel <----------'
//! ```
//!
//! The daemon's loop owns a [`Shaping`]; `fairpath impair` starts an [`Engine`]. [`choose`] says which
//! back end it is and why.

mod afxdp;
pub mod choose;
mod clock;
mod config;
mod description;
mod hold;
mod htb;
mod impair;
mod interfaces;
mod login;
mod nfqueue;
mod orders;
mod police;
mod prepared;
pub mod privileges;
mod qdisc;
mod raw;
mod record;
mod repeat;
mod shape;
mod shaping;
mod sharing;
mod spawn;
mod start;
mod team;
mod tracking;
mod via;
mod workers;
mod xdp;
pub mod xtables;

pub use clock::monotonic_ns;
pub use config::{ShapeConfig, is_own};
pub use description::{Description, Impairs, Refusal, Shapes};
pub use htb::tree_of as htb_tree;
pub use impair::Engine;
pub use login::Login;
pub use nfqueue::watch::end_rules;
pub use prepared::{Prepared, Undo, lasting};
pub use raw::RawSockets;
pub use shaping::{Leads, Shaping};
pub use spawn::{spawn_spared, with_signals, without_signals};
pub use start::{How, start};
pub use tracking::{TRACKING_TABLES, Tracked, end_tracking, keep_tracking, tracked};
pub use via::{ImpairVia, Mode, OnBypass, OnFailure, ShapeVia, Via};
