//! Tests of the files that `fairpath sched new` writes: policies that nothing is wrong with, and
//! scripts that pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fairpath_author::script::{Bench, MakeRuntime, Script};
use fairpath_bpf::SchedRun;
use fairpath_bpf::author::{self, Compiler, verify};
use fairpath_core::sched::{Over, Plan, Policy, SchedRuntime, SchedRuntimeError, Scheduler};
use fairpath_policy::Author;
use fairpath_sched::tree::{Known, Tree};
use fairpath_testbed::{Need, requires};

/// A file in a separate directory.
struct Written {
    _dir: tempfile::TempDir,
    file: PathBuf,
}

fn write(text: &str) -> Written {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("mine.c");
    fs::write(&file, text).expect("written");
    Written { _dir: dir, file }
}

/// A template, with its name filled in: the policy's file and the script's text.
fn template(name: &str) -> (Written, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/new");
    let text = |ending: &str| {
        let file: PathBuf = folder.join(format!("{name}.{ending}"));
        let text = fs::read_to_string(file).expect("the template is there");
        text.replace("@NAME@", "mine")
    };
    (write(&text("c")), text("lua"))
}

fn pass(author: &Author, script: &str, runtime: MakeRuntime) {
    let policies = [author.policy.clone()];
    let known = Known {
        policies: &policies,
        classes: &[],
    };
    let tree = Tree::of_policy(&author.policy, known).expect("a leaf");
    let bench = Bench::new(Some(tree), &policies, vec![runtime]);
    Script::new("mine.lua", script).run(&bench).expect_pass();
}

fn native(author: &Author) -> MakeRuntime {
    let author = author.clone();
    Rc::new(
        move |plan: &Plan| -> Result<Box<dyn SchedRuntime>, SchedRuntimeError> {
            let machine = Box::new(author.machine());
            Ok(Box::new(Scheduler::with_custom(
                plan,
                &author.policy,
                machine,
            )?))
        },
    )
}

fn kernel(policy: &Policy, object: Vec<u8>) -> MakeRuntime {
    let policy = policy.clone();
    Rc::new(
        move |plan: &Plan| -> Result<Box<dyn SchedRuntime>, SchedRuntimeError> {
            Ok(Box::new(SchedRun::load_object(
                &object,
                plan,
                Some(&policy),
            )?))
        },
    )
}

#[test]
fn templates_compile_and_their_scripts_pass() {
    for (name, usual) in [("packets", Over::Packets), ("flows", Over::Flows)] {
        let (written, script) = template(name);
        let author =
            author::read(&written.file).unwrap_or_else(|reported| panic!("{name}: {reported}"));
        assert_eq!(author.policy.usual, usual);
        pass(&author, &script, native(&author));
    }
}

#[test]
fn templates_and_their_scripts_pass_in_the_kernel() {
    requires!(Need::Root);
    fairpath_bpf::quiet_libbpf();
    let compiler = Compiler::new().expect("clang");
    for name in ["packets", "flows"] {
        let (written, script) = template(name);
        let object = compiler.policy(&written.file).expect("compiles");
        let author = Author::parse(&object).expect("well-formed");
        let trial = compiler
            .trial(&written.file, author.has())
            .expect("compiles");
        assert_eq!(
            verify(&trial).expect("root may verify").refusal,
            None,
            "{name}"
        );
        let linked = compiler.scheduler(&object, author.has()).expect("links");
        pass(&author, &script, kernel(&author.policy, linked));
    }
}
