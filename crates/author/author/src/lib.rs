//! `fairpath sched`: scripts with expectations, the driver of the compiler, and the commands.
//!
//! ```text
//! FILE.c -- fairpath-bpf: clang, verifier -- fairpath-policy --.
//! tree, classes -- fairpath-sched: Plan -----------------------+--> runtime (native, kernel)
//! script (Lua), traffic (fairpath-sim), log -- operations -----'         |
//!                                              TAP, report, log <--------'
//! ```
//!
//! `fairpath sched` runs the separate binary `fairpath-sched`, so that the router does not link Lua.

pub mod commands;
pub mod script;
