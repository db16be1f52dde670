//! Problems of a check, with line and column.

use fairpath_class::{
    ClassEntry, ClassSet, Drafts, MAX_DEPTH, Outcome, ProblemKind, Severity, Uplinks,
};

fn toml(text: &str) -> Outcome {
    let mut drafts = Drafts::new();
    let references = drafts.read_toml("c.toml", text);
    let uplinks = match references.uplinks {
        true => Uplinks::Given,
        false => Uplinks::Missing,
    };
    ClassSet::build(drafts, uplinks)
}

fn csv(text: &str) -> Outcome {
    let mut drafts = Drafts::new();
    drafts.read_csv("c.csv", text);
    ClassSet::build(drafts, Uplinks::Unknown)
}

#[track_caller]
fn assert_problems(outcome: &Outcome, expected: &[&str]) {
    let reported: Vec<String> = outcome
        .report
        .problems
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(reported, expected, "\n{}", reported.join("\n"));
    assert_eq!(outcome.set.is_some(), outcome.report.errors == 0);
}

#[test]
fn a_tree_in_toml_is_read_whole() {
    let outcome = toml(
        r#"
[monitor]
uplinks = ["wan"]

[[class]]
name = "alice"
parent = "site"
prefix = ["192.0.2.0/24", "2001:db8:1::/48", "198.51.100.7"]
dscp = ["EF", 8]
up = "20M"
down = "100mbit"
up_floor = "1mbit"
rtt_p95 = "40ms"
loss = "1%"
attributes = { plan = "gold", pop = 3 }

[[class]]
name = "site"
down = "1.5gbit"
"#,
    );
    assert_problems(&outcome, &[]);
    let set = outcome.set.unwrap();
    let names: Vec<_> = set.classes().iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["site", "alice"], "parents come first");
    let alice = set.get("alice").unwrap();
    assert_eq!((alice.parent, alice.depth), (Some(0), 1));
    assert_eq!(alice.criteria.len(), 5);
    assert_eq!(alice.criteria[2].to_string(), "prefix 198.51.100.7/32");
    assert_eq!(
        (alice.up.ceil_bps, alice.up.floor_bps, alice.down.ceil_bps),
        (Some(20_000_000), Some(1_000_000), Some(100_000_000))
    );
    assert_eq!(
        (alice.sla.rtt_p95_ns, alice.sla.loss),
        (Some(40_000_000), Some(0.01))
    );
    assert_eq!(alice.attribute("plan"), Some("gold"));
    assert_eq!(alice.attribute("pop"), Some("3"));
    assert_eq!((outcome.report.prefixes, outcome.report.levels), (3, 2));
}

#[test]
fn all_invalid_keys_and_values_are_reported() {
    let outcome = toml(
        r#"[[class]]
name = "a"
prefx = "192.0.2.0/24"
vlan = [1, 5000]
up = "20"
mac = true

[[class]]
prefix = "x"

[[class]]
name = "b"
colour = 1
attributes = "gold"
name2 = 1979-05-27

[[class]]
name = 5
"#,
    );
    assert_problems(
        &outcome,
        &[
            "c.toml:3:1: error: class \"a\": unknown key \"prefx\": did you mean \"prefix\"?",
            "c.toml:4:12: error: class \"a\": vlan: \"5000\" is not a VLAN ID: write 1 to 4094",
            "c.toml:5:6: error: class \"a\": up: \"20\" has no unit: write 100kbit, 100mbit or 1.5gbit",
            "c.toml:6:7: error: class \"a\": mac must be a string or a list of strings",
            "c.toml:8:1: error: class without name: give it a unique name",
            "c.toml:9:10: error: class: prefix: \"x\" is not a prefix: write 192.0.2.0/24, 2001:db8::/32 or an address",
            "c.toml:12:8: warning: class \"b\": no criteria and no children",
            "c.toml:13:1: error: class \"b\": unknown key \"colour\": known keys are name, parent, prefix, prefixes, vlan, interface, mac, mark, dscp, up, down, up_floor, down_floor, rtt_p95, loss, attributes",
            "c.toml:14:14: error: class \"b\": attributes must be a table such as { plan = \"gold\" }",
            "c.toml:15:1: error: class \"b\": unknown key \"name2\": did you mean \"name\"?",
            "c.toml:18:8: error: class: name must be a string",
        ],
    );
}

