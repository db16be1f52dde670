//! Rules that the hooks refuse, and those that act otherwise than with iptables.

use std::collections::HashSet;

use anyhow::bail;
use fairpath_rules::image::{RuleWords, identity};
use fairpath_rules::spec::Kind;
use fairpath_rules::{
    Chain, Ruleset, Sets, Table, Target, frame_answer, frame_chain_reason, not_evaluated_set,
    rule_string,
};
use fairpath_units::{counted, text};
use serde::Serialize;
use serde_json::json;

use super::egress::Changes;
use super::given::{Given, NAT, Name};
use super::paths::Paths;
use super::shared_state::{Elsewhere, matched_sets};

/// Bytes of a packet that the programs read.
const HEAD: usize = fairpath_core::rules::HEAD;
/// Refused rules that are printed, of all tables.
const PRINTED: usize = 20;
/// Refused rules that are printed of a table that is deferred.
const PRINTED_DEFERRED: usize = 5;

/// A refused rule.
#[derive(Serialize)]
struct Refusal {
    file: String,
    line: u32,
    chain: String,
    reason: String,
    /// Its text, if its line is an identity.
    #[serde(skip)]
    rule: Option<String>,
}

/// A table of a file.
struct Examined {
    name: Name,
    refused: usize,
    /// The first of them, by line.
    refusals: Vec<Refusal>,
    /// Refused rules that are loaded already, by identity, with the reasons.
    loaded: HashSet<(u32, String)>,
    /// iptables gets it.
    deferred: bool,
    rejects: usize,
    logs: usize,
    /// Of these, those that want the user.
    users: usize,
}

impl Examined {
    fn refuse(&mut self, file: &str, line: u32, table: &Table, chain: &Chain, reason: String) {
        self.refused += 1;
        let is_loaded = identity(line).is_some();
        if is_loaded {
            self.loaded.insert((line, reason.clone()));
        }
        let at = self.refusals.partition_point(|other| other.line <= line);
        if at == PRINTED {
            return;
        }
        let mut rules = chain.rules.iter().filter(|_| is_loaded);
        let rule = rules.find(|rule| rule.line == line);
        let refusal = Refusal {
            file: file.to_owned(),
            line,
            chain: chain.name().into_owned(),
            reason,
            rule: rule.map(|rule| rule_string(self.name.family, table, chain, rule)),
        };
        self.refusals.insert(at, refusal);
        self.refusals.truncate(PRINTED);
    }

    /// Permits loaded rules that were refused for the same reasons before an edit.
    fn permit(&mut self, before: &Examined) {
        self.refused -= self.loaded.intersection(&before.loaded).count();
        self.refusals.retain(|refusal| {
            let pair = (refusal.line, refusal.reason.clone());
            !before.loaded.contains(&pair)
        });
    }

    /// The first refused rules, a line each.
    fn lines(&self, most: usize) -> impl Iterator<Item = String> {
        let table = &self.name.table;
        self.refusals.iter().take(most).map(move |refusal| {
            let Refusal {
                file,
                line,
                chain,
                reason,
                rule,
            } = refusal;
            match rule {
                Some(rule) => format!("  {table} {}: {reason}", text::line(rule)),
                None => format!("  {file}:{line}: {table} {chain}: {reason}"),
            }
        })
    }
}

/// The result of the examination of all files.
pub struct Suitable {
    /// Tables that are not loaded.
    skip: Vec<String>,
    shadow: bool,
    tables: Vec<Examined>,
    skipped: usize,
    /// A process answers rejected packets. `None`: in the shadow, no packet is rejected.
    answered: Option<bool>,
    /// Sentences about sets of tables of iptables.
    sets: Vec<String>,
    /// State of tables of iptables.
    elsewhere: Elsewhere,
    paths: Paths,
}

