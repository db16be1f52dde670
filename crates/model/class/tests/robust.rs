//! Arbitrary files: no panic, limits are respected, and the result is consistent.

use std::collections::HashSet;

use fairpath_class::{
    ClassSet, Drafts, MAX_CLASSES, MAX_CRITERIA, MAX_DEPTH, MAX_LABELS, MAX_PROBLEMS, Outcome,
    ProblemKind, Slots, Space, Uplinks,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const NAMES: [&str; 4] = ["f.toml", "f.json", "f.csv", "f"];

/// One valid file of each format, as the base of corruption.
const VALID: [&str; 5] = [
    "[monitor]\nuplinks = [\"wan\"]\n[[class]]\nname = \"a\"\nprefix = [\"10.0.0.0/8\", \"2001:db8::/32\"]\nup = \"20M\"\n\
     mark = 0x10\nattributes = { plan = \"x\" }\n[[class]]\nname = \"b\"\nparent = \"a\"\ndscp = [\"EF\", 8]\nrtt_p95 = \"40ms\"\nloss = \"1%\"\n",
    "name,parent,prefix,vlan,mac,up,down,attributes.x\na,,10.0.0.0/8,5,,1gbit,,\nb,a,\"10.1.0.0/16; ::1\",,02:00:00:00:00:01,20M,5M,y\nc,b,,6,,,,\n",
    "Circuit ID,Circuit Name,Device ID,Device Name,Parent Node,MAC,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,Comment\n\
     1,Ely,1,R,Mast,,\"100.64.0.1, 100.64.0.14\",fd00::/56,1,1,155.5,20,c\n1,Ely,2,S,Mast,,100.64.0.2,,1,1,15,20,\n2,\"Cam, X\",3,R,,,100.64.0.3,,1,1,1,1,\n",
    "{\"Site\":{\"downloadBandwidthMbps\":1000,\"uploadBandwidthMbps\":1,\"type\":\"Site\",\"children\":{\"Mast\":{\"virtual\":true},\"B\":{\"children\":{}}}}}",
    "prefix,label\n192.0.2.0/24,Video\n2001:db8::/32,Mail\n",
];

/// Pieces that are inserted into files.
const PIECES: [&str; 24] = [
    "",
    ",",
    "\"",
    "\n",
    ";",
    "\u{feff}",
    "#",
    "[[class]]\n",
    "name = ",
    "{",
    "}",
    "[",
    "]",
    "\0",
    "ä",
    "\r\n",
    "::/0",
    "/33",
    "a,b,c,d\n",
    "99999999999999999999",
    "1e309",
    "\\u0000",
    "class = 5\n",
    "0.0.0.0/0",
];

fn check_promises(outcome: &Outcome, texts: &[(&str, Vec<u8>)]) {
    let report = &outcome.report;
    assert!(report.problems.len() <= 2 * MAX_PROBLEMS && report.classes <= MAX_CLASSES);
    assert_eq!(outcome.set.is_some(), report.errors == 0);
    for problem in &report.problems {
        assert!(!problem.text.contains(char::is_control), "{problem}");
        let lines: Vec<usize> = texts
            .iter()
            .filter(|(name, _)| *name == &*problem.location.file)
            .map(|(_, text)| text.iter().filter(|b| **b == b'\n').count() + 1)
            .collect();
        assert!(
            lines
                .iter()
                .any(|lines| problem.location.line as usize <= *lines),
            "{problem}"
        );
    }
    let Some(set) = &outcome.set else {
        return;
    };
    for (at, class) in set.classes().iter().enumerate() {
        assert!(class.parent.is_none_or(|parent| parent < at) && class.depth < MAX_DEPTH);
    }
    let mut slots = Slots::new(64);
    slots.assign(Space::Class, set.slot_keys());
    let rules = set.rules(&slots, |name| Some(name.len() as u32), &outcome.labels, &[]);
    fn different<K: std::hash::Hash + Eq + Copy>(list: &[(K, u32)]) -> bool {
        list.iter()
            .map(|(key, _)| *key)
            .collect::<HashSet<_>>()
            .len()
            == list.len()
    }
    assert!(different(&rules.marks) && different(&rules.macs) && different(&rules.prefixes));
    assert!(different(&rules.vlans) && different(&rules.dscps) && different(&rules.interfaces));
    assert!(different(&rules.labels));
}

fn read(texts: &[(&str, Vec<u8>)]) -> Outcome {
    let mut drafts = Drafts::new();
    for (name, text) in texts {
        drafts.read_file(name, text);
    }
    ClassSet::build(drafts, Uplinks::Given)
}

proptest! {
    #![proptest_config(fairpath_units::property!(1500))]

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), name in select(&NAMES[..])) {
        let texts = [(name, bytes)];
        check_promises(&read(&texts), &texts);
    }

    #[test]
    fn no_corrupted_file_panics(
        which in 0..VALID.len(),
        other in 0..VALID.len(),
        cuts in vec((any::<Index>(), any::<Index>(), select(&PIECES[..])), 0..6),
    ) {
        let mut text = VALID[which].to_owned().into_bytes();
        for (at, len, piece) in cuts {
            let at = at.index(text.len() + 1);
            let end = (at + len.index(12)).min(text.len());
            text.splice(at..end, piece.bytes());
        }
        let name = |which| ["f.toml", "f.csv", "f.csv", "f.json", "f.csv"][which];
        let texts = [(name(which), text), (name(other), VALID[other].into())];
        check_promises(&read(&texts), &texts);
    }
}

