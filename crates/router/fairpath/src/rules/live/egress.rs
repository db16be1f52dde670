//! Rules that change packets: table mangle in POSTROUTING runs at tcx egress if it has some.

use fairpath_bpf::{HOOK_FAMILIES, HookRules, Pins};
use fairpath_rules::spec::Kind;
use fairpath_rules::{
    ChainId, Hook, Point, Policy, Rule, Ruleset, Table, Target, change_answer, matches_answer,
    rule_answer,
};

use super::super::check::hooks_of;
use super::frames::Interfaces;
use super::loaded::Loaded;

/// The table whose rules change packets.
const MANGLE: &str = "mangle";

/// Where rules of a table change packets.
pub struct Changes {
    /// By chain: the hooks that reach it.
    hooks: Vec<Vec<Hook>>,
    /// Chains that only POSTROUTING reaches run at tcx egress.
    is_open: bool,
    /// Why they cannot, if some rule changes packets.
    obstacle: Option<String>,
}

impl Changes {
    /// Of a table. In the shadow, nothing is changed.
    pub fn new(table: &Table, shadow: bool) -> Changes {
        let hooks = hooks_of(table);
        Changes {
            is_open: &*table.name == MANGLE && !shadow,
            obstacle: obstacle(table, &hooks),
            hooks,
        }
    }

    /// The hooks that reach a chain.
    pub fn hooks(&self, chain: ChainId) -> &[Hook] {
        &self.hooks[chain.0 as usize]
    }

    /// The reason why a rule is refused because of its matches, its target, or its chain.
    pub fn reason(&self, rule: &Rule, chain: ChainId) -> Option<String> {
        let hooks = self.hooks(chain);
        let at_hooks = || rule_answer(rule, hooks, Point::Netfilter).reason();
        if !self.is_open || !hooks.iter().all(|hook| *hook == Hook::Postrouting) {
            return at_hooks();
        }
        let Some(change) = change_answer(rule) else {
            return at_hooks();
        };
        let matches = matches_answer(rule, hooks, Point::Netfilter);
        let reason = matches.reason().or_else(|| change.reason());
        reason.or_else(|| self.obstacle.clone())
    }
}

/// Rules of a table that POSTROUTING reaches.
fn reached<'t>(
    table: &'t Table,
    hooks: &'t [Vec<Hook>],
) -> impl Iterator<Item = (ChainId, &'t Rule)> {
    let chains = table
        .chains()
        .filter(|(id, _)| hooks[id.0 as usize].contains(&Hook::Postrouting));
    chains.flat_map(|(id, chain)| chain.rules.iter().map(move |rule| (id, rule)))
}

/// The reason why rules cannot run behind POSTROUTING: it would not be the same there.
fn obstacle(table: &Table, hooks: &[Vec<Hook>]) -> Option<String> {
    let drops = |target| matches!(target, Target::Drop | Target::Extension(Kind::TargetReject));
    for (_, rule) in reached(table, hooks) {
        if drops(rule.target) {
            return Some(format!(
                "line {} drops packets, which is not possible behind POSTROUTING",
                rule.line
            ));
        }
        if rule
            .matches()
            .any(|group| group.kind == Kind::Conntrack && group.has("--ctstatus"))
        {
            return Some(format!(
                "line {} reads --ctstatus, which is another one behind POSTROUTING",
                rule.line
            ));
        }
    }
    let mut chains = table.chains();
    let drops = chains
        .any(|(_, chain)| chain.hook == Some(Hook::Postrouting) && chain.policy == Policy::Drop);
    drops.then(|| "the policy drops packets, which is not possible behind POSTROUTING".to_owned())
}

/// True if rules of table mangle change packets in POSTROUTING.
pub fn runs(ruleset: &Ruleset) -> bool {
    let tables = ruleset.tables.iter().filter(|table| &*table.name == MANGLE);
    let mut tables = tables.map(|table| (table, hooks_of(table)));
    tables
        .any(|(table, hooks)| reached(table, &hooks).any(|(_, rule)| change_answer(rule).is_some()))
}

/// The interfaces at which rules run: all of this network namespace, or none if no rule changes packets.
///
/// # Errors
/// They cannot be listed.
pub fn interfaces(loaded: &Loaded) -> anyhow::Result<Interfaces> {
    let mut rulesets = (0..HOOK_FAMILIES).filter_map(|family| loaded.ruleset(family));
    match rulesets.any(runs) {
        true => Interfaces::of_namespace(),
        false => Ok(Interfaces::default()),
    }
}

/// Removes the program from interfaces that the rules do not need, and those that were removed.
///
/// # Errors
/// The pins cannot be changed.
pub fn keep(pins: &Pins, loaded: &Loaded) -> anyhow::Result<()> {
    let present = interfaces(loaded)?.indexes();
    Ok(HookRules::keep_egress(pins, &present)?)
}

/// Names of the interfaces without the program. `None`: no rule needs it.
///
/// # Errors
/// Interfaces or pins cannot be read.
pub fn missing(pins: &Pins, loaded: &Loaded) -> anyhow::Result<Option<Vec<String>>> {
    let all = interfaces(loaded)?;
    let all = all.named();
    if all.is_empty() {
        return Ok(None);
    }
    let have = HookRules::egress_interfaces(pins)?;
    let missing = all.iter().filter(|(at, _)| !have.contains(at));
    let mut names: Vec<String> = missing.map(|(_, name)| (*name).to_owned()).collect();
    names.sort_unstable();
    Ok(Some(names))
}
