//! The interfaces of a monitor, as links appear, are renamed and are removed; the real-time clock.

mod clock;
mod interfaces;
mod waiting;

pub use clock::unix_ns;
pub use interfaces::{Change, Interfaces, MAX_INTERFACES};
pub use waiting::{Configured, globs};
