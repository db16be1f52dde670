//! Errors: one prefix, status 2 for wrong usage, replaced names, privileges, closed pipes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use fairpath_cli::REPLACED;
use fairpath_testbed::{Need, requires};
use fairpath_tests::binary;

use crate::help::all;
use crate::{binaries, run, stderr, stdout};

const PREFIX: &str = "fairpath: error: ";
/// The user nobody.
const NOBODY: &str = "65534";

#[test]
fn unknown_options_exit_2_with_a_suggestion() {
    for help in all() {
        let names = help.options.iter().map(|option| option.long.as_str());
        let own = names.filter(|name| !["help", "version"].contains(name));
        let Some(name) = own.max_by_key(|name| name.len()) else {
            continue;
        };
        // The last letter is missing.
        let wrong = format!("--{}", &name[..name.len() - 1]);
        let mut words: Vec<&str> = help.words.iter().map(String::as_str).collect();
        words.push(&wrong);
        let output = run(&help.path, &words);
        let text = stderr(&output);
        // A monitoring plugin: 2 means critical there.
        let expected = if help.words == ["check"] && help.command == "fairpath check" {
            3
        } else {
            2
        };
        assert_eq!(output.status.code(), Some(expected), "{words:?}: {text}");
        assert!(text.starts_with(PREFIX), "{words:?}: {text}");
        assert!(text.contains(&format!("--{name}")), "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn replaced_options_are_refused_with_the_new_name() {
    let fairpath = &binaries()[0].path;
    let has_demo = fairpath.with_file_name("fairpath-demo").exists();
    for row in REPLACED {
        if row.command == "demo" && !has_demo {
            continue;
        }
        let words: Vec<&str> = row.command.split(' ').chain(row.old.split(' ')).collect();
        let output = run(fairpath, &words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        let message = format!("{PREFIX}{} is now {}", row.old, row.new);
        assert!(text.starts_with(&message), "{words:?}: {text}");
    }
}

#[test]
fn quantities_without_units_are_refused_with_a_remedy() {
    let fairpath = &binaries()[0].path;
    for words in [
        &["rtt", "-i", "lo", "--duration", "5"][..],
        &["rtt", "-i", "lo", "--rate-limit", "100"],
        &["shape", "start", "--inside", "lo", "--down", "100"],
        &["shape", "start", "--inside", "lo", "--down", "100mbps"],
        &["shape", "set", "line", "--up", "20"],
        &["impair", "lo", "--loss", "1"],
        &["impair", "lo", "--delay", "20"],
        &["impair", "lo", "--rate", "100"],
        &["top", "--interval", "1"],
    ] {
        let output = run(fairpath, words);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.starts_with(PREFIX), "{words:?}: {text}");
        assert!(text.contains("write "), "{words:?}: {text}");
        assert!(!text.contains("[shape]"), "{words:?}: {text}");
    }
}

#[test]
fn unknown_subcommands_exit_2_with_a_suggestion() {
    let fairpath = &binaries()[0].path;
    let output = run(fairpath, &["statsu"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`status`"), "{}", stderr(&output));
}

#[test]
fn versions_name_commit_and_libbpf() {
    for binary in binaries() {
        let text = stdout(&run(&binary.path, &["--version"]));
        assert!(text.contains("(commit "), "{:?}: {text}", binary.words);
        assert!(text.contains(", libbpf "), "{:?}: {text}", binary.words);
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let fairpath = &binaries()[0].path;
    for words in [
        &["--help"][..],
        &["completions", "bash"],
        &["features", "--docs"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = Command::new(fairpath)
            .args(words)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{words:?}: {:?}", output.status);
        assert!(output.stderr.is_empty(), "{words:?}: {}", stderr(&output));
    }
}

#[test]
fn privileged_commands_name_what_nobody_lacks() {
    requires!(Need::Root, Need::Tool("setpriv"));
    let public = tempfile::Builder::new()
        .prefix("fairpath-")
        .tempdir_in("/tmp")
        .unwrap();
    fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for binary in binaries() {
        binary::put_into(public.path(), &binary.path);
    }
    let configuration = public.path().join("fairpath.toml");
    fs::write(&configuration, "[monitor]\ninterfaces = [\"lo\"]\n").unwrap();
    fs::set_permissions(&configuration, fs::Permissions::from_mode(0o644)).unwrap();
    let configuration = configuration.to_str().unwrap();
    for words in [
        &["rtt", "-i", "lo"][..],
        &["top", "-i", "lo", "--once"],
        &["run", "--config", configuration],
        &["shape", "start", "--inside", "lo", "--down", "1mbit"],
        &["impair", "lo", "--loss", "1%"],
        &["lab", "run", "ripe88", "--quick", "--output", "/tmp/none"],
        &["demo", "--output", "/tmp/none"],
    ] {
        let file = public.path().join(format!("fairpath-{}", words[0]));
        if ["lab", "demo"].contains(&words[0]) && !file.exists() {
            continue;
        }
        let output = Command::new("setpriv")
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .args(["--inh-caps=-all", "--"])
            .arg(public.path().join("fairpath"))
            .args(words)
            .output()
            .unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with(PREFIX), "{words:?}: {text}");
        assert!(last.contains("needs root"), "{words:?}: {text}");
    }
}
