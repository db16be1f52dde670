//! The interfaces of a monitor, as links appear, are renamed and are removed; the real-time clock.

mod clock;
mod interfaces;

pub use clock::unix_ns;
pub use interfaces::{Change, Interfaces, MAX_INTERFACES};
