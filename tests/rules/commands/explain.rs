//! `rules explain`: paths of packets that are named or captured.

use fairpath_testbed::{Need, Testbed, requires};
use fairpath_tests::oracle::packets::{ETH_IPV6, plain};

use crate::oracle::legacy::{Legacy, Tool};

use super::{capture, example, file, ping, rules, stdout};

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

/// A state does not give the rest of a connection; ports and groups have no default either.
#[test]
fn facts_of_a_connection_are_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    for (rule, state, option, matched, failed) in [
        (
            "-m conntrack --ctdir REPLY",
            "ESTABLISHED",
            "--ctdir",
            "REPLY",
            "ORIGINAL",
        ),
        (
            "-m conntrack --ctstatus ASSURED",
            "ESTABLISHED",
            "--ctstatus",
            "SEEN_REPLY,ASSURED",
            "SEEN_REPLY",
        ),
        ("-m connmark --mark 7", "ESTABLISHED", "--ctmark", "7", "0"),
        (
            "-m conntrack ! --ctstate SNAT",
            "ESTABLISHED",
            "--ctmark",
            "0",
            "",
        ),
    ] {
        let text = format!("*filter\n-A FORWARD {rule} -j DROP\nCOMMIT\n");
        let rules_file = file(&dir, "rules", text.as_bytes());
        let explain = |more: &[&str]| {
            let packet = [
                "--src", "10.0.0.1", "--dst", "10.0.0.2", "-i", "lan", "-o", "wan",
            ];
            let state = ["--ctstate", state];
            rules(&[&["explain", &rules_file][..], &packet, &state, more].concat())
        };
        let verdict = |more: &[&str]| {
            let output = explain(more);
            assert!(output.status.success(), "{output:?}");
            let out = String::from_utf8(output.stdout).unwrap();
            out.lines()
                .last()
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(verdict(&[option, matched]), "DROP", "{rule}");
        if !failed.is_empty() {
            let unknown = explain(&[]);
            assert_eq!(unknown.status.code(), Some(1), "{rule}");
            let error = String::from_utf8_lossy(&unknown.stderr);
            assert!(error.contains(option), "{error}");
            assert_eq!(verdict(&[option, failed]), "ACCEPT", "{rule}");
        }
    }
    let bridged = "*filter\n-A FORWARD -m physdev --physdev-in p1 -j DROP\nCOMMIT\n";
    let bridged = file(&dir, "bridged", bridged.as_bytes());
    let packet = [
        "--src", "10.0.0.1", "--dst", "10.0.0.2", "-i", "br0", "-o", "br0",
    ];
    let explain = |more: &[&str]| rules(&[&["explain", &bridged][..], &packet, more].concat());
    let error = String::from_utf8(explain(&[]).stderr).unwrap();
    assert!(
        error.contains("give --physdev-in and --physdev-out"),
        "{error}"
    );
    let known = explain(&["--physdev-in", "p1", "--physdev-out", ""]);
    let out = String::from_utf8(known.stdout).unwrap();
    assert!(out.contains("DROP by"), "{out}");
}

/// A translated packet may have another destination after table nat.
#[test]
fn table_nat_of_output_needs_the_connection() {
    let dir = tempfile::tempdir().unwrap();
    let text = "*nat\nCOMMIT\n*filter\n-A OUTPUT -d 10.0.0.2 -j DROP\nCOMMIT\n";
    let rules_file = file(&dir, "rules", text.as_bytes());
    let packet = ["--src", "10.0.0.1", "--dst", "10.0.0.2", "-o", "wan"];
    let explain = |more: &[&str]| rules(&[&["explain", &rules_file][..], &packet, more].concat());
    let unknown = explain(&[]);
    assert_eq!(unknown.status.code(), Some(1));
    let out = String::from_utf8(unknown.stdout).unwrap();
    assert!(out.contains("by table nat"), "{out}");
    for (state, verdict) in [
        ("NEW", "DROP by"),
        ("ESTABLISHED", "DROP by"),
        ("ESTABLISHED,DNAT", "unknown"),
    ] {
        let out = String::from_utf8(explain(&["--ctstate", state]).stdout).unwrap();
        assert!(out.contains(verdict), "{state}: {out}");
    }
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

/// Offset of the first frame of a capture.
const FRAME: usize = 24 + 16;

/// A capture of one frame with this type.
fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut bytes = capture(&[packet.to_vec()]);
    bytes[FRAME + 12..][..2].copy_from_slice(&ethertype.to_be_bytes());
    bytes
}

