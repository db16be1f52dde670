//! The scheduler, natively, beside its oracle: every outcome, every counter, and an audit after each
//! part, on random trees.
//!
//! `FAIRPATH_SCHED_OPS=n` changes the number of operations, `FAIRPATH_SCHED_SEED=n` runs one tree only.

mod sched_oracle;

use fairpath_core::sched::{Op, Scheduler};
use sched_oracle::Oracle;
use sched_oracle::case::{check, compare};
use sched_oracle::log::{Random, Writer};
use sched_oracle::policy::Wild;
use sched_oracle::trees::{Tree, tree};

/// Operations in all, and on one tree.
const OPS: usize = 1_000_000;
const OPS_OF_A_TREE: usize = 2_500;

fn native(tree: &Tree) -> Scheduler {
    let plan = &tree.plan;
    match &tree.wild {
        Some(wild) => Scheduler::with_custom(plan, wild, Box::new(Wild)).unwrap(),
        None => Scheduler::new(plan).unwrap(),
    }
}

#[test]
fn a_million_operations_come_out_as_in_the_oracle() {
    let wanted = std::env::var("FAIRPATH_SCHED_OPS").ok();
    let ops: usize = wanted.and_then(|n| n.parse().ok()).unwrap_or(OPS);
    let only = std::env::var("FAIRPATH_SCHED_SEED")
        .ok()
        .and_then(|n| n.parse::<u64>().ok());
    for seed in only.map_or(0..ops.div_ceil(OPS_OF_A_TREE) as u64, |seed| seed..seed + 1) {
        let mut random = Random(seed);
        let tree = tree(&mut random, seed % 3 > 0);
        let log = Writer::new(&mut random).write(&mut random, &tree, OPS_OF_A_TREE);
        let mut run = |log: &[Op]| {
            let mut oracle = Oracle::new(&tree.plan, tree.policies.clone());
            compare(&tree, &mut oracle, &mut native(&tree), log)
        };
        check(&format!("seed {seed}"), &tree, &log, &mut run);
    }
}