#[test]
fn duplicates_have_both_positions() {
    let outcome = csv("name,prefix,mac,vlan\n\
         a,192.0.2.0/24,02:00:00:00:00:01,5\n\
         b,192.0.2.0/24,02:00:00:00:00:01,6;5\n\
         a,198.51.100.1,,\n\
         c,\"203.0.113.1, 203.0.113.1\",,\n");
    assert_problems(
        &outcome,
        &[
            "c.csv:3:3: error: class \"b\": prefix 192.0.2.0/24 also belongs to class \"a\" (c.csv:2:3)",
            "c.csv:3:16: error: class \"b\": MAC 02:00:00:00:00:01 also belongs to class \"a\" (c.csv:2:16)",
            "c.csv:3:36: error: class \"b\": VLAN 5 also belongs to class \"a\" (c.csv:2:34)",
            "c.csv:4:1: error: class \"a\": duplicate name, first at c.csv:2:1",
            "c.csv:5:17: warning: class \"c\": duplicate prefix 203.0.113.1/32",
        ],
    );
}

#[test]
fn orphans_get_the_nearest_name() {
    let outcome = csv("name,parent,prefix\n\
         site-north,,\n\
         a,site-nort,192.0.2.1\n\
         b,xyz,192.0.2.2\n\
         c,site-north,192.0.2.3\n");
    assert_problems(
        &outcome,
        &[
            "c.csv:3:3: error: class \"a\": there is no parent \"site-nort\"; did you mean \"site-north\"?",
            "c.csv:4:3: error: class \"b\": there is no parent \"xyz\"",
        ],
    );
}

#[test]
fn a_cycle_has_one_message() {
    let outcome = csv("name,parent,prefix\n\
         leaf,b,198.51.100.1\n\
         a,c,192.0.2.2\n\
         b,a,198.51.100.0/24\n\
         c,b,192.0.2.4\n\
         self,self,192.0.2.5\n\
         fine,,192.0.2.6\n");
    assert_problems(
        &outcome,
        &[
            "c.csv:3:3: error: cycle of parents: \"a\" in \"c\" in \"b\" in \"a\"",
            "c.csv:6:6: error: cycle of parents: \"self\" in \"self\"",
        ],
    );
}

#[test]
fn the_depth_of_the_tree_is_limited() {
    let chain = |levels: u32| {
        let mut text = "name,parent,prefix\n".to_owned();
        for level in 0..levels {
            let parent = if level == 0 {
                String::new()
            } else {
                format!("n{}", level - 1)
            };
            text += &format!("n{level},{parent},192.0.2.0/{}\n", 8 + level);
        }
        csv(&text)
    };
    assert_problems(&csv("name,prefix\na,192.0.2.1\n"), &[]);
    let deep = chain(MAX_DEPTH);
    assert_eq!((deep.report.errors, deep.report.levels), (0, MAX_DEPTH));
    let deeper = chain(MAX_DEPTH + 2);
    let reported: Vec<_> = deeper
        .report
        .problems
        .iter()
        .filter(|p| p.severity == Severity::Error)
        .collect();
    assert_eq!(reported.len(), 1, "one message per branch");
    assert_eq!(
        (reported[0].kind, reported[0].location.line),
        (ProblemKind::TooDeep, MAX_DEPTH + 2)
    );
}

#[test]
fn overlaps_outside_ancestors_are_reported() {
    let outcome = csv("name,parent,prefix\n\
         all,,0.0.0.0/0\n\
         site,,10.0.0.0/8\n\
         house,site,10.1.0.0/16\n\
         flat,house,10.1.2.0/24;192.0.2.0/24\n\
         other,,10.1.2.128/25;10.1.0.0/20\n");
    assert_problems(
        &outcome,
        &[
            "c.csv:5:12: warning: class \"flat\": prefix 10.1.2.0/24 overlaps 10.1.0.0/20 of class \"other\" (c.csv:6:22), which is not an ancestor: the longer prefix applies",
            "c.csv:5:24: warning: class \"flat\": prefix 192.0.2.0/24 is outside of all prefixes of its ancestor \"house\"",
            "c.csv:6:8: warning: class \"other\": prefix 10.1.2.128/25 overlaps 10.1.2.0/24 of class \"flat\" (c.csv:5:12), which is not an ancestor: the longer prefix applies",
            "c.csv:6:22: warning: class \"other\": prefix 10.1.0.0/20 overlaps 10.1.0.0/16 of class \"house\" (c.csv:4:12), which is not an ancestor: the longer prefix applies",
        ],
    );
}

