//! Runs a log's operations again and compares what comes out with what came out.
//!
//! Invariant: the operations that a home gets are those of the log, in order, whatever it answers.

use std::collections::VecDeque;
use std::io::Read;

use fairpath_core::sched::{Home, HomeError, Op, Outcome, SchedStats};

use super::read::{Batch, Part, Reader, Summary};
use super::{LogError, Run};

/// Operations before the first difference that are kept to be shown.
pub const BEFORE: usize = 8;

/// Makes fresh homes for a run, all of which get its operations.
pub type MakeHomes<'a> = dyn FnMut(&Run) -> Result<Vec<Box<dyn Home>>, String> + 'a;

/// A log could not be replayed to its end or first difference.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its scheduler cannot be made here.
    #[error("make the scheduler of run {run}: {cause}")]
    Make {
        /// From 1.
        run: u64,
        /// Why, and what to do.
        cause: String,
    },
    /// A home stopped.
    #[error("run {run}, operations from {op} on, in the {home} home")]
    Home {
        /// From 1.
        run: u64,
        /// Index of the first operation of the batch.
        op: u64,
        /// "native" or "kernel".
        home: &'static str,
        /// Why.
        source: HomeError,
    },
}

/// What one side answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// "log (native)", "native", "kernel".
    pub name: String,
    /// In order; none if the home gave none.
    pub outcomes: Vec<Outcome>,
}

/// The first operation whose outcomes are not the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// From 1.
    pub run: u64,
    /// Index in its run, from 0.
    pub index: u64,
    /// The operation.
    pub op: Op,
    /// What each side answered.
    pub sides: Vec<Side>,
    /// The operations before it, oldest first, and the outcomes that all sides agreed on.
    pub before: Vec<(u64, Op, Vec<Outcome>)>,
}

/// Counters of one home at the end of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// From 1.
    pub run: u64,
    /// "native" or "kernel".
    pub home: &'static str,
    /// At the run's end.
    pub stats: SchedStats,
}

/// What a replay found.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Runs and operations replayed; up to the batch of the difference if there is one.
    pub summary: Summary,
    /// Outcomes that were compared with the log or between homes.
    pub compared: u64,
    /// One for each home and run that ended.
    pub homes: Vec<Replay>,
    /// The first.
    pub difference: Option<Difference>,
}

/// Replays a log in the homes that `make` makes for each of its runs, until the first difference
/// between log (where it has outcomes) and homes, or between homes.
///
/// Check the log ([`super::check`]) first if nothing is to run of a log that is cut.
///
/// # Errors
/// The log is corrupt, a home cannot be made, or stops.
pub fn replay(from: impl Read, make: &mut MakeHomes<'_>) -> Result<Replayed, ReplayError> {
    let mut reader = Reader::new(from)?;
    let mut replayed = Replayed::default();
    let mut current: Option<Current> = None;
    while let Some(part) = reader.next_part()? {
        match part {
            Part::Run(run) => {
                replayed.close(current.take());
                let number = reader.summary().runs;
                let homes = make(&run).map_err(|cause| ReplayError::Make { run: number, cause })?;
                current = Some(Current::new(number, &run, homes));
            }
            Part::Ops(batch) => {
                let current = current.as_mut().expect("the reader gives a run first");
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
        let Some(Current { number, homes, .. }) = ended else {
            return;
        };
        self.homes.extend(homes.iter().map(|home| Replay {
            run: number,
            home: home.name(),
            stats: home.stats(),
        }));
    }
}

/// The run that is being replayed.
struct Current {
    number: u64,
    /// Name of the log's side, if it has outcomes.
    recorded: Option<String>,
    homes: Vec<Box<dyn Home>>,
    done: u64,
    before: VecDeque<(u64, Op, Vec<Outcome>)>,
}

impl Current {
    fn new(number: u64, run: &Run, homes: Vec<Box<dyn Home>>) -> Current {
        let recorded = run.outcomes.then(|| format!("log ({})", run.home));
        Current {
            number,
            recorded,
            homes,
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
        for home in &mut self.homes {
            let mut outcomes = Vec::new();
            let (run, op, name) = (self.number, self.done, home.name());
            let ran = home.run(&batch.ops, &mut outcomes);
            ran.map_err(|source| ReplayError::Home {
                run,
                op,
                home: name,
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

/// The outcomes of operation `index`; those of earlier ones are a home's mistake, and shown here.
fn take<'a>(rest: &mut &'a [Outcome], index: usize) -> &'a [Outcome] {
    let count = rest
        .iter()
        .take_while(|outcome| outcome.op as usize <= index)
        .count();
    let (these, left) = rest.split_at(count);
    *rest = left;
    these
}
