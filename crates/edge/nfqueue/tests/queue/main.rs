//! Queues of this kernel: packets between two hosts, decided on the router between them.
//!
//! ```text
//! client ── lan [router: iptables -j NFQUEUE, our queue] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-nfqueue --test queue`. Each test has namespaces separate.

#[path = "../../examples/accept_all.rs"]
#[allow(dead_code, reason = "the example's own main")]
mod accept_all;
mod accounting;
mod leaving;
mod ordering;
mod passing;
mod refusals;
mod rewriting;
mod scene;
