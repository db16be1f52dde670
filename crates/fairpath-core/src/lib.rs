//! bpf/core compiled natively, behind safe Rust.
