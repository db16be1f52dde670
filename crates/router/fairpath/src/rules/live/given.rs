//! Tables that iptables keeps: its tools get them together with a load of rules.
//!
//! ```text
//!   record ── new tables to iptables-restore ── switch of the rules ── old tables emptied ── record removed
//! ```
//!
//! These are table nat, and with `--defer` each table that has rules which the hooks do not evaluate. A
//! table of the load before that the new rules evaluate is emptied after the switch. So at every moment
//! one side has its rules, and both sides have them for the time of the change. `record.rs` has the record.

use std::time::Duration;

use fairpath_backend::without_signals;
use fairpath_backend::xtables::{Restore, ToolError, restore, running, save};
use fairpath_rules::{Family, Names, Ruleset, WithCounters, read, tables_of, to_bytes};
use fairpath_units::counted;
use serde::{Deserialize, Serialize};

use super::PinArgs;
use super::loaded::Source;
use super::record::{Record, Saved};

/// The table that the hooks cannot evaluate at all.
pub const NAT: &str = "nat";

/// The destination of table nat of the files.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NatArg {
    /// iptables-restore and ip6tables-restore get it, in the same transaction
    HandOver,
    /// It stays as it runs
    Skip,
    /// Rules of nat are refused
    Refuse,
}

/// A table of a family.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(from = "(bool, String)", into = "(bool, String)")]
pub struct Name {
    pub family: Family,
    pub table: String,
}

/// As records and loaded rules have it: true for IPv4.
impl From<(bool, String)> for Name {
    fn from((is_ipv4, table): (bool, String)) -> Name {
        let family = family(is_ipv4);
        Name { family, table }
    }
}

impl From<Name> for (bool, String) {
    fn from(name: Name) -> (bool, String) {
        (name.family == Family::Ipv4, name.table)
    }
}

impl Name {
    pub fn new(family: Family, table: &str) -> Name {
        Name {
            family,
            table: table.to_owned(),
        }
    }

    /// `mangle (IPv4)`
    pub fn text(&self) -> String {
        format!("{} ({})", self.table, self.family)
    }

    /// The running table.
    pub fn save(&self) -> Result<Vec<u8>, ToolError> {
        save(self.family.tool(), &self.table)
    }

    /// A table without rules that accepts everything. The tools do not touch policies that a text omits.
    pub fn empty(&self) -> Vec<u8> {
        let mut text = format!("*{}\n", self.table);
        let known = tables_of(self.family).iter();
        let hooks = known.filter(|(name, _)| *name == self.table);
        for hook in hooks.flat_map(|(_, hooks)| *hooks) {
            text += &format!(":{} ACCEPT [0:0]\n", hook.chain());
        }
        text += "COMMIT\n";
        text.into_bytes()
    }
}

fn family(is_ipv4: bool) -> Family {
    match is_ipv4 {
        true => Family::Ipv4,
        false => Family::Ipv6,
    }
}

/// Names in one text.
pub fn list(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(Name::text).collect();
    names.join(", ")
}

/// A table of a file.
pub struct Table {
    file: String,
    name: Name,
    /// This table alone.
    ruleset: Ruleset,
    with_counters: bool,
}

impl Table {
    fn text(&self) -> Vec<u8> {
        to_bytes(&self.ruleset, WithCounters::AsRead)
    }

    pub fn give(&self, how: Restore) -> anyhow::Result<()> {
        let Name { family, table } = &self.name;
        let text = self.text();
        restore(family.tool(), table, &text, self.with_counters, how)
            .map_err(|error| self.refusal(&error))
    }

    /// The error with the line of the file, and the rule.
    fn refusal(&self, error: &ToolError) -> anyhow::Error {
        let text = self.text();
        let line = error.line.and_then(|line| line.checked_sub(1));
        let rule = line.and_then(|at| text.split(|byte| *byte == b'\n').nth(at));
        let chains = self
            .ruleset
            .tables
            .iter()
            .flat_map(|table| table.sorted().into_iter().map(|(_, chain)| chain));
        let before = 1 + chains.clone().count();
        let mut rules = chains.flat_map(|chain| &chain.rules);
        let place = line
            .and_then(|at| rules.nth(at.checked_sub(before)?))
            .map_or(String::new(), |rule| format!(":{}", rule.line));
        let rule = match (&place[..], rule) {
            ("", _) | (_, None) => String::new(),
            (_, Some(rule)) => format!(" (\"{}\")", String::from_utf8_lossy(rule)),
        };
        // Rules that iptables has look into the sets of the kernel.
        let sets = match error.text.starts_with("Set ") || error.text.contains(": Set ") {
            true => ": `ipset restore` creates those of a file in the kernel",
            false => "",
        };
        anyhow::anyhow!(
            "{}{place}: table {} is refused: {}{rule}{sets}",
            self.file,
            self.name.table,
            error.text
        )
    }
}

