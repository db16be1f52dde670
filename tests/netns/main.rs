//! `fairpath rtt` and `fairpath features` in networks made of namespaces.
//!
//! ```text
//! client ── lan [router: fairpath] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test netns`; the binary is that of `FAIRPATH_BIN_DIR`, or built for it.
//! Soaks: `cargo test -p fairpath-tests --features soak soak`.
//!
//! Each module is a group of guarantees. Each test has separate namespaces, so all may run at once.

mod agreement;
mod capabilities;
mod configured_loss;
mod cpus;
mod flooding;
mod interfaces;
mod leaving;
mod loss;
mod options;
mod refusals;
mod sightings;
mod tunnels;
