//! Accepted and refused configurations, and the example file.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use fairpath_class::ClassSet;
use fairpath_sched::tree::Diffserv;
use fairpath_shape::Lines;

use super::*;

const MIN: &str = "[monitor]\ninterfaces = [\"eth0\"]\n";

fn shown(text: &str) -> Vec<String> {
    parse("dir/f.toml", text).unwrap_err().0
}

#[test]
fn omitted_keys_have_their_default() {
    let config = parse("dir/f.toml", MIN).unwrap();
    assert_eq!(config.monitor.interfaces, ["eth0"]);
    assert_eq!(config.metrics.listen, None);
    assert_eq!(config.web.listen, None);
    assert_eq!(config.state.file, Some("/var/lib/fairpath/state".into()));
    let rules = Rules {
        fail: Fail::Open,
        answer: Some(1000),
    };
    assert_eq!(config.rules, rules);
}

#[test]
fn answers_are_limited_or_left_to_others() {
    let rules = |text: &str| {
        let config = parse("f.toml", &format!("{MIN}[rules]\n{text}\n"));
        config.map(|config| config.rules.answer)
    };
    assert_eq!(rules("answer_limit = 7").unwrap(), Some(7));
    assert_eq!(rules("answer = false").unwrap(), None);
    let [problem] = &rules("answer = 3").unwrap_err().0[..] else {
        panic!("one problem");
    };
    assert!(problem.starts_with("f.toml:4:10:"), "{problem}");
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_key() {
    let text = format!("{MIN}intervl = \"1s\"\n");
    let [problem] = &shown(&text)[..] else {
        panic!("one problem");
    };
    assert!(
        problem.starts_with("dir/f.toml:3:1: unknown field `intervl`"),
        "{problem}"
    );
    assert!(problem.ends_with("did you mean `interval`?"), "{problem}");
    let [problem] = &shown("[montor]\n")[..] else {
        panic!("one problem");
    };
    assert!(
        problem.contains(":1:2: ") && problem.ends_with("did you mean `monitor`?"),
        "{problem}"
    );
}

#[test]
fn all_invalid_values_are_reported_with_their_place() {
    let text = "[monitor]\ninterfaces = [\"eth0\", \"a/b\", \"eth0\"]\nflows = 3\nhook = \"tc\"\n\
                [metrics]\n  listen = \"everywhere\"\n[alerts]\nhook = [\"mail\"]\nloss = 2.0\n\
                rtt_p95 = \"40\"\n\
                [state]\nsave_every = \"2 weeks\"\n";
    let expected = [
        ("2:23:", "\"a/b\" is not a valid interface name"),
        ("2:30:", "\"eth0\" is listed twice"),
        ("3:9:", "flows: 3 is out of range: 8 to 4194304"),
        ("4:8:", "\"tc\" is invalid: write \"tcx\", \"xdp\""),
        ("6:12:", "\"everywhere\" is not an address with port"),
        ("8:8:", "\"mail\" is not an absolute path"),
        ("9:8:", "loss: 2 is out of range"),
        ("10:11:", "[alerts] rtt_p95: "),
        ("12:14:", "time \"2 weeks\" is invalid"),
    ];
    let problems = shown(text);
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (at, message) in expected {
        let found = problems
            .iter()
            .any(|p| p.starts_with(&format!("dir/f.toml:{at}")) && p.contains(message));
        assert!(found, "{at} {message} is not in {problems:#?}");
    }
}

#[test]
fn a_general_service_level_is_off_by_default() {
    let level = |text: &str| {
        let text = format!("{MIN}[alerts]\n{text}\n");
        parse("f.toml", &text).unwrap().alerts.rtt_p95
    };
    assert_eq!(level(""), None);
    assert_eq!(level("rtt_p95 = \"off\""), None);
    assert_eq!(
        level("rtt_p95 = \"200ms\""),
        Some(Duration::from_millis(200))
    );
    let refused = shown(&format!("{MIN}[alerts]\nrtt_p95 = \"2h\"\n"));
    assert!(refused[0].contains("out of range"), "{refused:?}");
}

#[test]
fn interfaces_must_be_named() {
    for text in ["", "[monitor]\n", "[monitor]\ninterfaces = []\n"] {
        assert!(
            shown(text)[0].contains("name the interfaces to watch"),
            "{text:?}"
        );
    }
}

#[test]
fn relative_paths_start_at_the_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f.toml");
    std::fs::write(place.path().join("a.csv"), "name,prefix\nanna,192.0.2.1\n").unwrap();
    let text = format!(
        "class_files = [\"a.csv\"]\n{MIN}[rows]\njson = \"/r.json\"\nparquet = \"rows\"\n\
         [[class]]\nname = \"bert\"\nprefix = \"192.0.2.2\"\n"
    );
    let config = parse(file.to_str().unwrap(), &text).unwrap();
    let names = config
        .classes
        .set
        .classes()
        .iter()
        .map(|class| class.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["bert", "anna"]);
    assert_eq!(config.rows.json.as_deref(), Some(Path::new("/r.json")));
    assert_eq!(config.rows.parquet, Some(place.path().join("rows")));
}

