//! Help texts: parsed from `--help`, and checked for each command.

use std::path::PathBuf;

use crate::{binaries, run, stdout};

/// One command, as its `--help` shows it.
#[derive(Debug)]
pub struct Help {
    /// For example `fairpath shape status`.
    pub command: String,
    /// The binary, and the words that reach the command.
    pub path: PathBuf,
    pub words: Vec<String>,
    pub summary: String,
    pub subcommands: Vec<String>,
    pub options: Vec<Flag>,
    pub examples: Vec<String>,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    pub long: String,
    pub short: Option<char>,
    /// Name of its value; `None` for a switch.
    pub value: Option<String>,
    pub text: String,
}

/// Every command of every binary, each with its help.
pub fn all() -> Vec<Help> {
    let mut found = Vec::new();
    for binary in binaries() {
        let mut waiting = vec![Vec::new()];
        while let Some(words) = waiting.pop() {
            let help = read(binary.words, &binary.path, &words);
            for name in &help.subcommands {
                // Those of other binaries are read there.
                let is_other = ["sched", "lab", "demo"].contains(&name.as_str());
                if name != "help" && !(is_other && binary.words.len() == 1) {
                    waiting.push([&words[..], std::slice::from_ref(name)].concat());
                }
            }
            found.push(help);
        }
    }
    assert!(found.len() >= 20, "{} commands", found.len());
    found
}

fn read(prefix: &[&str], path: &std::path::Path, words: &[String]) -> Help {
    let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = [prefix, &arguments].concat().join(" ");
    arguments.push("--help");
    let output = run(path, &arguments);
    assert_eq!(output.status.code(), Some(0), "{command} --help");
    let text = stdout(&output);
    let mut help = Help {
        command,
        path: path.to_owned(),
        words: words.to_vec(),
        summary: text.lines().next().unwrap_or_default().to_owned(),
        subcommands: Vec::new(),
        options: Vec::new(),
        examples: Vec::new(),
    };
    let mut section = "";
    for line in text.lines().skip(1) {
        let indent = line.len() - line.trim_start().len();
        if indent == 0 && line.ends_with(':') {
            section = line.trim_end_matches(':');
            continue;
        }
        match section {
            "Commands" if indent == 2 => {
                let name = line.split_whitespace().next().unwrap_or_default();
                help.subcommands.push(name.to_owned());
            }
            "Examples" if indent > 0 => help.examples.push(line.trim().to_owned()),
            "Examples" | "Commands" | "Usage" | "Arguments" | "" => {}
            _ => match flag(line).filter(|_| indent <= 6) {
                Some(flag) => help.options.push(flag),
                None => {
                    if let Some(last) = help.options.last_mut() {
                        last.text += " ";
                        last.text += line.trim();
                    }
                }
            },
        }
    }
    help
}

/// `-i, --interface <IF>` with or without text after two spaces.
fn flag(line: &str) -> Option<Flag> {
    let line = line.trim_start();
    let (short, rest) = match line.strip_prefix('-')?.strip_prefix('-') {
        Some(rest) => (None, rest),
        None => {
            let mut letters = line[1..].chars();
            let short = letters.next()?;
            (Some(short), letters.as_str().strip_prefix(", --")?)
        }
    };
    let (head, text) = rest.split_once("  ").unwrap_or((rest, ""));
    let end = head.find([' ', '[', '=']).unwrap_or(head.len());
    let (long, value) = head.split_at(end);
    let value = value
        .trim_start_matches([' ', '[', '=', '<'])
        .split(['>', ']'])
        .next()
        .unwrap_or_default();
    Some(Flag {
        long: long.to_owned(),
        short,
        value: (!value.is_empty()).then(|| value.to_owned()),
        text: text.trim().to_owned(),
    })
}

#[test]
fn every_help_has_summary_and_examples() {
    let mut missing = Vec::new();
    for help in all() {
        let first = help.summary.split(' ').next().unwrap_or_default();
        let is_imperative = first.chars().next().is_some_and(char::is_uppercase)
            && !first.ends_with('s')
            && !["The", "A", "An", "What"].contains(&first);
        if !is_imperative {
            missing.push(format!("{}: summary {:?}", help.command, help.summary));
        }
        let examples = help.examples.iter();
        let count = examples
            .filter(|line| line.contains("fairpath ") || line.contains("fairpath-"))
            .count();
        if count < 2 {
            missing.push(format!("{}: {count} examples", help.command));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// A digit directly before one of these.
fn has_unit(text: &str, units: &[&str]) -> bool {
    units.iter().any(|unit| {
        text.match_indices(unit)
            .any(|(at, _)| text[..at].ends_with(|c: char| c.is_ascii_digit()))
    })
}

#[test]
fn options_with_quantities_show_a_unit() {
    let mut missing = Vec::new();
    for help in all() {
        for option in &help.options {
            let value = option.value.as_deref().unwrap_or_default();
            let units: &[&str] = match value.split([',', '|', '[']).next() {
                Some("TIME") => &["ns", "us", "ms", "s", "m", "h"],
                Some("RATE") => &["kbit", "mbit", "gbit"],
                Some("SHARE") => &["%"],
                Some("SIZE") => &["B", "kB", "MB", "KiB", "MiB"],
                _ => continue,
            };
            // The options of a group, such as rates, may share the example of the first.
            let of_group = help.options.iter();
            let is_shown = of_group
                .filter(|other| other.value == option.value)
                .any(|other| has_unit(&other.text, units));
            if !is_shown {
                missing.push(format!(
                    "{} --{}: {}",
                    help.command, option.long, option.text
                ));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn options_with_numbers_show_default_or_range() {
    let mut missing = Vec::new();
    for help in all() {
        for option in &help.options {
            let is_number = option.value.as_deref() == Some("N");
            let is_shown =
                option.text.contains("default") || option.text.chars().any(|c| c.is_ascii_digit());
            if is_number && !is_shown {
                missing.push(format!(
                    "{} --{}: {}",
                    help.command, option.long, option.text
                ));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn other_binaries_are_listed_and_completed() {
    let fairpath = &binaries()[0].path;
    let help = stdout(&run(fairpath, &["--help"]));
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&run(fairpath, &["completions", shell]));
        for name in ["sched", "lab", "demo", "rtt"] {
            assert!(help.contains(&format!("\n  {name} ")), "{name}: {help}");
            assert!(text.contains(name), "{shell} {name}");
        }
    }
}
