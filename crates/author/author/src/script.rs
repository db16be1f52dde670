//! Lua scripts that drive a scheduler and say what they expect.
//!
//! ```text
//!   script --verbs--> session --one operation at a time--> home (native, kernel, or both)
//!      ^                 |                                     |
//!      '-- packets, nil -'<------------- outcomes -------------'
//! ```
//!
//! A script makes packets, enqueues and dequeues them, moves virtual time, and states expectations;
//! the first that fails ends its test case and is told with the script's line, what was expected and
//! got, the waiting packets and the last operations. Verbs in the spirit of the XDP queueing tester
//! (Høiland-Jørgensen, Alfredsson, LPC 2022), whose own scripts run, too: see [`xdq`]. The guide is
//! `docs/guide/sched-scripts.md`.
//!
//! A script reaches nothing but its scheduler: no files, no processes, no code from strings, no
//! clock; its instructions and its memory have limits. In two homes at once every operation goes to
//! both, and outcomes that differ are a failure of their own kind. Absent: catching errors (`pcall`),
//! coroutines, and finalizers, by each of which a script could outlive its limits.

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

use fairpath_core::sched::{Home, HomeError, Op, Outcome, Plan, Policy};

pub use report::{Case, Failure, FailureKind, Report, WaitingPacket};

use fairpath_sched::log::{LogError, Run, Writer};
use fairpath_sched::tree::Tree;

/// VM instructions of a script, unless said otherwise: some seconds.
pub const MAX_INSTRUCTIONS: u64 = 1_000_000_000;
/// What an operation of the scheduler counts as, in instructions.
pub const OPERATION_INSTRUCTIONS: u64 = 100;
/// Bytes of a script's values, unless said otherwise: a million packets and what belongs to them.
pub const MAX_MEMORY_BYTES: usize = 1 << 30;
/// Bytes of a script's text.
pub const MAX_SCRIPT_BYTES: u64 = 16 << 20;
/// Bytes that a script prints; what comes behind is cut, and counted.
pub const MAX_PRINTED_BYTES: usize = 1 << 20;
/// Operations before a failure that are shown.
pub const SHOWN_OPERATIONS: usize = 8;
/// Waiting packets that are shown at a failure.
pub const SHOWN_PACKETS: usize = 16;

/// How much a script may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`MAX_INSTRUCTIONS`].
    pub instructions: u64,
    /// See [`MAX_MEMORY_BYTES`].
    pub memory_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let (instructions, memory_bytes) = (MAX_INSTRUCTIONS, MAX_MEMORY_BYTES);
        Limits {
            instructions,
            memory_bytes,
        }
    }
}

/// Makes a fresh home for a plan.
pub type MakeHome = Rc<dyn Fn(&Plan) -> Result<Box<dyn Home>, HomeError>>;

/// Where operations and outcomes are recorded while a script runs; a [`Writer`] is one.
pub trait Record {
    /// A fresh scheduler.
    ///
    /// # Errors
    /// It cannot be written.
    fn begin(&mut self, run: &Run) -> Result<(), LogError>;

    /// What it was asked, and answered.
    ///
    /// # Errors
    /// It cannot be written.
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

/// What scripts run on.
#[derive(Clone)]
pub struct Bench {
    /// What is tested; without one, scripts choose by `tree` or `policy`.
    pub tree: Option<Tree>,
    /// Policies that scripts may name: `fairpath_core::sched::policies()`, and an author's.
    pub policies: Vec<Policy>,
    /// One home, or more that must agree.
    pub homes: Vec<MakeHome>,
    /// How much each script may do.
    pub limits: Limits,
    /// Of the script's `math.random`.
    pub seed: u64,
    /// Gets all operations of all scripts.
    pub record: Option<Rc<RefCell<dyn Record>>>,
}

impl Bench {
    /// A bench with standard limits.
    pub fn new(tree: Option<Tree>, policies: &[Policy], homes: Vec<MakeHome>) -> Bench {
        let (limits, seed, record) = (Limits::default(), 1, None);
        Bench {
            tree,
            policies: policies.to_vec(),
            homes,
            limits,
            seed,
            record,
        }
    }
}

/// A script could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file system said no.
    #[error("read script {path}")]
    Read {
        /// As it was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too long.
    #[error("read script {path}: it has {bytes} bytes, {MAX_SCRIPT_BYTES} are the most")]
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
    /// Reads a file; its name as given is what failures name.
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

    /// A script that is not in a file.
    pub fn new(name: &str, text: impl Into<Vec<u8>>) -> Script {
        Script {
            name: name.to_owned(),
            text: text.into(),
        }
    }

    /// Its name in failures.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs it, each `test` of it and what stands outside on a fresh scheduler.
    ///
    /// Never fails itself: what went wrong, be it the script or a home, is in the report.
    #[must_use]
    pub fn run(&self, bench: &Bench) -> Report {
        verbs::run(&self.name, &self.text, bench)
    }
}

#[cfg(test)]
mod tests;
