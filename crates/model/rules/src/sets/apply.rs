//! The commands of a line: create, add, del, flush, destroy, swap and rename.

use super::element::{Entry, Name};
use super::header::{Header, Kind};
use super::line::{Word, Words};
use super::opaque::Opaque;
use super::options::{Options, Reader};
use super::table::{Inserted, Key, Table};
use super::{Body, Family, MAX_ELEMENTS, MAX_SETS, Set, Sets, list};
use crate::LineError;
use std::{fmt, mem};

/// Maximum length of a name in bytes (`IPSET_MAXNAMELEN`, with its end).
const MAX_NAME: usize = 31;

/// Names of commands that ipset knows and this reader does not, and the name to write.
const SHORT: [(&str, &[&str]); 7] = [
    ("create", &["-N", "--create", "n", "new", "c"]),
    ("add", &["-A", "--add", "a"]),
    ("del", &["-D", "--del", "d"]),
    ("destroy", &["-X", "--destroy", "x"]),
    ("flush", &["-F", "--flush", "f"]),
    ("rename", &["-E", "--rename", "e"]),
    ("swap", &["-W", "--swap", "w"]),
];

impl Sets {
    /// Applies a line of `ipset restore`.
    ///
    /// A refused range may have added or deleted its first elements, as with ipset.
    pub fn apply_line(&mut self, line: &str) -> Result<(), LineError> {
        let start = line.trim_start();
        if start.is_empty() || start.starts_with('#') || start.trim_end() == "COMMIT" {
            return Ok(());
        }
        let mut words = Words::new(line, self.now);
        words.has_ends = self.has_ends;
        let Some(command) = words.next()? else {
            return Ok(());
        };
        match command.text() {
            "add" => self.add(&mut words),
            "create" => self.create(&mut words),
            "del" => self.del(&mut words),
            "flush" => self.flush(&mut words),
            "destroy" => self.destroy(&mut words),
            "swap" => self.swap(&mut words),
            "rename" => self.rename(&mut words),
            _ => Err(unknown_command(&command)),
        }
    }

    fn create(&mut self, words: &mut Words) -> Result<(), LineError> {
        let name = new_name(words)?;
        let type_name = words.require("type of the set")?;
        let new = Set::new(&type_name, words)?;
        if let Some(old) = self.sets.get(name.text()) {
            let problem = match (words.exist, new.is_same(old)) {
                (true, true) => return Ok(()),
                (true, false) => "exists with other options: write the same options",
                (false, _) => "exists already: remove the line, or add -exist",
            };
            return Err(name.error(format!("set \"{}\" {problem}", name.text())));
        }
        if self.sets.len() >= MAX_SETS {
            return Err(name.error(format!(
                "there are {MAX_SETS} sets, the maximum: remove a set"
            )));
        }
        self.sets.insert(name.text().to_owned(), new);
        Ok(())
    }

    fn add(&mut self, words: &mut Words) -> Result<(), LineError> {
        let name = words.require("name of the set")?;
        let element = words.require("element")?;
        if let Body::List(..) = self.existing(&name)?.body {
            self.check_member(&element)?;
        }
        let now = words.now.unwrap_or(0);
        match &mut self.existing_mut(&name)?.body {
            Body::Inet(header, table) => add(header, table, &element, words),
            Body::Inet6(header, table) => add(header, table, &element, words),
            Body::List(header, members) => {
                let entry = list::Entry::read(words, header, true)?;
                list::add(members, &element, entry, words.exist, now)
            }
            Body::Opaque(opaque) => opaque.add(&element, words),
        }
    }

    /// An error unless `member` names a set that can be in a list.
    fn check_member(&self, member: &Word) -> Result<(), LineError> {
        match self.existing(member)?.body {
            Body::List(..) => Err(member.error(format!(
                "set \"{}\" is a list, which a list cannot contain: add its members",
                member.text()
            ))),
            _ => Ok(()),
        }
    }

    fn del(&mut self, words: &mut Words) -> Result<(), LineError> {
        let name = words.require("name of the set")?;
        let element = words.require("element")?;
        if let Body::List(..) = self.existing(&name)?.body {
            self.check_member(&element)?;
        }
        let now = words.now.unwrap_or(0);
        match &mut self.existing_mut(&name)?.body {
            Body::Inet(header, table) => del(header, table, &element, words),
            Body::Inet6(header, table) => del(header, table, &element, words),
            Body::List(header, members) => {
                let entry = list::Entry::read(words, header, false)?;
                list::del(members, &element, &entry, words.exist, now)
            }
            Body::Opaque(opaque) => opaque.del(&element, words),
        }
    }

