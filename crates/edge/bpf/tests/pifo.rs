//! Queues in the kernel, compared with their oracle: every answer, every count, and an audit after each part.
//!
//! The logs are those of the native runtime's test. `make test` runs 20 % of the operations, from the
//! environment's seed on; `FAIRPATH_QUEUE_OPS=n` changes their number.

#[path = "../../../model/core/tests/pifo_oracle/mod.rs"]
mod pifo_oracle;

use fairpath_bpf::{KernelPool, QueueBench, Variant};
use fairpath_core::pifo::{Kind, Op, PifoConfig, Pool, Refusal, Window};
use fairpath_testbed::{Need, requires};
use fairpath_units::{Share, test_seed, test_seeds};
use pifo_oracle::Oracle;
use pifo_oracle::log::{Random, Writer, assert_counts, assert_same, assert_whole, plan};

/// Operations in all, in one part, and on one pool: loading one takes longer than many thousands.
const OPS: u64 = 10_000_000;
const PART: usize = 16_384;
const OPS_OF_A_POOL: usize = 20 * PART;

fn wanted() -> usize {
    let wanted = std::env::var("FAIRPATH_QUEUE_OPS").ok();
    wanted
        .and_then(|n| n.parse().ok())
        .unwrap_or(Share::reported().of(OPS) as usize)
}

#[test]
fn ten_million_kernel_operations_equal_the_oracle() {
    requires!(Need::Root);
    let first = test_seed().wrapping_add(1_000);
    let (mut done, mut pools) = (0, 0);
    while done < wanted() {
        let seed = first.wrapping_add(pools);
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let mut kernel = KernelPool::load(plan.items, &plan.pifos).unwrap();
        let mut oracle = Oracle::new(plan.items, &plan.pifos);
        let mut writer = Writer::new(&plan);
        for part in 0..OPS_OF_A_POOL / PART {
            let log = writer.write(&mut random, PART);
            let expected: Vec<Op> = log.iter().map(|&op| oracle.answer(op)).collect();
            let mut got = log;
            kernel.run(&mut got).unwrap();
            let what = format!("seed {seed}, part {part}");
            assert_same(&what, &plan, &expected, &got);
            let pool = kernel.pool();
            assert_counts(&what, &plan, &oracle, |q| pool.counts(q));
            assert_whole(&what, pool.pool_counts());
            if let Err(flaw) = pool.audit() {
                panic!("{what}: {flaw}\n{plan:?}");
            }
        }
        done += OPS_OF_A_POOL;
        pools += 1;
    }
    println!("{done} operations on {pools} pools");
}

/// Natively and in the kernel, the same operations leave the same bytes; so also after corruption, and both end.
#[test]
fn corrupted_pools_agree_in_kernel_and_native() {
    requires!(Need::Root);
    for seed in test_seeds(20) {
        let mut random = Random::new(seed.wrapping_add(2_000));
        let plan = plan(&mut random);
        let mut kernel = KernelPool::load(plan.items, &plan.pifos).unwrap();
        let mut native = Pool::new(plan.items, &plan.pifos).unwrap();
        let mut writer = Writer::new(&plan);
        for part in 0..100 {
            let mut log = writer.write(&mut random, 500);
            let mut same = log.clone();
            native.run(&mut log);
            kernel.run(&mut same).unwrap();
            assert_same(&format!("seed {seed}, part {part}"), &plan, &log, &same);
            for _ in 0..10 {
                // Behind the header: what it says is for the one who formatted.
                let word = 16 + random.below(native.words() as u64 - 16) as usize;
                let small = random.below(400);
                let value = random.pick(&[0, 1, small, u64::MAX, 1 << 63, small << 32]);
                native.overwrite(word, value);
                kernel.pool().overwrite(word, value);
            }
        }
        println!("seed {seed}: {:?}", native.pool_counts());
        assert_eq!(native.pool_counts(), kernel.pool().pool_counts());
    }
}

/// Whatever the header says: the kernel's own bounds hold, and every operation ends.
#[test]
fn corrupted_pool_headers_only_refuse_operations() {
    requires!(Need::Root);
    let window = Window {
        buckets: 5_000,
        ..Window::default()
    };
    let pifos = [
        PifoConfig::new(Kind::Heap, 100),
        PifoConfig::new(Kind::Cffs(window), 100),
    ];
    let mut random = Random::new(test_seed().wrapping_add(3_000));
    for word in 0..16 {
        let mut kernel = KernelPool::load(100, &pifos).unwrap();
        for value in [0, 1, u64::MAX, u64::MAX / 3, random.draw()] {
            kernel.pool().overwrite(word, value);
            for _ in 0..20 {
                let mut log: Vec<Op> = (1..100)
                    .flat_map(|i| {
                        [
                            Op::push(1, i, random.draw()),
                            Op::push(2, i, i.into()),
                            Op::pop(1),
                            Op::last(1),
                        ]
                    })
                    .collect();
                kernel.run(&mut log).unwrap();
            }
        }
        // And user space takes its hands off.
        if kernel.pool().audit().is_err() {
            assert_eq!(kernel.pool().push(1, 1, 1), Err(Refusal::Pifo));
        }
    }
}

/// A few thousand rounds of each program of the bench, the kernel's own lists and trees included.
#[test]
fn benchmark_programs_run_without_errors() {
    requires!(Need::Root);
    for variant in Variant::ALL {
        let mut bench = QueueBench::load(variant, 1_000).unwrap();
        bench.run(5_000).unwrap();
    }
}
