//! The outcome of each packet by its number and the seed: the same core, natively, without a network.
//!
//! A packet arrives when the previous one has left. So the result has outcomes and random delays, but no
//! interaction of packets.

use fairpath_core::sched::{Meta, Op, OutcomeKind, SchedRuntime, Scheduler, policies};
use fairpath_sched::impair::Spec;
use fairpath_sched::tree::{Known, Tree};

/// Longer than any delay.
const APART_NS: u64 = 3_600_000_000_000;

/// Delays of the first `count` packets of a direction, ns; `None` for those that are lost.
pub fn delays(words: &str, seed: u64, direction: u64, count: u32) -> Vec<Option<u64>> {
    let mut spec: Spec = words.parse().unwrap_or_else(|bad| panic!("{words}: {bad}"));
    spec.seed = seed;
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let fifo = policies().iter().find(|policy| policy.name == "fifo");
    let mut tree = Tree::of_policy(fifo.unwrap(), known).unwrap();
    tree.impair(&spec, direction);
    let mut scheduler = Scheduler::new(&tree.plan).unwrap();
    (0..u64::from(count))
        .map(|number| one(&mut scheduler, (number + 1) * APART_NS))
        .collect()
}

/// A packet that comes at `arrived`.
fn one(scheduler: &mut Scheduler, arrived: u64) -> Option<u64> {
    let (mut now, mut outcomes) = (arrived, Vec::new());
    let op = Op::enqueue(now, 1, Meta::default());
    scheduler.run(&[op], &mut outcomes).unwrap();
    loop {
        let mut next = now;
        for outcome in outcomes.drain(..) {
            match outcome.kind {
                OutcomeKind::Sent => return Some(now - arrived),
                OutcomeKind::Dropped => return None,
                OutcomeKind::Nothing => next = outcome.at,
                _ => {}
            }
        }
        now = next;
        let op = Op::dequeue(now, 1);
        scheduler.run(&[op], &mut outcomes).unwrap();
    }
}

/// Numbers of those that are not lost.
pub fn survivors(delays: &[Option<u64>]) -> Vec<u32> {
    let all = (0u32..).zip(delays);
    all.filter_map(|(number, delay)| delay.map(|_| number))
        .collect()
}
