//! Options with one name have one meaning, in all commands of all binaries.

use std::collections::BTreeMap;

use crate::help::{Flag, all};

/// Options whose value differs by command, and why that is one meaning.
const SEVERAL_VALUES: [(&str, &str); 8] = [
    ("policy", "a name; `shape start` accepts a file as well"),
    ("loss", "a share; `check` accepts two limits"),
    ("down", "a rate; `shape set` accepts none as well"),
    ("up", "a rate; `shape set` accepts none as well"),
    ("via", "the back ends differ by command"),
    ("class", "a name of a class, or of several"),
    ("src", "an address; `rules trace` accepts a prefix as well"),
    ("dst", "an address; `rules trace` accepts a prefix as well"),
];

/// The grammar of common options: value and short form.
const GRAMMAR: [(&str, Option<&str>, Option<char>); 13] = [
    ("interface", Some("IF"), Some('i')),
    ("read", Some("FILE"), Some('r')),
    ("write", Some("FILE"), Some('w')),
    ("duration", Some("TIME"), None),
    ("limit", Some("N"), None),
    ("output", Some("DIR"), None),
    ("class-file", Some("FILE"), None),
    ("policy-file", Some("FILE.c"), None),
    ("max-packets", Some("N"), None),
    ("queue-num", Some("N"), None),
    ("quiet", None, Some('q')),
    ("verbose", None, Some('v')),
    ("color", Some("WHEN"), None),
];

fn by_name() -> BTreeMap<String, Vec<(String, Flag)>> {
    let mut names: BTreeMap<String, Vec<(String, Flag)>> = BTreeMap::new();
    for help in all() {
        for option in help.options {
            let uses = names.entry(option.long.clone()).or_default();
            uses.push((help.command.clone(), option));
        }
    }
    names
}

#[test]
fn options_with_one_name_have_one_meaning() {
    let mut different = Vec::new();
    for (name, uses) in by_name() {
        let (first_command, first) = &uses[0];
        for (command, option) in &uses[1..] {
            let is_exempt = SEVERAL_VALUES.iter().any(|(known, _)| *known == name);
            let same = first.short == option.short
                && first.value.is_some() == option.value.is_some()
                && (is_exempt || first.value == option.value);
            if !same {
                different.push(format!(
                    "--{name}: {first_command} {:?} {:?}, {command} {:?} {:?}",
                    first.short, first.value, option.short, option.value
                ));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn common_options_follow_the_grammar() {
    let names = by_name();
    for (name, value, short) in GRAMMAR {
        for (command, option) in names.get(name).into_iter().flatten() {
            let found = (option.value.as_deref(), option.short);
            assert_eq!(found, (value, short), "{command} --{name}");
        }
    }
    for (command, option) in &names["format"] {
        let text = &option.text;
        assert!(
            text.contains("text") && text.contains("json"),
            "{command}: {text}"
        );
        assert!(!text.contains("table:"), "{command}: {text}");
    }
}

#[test]
fn global_options_are_in_every_command() {
    for help in all() {
        for name in ["verbose", "quiet", "color"] {
            let found = help.options.iter().any(|option| option.long == name);
            assert!(found, "{} has no --{name}", help.command);
        }
    }
}
