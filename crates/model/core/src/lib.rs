//! bpf/core compiled natively, behind safe Rust.
//!
//! [`Monitor`] is the native runtime: captures, tests, fuzzing. [`Memory`] is a monitor's memory
//! wherever it lies; `fairpath-bpf` puts it over the kernel's arena, so that formatting, counting
//! and ending are the same code in every runtime. [`pifo`] has queues over
//! numbers, [`cc`] congestion control, [`forward`] what passes the stack by. Pure: `now` is an argument everywhere.

mod abi;
mod aggregate;
pub mod cc;
mod classes;
mod ffi;
pub mod forward;
mod image;
mod memory;
mod monitor;
pub mod pifo;
pub mod sched;

pub use abi::*;
pub use aggregate::*;
pub use classes::{ClassReading, Filter, FlowView, MAX_FILTERS};
pub use image::TooManyRules;
pub use memory::{Memory, Replay, Usage};
pub use monitor::Monitor;
