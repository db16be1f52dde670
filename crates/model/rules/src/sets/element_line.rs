//! A line about elements of one set, read without the set's elements.

use super::apply::{element_options, exists, full, missing};
use super::element::{Element, Entry, Name};
use super::header::Header;
use super::line::{Word, Words};
use super::options::Options;
use super::table::{Key, Key4, Key6};
use super::{Body, Set, Sets};
use crate::LineError;
use std::net::IpAddr;

/// The command of a line about elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// It adds them.
    Add,
    /// It removes them.
    Del,
    /// It looks for the first of them.
    Test,
}

/// Elements of one set, as a line names them.
#[derive(Debug, Clone)]
pub struct ElementLine<'s, 'l> {
    set: Word<'l>,
    /// The command.
    pub verb: Verb,
    /// True after `-exist`.
    pub exist: bool,
    header: &'s Header,
    element: Word<'l>,
    entry: Entry,
    options: Options,
}

impl Sets {
    /// Reads a line that adds, removes or looks for elements. `None`: another command, or a set that is
    /// a list or whose type is not supported.
    ///
    /// # Errors
    /// The line has a problem; the set is not there.
    pub fn element_line<'s, 'l>(
        &'s self,
        line: &'l str,
    ) -> Result<Option<ElementLine<'s, 'l>>, LineError> {
        let mut words = Words::new(line, self.now);
        let verb = match words.next()?.as_ref().map(Word::text) {
            Some("add") => Verb::Add,
            Some("del") => Verb::Del,
            Some("test") => Verb::Test,
            _ => return Ok(None),
        };
        let set = words.require("name of the set")?;
        let element = words.require("element")?;
        let (Body::Inet(header, _) | Body::Inet6(header, _)) = &self.existing(&set)?.body else {
            return Ok(None);
        };
        let entry = Entry::read(element.part(), header)?;
        let options = match verb {
            Verb::Add | Verb::Test => element_options(header, &mut words)?,
            Verb::Del => {
                words.finish()?;
                Options::default()
            }
        };
        Ok(Some(ElementLine {
            set,
            verb,
            exist: words.exist,
            header,
            element,
            entry,
            options,
        }))
    }

    /// Reads a line that looks for a member of a list. Returns its name, and whether it is there.
    ///
    /// # Errors
    /// The line has a problem; the set is not there, or its type is not supported.
    pub fn member_line(&self, line: &str) -> Result<(String, bool), LineError> {
        let mut words = Words::new(line, self.now);
        words.next()?;
        let set = words.require("name of the set")?;
        let element = words.require("element")?;
        words.finish()?;
        let (name, now) = (element.text(), self.time());
        match &self.existing(&set)?.body {
            Body::List(_, members) => {
                let mut there = members.iter().filter(|member| !member.options.is_over(now));
                Ok((name.to_owned(), there.any(|member| member.name == name)))
            }
            _ => Err(set.error(format!(
                "set \"{}\" has a type that is not supported: its elements are not looked for",
                set.text()
            ))),
        }
    }
}

impl Set {
    /// Looks for an element, or with `around` for the one with the longest prefix around it. `Some(true)`:
    /// it has `nomatch`.
    pub fn find(&self, element: &Element, around: bool, now: u64) -> Option<bool> {
        let lengths = match around {
            true => 0..=element.length,
            false => element.length..=element.length,
        };
        lengths.rev().find_map(|length| {
            let Element {
                net, proto, port, ..
            } = element.network(length);
            let found = match (&self.body, net) {
                (Body::Inet(_, table), IpAddr::V4(net)) => {
                    table.get(Key4::new(u32::from(net).into(), length, proto, port))
                }
                (Body::Inet6(_, table), IpAddr::V6(net)) => {
                    table.get(Key6::new(net.into(), length, proto, port))
                }
                _ => None,
            };
            let found = found.filter(|options| !options.is_over(now))?;
            Some(found.nomatch)
        })
    }
}

impl ElementLine<'_, '_> {
    /// The name of the set.
    pub fn set(&self) -> &str {
        self.set.text()
    }

    /// The elements.
    pub fn elements(&self) -> Box<dyn Iterator<Item = Element<'_>> + '_> {
        match self.header.family {
            super::Family::Inet => Box::new(self.of::<Key4>()),
            super::Family::Inet6 => Box::new(self.of::<Key6>()),
        }
    }

    fn of<K: Key + 'static>(&self) -> impl Iterator<Item = Element<'_>> {
        let keys = self.entry.keys::<K>();
        keys.map(|key| Element::new(key, &self.options, self.header))
    }

    /// The number of elements that the set may have.
    pub fn most(&self) -> usize {
        self.header.capacity()
    }

    /// The answer to a test of an element (`mtype_test`). `find` returns whether that element is there, and
    /// has `nomatch`; with true, the one with the longest prefix around it.
    pub fn is_in(&self, element: &Element, find: impl Fn(&Element, bool) -> Option<bool>) -> bool {
        let is_address = element.length == self.header.family.width();
        find(element, is_address) == Some(self.options.nomatch)
    }

    /// An element as ipset prints it.
    pub fn name(&self, element: &Element) -> String {
        let Element {
            length,
            proto,
            port,
            ..
        } = *element;
        match element.net {
            IpAddr::V4(net) => {
                let key = Key4::new(u32::from(net).into(), length, proto, port);
                Name(key, self.header).to_string()
            }
            IpAddr::V6(net) => {
                let key = Key6::new(net.into(), length, proto, port);
                Name(key, self.header).to_string()
            }
        }
    }

    /// The error for an element that is there already.
    pub fn exists(&self, element: &Element) -> LineError {
        exists(&self.element, self.name(element))
    }

    /// The error for an element that is not there.
    pub fn missing(&self, element: &Element) -> LineError {
        missing(&self.element, self.name(element))
    }

    /// The error for an element that has no place.
    pub fn full(&self) -> LineError {
        full(self.header, &self.element)
    }
}
