//! `rules apply`: edits as iptables and ip6tables make them.

use fairpath_testbed::{Need, Testbed, requires};

use super::{example, rules, stdout};
use crate::formats::execute;

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
    let tool = |words: &[&str], input: &str| execute(&netns, words, input);
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
