//! `fairpath lab` through its binary: small experiments, caused faults, errors.
//!
//! As root: `cargo test -p fairpath-tests --test lab`. Each test has separate namespaces and a separate
//! directory. Goodput and times are not asserted: this machine is shared. Configuration and reports are.

mod faults;
mod runs;
mod scene;
mod trouble;
