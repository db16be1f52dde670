//! Scripts over a model of the scheduler: a stable list sorted by `hint`. A packet leaves at `mark` or
//! later, and `segments` selects whether dequeue marks or drops it.

mod dialect;
mod expectations;
mod hostile;

use std::collections::{BTreeMap, BTreeSet};

use fairpath_core::sched::{
    Drop, ImpairStats, Meta, NEVER, NodeStats, Op, OpKind, Outcome, OutcomeKind, Over, Param, Plan,
    Policy, SchedRuntime, SchedRuntimeError, SchedStats,
};

use super::*;
use fairpath_sched::tree::{Known, Tree};

/// An error that the model makes at a given operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Rank,
    Unknown,
    Sojourn,
    Twice,
    Silent,
    Audit,
    Stats,
    Fails,
}

#[derive(Default)]
struct Sorted {
    queue: BTreeMap<(u64, u64), (u32, Meta)>,
    held: BTreeSet<u32>,
    arrivals: u64,
    limit: usize,
    ops: u64,
    stats: SchedStats,
    fault: Option<(u64, Fault)>,
}

/// Values of `segments` for a packet that dequeue drops or marks.
const DROPPED: u8 = 13;
const MARKED: u8 = 14;

impl Sorted {
    fn outcome(kind: OutcomeKind, handle: u32, rank: u64, at: u64) -> Outcome {
        Outcome {
            kind,
            handle,
            rank,
            at,
            node: 1,
            ..Outcome::default()
        }
    }

    fn dropped(handle: u32, reason: Drop) -> Outcome {
        let reason = reason as u8;
        Outcome {
            reason,
            ..Sorted::outcome(OutcomeKind::Dropped, handle, 0, 0)
        }
    }

    fn enqueue(&mut self, op: &Op) -> Outcome {
        self.stats.enqueued += 1;
        if self.held.contains(&op.handle) {
            return Sorted::dropped(op.handle, Drop::BadHandle);
        }
        if self.queue.len() == self.limit {
            return Sorted::dropped(op.handle, Drop::Limit);
        }
        self.arrivals += 1;
        self.stats.queued += 1;
        self.held.insert(op.handle);
        self.queue
            .insert((op.meta.hint, self.arrivals), (op.handle, op.meta));
        Sorted::outcome(OutcomeKind::Queued, op.handle, op.meta.hint, 0)
    }

    fn dequeue(&mut self, op: &Op, outcomes: &mut Vec<Outcome>) {
        let mut bytes = 0;
        for _ in 0..op.count {
            let Some((key, (handle, meta))) = self.queue.pop_first() else {
                return outcomes.push(Sorted::outcome(OutcomeKind::Nothing, 0, 0, NEVER));
            };
            if u64::from(meta.mark) > op.now {
                self.queue.insert(key, (handle, meta));
                return outcomes.push(Sorted::outcome(
                    OutcomeKind::Nothing,
                    0,
                    0,
                    meta.mark.into(),
                ));
            }
            self.held.remove(&handle);
            if meta.segments == DROPPED {
                outcomes.push(Sorted::dropped(handle, Drop::Policy));
                return self.dequeue(&Op { count: 1, ..*op }, outcomes);
            }
            let waited = op.now - meta.arrival;
            let flags = if meta.segments == MARKED {
                Outcome::MARK
            } else {
                0
            };
            outcomes.push(Outcome {
                flags,
                ..Sorted::outcome(OutcomeKind::Sent, handle, key.0, waited)
            });
            self.stats.sent += 1;
            bytes += u64::from(meta.bytes);
            if op.value != 0 && bytes >= op.value {
                return;
            }
        }
    }

    fn fault(&mut self, outcomes: &mut Vec<Outcome>) {
        let Some((at, fault)) = self.fault else {
            return;
        };
        if self.ops != at {
            return;
        }
        match fault {
            Fault::Rank => outcomes[0].rank += 1,
            Fault::Unknown => outcomes[0].handle += 7,
            Fault::Sojourn => outcomes[0].at += 1,
            Fault::Twice => outcomes.push(outcomes[0]),
            Fault::Silent => outcomes.clear(),
            Fault::Stats => self.stats.put_off += 1,
            Fault::Audit | Fault::Fails => {}
        }
    }
}