/// Tables of all files for iptables.
#[derive(Default)]
pub struct Given {
    tables: Vec<Table>,
}

/// The result for a table.
#[derive(Serialize)]
pub struct Outcome {
    family: String,
    table: String,
    rules: usize,
    /// False: it ran already.
    changed: bool,
    /// Rules that ran in it before.
    replaced: usize,
    /// True: the new rules evaluate it now, so iptables has it no more, or until the confirmation.
    taken_back: bool,
}

impl Outcome {
    fn new(name: &Name, rules: usize) -> Outcome {
        Outcome {
            family: name.family.to_string(),
            table: name.table.clone(),
            rules,
            changed: false,
            replaced: 0,
            taken_back: false,
        }
    }

    /// One sentence. `waits`: until a confirmation.
    pub fn line(&self, waits: bool) -> String {
        let rules = counted(self.rules, "rule", "rules");
        let Outcome { family, table, .. } = self;
        let tool = match &family[..] {
            "IPv4" => "iptables-restore",
            _ => "ip6tables-restore",
        };
        let replaced = match self.replaced {
            0 => String::new(),
            _ => format!(", in place of {}", self.replaced),
        };
        match (self.taken_back, self.changed) {
            (true, _) if waits => {
                format!("{table} runs with iptables, too, until the confirmation ({family})")
            }
            (true, _) => format!("{table} taken back from iptables ({family})"),
            (_, true) => format!("{rules} of {table} given to {tool}{replaced}"),
            (_, false) => {
                format!("{table} with {rules} ran already, and was not touched ({family})")
            }
        }
    }
}

impl Given {
    /// The tables with their families.
    pub fn tables(&self) -> impl Iterator<Item = (Family, &fairpath_rules::Table)> {
        let rulesets = self.tables.iter().map(|table| &table.ruleset);
        rulesets.flat_map(|ruleset| ruleset.tables.iter().map(|table| (ruleset.family, table)))
    }

    /// The tables for the text of the loaded rules.
    pub fn sources(&self) -> Vec<Source> {
        let tables = self.tables.iter();
        let sources = tables.map(|table| Source::given(&table.file, &table.ruleset));
        sources.collect()
    }

    /// Tables of the text of loaded rules.
    ///
    /// # Errors
    /// It is corrupt.
    pub fn of(sources: &[Source]) -> anyhow::Result<Given> {
        let mut given = Given::default();
        for source in sources {
            let mut ruleset = source.read()?;
            let names: Vec<String> = ruleset
                .tables
                .iter()
                .map(|table| table.name.to_string())
                .collect();
            for name in names {
                given.take(source.name(), &mut ruleset, &name);
            }
        }
        Ok(given)
    }

    /// Takes a table out of the rules of a file.
    pub fn take(&mut self, file: &str, ruleset: &mut Ruleset, name: &str) {
        let is_it = |table: &fairpath_rules::Table| &*table.name == name;
        let Some(at) = ruleset.tables.iter().position(is_it) else {
            return;
        };
        let table = ruleset.tables.remove(at);
        let with_counters = table
            .chains()
            .flat_map(|(_, chain)| &chain.rules)
            .any(|rule| rule.counters.is_some());
        let name = Name::new(ruleset.family, name);
        let mut ruleset = Ruleset::new(ruleset.family);
        ruleset.tables.push(table);
        self.tables.push(Table {
            file: file.to_owned(),
            name,
            ruleset,
            with_counters,
        });
    }

