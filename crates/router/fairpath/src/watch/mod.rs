//! What everything that runs a monitor shares: which interfaces it is attached to, and its clocks.

mod clock;
mod interfaces;

pub use clock::unix_ns;
pub use fairpath_backend::monotonic_ns;
pub use interfaces::{Change, Interfaces};

use clap::ValueEnum;

/// Where packets are seen on their way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hook {
    /// After the driver, before the stack; works everywhere
    Tcx,
    /// In the driver, before GRO
    Xdp,
}
