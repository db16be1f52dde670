//! Classes: reads them from TOML, CSV and JSON, checks the tree, and makes the rules of the core.
//!
//! ```text
//!   [[class]] TOML --.
//!   CSV -------------+--> Drafts --> ClassSet::build --> Report: every problem, with its position
//!   ShapedDevices ---|                     |
//!   network.json ----'                     '--> ClassSet, Labels --> rules --> core
//!   labels ----------'                                        Slots --'
//! ```
//!
//! Reading and checking do not stop at the first problem, because an operator with many subscribers
//! needs the whole list. Pure: the caller reads files.

mod class;
mod config;
mod criteria;
mod criterion;
mod draft;
mod entry;
mod key;
mod labels;
mod network;
mod plan;
mod problem;
mod read;
mod rows;
mod rules;
mod shaped;
mod slots;
mod source;
mod sqm;
mod table;
mod tree;
mod value;

pub use class::{Changes, Class, ClassSet, MAX_CLASSES, MAX_CRITERIA, MAX_DEPTH, Rates, Sla};
pub use config::References;
pub use criterion::{CaptureGap, Criterion, Endpoint, Whom};
pub use draft::Drafts;
pub use entry::ClassEntry;
pub use labels::{Labels, MAX_LABELS};
pub use problem::{MAX_PROBLEMS, Problem, ProblemKind, Severity};
pub use read::MAX_FILE_BYTES;
pub use slots::{Assigned, SlotKey, Slots, Space};
pub use source::{At, Location, Place};
pub use tree::{ClassReport, Outcome, Uplinks};
pub use value::MAX_NAME_BYTES;
