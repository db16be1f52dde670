//! Findings about a set of rules: what cannot work, what never takes effect, what is not known.
//!
//! A rule is *shadowed* if an earlier rule of its chain takes every packet that it could match. This
//! compares words of packets, as the image has them: exact for addresses, protocols, ports,
//! interfaces, flags, marks and states, and silent about ranges and stateful matches. So every
//! finding is true, and some dead rules are not found.

use std::collections::HashMap;

use crate::image::RuleWords;
use crate::packet::Unknown;
use crate::sets::Sets;
use crate::spec::Kind;
use crate::tree::{Chain, ChainId, Family, Item, Rule, Ruleset, Table, Target, Value};

/// Most findings of one kind that are kept; others are counted.
pub const MAX_FINDINGS: usize = 1000;

/// A kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// Chains that lead back to themselves: the kernel refuses to load them.
    Loop,
    /// A set that was not given.
    UndefinedSet,
    /// A set has other dimensions than a match uses.
    SetDimensions,
    /// No packet reaches the chain.
    Unreachable,
    /// An earlier rule takes all packets of this one.
    Shadowed,
    /// An earlier rule is the same.
    Duplicate,
    /// No packet matches the rule.
    NeverMatches,
    /// A match or target that Fairpath does not know.
    NotKnown,
    /// A match, option or target that Fairpath knows, but does not evaluate.
    NotEvaluated,
}

impl FindingKind {
    /// True for findings with which the set cannot be loaded.
    pub fn is_error(self) -> bool {
        matches!(
            self,
            FindingKind::Loop | FindingKind::UndefinedSet | FindingKind::SetDimensions
        )
    }

    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Loop => "loop",
            FindingKind::UndefinedSet => "undefined-set",
            FindingKind::SetDimensions => "set-dimensions",
            FindingKind::Unreachable => "unreachable",
            FindingKind::Shadowed => "shadowed",
            FindingKind::Duplicate => "duplicate",
            FindingKind::NeverMatches => "never-matches",
            FindingKind::NotKnown => "not-known",
            FindingKind::NotEvaluated => "not-evaluated",
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// The line in the file, 0 if it has none.
    pub line: u32,
    /// Names of the word of the line that it is about: an option, a match or a target.
    pub words: Vec<String>,
    /// In words.
    pub text: String,
}

impl Finding {
    /// The column of the word in its line, from 1; 0 if it is not there.
    pub fn column(&self, line: &[u8]) -> u32 {
        let mut words = Vec::new();
        if self.words.is_empty() || crate::words::split(line, &mut words).is_err() {
            return 0;
        }
        let is = |text: &[u8]| {
            let option = text.split(|byte| *byte == b'=').next().unwrap_or_default();
            // A name may follow -m or -j without a blank.
            let name = text.strip_prefix(b"-m").or(text.strip_prefix(b"-j"));
            let known = |text: &[u8]| self.words.iter().any(|word| word.as_bytes() == text);
            known(option) || name.is_some_and(known)
        };
        let found = words.iter().find(|word| is(&word.text));
        found.map_or(0, |word| word.column)
    }
}

/// The findings of a set.
#[derive(Debug, Default)]
pub struct Findings {
    /// The findings that are kept.
    pub list: Vec<Finding>,
    /// Number of each kind, the listed ones included.
    pub counts: HashMap<FindingKind, u64>,
}

impl Findings {
    fn add(&mut self, finding: Finding) {
        let count = self.counts.entry(finding.kind).or_default();
        *count += 1;
        if *count <= MAX_FINDINGS as u64 {
            self.list.push(finding);
        }
    }

    /// Findings with which the set cannot be loaded.
    pub fn errors(&self) -> u64 {
        self.counts
            .iter()
            .filter(|(kind, _)| kind.is_error())
            .map(|(_, count)| count)
            .sum()
    }

    /// The other findings.
    pub fn warnings(&self) -> u64 {
        self.counts.values().sum::<u64>() - self.errors()
    }
}

/// Checks a set. `sets`: its ipset file, if there is one.
pub fn check_rules(ruleset: &Ruleset, sets: Option<&Sets>) -> Findings {
    let mut findings = Findings::default();
    let mut words = RuleWords::new(ruleset.family);
    for table in &ruleset.tables {
        chains(table, &mut findings);
        for (_, chain) in table.chains() {
            rules(table, chain, &mut words, &mut findings);
            names(table, chain, sets, &mut findings);
            not_evaluated(table, chain, &mut words, &mut findings);
        }
    }
    findings
        .list
        .sort_by_key(|finding| (!finding.kind.is_error(), finding.line, finding.kind));
    findings
}

/// Only chains that lead back to themselves.
pub fn check_loops(ruleset: &Ruleset) -> Vec<Finding> {
    let mut findings = Findings::default();
    for table in &ruleset.tables {
        chains(table, &mut findings);
    }
    let is_loop = |finding: &Finding| finding.kind == FindingKind::Loop;
    findings.list.into_iter().filter(is_loop).collect()
}

