//! The same blows to the memory of both runtimes: every operation ends, and both answer alike.

use fairpath_bpf::SchedRun;
use fairpath_core::sched::{Op, SchedRuntime, Scheduler};
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seeds;

use super::sched_oracle::corruption::Blow;
use super::sched_oracle::log::{Random, Writer, describe};
use super::sched_oracle::trees::{limits, tree};

/// Trees in `make soak`; `make test` has 20 %.
const TREES: u64 = 20;
const BLOWS: usize = 100;
const OPS: usize = 60;

#[test]
fn corrupted_schedulers_agree_in_kernel_and_native() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let mut found = 0;
    let trees = test_seeds(TREES);
    for seed in trees.clone() {
        let mut random = Random::new(seed);
        let mut tree = tree(&mut random, None);
        (tree.plan.config.flows, tree.plan.config.hosts) = (16, 8);
        tree.plan.config.references = 60;
        let mut native = Scheduler::new(&tree.plan).unwrap();
        if let Some((limits, share)) = limits(&tree) {
            let cpu = limits.cpu(0).unwrap();
            native.draw_from(cpu, &share.nodes).unwrap();
        }
        let mut kernel = SchedRun::load(&tree.plan).unwrap();
        let mut writer = Writer::new(&mut random);
        for blow in 0..BLOWS {
            let ops: Vec<Op> = writer.write(&mut random, &tree, OPS);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            native.run(&ops, &mut ours).unwrap();
            kernel.run(&ops, &mut theirs).unwrap();
            let differs = ours
                .iter()
                .zip(&theirs)
                .position(|(ours, theirs)| ours != theirs);
            if let Some(at) = differs {
                panic!(
                    "seed {seed}, blow {blow}: {}\n  natively {:?}\n  kernel   {:?}",
                    describe(&ops[ours[at].op as usize]),
                    ours[at],
                    theirs[at]
                );
            }
            assert_eq!(ours.len(), theirs.len(), "seed {seed}, blow {blow}");
            assert_eq!(native.stats(), kernel.stats(), "seed {seed}, blow {blow}");
            let blow = Blow::pick(&mut random, kernel.bytes_mut());
            blow.strike(native.bytes_mut());
            blow.strike(kernel.bytes_mut());
            found += usize::from(kernel.audit().is_err());
        }
    }
    println!(
        "after {found} of {} blows an audit found something",
        trees.clone().count() * BLOWS
    );
    // Corruption that an audit finds is found from then on, so few trees have a share of it.
    assert!(found > trees.count() * BLOWS / 20);
}
