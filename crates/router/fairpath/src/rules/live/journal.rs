//! Edits of loaded rules that their text has behind its parts, and chains of that text without the rest.
//!
//! An entry of chains is a line of JSON, then the chains as they are after the edit, as commands of iptables.
//! The last entry of a chain counts. An entry of sets is a line with its bytes and time, then lines of
//! ipset.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::Context;
use fairpath_rules::image::kept;
use fairpath_rules::{Family, Names, Rule, Ruleset, Table, WithCounters, read, restore, rule_line};
use memchr::memchr;
use memchr::memmem::find;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Heading {
    /// Its number.
    family: usize,
    table: String,
    chains: Vec<String>,
    /// Bytes of the commands.
    bytes: usize,
}

/// An entry with these chains of a table.
pub fn entry(family: Family, table: &Table, chains: &BTreeSet<&str>) -> Vec<u8> {
    let mut commands = format!("*{}\n", table.name).into_bytes();
    let found = chains.iter().filter_map(|name| table.find(name.as_bytes()));
    for chain in found.map(|id| table.get(id)) {
        commands.extend_from_slice(b"-F ");
        commands.extend_from_slice(&chain.name);
        commands.push(b'\n');
        for rule in &chain.rules {
            rule_line(
                family,
                table,
                chain,
                rule,
                WithCounters::Never,
                &mut commands,
            );
            commands.push(b'\n');
        }
    }
    commands.extend_from_slice(b"COMMIT\n");
    let heading = Heading {
        family: family as usize,
        table: table.name.to_string(),
        chains: chains.iter().map(|name| (*name).to_owned()).collect(),
        bytes: commands.len(),
    };
    let mut out = serde_json::to_vec(&heading).expect("plain fields become JSON");
    out.push(b'\n');
    out.extend(commands);
    out
}

const SETS: &str = "sets";

/// An entry with lines of ipset, which are applied at a time in nanoseconds.
pub fn entry_of_sets(lines: &str, now: u64) -> Vec<u8> {
    format!("{SETS} {} {now}\n{lines}", lines.len()).into_bytes()
}

enum Entry<'j> {
    Chains(Heading, &'j [u8]),
    Sets(SetEdits<'j>),
}

/// Lines of ipset, and their time.
pub struct SetEdits<'j> {
    pub now: u64,
    pub lines: &'j [u8],
}

/// The entries of a journal.
fn entries(mut rest: &[u8]) -> impl Iterator<Item = anyhow::Result<Entry<'_>>> {
    std::iter::from_fn(move || {
        let found = (!rest.is_empty()).then(|| next_entry(rest))?;
        rest = found.as_ref().map_or(&[][..], |(_, behind)| behind);
        Some(found.map(|(entry, _)| entry))
    })
}

fn next_entry(rest: &[u8]) -> anyhow::Result<(Entry<'_>, &[u8])> {
    let end = memchr(b'\n', rest).context("an edit of the rules has no heading")?;
    let take = |bytes: usize| {
        let parts = rest[end + 1..].split_at_checked(bytes);
        parts.context("an edit of the rules is cut")
    };
    let line = &rest[..end];
    let of_sets = line.strip_prefix(SETS.as_bytes());
    if let Some(numbers) = of_sets {
        let numbers = std::str::from_utf8(numbers)?.trim_start().split_once(' ');
        let (bytes, now) = numbers.context("an edit of sets has no time")?;
        let (lines, behind) = take(bytes.parse()?)?;
        let now = now.parse()?;
        return Ok((Entry::Sets(SetEdits { now, lines }), behind));
    }
    let heading: Heading = serde_json::from_slice(line)?;
    let (commands, behind) = take(heading.bytes)?;
    Ok((Entry::Chains(heading, commands), behind))
}

/// The entries of chains.
fn of_chains(journal: &[u8]) -> anyhow::Result<Vec<(Heading, &[u8])>> {
    let chains = entries(journal).filter_map(|entry| match entry {
        Ok(Entry::Chains(heading, commands)) => Some(Ok((heading, commands))),
        Ok(Entry::Sets(_)) => None,
        Err(error) => Some(Err(error)),
    });
    chains.collect()
}

/// The entries of sets.
///
/// # Errors
/// The journal is corrupt.
pub fn of_sets(journal: &[u8]) -> anyhow::Result<Vec<SetEdits<'_>>> {
    let sets = entries(journal).filter_map(|entry| match entry {
        Ok(Entry::Sets(edits)) => Some(Ok(edits)),
        Ok(Entry::Chains(..)) => None,
        Err(error) => Some(Err(error)),
    });
    sets.collect()
}

/// Applies the entries of a family. True if there are some.
///
/// # Errors
/// The journal is corrupt.
pub fn replay(journal: &[u8], ruleset: &mut Ruleset) -> anyhow::Result<bool> {
    let mut is_changed = false;
    for (heading, commands) in of_chains(journal)? {
        if heading.family != ruleset.family as usize {
            continue;
        }
        is_changed = true;
        let old = rules_of_chains(ruleset, &heading);
        let before = std::mem::replace(ruleset, Ruleset::new(ruleset.family));
        let reading = restore(before, &mut { commands }, "edit", &Names::default(), true);
        *ruleset = reading.context("read memory")?.complete()?;
        // Rules that stay keep their lines, others are in no file.
        for (name, (old, new)) in heading
            .chains
            .iter()
            .zip(old.iter().zip(rules_of_chains(ruleset, &heading)))
        {
            let lines = kept(old, &new)
                .into_iter()
                .map(|from| from.map_or(0, |from| old[from].line));
            if let Some(table) = ruleset.table_mut(&heading.table)
                && let Some(id) = table.find(name.as_bytes())
            {
                let rules = table.get_mut(id).rules.iter_mut();
                rules.zip(lines).for_each(|(rule, line)| rule.line = line);
            }
        }
    }
    Ok(is_changed)
}

