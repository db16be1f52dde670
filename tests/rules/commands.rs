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
fn arp_request_is_explained_by_its_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.arp");
    std::fs::write(
        &path,
        "*filter\n:INPUT ACCEPT\n-A INPUT -j DROP -s 10.0.0.1 --opcode 1\n",
    )
    .unwrap();
    let file = path.to_str().unwrap();
    let addresses = ["--dst", "10.0.0.2", "-i", "lan", "--src"];
    let one = |source| stdout(&[&["explain", file][..], &addresses, &[source]].concat());
    assert!(one("10.0.0.1").contains("DROP by"), "{}", one("10.0.0.1"));
    assert!(one("10.0.0.9").contains("ACCEPT by the policy of filter INPUT"));
}

#[test]
fn family_is_guessed_from_evidence_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("saved");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let output = rules(&["check", path.to_str().unwrap()]);
        let all = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&all).into_owned(),
        )
    };
    // A file of iptables that ends too early has counters of chains, or an earlier COMMIT.
    for text in [
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 1.1.1.1 -j ACCEPT\n",
        "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n",
        "*filter\n:INPUT ACCEPT\nCOMMIT\n*nat\n",
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 2001:db8::1 -j ACCEPT\n",
        "*filter\n-A INPUT -s 1.1.1.1 -p tcp -j ACCEPT\n",
    ] {
        let (success, text) = check(text);
        assert!(!success && text.contains("COMMIT expected"), "{text}");
    }
    for text in [
        "*filter\n:INPUT ACCEPT\n-A INPUT -s 1.1.1.1 -j ACCEPT\n",
        "*filter\n-A INPUT -i eth0 -j DROP\n",
        "*filter\n-A INPUT -i ! eth0 -j DROP\n",
    ] {
        let (success, text) = check(text);
        assert!(!success && text.contains("give --family"), "{text}");
    }
    for text in [
        "*filter\n:INPUT ACCEPT\n-A INPUT --opcode Request -j DROP\n",
        "*filter\n:INPUT ACCEPT\n:lan ACCEPT\n-A INPUT -p IPv4 -j lan\n",
        "*filter\n:INPUT ACCEPT\n-A INPUT -s 1.1.1.1 -j ACCEPT\nCOMMIT\n",
    ] {
        let (success, text) = check(text);
        assert!(success, "{text}");
    }
}

#[test]
fn bytes_of_names_and_text_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.v4");
    let text = b"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
        :zone-\xe8 - [0:0]\n:zone-\xe9 - [0:0]\n-A INPUT -j zone-\xe9\n\
        -A INPUT -j LOG --log-prefix \"a\x1b[1m\xff \"\nCOMMIT\n";
    std::fs::write(&path, text).unwrap();
    let file = path.to_str().unwrap();
    assert_eq!(rules(&["show", file]).stdout, text);
    let zero = ["--in-place", "--", "-Z", "INPUT"];
    let words = [&["apply", file][..], &zero[1..]].concat();
    assert_eq!(rules(&words).stdout, text);
    stdout(&[&["apply", file][..], &zero].concat());
    assert_eq!(std::fs::read(&path).unwrap(), text);
    let ipv6 = rules(&["convert", file, "--to", "ipv6"]).stdout;
    assert_eq!(ipv6, text);

    std::fs::write(&path, b"*filter\n-A INPUT -s 1.2.3.4 \0 -j DROP\nCOMMIT\n").unwrap();
    let output = rules(&["show", file]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("rules.v4:2:21: the line has a byte of zero"),
        "{error}"
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
fn parts_not_evaluated_are_named_with_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("some");
    let text = "*filter\n-A INPUT -p tcp -m string --string a --algo bm -j REJECT\n\
                -A INPUT -p dccp -m dccp --dccp-option 7 -j DROP\nCOMMIT\n";
    std::fs::write(&path, text).unwrap();
    let file = path.to_str().unwrap();
    let warnings = stdout(&["check", file]);
    let expected = "some:2:20: warning: not-known (filter INPUT): match string is kept as it is";
    assert!(warnings.contains(expected), "{warnings}");
    assert!(warnings.contains("some:3:26: warning: not-evaluated (filter INPUT): --dccp-option"));
    assert!(warnings.contains("at netfilter: 2 refused"), "{warnings}");
    let stats = stdout(&["stats", file]);
    assert!(
        stats.contains("some:3:26: --dccp-option is not evaluated"),
        "{stats}"
    );
    let packet = [
        "--src",
        "192.0.2.1",
        "--dst",
        "192.0.2.2",
        "--protocol",
        "dccp",
        "-i",
        "lan",
    ];
    let output = rules(&[&["explain", file][..], &packet].concat());
    assert_eq!(output.status.code(), Some(1));
    let path = String::from_utf8_lossy(&output.stdout);
    assert!(
        path.contains("unknown (--dccp-option, which is not evaluated) by"),
        "{path}"
    );
    assert!(path.contains("some:3: -A INPUT"), "{path}");
}