impl Suitable {
    /// `skip`: tables that are not loaded. `shadow`: the rules decide nothing.
    pub fn new(skip: &[String], shadow: bool) -> Suitable {
        Suitable {
            skip: skip.to_vec(),
            shadow,
            tables: Vec::new(),
            skipped: 0,
            answered: None,
            sets: Vec::new(),
            elsewhere: Elsewhere::default(),
            paths: Paths::default(),
        }
    }

    /// Examines rules for the paths of this network namespace, too.
    pub fn on(self, paths: Paths) -> Suitable {
        Suitable { paths, ..self }
    }

    /// Examines a file; tables that are not loaded leave the set.
    pub fn examine(&mut self, file: &str, ruleset: &mut Ruleset, sets: Option<&Sets>) {
        let mut words = RuleWords::new(ruleset.family);
        let all = ruleset.rules();
        let family = ruleset.family;
        ruleset.tables.retain(|table| {
            let stays = self.skip.iter().all(|name| **name != *table.name);
            if !stays {
                self.elsewhere.add(family, table, sets);
            }
            stays
        });
        self.skipped += all - ruleset.rules();
        for table in &ruleset.tables {
            let changes = Changes::new(ruleset, table, self.shadow);
            let mut examined = Examined {
                name: Name::new(ruleset.family, &table.name),
                refused: 0,
                refusals: Vec::new(),
                loaded: HashSet::new(),
                deferred: false,
                rejects: 0,
                logs: 0,
                users: 0,
            };
            for (id, chain) in table.chains() {
                if let Some(why) = frame_chain_reason(family, &table.name, chain) {
                    examined.refuse(file, chain.line, table, chain, why.to_owned());
                }
                for rule in &chain.rules {
                    if &*table.name == NAT && family.is_ip() {
                        let why = "nat stays with iptables (--nat=hand-over gives it to iptables-restore)";
                        examined.refuse(file, rule.line, table, chain, why.to_owned());
                        continue;
                    }
                    match rule.target {
                        Target::Extension(Kind::TargetReject) => examined.rejects += 1,
                        Target::Extension(Kind::TargetLog | Kind::TargetNflog) => {
                            examined.logs += 1;
                            let has_user = rule.target_options().has("--log-uid");
                            examined.users += usize::from(has_user);
                        }
                        _ => {}
                    }
                    let name = words.not_evaluated(rule).map(|names| names[0].to_owned());
                    let name = name.or_else(|| not_evaluated_set(rule, sets));
                    let answer = || match family {
                        family if family.is_ip() => changes.reason(rule, id, family, &self.paths),
                        _ => frame_answer(family, &table.name, rule, changes.hooks(id)).reason(),
                    };
                    let why = match name.as_deref() {
                        Some("") => Some(not_known(rule)),
                        Some(name) => Some(format!("{name} is not evaluated")),
                        None => read_behind(rule)
                            .map(|byte| {
                                format!("u32 reads byte {byte}, the hooks have the first {HEAD}")
                            })
                            .or_else(|| unusable_set(rule, sets))
                            .or_else(answer),
                    };
                    if let Some(why) = why {
                        examined.refuse(file, rule.line, table, chain, why);
                    }
                }
            }
            self.tables.push(examined);
        }
    }

    /// Examines what tables of iptables mean for those at the hooks. With `defer`, tables with refused
    /// rules go to iptables.
    pub fn share(
        &mut self,
        rulesets: &mut [(String, Ruleset)],
        given: &mut Given,
        sets: Option<&Sets>,
        defer: bool,
    ) {
        // Each table that goes can have state that rules of others use.
        loop {
            if defer {
                self.defer(rulesets, given);
            }
            for (family, table) in given.tables() {
                self.elsewhere.add(family, table, sets);
            }
            if self.is_refused() {
                break;
            }
            let elsewhere = self.elsewhere.clone();
            for (file, ruleset) in rulesets.iter() {
                self.refuse_shared(file, ruleset, sets, &elsewhere);
            }
            if !defer || !self.is_refused() {
                break;
            }
        }
        self.note_sets(given, sets);
    }

