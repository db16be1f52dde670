//! Packets through the AF_XDP port, between namespaces.
//!
//! ```text
//! client ── lan [bridge: AF_XDP forwarder] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test afxdp`. Each test has separate namespaces.

mod bridge;
mod bytes;
mod carried;
mod documented;
mod jumbo;
mod process;
mod refused;
mod routed;
mod senders;
mod sums;
mod tagged;
mod through;
mod trouble;