/// Copies of the rules of the chains that an entry names.
fn rules_of_chains(ruleset: &Ruleset, heading: &Heading) -> Vec<Vec<Rule>> {
    let table = ruleset.table(&heading.table);
    let rules = |name: &String| {
        let table = table?;
        Some(table.get(table.find(name.as_bytes())?).rules.clone())
    };
    heading
        .chains
        .iter()
        .map(|name| rules(name).unwrap_or_default())
        .collect()
}

/// Some chains of a loaded table with their rules, and those that they jump to.
pub struct SomeChains {
    /// One table.
    pub ruleset: Ruleset,
    /// The numbers in the image by the chains' ids.
    pub numbers: Vec<u32>,
}

/// Finds chains in the text of a family without reading the rest. `None`: one is not there. O(bytes), as
/// fast as they are searched.
///
/// # Errors
/// The text is corrupt.
pub fn some_chains(
    family: Family,
    text: &[u8],
    journal: &[u8],
    table: &str,
    chains: &BTreeSet<&str>,
    targets: &HashSet<&str>,
) -> anyhow::Result<Option<SomeChains>> {
    let Some((place, before)) = find_table(text, table) else {
        return Ok(None);
    };
    let section = &text[place];
    let mut lines: HashMap<&str, Vec<&str>> = HashMap::new();
    for chain in chains {
        lines.insert(chain, rules_of(section, chain)?);
    }
    for (heading, commands) in of_chains(journal)? {
        if heading.family != family as usize || heading.table != table {
            continue;
        }
        for chain in chains
            .iter()
            .filter(|chain| heading.chains.iter().any(|name| name == **chain))
        {
            lines.insert(chain, rules_of(commands, chain)?);
        }
    }
    let mut wanted: HashSet<&str> = chains
        .union(&targets.iter().copied().collect())
        .copied()
        .collect();
    for line in lines.values().flatten() {
        let mut words = line.split(' ');
        while let Some(word) = words.next() {
            if matches!(word, "-j" | "-g") {
                wanted.extend(words.next());
            }
        }
    }
    let mut mini = format!("*{table}\n");
    let mut numbers = HashMap::new();
    for (at, line) in chain_lines(section).enumerate() {
        let line = std::str::from_utf8(line)?;
        let (name, rest) = line[1..].split_once(' ').context("a chain has no policy")?;
        if wanted.contains(name) || !rest.starts_with('-') {
            let _ = writeln!(mini, "{line}");
            numbers.insert(name, before + at as u32);
        }
    }
    if chains.iter().any(|chain| !numbers.contains_key(chain)) {
        return Ok(None);
    }
    for line in chains.iter().filter_map(|chain| lines.get(chain)).flatten() {
        let _ = writeln!(mini, "{line}");
    }
    mini += "COMMIT\n";
    let reading = read(
        &mut mini.as_bytes(),
        "loaded rules",
        family,
        &Names::default(),
    );
    let ruleset = reading.context("read memory")?.complete()?;
    let found = &ruleset.tables[0];
    let mut by_id = vec![u32::MAX; found.bound() as usize];
    for (id, chain) in found.chains() {
        let number = std::str::from_utf8(&chain.name)
            .ok()
            .and_then(|name| numbers.get(name));
        by_id[id.0 as usize] = *number.context("a chain of the text is not declared")?;
    }
    Ok(Some(SomeChains {
        ruleset,
        numbers: by_id,
    }))
}

/// The place of a table's lines, and the number of chains in tables before it.
fn find_table(text: &[u8], table: &str) -> Option<(Range<usize>, u32)> {
    let (mut at, mut before) = (0, 0);
    let heading = format!("*{table}\n");
    loop {
        let rest = text.get(at..)?;
        let end = at + find(rest, b"\nCOMMIT\n")? + 1;
        if rest.starts_with(heading.as_bytes()) {
            return Some((at + heading.len()..end, before));
        }
        let behind = at + memchr(b'\n', rest)? + 1;
        before += chain_lines(&text[behind..end]).count() as u32;
        at = end + b"COMMIT\n".len();
    }
}

/// The lines of chains with which a section begins.
fn chain_lines(section: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = section;
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest).filter(|_| rest.starts_with(b":"))?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line)
    })
}

/// The lines of a chain's rules, which are in one part.
fn rules_of<'t>(section: &'t [u8], chain: &str) -> anyhow::Result<Vec<&'t str>> {
    let begin = format!("\n-A {chain}");
    let mut at = 0;
    let mut out = Vec::new();
    // A longer name may begin so.
    while let Some(found) = section
        .get(at..)
        .and_then(|rest| find(rest, begin.as_bytes()))
    {
        at += found + 1;
        if matches!(section.get(at + begin.len() - 1), Some(b' ' | b'\n')) {
            break;
        }
    }
    while let Some(rest) = section
        .get(at..)
        .filter(|rest| rest.starts_with(&begin.as_bytes()[1..]))
    {
        let end = memchr(b'\n', rest).context("a line of the rules has no end")?;
        if !matches!(rest[begin.len() - 1], b' ' | b'\n') {
            break;
        }
        out.push(std::str::from_utf8(&rest[..end])?);
        at += end + 1;
    }
    Ok(out)
}
