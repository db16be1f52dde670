//! `fairpath shape` on real packets, by every port that this kernel has.
//!
//! ```text
//! client ── lan [router: fairpath run, [shape]] wan ── server
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test shape`. Each test has separate namespaces and a separate
//! directory. The BPF qdisc is in newer kernels: tests/vm/scenarios/shape-qdisc.sh has it.

mod accounts;
mod author;
mod changes;
mod clamps;
mod classes;
mod framing;
mod gso;
mod held;
mod intact;
mod jumbo;
mod latency;
mod later;
mod life;
mod own;
mod police;
mod programs;
mod queues;
mod recorded;
mod refused;
mod renamed;
mod scene;
mod soak;
mod tins;
mod together;
mod worker_changes;
mod workers;

/// A test for each of these ports.
macro_rules! by {
    ($test:ident: $($port:ident),+) => {
        mod $test {
            $(#[test]
            fn $port() {
                super::$test(stringify!($port));
            })+
        }
    };
}
pub(crate) use by;
