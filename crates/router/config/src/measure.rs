//! Hooks and methods of measurement, for the configuration and command lines.

use clap::ValueEnum;
use fairpath_core::Mode;

/// Hook at ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hook {
    /// After the driver, before the stack; for all devices
    Tcx,
    /// In the driver, before GRO
    Xdp,
}

/// Method for TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Sequence numbers, and timestamps where sequence numbers are ambiguous
    Hybrid,
    /// Sequence and acknowledgement numbers with Karn's rule
    Seq,
    /// TCP timestamps only
    Ts,
    /// Handshakes only
    Handshake,
}

impl Method {
    /// The mode of the core.
    pub fn mode(self) -> Mode {
        match self {
            Method::Hybrid => Mode::Hybrid,
            Method::Seq => Mode::Seq,
            Method::Ts => Mode::Ts,
            Method::Handshake => Mode::Handshake,
        }
    }
}