#[test]
fn a_prefix_must_be_inside_its_ancestors() {
    let outcome = csv("name,parent,prefix,vlan\n\
         site,,10.0.0.0/8,\n\
         group,site,,\n\
         in,group,10.1.0.0/16;10.1.2.0/24,\n\
         out,group,192.0.2.0/24,\n\
         office,site,10.9.0.0/16,7\n\
         by-vlan,office,198.51.100.0/24,\n\
         inner,in,10.1.2.0/25,\n");
    assert_problems(
        &outcome,
        &[
            "c.csv:5:11: warning: class \"out\": prefix 192.0.2.0/24 is outside of all prefixes of its ancestor \"site\"",
        ],
    );
}

#[test]
fn floors_and_ceilings_are_compared() {
    let outcome = csv("name,parent,prefix,up,down,down_floor\n\
         site,,,100M,1gbit,\n\
         group,site,,,,\n\
         a,group,192.0.2.1,200M,1gbit,2gbit\n");
    assert_problems(
        &outcome,
        &[
            "c.csv:4:19: warning: class \"a\": up: ceiling 200mbit is above ceiling 100mbit of its ancestor \"site\"",
            "c.csv:4:30: error: class \"a\": down: floor 2gbit is above ceiling 1gbit",
        ],
    );
}

#[test]
fn marks_conflict_with_mac_addresses_and_vlans() {
    for other in ["mac = \"02:00:00:00:00:01\"", "vlan = 7"] {
        let outcome = toml(&format!(
            "[monitor]\nuplinks = [\"wan\"]\n[[class]]\nname = \"a\"\nmark = 0x10\n[[class]]\nname = \"b\"\n{other}\n"
        ));
        let problem = &outcome.report.problems[0];
        assert_eq!(
            (outcome.report.errors, problem.kind),
            (1, ProblemKind::Conflict)
        );
        assert!(
            problem
                .to_string()
                .starts_with("c.toml:5:8: error: class \"a\": mark 0x10 cannot be combined with ")
        );
        assert!(problem.text.contains("class \"b\" (c.toml:8:"), "{problem}");
    }
}

#[test]
fn marks_and_dscps_need_uplinks() {
    let text = "[[class]]\nname = \"a\"\nmark = 1\n[[class]]\nname = \"b\"\ndscp = \"EF\"\n";
    let outcome = toml(text);
    let kinds: Vec<_> = outcome
        .report
        .problems
        .iter()
        .map(|p| (p.kind, p.location.line))
        .collect();
    assert_eq!(
        kinds,
        [(ProblemKind::Conflict, 3), (ProblemKind::Conflict, 6)]
    );
    assert_problems(
        &toml(&format!("{text}[monitor]\nuplinks = [\"wan\"]\n")),
        &[],
    );
    assert!(
        toml(&format!("{text}[monitor]\nuplinks = []\n"))
            .set
            .is_none()
    );
}

#[test]
fn csv_headers_and_rows_are_checked() {
    assert_problems(
        &csv("name,vlann,prefix,name\na,1,192.0.2.1,a,5\n,,192.0.2.2,\n"),
        &[
            "c.csv:1:6: error: unknown column \"vlann\": did you mean \"vlan\"?",
            "c.csv:1:19: error: duplicate column \"name\": remove one",
            "c.csv:2:17: error: class \"a\": 5 cells, but the header has 4: put quotes around a cell with commas",
            "c.csv:3:1: error: class without name: give it a unique name",
        ],
    );
    assert_problems(
        &csv("parent\na\n"),
        &["c.csv:1:1: error: no column \"name\": every class needs a name"][..],
    );
    assert_problems(
        &csv("# nothing\n"),
        &[
            "c.csv:1:1: error: no header: write column names in the first line, such as name,parent,prefix",
        ],
    );
}

#[test]
fn rows_with_too_few_cells_get_one_error() {
    let rows = "site,,\na,site\nb,site,192.0.2.1\nc,site\nd\n";
    assert_problems(
        &csv(&format!("name,parent,prefix\n{rows}")),
        &[
            "c.csv:3:1: error: 3 rows have too few cells, here 2, but the header has 3: \
             write a cell for each column, also for an empty one",
        ],
    );
    let mut drafts = Drafts::new();
    drafts.read_labels("l.csv", "prefix,label\n192.0.2.0/24\n");
    assert_problems(
        &ClassSet::build(drafts, Uplinks::Unknown),
        &[
            "l.csv:2:1: error: 1 row has too few cells, here 1, but the header has 2: \
             write a cell for each column, also for an empty one",
        ],
    );
}

