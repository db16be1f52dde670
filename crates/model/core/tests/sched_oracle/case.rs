//! One comparison: a tree, a log, runtimes and the oracle; and the reduction of a failing log.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fairpath_core::sched::{Drop, NodeConfig, Op, Outcome, Policy, SchedRuntime, SchedStats};

use super::Oracle;
use super::log::describe;
use super::trees::Tree;

/// Operations between two complete checks.
const PART: usize = 1000;
/// Dequeues that gave up, until a tree has taught what it can: each takes a thousand tries.
const ENOUGH: u64 = 6;

/// Queues with windows, small tables and broken memory have separate tests.
const ELSEWHERE: [Drop; 7] = [
    Drop::Below,
    Drop::Admission,
    Drop::Item,
    Drop::Pifo,
    Drop::Rank,
    Drop::Broken,
    Drop::NoFlow,
];

/// The compared operations: their number, and their results.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub ops: usize,
    pub sent: u64,
    pub dropped: [u64; 32],
    pub woken: u64,
    pub put_off: u64,
    pub tries_spent: u64,
}

impl Done {
    fn of(ops: usize, stats: &SchedStats) -> Done {
        Done {
            ops,
            sent: stats.sent,
            dropped: stats.dropped,
            woken: stats.woken,
            put_off: stats.put_off,
            tries_spent: stats.tries_spent,
        }
    }

    pub fn add(&mut self, other: &Done) {
        self.ops += other.ops;
        self.sent += other.sent;
        self.woken += other.woken;
        self.put_off += other.put_off;
        self.tries_spent += other.tries_spent;
        for (sum, more) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += more;
        }
    }

    /// Everything happened that can happen on these trees.
    pub fn has_seen_all_sides(&self) -> bool {
        let mut reasons = Drop::ALL.into_iter();
        let others = [self.sent, self.woken, self.put_off, self.tries_spent];
        others.iter().all(|count| *count > 0)
            && reasons
                .all(|reason| ELSEWHERE.contains(&reason) || self.dropped[reason as usize] > 0)
    }

    /// So, and nothing else did.
    pub fn assert_all_sides_seen(&self) {
        println!("{self:?}");
        assert!(self.has_seen_all_sides(), "{self:?}");
        for reason in ELSEWHERE {
            let count = self.dropped[reason as usize];
            assert_eq!(count, 0, "{reason:?}");
        }
    }
}

/// Counters that the oracle has, too.
fn known(stats: SchedStats) -> SchedStats {
    SchedStats {
        shared: 0,
        state_lost: 0,
        ..stats
    }
}

/// Runs a log in the oracle and in runtimes; what it came to, or where they first differ.
pub fn compare(
    tree: &Tree,
    oracle: &mut Oracle,
    runtimes: &mut [&mut dyn SchedRuntime],
    log: &[Op],
) -> Result<Done, String> {
    let mut done = 0;
    for (part, ops) in log.chunks(PART).enumerate() {
        let run = |(index, op): (usize, &Op)| oracle.run(index as u32, op);
        let expected: Vec<Vec<Outcome>> = ops.iter().enumerate().map(run).collect();
        oracle.well_formed()?;
        for runtime in runtimes.iter_mut() {
            let name = runtime.name();
            let in_runtime = |error: String| format!("{name}: {error}");
            outcomes(part, ops, &expected, &mut **runtime).map_err(in_runtime)?;
            runtime.audit().map_err(in_runtime)?;
            counters(tree, oracle, &**runtime).map_err(in_runtime)?;
        }
        done += ops.len();
        if oracle.stats().tries_spent > ENOUGH {
            break;
        }
    }
    Ok(Done::of(done, &oracle.stats()))
}

fn outcomes(
    part: usize,
    ops: &[Op],
    expected: &[Vec<Outcome>],
    runtime: &mut dyn SchedRuntime,
) -> Result<(), String> {
    let mut got = Vec::new();
    runtime
        .run(ops, &mut got)
        .map_err(|error| error.to_string())?;
    let mut got = got.as_slice();
    for (index, (op, expected)) in ops.iter().zip(expected).enumerate() {
        let count = got
            .iter()
            .take_while(|outcome| outcome.op == index as u32)
            .count();
        let (here, rest) = got.split_at(count);
        got = rest;
        same(part * PART + index, op, expected, here)?;
    }
    Ok(())
}

