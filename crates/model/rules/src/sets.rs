//! Sets of addresses: files of `ipset save`, and lookups.
//!
//! Reads and writes the text of ipset 7.17 (Debian 12), and applies each line as `ipset restore`
//! does. A set answers as Linux 6.18 does: the longest prefix decides, and `nomatch` excludes.
//!
//! ```text
//! Sets  name -> Set   hash:ip, hash:net, hash:ip,port, hash:net,port   a tree of elements
//!                     list:set                                         names of other sets
//!                     other types                                      lines as text
//! ```
//!
//! Elements end only after [`Sets::set_time`]: those of a file stay, as their timeouts began elsewhere.
//!
//! Deliberately absent: names of hosts and services, short addresses such as `10.1`, and the eviction
//! of `forceadd`. Each line has its own `-exist`, where ipset applies
//! that of the first line to all consecutive lines of a set.

mod apply;
mod blocks;
mod element;
mod element_line;
mod header;
mod line;
mod list;
mod names;
mod opaque;
mod options;
mod table;
#[cfg(test)]
mod tests;

pub use element::Element;
pub use element_line::{ElementLine, Verb};
pub use options::Options;

use crate::{LineError, Place, ReadError};
use element::write_element;
use header::Header;
use list::Member;
use opaque::Opaque;
use options::Times;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::net::IpAddr;
use table::{Key4, Key6, Table};

/// Maximum elements of a set, and of an entry that names a range.
///
/// It refuses ranges that were not meant to be expanded, such as 10.0.0.0/8 in a set of hash:ip.
pub const MAX_ELEMENTS: usize = 4_194_304;
/// Maximum length of a line in bytes; ipset reads 1023.
pub const MAX_LINE: usize = 65_536;
/// Maximum number of sets: the kernel's index has 16 bits, and reserves one value.
pub const MAX_SETS: usize = 65_535;

/// Address family of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Inet,
    /// IPv6.
    Inet6,
}

impl Family {
    /// Bits of an address.
    pub fn width(self) -> u8 {
        match self {
            Family::Inet => 32,
            Family::Inet6 => 128,
        }
    }

    fn address(self, bits: u128) -> IpAddr {
        match self {
            Family::Inet => IpAddr::V4((bits as u32).into()),
            Family::Inet6 => IpAddr::V6(bits.into()),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Family::Inet => "inet",
            Family::Inet6 => "inet6",
        })
    }
}

/// The part of a packet that a lookup compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetKey {
    /// Source or destination.
    pub addr: IpAddr,
    /// IP protocol and port; `type << 8 | code` of ICMP, 0 of protocols without ports.
    ///
    /// A set with ports does not contain a key without.
    pub port: Option<(u8, u16)>,
}

/// The answer of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contains<'a> {
    /// The set contains the key.
    Yes,
    /// The set does not contain the key.
    No,
    /// The set, or a member of the list, has this type, which is not supported.
    Unknown(&'a str),
}

/// The file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadSetsError {
    /// A line is wrong.
    #[error(transparent)]
    Line(#[from] ReadError),
    /// Reading failed.
    #[error("cannot read {file}")]
    Read {
        /// Name of the file, as the user wrote it.
        file: String,
        /// The cause.
        source: io::Error,
    },
}

/// A set.
#[derive(Debug, Clone)]
pub struct Set {
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Inet(Header, Table<Key4>),
    Inet6(Header, Table<Key6>),
    List(Header, Vec<Member>),
    Opaque(Opaque),
}

impl Set {
    /// The name of the set's type, without the family.
    pub fn type_name(&self) -> &str {
        match &self.body {
            Body::Opaque(opaque) => opaque.label,
            Body::Inet(header, _) | Body::Inet6(header, _) | Body::List(header, _) => {
                header.kind.name()
            }
        }
    }

