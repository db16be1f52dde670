//! `fairpath sched new` and `fairpath sched check` through the binary: what an author sees.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use fairpath_testbed::{Need, requires};
use fairpath_tests::binary;
use serde_json::Value;

fn sched(directory: &Path, words: &[&str]) -> Output {
    let mut command = binary::command(binary::fairpath());
    command.arg("sched").args(words).current_dir(directory);
    command.output().expect("it runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// A policy whose RANK_ENQUEUE is `body`.
fn policy(directory: &Path, body: &str) {
    let text = format!(
        "#include <fairpath/policy.h>\n\
         struct flow {{ u64 value; }};\nstruct class {{ PARAMS; }};\nstruct global {{ }};\n\
         POLICY{{ STATE, .name = \"mine\", .about = \"a test\", .source = \"a test\",\n\
         .over = PACKETS, .usual = FP_OVER_PACKETS }};\n{body}\n"
    );
    fs::write(directory.join("mine.c"), text).expect("written");
}

#[test]
fn a_new_policy_is_one_that_check_accepts() {
    for over in ["packets", "flows"] {
        let directory = directory();
        let made = sched(directory.path(), &["new", "mine", "--over", over]);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        let said = stdout(&made);
        for verb in ["check", "test", "run"] {
            assert!(
                said.contains(&format!("fairpath sched {verb} mine.c")),
                "{said}"
            );
        }
        let checked = sched(directory.path(), &["check", "mine.c"]);
        assert_eq!(
            checked.status.code(),
            Some(0),
            "{}{}",
            stdout(&checked),
            stderr(&checked)
        );
        let said = stdout(&checked);
        assert!(
            said.ends_with("ok\n") && said.contains("parameter"),
            "{said}"
        );
    }
}

#[test]
fn as_root_the_verifier_is_asked_and_both_homes_agree() {
    requires!(Need::Root);
    let directory = directory();
    sched(directory.path(), &["new", "mine"]);
    let checked = sched(directory.path(), &["check", "mine.c", "--format", "json"]);
    let found = json(&checked);
    assert_eq!(found["schema"], 1);
    assert_eq!(found["ok"], true, "{found}");
    assert_eq!(found["verifier"], "accepted");
    assert!(found["functions"][0]["verified_instructions"].as_u64() > Some(0));
    assert_eq!(
        found["trials"][0]["homes"],
        serde_json::json!(["native", "kernel"])
    );
    assert!(
        found["trials"][0]["sent_packets"].as_u64() > Some(5000),
        "{found}"
    );
    assert_eq!(found["policy"]["params"][0]["name"], "per_byte");
}

#[test]
fn nothing_is_overwritten() {
    for there in ["mine.c", "mine.lua"] {
        let directory = directory();
        fs::write(directory.path().join(there), "precious").expect("written");
        let made = sched(directory.path(), &["new", "mine"]);
        assert_eq!(made.status.code(), Some(1));
        assert!(
            stderr(&made).contains("it is there already"),
            "{}",
            stderr(&made)
        );
        let files: Vec<_> = fs::read_dir(directory.path()).expect("readable").collect();
        assert_eq!(files.len(), 1, "no half of a policy is left");
        let text = fs::read_to_string(directory.path().join(there)).expect("readable");
        assert_eq!(text, "precious");
    }
}

#[test]
fn names_that_nobody_could_use_are_refused() {
    let directory = directory();
    for name in [
        "Mine",
        "9",
        "a b",
        "../mine",
        "fifo",
        "a-name-of-more-than-23-letters",
        "",
    ] {
        let made = sched(directory.path(), &["new", name]);
        assert_eq!(made.status.code(), Some(1), "{name}: {}", stdout(&made));
    }
    assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
    let usage = sched(directory.path(), &["new", "mine", "--over", "roots"]);
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_status_1() {
    let directory = directory();
    let cases = [
        ("RANK_ENQUEUE { return p->hint / f->value; }", "div(a, b)"),
        ("RANK_ENQUEUE { return p->nothing; }", "nothing"),
        ("static u64 n; RANK_ENQUEUE { return n++; }", "variable n"),
        (
            "RANK_ENQUEUE { return 0; } SEND_TIME { return NEVER; }",
            "never leave",
        ),
    ];
    for (body, wanted) in cases {
        policy(directory.path(), body);
        let checked = sched(directory.path(), &["check", "mine.c"]);
        let said = stdout(&checked);
        assert_eq!(checked.status.code(), Some(1), "{said}");
        assert!(
            said.contains("problem") && said.contains(wanted),
            "{body}: {said}"
        );
        let checked = sched(directory.path(), &["check", "mine.c", "--format", "json"]);
        let found = json(&checked);
        assert_eq!(found["ok"], false);
        assert!(
            found["problems"][0]
                .as_str()
                .is_some_and(|told| told.contains(wanted)),
            "{found}"
        );
    }
    assert_eq!(sched(directory.path(), &["check"]).status.code(), Some(2));
}

#[test]
fn a_tree_is_checked_with_the_policy_in_it() {
    let directory = directory();
    policy(directory.path(), "RANK_ENQUEUE { return r->now; }");
    let tree = "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n\n\
                [[node]]\nname = \"leaf\"\nparent = \"root\"\npolicy = \"mine\"\nmatch = { class = \"*\" }\n";
    fs::write(directory.path().join("tree.toml"), tree).expect("written");
    let checked = sched(directory.path(), &["check", "mine.c", "tree.toml"]);
    let said = stdout(&checked);
    assert_eq!(checked.status.code(), Some(0), "{said}{}", stderr(&checked));
    assert!(said.contains("tree.toml: well-formed, 2 nodes"), "{said}");
    fs::write(
        directory.path().join("tree.toml"),
        tree.replace("\"mine\"", "\"other\""),
    )
    .expect("written");
    let checked = sched(directory.path(), &["check", "mine.c", "tree.toml"]);
    let said = stdout(&checked);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(
        said.contains("tree.toml:8") && said.contains("other"),
        "{said}"
    );
}

#[test]
fn without_clang_an_author_is_told_what_to_install() {
    let directory = directory();
    policy(directory.path(), "RANK_ENQUEUE { return 0; }");
    let old = directory.path().join("clang");
    fs::write(&old, "#!/bin/sh\necho 14.0.6\n").expect("written");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).expect("executable");
    for clang in [old.as_path(), Path::new("/nowhere/clang")] {
        let mut command = binary::command(binary::fairpath());
        command
            .args(["sched", "check", "mine.c"])
            .env("CLANG", clang);
        let checked = command
            .current_dir(directory.path())
            .output()
            .expect("it runs");
        assert_eq!(checked.status.code(), Some(1));
        assert!(
            stdout(&checked).contains("apt-get install clang-19"),
            "{}",
            stdout(&checked)
        );
    }
}