#[test]
fn all_configuration_problems_are_reported_together() {
    let text = "class_files = [\"missing.csv\"]\n[monitor]\ninterfaces = [\"eth0\"]\nflows = 1\n\
                [[class]]\nname = \"anna\"\nprefx = \"192.0.2.1\"\n";
    let problems = shown(text);
    for part in [
        "f.toml:1:16: read dir/missing.csv",
        "f.toml:4:9: ",
        "f.toml:7:1: ",
        "did you mean \"prefix\"?",
    ] {
        assert!(
            problems.iter().any(|p| p.contains(part)),
            "{part} is not in {problems:#?}"
        );
    }
}

#[test]
fn filters_are_a_prefix_a_port_or_both() {
    let text = format!(
        "{MIN}only = [\"192.0.2.0/24 port 443\"]\nexcept = [\"port 22\", \"2001:db8::1\"]\n"
    );
    let filters = parse("f.toml", &text).unwrap().monitor.filters.packets;
    let shown: Vec<_> = filters
        .iter()
        .map(|f| (f.except, f.prefix.map(|p| p.to_string()), f.port))
        .collect();
    assert_eq!(
        shown,
        [
            (false, Some("192.0.2.0/24".into()), Some(443)),
            (true, None, Some(22)),
            (true, Some("2001:db8::1/128".into()), None),
        ]
    );
    for bad in ["", "port", "port x", "192.0.2.0/33", "443"] {
        assert!(shown_of(bad).contains("is invalid"), "{bad:?}");
    }
}

#[test]
fn filters_name_classes_that_exist() {
    let with = |name: &str| {
        format!(
            "{MIN}only = [\"class {name}\"]\n[[class]]\nname = \"anna b\"\nprefix = \"192.0.2.1\"\n"
        )
    };
    let config = parse("f.toml", &with("anna b")).unwrap();
    assert_eq!(config.monitor.filters.only_classes, ["anna b"]);
    let problems = shown(&with("anne"));
    assert!(
        problems[0].starts_with("f.toml:3:9: ") || problems[0].contains(":3:9: "),
        "{problems:?}"
    );
    assert!(
        problems[0].contains("no class has the name \"anne\""),
        "{problems:?}"
    );
}

fn shown_of(filter: &str) -> String {
    shown(&format!("{MIN}only = [{filter:?}]\n")).join("")
}

