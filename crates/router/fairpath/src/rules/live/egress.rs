//! Rules that change packets: table mangle in POSTROUTING runs at tcx egress if it has some. A limit of the
//! MSS in FORWARD is kept there, and carried out at tcx egress.

use fairpath_bpf::{HOOK_FAMILIES, HookRules, Pins};
use fairpath_rules::spec::Kind;
use fairpath_rules::{
    ChainId, Family, Group, Hook, Point, Policy, Rule, Ruleset, Table, Target, change_answer,
    matches_answer, rule_answer,
};

use super::super::check::hooks_of;
use super::frames::Interfaces;
use super::loaded::Loaded;
use super::paths::Paths;

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
    /// Why the MTU of the path is not a limit in FORWARD.
    reader: Option<String>,
}

impl Changes {
    /// Of a table of a set. In the shadow, nothing is changed.
    pub fn new(ruleset: &Ruleset, table: &Table, shadow: bool) -> Changes {
        let hooks = hooks_of(table);
        Changes {
            is_open: &*table.name == MANGLE && !shadow,
            obstacle: obstacle(table, &hooks),
            reader: reader(ruleset),
            hooks,
        }
    }

    /// The hooks that reach a chain.
    pub fn hooks(&self, chain: ChainId) -> &[Hook] {
        &self.hooks[chain.0 as usize]
    }

    /// The reason why a rule is refused because of its matches, its target, or its chain.
    pub fn reason(
        &self,
        rule: &Rule,
        chain: ChainId,
        family: Family,
        paths: &Paths,
    ) -> Option<String> {
        let hooks = self.hooks(chain);
        let at_hooks = || {
            let reason = rule_answer(rule, family, hooks, Point::Netfilter).reason();
            reason.or_else(|| reads_types(rule).then(|| paths.local_elsewhere())?)
        };
        let is_behind = hooks.iter().all(|hook| *hook == Hook::Postrouting);
        let is_moved = is_behind || limits_mss(rule) && may_limit(hooks);
        if !self.is_open || !is_moved {
            return at_hooks();
        }
        let Some(change) = change_answer(rule) else {
            return at_hooks();
        };
        let matches = matches_answer(rule, family, hooks, Point::Netfilter);
        let mut reason = matches.reason().or_else(|| change.reason());
        if hooks.contains(&Hook::Postrouting) {
            reason = reason.or_else(|| self.obstacle.clone());
        }
        if hooks.contains(&Hook::Forward) && clamps(rule) {
            reason = reason.or_else(|| self.reader.clone());
        }
        reason.or_else(|| paths.obstacle(family, clamps(rule)))
    }
}

/// True if the rule's target limits the MSS.
pub fn limits_mss(rule: &Rule) -> bool {
    rule.target == Target::Extension(Kind::TargetTcpmss)
}

/// True if a match of the rule reads the type of an address.
fn reads_types(rule: &Rule) -> bool {
    rule.matches().any(|group| group.kind == Kind::Addrtype)
}

/// True if chains of these hooks limit the MSS: a packet has no other change between them.
fn may_limit(hooks: &[Hook]) -> bool {
    let mut hooks = hooks.iter();
    hooks.all(|hook| matches!(hook, Hook::Forward | Hook::Postrouting))
}

/// True if the limit of the rule's TCPMSS is that of the path.
fn clamps(rule: &Rule) -> bool {
    rule.target_options().has("--clamp-mss-to-pmtu")
}

/// Rules of a table that a hook reaches.
fn reached<'t>(
    table: &'t Table,
    hooks: &'t [Vec<Hook>],
    hook: Hook,
) -> impl Iterator<Item = (ChainId, &'t Rule)> {
    let chains = table
        .chains()
        .filter(move |(id, _)| hooks[id.0 as usize].contains(&hook));
    chains.flat_map(|(id, chain)| chain.rules.iter().map(move |rule| (id, rule)))
}

/// The reason why rules cannot run behind POSTROUTING: it would not be the same there.
fn obstacle(table: &Table, hooks: &[Vec<Hook>]) -> Option<String> {
    let drops = |target| matches!(target, Target::Drop | Target::Extension(Kind::TargetReject));
    for (_, rule) in reached(table, hooks, Hook::Postrouting) {
        if drops(rule.target) {
            return Some(format!(
                "line {} drops packets, which is not possible behind POSTROUTING",
                rule.line
            ));
        }
        if let Some(what) = rule.matches().find_map(of_later) {
            return Some(format!(
                "line {} reads {what}, which is another one behind POSTROUTING",
                rule.line
            ));
        }
    }
    let mut chains = table.chains();
    let drops = chains
        .any(|(_, chain)| chain.hook == Some(Hook::Postrouting) && chain.policy == Policy::Drop);
    drops.then(|| "the policy drops packets, which is not possible behind POSTROUTING".to_owned())
}

/// The fact about a connection that table nat, or the end of POSTROUTING, changes.
fn of_later(group: Group) -> Option<&'static str> {
    const SNAT: u64 = 32;
    if group.kind != Kind::Conntrack {
        return None;
    }
    let states = group.number("--ctstate").map_or(0, |(states, _)| states);
    match group.has("--ctstatus") {
        true => Some("--ctstatus"),
        false => (states & SNAT != 0).then_some("--ctstate SNAT"),
    }
}

/// The reason if rules read the MSS in FORWARD or behind it. At the hooks, the MTU of the path is not known,
/// and a packet with an unknown MSS would be dropped.
fn reader(ruleset: &Ruleset) -> Option<String> {
    let mut tables = ruleset.tables.iter();
    tables.find_map(|table| {
        let hooks = hooks_of(table);
        let mut all = [Hook::Forward, Hook::Postrouting]
            .into_iter()
            .flat_map(|hook| reached(table, &hooks, hook));
        let (_, rule) = all.find(|(_, rule)| reads_mss(rule))?;
        Some(format!(
            "line {} reads the MSS, and the MTU of the path is known at tcx egress only: write the limit in POSTROUTING",
            rule.line
        ))
    })
}

/// True if a match of the rule reads the MSS of a SYN.
pub fn reads_mss(rule: &Rule) -> bool {
    let mut kinds = rule.matches().map(|group| group.kind);
    kinds.any(|kind| matches!(kind, Kind::Tcpmss | Kind::U32))
}

/// True if rules of table mangle that a hook reaches are of a kind.
fn has(ruleset: &Ruleset, hook: Hook, is_wanted: impl Fn(&Rule) -> bool) -> bool {
    let mut tables = ruleset.tables.iter().filter(|table| &*table.name == MANGLE);
    tables.any(|table| {
        let hooks = hooks_of(table);
        reached(table, &hooks, hook).any(|(_, rule)| is_wanted(rule))
    })
}

/// True if rules of table mangle change packets in POSTROUTING.
pub fn runs(ruleset: &Ruleset) -> bool {
    has(ruleset, Hook::Postrouting, |rule| {
        change_answer(rule).is_some()
    })
}

/// True if rules of table mangle limit the MSS in FORWARD.
pub fn limits(ruleset: &Ruleset) -> bool {
    has(ruleset, Hook::Forward, limits_mss)
}

/// The interfaces at which rules run: all of this network namespace, or none if no rule changes packets.
///
/// # Errors
/// They cannot be listed.
pub fn interfaces(loaded: &Loaded) -> anyhow::Result<Interfaces> {
    let mut rulesets = (0..HOOK_FAMILIES).filter_map(|family| loaded.ruleset(family));
    match rulesets.any(|ruleset| runs(ruleset) || limits(ruleset)) {
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
