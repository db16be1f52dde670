//! What a policy author uses: scripts with expectations, the compiler, and the commands around them.
//!
//! ```text
//! FILE.c -- fairpath-bpf: clang, verifier -- fairpath-policy --.
//! tree, classes -- fairpath-sched: Plan -----------------------+--> runtime (native, kernel)
//! script (Lua), traffic (fairpath-sim), log -- operations -----'         |
//!                                              TAP, report, log <--------'
//! ```
//!
//! It is a binary of its own, `fairpath-sched`, which `fairpath sched` runs: the router links no Lua.

pub mod commands;
pub mod script;