/// The example file, and the same with one key uncommented at a time, and with all.
#[test]
fn the_example_is_the_default_key_by_key() {
    let example = include_str!("../../../../packaging/fairpath.toml");
    let plain = parse("fairpath.toml", example).unwrap();
    assert_eq!(plain, parse("fairpath.toml", MIN).unwrap());
    let is_key =
        |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.contains('=');
    // A section that is commented out has a separate test.
    let lines: Vec<&str> = example
        .lines()
        .filter(|line| !shape_example().contains(line))
        .collect();
    let keys = lines.iter().filter(|line| is_key(line)).count();
    assert!(keys >= 25, "{keys} keys");
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_key(line)) {
        if is_of_a_class(&lines, at) {
            continue; // one key of a class is none: they are tried together below
        }
        if line.contains(".csv") {
            continue; // a file that is not there
        }
        let mut changed = lines.clone();
        changed[at] = &line[1..];
        let text = changed.join("\n");
        parse("fairpath.toml", &text).unwrap_or_else(|p| panic!("{line}: {p}"));
    }
    let uncomment = |line: &&str| match line.strip_prefix('#') {
        Some(key) if line.contains(".csv") => format!("# {key}"),
        Some(key) if is_key(line) || key.starts_with('[') => key.to_owned(),
        _ => (*line).to_owned(),
    };
    let all: Vec<String> = lines.iter().map(uncomment).collect();
    parse("fairpath.toml", &all.join("\n")).unwrap();
}

/// The lines of `[shape]` in the example.
fn shape_example() -> Vec<&'static str> {
    let example = include_str!("../../../../packaging/fairpath.toml");
    let section = example
        .lines()
        .skip_while(|line| *line != "#[shape]")
        .take_while(|line| !line.starts_with("#[["));
    section.filter(|line| !line.is_empty()).collect()
}

#[test]
fn each_key_of_examples_shaper_can_be_uncommented() {
    let lines = shape_example();
    // A one-armed bridge is another example; a tree names a file that is not there.
    let other = ["#inside_vlan", "#outside_vlan", "#tree"];
    let is_key = |line: &&&str| line.contains(" = ") && !line.starts_with("# ");
    let keys: Vec<&str> = (lines.iter().filter(is_key))
        .filter(|line| !other.iter().any(|other| line.starts_with(other)))
        .map(|line| &line[1..])
        .collect();
    assert!(keys.len() >= 11, "{keys:#?}");
    let text = format!("[shape]\n{}\n", keys.join("\n"));
    let config = parse("fairpath.toml", &text).unwrap();
    // The example states the defaults, except for interfaces and rates.
    let min = "[shape]\ninside = \"lan0\"\noutside = \"wan0\"\n";
    let min = parse("fairpath.toml", min).unwrap().shape.unwrap();
    let shape = config.shape.unwrap();
    assert_eq!(shape.lines.policy, min.lines.policy);
    assert_eq!(shape.lines.framing, min.lines.framing);
    assert_eq!((shape.queue, shape.start), (min.queue, min.start));
    assert_eq!(shape.on_failure, min.on_failure);
    assert_eq!(shape.on_bypass, min.on_bypass);
}

fn is_of_a_class(lines: &[&str], at: usize) -> bool {
    lines[..at].contains(&"#[[class]]")
}

/// A policy that packets leave by as they came.
const MINE: &str = "#include <fairpath/policy.h>\n\
     struct flow { };\nstruct class { PARAMS; };\nstruct global { };\n\
     POLICY{ STATE, .name = \"mine\", .about = \"a test\", .source = \"a test\",\n\
     .over = PACKETS, .usual = FP_OVER_PACKETS };\nRANK_ENQUEUE { return r->now; }\n";

/// The object of a policy file.
fn object(policy: &str) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("mine.c");
    std::fs::write(&source, policy).unwrap();
    let compiler = fairpath_bpf::author::Compiler::new().unwrap();
    compiler.policy(&source).unwrap()
}

/// The problems of a `[shape]` with these keys and the policies `mine.o` and `other.o`; line 3 is its first line.
fn shape_of(policy: &str, keys: &str) -> Result<Config, Vec<String>> {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("mine.c"), policy).unwrap();
    let other = policy.replace("\"mine\"", "\"other\"");
    for (name, text) in [("mine.o", policy), ("other.o", &other)] {
        std::fs::write(place.path().join(name), object(text)).unwrap();
    }
    std::fs::write(place.path().join("broken.o"), "no object").unwrap();
    let open = place.path().join("open.o");
    std::fs::write(&open, object(policy)).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o666)).unwrap();
    let file = place.path().join("f.toml");
    let text = format!("[shape]\ninside = \"eth0\"\n{keys}\n");
    let parsed = parse(&file.display().to_string(), &text);
    let strip = |reported: String| reported.replace(&format!("{}/", place.path().display()), "");
    parsed.map_err(|refused| refused.0.into_iter().map(strip).collect())
}

