//! The scripts of the shipped policies, in the native runtime. In the kernel's: `tests/sched/`.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use fairpath_author::script::{Bench, Failure, MakeRuntime, Script};
use fairpath_core::sched::{Plan, Policy, SchedRuntime, Scheduler, policies};
use fairpath_sched::tree::{Known, Tree};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// All scripts, by name.
fn scripts() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory()).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut scripts: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "lua"))
        .collect();
    scripts.sort();
    scripts
}

/// A bench for a policy, as if the command line named it.
fn bench_of(name: &str) -> Bench {
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let policy = policies().iter().find(|policy| policy.name == name);
    let policy = policy.unwrap_or_else(|| panic!("no policy {name}"));
    let tree = Tree::of_policy(policy, known).unwrap();
    Bench::new(Some(tree), policies(), vec![native()])
}

/// The tree next to a script, or the policy with its name; none for the other dialect.
fn tree(script: &Path) -> Option<Tree> {
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let name = script.file_stem().unwrap().to_str().unwrap();
    let sibling = script.with_extension("toml");
    if sibling.exists() {
        let text = std::fs::read_to_string(&sibling).unwrap();
        return Some(Tree::read(name, &text, known).unwrap_or_else(|bad| panic!("{bad}")));
    }
    if name.starts_with("xdq-") {
        return None;
    }
    let policy = policies().iter().find(|policy| policy.name == name);
    Some(Tree::of_policy(policy.unwrap_or_else(|| panic!("no policy {name}")), known).unwrap())
}

fn native() -> MakeRuntime {
    Rc::new(|plan: &Plan| Ok(Box::new(Scheduler::new(plan)?) as Box<dyn SchedRuntime>))
}

#[test]
fn every_script_holds() {
    for script in scripts() {
        let bench = Bench::new(tree(&script), policies(), vec![native()]);
        Script::load(&script).unwrap().run(&bench).expect_pass();
    }
}

#[test]
fn every_shipped_policy_has_a_script() {
    let has = |policy: &&Policy| !directory().join(format!("{}.lua", policy.name)).exists();
    let without: Vec<&str> = policies()
        .iter()
        .filter(has)
        .map(|policy| policy.name.as_str())
        .collect();
    assert!(without.is_empty(), "without a script: {without:?}");
}

/// A script must be able to fail: on FIFO, those of the policies that reorder do.
#[test]
fn scripts_fail_on_another_policy() {
    for name in [
        "stfq",
        "edf",
        "lstf",
        "srpt",
        "pfabric",
        "fq_codel",
        "sp_pifo",
        "codel",
        "xdq-wfq",
        "xdq-sprio",
        "xdq-hpfq",
        "xdq-fq_codel",
    ] {
        let report = Script::load(&directory().join(format!("{name}.lua")))
            .unwrap()
            .run(&bench_of("fifo"));
        assert!(report.failed() > 0, "{name}.lua holds for FIFO, too");
    }
    let report = Script::load(&directory().join("xdq-fifo.lua"))
        .unwrap()
        .run(&bench_of("stfq"));
    assert!(report.failed() > 0, "xdq-fifo.lua holds for stfq, too");
}

/// The failure of a script that names its program.
fn failure(program: &str, text: &str) -> Failure {
    let text = format!("config.bpf.file = './sched_{program}.bpf.o'\n{text}");
    let bench = Bench::new(None, policies(), vec![native()]);
    let report = Script::new("a.lua", text).run(&bench);
    let failure = report.cases.iter().find_map(|case| case.failure.clone());
    failure.unwrap_or_else(|| panic!("{}", report.text(1)))
}

/// The tester's own script of `sched_test` ends with this comparison, which fails there, too.
#[test]
fn comparison_with_another_packet_fails() {
    let failure = failure(
        "test",
        "adjust_meta(8)\n\
         local one, two = Udp:new(), Udp:new()\n\
         one.udp.dest, two.udp.dest = 9001, 9002\n\
         enqueue(two, 1)\n\
         local packet = dequeue()\n\
         cmp(packet, two, 1)\n\
         cmp(packet, one, 1)",
    );
    assert_eq!(failure.lines, [8]);
    assert_eq!(failure.message, "fail: unexpected packet: udp.dest differs");
    assert!(failure.expected.unwrap().contains("udp:9001"));
    assert!(failure.got.unwrap().contains("udp:9002"));
}

/// A script of the tester that expects another order ends with the reason.
#[test]
fn known_differences_of_programs_are_named() {
    let text = "local one, two = Udp:new(), Udp:new()\n\
                one.udp.dest, two.udp.dest = 9001, 9002\n\
                enqueue(one, 1) enqueue(two, 1) dequeue_cmp(two, 1)";
    for (program, words) in [
        ("fq_codel", "fq_codel by turns"),
        ("hpfq", "between left and right"),
        ("wfq", "stfq keeps it"),
    ] {
        let message = failure(program, text).message;
        assert!(message.contains(words), "{message}");
        assert!(message.contains("docs/guide/sched-scripts.md"), "{message}");
    }
    assert!(failure("fifo", text).message.ends_with("udp.dest differs"));
}

/// The command line selects the policy, the program still selects the meaning of weights and ports.
#[test]
fn weights_are_ranks_for_a_named_policy() {
    let text = "config.bpf.file = './sched_sprio.bpf.o'\n\
                local one, two = Udp:new(), Udp:new()\n\
                one.udp.dest, two.udp.dest = 9001, 9002\n\
                set_flow_weight(one, 9) set_flow_weight(two, 0)\n\
                enqueue(one, 1) enqueue(two, 1)\n\
                dequeue_cmp(two, 1) dequeue_cmp(one, 1)";
    for name in ["pfabric", "srpt"] {
        Script::new("a.lua", text)
            .run(&bench_of(name))
            .expect_pass();
    }
    assert_eq!(
        Script::new("a.lua", text).run(&bench_of("fifo")).failed(),
        1
    );
}