#[test]
fn broken_arp_and_jumbo_options_meet_no_rules() {
    let dir = tempfile::tempdir().unwrap();
    let summary = |rules: &str, family, capture: &[u8]| {
        let rules_file = file(&dir, "rules", rules.as_bytes());
        let packets = file(&dir, "packets", capture);
        stdout(&["explain", &rules_file, "--family", family, "-r", &packets])
    };
    let arp_rules = "*filter\n:INPUT ACCEPT\n-A INPUT -j DROP\n";
    let arp = |hardware, protocol| {
        let mut packet = vec![0, 1, 8, 0, hardware, protocol, 0, 1];
        packet.resize(60, 0);
        frame(0x0806, &packet)
    };
    let usual = summary(arp_rules, "arp", &arp(6, 4));
    assert!(usual.contains("DROP by"), "{usual}");
    for (hardware, protocol) in [(8, 4), (6, 16)] {
        let broken = summary(arp_rules, "arp", &arp(hardware, protocol));
        let why = "because its addresses are not of Ethernet and IPv4";
        assert!(broken.contains(why), "{broken}");
    }
    // A jumbo option with a length of 100,000 bytes.
    let mut jumbo = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    jumbo.extend([[0x20; 16], [0x20; 16]].concat());
    jumbo.extend([17, 0, 0xc2, 4, 0, 1, 0x86, 0xa0, 0, 7, 0, 7, 0, 8, 0, 0]);
    let rules = "*filter\n-A INPUT -j DROP\nCOMMIT\n";
    let short = summary(rules, "ipv6", &frame(0x86dd, &jumbo));
    assert!(
        short.contains("because a hop-by-hop option is wrong"),
        "{short}"
    );
}

/// `lo` is no Ethernet device, so `mac` never matches there.
#[test]
fn link_layer_of_lo_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let rule = "-A INPUT -m mac ! --mac-source 02:00:00:00:00:01 -j DROP";
    let text = format!("*filter\n{rule}\nCOMMIT\n");
    let rules_file = file(&dir, "rules", text.as_bytes());
    let mut of_lo = capture(&[ping()]);
    of_lo[FRAME..][..12].fill(0);
    let other = file(&dir, "other", &capture(&[ping()]));
    let of_lo = file(&dir, "lo", &of_lo);
    let of = |packets: &str, input: &[&str]| {
        let command = ["explain", &rules_file, "-r", packets, "--hook", "input"];
        String::from_utf8(rules(&[&command, input].concat()).stdout).unwrap()
    };
    assert!(of(&other, &["-i", "eth0"]).contains("DROP by"));
    assert!(of(&other, &[]).contains("DROP by"));
    assert!(of(&other, &["-i", "lo"]).contains("unknown"));
    assert!(of(&of_lo, &[]).contains("unknown"));
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
        (&["--ctstate", "NEW,INVALID"], "give one of INVALID, NEW"),
        (&["--ctstate", "SNAT"], "give one of INVALID, NEW"),
        (&["--ctstate", "UNTRACKED,DNAT"], "give one of INVALID, NEW"),
        (&["--ctstate", "NEW", "--ctdir", "REPLY"], "no reply is NEW"),
        (&["--ctstate", "NEW", "--ctdir", "BACK"], "ORIGINAL, REPLY"),
        (
            &["--ctstate", "NEW", "--ctstatus", "ASSURED"],
            "not NEW after an answer",
        ),
        (
            &["--ctstate", "INVALID", "--ctmark", "4"],
            "the packet has no connection",
        ),
    ] {
        let output = rules(&[&packet[..], words].concat());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(problem), "{error}");
    }
}

