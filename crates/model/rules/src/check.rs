//! Findings about a set of rules: what cannot work, what never takes effect, what is not known.
//!
//! A rule is *shadowed* if an earlier rule of its chain takes every packet that it could match. This
//! compares words of packets, as the image has them: exact for addresses, protocols, ports,
//! interfaces, flags, marks and states, and silent about ranges and stateful matches. So every
//! finding is true, and some dead rules are not found.

use std::collections::HashMap;

use crate::image::RuleWords;
use crate::packet::Unknown;
use crate::reference::MAX_DEPTH;
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
    /// Jumps nest deeper than Fairpath follows.
    Depth,
    /// A set has more dimensions than a match uses: the kernel never finds a packet in it.
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
    /// True for findings with which the set cannot be loaded or evaluated.
    pub fn is_error(self) -> bool {
        matches!(
            self,
            FindingKind::Loop | FindingKind::UndefinedSet | FindingKind::Depth
        )
    }

    /// The word in output.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Loop => "loop",
            FindingKind::UndefinedSet => "undefined-set",
            FindingKind::Depth => "depth",
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

    /// Findings with which the set cannot be loaded or evaluated.
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
        chains(ruleset.family, table, &mut findings);
        let changes = changes(table);
        for (_, chain) in table.chains() {
            rules(table, chain, &changes, &mut words, &mut findings);
            names(table, chain, sets, &mut findings);
            not_evaluated(table, chain, sets, &mut words, &mut findings);
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
        chains(ruleset.family, table, &mut findings);
    }
    let is_loop = |finding: &Finding| finding.kind == FindingKind::Loop;
    findings.list.into_iter().filter(is_loop).collect()
}

