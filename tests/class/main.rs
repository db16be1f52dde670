//! `fairpath class check` through the binary: exit statuses, both formats, and the guide's example.
//!
//! The files of the guide are in `example/`; the guide shows them, and what the check says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use fairpath_tests::binary;
use serde_json::Value;

fn check(directory: &Path, words: &[&str]) -> Output {
    binary::command(binary::fairpath())
        .args(["class", "check"])
        .args(words)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("class/example")
}

/// A directory with one file, which is gone with it.
fn with_file(name: &str, text: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(name), text).unwrap();
    directory
}

#[test]
fn the_guide_shows_its_files_and_check_results() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/class.md");
    let page = fs::read_to_string(page).unwrap();
    for name in ["fairpath.toml", "subscribers.csv", "labels.csv"] {
        let text = fs::read_to_string(example().join(name)).unwrap();
        assert!(
            page.contains(&format!("\n```\n{text}```\n")),
            "{name} is not in the guide"
        );
    }
    let output = check(&example(), &["fairpath.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = format!(
        "\n```\n$ fairpath class check fairpath.toml\n{}{}```\n",
        stdout(&output),
        stderr(&output)
    );
    assert!(page.contains(&shown), "the guide should show\n{shown}");
}

#[test]
fn exit_status_depends_on_errors_and_strict_warnings() {
    let sound = with_file("c.csv", b"name,prefix\na,192.0.2.1\n");
    let output = check(sound.path(), &["--strict", "c.csv"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        "1 class, 1 prefix, 1 level: no errors, no warnings\n"
    );
    assert_eq!(stderr(&output), "");

    let doubtful = with_file("c.csv", b"name,prefix\na,\n");
    assert_eq!(check(doubtful.path(), &["c.csv"]).status.code(), Some(0));
    let output = check(doubtful.path(), &["--strict", "c.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "fairpath: error: check classes: no errors, 1 warning\n"
    );

    let wrong = with_file("c.csv", b"name,prefix\na,x\n");
    assert_eq!(check(wrong.path(), &["c.csv"]).status.code(), Some(1));
}

#[test]
fn wrong_usage_exits_2() {
    let none: &[&str] = &[];
    for words in [
        none,
        &["--format", "xml", "f.csv"],
        &["--no-such-option", "f.csv"],
    ] {
        let output = check(Path::new("/"), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{words:?}"
        );
    }
}

#[test]
fn json_has_lines_for_problems_and_a_summary() {
    let output = check(&example(), &["--format", "json", "fairpath.toml"]);
    let lines: Vec<Value> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, problems) = lines.split_last().unwrap();
    assert_eq!(summary["type"], "summary");
    let counted = |severity: &str| {
        problems
            .iter()
            .filter(|p| p["severity"] == severity)
            .count()
    };
    assert_eq!(summary["errors"], counted("error"));
    assert_eq!(summary["warnings"], counted("warning"));
    assert!(lines.iter().all(|line| line["schema"] == 1));
    let orphan = problems.iter().find(|p| p["problem"] == "orphan").unwrap();
    assert_eq!(
        (&orphan["file"], &orphan["line"], &orphan["column"]),
        (&"subscribers.csv".into(), &3.into(), &5.into())
    );
    assert_eq!(orphan["class"], "bob");
}

#[test]
fn unreadable_files_are_reported_at_their_position() {
    let directory = with_file("f.toml", b"class_files = [\"gone.csv\"]\n");
    let output = check(directory.path(), &["f.toml", "lost.csv", "."]);
    let reported = stdout(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        reported.contains("f.toml:1:16: error: file \"gone.csv\" cannot be read: No such file"),
        "{reported}"
    );
    assert!(
        reported.contains("lost.csv:1:1: error: file \"lost.csv\" cannot be read: No such file"),
        "{reported}"
    );
    assert!(
        reported.contains(".:1:1: error: file \".\" cannot be read: Is a directory"),
        "{reported}"
    );
}

#[test]
fn files_together_are_one_configuration() {
    let directory = with_file("network.json", b"{\"Mast\":{\"downloadBandwidthMbps\":50}}");
    let header = "Circuit ID,Circuit Name,Parent Node,IPv4,Download Max Mbps\n";
    fs::write(
        directory.path().join("s.csv"),
        format!("{header}1,Ely,Mast,100.64.0.1,25\n"),
    )
    .unwrap();
    // In either order.
    for files in [["s.csv", "network.json"], ["network.json", "s.csv"]] {
        let output = check(directory.path(), &files);
        assert_eq!(
            stdout(&output),
            "2 classes, 1 prefix, 2 levels: no errors, no warnings\n"
        );
    }
}

#[test]
fn run_check_counts_classes_in_plain_english() {
    let class = |number| format!("[[class]]\nname = \"c{number}\"\nprefix = \"10.0.0.{number}\"\n");
    for (count, expected) in [(0, "no classes"), (1, "1 class"), (2, "2 classes")] {
        let classes: String = (1..=count).map(class).collect();
        let text = format!("[monitor]\ninterfaces = [\"lan\"]\n{classes}");
        let directory = with_file("fairpath.toml", text.as_bytes());
        let output = binary::command(binary::fairpath())
            .args(["run", "--check", "--config", "fairpath.toml"])
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(
            stdout(&output),
            format!("fairpath.toml: valid, {expected}\n")
        );
    }
}
