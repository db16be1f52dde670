//! Files that commands write where other users can prepare links.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Output;

use crate::{binaries, run, stderr};

const PRECIOUS: &str = "precious";
const TRAFFIC: [&str; 4] = ["--rate", "10mbit", "--traffic", "bulk"];

/// A directory that every user can write, as `/tmp`, with links to a file of this user.
struct Shared {
    place: tempfile::TempDir,
}

impl Shared {
    fn new(names: &[String]) -> Shared {
        let place = tempfile::tempdir().unwrap();
        let shared = Shared { place };
        fs::write(shared.secret(), PRECIOUS).unwrap();
        fs::create_dir(shared.path()).unwrap();
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        for name in names {
            symlink(shared.secret(), shared.path().join(name)).unwrap();
        }
        shared
    }

    fn secret(&self) -> PathBuf {
        self.place.path().join("secret")
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("shared")
    }
}

/// Runs a binary if it is built; `@` in its words is the directory.
fn run_in(shared: &Shared, binary: &str, words: &[&str]) -> Option<Output> {
    let mut binaries = binaries().into_iter();
    let binary = binaries.find(|found| found.words.last() == Some(&binary))?;
    let place = shared.path();
    let words: Vec<String> = words
        .iter()
        .map(|word| word.replace('@', place.to_str().unwrap()))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(run(&binary.path, &words))
}

#[test]
fn no_command_writes_through_a_prepared_link() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/author/author/scripts/fifo.lua"
    );
    let run = |option| [&["run", "fifo", option, "@/out"][..], &TRAFFIC].concat();
    for (binary, words) in [
        (
            "fairpath",
            vec!["rtt", "-r", "golden/plain.pcap", "--write", "@/out"],
        ),
        ("sched", run("--svg")),
        ("sched", run("--record")),
        ("sched", vec!["test", "fifo", script, "--record", "@/out"]),
        ("sched", vec!["new", "out", "--output", "@"]),
    ] {
        let shared = Shared::new(&["out".into(), "out.c".into(), "out.lua".into()]);
        let Some(output) = run_in(&shared, binary, &words) else {
            continue;
        };
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {error}");
        let secret = fs::read_to_string(shared.secret()).unwrap();
        assert_eq!(secret, PRECIOUS, "{words:?}");
    }
}

#[test]
fn generated_files_replace_prepared_links() {
    for (binary, words) in [
        ("fairpath", &["generate", "man", "@"][..]),
        ("fairpath", &["generate", "completions", "@"]),
        ("sched", &["generate", "man", "@"]),
        ("lab", &["generate", "man", "@"]),
    ] {
        let clean = Shared::new(&[]);
        if run_in(&clean, binary, words).is_none() {
            continue;
        }
        let names: Vec<String> = fs::read_dir(clean.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(!names.is_empty(), "{binary} {words:?}");
        let shared = Shared::new(&names);
        let output = run_in(&shared, binary, words).unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        for name in names {
            let file = fs::symlink_metadata(shared.path().join(&name)).unwrap();
            assert!(file.is_file(), "{words:?}: {name}");
        }
        let secret = fs::read_to_string(shared.secret()).unwrap();
        assert_eq!(secret, PRECIOUS, "{words:?}");
    }
}