#[test]
fn loops_are_those_that_the_kernel_refuses() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let netns = testbed.netns("loops").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for lines in [
        "-A INPUT -j a\n-A a -j b\n-A b -j a",
        "-A INPUT -g a\n-A a -g a",
        "-A a -j a",
        "-A INPUT -j DROP\n-A INPUT -j a\n-A a -j a",
        "-A INPUT -s 0.0.0.0/0 -j ACCEPT\n-A INPUT -j a\n-A a -j a",
        "-A INPUT -j a\n-A a -j RETURN\n-A a -j a",
        "-A INPUT -j a\n-A a -j QUEUE\n-A a -j a",
        "-A INPUT -j a\n-A a -j REJECT\n-A a -j a",
        "-A INPUT -j a\n-A a -i eth0 -j DROP\n-A a -j a",
        "-A INPUT -j a\n-A a -m comment --comment x -j DROP\n-A a -j a",
        "-A INPUT -j a\n-A a -j b\n-A b -j DROP\n-A a -j a",
        "-A INPUT -j a\n-A a -g b\n-A a -j a",
    ] {
        let text = format!("*filter\n:a - [0:0]\n:b - [0:0]\n{lines}\nCOMMIT\n");
        let path = file(&dir, "loop", text.as_bytes());
        let loads = netns.run(&["iptables-legacy-restore", &path]).is_ok();
        let output = rules(&["check", &path, "--format", "json"]);
        let found = String::from_utf8_lossy(&output.stdout);
        assert_eq!(!found.contains("\"kind\":\"loop\""), loads, "{lines}");
        assert_eq!(output.status.success(), loads, "{lines}");
        refused += usize::from(!loads);
    }
    assert_eq!(refused, 7);
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
fn difference_of_sets_has_example_packet() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file = write(
        "rules",
        "*filter\n-A INPUT -m set --match-set bad src -j DROP\nCOMMIT\n",
    );
    let create = "create bad hash:ip family inet\n";
    let old = write("old", &format!("{create}add bad 192.0.2.1\n"));
    let new = write(
        "new",
        &format!("{create}add bad 192.0.2.1\nadd bad 192.0.2.9\n"),
    );
    let output = rules(&["diff", &file, &file, "--sets", &old, "--second-sets", &new]);
    assert_eq!(output.status.code(), Some(1));
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("set bad: 0 lines only in the first, 1 only in the second"),
        "{out}"
    );
    assert!(out.contains("192.0.2.9"), "{out}");
    assert!(out.contains("second: DROP by line 2"), "{out}");
    assert!(stdout(&["diff", &file, &file, "--sets", &old]).contains("equal"));
    // A file of sets alone.
    let text = stdout(&["show", &new]);
    assert!(
        text.ends_with("add bad 192.0.2.1\nadd bad 192.0.2.9\n"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["show", "--format", "json", &new])).unwrap();
    assert_eq!(json["sets"][0]["elements"], 2);
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
fn commands_of_fail2ban_and_docker_apply() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.v4");
    std::fs::copy(example("docker.v4"), &path).unwrap();
    let file = path.to_str().unwrap();
    for command in [
        "iptables -w -N f2b-sshd",
        "iptables -w -A f2b-sshd -j RETURN",
        "iptables -w 5 -I INPUT -p tcp -m multiport --dports ssh -j f2b-sshd",
        "iptables -w -I f2b-sshd 1 -s 203.0.113.7 -j REJECT --reject-with icmp-port-unreachable",
        "/usr/sbin/iptables --wait -t nat -A DOCKER -p tcp -d 0/0 --dport 9090 -j DNAT --to-destination 172.17.0.9:90",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        stdout(&[&["apply", file, "--in-place", "--"][..], &words].concat());
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let f2b = "-A f2b-sshd -s 203.0.113.7/32 -j REJECT --reject-with icmp-port-unreachable\n-A f2b-sshd -j RETURN\n";
    assert!(text.contains(f2b), "{text}");
    assert!(
        text.contains("--dport 9090 -j DNAT --to-destination 172.17.0.9:90"),
        "{text}"
    );
    let loops = rules(&[
        "apply",
        file,
        "--in-place",
        "--",
        "-I",
        "f2b-sshd",
        "-j",
        "f2b-sshd",
    ]);
    assert_eq!(loops.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&loops.stderr).contains("leads back to chain f2b-sshd"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// Applies an edit of words, or a file of edits, to a text in a file.
fn apply(text: &str, edit: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let (file, edits) = (dir.path().join("rules"), dir.path().join("edits"));
    std::fs::write(&file, text).unwrap();
    std::fs::write(&edits, format!("*filter\n{edit}\nCOMMIT\n")).unwrap();
    let (file, edits) = (file.to_str().unwrap(), edits.to_str().unwrap());
    let words: Vec<&str> = match edit.starts_with(':') {
        true => vec!["apply", file, "--in-place", "--edits", edits],
        false => ["apply", file, "--in-place", "--"]
            .into_iter()
            .chain(edit.split(' '))
            .collect(),
    };
    let output = rules(&words);
    let after = std::fs::read_to_string(file).unwrap();
    if output.status.success() {
        return Ok(after);
    }
    assert_eq!(after, text, "{edit}");
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A set with chains and rules for edits.
const EDITED: &str = "*filter\n:INPUT ACCEPT [0:0]\n:a - [0:0]\n:b - [0:0]\n:q - [0:0]\n\
    -A INPUT -s 192.0.2.1/32 -j a\n-A INPUT -s 192.0.2.2/32 -j DROP\n-A a -j b\n-A q -j DROP\nCOMMIT\n";

#[test]
fn edits_that_iptables_refuses_are_refused() {
    for (edit, problem) in [
        ("-F q -s 1.1.1.1", "-F takes no \"-s\""),
        ("-F INPUT -j DROP", "-F takes no \"-j\""),
        ("-F q extra", "-F takes no \"extra\""),
        ("-F -v q", "-F takes no \"q\""),
        ("-X q extra", "-X takes no \"extra\""),
        ("-Z INPUT 1 2", "-Z takes no \"2\""),
        ("-P INPUT DROP extra", "-P takes no \"extra\""),
        ("-N r s", "-N takes no \"s\""),
        ("-N r -P DROP", "-N takes no \"-P\""),
        ("-E q r s", "-E takes no \"s\""),
        (
            ":a DROP [0:0]",
            "edits:2:4: chain \"a\" is not a base chain",
        ),
        ("-A b -j a", "leads back to chain a"),
        ("-A a -g a", "leads back to chain a"),
        ("-6 -A INPUT -j DROP", "-6 edits rules of IPv6"),
        (
            "ip6tables -A INPUT -j DROP",
            "ip6tables edits rules of IPv6",
        ),
        ("-A INPUT -j DROP -t", "-t needs the name of a table"),
        ("-wx -F q", "-w takes a number, not x"),
        ("iptables -w", "an edit begins with a command"),
        ("COMMIT", "an edit begins with a command"),
        ("#-F q", "an edit begins with a command"),
    ] {
        let error = apply(EDITED, edit).unwrap_err();
        assert!(error.contains(problem), "{edit}: {error}");
    }
}

#[test]
fn edits_that_iptables_accepts_are_accepted() {
    let removed = EDITED.replace("-A INPUT -s 192.0.2.1/32 -j a\n", "");
    let flushed = EDITED.replace("-A q -j DROP\n", "");
    let dropping = EDITED.replace("INPUT ACCEPT [0:0]", "INPUT DROP [5:6]");
    let text = |text: &str| {
        let rule = format!("-m comment --comment {text} -j DROP\n-A a");
        EDITED.replacen("-A a", &format!("-A INPUT {rule}"), 1)
    };
    for (edit, expected) in [
        ("-D INPUT 0x1", &removed),
        ("-D INPUT 01 -v", &removed),
        ("-D INPUT +1", &removed),
        ("-F q -v", &flushed),
        ("-w -F q", &flushed),
        ("-w5 -F q -W 100", &flushed),
        ("--wait --table filter -F q", &flushed),
        ("--wait=5 --table=filter -F q", &flushed),
        ("-F q -w 5 -t filter", &flushed),
        ("iptables-legacy -F -tfilter q --wait-interval 5", &flushed),
        ("-4 -F q", &flushed),
        ("-P INPUT DROP -c 5 6", &dropping),
        ("-A INPUT -m comment --comment -w -j DROP", &text("-w")),
        ("-A INPUT -m comment --comment -t -j DROP", &text("-t")),
        // No packet comes to q.
        ("-R q 1 -g q", &EDITED.replace("-A q -j DROP", "-A q -g q")),
    ] {
        let after = apply(EDITED, edit).unwrap_or_else(|error| panic!("{edit}: {error}"));
        let after = after.replace(":FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n", "");
        assert_eq!(after, *expected, "{edit}");
    }
    let bridge = "*filter\n:INPUT ACCEPT\n:old ACCEPT\n";
    let new = apply(bridge, "-N new -P RETURN").unwrap();
    assert!(new.contains(":new RETURN\n"), "{new}");
    let old = apply(bridge, ":old DROP").unwrap();
    assert!(old.contains(":old DROP\n"), "{old}");
}

/// Edits that iptables executes or refuses; those with : are lines of a file.
const EDITS: [&str; 48] = [
    "-F q -s 1.1.1.1",
    "-F INPUT -j DROP",
    "-F q extra",
    "-F q -v",
    "-F -v q",
    "-F -v",
    "-X q extra",
    "-X b",
    "-P INPUT DROP extra",
    "-P INPUT DROP 5",
    "-P INPUT DROP -c 5 6",
    "-P INPUT DROP -c 5",
    "-P a DROP",
    "-N r s",
    "-N r -j DROP",
    "-N r -P DROP",
    "-N r -v",
    "-E q r s",
    "-E q r",
    "-Z q extra",
    "-Z INPUT 0x1",
    "-Z INPUT 1 2",
    "-D INPUT 0x1",
    "-D INPUT 01",
    "-D INPUT +1",
    "-D INPUT 1 -v",
    "-D INPUT 1 -j DROP",
    "-D INPUT 1 2",
    "-D INPUT 3",
    "-I INPUT 010 -j DROP",
    "-I INPUT 0x2 -s 1.1.1.1 -j DROP",
    "-I INPUT -1 -j DROP",
    "-R INPUT 0x1 -s 1.1.1.1 -j DROP",
    "-A b -j a",
    "-A b -g b",
    "-A q -g q",
    "-w -F q",
    "-w5 -F q",
    "-F q -w 5",
    "--wait=5 --table=filter -F q",
    "-A INPUT -w -s 1.1.1.1 -t filter -j DROP",
    "-A INPUT -m comment --comment -t -j DROP",
    "-6 -A INPUT -j DROP",
    "-4 -A INPUT -j DROP",
    ":a DROP [0:0]",
    ":a - [0:0]",
    ":new DROP",
    ":INPUT DROP [5:6]\n-F a\n-6 -F q",
];

#[test]
fn edits_have_the_effect_that_iptables_gives_them() {
    requires!(Need::Root, Need::Tool("iptables-legacy"));
    let testbed = Testbed::new();
    let netns = testbed.netns("edits").unwrap();
    let tool = |words: &[&str], input: &str| super::formats::execute(&netns, words, input);
    // The form of the tool, with all chains.
    assert!(tool(&["iptables-legacy-restore"], EDITED).status.success());
    let saved = || {
        let output = tool(&["iptables-legacy-save", "-t", "filter"], "");
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let before = saved();
    for edit in EDITS {
        assert!(tool(&["iptables-legacy-restore"], &before).status.success());
        let output = match edit.starts_with(':') {
            true => tool(
                &["iptables-legacy-restore", "--noflush", "--counters"],
                &format!("*filter\n{edit}\nCOMMIT\n"),
            ),
            false => {
                let words: Vec<&str> = std::iter::once("iptables-legacy")
                    .chain(edit.split(' '))
                    .collect();
                tool(&words, "")
            }
        };
        let ours = apply(&before, edit);
        assert_eq!(
            ours.is_ok(),
            output.status.success(),
            "{edit}: {ours:?} {output:?}"
        );
        assert_eq!(ours.unwrap_or_else(|_| before.clone()), saved(), "{edit}");
    }
}

#[test]
fn lines_of_the_other_family_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (file, edits) = (dir.path().join("rules"), dir.path().join("edits"));
    std::fs::write(&file, EDITED).unwrap();
    std::fs::write(&edits, "*filter\n-6 -F q\n-4 -F a\n-6 -F a\nCOMMIT\n").unwrap();
    let (file, edits) = (file.to_str().unwrap(), edits.to_str().unwrap());
    let output = rules(&["apply", file, "--edits", edits]);
    assert!(output.status.success(), "{output:?}");
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("edits: 2 lines were skipped"), "{note}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("-A q ") && !text.contains("-A a "), "{text}");
}

#[test]
fn an_edited_file_keeps_its_family() {
    let head = "# Generated by ip6tables-save v1.8.9 on Fri\n";
    let text = format!("{head}*filter\n# Mine\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
    let once = apply(&text, "ip6tables -A INPUT -j DROP").unwrap();
    assert!(
        once.starts_with(&format!("{head}*filter\n:INPUT ACCEPT")),
        "{once}"
    );
    let twice = apply(&once, "ip6tables -A INPUT -s 2001:db8::1 -j DROP").unwrap();
    assert!(
        twice.contains("-A INPUT -s 2001:db8::1/128 -j DROP"),
        "{twice}"
    );
}

#[test]
fn edits_at_once_all_take_effect() {
    const EDITS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let (path, new) = (dir.path().join("rules"), dir.path().join("rules.new"));
    std::fs::write(&path, EDITED).unwrap();
    std::fs::write(&new, "precious").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o604);
    std::fs::set_permissions(&path, mode).unwrap();
    let file = path.to_str().unwrap();
    std::thread::scope(|scope| {
        for edit in 0..EDITS {
            scope.spawn(move || {
                let source = format!("198.51.100.{edit}");
                stdout(&["apply", file, "--in-place", "--", "-A", "q", "-s", &source]);
            });
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("-A q -s 198.51.100.").count(), EDITS, "{text}");
    let found = std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
    assert_eq!(found & 0o7777, 0o604);
    assert_eq!(std::fs::read(&new).unwrap(), b"precious");
    assert_eq!(dir.path().read_dir().unwrap().count(), 2);
    let output = rules(&["apply", "-", "--in-place", "--", "-F", "q"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("standard input cannot be replaced"),
        "{error}"
    );
}

#[test]
fn policy_of_a_bridge_chain_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = "*filter\n:FORWARD ACCEPT\n:arps RETURN\n-A FORWARD -p ARP -j arps\n\
                -A arps -s 02:00:00:00:00:01 -j ACCEPT\n";
    let first = write("first", text.as_bytes());
    let second = write("second", text.replace("RETURN", "DROP").as_bytes());
    let output = rules(&["diff", &first, &second]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("the policy changed from RETURN to DROP"),
        "{out}"
    );
    assert!(
        out.contains("second: DROP by policy of filter arps"),
        "{out}"
    );
    assert!(stdout(&["diff", &first, &first]).contains("equal"));
    // A capture of one ARP request.
    let mut capture = vec![
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0,
    ];
    capture.extend([0, 0, 0, 0, 0, 0, 0, 0, 42, 0, 0, 0, 42, 0, 0, 0]);
    capture.extend([0xff; 6]);
    capture.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    capture.extend([2, 0, 0, 0, 0, 9, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    let capture = write("capture", &capture);
    let explained = stdout(&[
        "explain", &second, "-r", &capture, "--packet", "1", "-i", "port1", "-o", "port2",
    ]);
    assert!(explained.contains("ARP request 10.0.0.1"), "{explained}");
    assert!(
        explained.contains("DROP by the policy of filter arps"),
        "{explained}"
    );
    let summary = stdout(&[
        "explain", &second, "-r", &capture, "-i", "port1", "-o", "port2",
    ]);
    assert!(
        summary.contains("DROP by the policy of filter arps"),
        "{summary}"
    );
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
    for rule in [
        "-p 44 -j DROP",
        "-p 60 -j DROP",
        "! -p 51 -j DROP",
        "-p 58 -j DROP",
        "-m conntrack --ctproto 60 -j DROP",
        "-m string --algo bm --string x -j DROP",
        "-m addrtype --dst-type BROADCAST -j DROP",
    ] {
        std::fs::write(&path, format!("*filter\n-A INPUT {rule}\nCOMMIT\n")).unwrap();
        let output = rules(&["convert", "--to", "ipv6", path.to_str().unwrap()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("plain:2: filter INPUT: "), "{rule}: {error}");
    }
    let conntrack = "*filter\n-A INPUT -m conntrack ! --ctproto 1 -j DROP\nCOMMIT\n";
    std::fs::write(&path, conntrack).unwrap();
    let text = stdout(&["convert", "--to", "ipv6", path.to_str().unwrap()]);
    assert!(text.contains("! --ctproto 58 "), "{text}");
}

/// The classes of a table mangle, or the problem.
fn classes(rules_of_mangle: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    std::fs::write(&path, format!("*mangle\n{rules_of_mangle}COMMIT\n")).unwrap();
    let output = rules(&["convert", "--to", "classes", path.to_str().unwrap()]);
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn classes_of_another_meaning_are_refused() {
    let csv = classes(
        "-A POSTROUTING -d 198.51.100.0/24 -j CLASSIFY --set-class 1:10\n\
         -A POSTROUTING -d 203.0.113.0/24 -j CLASSIFY --set-class 1:10\n",
    );
    let expected = "name,prefix\nclass-1-10,198.51.100.0/24;203.0.113.0/24\n";
    assert_eq!(csv.unwrap(), expected);
    let mark =
        |chain: &str, net: &str, mark: u32| format!("-A {chain} {net} -j MARK --set-mark {mark}\n");
    let narrow = mark("PREROUTING", "-s 10.1.0.0/16", 2);
    let wide = mark("PREROUTING", "-s 10.0.0.0/8", 1);
    let unreached = ":u - [0:0]\n".to_owned() + &mark("u", "-s 192.0.2.0/24", 3) + &wide;
    assert_eq!(
        classes(&unreached).unwrap(),
        "name,prefix\nmark-1,10.0.0.0/8\n"
    );
    for (text, problem) in [
        (
            narrow.clone() + &wide,
            "m:3: mangle PREROUTING: it overrides 10.1.0.0/16 of line 2",
        ),
        (
            wide.clone() + &mark("PREROUTING", "-d 10.1.0.0/16", 1),
            "m:3: mangle PREROUTING: MARK by -d and MARK by -s (line 2)",
        ),
        (
            wide.clone() + "-A POSTROUTING -s 10.0.0.0/8 -j CLASSIFY --set-class 1:10\n",
            "m:3: mangle POSTROUTING: rules of another base chain classify, too (line 2)",
        ),
        (
            wide.replace("PREROUTING", "POSTROUTING")
                + "-A POSTROUTING -s 11.0.0.0/8 -j CLASSIFY --set-class 1:10\n",
            "m:3: mangle POSTROUTING: CLASSIFY by -s and MARK by -s (line 2)",
        ),
        (
            ":u - [0:0]\n-A PREROUTING -i lan -j u\n".to_owned() + &wide,
            "m:3: mangle PREROUTING: the rule does not only classify",
        ),
        (
            ":PREROUTING DROP [0:0]\n".to_owned() + &wide,
            "m:2: mangle PREROUTING: the policy drops packets",
        ),
    ] {
        let error = classes(&text).unwrap_err();
        assert!(error.contains(problem), "{text}{error}");
    }
}

/// Packets of generated rules: their class is that of their mark.
#[test]
fn the_class_of_a_packet_is_its_mark() {
    let mut random = fairpath_statistics::Random::new(1);
    let mut below = |count: u64| random.below(count);
    let (mut converted, mut refused) = (0, 0);
    for _ in 0..50 {
        let mut text = String::from(":one - [0:0]\n:two - [0:0]\n:three - [0:0]\n");
        for _ in 0..3 + below(5) {
            let chain =
                ["PREROUTING", "one", "two", "three"][(below(6) as usize).saturating_sub(2)];
            let rule = match below(6) {
                0 if chain == "PREROUTING" => "-j one".to_owned(),
                1 if chain == "PREROUTING" => "-g two".to_owned(),
                2 if chain == "one" => "-j three".to_owned(),
                _ => {
                    let length = [8, 16, 17, 24][below(4) as usize];
                    let (a, b, mark) = (below(2), below(2) * 128, 1 + below(3));
                    format!("-s 10.{a}.{b}.0/{length} -j MARK --set-mark {mark}")
                }
            };
            text.push_str(&format!("-A {chain} {rule}\n"));
        }
        let Ok(csv) = classes(&text) else {
            refused += 1;
            continue;
        };
        converted += 1;
        let mut drafts = fairpath_class::Drafts::new();
        drafts.read_csv("classes.csv", &csv);
        let outcome = fairpath_class::ClassSet::build(drafts, fairpath_class::Uplinks::Given);
        assert_eq!(
            outcome.report.errors, 0,
            "{csv}{:?}",
            outcome.report.problems
        );
        let set = outcome.set.unwrap();
        let file = format!("*mangle\n{text}COMMIT\n");
        let reading = fairpath_rules::read(
            &mut file.as_bytes(),
            "file",
            fairpath_rules::Family::Ipv4,
            &fairpath_rules::Names::default(),
        );
        let ruleset = reading.unwrap().complete().unwrap();
        for _ in 0..60 {
            let source = [10 + below(9) as u8 / 8, below(3) as u8, below(256) as u8, 9];
            let mut bytes = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
            bytes.extend(source);
            bytes.extend([192, 0, 2, 1]);
            let packet = fairpath_rules::Packet {
                family: fairpath_rules::Family::Ipv4,
                bytes: &bytes,
                network: 0,
                length: bytes.len(),
                facts: fairpath_rules::Facts::usual(),
            };
            let mut evaluator = fairpath_rules::Reference::new(&ruleset, None);
            let hook = fairpath_rules::Hook::Prerouting;
            let mark = evaluator
                .evaluate_table("mangle", hook, &packet)
                .changes
                .mark;
            let class = set.classify(&fairpath_class::Endpoint {
                address: std::net::IpAddr::from(source),
                mark: None,
                mac: None,
                vlan: None,
                dscp: None,
                interface: None,
            });
            let name = class.map_or("mark-0", |class| &class.name);
            assert_eq!(name, format!("mark-{mark:x}"), "{source:?}\n{text}{csv}");
        }
    }
    assert!(converted > 10 && refused > 10, "{converted} {refused}");
}

#[test]
fn guide_has_the_generated_table() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/rules.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    assert!(
        guide.ends_with(&stdout(&["check", "--matches"])),
        "run check --matches"
    );
    let lines = stdout(&["check", "--matches", "--format", "json"]);
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mac = lines.iter().find(|line| line["name"] == "-m mac").unwrap();
    assert_eq!(mac["points"]["tcx egress"]["answer"], "refused");
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

/// Writes a file, and returns its path.
fn file(dir: &tempfile::TempDir, name: &str, bytes: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A capture of IPv4 packets.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend([0xff, 0xff, 0, 0, 1, 0, 0, 0]);
    for packet in packets {
        let length = (packet.len() + 14) as u32;
        out.extend([0; 8]);
        out.extend(length.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend([0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0]);
        out.extend(packet);
    }
    out
}

/// A ping from 10.9.0.1, with the checksum of its header.
fn ping() -> Vec<u8> {
    let mut out = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0x66, 0xd7];
    out.extend([10, 9, 0, 1, 10, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0]);
    out
}

#[test]
fn set_with_too_few_parts_finds_nothing() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy"),
        Need::Tool("ipset"),
        Need::Tool("ping")
    );
    let dir = tempfile::tempdir().unwrap();
    let text = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -m set --match-set c src -j DROP\n\
                -A INPUT -m set --match-set c src,src -j ACCEPT\nCOMMIT\n";
    let rules_file = file(&dir, "rules", text.as_bytes());
    let sets_text = "create c hash:ip,port family inet\nadd c 127.0.0.1,icmp:8/0\n\
                     add c 10.9.0.1,icmp:8/0\n";
    let sets_file = file(&dir, "sets", sets_text.as_bytes());
    let testbed = Testbed::new();
    let netns = testbed.netns("few").unwrap();
    netns.run(&["ip", "link", "set", "lo", "up"]).unwrap();
    netns
        .run(&["ipset", "restore", "-file", &sets_file])
        .unwrap();
    netns
        .run(&["iptables-legacy-restore", &rules_file])
        .unwrap();
    netns.run(&["ping", "-c", "1", "127.0.0.1"]).unwrap();
    let saved = netns.run(&["iptables-legacy-save", "-c"]).unwrap();
    assert!(
        saved.contains("[0:0] -A INPUT -m set --match-set c src -j DROP"),
        "{saved}"
    );
    assert!(
        saved.contains("[1:84] -A INPUT -m set --match-set c src,src -j ACCEPT"),
        "{saved}"
    );
    let warned = stdout(&["check", &rules_file, &sets_file]);
    assert!(
        warned.contains("rules:3: warning: set-dimensions"),
        "{warned}"
    );
    let pings = file(&dir, "pings", &capture(&[ping(), ping()]));
    let summary = stdout(&["explain", &rules_file, &sets_file, "-r", &pings]);
    assert!(
        summary.starts_with("2 packets, 56 bytes: ACCEPT by"),
        "{summary}"
    );
    assert!(summary.contains("rules:4:"), "{summary}");
}

#[test]
fn types_of_sets_not_evaluated_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = "*filter\n-A INPUT -m set --match-set c src,dst -j DROP\nCOMMIT\n";
    let rules_file = file(&dir, "rules", text.as_bytes());
    let sets_file = file(&dir, "sets", b"create c hash:ip,mark\nadd c 10.9.0.1,5\n");
    let named = "set c of type hash:ip,mark";
    let warned = stdout(&["check", &rules_file, &sets_file]);
    assert!(
        warned.contains(&format!(
            "rules:2:17: warning: not-evaluated (filter INPUT): {named}"
        )),
        "{warned}"
    );
    assert!(warned.contains("at netfilter: 1 refused"), "{warned}");
    let pings = file(&dir, "pings", &capture(&[ping()]));
    let summary = stdout(&["explain", &rules_file, &sets_file, "-r", &pings]);
    assert!(
        summary.contains(&format!("unknown ({named}, which is not evaluated) by")),
        "{summary}"
    );
    let one = rules(&[
        "explain",
        &rules_file,
        &sets_file,
        "-r",
        &pings,
        "--packet",
        "1",
    ]);
    assert_eq!(one.status.code(), Some(1));
    let error = String::from_utf8_lossy(&one.stderr);
    assert!(
        error.contains(&format!("depends on {named}, which is not evaluated")),
        "{error}"
    );
    let stats = stdout(&["stats", &rules_file, &sets_file]);
    assert!(
        stats.contains(&format!("rules:2:17: {named} is not evaluated")),
        "{stats}"
    );
}

#[test]
fn malformed_packets_do_not_meet_rules() {
    let dir = tempfile::tempdir().unwrap();
    let rules_file = file(&dir, "rules", b"*filter\n-A INPUT -j DROP\nCOMMIT\n");
    let broken = |at: usize, byte: u8| {
        let mut packet = ping();
        packet[at] = byte;
        packet
    };
    let packets = [
        ping(),
        broken(10, 0),
        broken(3, 29),
        broken(0, 0x44),
        broken(0, 0x65),
    ];
    let pings = file(&dir, "pings", &capture(&packets));
    let summary = stdout(&["explain", &rules_file, "-r", &pings]);
    assert!(
        summary.contains("1 packets, 28 bytes: DROP by"),
        "{summary}"
    );
    for why in [
        "the checksum of its header is wrong",
        "it is shorter than its length",
        "its header has less than 20 bytes",
        "its version is not 4",
    ] {
        assert!(
            summary.contains(&format!(
                "1 packets: the kernel drops each before the rules, because {why}"
            )),
            "{summary}"
        );
    }
    let stats = stdout(&["stats", &rules_file, "-r", &pings]);
    assert!(stats.contains("1 packets at INPUT"), "{stats}");
    assert!(stats.contains("4 malformed packets"), "{stats}");
    let one = rules(&["explain", &rules_file, "-r", &pings, "--packet", "2"]);
    assert!(
        String::from_utf8_lossy(&one.stderr).contains("packet 2: the checksum"),
        "{one:?}"
    );
    // The checksum of a packet that is sent is written later.
    let sent = stdout(&["explain", &rules_file, "-r", &pings, "-o", "eth0"]);
    assert!(!sent.contains("checksum"), "{sent}");
}

#[test]
fn packet_beyond_the_limits_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::from("*filter\n");
    text.extend((0..60).map(|at| format!(":c{at} -\n")));
    text += "-A INPUT -j c0\n";
    for at in 1..60 {
        let jump = format!("-A c{} -j c{at}\n", at - 1);
        text += &format!("{jump}{jump}");
    }
    let diamond = file(&dir, "diamond", format!("{text}COMMIT\n").as_bytes());
    let packet = ["--src", "10.0.0.1", "--dst", "10.0.0.2", "-i", "lan"];
    let one = rules(&[&["explain", &diamond][..], &packet].concat());
    assert_eq!(one.status.code(), Some(1));
    let out = String::from_utf8_lossy(&one.stdout);
    assert!(
        out.contains("unknown (more rules than a packet may meet"),
        "{out}"
    );
    assert!(out.lines().count() < 5, "{out}");
}

#[test]
fn packets_that_cannot_be_are_refused() {
    let home = example("home.v4");
    let packet = ["explain", &home, "--src", "10.0.0.1", "--dst", "10.0.0.2"];
    for (words, problem) in [
        (&["-i", "an-interface-name"][..], "at most 15 bytes"),
        (
            &["--hook", "input", "-o", "wan"],
            "packets at INPUT have no such interface",
        ),
        (
            &["--hook", "output", "-i", "wan"],
            "packets at OUTPUT have no such interface",
        ),
        (
            &["-i", "wan", "--protocol", "udp", "--tcp-flags", "ACK"],
            "--tcp-flags ACK",
        ),
    ] {
        let output = rules(&[&packet[..], words].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(problem), "{error}");
    }
}
