//! Runs the commands of the guide pages about `fairpath sched` and compares their output.
//!
//! In a block that begins with `$ `, each such line is a command, followed by its output with errors.
//! A shell runs the commands of a page in order, in a new copy of `example/`. A line "`NAME`:" above a
//! block means that the block is the file NAME of `example/`. Commands with `sudo` run as root only,
//! and compiling commands need clang. FAIRPATH_GUIDE=write updates the pages for review.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairpath_core::sched::policies;
use fairpath_tests::binary;
use fairpath_units::skip_test;

use super::{example, stdout};

const PAGES: [&str; 4] = [
    "sched.md",
    "sched-scripts.md",
    "sched-policies.md",
    "sched-trees.md",
];

fn path(name: &str) -> PathBuf {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    guide.join(name)
}

fn page(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// Replaces the output of a command in a page.
fn rewrite(name: &str, typed: &Typed, got: &str) {
    let shown = |printed: &str| format!("$ {}\n{printed}", typed.command);
    let text = page(name).replacen(&shown(&typed.printed), &shown(got), 1);
    fs::write(path(name), text).unwrap();
}

/// The blocks of a page, each with the name of its file, if any.
fn blocks(page: &str) -> Vec<(Option<String>, String)> {
    let (mut blocks, mut file, mut block) = (Vec::new(), None, None);
    for line in page.lines() {
        match (&mut block, line) {
            (None, "```") => block = Some(String::new()),
            (Some(_), "```") => blocks.push((file.take(), block.take().unwrap_or_default())),
            (Some(text), line) => *text += &format!("{line}\n"),
            (None, line) => {
                let name = line
                    .strip_prefix('`')
                    .and_then(|rest| rest.strip_suffix("`:"));
                if let Some(name) = name {
                    file = Some(name.to_owned());
                }
            }
        }
    }
    blocks
}

/// A command of a block and its output.
struct Typed {
    command: String,
    printed: String,
}

fn typed(block: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    let mut continues = false;
    for line in block.lines() {
        let begins = line.strip_prefix("$ ").filter(|_| !continues);
        match (begins, all.last_mut()) {
            (Some(command), _) => all.push(Typed {
                command: command.to_owned(),
                printed: String::new(),
            }),
            (None, Some(last)) if continues => last.command += &format!("\n{line}"),
            (None, Some(last)) => last.printed += &format!("{line}\n"),
            (None, None) => panic!("a block without a command: {line}"),
        }
        continues = line.ends_with('\\') && (begins.is_some() || continues);
    }
    all
}

/// Removes the numbers of instructions, which depend on clang and the kernel.
fn without_counts(text: &str) -> String {
    let line = |line: &str| match line.starts_with("compiled ") {
        true => line.chars().filter(|c| !c.is_ascii_digit()).collect(),
        false => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<String>>().join("\n")
}

fn shell(directory: &Path, command: &str) -> String {
    let binaries = binary::fairpath().parent().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .env("PATH", format!("{}:{path}", binaries.display()))
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    stdout(&output)
}

fn succeeds(program: &str, argument: &str) -> bool {
    let ran = Command::new(program).arg(argument).output();
    ran.is_ok_and(|output| output.status.success())
}

fn is_root() -> bool {
    stdout(&Command::new("id").arg("-u").output().unwrap()).trim() == "0"
}

#[test]
fn pages_show_the_actual_output() {
    let has_clang = succeeds("clang-19", "--version") || std::env::var_os("CLANG").is_some();
    let write = std::env::var("FAIRPATH_GUIDE").is_ok_and(|value| value == "write");
    let mut skipped = None;
    for name in PAGES {
        let directory = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(example()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
        }
        for (file, block) in blocks(&page(name)) {
            if let Some(file) = file {
                let content = fs::read_to_string(example().join(&file)).unwrap();
                if content != block && write {
                    let text = page(name).replacen(&block, &content, 1);
                    fs::write(path(name), text).unwrap();
                    continue;
                }
                assert_eq!(content, block, "{name}: {file}");
                continue;
            }
            if !block.starts_with("$ ") {
                continue;
            }
            for typed in typed(&block) {
                let Typed { command, printed } = &typed;
                if command.starts_with("sudo ") && !is_root() {
                    skipped = Some((
                        "root",
                        "the verifier and the kernel runtime need privileges",
                    ));
                    continue;
                }
                if command.contains("shortest.c") && !has_clang {
                    skipped = Some(("command:clang-19", "it compiles custom policies"));
                    continue;
                }
                let got = shell(directory.path(), command.trim_start_matches("sudo "));
                if without_counts(&got) != without_counts(printed) && write {
                    rewrite(name, &typed, &got);
                    continue;
                }
                assert_eq!(
                    without_counts(&got),
                    without_counts(printed),
                    "{name} differs from the output of the binary:\n$ {command}\n{got}"
                );
            }
        }
    }
    if let Some((need, reason)) = skipped {
        skip_test("guide::pages_show_the_actual_output", need, reason);
    }
}

#[test]
fn policy_page_names_every_built_in_policy() {
    let page = page("sched-policies.md");
    for policy in policies() {
        let row = format!("\n| `{}` | ", policy.name);
        assert!(page.contains(&row), "no row of {}", policy.name);
    }
}