#[test]
fn the_original_files_are_valid() {
    for (at, text) in VALID.iter().enumerate() {
        let name = ["f.toml", "f.csv", "f.csv", "f.json", "f.csv"][at];
        let outcome = read(&[(name, text.as_bytes().to_vec())]);
        assert_eq!(outcome.report.errors, 0, "{:?}", outcome.report.problems);
        assert!(outcome.report.classes + outcome.labels.len() > 1);
    }
}

fn limit_problems(outcome: &Outcome) -> Vec<String> {
    let problems = outcome.report.problems.iter();
    let limits = problems.filter(|problem| problem.kind == ProblemKind::TooMany);
    limits.map(ToString::to_string).collect()
}

#[test]
fn the_number_of_classes_is_limited() {
    let csv = |classes: usize| {
        let rows = (0..classes).map(|i| format!("c{i},{}\n", std::net::Ipv4Addr::from(i as u32)));
        format!("name,prefix\n{}", rows.collect::<String>()).into_bytes()
    };
    let most = read(&[("f.csv", csv(MAX_CLASSES))]);
    assert_eq!(most.set.map(|set| set.len()), Some(MAX_CLASSES));
    let more = read(&[("f.csv", csv(MAX_CLASSES + 3))]);
    assert_eq!(
        limit_problems(&more),
        [
            "f.csv:100002:1: error: too many classes: 3 more from here, the maximum is 100000 with 262144 criteria"
        ]
    );
    assert!(more.set.is_none());
}

#[test]
fn limits_of_criteria_and_labels_are_reported() {
    let prefixes = |count: usize| {
        let all = (0..count).map(|i| format!("{};", std::net::Ipv4Addr::from(i as u32)));
        all.collect::<String>()
    };
    let text = format!("name,prefix\na,{}\nb,255.0.0.1\n", prefixes(MAX_CRITERIA));
    assert_eq!(limit_problems(&read(&[("f.csv", text.into())])).len(), 1);
    let rows = (0..MAX_LABELS + 2).map(|i| format!("{},l\n", std::net::Ipv4Addr::from(i as u32)));
    let labels = format!("prefix,label\n{}", rows.collect::<String>());
    assert_eq!(
        limit_problems(&read(&[("f.csv", labels.into())])),
        [
            "f.csv:100002:1: error: too many labelled prefixes: 2 more from here, the maximum is 100000"
        ]
    );
}

#[test]
fn a_long_cycle_has_one_message() {
    let count = MAX_CLASSES;
    let rows = (0..count).map(|i| format!("c{i},c{}\n", (i + 1) % count));
    let outcome = read(&[(
        "f.csv",
        format!("name,parent\n{}", rows.collect::<String>()).into(),
    )]);
    assert_eq!(outcome.report.errors, 1);
    let problem = outcome
        .report
        .problems
        .iter()
        .find(|p| p.kind == ProblemKind::Cycle)
        .unwrap();
    assert!(
        problem.text.ends_with("\"c31\" in 99968 more in \"c0\""),
        "{problem}"
    );
}
