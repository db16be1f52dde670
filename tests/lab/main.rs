//! `fairpath lab` through its binary: small experiments, planted faults, trouble.
//!
//! As root: `cargo test -p fairpath-tests --test lab`. Each test has namespaces and a directory of its
//! own. Goodput and times are not asserted: this machine is shared. What was asked, done and told is.

mod faults;
mod runs;
mod scene;
mod trouble;