/// Only the findings about matches and targets that are not evaluated.
pub fn check_evaluated(ruleset: &Ruleset) -> Findings {
    let mut findings = Findings::default();
    let mut words = RuleWords::new(ruleset.family);
    for table in &ruleset.tables {
        for (_, chain) in table.chains() {
            names(table, chain, None, &mut findings);
            not_evaluated(table, chain, &mut words, &mut findings);
        }
    }
    findings.list.sort_by_key(|finding| finding.line);
    findings
}

fn finding(kind: FindingKind, table: &Table, chain: &Chain, line: u32, text: String) -> Finding {
    Finding {
        kind,
        table: table.name.to_string(),
        chain: chain.name().into_owned(),
        line,
        words: Vec::new(),
        text,
    }
}

/// Chains that a rule leads to.
fn targets(chain: &Chain) -> impl Iterator<Item = (ChainId, u32)> {
    chain.rules.iter().filter_map(|rule| match rule.target {
        Target::Jump(id) | Target::Goto(id) => Some((id, rule.line)),
        _ => None,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    Not,
    Open,
    Done,
}

/// Reachability and loops, by a depth-first walk without recursion.
fn chains(table: &Table, findings: &mut Findings) {
    let mut visits = vec![Visit::Not; table.bound() as usize];
    let roots = table.chains().filter(|(_, chain)| chain.hook.is_some());
    for (root, _) in roots {
        walk(table, root, true, &mut visits, findings);
    }
    for (id, chain) in table.chains() {
        if visits[id.0 as usize] == Visit::Not {
            findings.add(finding(
                FindingKind::Unreachable,
                table,
                chain,
                chain.line,
                format!(
                    "no rule that a packet can reach leads to chain {} ({} rules)",
                    chain.name(),
                    chain.rules.len()
                ),
            ));
        }
    }
}

fn walk(table: &Table, root: ChainId, report: bool, visits: &mut [Visit], findings: &mut Findings) {
    if visits[root.0 as usize] != Visit::Not {
        return;
    }
    visits[root.0 as usize] = Visit::Open;
    let mut stack = vec![(root, targets(table.get(root)))];
    while let Some((id, next)) = stack.last_mut() {
        let id = *id;
        let Some((to, line)) = next.next() else {
            visits[id.0 as usize] = Visit::Done;
            stack.pop();
            continue;
        };
        match visits[to.0 as usize] {
            Visit::Not => {
                visits[to.0 as usize] = Visit::Open;
                stack.push((to, targets(table.get(to))));
            }
            Visit::Open if report => {
                let chain = table.get(id);
                findings.add(finding(
                    FindingKind::Loop,
                    table,
                    chain,
                    line,
                    format!(
                        "the rule leads back to chain {}, which led here: remove one of the jumps",
                        table.get(to).name()
                    ),
                ));
            }
            _ => {}
        }
    }
}

/// True if a rule with this target ends the chain for its packets.
fn is_final(target: Target) -> bool {
    match target {
        Target::Accept | Target::Drop | Target::Return | Target::Queue | Target::Goto(_) => true,
        Target::Extension(kind) => matches!(kind, Kind::TargetReject),
        Target::None | Target::Continue | Target::Jump(_) => false,
    }
}

/// Dead rules of a chain.
fn rules(table: &Table, chain: &Chain, words: &mut RuleWords, findings: &mut Findings) {
    let mut seen = crate::image::Covered::default();
    let mut same: HashMap<(&[Item], Target), u32> = HashMap::new();
    for (at, rule) in chain.rules.iter().enumerate() {
        let compared = words.of(rule);
        if compared.never {
            findings.add(finding(
                FindingKind::NeverMatches,
                table,
                chain,
                rule.line,
                "no packet matches the rule: its conditions exclude each other".into(),
            ));
            continue;
        }
        let plain = is_final(rule.target);
        if let Some(first) = same.get(&(&rule.items[..], rule.target)) {
            if plain {
                findings.add(finding(
                    FindingKind::Duplicate,
                    table,
                    chain,
                    rule.line,
                    format!("the rule is the same as that of {}", place(chain, *first)),
                ));
            }
            continue;
        }
        same.insert((&rule.items, rule.target), at as u32);
        if let Some(first) = seen.find(&compared) {
            findings.add(finding(
                FindingKind::Shadowed,
                table,
                chain,
                rule.line,
                format!(
                    "every packet that matches is taken before by {}",
                    place(chain, first)
                ),
            ));
            continue;
        }
        if plain && compared.whole {
            seen.add(&compared, at as u32);
        }
    }
}

fn place(chain: &Chain, rule: u32) -> String {
    match chain.rules[rule as usize].line {
        0 => format!("rule {}", rule + 1),
        line => format!("line {line}"),
    }
}

/// Sets and extensions by name.
fn names(table: &Table, chain: &Chain, sets: Option<&Sets>, findings: &mut Findings) {
    for rule in &chain.rules {
        for item in rule.items.iter() {
            match &item.value {
                Value::Set(set) => {
                    let name = String::from_utf8_lossy(&set.name).into_owned();
                    set_finding(
                        table,
                        chain,
                        rule,
                        &name,
                        set.destinations.len(),
                        sets,
                        findings,
                    );
                }
                Value::Words(list) if matches!(item.kind, Kind::Opaque | Kind::OpaqueTarget) => {
                    let what = if item.kind == Kind::Opaque {
                        "match"
                    } else {
                        "target"
                    };
                    let name = list.first().map_or(&b""[..], |name| name);
                    let name = crate::value::show(name);
                    let text = format!(
                        "{what} {name} is kept as it is, but not evaluated: answers that depend on it are unknown"
                    );
                    findings.add(Finding {
                        words: vec![name],
                        ..finding(FindingKind::NotKnown, table, chain, rule.line, text)
                    });
                }
                _ => {}
            }
        }
    }
}

/// Matches, options and targets that are known, but not evaluated.
fn not_evaluated(table: &Table, chain: &Chain, words: &mut RuleWords, findings: &mut Findings) {
    let opaque = |item: &Item| matches!(item.kind, Kind::Opaque | Kind::OpaqueTarget);
    for rule in chain
        .rules
        .iter()
        .filter(|rule| !rule.items.iter().any(opaque))
    {
        if let Some(names) = words.not_evaluated(rule) {
            let what = match names[0].as_bytes() {
                [b'-', ..] => names[0].to_owned(),
                _ => format!("{} {}", kind_of(rule, names[0]), names[0]),
            };
            let text = format!("{what} is not evaluated: answers that depend on it are unknown");
            findings.add(Finding {
                words: names.into_iter().map(str::to_owned).collect(),
                ..finding(FindingKind::NotEvaluated, table, chain, rule.line, text)
            });
        }
    }
}

fn kind_of(rule: &Rule, name: &str) -> &'static str {
    match rule.matches().any(|group| group.spec().name == name) {
        true => "match",
        false => "target",
    }
}

fn set_finding(
    table: &Table,
    chain: &Chain,
    rule: &Rule,
    name: &str,
    dimensions: usize,
    sets: Option<&Sets>,
    findings: &mut Findings,
) {
    // Without a file of sets, all of them are elsewhere.
    let Some(sets) = sets else { return };
    let Some(set) = sets.get(name) else {
        findings.add(finding(
            FindingKind::UndefinedSet,
            table,
            chain,
            rule.line,
            format!("set {name} is in none of the ipset files"),
        ));
        return;
    };
    let has = usize::from(set.dimension());
    if dimensions < has && set.opaque().is_none() {
        findings.add(finding(
            FindingKind::SetDimensions,
            table,
            chain,
            rule.line,
            format!("set {name} has {has} dimensions, the rule names {dimensions}"),
        ));
    }
}

/// The option, match or target of a rule that is not evaluated, if there is one.
pub fn not_evaluated_word(family: Family, rule: &Rule) -> Option<&'static str> {
    RuleWords::new(family)
        .not_evaluated(rule)
        .map(|names| names[0])
}

