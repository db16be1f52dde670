//! Compiles bpf/prog; typed skeletons, attachment by file descriptor, feature probes.

pub mod probe;
