//! From runs to findings: cells of equal settings, medians with intervals, models, changes, sentences.
//!
//! ```text
//! Results ─ Grid: cells ─┬─ estimate(metric)            median of true runs, with its interval
//!                        ├─ theory, timeouts             models at what each run measured, and what they leave out
//!                        ├─ change(baseline, metric)     in percent, with its interval
//!                        └─ sentences, talk              what the page says first
//! ```
//!
//! Runs that are not true are in a cell, but never in its figures.

pub mod change;
pub mod correlation;
pub mod grid;
mod model_sentences;
pub mod sentences;
pub mod talk;
pub mod theory;
pub mod timeouts;

/// The confidence that intervals aim at; few runs give less, and then say so.
pub const CONFIDENCE: f64 = 0.95;
/// Seed of the resampling, so that the same runs always give the same report.
pub const BOOTSTRAP_SEED: u64 = 0xfa1f_9a78;
