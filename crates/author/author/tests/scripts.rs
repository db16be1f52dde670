//! The scripts of the shipped policies, in the native runtime. In the kernel's: `tests/sched/`.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use fairpath_author::script::{Bench, MakeRuntime, Script};
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
    let known = Known {
        policies: policies(),
        classes: &[],
    };
    let fifo = policies()
        .iter()
        .find(|policy| policy.name == "fifo")
        .unwrap();
    for name in [
        "stfq", "edf", "lstf", "srpt", "pfabric", "fq_codel", "sp_pifo", "codel",
    ] {
        let bench = Bench::new(
            Some(Tree::of_policy(fifo, known).unwrap()),
            policies(),
            vec![native()],
        );
        let report = Script::load(&directory().join(format!("{name}.lua")))
            .unwrap()
            .run(&bench);
        assert!(report.failed() > 0, "{name}.lua holds for FIFO, too");
    }
}
