//! The scheduler's plans: trees and impairments in, plans for the core out; logs of operations.
//!
//! ```text
//! tree (TOML, classes, a policy) --.
//! impair (options, traces) --------+--> Plan --> runtime (native, kernel) --> outcomes
//! log: operations and outcomes, recorded and replayed ----^                      |
//!  ^-----------------------------------------------------------------------------'
//! ```
//!
//! Pure: no clock, no files. Every runtime gives the same outcomes for the same operations, so the
//! caller chooses one.

pub mod impair;
pub mod log;
pub mod tree;
