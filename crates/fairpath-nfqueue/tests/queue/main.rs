//! Queues of this kernel: packets between two hosts, decided on the router between them.
//!
//! ```text
//! client ── lan [router: iptables -j NFQUEUE, our queue] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-nfqueue --test queue`. Each test has namespaces of its own.

mod accounting;
mod leaving;
mod ordering;
mod passing;
mod refusals;
mod rewriting;
mod scene;
