//! Search for classes by name, address, prefix, MAC address, and the attributes of the operator.

use std::net::IpAddr;

use fairpath_class::{Class, Criterion};
use fairpath_core::Prefix;

use crate::history::parse_subnet;
use crate::row_table::RowTable;
use crate::snapshot::Kind;

/// Minimum number of hexadecimal digits of a part of a MAC address.
const MIN_MAC_DIGITS: usize = 4;

/// A parsed search text.
#[derive(Clone, Debug)]
pub struct Search {
    text: String,
    net: Option<Prefix>,
    mac_digits: Option<String>,
}

impl Search {
    /// Any text is valid: an address or a prefix also finds the prefixes that contain it or that it
    /// contains.
    pub fn new(text: &str) -> Search {
        let text = text.trim().to_lowercase();
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let host = address(&text).map(|ip| Prefix::new(ip, if ip.is_ipv4() { 32 } else { 128 }));
        let is_separator = |c: char| matches!(c, ':' | '-' | '.');
        let digits: String = text.chars().filter(|c| !is_separator(*c)).collect();
        let is_mac = host.is_none()
            && digits.len() >= MIN_MAC_DIGITS
            && digits.chars().all(|c| c.is_ascii_hexdigit());
        Search {
            net: host.or_else(|| valid_prefix(&text)),
            mac_digits: is_mac.then_some(digits),
            text,
        }
    }

    fn overlaps(&self, prefix: &Prefix) -> bool {
        self.net.is_some_and(|net| {
            let (wide, narrow) = if net.len <= prefix.len {
                (net, *prefix)
            } else {
                (*prefix, net)
            };
            wide.contains(narrow.address)
        })
    }

    fn criterion(&self, criterion: &Criterion) -> bool {
        let matched = match criterion {
            Criterion::Prefix(prefix) => self.overlaps(prefix),
            Criterion::Mac(mac) => self.mac_digits.as_ref().is_some_and(|digits| {
                let all: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
                all.contains(digits.as_str())
            }),
            _ => false,
        };
        matched || (self.net.is_none() && contains(&criterion.to_string(), &self.text))
    }

    fn class(&self, class: &Class) -> bool {
        let mut values = class.attributes.iter().map(|(_, value)| value);
        values.any(|value| contains(value, &self.text))
            || class
                .criteria
                .iter()
                .any(|criterion| self.criterion(criterion))
    }
}

/// A prefix with a length that its family allows.
fn valid_prefix(text: &str) -> Option<Prefix> {
    let (address, len) = text.split_once('/')?;
    let (address, len): (IpAddr, u8) = (address.parse().ok()?, len.parse().ok()?);
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (len <= longest).then(|| Prefix::new(address, len))
}

/// True if `text` contains `part`, which is lower case.
fn contains(text: &str, part: &str) -> bool {
    !part.is_empty() && text.to_lowercase().contains(part)
}

impl RowTable {
    /// True if a row matches for another reason than its name. O(its criteria and attributes).
    pub fn found(&self, search: &Search, kind: Kind, name: &str) -> bool {
        match kind {
            Kind::Class => {
                let at = self.classes().position(name);
                at.is_some_and(|at| search.class(&self.classes().classes()[at]))
            }
            Kind::Subnet => parse_subnet(name).is_some_and(|net| search.overlaps(&net)),
            Kind::Interface | Kind::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_class::{ClassSet, Drafts, Uplinks};
    use std::sync::Arc;

    fn table() -> RowTable {
        let mut drafts = Drafts::new();
        let text = "[[class]]\nname = \"site\"\nprefix = \"10.0.0.0/8\"\n\
                    [[class]]\nname = \"emil\"\nparent = \"site\"\nprefix = \"10.10.4.0/24\"\n\
                    mac = \"02:00:5e:10:00:07\"\n\
                    [class.attributes]\ncircuit = \"C-4711\"\ncomment = \"Second Floor\"\n\
                    [[class]]\nname = \"frida\"\nprefix = \"2001:db8:7::/48\"\nvlan = 204\n";
        drafts.read_toml("f.toml", text);
        let built = ClassSet::build(drafts, Uplinks::Unknown);
        let mut table = RowTable::new(64);
        table.set_classes(&Arc::new(built.set.expect("a valid file")), &Arc::default());
        table
    }

    fn found(text: &str) -> Vec<&'static str> {
        let (table, search) = (table(), Search::new(text));
        let names = ["site", "emil", "frida"].into_iter();
        names
            .filter(|name| table.found(&search, Kind::Class, name))
            .collect()
    }

    #[test]
    fn addresses_and_prefixes_find_their_classes() {
        assert_eq!(found("10.10.4.17"), ["site", "emil"]);
        assert_eq!(found("10.10.5.1"), ["site"]);
        assert_eq!(found(" 2001:DB8:7::1 "), ["frida"]);
        assert_eq!(found("10.10.0.0/16"), ["site", "emil"]);
        assert_eq!(found("10.10.4."), ["emil"], "a part of a prefix");
        assert_eq!(found("192.0.2.1"), [""; 0]);
        assert_eq!(found("10.0.0.0/99"), [""; 0]);
        let (table, search) = (table(), Search::new("10.9.8.7"));
        assert!(table.found(&search, Kind::Subnet, "10.9.8.0/24"));
        assert!(!table.found(&search, Kind::Subnet, "10.9.9.0/24"));
        assert!(!table.found(&search, Kind::Other, "other"));
    }

    #[test]
    fn identifiers_and_comments_find_their_class() {
        for text in [
            "02:00:5e:10:00:07",
            "02005e100007",
            "02-00-5E",
            "c-4711",
            "second fl",
        ] {
            assert_eq!(found(text), ["emil"], "{text}");
        }
        assert_eq!(found("vlan 204"), ["frida"]);
        assert_eq!(found("nobody"), [""; 0]);
        assert_eq!(found(""), [""; 0]);
    }
}