#[test]
fn policy_files_are_relative_to_the_configuration() {
    let shape = shape_of(MINE, "policy = \"mine.o\"")
        .unwrap()
        .shape
        .unwrap();
    assert_eq!(shape.lines.policy, "mine");
    assert_eq!(shape.lines.customs[0].author.policy.about, "a test");
}

#[test]
fn only_trusted_objects_of_policies_are_loaded() {
    let cases = [
        ("mine.c", "is no object: run `fairpath sched build "),
        ("yours.o", "No such file"),
        ("broken.o", "broken.o: "),
        (
            "open.o",
            "can be changed by other users: run `chmod o-w,g-w`",
        ),
    ];
    for (file, message) in cases {
        for key in ["policy = ", "policies = "] {
            let list = key == "policies = ";
            let keys = match list {
                true => format!("{key}[\"{file}\"]"),
                false => format!("{key}\"{file}\""),
            };
            let reported = shape_of(MINE, &keys).unwrap_err();
            let [reported] = &reported[..] else {
                panic!("one problem: {reported:#?}")
            };
            let at = format!("f.toml:3:{}: [shape] ", key.len() + usize::from(list) + 1);
            assert!(reported.starts_with(&at), "{reported}");
            assert!(reported.contains(message), "{reported}");
        }
    }
}

#[test]
fn back_ends_without_a_scheduler_refuse_custom_policies() {
    let keys = "policy = \"mine.o\"\nvia = \"kernel\"";
    let reported = shape_of(MINE, keys).unwrap_err();
    let [reported] = &reported[..] else {
        panic!("one problem: {reported:#?}")
    };
    assert!(
        reported.starts_with("f.toml:4:7: [shape] via: via kernel cannot run policy mine.o: "),
        "{reported}"
    );
    for via in ["qdisc", "nfqueue", "afxdp", "auto"] {
        let keys = format!("policy = \"mine.o\"\nvia = \"{via}\"\noutside = \"eth1\"");
        shape_of(MINE, &keys).unwrap();
    }
}

#[test]
fn unsupported_combinations_are_refused_with_the_configuration() {
    for (keys, at, message) in [
        (
            "via = \"qdisc\"\non_failure = \"stop\"",
            "3:7: [shape] via",
            "the kernel continues to shape",
        ),
        (
            "via = \"kernel\"\non_failure = \"stop\"",
            "3:7: [shape] via",
            "use \"nfqueue\"",
        ),
        (
            "via = \"afxdp\"",
            "3:7: [shape] via",
            "name [shape] outside",
        ),
        (
            "via = \"afxdp\"\noutside = \"eth1\"\n[monitor]\nhook = \"xdp\"",
            "3:7: [shape] via",
            "tcx",
        ),
        ("up = \"10mbit\"", "3:6: [shape] up", "name [shape] outside"),
    ] {
        let reported = shape_of(MINE, keys).unwrap_err();
        let [reported] = &reported[..] else {
            panic!("one problem: {reported:#?}")
        };
        assert!(
            reported.starts_with(&format!("f.toml:{at}: ")),
            "{reported}"
        );
        assert!(reported.contains(message), "{reported}");
    }
    shape_of(MINE, "via = \"nfqueue\"\non_failure = \"stop\"").unwrap();
    shape_of(MINE, "on_failure = \"stop\"").unwrap();
}

/// Returns the problems of a shaper by this back end and a tree whose only node has this impairment, if any.
fn impaired_tree(via: &str, impair: &str) -> Result<Config, Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let impair = match impair {
        "" => String::new(),
        keys => format!("impair = {{ {keys} }}\n"),
    };
    let tree = format!("[[node]]\nname = \"all\"\npolicy = \"fifo\"\n{impair}");
    std::fs::write(dir.path().join("tree.toml"), tree).unwrap();
    let file = dir.path().join("f.toml");
    let text = format!(
        "[shape]\ninside = \"eth0\"\noutside = \"eth1\"\nvia = \"{via}\"\ntree = \"tree.toml\"\n"
    );
    parse(&file.display().to_string(), &text).map_err(|problems| problems.0)
}

