//! Which interfaces a monitor is attached to, as links appear, are renamed and vanish; wall-clock time.

mod clock;
mod interfaces;

pub use clock::unix_ns;
pub use interfaces::{Change, Interfaces, MAX_INTERFACES};