impl SchedRuntime for Sorted {
    fn name(&self) -> &'static str {
        if self.fault.is_some() {
            "kernel"
        } else {
            "native"
        }
    }

    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError> {
        for (index, op) in (0..).zip(ops) {
            self.ops += 1;
            if self.fault == Some((self.ops, Fault::Fails)) {
                return Err(SchedRuntimeError::Kernel("no CAP_BPF".into()));
            }
            let mut of_this = Vec::new();
            match op.kind {
                OpKind::Enqueue => of_this.push(self.enqueue(op)),
                OpKind::Dequeue => self.dequeue(op, &mut of_this),
                OpKind::Param | OpKind::Weight | OpKind::Node | OpKind::Impair => {
                    let value = u32::try_from(op.value).unwrap();
                    of_this.push(Sorted::outcome(OutcomeKind::Done, value, 0, 0));
                }
                OpKind::Remove => {
                    self.held.remove(&op.handle);
                    self.queue.retain(|_, (handle, _)| *handle != op.handle);
                    of_this.push(Sorted::dropped(op.handle, Drop::Removed));
                }
            }
            self.fault(&mut of_this);
            outcomes.extend(of_this.into_iter().map(|outcome| Outcome {
                op: index,
                ..outcome
            }));
        }
        Ok(())
    }

    fn stats(&self) -> SchedStats {
        self.stats
    }

    fn node_stats(&self, _: u32) -> NodeStats {
        NodeStats {
            packets: u32::try_from(self.queue.len()).unwrap(),
            ..NodeStats::default()
        }
    }

    fn impair_stats(&self, _: u32) -> ImpairStats {
        ImpairStats::default()
    }

    fn audit(&self) -> Result<(), String> {
        match self.fault {
            Some((_, Fault::Audit)) => Err("a bit is set and its bucket empty".into()),
            _ => Ok(()),
        }
    }
}

fn sorted(fault: Option<(u64, Fault)>) -> MakeRuntime {
    Rc::new(move |plan: &Plan| {
        let limit = plan.config.limit_packets as usize;
        Ok(Box::new(Sorted {
            fault,
            limit,
            ..Sorted::default()
        }) as Box<dyn SchedRuntime>)
    })
}

fn policies() -> Vec<Policy> {
    let param = Param {
        name: "target".into(),
        unit: "ns".into(),
        about: "how long packets may wait".into(),
        min: 0,
        most: 1_000_000_000,
        standard: 5_000_000,
    };
    vec![Policy {
        id: 1,
        name: "fifo".into(),
        about: "a stand-in".into(),
        source: "none".into(),
        over: vec![Over::Packets],
        usual: Over::Packets,
        wants: 0,
        state_bytes: [0; 3],
        queue: [0; 4],
        params: vec![param],
        functions: vec![],
    }]
}

fn bench(runtimes: Vec<MakeRuntime>) -> Bench {
    let policies = policies();
    let known = Known {
        policies: &policies,
        classes: &[],
    };
    let tree = Tree::of_policy(&policies[0], known).unwrap();
    Bench::new(Some(tree), &policies, runtimes)
}

fn run(text: &str) -> ScriptReport {
    Script::new("a.lua", text).run(&bench(vec![sorted(None)]))
}

/// The only failure of a script.
fn failure(text: &str) -> Failure {
    failure_of(&run(text))
}

fn failure_of(report: &ScriptReport) -> Failure {
    let failures: Vec<&Failure> = report
        .cases
        .iter()
        .filter_map(|case| case.failure.as_ref())
        .collect();
    assert_eq!(failures.len(), 1, "{}", report.text(1));
    failures[0].clone()
}

fn passes(text: &str) {
    run(text).expect_pass();
}
