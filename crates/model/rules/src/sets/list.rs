//! Members of a list of sets, in the order of the list.

use super::header::Header;
use super::line::{Word, Words, unknown};
use super::options::{Options, Printed, Reader, Times};
use crate::LineError;
use std::fmt;

/// A set in a list.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub name: String,
    pub options: Options,
}

/// A place next to another member.
#[derive(Debug)]
struct Neighbour {
    before: bool,
    name: String,
}

/// The options of `add` and `del` for a list.
pub(super) struct Entry {
    options: Options,
    neighbour: Option<Neighbour>,
}

impl Entry {
    /// Reads `before NAME`, `after NAME`, and, for `add`, the options of a member.
    pub fn read(words: &mut Words, header: &Header, add: bool) -> Result<Entry, LineError> {
        let mut reader = Reader::default();
        let mut neighbour = None;
        while let Some(word) = words.next()? {
            match word.text() {
                "before" | "after" if neighbour.is_none() => {
                    let name = words.value(&word)?.text().to_owned();
                    let before = word.text() == "before";
                    neighbour = Some(Neighbour { before, name });
                }
                "before" | "after" => {
                    return Err(word.error("a second place of the member: remove one"));
                }
                _ if add => reader.take(&word, words, header)?,
                _ => return Err(unknown(&word)),
            }
        }
        Ok(Entry {
            options: reader.finish(header, words.now),
            neighbour,
        })
    }
}

fn position(members: &[Member], name: &str) -> Option<usize> {
    members.iter().position(|member| member.name == name)
}

fn no_neighbour(member: &Word, name: &str) -> LineError {
    member.error(format!(
        "set \"{name}\" is not at this place of the list: name a member, or remove the place"
    ))
}

/// Adds the set that `member` names; it exists, and is no list.
pub(super) fn add(
    members: &mut Vec<Member>,
    member: &Word,
    entry: Entry,
    exist: bool,
    now: u64,
) -> Result<(), LineError> {
    let name = member.text();
    members.retain(|member| !member.options.is_over(now));
    let at = match &entry.neighbour {
        None => members.len(),
        Some(next) => match position(members, &next.name).filter(|_| next.name != name) {
            Some(at) if next.before => at,
            Some(at) => at + 1,
            None => return Err(no_neighbour(member, &next.name)),
        },
    };
    let new = Member {
        name: name.to_owned(),
        options: entry.options,
    };
    match position(members, name) {
        Some(at) if exist => members[at] = new,
        Some(_) => {
            return Err(member.error(format!(
                "set \"{name}\" is already in the list: remove the line, or add -exist"
            )));
        }
        None => members.insert(at, new),
    }
    Ok(())
}

/// Removes the set that `member` names.
pub(super) fn del(
    members: &mut Vec<Member>,
    member: &Word,
    entry: &Entry,
    exist: bool,
    now: u64,
) -> Result<(), LineError> {
    let name = member.text();
    members.retain(|member| !member.options.is_over(now));
    let at = position(members, name);
    if let Some(next) = &entry.neighbour {
        let neighbour = at.and_then(|at| match next.before {
            true => members.get(at + 1),
            false => members.get(at.checked_sub(1)?),
        });
        if neighbour.is_none_or(|member| member.name != next.name) {
            return Err(no_neighbour(member, &next.name));
        }
    }
    match at {
        Some(at) => drop(members.remove(at)),
        None if exist => {}
        None => {
            return Err(member.error(format!(
                "set \"{name}\" is not in the list: remove the line, or add -exist"
            )));
        }
    }
    Ok(())
}

/// Writes the `add` lines of the list `name`.
pub(super) fn write(
    out: &mut impl fmt::Write,
    name: &str,
    members: &[Member],
    header: &Header,
    times: Times,
) -> fmt::Result {
    for member in members.iter().filter(|member| times.shows(&member.options)) {
        let options = Printed(&member.options, header, times);
        writeln!(out, "add {name} {}{options}", member.name)?;
    }
    Ok(())
}