#[test]
fn impairing_trees_need_back_end_that_supports_them() {
    let refused = [
        (
            "kernel",
            "loss = \"1%\"",
            "via kernel cannot impair packets: HTB",
        ),
        (
            "qdisc",
            "delay = \"5ms\", corrupt = \"1%\"",
            "via qdisc cannot duplicate or corrupt packets: a BPF qdisc may",
        ),
        (
            "nfqueue",
            "duplicate = \"1%\"",
            "via nfqueue cannot duplicate or corrupt",
        ),
        ("nfqueue", "corrupt = \"1%\"", "use \"afxdp\""),
    ];
    for (via, impair, message) in refused {
        let reported = impaired_tree(via, impair).unwrap_err();
        let [reported] = &reported[..] else {
            panic!("{reported:?}")
        };
        assert!(
            reported.contains("[shape] tree: ") && reported.contains(message),
            "{reported}"
        );
    }
    impaired_tree("kernel", "").unwrap();
    for (via, impair) in [
        ("nfqueue", "delay = \"5ms\", loss = \"1%\""),
        ("afxdp", "duplicate = \"1%\", corrupt = \"1%\""),
        ("qdisc", "delay = \"5ms\", loss = \"1%\""),
        ("auto", "delay = \"5ms\""),
    ] {
        impaired_tree(via, impair).unwrap();
    }
}

#[test]
fn kernel_back_ends_refuse_to_record() {
    for via in ["qdisc", "kernel"] {
        let reported = shape_of(MINE, &format!("via = \"{via}\"\nrecord = \"ops\"")).unwrap_err();
        let message = format!("f.toml:3:7: [shape] via: via {via} cannot record: ");
        assert!(
            reported.len() == 1 && reported[0].starts_with(&message),
            "{reported:#?}"
        );
    }
    let shape = shape_of(MINE, "record = \"ops\"").unwrap().shape.unwrap();
    assert!(shape.record.unwrap().ends_with("ops"));
}

#[test]
fn tree_uses_the_custom_policy_it_is_given() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree.toml");
    let with = |leaf: &str, policy: &str| {
        let text =
            format!("[[node]]\nname = \"all\"\npolicy = \"{leaf}\"\nmatch = {{ class = \"*\" }}\n");
        std::fs::write(&tree, text).unwrap();
        shape_of(
            MINE,
            &format!(
                "policy = \"{policy}\"\ntree = {:?}",
                tree.display().to_string()
            ),
        )
    };
    assert!(with("mine", "mine.o").is_ok());
    let reported = with("fifo", "mine.o").unwrap_err();
    assert!(
        reported[0].contains("no node of the tree has it")
            && reported[0].contains("policy = \"mine\""),
        "{reported:#?}"
    );
    let reported = with("fifo", "drr").unwrap_err();
    assert!(
        reported[0].starts_with("f.toml:3:10: [shape] policy: nodes of a tree name"),
        "{reported:#?}"
    );
}

#[test]
fn overhead_is_read_as_cake_counts_it() {
    let framing = |keys: &str| shape_of(MINE, keys).unwrap().shape.unwrap().lines.framing;
    let bytes = |keys: &str| [54, 1514].map(|frame| framing(keys).link_bytes(frame, 1));
    for (keys, charged) in [
        ("", [54, 1514]),
        ("overhead = 38\nmpu = 84", [84, 1538]),
        ("overhead = \"ethernet\"", [84, 1538]),
        ("overhead = \"ethernet\"\nmpu = 0", [78, 1538]),
        ("overhead = -20", [20, 1480]),
        ("overhead = 30\natm = \"ptm\"", [72, 1554]),
        ("overhead = \"pppoe-llcsnap\"", [106, 1749]),
        ("atm = \"atm\"", [106, 1696]),
        ("overhead = \"pppoe-ptm\"\natm = \"none\"", [70, 1530]),
    ] {
        assert_eq!(bytes(keys), charged, "{keys}");
    }
}