/// The problems of a file with this content.
fn file(name: &str, content: &[u8]) -> Outcome {
    let mut drafts = Drafts::new();
    drafts.read_file(name, content);
    ClassSet::build(drafts, Uplinks::Unknown)
}

#[test]
fn other_separators_are_named() {
    let headers = [
        ("name;parent;prefix", "semicolons"),
        ("Circuit ID;Circuit Name;IPv4", "semicolons"),
        ("prefix\tlabel", "tabs"),
        ("name\tparent\tprefix", "tabs"),
        ("sep=;", "semicolons"),
    ];
    for (header, words) in headers {
        let expected = format!(
            "c.csv:1:1: error: columns are separated by {words}: \
             save the file with commas between columns"
        );
        let rows = "a;b;192.0.2.1\na;b;192.0.2.2\n";
        let outcome = file("c.csv", format!("{header}\n{rows}").as_bytes());
        assert_problems(&outcome, &[&expected]);
    }
    // Values of a list are not columns.
    assert_problems(&csv("name,prefix\na,192.0.2.1;192.0.2.2\n"), &[]);
    let mut drafts = Drafts::new();
    drafts.read_shaped_devices(("s.csv", "Circuit ID;Circuit Name\n1;a\n"), None);
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    assert!(outcome.report.problems[0].text.contains("semicolons"));
}

#[test]
fn unclosed_quotes_have_a_position() {
    let text = |cell: &str| {
        format!("{cell}: write \" once more at the end of the cell, and quotes inside it as \"\"")
    };
    let cause = text("the quote of this cell is not closed");
    for content in [
        "name,prefix\na,\"192.0.2.1\nb,192.0.2.2\nc,192.0.2.3\n",
        // The next quote would end the cell lines below.
        "name,prefix\na,\"192.0.2.1\nb,\"192.0.2.2\"\nc,192.0.2.3\n",
        "name,prefix\na,\"192.0.2.1\" x\n",
    ] {
        let expected = format!("c.csv:2:3: error: {cause}");
        assert_problems(&file("c.csv", content.as_bytes()), &[&expected]);
    }
    let expected = format!("c.csv:1:6: error: {cause}");
    assert_problems(&csv("name,\"prefix\na,b\n"), &[&expected]);
    // A line break and quotes in a cell are valid.
    let valid = "name,prefix,attributes.note\na,192.0.2.1,\"two\nlines, \"\"quoted\"\"\"\n";
    assert_problems(&csv(valid), &[]);
}

#[test]
fn attributes_are_columns_too() {
    let set = csv("\u{feff}Name,Prefixes,attributes.Plan\na,192.0.2.1,gold\n")
        .set
        .unwrap();
    assert_eq!(set.get("a").unwrap().attribute("Plan"), Some("gold"));
}

#[test]
fn invalid_toml_has_positions() {
    let outcome = toml("[[class]]\nname = \n[[class]\nname = \"a\"\nname = \"b\"\n");
    let lines: Vec<_> = outcome
        .report
        .problems
        .iter()
        .map(|p| (p.kind, p.location.line))
        .collect();
    assert!(
        lines.contains(&(ProblemKind::Syntax, 2)) && lines.contains(&(ProblemKind::Syntax, 3)),
        "{lines:?}"
    );
    assert!(outcome.set.is_none());
}

#[test]
fn entries_of_a_configuration_match_the_file() {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Configuration {
        class: Vec<toml::Spanned<ClassEntry>>,
    }
    for text in [
        "[[class]]\nname = \"a\"\nprefix = [\"192.0.2.0/24\", \"::1\"]\nmark = 0x10\nloss = 0.01\nattributes = { x = 1.5 }\n",
        "[[class]]\nprefx = 1\nup = true\nvlan = [[1], \"x\", 0b11]\n[[class]]\nname = \"b\"\nparent = \"c\"\n",
    ] {
        let configuration: Configuration = toml::from_str(text).unwrap();
        let mut drafts = Drafts::new();
        drafts.read_entries("c.toml", text, configuration.class);
        let embedded = ClassSet::build(drafts, Uplinks::Missing);
        let alone = toml(text);
        assert_eq!(embedded.report, alone.report);
        assert_eq!(embedded.set, alone.set);
        assert!(alone.report.errors > 0, "one for uplinks at least");
    }
    assert!(toml::from_str::<Configuration>("class = [5]").is_err());
}

