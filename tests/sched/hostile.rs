//! What is put into `fairpath sched` by mistake or malice: each a clear error with what to do, exit
//! status 1, and nothing on standard output that looks like a result.

use std::fs;
use std::path::Path;
use std::process::Command;

use fairpath_tests::binary;
use fairpath_units::skip_test;

use super::{example, sched, stderr, stdout};

const TRAFFIC: [&str; 4] = ["--rate", "1mbit", "--traffic", "bulk"];

/// Files of every kind that are none: a directory, nothing, noise.
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

/// Runs each, which must fail as told.
fn fails(directory: &Path, cases: &[(&[&str], &str)]) {
    for (words, told) in cases {
        let output = sched(directory, words);
        let said = stderr(&output) + &stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
        assert!(!said.contains("panicked"), "{words:?}: {said}");
    }
}

#[test]
fn what_is_no_script_tree_log_or_capture_is_told_with_its_name_and_cause() {
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
            "noise.toml\": it is no text in UTF-8",
        ),
        (
            &["test", "empty.toml", "w.lua"],
            "write a [[node]] with a name",
        ),
        (&["test", "none.c", "w.lua"], "read none.c: No such file"),
        (&["test", "directory.c", "w.lua"], "directory.c"),
        (&run("none.toml"), "none.toml\": No such file"),
        (&run("noise.toml"), "noise.toml\": it is no text in UTF-8"),
        (
            &["run", "fifo", "--rate", "1mbit", "--pcap", "noise.pcap"],
            "not a pcap",
        ),
        (
            &["run", "fifo", "--rate", "1mbit", "--pcap", "directory.pcap"],
            "Is a directory",
        ),
        (&["replay", "none.log"], "open none.log: No such file"),
        (&["replay", "directory.log"], "Is a directory"),
        (
            &["replay", "noise.log"],
            "byte 0: this is not an operation log",
        ),
        (&["replay", "empty.log"], "too short to be a log"),
        (&["check", "none.c"], "read none.c: No such file"),
        (&["show", "none.c"], "read none.c: No such file"),
    ];
    fails(directory.path(), &cases);
}

#[test]
fn numbers_beyond_all_limits_are_refused_before_anything_runs() {
    let directory = bad_files();
    let run = |more: &[&'static str]| [&["run", "codel", "--rate", "1mbit"], more].concat();
    let cases: [(&[&str], &str); 6] = [
        (
            &run(&["--traffic", "cbr rate=99999gbit"]),
            "more often than one a nanosecond",
        ),
        (&run(&["--traffic", "bulk flows=99999999"]), "flows"),
        (
            &run(&["--traffic", "bulk", "--set", "target=99999999999h"]),
            "that fits",
        ),
        (
            &run(&["--traffic", "bulk", "--set", "target=5s"]),
            "out of range; 1us to 1s",
        ),
        (
            &["test", "fifo", "w.lua", "--max-memory", "1"],
            "--max-memory allows more",
        ),
        (
            &["test", "fifo", "w.lua", "--max-instructions", "0"],
            "--max-instructions allows more",
        ),
    ];
    fails(directory.path(), &cases);
    for words in [
        ["--rate", "2000tbit"],
        ["--for", "99999999min"],
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
fn a_log_that_was_cut_or_changed_is_refused_with_the_byte() {
    let directory = bad_files();
    let log = directory.path().join("ok.log");
    let words = [
        "run",
        "drr",
        "--rate",
        "1mbit",
        "--for",
        "1s",
        "--traffic",
        "bulk",
        "--log",
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
fn without_privileges_the_kernel_home_says_once_which_it_needs() {
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
        "--for",
        "1s",
        "--traffic",
        "bulk",
        "--log",
        "ok.log",
    ];
    assert!(sched(directory.path(), &words).status.success());
    for words in [
        &[
            "run",
            "fifo",
            "--home",
            "kernel",
            "--rate",
            "1mbit",
            "--traffic",
            "bulk",
        ][..],
        &["test", "fifo", "w.lua", "--home", "both"],
        &["replay", "ok.log", "--home", "kernel"],
    ] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "--"])
            .arg(binary::fairpath())
            .arg("sched")
            .args(words)
            .current_dir(directory.path())
            .output();
        let said = output.as_ref().map(stderr).unwrap_or_default();
        if output.is_err() || said.contains("setpriv:") {
            skip_test(
                "hostile::without_privileges_the_kernel_home_says_once_which_it_needs",
                "root",
                "setpriv gives privileges up, so there must be some",
            );
            return;
        }
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert_eq!(
            said.matches("needs CAP_BPF and CAP_PERFMON").count(),
            1,
            "{said}"
        );
        assert_eq!(stdout(&output), "", "{words:?}");
    }
}
