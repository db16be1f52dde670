//! `fairpath sched new` and `fairpath sched check` through the binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use fairpath_core::sched::{Policy, policies};
use fairpath_testbed::{Need, Testbed, requires, wait_for};
use fairpath_tests::{PATIENCE, binary};
use nix::sys::signal::Signal;
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
fn check_accepts_new_policies() {
    for over in ["packets", "flows"] {
        let directory = directory();
        let made = sched(directory.path(), &["new", "mine", "--over", over]);
        assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
        let printed = stdout(&made);
        for verb in ["check", "test", "run"] {
            assert!(
                printed.contains(&format!("fairpath sched {verb} mine.c")),
                "{printed}"
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
        let printed = stdout(&checked);
        assert!(
            printed.ends_with("ok\n") && printed.contains("parameter"),
            "{printed}"
        );
    }
}

#[test]
fn verifier_accepts_and_both_runtimes_agree() {
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
        found["trials"][0]["runtimes"],
        serde_json::json!(["interpreted", "compiled", "kernel"])
    );
    assert!(
        found["trials"][0]["sent_packets"].as_u64() > Some(5000),
        "{found}"
    );
    assert_eq!(found["policy"]["params"][0]["name"], "per_byte");
}

/// Also a policy that is added later.
#[test]
fn every_built_in_policy_is_a_beginning() {
    for Policy { name, .. } in policies() {
        let directory = directory();
        let made = sched(directory.path(), &["new", "mine", "--like", name]);
        assert_eq!(made.status.code(), Some(0), "{name}: {}", stderr(&made));
        let printed = stdout(&made);
        let test = printed
            .lines()
            .find_map(|line| line.split("sched test ").nth(1));
        let test = test
            .and_then(|line| line.split("  #").next())
            .expect("a line");
        let mut words = vec!["test"];
        words.extend(test.split_whitespace());
        let tested = sched(directory.path(), &words);
        assert_eq!(tested.status.code(), Some(0), "{name}: {}", stdout(&tested));
        assert!(!stdout(&tested).contains("1..0"), "{name} has no test");
        let text = fs::read_to_string(directory.path().join("mine.c")).expect("written");
        assert!(text.contains(".name = \"mine\""), "{name}");
        assert!(!text.contains(&format!("\"{name}\"")), "{name}");
    }
    let wrong = sched(directory().path(), &["new", "mine", "--like", "fq_coddel"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        stderr(&wrong).contains("did you mean fq_codel?"),
        "{}",
        stderr(&wrong)
    );
}

#[test]
fn watched_files_are_checked_after_each_save() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    sched(directory.path(), &["new", "mine"]);
    fs::write(
        at("mine.toml"),
        "[[node]]\nname = \"mine\"\npolicy = \"mine\"\n",
    )
    .expect("written");
    let good = fs::read_to_string(at("mine.c")).expect("readable");
    for words in [
        &["check", "mine.c", "mine.toml", "--watch"][..],
        &["test", "mine.c", "mine.lua", "--watch"],
    ] {
        let mut command = binary::command(binary::fairpath());
        command
            .arg("sched")
            .args(words)
            .current_dir(directory.path());
        let here = Testbed::new().current_netns().expect("a namespace");
        let process = here.spawn(command).expect("it starts");
        let run = |number: usize, change: &str| {
            let runs = || process.stderr().matches("waiting for a change").count();
            let done = wait_for(PATIENCE, || (runs() == number).then_some(()));
            let printed = process.stderr();
            assert!(
                done.is_some() && printed.contains(change),
                "{number}: {printed}"
            );
        };
        run(1, "");
        // In place, by another file, by a header that comes and goes.
        let wrong = good.replace("RANK_ENQUEUE\n", "RANK_ENQUEUE wrong\n");
        fs::write(at("mine.c"), wrong).expect("written");
        run(2, "fairpath: error: ");
        fs::write(at("new.c"), format!("#include \"own.h\"\n{good}")).expect("written");
        fs::rename(at("new.c"), at("mine.c")).expect("renamed");
        run(3, "mine.c changed\n");
        fs::write(at("own.h"), "").expect("written");
        run(4, "own.h changed\n");
        fs::remove_file(at("own.h")).expect("removed");
        run(5, "own.h changed\n");
        process.signal(Signal::SIGINT);
        let failed = process.finish(PATIENCE).expect_err("the last run failed");
        assert!(failed.to_string().contains("interrupted: "), "{failed}");
        fs::write(at("mine.c"), &good).expect("written");
    }
}

#[test]
fn existing_files_are_not_overwritten() {
    for there in ["mine.c", "mine.lua"] {
        let directory = directory();
        fs::write(directory.path().join(there), "precious").expect("written");
        let made = sched(directory.path(), &["new", "mine"]);
        assert_eq!(made.status.code(), Some(1));
        assert!(
            stderr(&made).contains("the file exists"),
            "{}",
            stderr(&made)
        );
        let files: Vec<_> = fs::read_dir(directory.path()).expect("readable").collect();
        assert_eq!(files.len(), 1, "no other file is written");
        let text = fs::read_to_string(directory.path().join(there)).expect("readable");
        assert_eq!(text, "precious");
    }
}

#[test]
fn invalid_policy_names_are_refused() {
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

/// The problem that `sched check` prints for a policy that the verifier refuses: all but its facts.
fn refusal(body: &str) -> String {
    let directory = directory();
    policy(directory.path(), body);
    let checked = sched(directory.path(), &["check", "mine.c"]);
    assert_eq!(checked.status.code(), Some(1), "{body}: {checked:?}");
    let printed = stdout(&checked);
    let (_, problem) = printed.split_once("problem   ").expect("a problem");
    problem.to_owned()
}

/// True if a text has values of registers or of the verifier's states.
fn has_registers(text: &str) -> bool {
    ["R1=", "R10=", "fp0", " state:", "processed "]
        .iter()
        .any(|part| text.contains(part))
}

#[test]
fn endless_loops_are_refused_by_function_and_line() {
    requires!(Need::Root);
    let barrier = "asm volatile(\"\" ::: \"memory\")";
    for (body, function, line) in [
        (
            "RANK_ENQUEUE\n{\n\twhile (1)\n\t\t;\n\treturn 0;\n}".to_owned(),
            "RANK_ENQUEUE",
            "mine.c:9: while (1)",
        ),
        (
            format!(
                "RANK_ENQUEUE\n{{\n\tif (p->hint)\n\t\twhile (1)\n\t\t\t{barrier};\n\treturn 0;\n}}"
            ),
            "RANK_ENQUEUE",
            "mine.c:10: while (1)",
        ),
        (
            format!(
                "RANK_ENQUEUE\n{{\n\treturn 0;\n}}\nSEND_TIME\n{{\n\twhile (1)\n\t\t{barrier};\n}}"
            ),
            "SEND_TIME",
            "mine.c:13: while (1)",
        ),
    ] {
        let problem = refusal(&body);
        let expected = format!(
            "the verifier refuses {function} at {line}\n  \
             the loop may never end: loop a constant number of times (verifier: infinite loop detected at insn "
        );
        assert!(problem.starts_with(&expected), "{body}: {problem}");
        assert!(!has_registers(&problem), "{problem}");
        assert_eq!(problem.lines().count(), 2, "{problem}");
    }
}

/// The verifier names no function if it refuses the program as a whole.
#[test]
fn refusals_without_function_name_the_policy() {
    requires!(Need::Root);
    for (body, reason) in [
        (
            "RANK_ENQUEUE\n{\n\tasm volatile(\"exit\");\n\treturn 7;\n}",
            "it has instructions that never run: ",
        ),
        (
            "RANK_ENQUEUE\n{\n\tvolatile u64 many[50];\n\tmany[p->dscp & 31] = 1;\n\treturn many[3];\n}",
            "it needs too much stack: ",
        ),
    ] {
        let problem = refusal(body);
        let expected = format!("the verifier refuses the policy\n  {reason}");
        assert!(problem.starts_with(&expected), "{body}: {problem}");
        assert!(!has_registers(&problem), "{problem}");
    }
}

#[test]
fn problems_have_their_line_and_exit_with_1() {
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
        let printed = stdout(&checked);
        assert_eq!(checked.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("problem") && printed.contains(wanted),
            "{body}: {printed}"
        );
        let checked = sched(directory.path(), &["check", "mine.c", "--format", "json"]);
        let found = json(&checked);
        assert_eq!(found["ok"], false);
        assert!(
            found["problems"][0]
                .as_str()
                .is_some_and(|text| text.contains(wanted)),
            "{found}"
        );
    }
    assert_eq!(sched(directory.path(), &["check"]).status.code(), Some(2));
}

#[test]
fn tree_is_checked_with_its_custom_policy() {
    let directory = directory();
    policy(directory.path(), "RANK_ENQUEUE { return r->now; }");
    let tree = "[[node]]\nname = \"root\"\npolicy = \"stfq\"\n\n\
                [[node]]\nname = \"leaf\"\nparent = \"root\"\npolicy = \"mine\"\nmatch = { class = \"*\" }\n";
    fs::write(directory.path().join("tree.toml"), tree).expect("written");
    let checked = sched(directory.path(), &["check", "mine.c", "tree.toml"]);
    let printed = stdout(&checked);
    assert_eq!(
        checked.status.code(),
        Some(0),
        "{printed}{}",
        stderr(&checked)
    );
    assert!(printed.contains("tree.toml: valid, 2 nodes"), "{printed}");
    fs::write(
        directory.path().join("tree.toml"),
        tree.replace("\"mine\"", "\"other\""),
    )
    .expect("written");
    let checked = sched(directory.path(), &["check", "mine.c", "tree.toml"]);
    let printed = stdout(&checked);
    assert_eq!(checked.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("tree.toml:8") && printed.contains("other"),
        "{printed}"
    );
}

#[test]
fn missing_clang_error_names_the_package() {
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

#[test]
fn closed_output_is_no_failure() {
    let directory = directory();
    let mut command = binary::command(binary::fairpath());
    command
        .current_dir(directory.path())
        .args(["sched", "new", "mine"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn useless_policies_fail_the_check() {
    let directory = directory();
    for (body, problem) in [
        (
            "RANK_ENQUEUE { return 0; }\nSEND_TIME { return NEVER; }",
            "never leave",
        ),
        (
            "RANK_ENQUEUE { r->verdict = DROP; return 0; }",
            "no packet is sent",
        ),
        (
            "RANK_ENQUEUE { r->verdict = 64; return 0; }",
            "RANK_ENQUEUE returns the undefined verdict 0x40",
        ),
    ] {
        policy(directory.path(), body);
        let checked = sched(directory.path(), &["check", "mine.c"]);
        assert_eq!(checked.status.code(), Some(1), "{body}");
        let printed = stdout(&checked);
        assert!(printed.contains(problem), "{problem} is not in: {printed}");
    }
    let checked = sched(directory.path(), &["check", "tree.toml"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        stdout(&checked).contains("is a tree"),
        "{}",
        stdout(&checked)
    );
}

#[test]
fn packets_without_a_time_end_the_run() {
    let directory = directory();
    let run = |more: &[&str]| {
        let words = ["run", "mine.c", "--rate", "10mbit", "--duration", "1s"];
        sched(
            directory.path(),
            &[&words[..], &["--traffic", "bulk"], more].concat(),
        )
    };
    policy(
        directory.path(),
        "RANK_ENQUEUE { return 0; }\nSEND_TIME { return NEVER; }",
    );
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("from SEND_TIME, not NEVER"),
        "{}",
        stderr(&output)
    );
    // A flow that always waits: the times of the link are those of the run.
    policy(
        directory.path(),
        "RANK_ENQUEUE { return 0; }\nRANK_DEQUEUE { r->verdict = LATER; return r->rank; }",
    );
    let file = directory.path().join("mine.c");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("PACKETS", "FLOWS");
    fs::write(&file, text).unwrap();
    let output = run(&["--format", "json"]);
    let found = json(&output);
    let link = found["link"].as_object().expect("the times of the link");
    let times = link.iter().filter(|(name, _)| name.ends_with("_ns"));
    let sum: u64 = times.filter_map(|(_, time)| time.as_u64()).sum();
    assert_eq!(sum, 1_000_000_000, "{link:?}");
}