    /// The type, if it is not supported: such a set is kept as text.
    pub fn opaque(&self) -> Option<&str> {
        match &self.body {
            Body::Opaque(opaque) => Some(opaque.label),
            _ => None,
        }
    }

    /// The family of the set's addresses; lists have none.
    pub fn family(&self) -> Option<Family> {
        match &self.body {
            Body::Inet(..) => Some(Family::Inet),
            Body::Inet6(..) => Some(Family::Inet6),
            Body::List(..) => None,
            Body::Opaque(opaque) => opaque.family(),
        }
    }

    /// Number of flags (`src`, `dst`) that a match of this set needs; a list needs those of its members.
    pub fn dimension(&self) -> u8 {
        match &self.body {
            Body::Inet(header, _) | Body::Inet6(header, _) if header.kind.has_port() => 2,
            Body::Opaque(opaque) => opaque.dimension(),
            _ => 1,
        }
    }

    /// Number of elements, of a list the number of members.
    pub fn len(&self) -> usize {
        match &self.body {
            Body::Inet(_, table) => table.len(),
            Body::Inet6(_, table) => table.len(),
            Body::List(_, members) => members.len(),
            Body::Opaque(opaque) => opaque.len(),
        }
    }

    /// True if the set has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements by address, prefix length, protocol and port; none of lists and opaque sets.
    pub fn elements(&self) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
        match &self.body {
            Body::Inet(header, table) => {
                let element = |(key, options)| Element::new(key, options, header);
                Box::new(table.iter().map(element))
            }
            Body::Inet6(header, table) => {
                let element = |(key, options)| Element::new(key, options, header);
                Box::new(table.iter().map(element))
            }
            Body::List(..) | Body::Opaque(_) => Box::new(std::iter::empty()),
        }
    }

    /// True if its elements end after a time.
    pub fn has_timeouts(&self) -> bool {
        let header = match &self.body {
            Body::Inet(header, _) | Body::Inet6(header, _) | Body::List(header, _) => header,
            Body::Opaque(_) => return false,
        };
        header.timeout.is_some()
    }

    /// The names of a list's members, in order; none of other sets.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.member_ends().map(|(name, _)| name)
    }

    /// The same with the last nanosecond at which each is in the list; 0: it stays.
    pub fn member_ends(&self) -> impl Iterator<Item = (&str, u64)> {
        let members = match &self.body {
            Body::List(_, members) => members.as_slice(),
            _ => &[],
        };
        let ends = members.iter();
        ends.map(|member| (member.name.as_str(), member.options.end))
    }

    /// Looks `key` up at a time in nanoseconds; `sets` has the members of a list.
    ///
    /// O(p log n) for p prefix lengths in use (ip_set_hash_gen.h, `mtype_test_cidrs`).
    pub fn contains<'a>(&'a self, sets: &'a Sets, key: &SetKey, now: u64) -> Contains<'a> {
        let found = match (&self.body, key.addr) {
            (Body::Inet(header, table), IpAddr::V4(address)) => {
                let bits = u128::from(u32::from(address));
                ports(header, key).and_then(|(proto, port)| table.find(bits, proto, port, now))
            }
            (Body::Inet6(header, table), IpAddr::V6(address)) => {
                let bits = u128::from(address);
                ports(header, key).and_then(|(proto, port)| table.find(bits, proto, port, now))
            }
            (Body::Inet(..) | Body::Inet6(..), _) => None,
            (Body::List(..), _) => return self.list_contains(sets, key, now),
            (Body::Opaque(opaque), _) => return Contains::Unknown(opaque.label),
        };
        match found {
            Some(options) if !options.nomatch => Contains::Yes,
            _ => Contains::No,
        }
    }

    /// The first member that contains the key decides.
    fn list_contains<'a>(&'a self, sets: &'a Sets, key: &SetKey, now: u64) -> Contains<'a> {
        let mut answer = Contains::No;
        let members = self
            .member_ends()
            .filter(|(_, end)| *end == 0 || *end >= now);
        for set in members.filter_map(|(name, _)| sets.get(name)) {
            match set.contains(sets, key, now) {
                Contains::Yes => return Contains::Yes,
                unknown @ Contains::Unknown(_) if answer == Contains::No => answer = unknown,
                _ => {}
            }
        }
        answer
    }

    /// Writes the create line and the add lines of the set, with `name`.
    pub fn write(&self, name: &str, out: &mut impl fmt::Write) -> fmt::Result {
        self.write_with(name, out, Times::Whole)
    }

    /// The same with the seconds that are left at a time in nanoseconds, without what has ended.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_left(&self, name: &str, out: &mut impl fmt::Write, now: u64) -> fmt::Result {
        self.write_with(name, out, Times::Left(now))
    }

    fn write_with(&self, name: &str, out: &mut impl fmt::Write, times: Times) -> fmt::Result {
        match &self.body {
            Body::Inet(header, table) => write_table(out, name, header, table, times),
            Body::Inet6(header, table) => write_table(out, name, header, table, times),
            Body::List(header, members) => {
                writeln!(out, "create {name} {header}")?;
                list::write(out, name, members, header, times)
            }
            Body::Opaque(opaque) => opaque.write(out, name),
        }
    }
}

