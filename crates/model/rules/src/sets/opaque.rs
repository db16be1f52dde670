//! Sets of the types that are not supported: their lines are kept as text.

use super::line::{Word, Words};
use super::{Family, MAX_ELEMENTS};
use crate::LineError;
use std::collections::BTreeMap;
use std::fmt;

/// Types of ipset 7.17 that are not supported, and their old names.
const TYPES: [(&str, &str); 11] = [
    ("bitmap:ip", "ipmap"),
    ("bitmap:ip,mac", "macipmap"),
    ("bitmap:port", "portmap"),
    ("hash:ip,mac", "hash:ip,mac"),
    ("hash:ip,mark", "hash:ip,mark"),
    ("hash:ip,port,ip", "ipportiphash"),
    ("hash:ip,port,net", "ipportnethash"),
    ("hash:mac", "hash:mac"),
    ("hash:net,iface", "netifacehash"),
    ("hash:net,net", "hash:net,net"),
    ("hash:net,port,net", "hash:net,port,net"),
];

/// A set of a type that is not supported.
#[derive(Debug, Clone)]
pub(super) struct Opaque {
    type_name: &'static str,
    /// The type for messages.
    pub label: &'static str,
    /// Options of the create line, with a space before each.
    options: String,
    /// Element, and its options with a space before each.
    elements: BTreeMap<Box<str>, Box<str>>,
}

impl Opaque {
    /// Reads the create line of a set of `type_name` after the type.
    ///
    /// Returns `None` for a supported type or an unknown one.
    pub fn read(type_name: &str, words: &mut Words) -> Result<Option<Opaque>, LineError> {
        let is_it = |row: &&(&str, &str)| row.0 == type_name || row.1 == type_name;
        let label = match (type_name, has_bitmask(words)) {
            ("hash:ip" | "iphash", true) => "hash:ip with bitmask",
            ("hash:ip,port" | "ipporthash", true) => "hash:ip,port with bitmask",
            _ => match TYPES.iter().find(is_it) {
                Some(row) => row.0,
                None => return Ok(None),
            },
        };
        Ok(Some(Opaque {
            type_name: label.split(' ').next().unwrap_or(label),
            label,
            options: words.rest()?,
            elements: BTreeMap::new(),
        }))
    }

    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// As far as the create line names it: types without addresses have none.
    pub fn family(&self) -> Option<Family> {
        let options: Vec<&str> = self.options.split(' ').collect();
        let family = |name: &str| match name {
            "inet6" | "ipv6" => Family::Inet6,
            _ => Family::Inet,
        };
        match self.type_name {
            "hash:mac" | "bitmap:port" => None,
            _ if options.contains(&"-6") => Some(Family::Inet6),
            _ => {
                let named = options.windows(2).find(|pair| pair[0] == "family");
                Some(named.map_or(Family::Inet, |pair| family(pair[1])))
            }
        }
    }

    /// Number of data types of the type's name.
    pub fn dimension(&self) -> u8 {
        1 + self.type_name.matches(',').count() as u8
    }

    pub fn is_same(&self, other: &Opaque) -> bool {
        self.type_name == other.type_name && self.options == other.options
    }

    pub fn add(&mut self, element: &Word, words: &mut Words) -> Result<(), LineError> {
        let rest = words.rest()?;
        let name = element.text();
        let exists = self.elements.contains_key(name);
        if exists && !words.exist {
            return Err(element.error(format!(
                "element {name} is already in the set: remove the line, or add -exist"
            )));
        }
        if !exists && self.elements.len() >= MAX_ELEMENTS {
            return Err(element.error(format!(
                "the set has {MAX_ELEMENTS} elements, the maximum: split the set"
            )));
        }
        self.elements.insert(name.into(), rest.into());
        Ok(())
    }

    pub fn del(&mut self, element: &Word, words: &mut Words) -> Result<(), LineError> {
        words.rest()?;
        let name = element.text();
        if self.elements.remove(name).is_none() && !words.exist {
            return Err(element.error(format!(
                "element {name} is not in the set: remove the line, or add -exist"
            )));
        }
        Ok(())
    }

    pub fn clear(&mut self) {
        self.elements.clear();
    }

    pub fn write(&self, out: &mut impl fmt::Write, name: &str) -> fmt::Result {
        writeln!(out, "create {name} {}{}", self.type_name, self.options)?;
        for (element, options) in &self.elements {
            writeln!(out, "add {name} {element}{options}")?;
        }
        Ok(())
    }
}

/// True if the line has the option `bitmask`: a mask of addresses that need not be a prefix.
fn has_bitmask(words: &Words) -> bool {
    let rest = words.clone().rest();
    rest.is_ok_and(|rest| rest.split(' ').any(|word| word == "bitmask"))
}
