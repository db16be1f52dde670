//! Edits of a few chains of the loaded rules, without reading the others.

use anyhow::Context;
use fairpath_bpf::RulesEdit;
use fairpath_rules::image::{Free, edit_chains, touched};
use fairpath_rules::spec::Kind;
use fairpath_rules::{Family, Ruleset, Table, depends_on_hooks};

use super::journal::{entry, some_chains};
use super::loaded::Parts;
use super::suitable::Suitable;
use super::{PinArgs, egress, kept, must_open_to_edit, refuse_while_waiting};

/// Tables of which a packet meets one base chain at most. So no packet can meet an edited chain at one hook
/// and the one before it at another.
const TABLES: [&str; 3] = ["raw", "filter", "security"];

/// Edits loaded rules of a family. `None`: the edit needs a whole load. Returns the number of rules before
/// and after. Only with the lock.
///
/// # Errors
/// No rules are loaded, or a rule is refused: nothing changes.
pub fn edit(
    place: &PinArgs,
    family: Family,
    text: &[u8],
    edit: &impl Fn(Ruleset) -> anyhow::Result<Ruleset>,
) -> anyhow::Result<Option<(usize, usize)>> {
    let mut rules = must_open_to_edit(place)?;
    refuse_while_waiting(&rules)?;
    let Some((table, chains, targets)) = touched(text) else {
        return Ok(None);
    };
    let number = family as usize;
    let Some((memory, numbers)) = rules.editable(number) else {
        return Ok(None);
    };
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    let Some(of_family) = parts.families[number] else {
        return Ok(None);
    };
    let is_early = table == "raw" && !parts.options.early.is_empty();
    // Each load begins a comparison in the shadow. Answers for frames depend on the hooks.
    if !TABLES.contains(&table)
        || !family.is_ip()
        || parts.options.leaves(family, table)
        || is_early
        || parts.options.shadow
    {
        return Ok(None);
    }
    let found = some_chains(family, of_family, parts.journal, table, &chains, &targets);
    let found = match found {
        // A comment may have any bytes, which a whole load reads.
        Err(error) if error.is::<std::str::Utf8Error>() => return Ok(None),
        found => found.context("read the loaded rules")?,
    };
    let Some(found) = found.filter(|found| !needs_rest(&found.ruleset.tables[0], family)) else {
        return Ok(None);
    };
    // A problem is reported by the whole load, which has all chains.
    let Ok(mut changed) = edit(found.ruleset.clone()) else {
        return Ok(None);
    };
    let [before] = &found.ruleset.tables[..] else {
        return Ok(None);
    };
    let is_one = |ruleset: &Ruleset| ruleset.tables.len() == 1;
    if !is_one(&changed) || needs_rest(&changed.tables[0], family) || reads_mss(&changed.tables[0])
    {
        return Ok(None);
    }
    let mut suitable = Suitable::new(&[], false);
    suitable.examine("edit", &mut changed, None);
    // The whole load reports it.
    if suitable.is_refused() {
        return Ok(None);
    }
    let after = &changed.tables[0];
    let free = Free {
        ids: numbers.free[0],
        slots: numbers.free[1],
    };
    let made = edit_chains(
        family,
        (before, after),
        &found.numbers,
        memory.image(),
        free,
        parts.lookups,
    )?;
    let Some(made) = made.filter(|made| made.needs & !numbers.needs == 0) else {
        return Ok(None);
    };
    let count = numbers.rules as usize;
    let now = (count + after.rules()).saturating_sub(before.rules());
    if made.chains.is_empty() {
        return Ok(Some((count, now)));
    }
    let lines = entry(family, after, &chains);
    let kept = kept::Edited::before(&parts, rules.text_here());
    let done = rules.edit(&RulesEdit {
        family: number,
        chains: &made.chains,
        counters: &made.counters,
        slots: &made.slots,
        free: [made.free.ids, made.free.slots],
        rules: now as u64,
        lines: &lines,
    })?;
    if let Some(kept) = kept.filter(|_| done) {
        kept.keep(&lines, &rules);
    }
    Ok(done.then_some((count, now)))
}

/// True if a rule reads the MSS: whether rules of table mangle limit it is known to a whole load.
fn reads_mss(table: &Table) -> bool {
    let mut chains = table.chains();
    chains.any(|(_, chain)| chain.rules.iter().any(egress::reads_mss))
}

/// True if the answer for a rule depends on a set, or on the hooks that reach its chain: a whole load knows them.
fn needs_rest(table: &Table, family: Family) -> bool {
    let mut chains = table.chains();
    chains.any(|(_, chain)| {
        let mut items = chain.rules.iter().flat_map(|rule| rule.items.iter());
        items.any(|item| {
            matches!(item.kind, Kind::Set | Kind::TargetSet) || depends_on_hooks(item.kind, family)
        })
    })
}
