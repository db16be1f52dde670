//! Rules against the tools whose files they are: accepted lines with their canonical form, refused
//! lines, deliberate differences, and whole files.
//!
//! A line of a table (`formats/*.txt`) is `TABLE|RULE` with a mark in front:
//!
//! ```text
//!    TABLE|RULE               both accept it, and print the same
//!   !TABLE|RULE               both refuse it
//!   <TABLE|RULE  ## REASON    only Fairpath accepts it
//!   >TABLE|RULE  ## REASON    only the tool accepts it
//!   ~TABLE|RULE  ## REASON    both accept it, and Fairpath prints the lines with = that follow
//! ```
//!
//! The tools are iptables-legacy, ip6tables-legacy, arptables-legacy and ebtables-nft: kernels
//! without `CONFIG_BRIDGE_NF_EBTABLES_LEGACY` have no other ebtables.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Output, Stdio};

use fairpath_rules::spec::{Kind, SPECS};
use fairpath_rules::{Family, Names, Ruleset, WithCounters, read, restore, to_text};
use fairpath_testbed::{Need, Netns, Testbed, requires};

mod files;

const TABLES: [(Family, &str); 4] = [
    (Family::Ipv4, include_str!("formats/ipv4.txt")),
    (Family::Ipv6, include_str!("formats/ipv6.txt")),
    (Family::Arp, include_str!("formats/arp.txt")),
    (Family::Bridge, include_str!("formats/bridge.txt")),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Same,
    Refused,
    OnlyOurs,
    OnlyTheirs,
    Different,
}

struct Entry {
    mark: Mark,
    table: &'static str,
    rule: &'static str,
    /// Lines with `=`.
    ours: Vec<&'static str>,
}

fn entries(text: &'static str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(ours) = line.strip_prefix("  = ") {
            entries
                .last_mut()
                .expect("an entry before =")
                .ours
                .push(ours);
            continue;
        }
        let mark = match line.as_bytes()[0] {
            b'#' => continue,
            b'!' => Mark::Refused,
            b'<' => Mark::OnlyOurs,
            b'>' => Mark::OnlyTheirs,
            b'~' => Mark::Different,
            _ => Mark::Same,
        };
        let line = if mark == Mark::Same { line } else { &line[1..] };
        let differs = !matches!(mark, Mark::Same | Mark::Refused);
        let line = match line.split_once("  ## ") {
            Some((line, reason)) => {
                assert!(differs && !reason.is_empty(), "{line}");
                line
            }
            None => {
                assert!(!differs, "a difference needs a reason: {line}");
                line
            }
        };
        let (table, rule) = line.split_once('|').expect("TABLE|RULE");
        entries.push(Entry {
            mark,
            table,
            rule,
            ours: Vec::new(),
        });
    }
    entries
}

fn names() -> Names {
    let file = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut names = Names::default();
    names.add_services(&file("/etc/services"));
    names.add_users(&file("/etc/passwd"));
    names.add_groups(&file("/etc/group"));
    names
}

/// A file with the chain `foo` and these rules.
fn file(family: Family, table: &str, rules: &[&str]) -> String {
    let chain = match family {
        Family::Ipv4 | Family::Ipv6 => ":foo - [0:0]",
        Family::Arp => ":foo -",
        Family::Bridge => ":foo ACCEPT",
    };
    let end = if family.is_ip() { "COMMIT\n" } else { "" };
    format!("*{table}\n{chain}\n{}\n{end}", rules.join("\n"))
}

/// Our canonical form, or the first problem.
fn ours(family: Family, text: &str) -> Result<String, String> {
    let reading = read(&mut text.as_bytes(), "case", family, &names()).unwrap();
    canonical(reading.complete().map_err(|error| error.to_string())?)
}

fn canonical(ruleset: Ruleset) -> Result<String, String> {
    Ok(lines(&to_text(&ruleset, WithCounters::Never)).join("\n"))
}

