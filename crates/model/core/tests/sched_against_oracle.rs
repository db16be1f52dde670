//! The scheduler, natively, compared with its oracle: every outcome, every counter, and an audit after each
//! part, on random trees.
//!
//! A million operations in `make soak`, 20 % of them in `make test`, from the environment's seed on.
//! `FAIRPATH_SCHED_OPS=n` changes their number, `FAIRPATH_SCHED_SEED=n` runs one tree only.

mod sched_oracle;

use fairpath_core::sched::{Op, Scheduler};
use fairpath_units::{Share, test_seed};
use sched_oracle::Oracle;
use sched_oracle::case::{Done, check, compare};
use sched_oracle::log::{Random, Writer};
use sched_oracle::policy::Wild;
use sched_oracle::trees::{Tree, from_start, limits, tree, wild};

/// Operations in all, and on one tree.
const OPS: u64 = 1_000_000;
const OPS_OF_A_TREE: usize = 2_500;

fn native(tree: &Tree) -> Scheduler {
    let plan = &tree.plan;
    let mut made = match &tree.wild {
        Some(wild) => Scheduler::with_custom(plan, wild, Box::new(Wild)).unwrap(),
        None => Scheduler::new(plan).unwrap(),
    };
    if let Some((limits, share)) = limits(tree) {
        let cpu = limits.cpu(0).unwrap();
        made.draw_from(cpu, &share.nodes).unwrap();
    }
    made
}

/// Operations in all: the environment's share of 1 M, or what it says.
fn wanted() -> usize {
    let wanted = std::env::var("FAIRPATH_SCHED_OPS").ok();
    let share = Share::reported().of(OPS) as usize;
    wanted.and_then(|n| n.parse().ok()).unwrap_or(share)
}

fn run_tree(seed: u64) -> Done {
    let mut random = Random::new(seed);
    let wild = (!seed.is_multiple_of(3)).then(|| wild(&mut random));
    let tree = tree(&mut random, wild);
    let mut log = Writer::new(&mut random).write(&mut random, &tree, OPS_OF_A_TREE);
    from_start(&tree, &mut log);
    let run = |log: &[Op]| {
        let mut oracle = Oracle::new(&tree.plan, tree.policies.clone());
        compare(&tree, &mut oracle, &mut [&mut native(&tree)], log)
    };
    check(&format!("seed {seed}"), &tree, &log, &run)
}

/// Every other seed, from the environment's or the one behind it on, until half of the operations are done.
fn run_half(half: u64) {
    let only = std::env::var("FAIRPATH_SCHED_SEED").ok();
    if let Some(seed) = only.and_then(|n| n.parse().ok()) {
        run_tree(seed);
        return;
    }
    let first = test_seed().wrapping_add(half);
    let (mut done, mut seed) = (Done::default(), first);
    // A rare direction needs some more seeds than the share, up to four times the total.
    let is_due = |done: &Done| done.ops < 2 * OPS as usize && !done.has_seen_all_sides();
    while done.ops < wanted() / 2 || is_due(&done) {
        done.add(&run_tree(seed));
        seed = seed.wrapping_add(2);
    }
    println!("seeds {first}, {} ... {seed}", first.wrapping_add(2));
    done.assert_all_sides_seen();
}

#[test]
fn half_a_million_operations_equal_the_oracle() {
    run_half(0);
}

#[test]
fn another_half_million_operations_equal_the_oracle() {
    run_half(1);
}
