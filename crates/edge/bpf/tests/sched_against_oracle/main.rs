//! The scheduler in the kernel and natively, compared with one oracle: every outcome, every counter, and an
//! audit after each part, on random trees.
//!
//! The trees and logs are those of the native runtime's test; the policy that reacts to everything is
//! here a file in C, like a custom policy. `make test` runs 20 % of the operations, from the environment's seed
//! on; `FAIRPATH_SCHED_OPS=n` changes their number.

#[path = "../../../../model/core/tests/sched_oracle/mod.rs"]
mod sched_oracle;

mod corruption;

use fairpath_bpf::SchedRun;
use fairpath_bpf::author::Compiler;
use fairpath_core::sched::{Function, Op, Policy, Scheduler};
use fairpath_testbed::{Need, requires};
use fairpath_units::{Share, test_seed};
use sched_oracle::Oracle;
use sched_oracle::case::{Done, check, compare};
use sched_oracle::log::{Random, Writer};
use sched_oracle::policy::Wild;
use sched_oracle::trees::{from_start, limits, tree};

/// Operations in all, and on one tree of few or of many: loading a scheduler takes while
/// thousands.
const OPS: u64 = 150_000;
const OPS_OF_A_TREE: usize = 3_000;
const OPS_OF_MANY: usize = 20_000;

/// A custom policy, and the scheduler's object with it.
struct Author {
    policy: Policy,
    object: Vec<u8>,
}

const ENQUEUE: (Function, &str) = (Function::RankEnqueue, "RANK_ENQUEUE");
const DEQUEUE: (Function, &str) = (Function::RankDequeue, "RANK_DEQUEUE");
const TIME: (Function, &str) = (Function::SendTime, "SEND_TIME");
const DROPPED: (Function, &str) = (Function::OnDrop, "ON_DROP");

/// Compiles the policy with these functions and wants.
fn author(compiler: &Compiler, functions: &[(Function, &str)], wants: u32) -> Author {
    let mut text = include_str!("wild.h").to_owned();
    text += &format!(
        "POLICY{{ STATE, .name = \"wild\", .about = \"reacts to everything\", .source = \"tests\",\n\
         .over = PACKETS | FLOWS | CHILDREN | REFERENCES, .usual = FP_OVER_PACKETS, .wants = {wants} }};\n"
    );
    for (_, name) in functions {
        text += &format!("{name}\n{{\n\treturn wild(WILD_{name}, p, f, c, g, r);\n}}\n");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wild.c");
    std::fs::write(&file, text).unwrap();
    let object = compiler.policy(&file).unwrap();
    let has = functions
        .iter()
        .fold(0, |has, function| has | 1 << function.0 as u32);
    let functions: Vec<Function> = functions.iter().map(|function| function.0).collect();
    Author {
        policy: Wild::policy(&functions, wants),
        object: compiler.scheduler(&object, has).unwrap(),
    }
}

/// Every function and every wish in some of them.
fn authors() -> Vec<Author> {
    let compiler = Compiler::new().unwrap();
    let (due, eligible) = (Policy::WANTS_DUE, Policy::WANTS_ELIGIBLE);
    let (empty, hosts) = (Policy::WANTS_EMPTY, Policy::WANTS_HOSTS);
    [
        author(
            &compiler,
            &[ENQUEUE, DEQUEUE, TIME, DROPPED],
            due | empty | hosts,
        ),
        author(&compiler, &[ENQUEUE, DEQUEUE, TIME, DROPPED], eligible),
        author(&compiler, &[ENQUEUE, DEQUEUE, DROPPED], due),
        author(&compiler, &[DEQUEUE, TIME], eligible | empty),
        author(&compiler, &[ENQUEUE], hosts),
    ]
    .into()
}

fn run_tree(seed: u64, author: Option<&Author>, ops: usize) -> Done {
    let mut random = Random::new(seed);
    let tree = tree(&mut random, author.map(|author| author.policy.clone()));
    let mut log = Writer::new(&mut random).write(&mut random, &tree, ops);
    from_start(&tree, &mut log);
    let run = |log: &[Op]| {
        let mut oracle = Oracle::new(&tree.plan, tree.policies.clone());
        let (mut native, mut kernel) = match author {
            None => (
                Scheduler::new(&tree.plan).unwrap(),
                SchedRun::load(&tree.plan).unwrap(),
            ),
            Some(Author { policy, object }) => (
                Scheduler::with_custom(&tree.plan, policy, Box::new(Wild)).unwrap(),
                SchedRun::load_object(object, &tree.plan, Some(policy)).unwrap(),
            ),
        };
        if let Some((limits, share)) = limits(&tree) {
            let cpu = limits.cpu(0).unwrap();
            native.draw_from(cpu, &share.nodes).unwrap();
        }
        compare(&tree, &mut oracle, &mut [&mut native, &mut kernel], log)
    };
    check(&format!("seed {seed}"), &tree, &log, &run)
}

#[test]
fn kernel_and_native_operations_equal_the_oracle() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let wanted = std::env::var("FAIRPATH_SCHED_OPS").ok();
    let wanted: usize = wanted
        .and_then(|n| n.parse().ok())
        .unwrap_or(Share::reported().of(OPS) as usize);
    let authors = authors();
    let first = test_seed();
    let (mut done, mut seed) = (Done::default(), first);
    // A rare direction needs some more seeds than the share, up to four times the total.
    let is_due = |done: &Done| done.ops < 4 * OPS as usize && !done.has_seen_all_sides();
    while done.ops < wanted || is_due(&done) {
        let author = (!seed.is_multiple_of(3)).then(|| &authors[seed as usize % authors.len()]);
        let ops = if wanted > OPS as usize {
            OPS_OF_MANY
        } else {
            OPS_OF_A_TREE
        };
        done.add(&run_tree(seed, author, ops));
        seed = seed.wrapping_add(1);
    }
    println!("{} trees", seed.wrapping_sub(first));
    done.assert_all_sides_seen();
}
