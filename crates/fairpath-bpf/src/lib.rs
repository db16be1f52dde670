//! Compiles bpf/prog; typed skeletons, attachment by file descriptor, feature probes.

/// Skeletons of bpf/prog, one module a file.
mod skel {
    #![allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
    pub mod rtt {
        include!(concat!(env!("OUT_DIR"), "/rtt.skel.rs"));
    }
}
pub use skel::rtt;

pub mod probe;
