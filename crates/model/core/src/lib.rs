//! bpf/core compiled natively, behind safe Rust.
//!
//! [`Monitor`] is the native runtime: captures, tests, fuzzing. [`Memory`] is the memory of a
//! monitor at any place; `fairpath-bpf` uses it for the kernel's arena, so that format, counters
//! and end are the same code in every runtime. [`pifo`] has PIFOs, [`cc`] congestion control,
//! [`forward`] the decisions about bypassing the stack. Pure: `now` is an argument everywhere.

mod abi;
mod aggregate;
pub mod cc;
mod classes;
mod ffi;
pub mod forward;
mod hash;
mod image;
pub mod limit;
mod memory;
mod monitor;
pub mod pifo;
mod prefetch;
pub mod rules;
pub mod sched;

pub use abi::*;
pub use aggregate::*;
pub use classes::{ClassReading, Filter, FlowView, MAX_FILTERS};
pub use image::TooManyRules;
pub use memory::{Memory, Replay, Usage};
pub use monitor::Monitor;
pub use prefetch::prefetch;
