//! `fairpath lab`: measures the effect of loss, delay and queues on real traffic, in network namespaces.
//!
//! ```text
//! experiment (TOML) ─ grid of runs ─ network, impairment, traffic ─ record ─ store
//!                                                                     │
//!                     page <─ figures <─ findings, models <───────────┘   (fairpath-analysis)
//! ```

pub mod bbr;
pub mod calibrate;
pub mod commands;
pub mod divert;
pub mod engine;
pub mod grid;
pub mod interrupt;
pub mod machine;
pub mod measure;
pub mod needs;
pub mod network;
pub mod progress;
pub mod recorded;
pub mod run;
pub mod session;
pub mod store;
pub mod words;
