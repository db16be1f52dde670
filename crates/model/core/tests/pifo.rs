//! Queues, natively, compared with their oracle: every answer, every count, and an audit after each part.
//!
//! Ten million operations in `make soak`, 20 % of them in `make test`, from the environment's seed on.
//! `FAIRPATH_QUEUE_OPS=n` changes their number.

mod pifo_oracle;

use fairpath_core::pifo::{Op, Pool};
use fairpath_units::{Share, test_seed};
use pifo_oracle::Oracle;
use pifo_oracle::log::{Plan, Random, Writer, assert_counts, assert_same, assert_whole, plan};
use proptest::prelude::*;

/// Operations in all, and in one part.
const OPS: u64 = 10_000_000;
const PART: usize = 10_000;
/// Operations of a log that can be shrunk.
const LOG: usize = 400;
/// Parts that one pool gets.
const PARTS: usize = 10;

/// Both do the same operations; the log with its answers.
fn compare(what: &str, plan: &Plan, pool: &mut Pool, oracle: &mut Oracle, ops: &[Op]) -> Vec<Op> {
    let expected: Vec<Op> = ops.iter().map(|&op| oracle.answer(op)).collect();
    let mut got = ops.to_vec();
    pool.run(&mut got);
    assert_same(what, plan, &expected, &got);
    assert_counts(what, plan, oracle, |q| pool.counts(q));
    assert_whole(what, pool.pool_counts());
    if let Err(flaw) = pool.audit() {
        panic!("{what}: {flaw}\n{plan:?}");
    }
    expected
}

#[test]
fn ten_million_operations_are_answered_as_by_oracle() {
    let wanted = std::env::var("FAIRPATH_QUEUE_OPS").ok();
    let ops: usize = wanted
        .and_then(|n| n.parse().ok())
        .unwrap_or(Share::reported().of(OPS) as usize);
    let first = test_seed();
    let mut tally = std::collections::BTreeMap::<(&str, bool), u64>::new();
    let mut totals = [0u64; 6];
    for n in 0..ops.div_ceil(PART * PARTS) as u64 {
        let seed = first.wrapping_add(n);
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let mut pool = Pool::new(plan.items, &plan.pifos).unwrap();
        let mut oracle = Oracle::new(plan.items, &plan.pifos);
        let mut writer = Writer::new(&plan);
        for part in 0..PARTS {
            let log = writer.write(&mut random, PART);
            let what = format!("seed {seed}, part {part}");
            for op in compare(&what, &plan, &mut pool, &mut oracle, &log) {
                *tally.entry((op.name(), op.answer == 0)).or_default() += 1;
            }
        }
        for q in 1..=plan.pifos.len() as u32 {
            let counts = pool.counts(q);
            for (total, count) in totals.iter_mut().zip([
                counts.pushed_out,
                counts.rotations,
                counts.rebases,
                counts.was_below,
                counts.was_beyond,
                counts.not_admitted,
            ]) {
                *total += count;
            }
        }
    }
    println!("{tally:?}\npushed out, rotations, rebases, below, beyond, not admitted: {totals:?}");
    assert!(totals.iter().all(|&total| total > 100), "{totals:?}");
}

proptest! {
    #![proptest_config(fairpath_units::property!(300))]

    /// The same in small, for failures that are shrunk: a failing part of a log is a log.
    #[test]
    fn short_pifo_logs_equal_the_oracle(
        seed in 0..1_000_000u64,
        keep in prop::sample::subsequence((0..LOG).collect::<Vec<usize>>(), 0..=LOG),
    ) {
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let log = Writer::new(&plan).write(&mut random, LOG);
        let log: Vec<Op> = keep.iter().map(|&i| log[i]).collect();
        let mut pool = Pool::new(plan.items, &plan.pifos).unwrap();
        let mut oracle = Oracle::new(plan.items, &plan.pifos);
        compare(&format!("seed {seed}"), &plan, &mut pool, &mut oracle, &log);
    }
}
