//! Rules and sets, compared with the tools whose files they read.
//!
//! As root: `cargo test -p fairpath-tests --test rules`.

mod agree;
mod answers;
mod arp;
mod boot;
mod bridge;
mod clamp;
mod commands;
mod deferred;
mod docker;
mod early;
mod edits;
mod egress;
mod facts;
mod formats;
mod hooks_table;
mod hostile;
mod listings;
mod live;
mod live_sets;
mod looped;
mod moved;
mod nat_tables;
mod oracle;
mod repeated;
mod runtimes;
mod seen;
mod sets;
mod shadow;
mod shared;
mod trace;
mod two_colours;
