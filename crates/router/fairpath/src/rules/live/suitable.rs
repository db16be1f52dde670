//! Rules that the hooks refuse, and those that act otherwise than with iptables.

use anyhow::bail;
use fairpath_rules::image::RuleWords;
use fairpath_rules::spec::Kind;
use fairpath_rules::{
    Answer, Chain, Point, Ruleset, Sets, Table, Target, not_evaluated_set, rule_answer,
};
use fairpath_units::counted;

use super::super::check::hooks_of;
use super::nat::NAT;

/// Bytes of a packet that the programs read.
const HEAD: usize = fairpath_core::rules::HEAD;
/// Refused rules that are printed.
const PRINTED: usize = 20;

/// The result of the examination of all files.
pub struct Suitable {
    /// Tables that are not loaded.
    skip: Vec<String>,
    refused: Vec<String>,
    all_refused: usize,
    skipped: usize,
    rejects: usize,
    /// A process answers rejected packets. `None`: in the shadow, no packet is rejected.
    answered: Option<bool>,
    logs: usize,
    /// Of these, those that want the user.
    users: usize,
}

impl Suitable {
    pub fn new(skip: &[String]) -> Suitable {
        Suitable {
            skip: skip.to_vec(),
            refused: Vec::new(),
            all_refused: 0,
            skipped: 0,
            rejects: 0,
            answered: None,
            logs: 0,
            users: 0,
        }
    }

    /// Examines a file; tables that are not loaded leave the set.
    pub fn examine(&mut self, file: &str, ruleset: &mut Ruleset, sets: Option<&Sets>) {
        let mut words = RuleWords::new(ruleset.family);
        let all = ruleset.rules();
        let stays = |table: &Table| self.skip.iter().all(|name| **name != *table.name);
        ruleset.tables.retain(stays);
        self.skipped += all - ruleset.rules();
        for table in &ruleset.tables {
            let hooks = hooks_of(table);
            for (id, chain) in table.chains() {
                for rule in &chain.rules {
                    if &*table.name == NAT {
                        let why = "nat stays with iptables (--nat=hand-over gives it to iptables-restore)";
                        self.refuse(file, rule.line, table, chain, why);
                        continue;
                    }
                    match rule.target {
                        Target::Extension(Kind::TargetReject) => self.rejects += 1,
                        Target::Extension(Kind::TargetLog | Kind::TargetNflog) => {
                            self.logs += 1;
                            self.users += usize::from(rule.target_options().has("--log-uid"));
                        }
                        _ => {}
                    }
                    let name = words.not_evaluated(rule).map(|names| names[0].to_owned());
                    let answer = rule_answer(rule, &hooks[id.0 as usize], Point::Netfilter);
                    if let Some(name) = name.or_else(|| not_evaluated_set(rule, sets)) {
                        let name = match &name[..] {
                            "" => "an unknown match or target",
                            name => name,
                        };
                        let why = format!("{name} is not evaluated");
                        self.refuse(file, rule.line, table, chain, &why);
                    } else if let Some(byte) = read_behind(rule) {
                        let why = format!("u32 reads byte {byte}, the hooks have the first {HEAD}");
                        self.refuse(file, rule.line, table, chain, &why);
                    } else if let Some(why) = unusable_set(rule, sets) {
                        self.refuse(file, rule.line, table, chain, &why);
                    } else if answer != Answer::Exact {
                        let why = answer.reason().unwrap_or_default();
                        self.refuse(file, rule.line, table, chain, &why);
                    }
                }
            }
        }
    }

    /// True if a rule rejects packets.
    pub fn rejects(&self) -> bool {
        self.rejects > 0
    }

    pub fn set_answered(&mut self, answered: bool) {
        self.answered = Some(answered);
    }

    pub fn is_answered(&self) -> bool {
        self.answered == Some(true)
    }

    fn refuse(&mut self, file: &str, line: u32, table: &Table, chain: &Chain, why: &str) {
        self.all_refused += 1;
        if self.refused.len() < PRINTED {
            let (table, chain) = (&table.name, chain.name());
            self.refused
                .push(format!("{file}:{line}: {table} {chain}: {why}"));
        }
    }

    /// # Errors
    /// Refused rules.
    pub fn complete(&self) -> anyhow::Result<()> {
        if self.all_refused == 0 {
            return Ok(());
        }
        let rules = counted(self.all_refused, "rule is", "rules are");
        let rest = self.all_refused - self.refused.len();
        let more = match rest {
            0 => String::new(),
            _ => format!("\n  and {rest} more"),
        };
        bail!(
            "{rules} refused, nothing was changed (--skip-table leaves a table to iptables):\n  {}{more}",
            self.refused.join("\n  ")
        );
    }

    /// Rules that act otherwise than with iptables, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(answered) = self.answered {
            let rules = counted(self.rejects, "rule rejects", "rules reject");
            out.push(match answered {
                true => format!("{rules}: a process answers their packets"),
                false => format!(
                    "{rules}: their packets are dropped without an answer until `fairpath rules answer` runs"
                ),
            });
        }
        if self.logs > 0 {
            let rules = counted(self.logs, "rule logs", "rules log");
            out.push(format!(
                "{rules}: `fairpath rules log` prints their packets"
            ));
        }
        if self.users > 0 {
            let rules = counted(self.users, "rule", "rules");
            out.push(format!("{rules} with --log-uid: the lines have no user"));
        }
        if self.skipped > 0 {
            let rules = counted(self.skipped, "rule", "rules");
            let tables = self.skip.join(", ");
            out.push(format!("{rules} of {tables} left to iptables"));
        }
        out
    }
}

/// The last byte of a word that u32 reads at a fixed offset behind those that the hooks have.
fn read_behind(rule: &fairpath_rules::Rule) -> Option<usize> {
    let programs = rule.items.iter().filter_map(|item| match &item.value {
        fairpath_rules::Value::U32(program) => Some(program),
        _ => None,
    });
    let mut ends = programs
        .flat_map(|program| &program.tests)
        .map(|test| test.offset as usize + 3);
    ends.find(|end| *end >= HEAD)
}

/// The reason if a set of the rule, or a member of its list, is not there.
fn unusable_set(rule: &fairpath_rules::Rule, sets: Option<&Sets>) -> Option<String> {
    let matches = rule.items.iter().filter(|item| item.kind == Kind::Set);
    let mut names = matches.filter_map(|item| match &item.value {
        fairpath_rules::Value::Set(set) => std::str::from_utf8(&set.name).ok(),
        _ => None,
    });
    names.find_map(|name| {
        let Some((sets, set)) = sets.and_then(|sets| Some((sets, sets.get(name)?))) else {
            return Some(format!("set {name} is in none of the ipset files"));
        };
        let mut all = std::iter::once(name).chain(set.members());
        all.find_map(|name| match sets.get(name) {
            None => Some(format!("set {name} is in none of the ipset files")),
            Some(_) => None,
        })
    })
}
