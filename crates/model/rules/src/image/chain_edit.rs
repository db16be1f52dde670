//! Edits of chains of a loaded image, without the rest of its set.
//!
//! ```text
//!   lines of an edit ── touched ──> names of chains ── caller: their lines ──> before, after
//!   before, after, blobs of the image ── edit_chains ──> new blobs, state of new rules
//! ```
//!
//! It costs what the chains cost. An edit that needs more than its chains is left to a whole build: of
//! policies, new and deleted chains, new jumps, which can lead back, and rules with sets or tables.

use std::collections::{BTreeSet, HashSet};

use fairpath_core::rules::{Counter, UNIT};

use super::encoded::Reads;
use super::live::{Change, Ids, kept, number, records, slot_places};
use super::rule::Encoder;
use super::shared::{blob, needs_of_tests, needs_of_words};
use super::{BuildError, ChainEnd, Lookups, write_chain};
use crate::spec::Kind;
use crate::tree::{Chain, ChainId, Family, Rule, Table, Target};

/// Numbers that no rule has: the first of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Free {
    /// Of counters.
    pub ids: u32,
    /// Of slots.
    pub slots: u32,
}

/// Chains of an image after an edit.
#[derive(Debug, Default)]
pub struct ChainEdit {
    /// Their numbers and blobs, in order.
    pub chains: Vec<(u32, Vec<u8>)>,
    /// Counters of new rules.
    pub counters: Vec<(u32, Counter)>,
    /// Slots of new rules, with their first values.
    pub slots: Vec<(u32, u64)>,
    /// Facts that rules of the chains read ([`fairpath_core::rules::needs`]).
    pub needs: u32,
    /// Numbers that are free after it.
    pub free: Free,
}

/// The table and the chains that lines of `iptables-restore --noflush` change, and the words after `-j`
/// and `-g`. `None`: something else changes as well, or the lines are not plain.
pub fn touched(text: &[u8]) -> Option<(&str, BTreeSet<&str>, HashSet<&str>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (mut table, mut chains, mut targets) = (None, BTreeSet::new(), HashSet::new());
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            continue;
        }
        if let Some(name) = line.strip_prefix('*') {
            if table.replace(name).is_some() {
                return None;
            }
            continue;
        }
        let mut words = line.split(' ');
        if let Some(name) = line.strip_prefix(':') {
            // A chain without a policy is emptied.
            let (name, rest) = name.split_once(' ')?;
            chains.insert(Some(name).filter(|name| is_plain(name) && rest.starts_with('-'))?);
            continue;
        }
        let is_edit = matches!(words.next(), Some("-A" | "-I" | "-D" | "-R" | "-F"));
        let chain = words.next().filter(|name| is_plain(name));
        chains.insert(chain.filter(|_| is_edit)?);
        let mut after_target = false;
        for word in words {
            if matches!(
                word,
                "-c" | "--set-counters" | "-4" | "-6" | "-t" | "--table"
            ) {
                return None;
            }
            if after_target {
                targets.insert(word);
            }
            after_target = matches!(word, "-j" | "-g" | "--jump" | "--goto");
        }
    }
    Some((table?, chains, targets))
}

/// A name that is written without quotes.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

fn target(rule: &Rule) -> Option<ChainId> {
    match rule.target {
        Target::Jump(to) | Target::Goto(to) => Some(to),
        _ => None,
    }
}

/// Rules of a chain that were not there before.
fn new_rules<'r>(chain: &'r Chain, kept: &[Option<usize>]) -> impl Iterator<Item = &'r Rule> {
    let rules = chain.rules.iter().zip(kept);
    rules
        .filter(|(_, from)| from.is_none())
        .map(|(rule, _)| rule)
}

/// Blobs of the chains that differ. Both tables have the same chains, with these `numbers` in the image;
/// only those with rules can differ. `None`: the edit needs a whole build. O(bytes of the chains).
///
/// # Errors
///
/// [`BuildError`]: a rule is too large.
pub fn edit_chains(
    family: Family,
    (before, after): (&Table, &Table),
    numbers: &[u32],
    image: &[u8],
    free: Free,
    lookups: Lookups,
) -> Result<Option<ChainEdit>, BuildError> {
    if before.bound() != after.bound() {
        return Ok(None);
    }
    let mut edit = ChainEdit::default();
    let mut reads = Reads::default();
    let mut encoder = Encoder::new(family, None);
    encoder.chains = numbers.to_vec();
    let mut ids = Ids::from(free.ids);
    let mut change = Change::default();
    for (id, chain) in after.chains() {
        let Some(old) = before
            .try_get(id)
            .filter(|old| old.name == chain.name && old.policy == chain.policy)
        else {
            return Ok(None);
        };
        let kept = kept(&old.rules, &chain.rules);
        // Chains without rules here may have some in the image.
        if kept.iter().copied().eq((0..old.rules.len()).map(Some)) {
            continue;
        }
        let targets: HashSet<ChainId> = old.rules.iter().filter_map(target).collect();
        for rule in new_rules(chain, &kept) {
            let shares = |kind| matches!(kind, Kind::Set | Kind::Recent | Kind::Hashlimit);
            let is_new_jump = target(rule).is_some_and(|to| !targets.contains(&to));
            if is_new_jump || rule.items.iter().any(|item| shares(item.kind)) {
                return Ok(None);
            }
        }
        let number_of_chain = numbers[id.0 as usize];
        let old_blob = &image[blob(image, number_of_chain)];
        if records(old_blob).count() != old.rules.len() {
            return Ok(None);
        }
        let first = ids.next;
        let pair = (Some(old), Some(chain));
        let Some(mut rules) = change.chain(pair, old_blob, &mut encoder, &mut ids)? else {
            continue;
        };
        // The encoder numbers slots from 0.
        for record in &rules.records {
            let place =
                record.start as usize..record.start as usize + usize::from(record.units) * UNIT;
            let bytes = &mut rules.bytes[place];
            edit.needs |= needs_of_tests(bytes);
            if number(bytes, 12) < first {
                continue;
            }
            let places: Vec<usize> = slot_places(bytes).collect();
            for at in places {
                let slot = number(bytes, at) + free.slots;
                bytes[at..at + 4].copy_from_slice(&slot.to_le_bytes());
            }
        }
        rules.reads(&mut reads);
        let policy = number(old_blob, 4);
        let end = ChainEnd::of(chain, family, number_of_chain, policy);
        let mut out = Vec::new();
        write_chain(&rules, family, end, lookups, &mut out);
        edit.chains.push((number_of_chain, out));
    }
    edit.chains.sort_unstable_by_key(|(number, _)| *number);
    edit.needs |= needs_of_words(&reads);
    edit.counters = (free.ids..ids.next)
        .map(|id| (id, Counter::default()))
        .collect();
    let slots = change.slots.iter();
    edit.slots = slots
        .map(|(slot, value)| (slot + free.slots, *value))
        .collect();
    edit.free = Free {
        ids: ids.next,
        slots: free.slots + encoder.states.len() as u32,
    };
    Ok(Some(edit))
}
