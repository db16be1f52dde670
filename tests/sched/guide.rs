//! The pages of the guide about `fairpath sched`, typed literally by a new user.
//!
//! In a block that begins with `$ `, every such line is a command, which a shell runs in a fresh copy
//! of `example/`, one page after the other commands of it; what it prints, errors included, follows.
//! A line "`NAME`:" above a block says that the block is the file NAME of `example/`. Commands
//! behind `sudo` are typed by root only, those that compile only where clang is.

use std::fs;
use std::path::Path;
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

fn page(name: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide");
    fs::read_to_string(guide.join(name)).unwrap()
}

/// The blocks of a page, each with the file that it is, if any.
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

/// A command of a block, and what it prints.
struct Typed {
    command: String,
    printed: String,
}

fn typed(block: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        let begins = line.strip_prefix("$ ").filter(|_| !goes_on);
        match (begins, all.last_mut()) {
            (Some(command), _) => all.push(Typed {
                command: command.to_owned(),
                printed: String::new(),
            }),
            (None, Some(last)) if goes_on => last.command += &format!("\n{line}"),
            (None, Some(last)) => last.printed += &format!("{line}\n"),
            (None, None) => panic!("a block without a command: {line}"),
        }
        goes_on = line.ends_with('\\') && (begins.is_some() || goes_on);
    }
    all
}

/// Instructions are clang's and the kernel's to choose; so is nothing else.
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
fn every_page_shows_what_the_binary_prints() {
    let has_clang = succeeds("clang-19", "--version") || std::env::var_os("CLANG").is_some();
    let mut skipped = None;
    for name in PAGES {
        let directory = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(example()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), directory.path().join(entry.file_name())).unwrap();
        }
        for (file, block) in blocks(&page(name)) {
            if let Some(file) = file {
                let there = fs::read_to_string(example().join(&file)).unwrap();
                assert_eq!(there, block, "{name}: {file}");
                continue;
            }
            if !block.starts_with("$ ") {
                continue;
            }
            for Typed { command, printed } in typed(&block) {
                if command.starts_with("sudo ") && !is_root() {
                    skipped = Some(("root", "the verifier and the kernel home want privileges"));
                    continue;
                }
                if command.contains("shortest.c") && !has_clang {
                    skipped = Some(("command:clang-19", "authors' policies are compiled by it"));
                    continue;
                }
                let got = shell(directory.path(), command.trim_start_matches("sudo "));
                assert_eq!(
                    without_counts(&got),
                    without_counts(&printed),
                    "{name} shows, and the binary prints something else:\n$ {command}\n{got}"
                );
            }
        }
    }
    if let Some((need, reason)) = skipped {
        skip_test(
            "guide::every_page_shows_what_the_binary_prints",
            need,
            reason,
        );
    }
}

#[test]
fn the_page_on_policies_names_each_that_is_compiled_in() {
    let page = page("sched-policies.md");
    for policy in policies() {
        let row = format!("\n| `{}` | ", policy.name);
        assert!(page.contains(&row), "no row of {}", policy.name);
    }
}
