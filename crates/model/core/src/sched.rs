//! The scheduler of `bpf/core/sched/`: a tree of policies over queues, the same in every runtime.
//!
//! A [`Plan`] is the configuration; a [`SchedRuntime`] runs operations on it. [`Scheduler`] is the native
//! runtime.

mod abi;
mod classifier;
mod ffi;
mod impair;
mod limited;
mod memory;
mod plan;
mod policy;
mod scheduler;
mod takeover;

pub use abi::*;
pub use classifier::{Classifier, End};
pub use impair::*;
pub use limited::{NodeLimits, Share, limit_rate};
pub use memory::{MAX_OF_A_KIND, SchedLayout, SchedMemory};
pub use plan::Plan;
pub use policy::{BadPolicy, Custom, Function, Param, Policy, decode_rate, encode_rate, policies};
pub use scheduler::{SchedReader, Scheduler};
pub use takeover::{Changes, HandoverError};

/// A runtime could not run operations.
#[derive(Debug, thiserror::Error)]
pub enum SchedRuntimeError {
    /// The plan is invalid.
    #[error("build the scheduler: {0}")]
    Plan(String),
    /// The kernel refused.
    #[error("run the scheduler in the kernel: {0}")]
    Kernel(String),
    /// A custom policy made an invalid access; later results are not valid.
    #[error(
        "run the policy: it was stopped: {0}; `fairpath sched check` finds such errors before a run"
    )]
    Stopped(String),
}

/// A runtime of a scheduler: native, or the kernel without attaching.
///
/// The same plan and the same operations give the same outcomes in every runtime.
pub trait SchedRuntime {
    /// "native" or "kernel".
    fn name(&self) -> &'static str;

    /// Runs the operations in order and appends their outcomes; at least one each.
    ///
    /// # Errors
    /// The kernel runtime may fail to run; what ran before is in `outcomes`.
    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError>;

    /// Counters since the start.
    fn stats(&self) -> SchedStats;

    /// Counters of a node, 1 to the number of nodes; zeroes for others.
    fn node_stats(&self, node: u32) -> NodeStats;

    /// Counters of an impairment, from 1; zeros for others, and in a runtime without them.
    fn impair_stats(&self, impairment: u32) -> ImpairStats;

    /// Checks all queues for contradictions, and describes the first one.
    ///
    /// # Errors
    /// The contradiction.
    fn audit(&self) -> Result<(), String>;
}