/// Protocol and port to look for; `None` if the key lacks them.
fn ports(header: &Header, key: &SetKey) -> Option<(u8, u16)> {
    match header.kind.has_port() {
        true => key.port,
        false => Some((0, 0)),
    }
}

fn write_table<K: table::Key>(
    out: &mut impl fmt::Write,
    name: &str,
    header: &Header,
    table: &Table<K>,
    times: Times,
) -> fmt::Result {
    writeln!(out, "create {name} {header}")?;
    let shown = table.iter().filter(|(_, options)| times.shows(options));
    for (key, options) in shown {
        write!(out, "add {name} ")?;
        write_element(out, key, options, header, times)?;
    }
    Ok(())
}

/// Sets by name.
///
/// [`Display`](fmt::Display) writes the sets as [`Sets::write`] does, for outputs of [`io::Write`].
#[derive(Debug, Clone, Default)]
pub struct Sets {
    sets: BTreeMap<String, Set>,
    /// Of sets whose elements end: the time at which lines are applied.
    now: Option<u64>,
    /// True while the text of loaded sets is read.
    has_ends: bool,
}

impl Sets {
    /// Reads a file; `file_name` is for messages.
    pub fn read(file_name: &str, input: impl BufRead) -> Result<Sets, ReadSetsError> {
        let mut sets = Sets::default();
        sets.read_lines(file_name, input)?;
        Ok(sets)
    }

    /// Reads the text of [`Sets::write_loaded`] at a time in nanoseconds.
    ///
    /// # Errors
    /// It is corrupt.
    pub fn read_loaded(name: &str, input: impl BufRead, now: u64) -> Result<Sets, ReadSetsError> {
        let mut sets = Sets {
            now: Some(now),
            has_ends: true,
            ..Sets::default()
        };
        sets.read_lines(name, input)?;
        sets.has_ends = false;
        Ok(sets)
    }

