//! `rules check`: what files say, and what no packet meets.

use std::io::Read;

use fairpath_testbed::{Need, Testbed, requires};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};

use super::{capture, example, file, ping, rules, stdout};

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
    // With an error in each family, the one with fewer of them.
    let two =
        "*filter\n-A INPUT -m rt --rt-type 0 -j DROP\n-A INPUT -s fe80::/10 -j NOSUCH\nCOMMIT\n";
    let (success, text) = check(two);
    assert!(!success && text.contains("NOSUCH"), "{text}");
    assert!(
        !text.contains("for IPv6 only") && !text.contains("not an address"),
        "{text}"
    );
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
fn control_characters_of_chain_names_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (name, problem) in [
        (
            "a\u{1b}[2Jb",
            "\"a\u{fffd}[2Jb\" must not have control characters",
        ),
        ("a\u{7f}", "\"a\u{fffd}\" must not have control characters"),
        ("a\u{b}b", "\"a\u{fffd}b\" must not have control characters"),
        ("\"a b\"", "\"a b\" must not have blanks"),
    ] {
        let path = file(
            &dir,
            "names",
            format!("*filter\n:{name} - [0:0]\nCOMMIT\n").as_bytes(),
        );
        let output = rules(&["show", &path]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(&format!("chain name {problem}")), "{error}");
    }
}

#[test]
fn rules_of_a_packet_may_exceed_64_bits() {
    let dir = tempfile::tempdir().unwrap();
    // Each chain calls the next one twice.
    let stats = |chains: usize, format: &str| {
        let mut text = String::from("*filter\n:INPUT ACCEPT [0:0]\n");
        for chain in 1..=chains {
            text += &format!(":c{chain} - [0:0]\n");
        }
        text += "-A INPUT -j c1\n";
        for chain in 1..chains {
            text += &format!("-A c{chain} -j c{}\n", chain + 1).repeat(2);
        }
        let path = file(&dir, "nested", (text + "COMMIT\n").as_bytes());
        stdout(&["stats", &path, "--format", format])
    };
    let largest = stats(64, "text");
    let expected = "  INPUT: at most 18446744073709551615 rules for a packet\n";
    assert!(largest.contains(expected), "{largest}");
    let larger = stats(65, "text");
    let expected = "  INPUT: 2^64 rules or more are possible for a packet\n";
    assert!(larger.contains(expected), "{larger}");
    let json: serde_json::Value = serde_json::from_str(&stats(65, "json")).unwrap();
    let span = &json["tables"][0]["longest_span"];
    assert!(span["INPUT"].is_null() && span["FORWARD"] == 0, "{span}");
}

/// Runs `fairpath rules` with a terminal as standard output.
fn on_terminal(words: &[&str]) -> String {
    let pty = native_pty_system().openpty(PtySize::default()).unwrap();
    let mut command = CommandBuilder::new(super::fairpath());
    command.arg("rules");
    command.args(words);
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut text = Vec::new();
    // The end of a terminal is an error.
    let _ = pty
        .master
        .try_clone_reader()
        .unwrap()
        .read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(child.wait().unwrap().success(), "{text:?}");
    text
}

#[test]
fn terminals_get_no_escape_sequences_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let filter = b"*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
        -A INPUT -m comment --comment \"a\x1b[2J\xc2\x9bb\" -j DROP\nCOMMIT\n";
    let rules_file = file(&dir, "rules.v4", filter);
    let set = b"create s hash:ip family inet hashsize 1024 maxelem 65536 comment bucketsize 12\n\
        add s 192.0.2.1 comment \"a\x1b[2J\xc2\x9bb\"\n";
    let sets_file = file(&dir, "sets", set);
    for (words, bytes) in [
        (&["show", &rules_file][..], &filter[..]),
        (&["convert", "--to", "ipv6", &rules_file], filter),
        (&["apply", &rules_file, "--", "-Z"], filter),
        (&["show", &sets_file], set),
    ] {
        assert_eq!(rules(words).stdout, bytes, "{words:?}");
        let shown = String::from_utf8_lossy(bytes).replace(['\u{1b}', '\u{9b}'], "?");
        assert_eq!(on_terminal(words), shown.replace('\n', "\r\n"), "{words:?}");
    }
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
fn shift_of_connection_mark_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = b"*mangle\n-A INPUT -p udp -j CONNMARK --save-mark --right-shift-mark 2\n\
        -A INPUT -p tcp -j CONNMARK --set-mark 1/0xff --left-shift-mark 2\nCOMMIT\n";
    let path = file(&dir, "shifts", text);
    let stats = stdout(&["stats", &path]);
    for named in [
        "shifts:2:41: --right-shift-mark is not evaluated",
        "shifts:3:47: --left-shift-mark is not evaluated",
    ] {
        assert!(stats.contains(named), "{stats}");
    }
    let warnings = stdout(&["check", &path]);
    assert!(warnings.contains("at netfilter: 2 refused"), "{warnings}");
    let packet = ["--src", "192.0.2.1", "--dst", "192.0.2.2", "-i", "lan"];
    let protocol = ["--protocol", "udp", "--sport", "1", "--dport", "2"];
    let output = rules(&[&["explain", &path][..], &packet, &protocol].concat());
    let path = String::from_utf8_lossy(&output.stdout);
    assert!(
        path.contains("unknown (--right-shift-mark, which is not evaluated) by"),
        "{path}"
    );
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
