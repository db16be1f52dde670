//! Every shipped policy, as if an author had written it: the machine that interprets its instructions,
//! the C compiler and the kernel give the same outcomes, operation by operation.

use std::path::{Path, PathBuf};

use fairpath_bpf::SchedRun;
use fairpath_bpf::author::Compiler;
use fairpath_core::sched::{Op, Over, Policy, SchedRuntime, Scheduler, policies};
use fairpath_policy::trial::{self, Trial};
use fairpath_policy::{Author, Machine};
use fairpath_testbed::{Need, requires};
use fairpath_units::{Share, test_seed};

use super::{read, shipped};

const OPERATIONS: u64 = 100_000;

/// The environment's share of them.
fn operations() -> usize {
    Share::reported().of(OPERATIONS) as usize
}

/// The output of the C compiler for a shipped policy.
fn compiled(author: &Author) -> &'static Policy {
    let found = policies()
        .iter()
        .find(|policy| policy.name == author.policy.name);
    found.unwrap_or_else(|| panic!("{} is compiled in", author.policy.name))
}

fn try_runtime(runtime: &mut dyn SchedRuntime, ops: &[Op]) -> Trial {
    let trial = trial::run(runtime, ops).expect("it runs, and its audit finds nothing");
    assert_eq!(trial.stuck, 0, "{} home", runtime.name());
    trial
}

/// A custom policy in the native runtime, as a trial runs it.
fn interpreted(author: &Author, over: Over, ops: &[Op]) -> Trial {
    run_machine(author, author.machine(), over, ops)
}

/// The same by its machine code.
fn as_machine_code(author: &Author, over: Over, ops: &[Op]) -> Trial {
    let machine = author.compiled().expect("this processor is supported");
    run_machine(author, machine, over, ops)
}

fn run_machine(author: &Author, machine: Machine, over: Over, ops: &[Op]) -> Trial {
    let watch = machine.watch();
    let plan = trial::plan(&author.policy, over);
    let runtime = Scheduler::with_custom(&plan, &author.policy, Box::new(machine));
    let trial = try_runtime(&mut runtime.expect("valid plan"), ops);
    assert_eq!(watch.fault(), None);
    trial
}

/// All files, over everything that they rank, with operations of a seed that is printed.
fn each(mut then: impl FnMut(&Author, &Path, Over, &[Op])) {
    let mut seed = test_seed();
    for file in shipped() {
        let author =
            read(&file).unwrap_or_else(|reported| panic!("{}: {reported}", file.display()));
        for over in &author.policy.over {
            println!("{} over {over:?}: seed {seed}", author.policy.name);
            let ops = trial::operations(&[&author.policy], 4, operations(), seed);
            then(&author, &file, *over, &ops);
            seed = seed.wrapping_add(1);
        }
    }
}

#[test]
fn machine_and_compiler_agree_on_every_shipped_policy() {
    let mut tried = 0;
    each(|author, file, over, ops| {
        let compiled = compiled(author);
        let same = Policy {
            id: compiled.id,
            ..author.policy.clone()
        };
        assert_eq!(&same, compiled, "the description of {}", file.display());
        let mut native = Scheduler::new(&trial::plan(compiled, over)).expect("valid plan");
        let wanted = try_runtime(&mut native, ops);
        for got in [
            interpreted(author, over, ops),
            as_machine_code(author, over, ops),
        ] {
            let name = &compiled.name;
            assert_eq!(wanted.differs(&got), None, "{name} over {over:?}");
        }
        assert!(
            wanted.sent > operations() as u64 / 50,
            "only {} were sent",
            wanted.sent
        );
        tried += 1;
    });
    assert!(tried >= policies().len());
}

#[test]
fn machine_and_kernel_agree_on_every_shipped_policy() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let compiler = Compiler::new().expect("clang");
    // The scheduler with one file's policy serves all that it ranks.
    let mut linked = (PathBuf::new(), Vec::new());
    each(|author, file, over, ops| {
        if linked.0 != file {
            let object = compiler.policy(file).expect("compiles");
            let object = compiler.scheduler(&object, author.has()).expect("links");
            linked = (file.to_owned(), object);
        }
        let plan = trial::plan(&author.policy, over);
        let kernel = SchedRun::load_object(&linked.1, &plan, Some(&author.policy));
        let mut kernel = kernel.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let wanted = try_runtime(&mut kernel, ops);
        let got = interpreted(author, over, ops);
        let name = &author.policy.name;
        assert_eq!(wanted.differs(&got), None, "{name} over {over:?}");
    });
}
