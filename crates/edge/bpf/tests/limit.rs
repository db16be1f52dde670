//! Limits in the kernel: every answer is the oracle's, for 1 to 512 CPUs.
//!
//! The requests are those of the native runtime's test, other seeds of them.

#[path = "../../../model/core/tests/limit_oracle/mod.rs"]
mod limit_oracle;

use fairpath_bpf::KernelLimits;
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seeds;
use limit_oracle::log;

#[test]
fn every_kernel_answer_is_that_of_the_oracle() {
    requires!(Need::Root);
    let (mut requests, mut refused) = (0, 0);
    for seed in test_seeds(300) {
        let seed = seed.wrapping_add(1_000_000);
        let log = log(seed);
        let mut kernel = KernelLimits::load(log.cpus, &log.limits).unwrap();
        for part in &log.parts {
            let limits = kernel.limits();
            limits.set_rates(&[part.rate], part.now).unwrap();
            let (limit, cpu, bytes) = part.grant;
            limits.set_grant(limit, cpu, bytes);
            let part = &part.requests;
            let mut made = part.clone();
            made.iter_mut()
                .for_each(|request| request.answer = u64::MAX);
            kernel.run(&mut made).unwrap();
            assert_eq!(&made, part, "seed {seed}");
            requests += made.len();
            refused += made.iter().filter(|request| request.answer > 0).count();
        }
    }
    println!("{requests} requests, {refused} refused");
    assert!(refused > 0 && refused < requests);
}