    /// Gives tables with refused rules to iptables.
    fn defer(&mut self, rulesets: &mut [(String, Ruleset)], given: &mut Given) {
        for examined in &mut self.tables {
            let Name { family, table } = &examined.name;
            if examined.deferred || examined.refused == 0 || table == NAT || !family.is_ip() {
                continue;
            }
            let of_family = rulesets
                .iter_mut()
                .filter(|(_, ruleset)| ruleset.family == *family);
            for (file, ruleset) in of_family {
                given.take(file, ruleset, table);
            }
            examined.deferred = true;
        }
    }

    /// Refuses rules that use state of tables of iptables.
    pub fn refuse_shared(
        &mut self,
        file: &str,
        ruleset: &Ruleset,
        sets: Option<&Sets>,
        elsewhere: &Elsewhere,
    ) {
        let (family, elsewhere) = (ruleset.family, elsewhere.by_state());
        for table in &ruleset.tables {
            let name = Name::new(family, &table.name);
            let found = self.tables.iter_mut().find(|other| other.name == name);
            let Some(examined) = found else { continue };
            for (_, chain) in table.chains() {
                for rule in &chain.rules {
                    if let Some(why) = elsewhere.reason(rule, family, sets) {
                        examined.refuse(file, rule.line, table, chain, why);
                    }
                }
            }
        }
    }

    /// Permits what the examination of the rules before an edit refuses, too: the rules are loaded already.
    pub fn permit(&mut self, before: &Suitable) {
        for examined in &mut self.tables {
            let mut tables = before.tables.iter();
            if let Some(before) = tables.find(|other| other.name == examined.name) {
                examined.permit(before);
            }
        }
    }

    pub fn is_refused(&self) -> bool {
        self.loaded().any(|table| table.refused > 0)
    }

    /// Notes sets that iptables looks up in the kernel, though a file has them.
    fn note_sets(&mut self, given: &Given, sets: Option<&Sets>) {
        for (family, table) in given.tables() {
            let known = |name: &String| sets.is_some_and(|sets| sets.get(name).is_some());
            let names: Vec<String> = matched_sets(table).into_iter().filter(known).collect();
            if !names.is_empty() {
                let (name, sets) = (Name::new(family, &table.name).text(), names.join(", "));
                let text =
                    format!("{name} reads sets of the kernel, not those of the file: {sets}");
                self.sets.push(text);
            }
        }
    }

    /// State of tables of iptables.
    pub fn elsewhere(&self) -> &Elsewhere {
        &self.elsewhere
    }

    /// Tables that iptables gets.
    pub fn deferred(&self) -> Vec<Name> {
        let deferred = self.tables.iter().filter(|table| table.deferred);
        deferred.map(|table| table.name.clone()).collect()
    }

    /// These tables with the first rules that are the reason, a line each.
    pub fn causes(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for table in self.tables.iter().filter(|table| table.deferred) {
            let rules = counted(table.refused, "rule is", "rules are");
            let name = table.name.text();
            lines.push(format!(
                "{name} is left to iptables, because {rules} refused:"
            ));
            lines.extend(table.lines(PRINTED_DEFERRED));
            match table.refused.saturating_sub(PRINTED_DEFERRED) {
                0 => {}
                rest => lines.push(format!("  and {rest} more")),
            }
        }
        lines
    }

    /// The same as JSON.
    pub fn causes_as_json(&self) -> serde_json::Value {
        let deferred = self.tables.iter().filter(|table| table.deferred);
        let objects = deferred.map(|table| {
            json!({"family": table.name.family.to_string(), "table": table.name.table,
                "refused": table.refused, "first": table.refusals})
        });
        objects.collect()
    }

    /// Examined tables that are loaded.
    fn loaded(&self) -> impl Iterator<Item = &Examined> {
        self.tables.iter().filter(|table| !table.deferred)
    }

    /// True if a rule rejects packets.
    pub fn rejects(&self) -> bool {
        self.loaded().any(|table| table.rejects > 0)
    }