#[test]
fn invalid_framing_is_refused_with_a_remedy() {
    for (keys, reported) in [
        (
            "overhead = 257",
            "3:12: [shape] overhead: 257 is out of range: -64 to 256",
        ),
        (
            "overhead = \"pppoe-ptn\"",
            "3:12: [shape] overhead: link \"pppoe-ptn\" is unknown: did you mean \"pppoe-ptm\"?",
        ),
        (
            "overhead = \"gpon\"",
            "write bytes, or one of \"conservative\"",
        ),
        ("overhead = true", "expected bytes, such as 44"),
        ("mpu = -1", "3:7: [shape] mpu: -1 is out of range: 0 to 256"),
        (
            "atm = \"vdsl\"",
            "3:7: [shape] atm: \"vdsl\" is invalid: write \"none\", \"atm\", \"ptm\"",
        ),
        (
            "via = \"kernel\"\noverhead = 44",
            "via kernel cannot count the overhead of the link: HTB counts a GSO packet as one packet",
        ),
    ] {
        let problems = shape_of(MINE, keys).unwrap_err();
        assert!(problems[0].contains(reported), "{keys}: {problems:#?}");
    }
}

#[test]
fn no_class_has_the_name_of_the_link() {
    let classes = "[[class]]\nname = \"line\"\nprefix = \"10.0.0.0/8\"";
    let problems = shape_of(MINE, classes).unwrap_err();
    assert!(
        problems[0].contains("name the class differently"),
        "{problems:#?}"
    );
}

#[test]
fn problems_of_links_have_their_line() {
    for (keys, reported) in [
        (
            "set = [\n\"quantum=300B\",\n\"nobody.quantum=300B\"]",
            "5:1: [shape] set",
        ),
        (
            "policy = \"fifo\"\nack_filter = true",
            "4:14: [shape] filter ACKs",
        ),
        ("inside_vlan = 5", "3:15: [shape] inside_vlan"),
        (
            "policy = \"tins\"",
            "3:10: [shape] policy \"tins\": it ranks children",
        ),
        ("policy = \"foo\"", "3:10: [shape] policy \"foo\": unknown"),
    ] {
        let problems = shape_of(MINE, keys).unwrap_err();
        assert!(problems[0].contains(reported), "{keys}: {problems:#?}");
    }
}

#[test]
fn ack_filters_need_queues_of_flows() {
    let read = |keys: &str| shape_of(MINE, keys).map(|config| config.shape.unwrap().lines);
    let lines = |keys: &str| Lines::new(&ClassSet::default(), &read(keys).unwrap());
    let filtered = lines("ack_filter = true").unwrap();
    assert_eq!(filtered.trees.up.plan.config.ack_filter, 1);
    assert_eq!(lines("").unwrap().trees.up.plan.config.ack_filter, 0);
    for (keys, reported) in [
        ("policy = \"fifo\"", "use fq_codel"),
        ("via = \"kernel\"", "via kernel cannot filter ACKs"),
    ] {
        let problems = read(&format!("ack_filter = true\n{keys}")).unwrap_err();
        assert!(problems[0].contains(reported), "{problems:#?}");
    }
}

