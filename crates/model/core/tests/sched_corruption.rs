//! Corrupted schedulers: every operation ends, no memory outside changes, and an audit detects it.
//!
//! `cargo xtask sanitize` runs this under AddressSanitizer and UBSan, where straying by a byte is a failure.

mod sched_oracle;

use fairpath_core::sched::{OUTCOMES_PER_OP, Op, Outcome, SchedRuntime, Scheduler};
use fairpath_units::test_seeds;
use sched_oracle::corruption::Blow;
use sched_oracle::log::{Random, Writer};
use sched_oracle::policy::Wild;
use sched_oracle::trees::{Tree, limits, tree, wild};

/// Trees, words that are overwritten in each, and operations after each.
const TREES: u64 = 40;
const BLOWS: usize = 60;
const OPS: usize = 60;

fn native(tree: &Tree) -> Scheduler {
    let mut made = match &tree.wild {
        Some(wild) => Scheduler::with_custom(&tree.plan, wild, Box::new(Wild)).unwrap(),
        None => Scheduler::new(&tree.plan).unwrap(),
    };
    if let Some((limits, share)) = limits(tree) {
        let cpu = limits.cpu(0).unwrap();
        made.draw_from(cpu, &share.nodes).unwrap();
    }
    made
}

/// A small table of flows, so that blows hit those that are used.
fn small(seed: u64, random: &mut Random) -> Tree {
    let wild = (seed & 1 == 1).then(|| wild(random));
    let mut tree = tree(random, wild);
    tree.plan.config.flows = 16;
    tree.plan.config.hosts = 8;
    tree.plan.config.references = 60;
    tree
}

fn assert_bounded(tree: &Tree, ops: &[Op], outcomes: &[Outcome]) {
    assert!(outcomes.len() <= ops.len() * OUTCOMES_PER_OP);
    for outcome in outcomes {
        assert!((outcome.op as usize) < ops.len(), "{outcome:?}");
        assert!(outcome.handle <= tree.plan.config.packets, "{outcome:?}");
    }
}

#[test]
fn corrupted_words_never_cause_hangs_or_overruns() {
    let mut found = 0;
    let trees = test_seeds(TREES);
    for seed in trees.clone() {
        let mut random = Random::new(seed);
        let tree = small(seed, &mut random);
        let mut scheduler = native(&tree);
        let mut writer = Writer::new(&mut random);
        for _ in 0..BLOWS {
            let ops = writer.write(&mut random, &tree, OPS);
            let mut outcomes = Vec::new();
            scheduler.run(&ops, &mut outcomes).unwrap();
            assert_bounded(&tree, &ops, &outcomes);
            let blow = Blow::pick(&mut random, scheduler.bytes_mut());
            blow.strike(scheduler.bytes_mut());
            // Whatever it finds, it ends.
            found += u32::from(scheduler.audit().is_err());
        }
    }
    let blows = (trees.count() * BLOWS) as u32;
    println!("after {found} of {blows} blows an audit found something");
    // Corruption that an audit finds is found from then on, so few trees have a share of it.
    assert!(found > blows / 20, "{found} of {blows}");
}
