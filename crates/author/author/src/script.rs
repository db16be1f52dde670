//! Lua scripts that drive a scheduler and check its results.
//!
//! ```text
//!   script --verbs--> session --one operation at a time--> runtime (native, kernel, or both)
//!      ^                 |                                     |
//!      '-- packets, nil -'<------------- outcomes -------------'
//! ```
//!
//! A script creates packets, enqueues and dequeues them, advances virtual time, and states
//! expectations. The first failed expectation ends its test case. The report contains the line of the
//! script, the expected and the actual value, the waiting packets and the last operations. The verbs
//! resemble those of the XDP queueing tester (Høiland-Jørgensen, Alfredsson, LPC 2022), whose scripts
//! are supported: see [`xdq`]. The guide is `docs/guide/sched-scripts.md`.
//!
//! A script has access to its scheduler only: no files, processes, code from strings, or clock. Its
//! instructions and its memory are limited. With two runtimes, every operation runs in both, and
//! different outcomes are a separate kind of failure. Absent: catching errors (`pcall`), coroutines,
//! and finalizers, since a script could exceed its limits with each of them.

mod expect;
mod packet;
mod report;
mod sandbox;
mod session;
mod settings;
mod verbs;
mod xdq;

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use fairpath_core::sched::{Op, Outcome, Plan, Policy, SchedRuntime, SchedRuntimeError};

pub use report::{Case, Failure, FailureKind, ScriptReport, WaitingPacket};

use fairpath_sched::log::{LogError, Run, Writer};
use fairpath_sched::tree::Tree;

/// Default limit of the VM instructions of a script. They take a few seconds.
pub const MAX_INSTRUCTIONS: u64 = 1_000_000_000;
/// Instructions that an operation of the scheduler counts as.
pub const OPERATION_INSTRUCTIONS: u64 = 100;
/// Default limit of the memory of a script, enough for a million packets.
pub const MAX_MEMORY_BYTES: usize = 1 << 30;
/// Default limit of the time that a script takes, of any number of instructions: concatenation of long
/// strings is one.
pub const MAX_TIME: Duration = Duration::from_secs(300);
/// Maximum size of a script, bytes.
pub const MAX_SCRIPT_BYTES: u64 = 16 << 20;
/// Bytes of output that are kept. Further output is discarded and counted.
pub const MAX_PRINTED_BYTES: usize = 1 << 20;
/// Operations before a failure that the report shows.
pub const SHOWN_OPERATIONS: usize = 8;
/// Waiting packets that the report of a failure shows.
pub const SHOWN_PACKETS: usize = 16;

/// The limits of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`MAX_INSTRUCTIONS`].
    pub instructions: u64,
    /// See [`MAX_MEMORY_BYTES`].
    pub memory_bytes: usize,
    /// See [`MAX_TIME`].
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let (instructions, memory_bytes) = (MAX_INSTRUCTIONS, MAX_MEMORY_BYTES);
        Limits {
            instructions,
            memory_bytes,
            time: MAX_TIME,
        }
    }
}

/// Creates a new runtime for a plan.
pub type MakeRuntime = Rc<dyn Fn(&Plan) -> Result<Box<dyn SchedRuntime>, SchedRuntimeError>>;

/// Records operations and outcomes while a script runs, for example a [`Writer`].
pub trait Record {
    /// Begins a run with a new scheduler.
    ///
    /// # Errors
    /// The record cannot be written.
    fn begin(&mut self, run: &Run) -> Result<(), LogError>;

    /// Records operations and their outcomes.
    ///
    /// # Errors
    /// The record cannot be written.
    fn record(&mut self, ops: &[Op], outcomes: &[Outcome]) -> Result<(), LogError>;
}

impl<W: io::Write> Record for Writer<W> {
    fn begin(&mut self, run: &Run) -> Result<(), LogError> {
        Writer::begin(self, run)
    }

    fn record(&mut self, ops: &[Op], outcomes: &[Outcome]) -> Result<(), LogError> {
        Writer::record(self, ops, outcomes)
    }
}

/// The environment in which scripts run.
#[derive(Clone)]
pub struct Bench {
    /// The tested tree. Without one, scripts choose with `tree` or `policy`.
    pub tree: Option<Tree>,
    /// The policies that scripts can name: the built-in policies and the custom policy.
    pub policies: Vec<Policy>,
    /// One runtime, or several that must agree.
    pub runtimes: Vec<MakeRuntime>,
    /// The limits of each script.
    pub limits: Limits,
    /// The seed of `math.random`.
    pub seed: u64,
    /// Receives all operations of all scripts.
    pub record: Option<Rc<RefCell<dyn Record>>>,
}

impl Bench {
    /// A bench with default limits.
    pub fn new(tree: Option<Tree>, policies: &[Policy], runtimes: Vec<MakeRuntime>) -> Bench {
        let (limits, seed, record) = (Limits::default(), 1, None);
        Bench {
            tree,
            policies: policies.to_vec(),
            runtimes,
            limits,
            seed,
            record,
        }
    }
}

/// An error while reading a script.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("read script {path}")]
    Read {
        /// As it was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is too long.
    #[error("read script {path}: it has {bytes} bytes, but the maximum is {MAX_SCRIPT_BYTES}")]
    Long {
        /// As it was named.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
}

/// A script's text.
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    text: Vec<u8>,
}

impl Script {
    /// Reads a file. Failures print its name as given.
    ///
    /// # Errors
    /// The file cannot be read, or is too long.
    pub fn load(path: &Path) -> Result<Script, ScriptError> {
        let read = |source| ScriptError::Read {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(path).map_err(read)?.len();
        if bytes > MAX_SCRIPT_BYTES {
            return Err(ScriptError::Long {
                path: path.to_owned(),
                bytes,
            });
        }
        let text = std::fs::read(path).map_err(read)?;
        Ok(Script::new(&path.display().to_string(), text))
    }

    /// Creates a script from a text.
    pub fn new(name: &str, text: impl Into<Vec<u8>>) -> Script {
        Script {
            name: name.to_owned(),
            text: text.into(),
        }
    }

    /// The name in failures.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the script. Each `test`, and the code outside of tests, has a new scheduler.
    ///
    /// This never fails: the report contains errors of the script and of the runtimes.
    #[must_use]
    pub fn run(&self, bench: &Bench) -> ScriptReport {
        verbs::run(&self.name, &self.text, bench)
    }
}

#[cfg(test)]
mod tests;