fn same(index: usize, op: &Op, expected: &[Outcome], got: &[Outcome]) -> Result<(), String> {
    if expected == got {
        return Ok(());
    }
    let differs = expected.iter().zip(got).position(|(a, b)| a != b);
    let at = differs.unwrap_or(expected.len().min(got.len()));
    Err(format!(
        "operation {index} ({}), outcome {at} of {} and {}:\n  oracle {:?}\n  here   {:?}",
        describe(op),
        expected.len(),
        got.len(),
        expected.get(at),
        got.get(at)
    ))
}

fn counters(tree: &Tree, oracle: &Oracle, runtime: &dyn SchedRuntime) -> Result<(), String> {
    let (expected, got) = (oracle.stats(), runtime.stats());
    if (got.shared, got.state_lost) != (0, 0) {
        return Err("the table of flows was too small for this test".into());
    }
    if expected != known(got) {
        return Err(format!(
            "counters:\n  oracle {expected:?}\n  here   {got:?}"
        ));
    }
    for impairment in 1..=tree.plan.impairments.len() as u32 {
        let (expected, got) = (
            oracle.impair_stats(impairment),
            runtime.impair_stats(impairment),
        );
        if expected != got {
            return Err(format!(
                "impairment {impairment}:\n  oracle {expected:?}\n  here   {got:?}"
            ));
        }
    }
    for node in 1..=tree.plan.nodes.len() as u32 {
        let (expected, got) = (oracle.node_stats(node), runtime.node_stats(node));
        if expected != got {
            return Err(format!(
                "node {node}:\n  oracle {expected:?}\n  here   {got:?}"
            ));
        }
    }
    Ok(())
}

/// Runs a log; what it came to, or how it fails: a panic is a failure, too.
pub type Run<'a> = &'a dyn Fn(&[Op]) -> Result<Done, String>;

fn attempt(run: Run<'_>, log: &[Op]) -> Result<Done, String> {
    match catch_unwind(AssertUnwindSafe(|| run(log))) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// The log without what it fails without: ever smaller pieces are omitted, down to single operations.
fn shrink(run: Run<'_>, log: Vec<Op>) -> Vec<Op> {
    let mut log = log;
    let mut piece = log.len().next_power_of_two();
    while piece > 0 {
        let mut at = 0;
        while at < log.len() {
            let mut without = log.clone();
            without.drain(at..(at + piece).min(log.len()));
            if attempt(run, &without).is_err() {
                log = without;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    log
}

/// A node as people read it.
fn describe_node(n: &NodeConfig, policy: &Policy) -> String {
    let split = if n.split > 0 { ", by DSCP" } else { "" };
    let (kind, buckets, capacity) = (n.queue, n.queue_buckets, n.queue_capacity);
    let outside = (n.queue_beyond, n.queue_full);
    format!(
        "{} over {:?} below {}{split}; queue {kind}, {buckets} buckets, capacity {capacity}, beyond and full \
         {outside:?}; limits {} {}; cost {}, floor {}, ceil {}, burst {}; impairment {}; {:?}",
        policy.name,
        n.over,
        n.parent,
        n.limit_packets,
        n.limit_bytes,
        n.cost,
        n.floor,
        n.ceil,
        n.burst,
        n.impair,
        n.params
    )
}

/// Runs `log` by `run`; what it came to. Where it fails, panics with the shortest log that was
/// found.
pub fn check(what: &str, tree: &Tree, log: &[Op], run: Run<'_>) -> Done {
    let first = match attempt(run, log) {
        Ok(done) => return done,
        Err(first) => first,
    };
    let short = shrink(run, log.to_vec());
    let last = attempt(run, &short).err().unwrap_or(first);
    let mut text = String::new();
    for (index, op) in short.iter().enumerate() {
        let _ = write!(text, "\n  {index:3}: {}", describe(op));
    }
    let mut nodes = String::new();
    for (index, (node, policy)) in tree.plan.nodes.iter().zip(&tree.policies).enumerate() {
        let _ = write!(nodes, "\n  {}: {}", index + 1, describe_node(node, policy));
    }
    let (config, classes) = (tree.plan.config, &tree.plan.class_table);
    for impairment in &tree.plan.impairments {
        let _ = write!(nodes, "\n  {impairment:?}");
    }
    panic!(
        "{what}: {last}\nafter{text}\nin the tree{nodes}\nwith {config:?}\nclasses {classes:?}\nwild {:?}",
        tree.wild.as_ref().map(|wild| (&wild.functions, wild.wants))
    );
}
