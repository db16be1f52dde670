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

pub use choose::takes;
pub use command::{Args, run};
pub use fairpath_shape::Side;
pub use prepared::Prepared;
pub use shaping::{Leads, Shaping};

use clap::ValueEnum;

/// Whether a policy's name is that of an author's file.
pub fn is_own(policy: &str) -> bool {
    let extension = std::path::Path::new(policy).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("c"))
}

/// How packets come to the scheduler and go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Fairpath's scheduler as the interface's queue in the kernel (Linux 6.16 with BPF qdiscs)
    Qdisc,
    /// Past the stack: an XDP program takes packets, this process sends them
    Afxdp,
    /// Netfilter hands packets to this process and takes them back
    Nfqueue,
    /// The kernel's own HTB, with fq_codel or CAKE at its leaves where there are any
    Kernel,
}

impl Via {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Via::Qdisc => "qdisc",
            Via::Afxdp => "afxdp",
            Via::Nfqueue => "nfqueue",
            Via::Kernel => "kernel",
        }
    }
}

/// What AF_XDP does with a packet that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// To the other interface: both are ports of one bridge
    Bridge,
    /// Where the kernel's routes say
    Router,
}

/// What becomes of traffic when the daemon is gone without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// It goes on: unshaped through the stack, or by the kernel's qdisc as it was told last
    Pass,
    /// It stops
    Stop,
}
