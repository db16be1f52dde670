//! The kernel's HTB under real packets, marked by our program.
//!
//! ```text
//! server ── wan [router] lan: HTB ── client
//! ```
//!
//! As root: `cargo test -p fairpath-tests --test htb`. Each test has separate namespaces.

mod changes;
mod ends;
mod outlives;
mod planned;
mod rates;
mod site;
