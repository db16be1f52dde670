//! Schedulers before they touch a packet: what to build, what to send through it, what came of it.
//!
//! ```text
//! tree ---- Plan ----.
//! author -- Policy --+--> Home (native, kernel) --> outcomes --> report
//! traffic - packets -+         ^
//! script, log - operations ----'     simulate: the clock and the link between them
//! ```
//!
//! Pure: virtual time only. Which home runs is the caller's choice, since every home gives the same
//! outcomes for the same operations.

pub mod impair;
pub mod log;
pub mod quantity;
pub mod report;
pub mod script;
pub mod simulate;
pub mod traffic;
pub mod tree;
