//! `rules convert`: other formats, and classes.

use super::{example, rules, stdout};

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
