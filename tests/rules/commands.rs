//! The commands of `fairpath rules`, through the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fairpath_testbed::{Need, Testbed, requires};

fn fairpath() -> PathBuf {
    let dir = std::env::var_os("FAIRPATH_BIN_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug"),
        PathBuf::from,
    );
    dir.join("fairpath")
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/rules")
        .join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn rules(words: &[&str]) -> Output {
    Command::new(fairpath())
        .arg("rules")
        .args(words)
        .output()
        .expect("the binary was built")
}

fn stdout(words: &[&str]) -> String {
    let output = rules(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn explain_names_file_line_and_rule() {
    let file = example("home.v4");
    let packet = [
        "--dst",
        "192.0.2.1",
        "--dport",
        "22",
        "-i",
        "wan",
        "--ctstate",
        "NEW",
    ];
    let banned = stdout(&[&["explain", &file, "--src", "203.0.113.7"][..], &packet].concat());
    assert!(banned.contains("REJECT by"), "{banned}");
    assert!(
        banned.contains("home.v4:34: -A f2b-sshd -s 203.0.113.7/32"),
        "{banned}"
    );
    let other = stdout(&[&["explain", &file, "--src", "203.0.113.8"][..], &packet].concat());
    assert!(
        other.contains("DROP by the policy of filter INPUT"),
        "{other}"
    );
}

#[test]
fn missing_fact_is_named_not_guessed() {
    let file = example("home.v4");
    let packet = [
        "--src",
        "203.0.113.8",
        "--dst",
        "192.0.2.1",
        "--dport",
        "22",
        "-i",
        "wan",
    ];
    let output = rules(&[&["explain", &file][..], &packet].concat());
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("give --ctstate"), "{error}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("home.v4:26"), "{text}");
}

#[test]
fn check_reports_positions_and_dead_rules() {
    let text = stdout(&["check", &example("home.v4")]);
    assert!(
        text.contains("home.v4:30: warning: shadowed (filter INPUT)"),
        "{text}"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bad");
    std::fs::write(
        &path,
        "*filter\n:a - [0:0]\n:b - [0:0]\n-A INPUT -j a\n-A a -j b\n-A b -j a\n-A INPUT -s 1.2.3.4/40 -j DROP\nCOMMIT\n",
    )
    .unwrap();
    let output = rules(&["check", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("bad:7:13: error: -s:"), "{text}");
}

#[test]
fn loops_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("loop");
    let text = "*filter\n:a - [0:0]\n:b - [0:0]\n-A INPUT -j a\n-A a -j b\n-A b -j a\nCOMMIT\n";
    std::fs::write(&path, text).unwrap();
    let output = rules(&["check", path.to_str().unwrap(), "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.contains("\"kind\":\"loop\""), "{lines}");
}

#[test]
fn difference_has_example_packet() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.v4");
    let file = example("home.v4");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &path,
        text.replace(
            "-i lan -p tcp -m tcp --dport 22",
            "-p tcp -m tcp --dport 22",
        ),
    )
    .unwrap();
    let output = rules(&["diff", &file, path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("first:  DROP by policy of filter INPUT"),
        "{out}"
    );
    assert!(out.contains("second: ACCEPT by line 27"), "{out}");
    assert!(stdout(&["diff", &file, &file]).contains("equal"));
}

#[test]
fn edits_apply_all_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.v4");
    std::fs::copy(example("home.v4"), &path).unwrap();
    let file = path.to_str().unwrap();
    let ban = ["-I", "f2b-sshd", "1", "-s", "203.0.113.9", "-j", "REJECT"];
    stdout(&[&["apply", file, "--in-place", "--"][..], &ban].concat());
    let after = std::fs::read_to_string(&path).unwrap();
    assert!(
        after.contains("-A f2b-sshd -s 203.0.113.9/32 -j REJECT"),
        "{after}"
    );
    let edits = dir.path().join("edits");
    std::fs::write(
        &edits,
        "*filter\n-A INPUT -j DROP\n-A nowhere -j DROP\nCOMMIT\n",
    )
    .unwrap();
    let output = rules(&[
        "apply",
        file,
        "--in-place",
        "--edits",
        edits.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("edits:3:4"),
        "{output:?}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn conversion_refuses_what_changes_meaning() {
    let output = rules(&["convert", "--to", "ipv6", &example("home.v4")]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("home.v4:34: filter f2b-sshd: -s has an address"),
        "{error}"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    std::fs::write(
        &path,
        "*filter\n-A INPUT -p icmp -m icmp --icmp-type 8 -m ttl --ttl-gt 3 -j REJECT\nCOMMIT\n",
    )
    .unwrap();
    let text = stdout(&["convert", "--to", "ipv6", path.to_str().unwrap()]);
    let expected = "-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128 -m hl --hl-gt 3 -j REJECT --reject-with icmp6-port-unreachable";
    assert!(text.contains(expected), "{text}");
    let classes = dir.path().join("mangle");
    std::fs::write(
        &classes,
        "*mangle\n-A POSTROUTING -d 198.51.100.0/24 -j CLASSIFY --set-class 1:10\nCOMMIT\n",
    )
    .unwrap();
    let csv = stdout(&["convert", "--to", "classes", classes.to_str().unwrap()]);
    assert_eq!(csv, "name,prefix\nclass-1-10,198.51.100.0/24\n");
}

#[test]
fn guide_has_the_generated_table() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/rules.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    assert!(
        guide.ends_with(&stdout(&["check", "--matches"])),
        "run check --matches"
    );
}

#[test]
fn guide_shows_real_output() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/rules.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(example("home.v4")).unwrap();
    let new = text.replace(
        "INPUT -i lan -p tcp -m tcp --dport 22",
        "INPUT -p tcp -m tcp --dport 22",
    );
    std::fs::write(dir.path().join("rules.v4"), &text).unwrap();
    std::fs::write(dir.path().join("new.v4"), new).unwrap();
    std::fs::copy(example("blocklist.v4"), dir.path().join("blocklist.v4")).unwrap();
    let mut shown = 0;
    for block in guide.split("```text\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        let (command, expected) = block.split_once('\n').unwrap_or_default();
        let Some(words) = command.strip_prefix("$ fairpath ") else {
            continue;
        };
        let output = Command::new(fairpath())
            .args(words.split(' '))
            .current_dir(dir.path())
            .output()
            .unwrap();
        let real = [&output.stdout[..], &output.stderr].concat();
        assert_eq!(String::from_utf8_lossy(&real), expected, "{command}");
        shown += 1;
    }
    assert!(shown >= 6, "{shown} commands of the guide were run");
}

#[test]
fn import_reads_what_runs() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset")
    );
    let testbed = Testbed::new();
    let netns = testbed.netns("import").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rules");
    let home = example("home.v4");
    netns.run(&["iptables-legacy-restore", &home]).unwrap();
    netns.run(&["ipset", "create", "bad", "hash:net"]).unwrap();
    netns
        .run(&["ipset", "add", "bad", "203.0.113.0/24"])
        .unwrap();
    let binary = fairpath();
    let words = [
        binary.to_str().unwrap(),
        "rules",
        "import",
        out.to_str().unwrap(),
    ];
    let report = netns.run(&words).unwrap();
    assert!(report.contains("rules.v4: 17 rules"), "{report}");
    let imported = out.join("rules.v4");
    let equal = stdout(&["diff", &home, imported.to_str().unwrap()]);
    assert!(equal.contains("equal"), "{equal}");
    let sets = std::fs::read_to_string(out.join("sets.ipset")).unwrap();
    assert!(sets.contains("add bad 203.0.113.0/24"), "{sets}");
}
