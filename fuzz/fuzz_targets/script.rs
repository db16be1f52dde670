//! Scripts of `sched test`, in their sandbox, with the native runtime.

#![no_main]

use std::rc::Rc;
use std::time::Duration;

use fairpath_author::script::{Bench, Limits, MakeRuntime, Script};
use fairpath_core::sched::{
    Plan, SchedLayout, SchedRuntime, SchedRuntimeError, Scheduler, policies,
};
use fairpath_sched::tree::{Known, Tree};
use libfuzzer_sys::fuzz_target;

/// Low, so that endless loops and long strings end soon.
const LIMITS: Limits = Limits {
    instructions: 200_000,
    memory_bytes: 32 << 20,
    time: Duration::from_secs(2),
};
/// Memory of a scheduler that is built. Scripts can build any tree.
const MAX_BYTES: u64 = 64 << 20;

fuzz_target!(|input: &[u8]| {
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let fifo = policies().iter().find(|policy| policy.name == "fifo");
    let fifo = fifo.expect("fifo is built in");
    let chosen = Tree::of_policy(fifo, known).expect("fifo needs no classes");
    // Scripts choose their scheduler only on a bench without one.
    for tree in [None, Some(chosen)] {
        let make: MakeRuntime = Rc::new(native);
        let mut bench = Bench::new(tree, policies(), vec![make]);
        bench.limits = LIMITS;
        let report = Script::new("fuzz.lua", input).run(&bench);
        for case in &report.cases {
            let _ = format!("{case:?}");
        }
    }
});

fn native(plan: &Plan) -> Result<Box<dyn SchedRuntime>, SchedRuntimeError> {
    if SchedLayout::new(plan, &[])?.bytes() > MAX_BYTES {
        return Err(SchedRuntimeError::Plan("too large to fuzz".into()));
    }
    Ok(Box::new(Scheduler::new(plan)?))
}