/// Received packets of IPv6 that meet no rule are those that the kernel drops before.
#[test]
fn ipv6_before_rules_is_as_in_the_kernel() {
    requires!(
        Need::Root,
        Need::Tool("ip6tables-legacy"),
        Need::Tool("nft")
    );
    let legacy = Legacy::new(Tool::V6);
    let rule = "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING\nCOMMIT\n";
    let packet = |from: &str, to: &str, options: &[u8]| {
        let [from, to] = [from, to].map(|address| {
            let address: std::net::Ipv6Addr = address.parse().unwrap();
            address.octets()
        });
        let next = if options.is_empty() { 59 } else { 0 };
        let head = [0x60, 0, 0, 0, 0, options.len() as u8, next, 64];
        [&head[..], &from, &to, options].concat()
    };
    let usual = "2001:db8::1";
    let options = |list: &[u8]| packet(usual, "2001:db8::2", &[&[59, 0][..], list].concat());
    // Options of 2 bytes, and padding.
    let many_options = |count: usize| {
        let left = 22 - 2 * count;
        let mut header = [&[59, 2], &[0x1e, 0].repeat(count)[..], &[1, left as u8 - 2]].concat();
        header.resize(24, 0);
        header
    };
    let cases = [
        packet(usual, "2001:db8::2", &[]),
        packet("ff02::1", usual, &[]),
        packet("::1", usual, &[]),
        packet(usual, "::1", &[]),
        packet("::", usual, &[]),
        packet(usual, "ff00::1", &[]),
        packet(usual, "ff01::1", &[]),
        packet(usual, "ff11::1", &[]),
        packet(usual, "ff02::1", &[]),
        packet(usual, "ff05::1", &[]),
        options(&[1, 4, 0, 0, 0, 0]),
        options(&[1, 4, 0, 0, 0, 1]),
        options(&[0, 0, 0, 0, 0, 0]),
        options(&[5, 2, 0, 0, 1, 0]),
        options(&[0x1e, 4, 0, 0, 0, 0]),
        options(&[0x5e, 4, 0, 0, 0, 0]),
        options(&[0x9e, 4, 0, 0, 0, 0]),
        options(&[0xde, 4, 0, 0, 0, 0]),
        options(&[0x1e, 5, 0, 0, 0, 0]),
        options(&[0x1e, 3, 0, 0, 0, 1]),
        packet(usual, "2001:db8::2", &[59, 1, 1, 4, 0, 0, 0, 0]),
        packet(
            usual,
            "2001:db8::2",
            &[59, 1, 0, 0, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0],
        ),
        packet(
            usual,
            "2001:db8::2",
            &[59, 1, 5, 2, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        packet(
            usual,
            "2001:db8::2",
            &[59, 1, 5, 2, 0, 0, 0x1e, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        packet(usual, "2001:db8::2", &[59, 0, 1]),
        options(&[5, 4, 0, 0, 0, 0]),
        options(&[0xc2, 4, 0, 0, 0, 8]),
        options(&[0xc2, 4, 0, 1, 0, 0]),
        packet(usual, "2001:db8::2", &many_options(8)),
        packet(usual, "2001:db8::2", &many_options(9)),
        packet(
            usual,
            "2001:db8::2",
            &[59, 1, 0x31, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
        ),
        packet(
            usual,
            "2001:db8::2",
            &[59, 1, 1, 0, 0x31, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        options(&[7, 4, 0, 0, 0, 1]),
        // Its payload ends before the header.
        [
            &[0x60, 0, 0, 0, 0, 4, 0, 64][..],
            &packet(usual, "2001:db8::2", &[59, 0, 1, 4, 0, 0, 0, 0])[8..],
        ]
        .concat(),
    ];
    let dir = tempfile::tempdir().unwrap();
    let rules_file = file(&dir, "rules", rule.as_bytes());
    let mut dropped = 0;
    for bytes in cases {
        legacy.load(rule).unwrap();
        let mut frame = plain(ETH_IPV6, &bytes);
        legacy.inject(std::slice::from_ref(&frame));
        let counts = legacy.counters();
        let meets = counts
            .iter()
            .any(|count| count.rule == Some(0) && count.packets == 1);
        let mut header = capture(&[]);
        let length = (frame.len() as u32).to_le_bytes();
        header.extend([&[0; 8][..], &length, &length].concat());
        header.append(&mut frame);
        let path = file(&dir, "one", &header);
        let summary = stdout(&[
            "explain",
            &rules_file,
            "--family",
            "ipv6",
            "-r",
            &path,
            "--hook",
            "prerouting",
            "-i",
            "in0",
        ]);
        let of_explain = summary.contains("ACCEPT by");
        assert_eq!(of_explain, meets, "{bytes:02x?}: {summary}");
        dropped += u32::from(!meets);
    }
    assert!(dropped > 8, "{dropped}");
}

/// Messages name what is not evaluated, and all changes.
#[test]
fn what_is_not_evaluated_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let packet = ["--src", "10.0.0.1", "--dst", "10.0.0.2", "-i", "lan"];
    for (rule, named) in [
        (
            "-m string --string abc --algo bm -j DROP",
            "match string, which is not evaluated",
        ),
        (
            "-m foo --bar 1 -j DROP",
            "match foo, which is not evaluated",
        ),
        (
            "-j CHECKSUM --checksum-fill",
            "target CHECKSUM, which is not evaluated",
        ),
    ] {
        let text = format!("*mangle\n-A INPUT {rule}\nCOMMIT\n");
        let rules_file = file(&dir, "rules", text.as_bytes());
        let output = rules(&[&["explain", &rules_file][..], &packet].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(named), "{error}");
    }
    let text = "*mangle\n-A FORWARD -j TOS --set-tos 0x03\n\
                -A FORWARD -p tcp -m tcp --syn -j TCPMSS --set-mss 1000\n\
                -A FORWARD -j CLASSIFY --set-class 1:10\nCOMMIT\n";
    let rules_file = file(&dir, "rules", text.as_bytes());
    let packet = [&packet[..], &["--dport", "80", "-o", "wan"]].concat();
    let out = stdout(&[&["explain", &rules_file][..], &packet].concat());
    for line in ["DSCP: 0, ECN: 3", "MSS: at most 1000", "class: 1:10"] {
        assert!(out.contains(line), "{out}");
    }
    let json = stdout(&[&["explain", &rules_file, "--format", "json"][..], &packet].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tos"], 3);
    assert_eq!(json["mss"], 1000);
    assert_eq!(json["class"], "1:10");
    assert_eq!(json["untracked"], false);
}