    fn flush(&mut self, words: &mut Words) -> Result<(), LineError> {
        let name = words.next()?;
        words.finish()?;
        match name {
            Some(name) => self.existing_mut(&name)?.clear(),
            None => self.sets.values_mut().for_each(Set::clear),
        }
        Ok(())
    }

    fn destroy(&mut self, words: &mut Words) -> Result<(), LineError> {
        let name = words.next()?;
        words.finish()?;
        let Some(name) = name else {
            return self.destroy_all();
        };
        if words.exist && !self.sets.contains_key(name.text()) {
            return Ok(());
        }
        self.existing(&name)?;
        self.check_unused(&name)?;
        self.sets.remove(name.text());
        Ok(())
    }

    fn destroy_all(&mut self) -> Result<(), LineError> {
        let mut lists = self.sets.iter();
        if let Some((name, _)) = lists.find(|(_, set)| set.members().next().is_some()) {
            return Err(LineError::new(
                0,
                format!("list \"{name}\" has members: flush or destroy it first"),
            ));
        }
        self.sets.clear();
        Ok(())
    }

    /// Exchanges the contents: lists keep the names of their members.
    fn swap(&mut self, words: &mut Words) -> Result<(), LineError> {
        let first = words.require("name of the first set")?;
        let second = words.require("name of the second set")?;
        words.finish()?;
        let (one, other) = (self.existing(&first)?, self.existing(&second)?);
        if !one.is_swappable(other) {
            return Err(second.error(format!(
                "set \"{}\" has another type or family than \"{}\": use sets of one type",
                second.text(),
                first.text()
            )));
        }
        if first.text() == second.text() {
            return Ok(());
        }
        if let Some(mut set) = self.sets.remove(first.text()) {
            mem::swap(&mut set, self.existing_mut(&second)?);
            self.sets.insert(first.text().to_owned(), set);
        }
        Ok(())
    }

    fn rename(&mut self, words: &mut Words) -> Result<(), LineError> {
        let old = words.require("name of the set")?;
        let new = new_name(words)?;
        words.finish()?;
        self.existing(&old)?;
        self.check_unused(&old)?;
        if self.sets.contains_key(new.text()) {
            return Err(new.error(format!(
                "set \"{}\" exists already: destroy it first, or use swap",
                new.text()
            )));
        }
        if let Some(set) = self.sets.remove(old.text()) {
            self.sets.insert(new.text().to_owned(), set);
        }
        Ok(())
    }

    /// An error if a list contains the set.
    fn check_unused(&self, name: &Word) -> Result<(), LineError> {
        let mut sets = self.sets.iter();
        let contains = |set: &Set| set.members().any(|member| member == name.text());
        match sets.find(|(_, set)| contains(set)) {
            None => Ok(()),
            Some((list, _)) => Err(name.error(format!(
                "set \"{}\" is in list \"{list}\": delete it there first",
                name.text()
            ))),
        }
    }

    pub(super) fn existing(&self, name: &Word) -> Result<&Set, LineError> {
        self.sets.get(name.text()).ok_or_else(|| no_set(name))
    }

    fn existing_mut(&mut self, name: &Word) -> Result<&mut Set, LineError> {
        self.sets.get_mut(name.text()).ok_or_else(|| no_set(name))
    }
}

impl Set {
    /// A set from its create line after the type.
    fn new(type_name: &Word, words: &mut Words) -> Result<Set, LineError> {
        let name = type_name.text();
        if let Some(opaque) = Opaque::read(name, words)? {
            let body = Body::Opaque(opaque);
            return Ok(Set { body });
        }
        let kind = Kind::from_name(name).ok_or_else(|| {
            type_name.error(format!(
                "set type \"{name}\" is unknown: write for example hash:ip or hash:net"
            ))
        })?;
        let header = Header::read(kind, words)?;
        let body = match (kind, header.family) {
            (Kind::List, _) => Body::List(header, Vec::new()),
            (_, Family::Inet) => Body::Inet(header, Table::default()),
            (_, Family::Inet6) => Body::Inet6(header, Table::default()),
        };
        Ok(Set { body })
    }