/// Lines without comments; blanks at the end do not count.
fn lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(str::trim_end)
        .collect()
}

/// The rules of a saved table.
fn rules(saved: &str) -> Vec<&str> {
    let rules = saved.lines().filter(|line| line.starts_with("-A"));
    rules.collect()
}

pub(super) fn execute(ns: &Netns, words: &[&str], input: &str) -> Output {
    let mut command = ns.command_without_sysfs(words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A refused line ends the tool, and the rest of the input is not read.
        scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        child.wait_with_output().unwrap()
    })
}

fn succeed(ns: &Netns, words: &[&str], input: &str) -> String {
    let output = execute(ns, words, input);
    assert!(output.status.success(), "{words:?} {input}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of a table that a tool saves.
fn saved_table(ns: &Netns, program: &str, table: &str) -> String {
    let saved = succeed(ns, &[&format!("{program}-save")], "");
    let head = format!("*{table}");
    let all = lines(&saved);
    let Some(start) = all.iter().position(|line| *line == head) else {
        return String::new();
    };
    let end = all[start + 1..]
        .iter()
        .position(|line| line.starts_with('*'))
        .map_or(all.len(), |length| start + 1 + length);
    all[start..end].join("\n")
}

/// The tool of a family in a namespace.
struct Tool {
    ns: Netns,
    family: Family,
}

impl Tool {
    fn new(family: Family) -> Self {
        let ns = Testbed::new().netns("formats").unwrap();
        Self { ns, family }
    }

    fn program(&self) -> &'static str {
        match self.family {
            Family::Ipv4 => "iptables-legacy",
            Family::Ipv6 => "ip6tables-legacy",
            Family::Arp => "arptables-legacy",
            Family::Bridge => "ebtables-nft",
        }
    }

    fn clear(&self, table: &str) {
        let program = self.program();
        if self.family.is_ip() {
            let text = format!("*{table}\nCOMMIT\n");
            succeed(&self.ns, &[&format!("{program}-restore")], &text);
            return;
        }
        for command in ["-F", "-X"] {
            succeed(&self.ns, &[program, "-t", table, command], "");
        }
    }

    /// Loads rules into an empty table and saves it.
    fn load(&self, table: &str, rules: &[&str]) -> Result<String, String> {
        self.clear(table);
        if self.family != Family::Arp {
            return self.restore(table, &file(self.family, table, rules));
        }
        // The legacy tool's restore is a script that starts the tool for each line.
        succeed(&self.ns, &[self.program(), "-N", "foo"], "");
        for rule in rules {
            let words: Vec<&str> = [self.program()]
                .into_iter()
                .chain(rule.split_whitespace())
                .collect();
            let output = execute(&self.ns, &words, "");
            if !output.status.success() {
                return Err(format!(
                    "{rule}: {}",
                    String::from_utf8_lossy(&output.stderr)
                ));
            }
        }
        Ok(self.save(table))
    }

    /// Applies a file.
    fn restore(&self, table: &str, text: &str) -> Result<String, String> {
        let output = execute(&self.ns, &[&format!("{}-restore", self.program())], text);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(self.save(table))
    }

    fn save(&self, table: &str) -> String {
        if self.family == Family::Arp {
            return self.save_arp();
        }
        saved_table(&self.ns, self.program(), table)
    }

    /// The script of Debian 12 calls arptables, which is the nft variant there.
    fn save_arp(&self) -> String {
        let script = std::fs::read_to_string("/usr/sbin/arptables-legacy-save").unwrap();
        let script = script.replace("/usr/sbin/arptables\"", "/usr/sbin/arptables-legacy\"");
        lines(&succeed(&self.ns, &["perl", "-"], &script)).join("\n")
    }
}

fn compare(family: Family) {
    let tool = Tool::new(family);
    let (_, text) = TABLES[family as usize];
    let entries = entries(text);
    let mut problems = Vec::new();
    for table in ["filter", "nat", "mangle", "raw"] {
        let of_table: Vec<&Entry> = entries
            .iter()
            .filter(|entry| entry.table == table)
            .collect();
        if !of_table.is_empty() {
            compare_same(&tool, table, &of_table, &mut problems);
            for entry in of_table {
                compare_one(&tool, entry, &mut problems);
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Loads all rules that both accept at once.
fn compare_same(tool: &Tool, table: &str, entries: &[&Entry], problems: &mut Vec<String>) {
    let same = entries.iter().filter(|entry| entry.mark == Mark::Same);
    let same: Vec<&str> = same.map(|entry| entry.rule).collect();
    let ours = ours(tool.family, &file(tool.family, table, &same));
    let theirs = tool.load(table, &same);
    if ours == theirs {
        return;
    }
    // The whole differs, so the line is found by a comparison of each.
    let before = problems.len();
    for rule in same {
        let ours = self::ours(tool.family, &file(tool.family, table, &[rule]));
        let theirs = tool.load(table, &[rule]);
        if ours != theirs {
            problems.push(format!(
                "{table}|{rule}\n  tool {theirs:?}\n  ours {ours:?}"
            ));
        }
    }
    if problems.len() == before {
        problems.push(format!("{table}: tool {theirs:?}\n  ours {ours:?}"));
    }
}

fn compare_one(tool: &Tool, entry: &Entry, problems: &mut Vec<String>) {
    if entry.mark == Mark::Same {
        return;
    }
    let ours = ours(tool.family, &file(tool.family, entry.table, &[entry.rule]));
    let theirs = tool.load(entry.table, &[entry.rule]);
    let holds = match (entry.mark, &ours, &theirs) {
        (Mark::Refused, Err(_), Err(_))
        | (Mark::OnlyOurs, Ok(_), Err(_))
        | (Mark::OnlyTheirs, Err(_), Ok(_)) => true,
        (Mark::Different, Ok(ours), Ok(theirs)) => {
            rules(ours) != rules(theirs) && rules(ours) == entry.ours
        }
        _ => false,
    };
    if !holds {
        problems.push(format!(
            "{:?} {}|{}\n  tool {theirs:?}\n  ours {ours:?}",
            entry.mark, entry.table, entry.rule
        ));
    }
}

#[test]
fn ipv4_rules_are_those_of_iptables() {
    requires!(Need::Root, Need::Tool("iptables-legacy-restore"));
    compare(Family::Ipv4);
}

#[test]
fn ipv6_rules_are_those_of_ip6tables() {
    requires!(Need::Root, Need::Tool("ip6tables-legacy-restore"));
    compare(Family::Ipv6);
}

#[test]
fn arp_rules_are_those_of_arptables() {
    requires!(
        Need::Root,
        Need::Tool("arptables-legacy"),
        Need::Tool("arptables-legacy-save"),
        Need::Tool("perl")
    );
    compare(Family::Arp);
}

#[test]
fn bridge_rules_are_those_of_ebtables() {
    requires!(Need::Root, Need::Tool("ebtables-nft-restore"));
    compare(Family::Bridge);
}

/// Options of a family that the accepted lines of its table have: kind, option, negation.
fn options_of(family: Family, entries: &[Entry]) -> HashSet<(Kind, u8, bool)> {
    let mut seen = HashSet::new();
    for entry in entries {
        let text = file(family, entry.table, &[entry.rule]);
        let reading = read(&mut text.as_bytes(), "case", family, &names()).unwrap();
        for table in &reading.ruleset.tables {
            for rule in table.chains().flat_map(|(_, chain)| &chain.rules) {
                seen.extend(
                    rule.items
                        .iter()
                        .map(|item| (item.kind, item.option, item.not)),
                );
            }
        }
    }
    seen
}

#[test]
fn every_option_and_word_is_in_a_table() {
    let mut missing = Vec::new();
    for (family, text) in TABLES {
        let mut entries = entries(text);
        entries.retain(|entry| !matches!(entry.mark, Mark::Refused | Mark::OnlyTheirs));
        let seen = options_of(family, &entries);
        let words: HashSet<&str> = entries
            .iter()
            .flat_map(|entry| entry.rule.split([' ', '=']))
            .collect();
        for spec in SPECS.iter().filter(|spec| spec.is_in(family)) {
            // `Kind::Limit` serves bridges, too.
            let never = [Kind::Opaque, Kind::OpaqueTarget, Kind::BridgeLimit];
            // IPv6 repeats the options of both families only where they differ.
            let both = family == Family::Ipv6 && spec.is_in(Family::Ipv4);
            if both || never.contains(&spec.kind) {
                continue;
            }
            for (at, option) in spec.options.iter().enumerate() {
                let name = format!("{family}: {} {}", spec.name, option.names[0]);
                let has = |not| seen.contains(&(spec.kind, at as u8, not));
                if !has(false) && !has(true) {
                    missing.push(name.clone());
                }
                if option.not && !has(true) {
                    missing.push(format!("{name} with !"));
                }
                let short = option.alias.iter().map(|(name, _)| name);
                for word in option.names.iter().chain(short) {
                    // arptables knows two of the words.
                    let other = family == Family::Arp && spec.is_in(Family::Ipv4);
                    if !words.contains(word) && !other {
                        missing.push(format!("{name} as {word}"));
                    }
                }
            }
        }
    }
    missing.retain(|name| !files::EXCLUDED.iter().any(|known| name.contains(known)));
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn files_are_accepted_as_by_the_tools() {
    requires!(
        Need::Root,
        Need::Tool("iptables-legacy-restore"),
        Need::Tool("arptables-nft-restore"),
        Need::Tool("ebtables-nft-restore")
    );
    let mut problems = Vec::new();
    let ns = Testbed::new().netns("formats").unwrap();
    for (family, program, cases) in [
        (Family::Ipv4, "iptables-legacy", files::IPV4),
        (Family::Arp, "arptables-nft", files::ARP),
        (Family::Bridge, "ebtables-nft", files::BRIDGE),
    ] {
        for case in cases {
            if let Some(problem) = compare_files(&ns, family, program, case) {
                problems.push(problem);
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn compare_files(ns: &Netns, family: Family, program: &str, case: &files::Case) -> Option<String> {
    let restore_program = format!("{program}-restore");
    // A restore keeps the policies of chains that it does not name.
    succeed(ns, &[&restore_program], files::EMPTY);
    let mut theirs = Ok(String::new());
    let mut ours = Ok(Ruleset::new(family));
    for (text, noflush) in case.inputs {
        let mut words = vec![&restore_program[..]];
        words.extend(noflush.then_some("--noflush"));
        let output = execute(ns, &words, text);
        theirs = match output.status.success() {
            true => Ok(saved_table(ns, program, "filter")),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        };
        let set = ours.unwrap_or_else(|_: String| Ruleset::new(family));
        let reading = restore(set, &mut text.as_bytes(), "case", &names(), *noflush).unwrap();
        ours = reading.complete().map_err(|error| error.to_string());
    }
    // The nft variant of arptables has no chain FORWARD.
    let nft = |text: String| match family {
        Family::Arp => text.replace("\n:FORWARD ACCEPT", ""),
        _ => text,
    };
    let ours = ours.and_then(canonical).map(nft);
    let holds = match case.expected {
        files::Expected::Same => ours.is_ok() && ours == theirs,
        files::Expected::Refused => ours.is_err() && theirs.is_err(),
        files::Expected::OnlyTheirs(reason) => {
            !reason.is_empty() && ours.is_err() && theirs.is_ok()
        }
        files::Expected::OnlyOurs(reason) => !reason.is_empty() && ours.is_ok() && theirs.is_err(),
    };
    (!holds).then(|| {
        let (inputs, expected) = (case.inputs, case.expected);
        format!("{expected:?} {inputs:?}\n  tool {theirs:?}\n  ours {ours:?}")
    })
}
