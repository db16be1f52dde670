//! Plans for the scheduler of the core, built from trees and impairments, and logs of operations.
//!
//! ```text
//! tree (TOML, classes, a policy) --.
//! impair (options, traces) --------+--> Plan --> runtime (native, kernel) --> outcomes
//! log: recorded operations and outcomes, for replay ------^                      |
//!  ^-----------------------------------------------------------------------------'
//! ```
//!
//! Pure: no clock, no files. Every runtime gives the same outcomes for the same operations, so the
//! caller chooses one.

pub mod impair;
pub mod log;
pub mod tree;