#[test]
fn diffserv_is_refused_where_leaves_are_fixed() {
    let read = |keys: &str| shape_of(MINE, keys).map(|config| config.shape.unwrap().lines.diffserv);
    assert_eq!(read("").unwrap(), Diffserv::BestEffort);
    assert_eq!(
        read("diffserv = \"diffserv4\"").unwrap(),
        Diffserv::Diffserv4
    );
    let lines = |keys: &str| shape_of(MINE, keys).unwrap().shape.unwrap().lines;
    let tree = Lines::new(&ClassSet::default(), &lines("diffserv = \"diffserv3\"")).unwrap();
    let tree = tree.trees.up;
    assert_eq!(tree.names.policy(3).unwrap().name, "tins");
    let tins = ["other (voice)", "other (bulk)", "other (best effort)"];
    assert_eq!(tree.names.nodes()[3..], tins);
    for (keys, reported) in [
        (
            "diffserv = \"diffserv8\"",
            "3:12: [shape] diffserv: \"diffserv8\" is invalid: write \"besteffort\", \"diffserv3\", \"diffserv4\"",
        ),
        (
            "diffserv = \"diffserv3\"\nvia = \"kernel\"",
            "via kernel cannot split classes by DSCP: HTB has one leaf for a class",
        ),
        (
            "diffserv = \"diffserv3\"\ntree = \"tree.toml\"",
            "3:12: [shape] diffserv: the nodes of a tree define their tins: remove this key",
        ),
    ] {
        let problems = read(keys).unwrap_err().concat();
        assert!(problems.contains(reported), "{keys}: {problems}");
    }
}

/// Each with its minimum and maximum, and one beyond each.
#[test]
fn limits_of_shaping_keys_are_exact() {
    let sojourn = "out of range: 0s to 60s";
    for (key, accepted, refused, reported) in [
        (
            "packets",
            ["64", "1048576"],
            ["63", "1048577"],
            "out of range: 64 to 1048576",
        ),
        (
            "overhead",
            ["-64", "256"],
            ["-65", "257"],
            "out of range: -64 to 256",
        ),
        ("mpu", ["0", "256"], ["-1", "257"], "out of range: 0 to 256"),
        (
            "queue",
            ["0", "65530"],
            ["-1", "65531"],
            "out of range: 0 to 65530",
        ),
        (
            "max_sojourn",
            ["\"0s\"", "\"60s\""],
            ["\"60001ms\"", "\"61s\""],
            sojourn,
        ),
        (
            "down",
            ["\"1bit\"", "\"1000tbit\""],
            ["\"0bit\"", "\"1001tbit\""],
            "rate",
        ),
        (
            "inside_vlan",
            ["1", "4094"],
            ["0", "4095"],
            "out of range: 1 to 4094",
        ),
    ] {
        let keys = |value: &str| {
            let armed = "outside = \"eth0\"\nvia = \"afxdp\"\noutside_vlan = 7\n";
            let around = if key == "inside_vlan" { armed } else { "" };
            format!("{around}{key} = {value}")
        };
        for value in accepted {
            let read = shape_of(MINE, &keys(value));
            assert!(read.is_ok(), "{key} = {value}: {:#?}", read.unwrap_err());
        }
        for value in refused {
            let problems = shape_of(MINE, &keys(value)).unwrap_err();
            let named = |text: &String| text.contains(key) && text.contains(reported);
            assert!(problems.iter().any(named), "{key} = {value}: {problems:#?}");
        }
    }
}

#[test]
fn trees_may_have_several_custom_policies() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree.toml");
    let text = "[[node]]\nname = \"all\"\npolicy = \"stfq\"\nmatch = { class = [\"*\"] }\n\
         [[node]]\nname = \"a\"\nparent = \"all\"\npolicy = \"mine\"\nmatch = { dscp = [\"EF\"] }\n\
         [[node]]\nname = \"b\"\nparent = \"all\"\npolicy = \"other\"\nmatch = { dscp = [\"*\"] }\n";
    std::fs::write(&tree, text).unwrap();
    let with = |keys: &str| {
        let tree = tree.display().to_string();
        shape_of(MINE, &format!("{keys}\ntree = {tree:?}"))
    };
    for keys in [
        "policies = [\"mine.o\", \"other.o\"]",
        "policy = \"other.o\"\npolicies = [\"mine.o\"]",
    ] {
        let lines = with(keys).unwrap().shape.unwrap().lines;
        assert_eq!(lines.customs.len(), 2);
    }
    let reported = with("policies = [\"mine.o\"]").unwrap_err();
    assert!(reported[0].contains("\"other\""), "{reported:#?}");
    let reported = with("policies = [\"mine.o\", \"other.o\", \"mine.o\"]").unwrap_err();
    assert!(
        reported[0].contains("mine.o and mine.o have the same name"),
        "{reported:#?}"
    );
}
