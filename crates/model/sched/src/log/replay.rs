//! Repeats the operations of a log and compares the outcomes.
//!
//! Invariant: a runtime gets the operations of the log in order, independent of its outcomes.

use std::collections::VecDeque;
use std::io::Read;

use fairpath_core::sched::{Op, Outcome, SchedRuntime, SchedRuntimeError, SchedStats};

use super::read::{Batch, Part, Reader, Summary};
use super::{LogError, Run};

/// Operations before the first difference in the report.
pub const BEFORE: usize = 8;

/// Creates new runtimes for a run. All of them get its operations.
pub type MakeRuntimes<'a> = dyn FnMut(&Run) -> Result<Vec<Box<dyn SchedRuntime>>, String> + 'a;

/// An error that ends a replay early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The scheduler cannot be created.
    #[error("create the scheduler of run {run}: {cause}")]
    Make {
        /// From 1.
        run: u64,
        /// The cause and the remedy.
        cause: String,
    },
    /// A runtime failed.
    #[error("run {run}, batch of operations from {op}, in the {runtime} runtime")]
    SchedRuntime {
        /// From 1.
        run: u64,
        /// Index of the first operation of the batch.
        op: u64,
        /// "native" or "kernel".
        runtime: &'static str,
        /// Why.
        source: SchedRuntimeError,
    },
}

/// The outcomes of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// "log (native)", "native" or "kernel".
    pub name: String,
    /// The outcomes in order.
    pub outcomes: Vec<Outcome>,
}

/// The first operation with different outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// From 1.
    pub run: u64,
    /// The index in its run, from 0.
    pub index: u64,
    /// The operation.
    pub op: Op,
    /// The outcomes of each side.
    pub sides: Vec<Side>,
    /// The previous operations, oldest first, with their equal outcomes.
    pub before: Vec<(u64, Op, Vec<Outcome>)>,
}

/// The counters of a runtime at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// From 1.
    pub run: u64,
    /// "native" or "kernel".
    pub runtime: &'static str,
    /// The counters at the end of the run.
    pub stats: SchedStats,
}

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Runs and operations replayed, up to the batch of the first difference.
    pub summary: Summary,
    /// Outcomes that were compared with the log or between runtimes.
    pub compared: u64,
    /// One entry for each runtime and completed run.
    pub runtimes: Vec<Replay>,
    /// The first difference.
    pub difference: Option<Difference>,
}

/// Replays each run of a log in the runtimes from `make` until the first difference. It compares the
/// outcomes of the runtimes with each other, and with the log if it has outcomes.
///
/// Call [`super::check`] first to avoid a partial replay of an incomplete log.
///
/// # Errors
/// The log is corrupt, or a runtime cannot be created or fails.
pub fn replay(from: impl Read, make: &mut MakeRuntimes<'_>) -> Result<Replayed, ReplayError> {
    let mut reader = Reader::new(from)?;
    let mut replayed = Replayed::default();
    let mut current: Option<Current> = None;
    while let Some(part) = reader.next_part()? {
        match part {
            Part::Run(run) => {
                replayed.close(current.take());
                let number = reader.summary().runs;
                let runtimes =
                    make(&run).map_err(|cause| ReplayError::Make { run: number, cause })?;
                current = Some(Current::new(number, &run, runtimes));
            }
            Part::Ops(batch) => {
                let current = current.as_mut().expect("the reader returns a run first");
                replayed.difference = current.run_batch(&batch, &mut replayed.compared)?;
            }
        }
        replayed.summary = reader.summary();
        if replayed.difference.is_some() {
            break;
        }
    }
    replayed.close(current);
    Ok(replayed)
}

impl Replayed {
    fn close(&mut self, ended: Option<Current>) {
        let Some(Current {
            number, runtimes, ..
        }) = ended
        else {
            return;
        };
        self.runtimes.extend(runtimes.iter().map(|runtime| Replay {
            run: number,
            runtime: runtime.name(),
            stats: runtime.stats(),
        }));
    }
}

/// The current run.
struct Current {
    number: u64,
    /// The name of the log in the report, if it has outcomes.
    recorded: Option<String>,
    runtimes: Vec<Box<dyn SchedRuntime>>,
    done: u64,
    before: VecDeque<(u64, Op, Vec<Outcome>)>,
}

impl Current {
    fn new(number: u64, run: &Run, runtimes: Vec<Box<dyn SchedRuntime>>) -> Current {
        let recorded = run.outcomes.then(|| format!("log ({})", run.runtime));
        Current {
            number,
            recorded,
            runtimes,
            done: 0,
            before: VecDeque::new(),
        }
    }

    fn run_batch(
        &mut self,
        batch: &Batch,
        compared: &mut u64,
    ) -> Result<Option<Difference>, ReplayError> {
        let mut sides = Vec::new();
        let recorded = self.recorded.iter();
        sides.extend(recorded.map(|name| Side {
            name: name.clone(),
            outcomes: batch.outcomes.clone(),
        }));
        for runtime in &mut self.runtimes {
            let mut outcomes = Vec::new();
            let (run, op, name) = (self.number, self.done, runtime.name());
            let ran = runtime.run(&batch.ops, &mut outcomes);
            ran.map_err(|source| ReplayError::SchedRuntime {
                run,
                op,
                runtime: name,
                source,
            })?;
            sides.push(Side {
                name: name.into(),
                outcomes,
            });
        }
        let difference = self.compare(&batch.ops, &sides);
        self.done += batch.ops.len() as u64;
        if sides.len() > 1 {
            *compared += sides[0].outcomes.len() as u64;
        }
        Ok(difference)
    }

    fn compare(&mut self, ops: &[Op], sides: &[Side]) -> Option<Difference> {
        let same = sides
            .windows(2)
            .all(|pair| pair[0].outcomes == pair[1].outcomes);
        let mut rests: Vec<&[Outcome]> = sides.iter().map(|side| &side.outcomes[..]).collect();
        let skip = if same {
            ops.len().saturating_sub(BEFORE)
        } else {
            0
        };
        for (index, op) in ops.iter().enumerate() {
            let of_this: Vec<&[Outcome]> = rests.iter_mut().map(|rest| take(rest, index)).collect();
            let number = self.done + index as u64;
            if of_this.windows(2).any(|pair| pair[0] != pair[1]) {
                let answer = |(side, outcomes): (&Side, &&[Outcome])| Side {
                    name: side.name.clone(),
                    outcomes: outcomes.to_vec(),
                };
                return Some(Difference {
                    run: self.number,
                    index: number,
                    op: *op,
                    sides: sides.iter().zip(&of_this).map(answer).collect(),
                    before: self.before.drain(..).collect(),
                });
            }
            if index >= skip {
                let outcomes = of_this.first().map_or(&[][..], |outcomes| outcomes);
                self.before.push_back((number, *op, outcomes.to_vec()));
                if self.before.len() > BEFORE {
                    self.before.pop_front();
                }
            }
        }
        None
    }
}

/// The outcomes of operation `index`. Outcomes of earlier ones are an error and are included.
fn take<'a>(rest: &mut &'a [Outcome], index: usize) -> &'a [Outcome] {
    let count = rest
        .iter()
        .take_while(|outcome| outcome.op as usize <= index)
        .count();
    let (these, left) = rest.split_at(count);
    *rest = left;
    these
}