    fn header(&self) -> Option<&Header> {
        match &self.body {
            Body::Inet(header, _) | Body::Inet6(header, _) | Body::List(header, _) => Some(header),
            Body::Opaque(_) => None,
        }
    }

    fn is_same(&self, other: &Set) -> bool {
        if let (Body::Opaque(one), Body::Opaque(other)) = (&self.body, &other.body) {
            return one.is_same(other);
        }
        let headers = self.header().zip(other.header());
        headers.is_some_and(|(one, other)| one.is_same(other))
    }

    fn is_swappable(&self, other: &Set) -> bool {
        self.type_name() == other.type_name() && self.family() == other.family()
    }

    fn clear(&mut self) {
        match &mut self.body {
            Body::Inet(_, table) => table.clear(),
            Body::Inet6(_, table) => table.clear(),
            Body::List(_, members) => members.clear(),
            Body::Opaque(opaque) => opaque.clear(),
        }
    }
}

fn add<K: Key>(
    header: &Header,
    table: &mut Table<K>,
    element: &Word,
    words: &mut Words,
) -> Result<(), LineError> {
    let entry = Entry::read(element.part(), header)?;
    let options = element_options(header, words)?;
    let (most, now) = (header.capacity(), words.now.unwrap_or(0));
    for key in entry.keys::<K>() {
        match table.insert(key, &options, most, words.exist, now) {
            Inserted::New => {}
            Inserted::Exists => {
                return Err(exists(element, Name(key, header)));
            }
            Inserted::Full => return Err(full(header, element)),
        }
    }
    Ok(())
}

pub(super) fn element_options(header: &Header, words: &mut Words) -> Result<Options, LineError> {
    let mut reader = Reader::default();
    while let Some(word) = words.next()? {
        reader.take(&word, words, header)?;
    }
    Ok(reader.finish(header, words.now))
}

fn del<K: Key>(
    header: &Header,
    table: &mut Table<K>,
    element: &Word,
    words: &mut Words,
) -> Result<(), LineError> {
    words.finish()?;
    let entry = Entry::read(element.part(), header)?;
    for key in entry.keys::<K>() {
        if !table.remove(key, words.now.unwrap_or(0)) && !words.exist {
            return Err(missing(element, Name(key, header)));
        }
    }
    Ok(())
}

pub(super) fn exists(element: &Word, name: impl fmt::Display) -> LineError {
    element.error(format!(
        "element {name} is already in the set: remove the line, or add -exist"
    ))
}

pub(super) fn missing(element: &Word, name: impl fmt::Display) -> LineError {
    element.error(format!(
        "element {name} is not in the set: remove the line, or add -exist"
    ))
}

pub(super) fn full(header: &Header, element: &Word) -> LineError {
    let maxelem = header.maxelem;
    element.error(match header.capacity() == MAX_ELEMENTS {
        true => format!("the set has {MAX_ELEMENTS} elements, the maximum: split the set"),
        false => format!("the set is full: raise maxelem {maxelem} of its create line"),
    })
}

fn no_set(name: &Word) -> LineError {
    let text = name.text();
    name.error(format!("set \"{text}\" does not exist: create it first"))
}

/// A name for a new set. White space and `,` would not survive writing or a list.
fn new_name<'a>(words: &mut Words<'a>) -> Result<Word<'a>, LineError> {
    let name = words.require("name of the set")?;
    let text = name.text();
    let length = text.len();
    if length > MAX_NAME {
        return Err(name.error(format!(
            "name \"{text}\" has {length} bytes: write at most {MAX_NAME}"
        )));
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',') {
        return Err(name.error(format!(
            "name \"{text}\" contains white space or a comma: use letters, digits, - and _"
        )));
    }
    Ok(name)
}

fn unknown_command(command: &Word) -> LineError {
    let text = command.text();
    let mut long = SHORT.iter().filter(|(_, names)| names.contains(&text));
    command.error(match (long.next(), text) {
        (Some((name, _)), _) => format!("command \"{text}\" is a short form: write {name}"),
        (_, "ipset") => "the line begins with \"ipset\": remove this word".to_owned(),
        _ => format!(
            "command \"{text}\" is not supported: \
             write create, add, del, flush, destroy, swap or rename"
        ),
    })
}
