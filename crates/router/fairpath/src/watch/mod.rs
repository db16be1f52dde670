//! What everything that runs a monitor shares: which interfaces it is attached to, and its clocks.

mod clock;
mod interfaces;

pub use clock::{monotonic_ns, unix_ns};
pub use interfaces::{Change, Interfaces};
