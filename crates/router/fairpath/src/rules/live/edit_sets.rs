//! Edits of the sets of loaded rules: of the elements that they name, or a whole load.
//!
//! ```text
//!   lines of ipset ─┬─ elements of sets in the images ── SetEdit ──> bytes, lines behind the text
//!                   '─ other sets and commands ──> all sets, and a whole load
//! ```

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use fairpath_bpf::{EditedSet, HOOK_FAMILIES, hook_time};
use fairpath_rules::image::{NotEdited, SetBytes, SetEdit};
use fairpath_rules::sets::{Element, ElementLine, MAX_LINE, Verb};
use fairpath_rules::{LineError, Sets, Value};
use memchr::memmem::find_iter;

use super::journal::entry_of_sets;
use super::loaded::{Loaded, Parts};
use super::record::{Rest, settle};
use super::suitable::Suitable;
use super::{
    PinArgs, Start, install, kept, lock, must_open, must_open_to_edit, refuse_while_waiting,
};

/// Most bytes of the lines of an edit.
const MOST_BYTES: usize = 64 << 20;

/// The text of sets whose timeouts begin now.
///
/// # Errors
/// The clock of this process is not that of the kernel.
pub fn text_of(mut sets: Sets) -> anyhow::Result<String> {
    if sets.iter().any(|(_, set)| set.has_timeouts()) {
        sets.set_time(hook_time()?);
    }
    let mut out = String::new();
    sets.write_loaded(&mut out)?;
    Ok(out)
}

/// Applies lines of ipset to the loaded sets, all or none. `name` is for messages, empty for a command.
///
/// # Errors
/// No rules are loaded, or a line is refused: nothing changes.
pub fn edit_sets(place: &PinArgs, name: &str, lines: &str) -> anyhow::Result<()> {
    if lines.len() > MOST_BYTES {
        bail!(
            "the lines of sets have more than {MOST_BYTES} bytes: divide them, nothing was changed"
        );
    }
    // Readers of the text have this limit.
    let is_long = |line: &str| line.len() >= MAX_LINE;
    if let Some(at) = lines.lines().position(is_long) {
        let text = format!("the line has {MAX_LINE} bytes or more: split it");
        return Err(refused(name, at, LineError::new(0, text)));
    }
    let _lock = lock()?;
    settle(Rest::Empty)?;
    refuse_elsewhere(place, lines)?;
    if edit_elements(place, name, lines)? {
        return Ok(());
    }
    let (pins, rules) = must_open(place)?;
    refuse_while_waiting(&rules)?;
    let old = Loaded::read(rules.text()).context("read the loaded rules")?;
    let mut sets = old.members()?.unwrap_or_default();
    // A line may create a set whose elements end.
    let now = hook_time()?;
    sets.set_time(now);
    for (at, line) in lines.lines().enumerate() {
        sets.apply_line(line)
            .map_err(|error| refused(name, at, error))?;
    }
    sets.forget_ended();
    refuse_use(&old, &sets)?;
    // All rules are loaded already, so paths that appeared later are no reason.
    let mut suitable = Suitable::new(&[], old.options().shadow);
    for (file, ruleset) in old.rulesets() {
        suitable.examine(file, &mut ruleset.clone(), Some(&sets));
    }
    suitable.complete_edit()?;
    let new = old.with_sets(&sets)?;
    let built = new.build()?;
    let when = (None, Start::Command);
    let installed = install(&new, built, Some((rules, old)), &pins, when, None)?;
    kept::keep(new.options(), &installed.text);
    Ok(())
}

/// Refuses sets that rules of iptables alone use, and notes those that rules of both sides use.
fn refuse_elsewhere(place: &PinArgs, lines: &str) -> anyhow::Result<()> {
    let rules = must_open_to_edit(place)?;
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    for name in names(lines) {
        let Some(table) = parts.options.elsewhere.table_with_set(name) else {
            continue;
        };
        let shown = fairpath_units::text::line(name);
        if !parts.in_images.iter().flatten().any(|set| set == name) {
            bail!(
                "set {shown} is read by table {table}, which iptables has: change it with ipset, nothing was changed"
            );
        }
        fairpath_cli::note(format!(
            "set {shown} is read by table {table}, too, which iptables has: change it also with ipset"
        ));
    }
    Ok(())
}