/// Only the findings about matches and targets that are not evaluated.
pub fn check_evaluated(ruleset: &Ruleset, sets: Option<&Sets>) -> Findings {
    let mut findings = Findings::default();
    let mut words = RuleWords::new(ruleset.family);
    for table in &ruleset.tables {
        for (_, chain) in table.chains() {
            names(table, chain, None, &mut findings);
            not_evaluated(table, chain, sets, &mut words, &mut findings);
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

/// Rules of a chain that lead to chains, as far as the kernel follows them when it loads a set:
/// ebtables all, the others up to a verdict without any condition (`mark_source_chains`).
fn jumps(family: Family, chain: &Chain) -> impl Iterator<Item = (&Rule, ChainId)> {
    let ends = move |rule: &&Rule| {
        let verdict = matches!(
            rule.target,
            Target::Accept | Target::Drop | Target::Return | Target::Queue
        );
        family == Family::Bridge || !verdict || !rule.items.is_empty()
    };
    let rules = chain.rules.iter().take_while(ends);
    rules.filter_map(|rule| match rule.target {
        Target::Jump(id) | Target::Goto(id) => Some((rule, id)),
        _ => None,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    Not,
    Open,
    Done,
}

/// Reachability, loops and nesting.
fn chains(family: Family, table: &Table, findings: &mut Findings) {
    let mut visits = vec![Visit::Not; table.bound() as usize];
    let mut done = Vec::new();
    let roots = table.chains().filter(|(_, chain)| chain.hook.is_some());
    for (root, _) in roots {
        walk(family, table, root, &mut visits, &mut done, findings);
    }
    if !findings.counts.contains_key(&FindingKind::Loop) {
        nesting(family, table, &done, findings);
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

/// A depth-first walk without recursion. `done`: chains, each after those that it leads to.
fn walk(
    family: Family,
    table: &Table,
    root: ChainId,
    visits: &mut [Visit],
    done: &mut Vec<ChainId>,
    findings: &mut Findings,
) {
    if visits[root.0 as usize] != Visit::Not {
        return;
    }
    visits[root.0 as usize] = Visit::Open;
    let mut stack = vec![(root, jumps(family, table.get(root)))];
    while let Some((id, next)) = stack.last_mut() {
        let id = *id;
        let Some((rule, to)) = next.next() else {
            visits[id.0 as usize] = Visit::Done;
            done.push(id);
            stack.pop();
            continue;
        };
        match visits[to.0 as usize] {
            Visit::Not => {
                visits[to.0 as usize] = Visit::Open;
                stack.push((to, jumps(family, table.get(to))));
            }
            Visit::Open => {
                let chain = table.get(id);
                findings.add(finding(
                    FindingKind::Loop,
                    table,
                    chain,
                    rule.line,
                    format!(
                        "the rule leads back to chain {}, which led here: remove one of the jumps",
                        table.get(to).name()
                    ),
                ));
            }
            Visit::Done => {}
        }
    }
}

/// Jumps beyond the nesting that Fairpath follows. Only the first ones, not those behind them.
fn nesting(family: Family, table: &Table, done: &[ChainId], findings: &mut Findings) {
    let mut depths = vec![0; table.bound() as usize];
    for id in done.iter().rev() {
        let chain = table.get(*id);
        let depth = depths[id.0 as usize];
        for (rule, to) in jumps(family, chain) {
            let jump = matches!(rule.target, Target::Jump(_));
            let nested = &mut depths[to.0 as usize];
            *nested = (*nested).max(depth + usize::from(jump));
            if jump && depth == MAX_DEPTH {
                findings.add(finding(
                    FindingKind::Depth,
                    table,
                    chain,
                    rule.line,
                    format!(
                        "jumps are nested deeper than {MAX_DEPTH} here: the verdict of a packet that follows them is unknown"
                    ),
                ));
            }
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

/// Parts of a packet that targets change and matches compare, as bits: its marks.
const MARKS: u8 = 1;
/// Fields of the header, and the state of the connection.
const FIELDS: u8 = 2;
/// Anything else: options of TCP, contents of sets.
const OTHERS: u8 = 4;

/// The parts that a target changes; jumps excluded.
fn changes_of(target: Target) -> u8 {
    let Target::Extension(kind) = target else {
        return 0;
    };
    match kind {
        Kind::TargetReject | Kind::TargetLog | Kind::TargetNflog | Kind::TargetTrace => 0,
        Kind::TargetClassify => 0,
        Kind::TargetMark | Kind::TargetConnmark | Kind::BridgeMarkTarget => MARKS,
        Kind::TargetTos | Kind::TargetDscp | Kind::TargetTtl | Kind::TargetHl => FIELDS,
        _ => MARKS | FIELDS | OTHERS,
    }
}

/// The parts that the rules of each chain can change, with those of the chains that they lead to.
fn changes(table: &Table) -> Vec<u8> {
    let mut changes = vec![0; table.bound() as usize];
    let mut callers: Vec<Vec<ChainId>> = vec![Vec::new(); changes.len()];
    let mut open = Vec::new();
    for (id, chain) in table.chains() {
        for rule in &chain.rules {
            changes[id.0 as usize] |= changes_of(rule.target);
            if let Target::Jump(to) | Target::Goto(to) = rule.target {
                callers[to.0 as usize].push(id);
            }
        }
        open.push(id);
    }
    while let Some(id) = open.pop() {
        let of = changes[id.0 as usize];
        for caller in &callers[id.0 as usize] {
            let before = &mut changes[caller.0 as usize];
            if *before | of != *before {
                *before |= of;
                open.push(*caller);
            }
        }
    }
    changes
}

/// The parts that the matches of a rule compare, and a target can change. `None`: they may give another answer
/// for the same packet.
fn compares(rule: &Rule) -> Option<u8> {
    let mut all = 0;
    for group in rule.matches() {
        all |= match group.kind {
            Kind::Opaque
            | Kind::Limit
            | Kind::BridgeLimit
            | Kind::Hashlimit
            | Kind::Recent
            | Kind::Quota
            | Kind::Statistic
            | Kind::Connlimit
            | Kind::Time => return None,
            Kind::Mark | Kind::BridgeMark => MARKS,
            Kind::Connmark => MARKS | FIELDS,
            Kind::State | Kind::Conntrack | Kind::Tos | Kind::Dscp | Kind::Ecn => FIELDS,
            Kind::Ttl | Kind::Hl => FIELDS,
            Kind::U32 | Kind::Set | Kind::Tcp | Kind::Tcpmss => MARKS | FIELDS | OTHERS,
            _ => 0,
        };
    }
    Some(all)
}

/// Dead rules of a chain. `changes`: of each chain.
fn rules(
    table: &Table,
    chain: &Chain,
    changes: &[u8],
    words: &mut RuleWords,
    findings: &mut Findings,
) {
    let mut seen = crate::image::Covered::default();
    let mut same: HashMap<(&[Item], Target), u32> = HashMap::new();
    // For each bit of what can change, the last rule that changed it.
    let mut changed = [None; 3];
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
        let compares = compares(rule).filter(|_| plain);
        if let Some(bits) = compares {
            let key = (&rule.items[..], rule.target);
            let since = changed.iter().enumerate();
            let since = since.filter(|(bit, _)| bits >> bit & 1 != 0);
            let since = since.filter_map(|(_, last)| *last).max();
            match same.get(&key).filter(|first| since < Some(**first)) {
                Some(first) => {
                    findings.add(finding(
                        FindingKind::Duplicate,
                        table,
                        chain,
                        rule.line,
                        format!("the rule is the same as that of {}", place(chain, *first)),
                    ));
                    continue;
                }
                None => same.insert(key, at as u32),
            };
        }
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
        let bits = match rule.target {
            Target::Jump(to) => changes[to.0 as usize],
            target => changes_of(target),
        };
        for (bit, last) in changed.iter_mut().enumerate() {
            if bits >> bit & 1 != 0 {
                *last = Some(at as u32);
            }
        }
        seen.forget(bits & MARKS != 0, bits & FIELDS != 0);
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

/// Matches, options, targets and types of sets that are known, but not evaluated.
fn not_evaluated(
    table: &Table,
    chain: &Chain,
    sets: Option<&Sets>,
    words: &mut RuleWords,
    findings: &mut Findings,
) {
    let opaque = |item: &Item| matches!(item.kind, Kind::Opaque | Kind::OpaqueTarget);
    for rule in &chain.rules {
        if let Some(what) = not_evaluated_set(rule, sets) {
            let text = format!("{what} is not evaluated: answers that depend on it are unknown");
            findings.add(Finding {
                words: vec!["--match-set".to_owned()],
                ..finding(FindingKind::NotEvaluated, table, chain, rule.line, text)
            });
        }
    }
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
    if dimensions < has {
        findings.add(finding(
            FindingKind::SetDimensions,
            table,
            chain,
            rule.line,
            format!(
                "set {name} has {has} dimensions, the rule names {dimensions}: the kernel never finds a packet in it"
            ),
        ));
    }
}

/// The set of a rule whose type is not evaluated, or a member of its list, with the type.
pub fn not_evaluated_set(rule: &Rule, sets: Option<&Sets>) -> Option<String> {
    let sets = sets?;
    let matches = rule.items.iter().filter(|item| item.kind == Kind::Set);
    let mut wanted = matches.filter_map(|item| match &item.value {
        Value::Set(set) => Some(set),
        _ => None,
    });
    wanted.find_map(|wanted| {
        let name = std::str::from_utf8(&wanted.name).ok()?;
        let set = sets.get(name)?;
        if usize::from(set.dimension()) > wanted.destinations.len() {
            return None;
        }
        let mut names = std::iter::once(name).chain(set.members());
        names.find_map(|name| {
            let kind = sets.get(name)?.opaque()?;
            Some(format!("set {name} of type {kind}"))
        })
    })
}

/// The option, match or target of a rule that is not evaluated, if there is one.
pub fn not_evaluated_word(family: Family, rule: &Rule) -> Option<String> {
    let name = RuleWords::new(family).not_evaluated(rule)?[0];
    if !name.is_empty() {
        return Some(name.to_owned());
    }
    rule.items.iter().find_map(|item| match &item.value {
        Value::Words(words) if matches!(item.kind, Kind::Opaque | Kind::OpaqueTarget) => {
            let what = if item.kind == Kind::Opaque {
                "match"
            } else {
                "target"
            };
            Some(format!("{what} {}", crate::value::show(words.first()?)))
        }
        _ => None,
    })
}

/// The reason of an unknown verdict, in words.
pub fn unknown_text(unknown: Unknown) -> &'static str {
    match unknown {
        Unknown::OpaqueMatch => "a match that Fairpath does not evaluate",
        Unknown::OpaqueTarget => "a target that Fairpath does not evaluate",
        Unknown::Input => "the input interface: give --in-interface",
        Unknown::Output => "the output interface: add --out-interface",
        Unknown::Physical => {
            "the bridge or its ports: give --physdev-in and --physdev-out, or for frames --logical-in and --logical-out"
        }
        Unknown::Connection => {
            "the connection: give --ctstate, and --ctdir, --ctstatus or --ctmark if the rule reads them"
        }
        Unknown::Connections => "the number of connections: give --connections",
        Unknown::SourceType => {
            "the type of the source address: give --src-type (the type on one interface cannot be given)"
        }
        Unknown::DestinationType => {
            "the type of the destination address: give --dst-type (the type on one interface cannot be given)"
        }
        Unknown::PacketType => "the packet type: give --pkt-type",
        Unknown::Owner => {
            "the owner of the socket: give --uid-owner and --gid-owner, or --no-socket"
        }
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