/// The reason of an unknown verdict, in words.
pub fn unknown_text(unknown: Unknown) -> &'static str {
    match unknown {
        Unknown::OpaqueMatch => "a match that Fairpath does not evaluate",
        Unknown::OpaqueTarget => "a target that Fairpath does not evaluate",
        Unknown::Input => "the input interface: give --in-interface",
        Unknown::Output => "the output interface: add --out-interface",
        Unknown::Physical => "the port of a bridge: give --physdev-in and --physdev-out",
        Unknown::Connection => "the state of the connection: give --ctstate",
        Unknown::SourceType => "the type of the source address: give --src-type",
        Unknown::DestinationType => "the type of the destination address: give --dst-type",
        Unknown::PacketType => "the packet type: give --pkt-type",
        Unknown::Owner => "the owner of the socket: give --uid-owner or --no-socket",
        Unknown::ReversePath => "the route back: give --reverse-path",
        Unknown::Date => "the date: give --date",
        Unknown::Random => "chance",
        Unknown::Translation => "address translation, which the kernel does",
        Unknown::CutBytes => "bytes that the capture did not keep",
        Unknown::Set => "a set that was not given: add its ipset file",
        Unknown::SetType => "a set of a type that Fairpath does not evaluate",
        Unknown::Depth => "more than 512 nested jumps, which Fairpath does not follow",
        Unknown::LinkLayer => "the link-layer header, which the packet does not have",
        Unknown::Steps => {
            "more rules than a packet may meet: 8,388,608, or 1,048,576 if its path is shown"
        }
    }
}
