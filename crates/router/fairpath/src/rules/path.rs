//! Lines of a packet's path through chains, by the steps of the reference.

use std::fmt::Write as _;

use fairpath_rules::{
    ChainId, Rule, RuleAt, RuleResult, Ruleset, Sets, Step, Target, Unknown, item_text,
    not_evaluated_set, not_evaluated_word, rule_string, unknown_text,
};
use serde_json::{Value, json};

/// A line of a path.
pub struct PathLine {
    pub table: String,
    pub chain: String,
    pub line: u32,
    pub depth: usize,
    pub text: String,
}

/// The lines of a path. The rule that depends on something unknown ends it, if one is given.
pub fn lines(
    ruleset: &Ruleset,
    sets: Option<&Sets>,
    steps: &[Step],
    end: Option<(RuleAt, Unknown)>,
) -> Vec<PathLine> {
    let mut writer = PathWriter {
        ruleset,
        sets,
        lines: Vec::new(),
        depth: 0,
        failed: None,
    };
    for step in steps {
        match (step, end) {
            (Step::Rule { at, .. }, Some((end, reason))) if *at == end => {
                writer.rule(end, RuleResult::Unknown(reason));
                break;
            }
            _ => writer.step(step),
        }
    }
    writer.flush();
    writer.lines
}

/// Lines as text, of the file with this name.
pub fn to_text(name: &str, lines: &[PathLine], out: &mut String) {
    for line in lines {
        let indent = "  ".repeat(line.depth + 1);
        let place = match line.line {
            0 => String::new(),
            _ => format!(" {name}:{}", line.line),
        };
        let _ = writeln!(
            out,
            "{indent}{} {}{place}: {}",
            line.table, line.chain, line.text
        );
    }
}

/// The same as JSON.
pub fn to_json(lines: &[PathLine]) -> Vec<Value> {
    let line = |line: &PathLine| {
        json!({"table": line.table, "chain": line.chain, "line": line.line, "depth": line.depth,
            "text": line.text})
    };
    lines.iter().map(line).collect()
}

/// A rule with its place.
pub fn rule_text(name: &str, ruleset: &Ruleset, at: RuleAt) -> String {
    let table = &ruleset.tables[at.table];
    let chain = table.get(at.chain);
    let rule = &chain.rules[at.rule];
    let text = rule_string(ruleset.family, table, chain, rule);
    match rule.line {
        0 => text,
        line => format!("{name}:{line}: {text}"),
    }
}

/// A policy.
pub fn policy_text(ruleset: &Ruleset, table: usize, chain: ChainId) -> String {
    let table = &ruleset.tables[table];
    format!("the policy of {} {}", table.name, table.get(chain).name())
}

/// Makes lines of a path: rules that fail at their first condition are counted together.
struct PathWriter<'a> {
    ruleset: &'a Ruleset,
    sets: Option<&'a Sets>,
    lines: Vec<PathLine>,
    depth: usize,
    /// The first and the last of rules that failed, and their number.
    failed: Option<(RuleAt, RuleAt, usize)>,
}

impl PathWriter<'_> {
    fn line(&mut self, table: usize, chain: ChainId, line: u32, text: String) {
        let table = &self.ruleset.tables[table];
        self.lines.push(PathLine {
            table: table.name.to_string(),
            chain: table.get(chain).name().into_owned(),
            line,
            depth: self.depth,
            text,
        });
    }

    fn line_of(&self, at: RuleAt) -> u32 {
        self.ruleset.tables[at.table].get(at.chain).rules[at.rule].line
    }

    fn flush(&mut self) {
        if let Some((first, last, count)) = self.failed.take() {
            let text = match count {
                1 => "the rule does not match".to_owned(),
                _ => format!(
                    "{count} rules up to line {} do not match",
                    self.line_of(last)
                ),
            };
            self.line(first.table, first.chain, self.line_of(first), text);
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Rule { at, result } => self.rule(at, result),
            Step::Policy { table, chain } => {
                self.flush();
                let policy = self.ruleset.tables[table].get(chain);
                if policy.hook.is_some() {
                    self.depth = 0;
                }
                let (line, text) = (policy.line, format!("policy {}", policy.policy.name()));
                self.line(table, chain, line, text);
            }
            Step::Return { .. } => {
                self.flush();
                self.depth = self.depth.saturating_sub(1);
            }
            Step::Skipped { .. } => self.flush(),
        }
    }

    fn rule(&mut self, at: RuleAt, result: RuleResult) {
        let table = &self.ruleset.tables[at.table];
        let chain = table.get(at.chain);
        let rule = &chain.rules[at.rule];
        if chain.hook.is_some() && at.rule == 0 {
            self.flush();
            self.depth = 0;
        }
        match result {
            RuleResult::Failed { item: 0 } => {
                self.failed = match self.failed {
                    Some((first, _, count)) => Some((first, at, count + 1)),
                    None => Some((at, at, 1)),
                };
            }
            RuleResult::Failed { item } => {
                self.flush();
                let failed = rule
                    .items
                    .get(item)
                    .map_or_else(String::new, |failed| item_text(self.ruleset.family, failed));
                let text = rule_string(self.ruleset.family, table, chain, rule);
                self.line(
                    at.table,
                    at.chain,
                    rule.line,
                    format!("fails at {failed}: {text}"),
                );
            }
            RuleResult::Matched => {
                self.flush();
                let text = rule_string(self.ruleset.family, table, chain, rule);
                self.line(at.table, at.chain, rule.line, text);
                if matches!(rule.target, Target::Jump(_)) {
                    self.depth += 1;
                }
            }
            RuleResult::HotDrop => {
                self.flush();
                let text = rule_string(self.ruleset.family, table, chain, rule);
                self.line(
                    at.table,
                    at.chain,
                    rule.line,
                    format!("drops a broken header: {text}"),
                );
            }
            RuleResult::Unknown(reason) => {
                self.flush();
                let text = rule_string(self.ruleset.family, table, chain, rule);
                let why = why(self.ruleset, self.sets, rule, reason);
                self.line(
                    at.table,
                    at.chain,
                    rule.line,
                    format!("depends on {why}: {text}"),
                );
            }
        }
    }
}

/// The reason of an unknown answer of a rule.
pub fn why(ruleset: &Ruleset, sets: Option<&Sets>, rule: &Rule, reason: Unknown) -> String {
    let part = match reason {
        Unknown::SetType => not_evaluated_set(rule, sets),
        Unknown::OpaqueMatch
        | Unknown::OpaqueTarget
        | Unknown::Connection
        | Unknown::ReversePath => not_evaluated_word(ruleset.family, rule),
        _ => None,
    };
    match part {
        Some(part) => format!("{part}, which is not evaluated"),
        None => unknown_text(reason).to_owned(),
    }
}
