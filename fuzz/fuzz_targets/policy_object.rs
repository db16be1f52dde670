//! Objects of custom policies, and a short trial of each policy in the native runtime.

#![no_main]

use fairpath_core::sched::{SchedLayout, SchedRuntime, Scheduler};
use fairpath_policy::{Author, trial};
use libfuzzer_sys::fuzz_target;

/// Operations of a trial. A hostile policy takes its whole budget in every call.
const OPERATIONS: usize = 16;
/// Memory of a scheduler that is built.
const MAX_BYTES: u64 = 16 << 20;

fuzz_target!(|input: &[u8]| {
    let author = match Author::parse(input) {
        Ok(author) => author,
        Err(problems) => {
            assert!(!problems.is_empty(), "a refusal has a reason");
            for problem in problems {
                assert!(!problem.to_string().is_empty(), "a problem has a text");
            }
            return;
        }
    };
    assert!(author == Author::parse(input).expect("it was read before"));
    for over in &author.policy.over {
        let plan = trial::plan(&author.policy, *over);
        let Ok(mut layout) = SchedLayout::new(&plan, std::slice::from_ref(&author.policy)) else {
            continue;
        };
        if layout.bytes() > MAX_BYTES {
            continue;
        }
        let machine = author.machine();
        let watch = machine.watch();
        let scheduler = Scheduler::with_custom(&plan, &author.policy, Box::new(machine));
        let Ok(mut scheduler) = scheduler else {
            continue;
        };
        let known = author.known();
        let policy_of = |id| known.iter().find(|policy| policy.id == id);
        let policies: Vec<_> = plan
            .nodes
            .iter()
            .filter_map(|n| policy_of(n.policy))
            .collect();
        let ops = trial::operations(&policies, plan.class_table.len() as u32, OPERATIONS, 1);
        let ran = scheduler.run(&ops, &mut Vec::new());
        if let Some(fault) = watch.fault() {
            assert!(!fault.to_string().is_empty(), "a fault has a text");
        } else if ran.is_ok() {
            scheduler.audit().expect("the scheduler is consistent");
        }
    }
});