/// Refuses sets that lack one that a rule reads.
fn refuse_use(loaded: &Loaded, sets: &Sets) -> anyhow::Result<()> {
    for (_, ruleset) in loaded.rulesets() {
        for table in &ruleset.tables {
            for (_, chain) in table.chains() {
                let items = chain.rules.iter().flat_map(|rule| rule.items.iter());
                let names = items.filter_map(|item| match &item.value {
                    Value::Set(wanted) => std::str::from_utf8(&wanted.name).ok(),
                    _ => None,
                });
                if let Some(name) = names.into_iter().find(|name| sets.get(name).is_none()) {
                    bail!(
                        "set {} is in use by a rule of {} {}: delete the rule first, nothing was changed",
                        fairpath_units::text::line(name),
                        table.name,
                        fairpath_units::text::line(&chain.name())
                    );
                }
            }
        }
    }
    Ok(())
}

/// The error of a line.
fn refused(name: &str, line: usize, error: LineError) -> anyhow::Error {
    let text = fairpath_units::text::line(&error.text);
    match name {
        "" => anyhow::anyhow!("{text}; nothing was changed"),
        _ => anyhow::anyhow!("{name}:{}: {text}; nothing was changed", line + 1),
    }
}

/// Names of the sets in lines, each once.
fn names(lines: &str) -> Vec<&str> {
    let mut names: Vec<&str> = lines
        .lines()
        .filter_map(|line| {
            let words = line.split_ascii_whitespace();
            words.filter(|word| !word.starts_with('-')).nth(1)
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The sets that lines name, without their elements: those of which a line of the text creates one.
fn named(lines: &str, text: &[u8]) -> anyhow::Result<Sets> {
    let mut created = Vec::new();
    for name in names(lines) {
        let begin = format!("create {name} ");
        let is_line = |at: &usize| *at == 0 || text[at - 1] == b'\n';
        if let Some(at) = find_iter(text, &begin).find(is_line) {
            let line = text[at..].split_inclusive(|byte| *byte == b'\n').next();
            created.extend_from_slice(line.unwrap_or_default());
        }
    }
    let mut sets = Sets::read_loaded("loaded sets", &created[..], 0)?;
    sets.set_time(time_of(&sets)?);
    Ok(sets)
}

/// The time at which elements of sets end; any time if none do.
fn time_of(sets: &Sets) -> anyhow::Result<u64> {
    let ends = sets.iter().any(|(_, set)| set.has_timeouts());
    match hook_time() {
        Err(_) if !ends => Ok(0),
        time => Ok(time?),
    }
}

/// The sets of the images while they are edited.
struct Edited<'m> {
    images: [Option<&'m [u8]>; HOOK_FAMILIES],
    in_images: &'m [Vec<String>; HOOK_FAMILIES],
    now: u64,
    /// By name; of each family that has it.
    sets: BTreeMap<String, Vec<(usize, u32, SetEdit<'m>)>>,
}

impl<'m> Edited<'m> {
    /// The set in the images. Empty: no image has it, or it is a list.
    fn open(&mut self, name: &str) -> &mut Vec<(usize, u32, SetEdit<'m>)> {
        if !self.sets.contains_key(name) {
            let mut found = Vec::new();
            for family in 0..HOOK_FAMILIES {
                let numbers = &self.in_images[family];
                let number = numbers.iter().position(|other| other == name);
                let edit = number.zip(self.images[family]).and_then(|(number, image)| {
                    let number = number as u32;
                    Some((family, number, SetEdit::new(image, number, self.now)?))
                });
                found.extend(edit);
            }
            self.sets.insert(name.to_owned(), found);
        }
        self.sets.get_mut(name).expect("it was just inserted")
    }

    /// Applies a line. False: the set is in no image.
    fn apply(&mut self, line: &ElementLine) -> Result<bool, LineError> {
        let opened = self.open(line.set());
        for (_, _, set) in opened.iter_mut() {
            for element in line.elements() {
                let done = match line.verb {
                    Verb::Add => set.add(&element, line.exist, line.most()),
                    Verb::Del => set.del(&element, line.exist),
                    Verb::Test => Ok(()),
                };
                done.map_err(|why| match why {
                    NotEdited::Exists => line.exists(&element),
                    NotEdited::Missing => line.missing(&element),
                    NotEdited::Full => line.full(),
                    NotEdited::Collides => LineError::new(
                        0,
                        "elements of the set collide under each of four random seeds: try again",
                    ),
                })?;
            }
        }
        Ok(!opened.is_empty())
    }

    fn finish(self) -> Vec<EditedSet> {
        let opened = self.sets.into_values().flatten();
        let finished = opened.map(|(family, set, edit)| {
            let (parts, whole) = match edit.finish() {
                SetBytes::Parts(parts) => (parts, None),
                SetBytes::Whole(bytes) => (Vec::new(), Some(bytes)),
            };
            EditedSet {
                family,
                set,
                parts,
                whole,
            }
        });
        finished.collect()
    }
}

/// Edits elements of sets in the images. False: the lines need a whole load. Only with the lock.
fn edit_elements(place: &PinArgs, name: &str, lines: &str) -> anyhow::Result<bool> {
    let mut rules = must_open_to_edit(place)?;
    refuse_while_waiting(&rules)?;
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    // Each load begins a comparison in the shadow.
    if parts.options.shadow {
        return Ok(false);
    }
    let memories: [_; HOOK_FAMILIES] =
        std::array::from_fn(|family| rules.editable(family).map(|(memory, _)| memory));
    if memories.iter().all(Option::is_none) {
        return Ok(false);
    }
    let sets = named(lines, parts.sets)?;
    let now = sets.time();
    let mut edited = Edited {
        images: memories
            .each_ref()
            .map(|memory| memory.as_ref().map(|memory| memory.image())),
        in_images: &parts.in_images,
        now,
        sets: BTreeMap::new(),
    };
    for (at, line) in lines.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        // A problem is reported by the whole load, which has all sets.
        let Ok(Some(line)) = sets.element_line(line) else {
            return Ok(false);
        };
        if line.verb == Verb::Test {
            return Ok(false);
        }
        let done = edited
            .apply(&line)
            .map_err(|error| refused(name, at, error))?;
        if !done {
            return Ok(false);
        }
    }
    let finished = edited.finish();
    let entry = entry_of_sets(lines, now);
    let kept = kept::Edited::before(&parts, rules.text_here());
    let done = rules.edit_sets(&finished, &entry)?;
    if let Some(kept) = kept.filter(|_| done) {
        kept.keep(&entry, &rules);
    }
    Ok(done)
}

/// Looks for the element of a line `test NAME ENTRY` in the loaded sets. Returns its name, and whether it is
/// there.
///
/// # Errors
/// No rules are loaded, or the line is refused.
pub fn look_for(place: &PinArgs, text: &str) -> anyhow::Result<(String, bool)> {
    let _lock = lock()?;
    let rules = must_open_to_edit(place)?;
    let parts = Parts::of(rules.text_here()).context("read the loaded rules")?;
    let sets = named(text, parts.sets)?;
    if let Ok(Some(line)) = sets.element_line(text) {
        let in_images = parts.in_images.each_ref().map(|names| {
            let mut numbers = names.iter();
            numbers.position(|name| name == line.set())
        });
        for (family, number) in in_images.into_iter().enumerate() {
            let memory = number.and_then(|_| rules.memory(family));
            let edit = number.zip(memory.as_ref()).and_then(|(number, memory)| {
                SetEdit::new(memory.image(), number as u32, sets.time())
            });
            if let Some(edit) = edit {
                return answer(&line, |element, around| edit.find(element, around));
            }
        }
    }
    let loaded = Loaded::read(rules.text_here()).context("read the loaded rules")?;
    let mut sets = loaded.members()?.unwrap_or_default();
    sets.set_time(time_of(&sets)?);
    let refused = |error| refused("", 0, error);
    let Some(line) = sets.element_line(text).map_err(refused)? else {
        return sets.member_line(text).map_err(refused);
    };
    let set = sets.get(line.set()).context("find the set")?;
    answer(&line, |element, around| {
        set.find(element, around, sets.time())
    })
}

/// The name of the first element of a line, and whether it is there.
fn answer(
    line: &ElementLine,
    find: impl Fn(&Element, bool) -> Option<bool>,
) -> anyhow::Result<(String, bool)> {
    let element = line.elements().next().context("name an element")?;
    Ok((line.name(&element), line.is_in(&element, find)))
}

/// The loaded sets and the time.
///
/// # Errors
/// No rules are loaded.
pub fn loaded_sets(place: &PinArgs) -> anyhow::Result<(Sets, u64)> {
    let (_, rules) = must_open(place)?;
    let loaded = Loaded::read(rules.text()).context("read the loaded rules")?;
    let sets = loaded.members()?.unwrap_or_default();
    let now = time_of(&sets)?;
    Ok((sets, now))
}