    pub fn set_answered(&mut self, answered: bool) {
        self.answered = Some(answered);
    }

    pub fn is_answered(&self) -> bool {
        self.answered == Some(true)
    }

    /// # Errors
    /// Refused rules.
    pub fn complete(&self) -> anyhow::Result<()> {
        let mut refused = self.loaded().filter(|table| table.refused > 0);
        // No table of arptables or ebtables is given to another tool.
        let is_ip = refused.all(|table| table.name.family.is_ip());
        self.refuse(is_ip.then_some("`load --defer` leaves"))
    }

    /// The same of an edit, which gives no table to iptables.
    ///
    /// # Errors
    /// Refused rules.
    pub fn complete_edit(&self) -> anyhow::Result<()> {
        self.refuse(None)
    }

    /// # Errors
    /// Refused rules, with a remedy.
    fn refuse(&self, leaves: Option<&str>) -> anyhow::Result<()> {
        let all = self.refused();
        if all == 0 {
            return Ok(());
        }
        let rules = counted(all, "rule is", "rules are");
        let tables = if all == 1 {
            "its table"
        } else {
            "their tables"
        };
        let hint = leaves.map(|leaves| format!(" ({leaves} {tables} to iptables)"));
        bail!(
            "{rules} refused, nothing was changed{}:\n{}",
            hint.unwrap_or_default(),
            self.refused_lines(PRINTED).join("\n")
        );
    }

    fn refused(&self) -> usize {
        self.loaded().map(|table| table.refused).sum()
    }

    /// The first refused rules, a line each.
    fn refused_lines(&self, most: usize) -> Vec<String> {
        let lines = self.loaded().flat_map(|table| table.lines(most));
        let mut lines: Vec<String> = lines.take(most).collect();
        if self.refused() > lines.len() {
            lines.push(format!("  and {} more", self.refused() - lines.len()));
        }
        lines
    }

    /// The refused rules as a warning, if they are loaded all the same.
    pub fn warning(&self) -> Vec<String> {
        if !self.is_refused() {
            return Vec::new();
        }
        let rules = counted(self.refused(), "rule acts", "rules act");
        let mut lines = vec![format!("{rules} otherwise than with iptables now:")];
        lines.extend(self.refused_lines(PRINTED_DEFERRED));
        lines
    }

    /// Rules that act otherwise than with iptables, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let sum = |count: fn(&Examined) -> usize| self.loaded().map(count).sum::<usize>();
        let mut out = self.sets.clone();
        if let Some(answered) = self.answered {
            let rules = counted(sum(|table| table.rejects), "rule rejects", "rules reject");
            out.push(match answered {
                true => format!("{rules}: a process answers their packets"),
                false => format!(
                    "{rules}: their packets are dropped without an answer until `fairpath rules answer` runs"
                ),
            });
        }
        let logs = sum(|table| table.logs);
        if logs > 0 {
            let rules = counted(logs, "rule logs", "rules log");
            out.push(format!(
                "{rules}: `fairpath rules log` prints their packets"
            ));
        }
        let users = sum(|table| table.users);
        if users > 0 {
            let rules = counted(users, "rule", "rules");
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

/// A sentence about the match or target of a rule that Fairpath does not know.
fn not_known(rule: &fairpath_rules::Rule) -> String {
    let mut names = rule
        .items
        .iter()
        .filter_map(|item| match (item.kind, &item.value) {
            (Kind::Opaque, fairpath_rules::Value::Words(words)) => Some(("match", words.first()?)),
            (Kind::OpaqueTarget, fairpath_rules::Value::Words(words)) => {
                Some(("target", words.first()?))
            }
            _ => None,
        });
    match names.next() {
        Some((what, name)) => {
            let name = String::from_utf8_lossy(name);
            format!("{what} {} is not evaluated", text::line(&name))
        }
        None => "an unknown match or target is not evaluated".to_owned(),
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