#[test]
fn other_sections_are_ignored() {
    let outcome = toml(
        "class_files = [\"a.csv\", 5]\nwhen = 1979-05-27T07:32:00Z\n[labels]\nfile = \"l.csv\"\n[web]\nlisten = false\n",
    );
    assert_problems(&outcome, &[]);
    let mut drafts = Drafts::new();
    let references = drafts.read_toml(
        "c",
        "class_files = [\"a.csv\"]\n[labels]\nfile = \"l.csv\"\n",
    );
    assert_eq!(references.class_files[0].value, "a.csv");
    assert_eq!(references.labels.unwrap().value, "l.csv");
}

#[test]
fn labels_are_read_and_checked() {
    let mut drafts = Drafts::new();
    drafts.read_file(
        "l.csv",
        b"prefix,label\n192.0.2.0/24,Video\n198.51.100.0/24,Mail\n2001:db8::/32,Video\n",
    );
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    assert_problems(&outcome, &[]);
    let labels = &outcome.labels;
    let numbers: Vec<_> = labels
        .prefixes()
        .iter()
        .map(|(_, number)| *number)
        .collect();
    assert_eq!(numbers, [1, 2, 1]);
    assert_eq!(
        (labels.name(1), labels.name(2)),
        (Some("Video"), Some("Mail"))
    );
    assert_eq!((labels.name(0), labels.name(3)), (None, None));

    let mut drafts = Drafts::new();
    drafts.read_file(
        "l.csv",
        b"label,prefix\nA,192.0.2.1/24\nA,192.0.2.0/24\nB,192.0.2.0/24\n,1.1.1.1\nC,x\n",
    );
    assert_problems(
        &ClassSet::build(drafts, Uplinks::Unknown),
        &[
            "l.csv:2:3: warning: label \"A\": prefix has bits after its length: read as 192.0.2.0/24",
            "l.csv:3:3: warning: label \"A\": duplicate prefix 192.0.2.0/24",
            "l.csv:4:3: error: label \"B\": prefix 192.0.2.0/24 is also labelled \"A\"",
            "l.csv:5:1: error: label: \"\" is not a name: write 1 to 255 bytes",
            "l.csv:6:3: error: label \"C\": prefix: \"x\" is not a prefix: write 192.0.2.0/24, 2001:db8::/32 or an address",
        ],
    );
}

#[test]
fn invalid_utf8_has_a_position() {
    let problem = |content: &[u8]| file("c.csv", content).report.problems[0].to_string();
    assert_eq!(
        problem(b"name,prefix\nM\xfcller,192.0.2.1\n"),
        "c.csv:2:2: error: not UTF-8: byte 0xfc is \"\u{fc}\" in Latin-1; \
         save the file as UTF-8, for example with iconv -f latin1 -t utf-8"
    );
    assert_eq!(
        problem(b"name,prefix\na \x80,192.0.2.1\n"),
        "c.csv:2:3: error: not UTF-8: byte 0x80 is of another encoding, such as Windows-1252; \
         save the file as UTF-8, for example with iconv -f windows-1252 -t utf-8"
    );
    assert_eq!(
        problem(b"\xff\xfen\0a\0m\0e\0"),
        "c.csv:1:1: error: not UTF-8: the file is UTF-16; \
         save the file as UTF-8, for example with iconv -f utf-16 -t utf-8"
    );
    let mut drafts = Drafts::new();
    drafts.read_labels_file("l.csv", b"prefix,label\n192.0.2.0/24,M\xfcller\n");
    let outcome = ClassSet::build(drafts, Uplinks::Unknown);
    let text = outcome.report.problems[0].to_string();
    assert!(text.starts_with("l.csv:2:15: error: not UTF-8"), "{text}");
}

#[test]
fn changes_between_sets_have_names() {
    let read = |text: &str| csv(text).set.unwrap();
    let before =
        read("name,parent,prefix\na,,192.0.2.1\nb,,192.0.2.2\nc,b,192.0.2.3\nf,a,192.0.2.5\n");
    let after = read(
        "name,parent,prefix\nd,,192.0.2.9\na,,192.0.2.1\nc,a,192.0.2.3\ne,d,192.0.2.4\nf,a,192.0.2.5\n",
    );
    let changes = after.changes_since(&before);
    assert_eq!(changes.added, ["d", "e"]);
    assert_eq!(changes.removed, ["b"]);
    assert_eq!(changes.moved, ["c"], "f is still a child of a");
    assert!(changes.changed.is_empty());
    let changed = read("name,parent,prefix\na,,192.0.2.7\n").changes_since(&before);
    assert_eq!(changed.changed, ["a"]);
}