    /// Lets the tools read the tables.
    ///
    /// # Errors
    /// The message of a tool.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut tables = self.tables.iter();
        let checked = tables.try_for_each(|table| table.give(Restore::Test));
        checked.map_err(|error| unchanged(&error))
    }

    /// Gives the tables to the tools, switches the rules, then empties tables that iptables had and the new
    /// rules have (`back`): all or nothing. Only with the lock, after [`settle`].
    ///
    /// # Errors
    /// A tool or the switch failed: the tables are as before. If only emptying failed, the new rules run.
    pub fn hand_over<T>(
        &self,
        load: u64,
        place: &PinArgs,
        confirm: Option<Duration>,
        back: &[Name],
        switch: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Vec<Outcome>)> {
        let mut outcomes = Vec::new();
        let mut changed = Vec::new();
        let mut record = Record::new(load, place)?;
        for table in &self.tables {
            let name = &table.name;
            let mut outcome = Outcome::new(name, table.ruleset.rules());
            let running = name.save().map_err(|error| unchanged(&error.into()))?;
            let before = plain(name.family, &running);
            let wanted = to_bytes(&table.ruleset, WithCounters::Never);
            if before.as_ref() != Some(&wanted) {
                outcome.changed = true;
                outcome.replaced = rules_of(&running);
                changed.push(table);
                record.before.push(Saved {
                    name: name.clone(),
                    text: running,
                });
            }
            outcomes.push(outcome);
        }
        for name in back {
            let running = name.save().map_err(|error| unchanged(&error.into()))?;
            if !name.is_empty(&running) {
                outcomes.push(Outcome {
                    taken_back: true,
                    ..Outcome::new(name, rules_of(&running))
                });
                record.back.push(name.clone());
            }
        }
        if record.before.is_empty() && record.back.is_empty() {
            return Ok((switch()?, outcomes));
        }
        // Ctrl-C comes after it, and leaves all or nothing, too.
        without_signals(|| record.transact(&changed, confirm, switch))?
            .map(|switched| (switched, outcomes))
    }
}

pub fn unchanged(error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}; nothing was changed")
}

/// Rules of a saved table.
fn rules_of(text: &[u8]) -> usize {
    let lines = text.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| match line.strip_prefix(b"[") {
        // Counters are before a rule.
        Some(rest) => rest.splitn(2, |byte| *byte == b' ').last().unwrap_or(rest),
        None => line,
    });
    lines.filter(|line| line.starts_with(b"-A")).count()
}

/// A table of a family, without counters and in canonical form. `None`: it cannot be read.
pub fn plain(family: Family, text: &[u8]) -> Option<Vec<u8>> {
    let reading = read(&mut &text[..], "table", family, &Names::default()).ok()?;
    Some(to_bytes(&reading.complete().ok()?, WithCounters::Never))
}

impl Name {
    /// True if the text of the running table has no rules and chains, and accepts everything.
    fn is_empty(&self, running: &[u8]) -> bool {
        running.is_empty() || plain(self.family, running) == plain(self.family, &self.empty())
    }
}

/// Rules of tables with iptables. `None`: the tool is missing.
pub fn running_rules(names: &[Name]) -> Vec<Option<usize>> {
    let mut by_family = [None, None];
    let mut rules = Vec::new();
    for Name { family, table } in names {
        let tables = by_family[*family as usize].get_or_insert_with(|| running(family.tool()));
        rules.push(tables.as_ref().map(|tables| {
            let same = tables.iter().filter(|(name, _)| name == table);
            same.map(|(_, rules)| *rules).sum()
        }));
    }
    rules
}

/// Table nat of both families.
pub fn nat() -> [Name; 2] {
    [Family::Ipv4, Family::Ipv6].map(|family| Name::new(family, NAT))
}

/// Tables nat that have rules, and tables that a load left to iptables, with a line for each.
pub fn describe(deferred: &[Name]) -> Vec<(Name, String)> {
    let names = [&nat()[..], deferred].concat();
    let counts = running_rules(&names);
    let lines = names.into_iter().zip(counts).filter_map(|(name, rules)| {
        let Name { family, table } = &name;
        let line = match rules {
            None | Some(0) if table == NAT => return None,
            None => format!("{table}: with iptables, whose tools are missing ({family})"),
            Some(rules) => {
                let rules = counted(rules, "rule", "rules");
                format!("{table}: {rules} with iptables ({family})")
            }
        };
        Some((name, line))
    });
    lines.collect()
}

impl Name {
    /// The commands that end a running table. Policies first: rules may be what lets an operator in.
    pub fn removal(&self) -> String {
        let (tool, table) = (self.family.tool(), &self.table);
        let running = self.save().unwrap_or_default();
        let running = String::from_utf8_lossy(&running);
        let chains = running.lines().filter_map(|line| {
            let (chain, rest) = line.strip_prefix(':')?.split_once(' ')?;
            rest.starts_with("DROP").then_some(chain)
        });
        let mut commands: Vec<String> = chains
            .map(|chain| format!("{tool} -t {table} -P {chain} ACCEPT"))
            .collect();
        commands.extend(["-F", "-X"].map(|verb| format!("{tool} -t {table} {verb}")));
        commands.join(" && ")
    }
}
