//! Simulation of a scheduler in virtual time: packets, a link, and a report of the result.
//!
//! ```text
//! traffic ---- packets ----.
//! tree (fairpath-sched) ---+--> simulate: the clock and the link --> findings --> report
//! runtime (native, kernel) '
//! ```
//!
//! Every runtime gives the same outcomes for the same operations, so the caller chooses one.
//! [`plan`] simulates the shaper instances of many virtual CPUs, which share the rates of classes.
//! Absent: real time, sockets, files.

pub mod plan;
pub mod report;
pub mod simulate;
pub mod traffic;
