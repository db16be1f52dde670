//! `load --early-drop`: interfaces whose drivers drop what table raw drops in PREROUTING.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use fairpath_bpf::{HookRules, Pins};
use fairpath_rules::{ChainId, Hook, Point, Ruleset, Target, answer, has_effect};
use fairpath_units::IfIndex;
use nix::net::if_::{if_indextoname, if_nametoindex};

use super::super::check::hooks_of;

/// Interfaces of the command line by their indexes.
///
/// # Errors
/// One is not there, or is `lo`.
pub fn cards(names: &[String]) -> anyhow::Result<Vec<(IfIndex, &str)>> {
    let mut seen = BTreeSet::new();
    let new = names.iter().filter(|name| seen.insert(&name[..]));
    let index = |name: &String| {
        let shown = fairpath_units::text::line(name);
        if name == "lo" {
            bail!("--early-drop lo: lo has no driver: name the interfaces of the network");
        }
        let found = if_nametoindex(&name[..]);
        found.with_context(|| {
            format!("--early-drop {shown}: no such interface in this network namespace")
        })
    };
    let cards = new.map(|name| Ok((IfIndex(index(name)?), &name[..])));
    cards.collect()
}

/// Those that are there. At the start of the machine, cards may come later.
pub fn present(names: &[String]) -> Vec<(IfIndex, &str)> {
    let index = |name: &str| if_nametoindex(name).ok().map(IfIndex);
    let names: BTreeSet<&str> = names.iter().map(|name| &name[..]).collect();
    let names = names.into_iter();
    names
        .filter_map(|name| Some((index(name)?, name)))
        .collect()
}

/// # Errors
/// A rule that table raw has in PREROUTING reads a fact that drivers do not have.
pub fn check(file: &str, ruleset: &Ruleset) -> anyhow::Result<()> {
    let raw = ruleset.tables.iter().filter(|table| &*table.name == "raw");
    for table in raw {
        let hooks = hooks_of(table);
        let reached = |(id, _): &(ChainId, _)| hooks[id.0 as usize].contains(&Hook::Prerouting);
        for (_, chain) in table.chains().filter(reached) {
            for rule in &chain.rules {
                let target = match rule.target {
                    Target::Extension(kind) => Some(kind),
                    _ => None,
                };
                let kinds = rule.matches().map(|group| group.kind).chain(target);
                let mut reasons = kinds
                    .filter(|kind| !has_effect(*kind))
                    .filter_map(|kind| answer(kind, Point::Xdp).reason());
                if let Some(reason) = reasons.next() {
                    bail!(
                        "--early-drop: {file}:{}: raw {}: {reason}; nothing was changed",
                        rule.line,
                        chain.name()
                    );
                }
            }
        }
    }
    Ok(())
}

/// Names of the interfaces that have the program.
///
/// # Errors
/// The pins cannot be read.
pub fn names(pins: &Pins) -> anyhow::Result<Vec<String>> {
    let cards = HookRules::early_cards(pins)?;
    let names = cards
        .iter()
        .filter_map(|card| if_indextoname(card.0).ok()?.into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Ends early drop at interfaces that the loaded rules do not name.
///
/// # Errors
/// The pins cannot be changed.
pub fn keep(pins: &Pins, names: &[String]) -> anyhow::Result<()> {
    let present = names
        .iter()
        .filter_map(|name| if_nametoindex(&name[..]).ok());
    let present: Vec<IfIndex> = present.map(IfIndex).collect();
    Ok(HookRules::keep_early(pins, &present)?)
}