    /// Applies the lines of a file, or of several commands. A refused line leaves those before it.
    ///
    /// # Errors
    /// The first line that is refused.
    pub fn read_lines(
        &mut self,
        file_name: &str,
        mut input: impl BufRead,
    ) -> Result<(), ReadSetsError> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            // One byte more shows that the line is too long.
            let mut limited = input.by_ref().take(MAX_LINE as u64 + 1);
            let length =
                limited
                    .read_until(b'\n', &mut line)
                    .map_err(|source| ReadSetsError::Read {
                        file: file_name.to_owned(),
                        source,
                    })?;
            if length == 0 {
                break;
            }
            self.apply_bytes(&line).map_err(|error| ReadError {
                file: file_name.to_owned(),
                place: Place {
                    line: number,
                    column: error.column,
                },
                text: error.text,
            })?;
        }
        Ok(())
    }

    /// The time in nanoseconds from which on lines are applied. The first call begins all timeouts.
    pub fn set_time(&mut self, now: u64) {
        if self.now.replace(now).is_some() {
            return;
        }
        for set in self.sets.values_mut().filter(|set| set.has_timeouts()) {
            match &mut set.body {
                Body::Inet(header, table) => {
                    let all = table.options_mut();
                    all.for_each(|options| options.begin(header.timeout, now));
                }
                Body::Inet6(header, table) => {
                    let all = table.options_mut();
                    all.for_each(|options| options.begin(header.timeout, now));
                }
                Body::List(header, members) => {
                    let all = members.iter_mut().map(|member| &mut member.options);
                    all.for_each(|options| options.begin(header.timeout, now));
                }
                Body::Opaque(_) => {}
            }
        }
    }

    /// Removes what has ended before the time of [`Sets::set_time`]. O(elements).
    pub fn forget_ended(&mut self) {
        let now = self.time();
        for set in self.sets.values_mut().filter(|set| set.has_timeouts()) {
            match &mut set.body {
                Body::Inet(_, table) => table.forget_ended(now),
                Body::Inet6(_, table) => table.forget_ended(now),
                Body::List(_, members) => members.retain(|member| !member.options.is_over(now)),
                Body::Opaque(_) => {}
            }
        }
    }

    /// True if elements end.
    pub fn has_time(&self) -> bool {
        self.now.is_some()
    }

    /// The time at which lines are applied; 0 if elements do not end.
    pub fn time(&self) -> u64 {
        self.now.unwrap_or(0)
    }

    fn apply_bytes(&mut self, line: &[u8]) -> Result<(), LineError> {
        if line.len() > MAX_LINE {
            return Err(LineError::new(
                0,
                format!("the line has more than {MAX_LINE} bytes: split it"),
            ));
        }
        match std::str::from_utf8(line) {
            Ok(line) => self.apply_line(line),
            Err(error) => Err(LineError::new(
                error.valid_up_to() as u32 + 1,
                "the text is not UTF-8: remove the byte",
            )),
        }
    }

    /// Writes all sets: lists last, since their members must exist, and each part by name.
    ///
    /// Reading the text and writing it again gives the same bytes.
    pub fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        self.write_with(out, Times::Whole)
    }

    /// The same with the seconds that are left at a time in nanoseconds, without what has ended.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_left(&self, out: &mut impl fmt::Write, now: u64) -> fmt::Result {
        self.write_with(out, Times::Left(now))
    }

    /// The same with ends, for [`Sets::read_loaded`].
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_loaded(&self, out: &mut impl fmt::Write) -> fmt::Result {
        self.write_with(out, Times::Ends)
    }

    fn write_with(&self, out: &mut impl fmt::Write, times: Times) -> fmt::Result {
        let is_list = |set: &Set| matches!(set.body, Body::List(..));
        for lists in [false, true] {
            for (name, set) in self.iter().filter(|(_, set)| is_list(set) == lists) {
                set.write_with(name, out, times)?;
            }
        }
        Ok(())
    }

    /// The set with this name.
    pub fn get(&self, name: &str) -> Option<&Set> {
        self.sets.get(name)
    }

    /// All sets by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Set)> {
        self.sets.iter().map(|(name, set)| (name.as_str(), set))
    }

    /// Number of sets.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// True if there are no sets.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Looks `key` up in the set `name`; `None` if there is no such set.
    pub fn contains(&self, name: &str, key: &SetKey) -> Option<Contains<'_>> {
        let now = self.now.unwrap_or(0);
        self.get(name).map(|set| set.contains(self, key, now))
    }
}

impl fmt::Display for Sets {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.write(f)
    }
}
