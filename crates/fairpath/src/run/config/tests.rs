//! What is taken, what is refused, and that the example file is true.

use super::*;

const LEAST: &str = "[monitor]\ninterfaces = [\"eth0\"]\n";

fn shown(text: &str) -> Vec<String> {
    parse("dir/f.toml", text).unwrap_err().0
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse("dir/f.toml", LEAST).unwrap();
    assert_eq!(config.monitor.interfaces, ["eth0"]);
    assert_eq!(
        config.metrics.listen,
        Some("127.0.0.1:9909".parse().unwrap())
    );
    assert_eq!(config.web.listen, None);
    assert_eq!(config.state.file, Some("/var/lib/fairpath/state".into()));
}

#[test]
fn unknown_keys_are_refused_with_their_place_and_the_nearest_known_one() {
    let text = format!("{LEAST}intervl = \"1s\"\n");
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
fn every_wrong_value_is_told_at_once_with_its_place() {
    let text = "[monitor]\ninterfaces = [\"eth0\", \"a/b\", \"eth0\"]\nflows = 3\nhook = \"tc\"\n\
                [metrics]\n  listen = \"everywhere\"\n[alerts]\nhook = [\"mail\"]\nloss = 2.0\n\
                [state]\nsave_every = \"2 weeks\"\n";
    let expected = [
        ("2:23:", "\"a/b\" cannot be the name"),
        ("2:30:", "\"eth0\" is there twice"),
        ("3:9:", "flows: 3 is not within 8 to 4194304"),
        ("4:8:", "\"tc\" is none of \"tcx\", \"xdp\""),
        ("6:12:", "\"everywhere\" is no address and port"),
        ("8:8:", "\"mail\" is no absolute path"),
        ("9:8:", "loss: 2 is not within"),
        ("11:14:", "\"2 weeks\" is no time"),
    ];
    let problems = shown(text);
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (at, says) in expected {
        let found = problems
            .iter()
            .any(|p| p.starts_with(&format!("dir/f.toml:{at}")) && p.contains(says));
        assert!(found, "{at} {says} is not in {problems:#?}");
    }
}

#[test]
fn what_is_watched_must_be_named() {
    for text in ["", "[monitor]\n", "[monitor]\ninterfaces = []\n"] {
        assert!(shown(text)[0].contains("name what is watched"), "{text:?}");
    }
}

#[test]
fn relative_paths_begin_beside_the_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f.toml");
    std::fs::write(place.path().join("a.csv"), "name,prefix\nanna,192.0.2.1\n").unwrap();
    let text = format!(
        "class_files = [\"a.csv\"]\n{LEAST}[rows]\njson = \"/r.json\"\nparquet = \"rows\"\n\
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
fn problems_of_classes_and_of_the_rest_are_told_together() {
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
        "{LEAST}only = [\"192.0.2.0/24 port 443\"]\nexcept = [\"port 22\", \"2001:db8::1\"]\n"
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
        assert!(shown_of(bad).contains("is no filter"), "{bad:?}");
    }
}

#[test]
fn filters_name_classes_that_exist() {
    let with = |name: &str| {
        format!(
            "{LEAST}only = [\"class {name}\"]\n[[class]]\nname = \"anna b\"\nprefix = \"192.0.2.1\"\n"
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
        problems[0].contains("there is no class \"anne\""),
        "{problems:?}"
    );
}

fn shown_of(filter: &str) -> String {
    shown(&format!("{LEAST}only = [{filter:?}]\n")).join("")
}

/// The example file, and the same with one key uncommented at a time, and with all.
#[test]
fn the_example_is_the_default_and_each_of_its_keys_can_be_uncommented() {
    let example = include_str!("../../../../../packaging/fairpath.toml");
    let plain = parse("fairpath.toml", example).unwrap();
    assert_eq!(plain, parse("fairpath.toml", LEAST).unwrap());
    let is_key =
        |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.contains('=');
    let lines: Vec<&str> = example.lines().collect();
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

fn is_of_a_class(lines: &[&str], at: usize) -> bool {
    lines[..at].contains(&"#[[class]]")
}
