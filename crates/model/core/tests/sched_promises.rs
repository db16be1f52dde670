//! Guarantees for every tree and policy: nothing of a refused packet stays, no accepted packet is
//! lost, and no dequeue is idle while a packet may leave.

mod sched_oracle;

use std::collections::BTreeSet;

use fairpath_core::sched::{
    Drop, Function, NEVER, Op, OpKind, Outcome, OutcomeKind, Plan, SchedRuntime, Scheduler,
};
use fairpath_units::test_seeds;
use sched_oracle::log::{Random, Writer};
use sched_oracle::trees::{Tree, tree};

const TREES: u64 = 120;
const OPS: usize = 1_500;
/// Times at which a drained scheduler is asked again, at most: each wakes one entry or more.
const REQUESTED: usize = 20_000;

/// Runs `then` on random trees of shipped policies, each with a log.
fn each(mut then: impl FnMut(u64, &Tree, Vec<Op>)) {
    for seed in test_seeds(TREES) {
        let mut random = Random::new(seed);
        let tree = tree(&mut random, None);
        let log = Writer::new(&mut random).write(&mut random, &tree, OPS);
        then(seed, &tree, log);
    }
}

fn run(scheduler: &mut Scheduler, ops: &[Op]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    scheduler.run(ops, &mut outcomes).unwrap();
    outcomes
}

/// The tree without impairments: these number what comes, the refused as well.
fn unimpaired(tree: &Tree) -> Plan {
    let mut plan = tree.plan.clone();
    plan.impairments.clear();
    plan.config.service = 0;
    plan.nodes.iter_mut().for_each(|node| node.impair = 0);
    plan
}

/// Operations that came to nothing but a refusal by a queue or a limit.
fn refused(outcomes: &[Outcome]) -> BTreeSet<u32> {
    let by_scheduler = |at: usize| {
        let of_op = |at: Option<&Outcome>| at.map(|outcome| outcome.op);
        let op = Some(outcomes[at].op);
        of_op(outcomes.get(at + 1)) != op && (at == 0 || of_op(outcomes.get(at - 1)) != op)
    };
    let by_policy = [
        Drop::Refused,
        Drop::Policy,
        Drop::Removed,
        Drop::Fattest,
        Drop::PushedOut,
    ];
    let refusals = outcomes.iter().enumerate().filter(|(at, outcome)| {
        let reason = outcome.drop();
        reason.is_some_and(|reason| !by_policy.contains(&reason)) && by_scheduler(*at)
    });
    refusals.map(|(_, outcome)| outcome.op).collect()
}

#[test]
fn refused_push_leaves_no_trace_in_any_ancestor() {
    let mut seen = 0;
    each(|seed, tree, log| {
        let plan = unimpaired(tree);
        let with = run(&mut Scheduler::new(&plan).unwrap(), &log);
        let refused = refused(&with);
        let is_refused =
            |op: u32| refused.contains(&op) && log[op as usize].kind == OpKind::Enqueue;
        // Time continues anyway.
        let without = (0..).zip(&log).map(|(index, op)| match is_refused(index) {
            true => Op::dequeue(op.now, 0),
            false => *op,
        });
        let without: Vec<Op> = without.collect();
        let without = run(&mut Scheduler::new(&plan).unwrap(), &without);
        let others = with.iter().filter(|outcome| !is_refused(outcome.op));
        seen += with.len() - without.len();
        if let Some((with, without)) = others.zip(&without).find(|(a, b)| a != b) {
            panic!("seed {seed}:\n  with the refused {with:?}\n  without them     {without:?}");
        }
    });
    assert!(seen > 1000, "{seen} were refused");
}

/// The log in the first century, and packets without a later time.
fn of_this_age(mut log: Vec<Op>) -> Vec<Op> {
    let first = log[0].now;
    for op in &mut log {
        op.now = op.now.saturating_sub(first);
        op.meta.hint >>= 8;
        op.meta.bytes = op.meta.bytes.min(9000);
    }
    log
}

/// Dequeues at the returned times, until there is none; returns the last time.
fn drain(scheduler: &mut Scheduler, mut now: u64) -> u64 {
    for _ in 0..REQUESTED {
        let outcomes = run(scheduler, &[Op::dequeue(now, 1000)]);
        let last = outcomes
            .last()
            .filter(|last| last.kind == OutcomeKind::Nothing);
        match last.map(|last| last.at) {
            Some(NEVER) => break,
            reported => now = reported.unwrap_or(now),
        }
    }
    now
}

#[test]
fn accepted_packets_leave_or_are_counted() {
    each(|seed, tree, log| {
        let log = of_this_age(log);
        let mut scheduler = Scheduler::new(&tree.plan).unwrap();
        run(&mut scheduler, &log);
        let now = drain(&mut scheduler, log[OPS - 1].now);
        scheduler.audit().unwrap();
        let stats = scheduler.stats();
        let counted = stats.sent + stats.dropped.iter().sum::<u64>();
        let waits = stats.enqueued - counted;
        let (all, from) = (stats.enqueued, log[OPS - 1].now);
        assert_eq!(
            waits, 0,
            "seed {seed}: {waits} of {all} wait, from {from} to {now}"
        );
    });
}

#[test]
fn a_dequeue_rests_only_when_nothing_waits() {
    let mut rests = 0;
    each(|seed, tree, log| {
        let shapes =
            |policy: &fairpath_core::sched::Policy| policy.functions.contains(&Function::SendTime);
        // Neither policies nor a trace of the root's rate hold packets back; the delay queue may.
        if tree.policies.iter().any(shapes) || tree.plan.config.service > 0 {
            return;
        }
        let mut scheduler = Scheduler::new(&tree.plan).unwrap();
        for op in &log {
            let outcomes = run(&mut scheduler, std::slice::from_ref(op));
            let rested = outcomes
                .last()
                .is_some_and(|last| last.kind == OutcomeKind::Nothing);
            if rested && scheduler.stats().tries_spent == 0 {
                let waiting =
                    (1..=tree.plan.nodes.len() as u32).map(|id| scheduler.node_stats(id).packets);
                assert_eq!(waiting.sum::<u32>(), 0, "seed {seed}: {op:?}");
                rests += 1;
            }
        }
    });
    // Of about 900 to 1,500 with most seeds.
    assert!(rests > 200, "{rests}");
}
