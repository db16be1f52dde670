//! `fairpath lab`: what loss, delay and queues do to real traffic, in network namespaces, told honestly.
//!
//! ```text
//! experiment (TOML) ─ grid of runs ─ network, impairment, traffic ─ record ─ store
//!                                                                     │
//!                     page <─ figures <─ analysis, models <───────────┘
//! ```

pub mod analysis;
pub mod axis_value;
pub mod bbr;
pub mod calibrate;
pub mod commands;
pub mod compare;
pub mod divert;
pub mod engine;
pub mod experiment;
pub mod fairness;
pub mod figure;
pub mod grid;
pub mod interrupt;
pub mod machine;
pub mod manifest;
pub mod measure;
pub mod metrics;
pub mod model;
pub mod needs;
pub mod network;
pub mod page;
pub mod playout;
pub mod progress;
pub mod quantity;
pub mod record;
pub mod recorded;
pub mod results;
pub mod run;
pub mod session;
pub mod store;
pub mod topology;
pub mod truth;
pub mod voice;
