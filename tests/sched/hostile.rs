//! Invalid and hostile input of `fairpath sched`: each has a clear error with a remedy, exit status 1,
//! and no results on standard output.

use std::fs;
use std::path::Path;
use std::process::Command;

use fairpath_tests::binary;
use fairpath_units::skip_test;

use super::{example, sched, stderr, stdout};

const TRAFFIC: [&str; 4] = ["--rate", "1mbit", "--traffic", "bulk"];

/// Invalid files of every kind: directories, empty files and random bytes.
fn bad_files() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let noise: Vec<u8> = (0..4000u32)
        .map(|at| (at * at * 7 + at) as u8 | 0x80)
        .collect();
    for ending in ["lua", "toml", "c", "log", "pcap"] {
        let path = |name: &str| directory.path().join(format!("{name}.{ending}"));
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("empty"), "").unwrap();
        fs::write(path("noise"), &noise).unwrap();
    }
    fs::copy(
        example().join("weights.lua"),
        directory.path().join("w.lua"),
    )
    .unwrap();
    directory
}

/// Runs each command, which must fail with the given text.
fn fails(directory: &Path, cases: &[(&[&str], &str)]) {
    for (words, expected) in cases {
        let output = sched(directory, words);
        let printed = stderr(&output) + &stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(printed.contains(expected), "{words:?}: {printed}");
        assert!(!printed.contains("panicked"), "{words:?}: {printed}");
    }
}

#[test]
fn invalid_files_are_named_with_their_cause() {
    let directory = bad_files();
    let run = |tree| [&["run", tree], &TRAFFIC[..]].concat();
    let cases: [(&[&str], &str); 19] = [
        (
            &["test", "fifo", "none.lua"],
            "read script none.lua: No such file",
        ),
        (
            &["test", "fifo", "directory.lua"],
            "directory.lua: Is a directory",
        ),
        (&["test", "fifo", "noise.lua"], "noise.lua:1: script error"),
        (&["test", "none.toml", "w.lua"], "none.toml\": No such file"),
        (
            &["test", "directory.toml", "w.lua"],
            "directory.toml\": Is a directory",
        ),
        (
            &["test", "noise.toml", "w.lua"],
            "noise.toml\": the file is not UTF-8 text",
        ),
        (
            &["test", "empty.toml", "w.lua"],
            "write a [[node]] with a name",
        ),
        (&["test", "none.c", "w.lua"], "read none.c: No such file"),
        (&["test", "directory.c", "w.lua"], "directory.c"),
        (&run("none.toml"), "none.toml\": No such file"),
        (
            &run("noise.toml"),
            "noise.toml\": the file is not UTF-8 text",
        ),
        (
            &["run", "fifo", "--rate", "1mbit", "--read", "noise.pcap"],
            "not a pcap",
        ),
        (
            &["run", "fifo", "--rate", "1mbit", "--read", "directory.pcap"],
            "Is a directory",
        ),
        (&["replay", "none.log"], "open none.log: No such file"),
        (&["replay", "directory.log"], "Is a directory"),
        (
            &["replay", "noise.log"],
            "byte 0: the file is not an operation log",
        ),
        (&["replay", "empty.log"], "too short to be a log"),
        (&["check", "none.c"], "read none.c: No such file"),
        (&["show", "none.c"], "read none.c: No such file"),
    ];
    fails(directory.path(), &cases);
}

#[test]
fn out_of_range_numbers_are_refused_first() {
    let directory = bad_files();
    let run = |more: &[&'static str]| [&["run", "codel", "--rate", "1mbit"], more].concat();
    let cases: [(&[&str], &str); 6] = [
        (
            &run(&["--traffic", "cbr rate=99999gbit"]),
            "exceeds one packet per nanosecond",
        ),
        (&run(&["--traffic", "bulk flows=99999999"]), "flows"),
        (
            &run(&["--traffic", "bulk", "--set", "target=99999999999h"]),
            "is too large, the maximum is 104 days",
        ),
        (
            &run(&["--traffic", "bulk", "--set", "target=5s"]),
            "out of range: write 1us to 1s",
        ),
        (
            &["test", "fifo", "w.lua", "--max-memory", "1"],
            "raise it with --max-memory",
        ),
        (
            &["test", "fifo", "w.lua", "--max-instructions", "0"],
            "limit with --max-instructions",
        ),
    ];
    fails(directory.path(), &cases);
    for words in [
        ["--rate", "2000tbit"],
        ["--duration", "99999999min"],
        ["--overhead", "1MB"],
        ["--seed", "-1"],
    ] {
        let all = [&["run", "fifo", "--traffic", "bulk"], &words[..]].concat();
        let output = sched(directory.path(), &all);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn corrupt_logs_are_refused_with_their_offset() {
    let directory = bad_files();
    let log = directory.path().join("ok.log");
    let words = [
        "run",
        "drr",
        "--rate",
        "1mbit",
        "--duration",
        "1s",
        "--traffic",
        "bulk",
        "--record",
        "ok.log",
    ];
    assert!(sched(directory.path(), &words).status.success());
    let whole = fs::read(&log).unwrap();
    for cut in [1, 11, whole.len() / 2, whole.len() - 1] {
        fs::write(&log, &whole[..cut]).unwrap();
        fails(
            directory.path(),
            &[(&["replay", "ok.log"], "operation log, byte ")],
        );
    }
    for at in (0..whole.len()).step_by(whole.len() / 16) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(&log, changed).unwrap();
        fails(
            directory.path(),
            &[(&["replay", "ok.log"], "operation log, byte ")],
        );
    }
}

#[test]
fn kernel_runtime_names_missing_capabilities_once() {
    let directory = bad_files();
    let open = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(directory.path(), 0o755);
    let words = [
        "run",
        "drr",
        "--rate",
        "1mbit",
        "--duration",
        "1s",
        "--traffic",
        "bulk",
        "--record",
        "ok.log",
    ];
    assert!(sched(directory.path(), &words).status.success());
    for words in [
        &[
            "run",
            "fifo",
            "--runtime",
            "kernel",
            "--rate",
            "1mbit",
            "--traffic",
            "bulk",
        ][..],
        &["test", "fifo", "w.lua", "--runtime", "both"],
        &["replay", "ok.log", "--runtime", "kernel"],
    ] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "--"])
            .arg(binary::fairpath())
            .arg("sched")
            .args(words)
            .current_dir(directory.path())
            .output();
        let printed = output.as_ref().map(stderr).unwrap_or_default();
        if output.is_err() || printed.contains("setpriv:") {
            skip_test(
                "hostile::kernel_runtime_names_missing_capabilities_once",
                "root",
                "setpriv needs privileges that it can drop",
            );
            return;
        }
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert_eq!(
            printed.matches("needs CAP_BPF and CAP_PERFMON").count(),
            1,
            "{printed}"
        );
        assert_eq!(stdout(&output), "", "{words:?}");
    }
}
