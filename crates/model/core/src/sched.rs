//! The scheduler of `bpf/core/sched/`: a tree of policies over queues, the same in every runtime.
//!
//! A [`Plan`] says what there is; a [`Home`] runs operations on it. [`Scheduler`] is the native runtime.

mod abi;
mod classifier;
mod ffi;
mod impair;
mod memory;
mod plan;
mod policy;
mod scheduler;
mod takeover;

pub use abi::*;
pub use classifier::{Classifier, End};
pub use impair::*;
pub use memory::{MAX_OF_A_KIND, SchedLayout, SchedMemory};
pub use plan::Plan;
pub use policy::{BadPolicy, Custom, Function, Param, Policy, encode_rate, policies};
pub use scheduler::{SchedReader, Scheduler};
pub use takeover::{Changes, TakeOverError};

/// A home could not run operations.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The plan is not one that can be built.
    #[error("build the scheduler: {0}")]
    Plan(String),
    /// The kernel refused.
    #[error("run the scheduler in the kernel: {0}")]
    Kernel(String),
    /// An author's policy did what no policy may; what came since is not to be believed.
    #[error(
        "run the policy: it was stopped: {0}; `fairpath sched check` finds such errors before a run"
    )]
    Stopped(String),
}

/// Where a scheduler runs: natively or in the kernel, unattached.
///
/// The same plan and the same operations give the same outcomes in every runtime.
pub trait Home {
    /// "native" or "kernel".
    fn name(&self) -> &'static str;

    /// Runs the operations in order and appends their outcomes; at least one each.
    ///
    /// # Errors
    /// The kernel runtime may fail to run; what ran before is in `outcomes`.
    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), HomeError>;

    /// Counters since the start.
    fn stats(&self) -> SchedStats;

    /// Counters of a node, 1 to the number of nodes; zeroes for others.
    fn node_stats(&self, node: u32) -> NodeStats;

    /// Counters of an impairment, from 1 on; zeroes for others, and where a runtime keeps none.
    fn impair_stats(&self, impairment: u32) -> ImpairStats;

    /// Looks through all queues for what contradicts itself; the first such thing, in words.
    ///
    /// # Errors
    /// What is wrong.
    fn audit(&self) -> Result<(), String>;
}
