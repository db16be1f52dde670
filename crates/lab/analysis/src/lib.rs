//! Experiments and the records of their runs: from runs to findings and a page.
//!
//! Pure, except for files: no clock, no socket, no kernel, no testbed. `fairpath-lab` makes the runs.
//!
//! ```text
//! experiment (TOML) ─ Document ─ Experiment of one setting ─ (fairpath-lab) ─ RunRecord, Manifest ─ Results
//!
//! Results ─ Grid: cells ─┬─ estimate(metric)            median of valid runs, with its interval
//!                        ├─ theory, timeouts             models at the measured conditions, and their omissions
//!                        ├─ change(baseline, metric)     in percent, with its interval
//!                        ├─ sentences, talk              the first sentences of the page
//!                        ├─ summary                      the same at the end of a command, in a terminal
//!                        └─ page, compare                one page; two directories of results
//! ```
//!
//! Runs that are invalid are in a cell, but never in its figures.

pub mod axis_value;
pub mod change;
pub mod compare;
pub mod correlation;
pub mod experiment;
pub mod fairness;
pub mod figure;
pub mod grid;
pub mod manifest;
pub mod metrics;
pub mod model;
mod model_sentences;
pub mod page;
pub mod playout;
pub mod quantity;
pub mod record;
pub mod results;
mod scaled;
pub mod sentences;
pub mod summary;
pub mod talk;
pub mod theory;
pub mod timeouts;
pub mod topology;
pub mod validation;
pub mod voice;

/// The confidence that intervals aim at; few runs give less, and then say so.
pub const CONFIDENCE: f64 = 0.95;
/// Seed of the resampling, so that the same runs always give the same report.
pub const BOOTSTRAP_SEED: u64 = 0xfa1f_9a78;
