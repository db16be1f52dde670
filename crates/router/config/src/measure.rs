//! How packets are seen and measured, in the words of the configuration and of command lines.

use clap::ValueEnum;
use fairpath_core::Mode;

/// Where packets are seen on their way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hook {
    /// After the driver, before the stack; works everywhere
    Tcx,
    /// In the driver, before GRO
    Xdp,
}

/// How TCP is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Sequence numbers, and timestamps where only they are sure
    Hybrid,
    /// Sequence and acknowledgement numbers with Karn's rule
    Seq,
    /// TCP timestamps only
    Ts,
    /// SYN and its answers only
    Handshake,
}

impl Method {
    /// As the core has it.
    pub fn mode(self) -> Mode {
        match self {
            Method::Hybrid => Mode::Hybrid,
            Method::Seq => Mode::Seq,
            Method::Ts => Mode::Ts,
            Method::Handshake => Mode::Handshake,
        }
    }
}
