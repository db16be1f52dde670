//! What everything that runs a monitor shares: which interfaces it is attached to, and its clocks.

mod clock;
mod interfaces;

pub use clock::unix_ns;
pub use fairpath_backend::monotonic_ns;
pub use interfaces::{Change, Interfaces};
