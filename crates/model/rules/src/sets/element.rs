//! Elements: reading an entry of a line, its expansion, and writing.
//!
//! An entry names one element or many: a range, a block in a set of single addresses, a range of
//! ports. They are expanded as Linux does it (ip_set_hash_ip.c and its neighbours).

use super::blocks::Blocks;
use super::header::Header;
use super::line::Part;
use super::names::{self, ICMP, ICMPV6, TCP};
use super::options::{Options, Printed, Times};
use super::table::{Key, network};
use super::{Family, MAX_ELEMENTS};
use crate::LineError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An element of a set of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// Address of the network; the host bits are 0.
    pub net: IpAddr,
    /// Prefix length in bits: that of the set's netmask in sets of single addresses.
    pub length: u8,
    /// IP protocol, 0 in a set without ports.
    pub proto: u8,
    /// Port; `type << 8 | code` of ICMP and ICMPv6; 0 of other protocols.
    pub port: u16,
    /// The element is an exception: addresses that it matches are not in the set.
    pub nomatch: bool,
    /// Seconds in a set with timeouts; 0 is permanent.
    pub timeout: Option<u32>,
    /// Options that do not change the answer of a lookup.
    pub options: &'a Options,
}

impl<'a> Element<'a> {
    /// The same with another prefix length.
    pub fn network(&self, length: u8) -> Element<'a> {
        let net = match self.net {
            IpAddr::V4(address) => {
                let bits = network(u32::from(address).into(), length, 32);
                IpAddr::V4((bits as u32).into())
            }
            IpAddr::V6(address) => IpAddr::V6(network(address.into(), length, 128).into()),
        };
        Element {
            net,
            length,
            ..*self
        }
    }

    pub(super) fn new<K: Key>(key: K, options: &'a Options, header: &Header) -> Element<'a> {
        let (length, proto, port) = key.rest();
        Element {
            net: header.family.address(key.net()),
            length,
            proto,
            port,
            nomatch: options.nomatch,
            timeout: header.timeout.map(|usual| options.timeout.unwrap_or(usual)),
            options,
        }
    }
}

/// The elements that an entry names: each block of addresses with each port.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    blocks: Blocks,
    proto: u8,
    first_port: u16,
    last_port: u16,
}

impl Entry {
    pub fn read(entry: Part, header: &Header) -> Result<Entry, LineError> {
        let kind = header.kind.name();
        let (addresses, ports) = match entry.split(',') {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (entry, None),
        };
        let (proto, first_port, last_port) = match (ports, header.kind.has_port()) {
            (Some(ports), true) => ports_of(ports, header.family)?,
            (None, false) => (0, 0, 0),
            (None, true) => {
                return Err(entry.error(format!(
                    "element \"{}\" of type {kind} has no port: write for example {},tcp:80",
                    entry.text, entry.text
                )));
            }
            (Some(ports), false) => {
                return Err(ports.error(format!(
                    "type {kind} has no ports: remove \",{}\"",
                    ports.text
                )));
            }
        };
        let blocks = Blocks::read(addresses, header)?;
        let ports = usize::from(last_port - first_port) + 1;
        if blocks.block_count().saturating_mul(ports) > MAX_ELEMENTS {
            return Err(entry.error(format!(
                "\"{}\" names more than {MAX_ELEMENTS} elements: use a set of type hash:net, \
                 or a smaller range",
                entry.text
            )));
        }
        Ok(Entry {
            blocks,
            proto,
            first_port,
            last_port,
        })
    }

    /// The keys of the elements; at most [`MAX_ELEMENTS`].
    pub fn keys<K: Key>(&self) -> impl Iterator<Item = K> {
        let proto = self.proto;
        let ports = self.first_port..=self.last_port;
        self.blocks.clone().flat_map(move |(net, length)| {
            let key = move |port| K::new(net, length, proto, port);
            ports.clone().map(key)
        })
    }
}

pub(super) fn address_of(part: Part, family: Family) -> Result<u128, LineError> {
    let text = part.text;
    match (family, text.parse()) {
        (Family::Inet, Ok(IpAddr::V4(address))) => Ok(u32::from(address).into()),
        (Family::Inet6, Ok(IpAddr::V6(address))) => Ok(address.into()),
        (_, Ok(_)) => Err(part.error(format!(
            "address \"{text}\" is not of the set's family {family}: \
             use a set of the other family"
        ))),
        (_, Err(_)) => Err(part.error(format!(
            "\"{text}\" is not an address: write a whole numeric address, not a host name"
        ))),
    }
}

/// Protocol, first and last port of `[PROTO:]PORT[-PORT]`.
fn ports_of(part: Part, family: Family) -> Result<(u8, u16, u16), LineError> {
    let Some((name, port)) = part.split(':') else {
        let (first, last) = port_range(part)?;
        return Ok((TCP, first, last));
    };
    let proto = protocol_of(name)?;
    if names::has_ports(proto) {
        let (first, last) = port_range(port)?;
        return Ok((proto, first, last));
    }
    let port = match proto {
        ICMP | ICMPV6 => icmp_of(name, proto, port, family)?,
        _ if port.text == "0" => 0,
        _ => {
            return Err(port.error(format!(
                "protocol {} has no port \"{}\": write {}:0",
                name.text, port.text, name.text
            )));
        }
    };
    Ok((proto, port, port))
}

fn protocol_of(name: Part) -> Result<u8, LineError> {
    let text = name.text;
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(name.number("protocol", 1..=u8::MAX.into())? as u8);
    }
    names::protocol(text).ok_or_else(|| {
        name.error(format!(
            "protocol \"{text}\" is unknown: write its number, for example 47:0"
        ))
    })
}

fn port_range(part: Part) -> Result<(u16, u16), LineError> {
    let port = |part: Part| match part.text.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(part.number("port", 0..=u16::MAX.into())? as u16),
        false => Err(part.error(format!(
            "port \"{}\" is not a number: write the number of the service",
            part.text
        ))),
    };
    match part.split('-') {
        None => port(part).map(|port| (port, port)),
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            Ok((first.min(last), first.max(last)))
        }
    }
}

/// `TYPE/CODE` or a name, as a port.
fn icmp_of(name: Part, proto: u8, port: Part, family: Family) -> Result<u16, LineError> {
    let usual = if proto == ICMP {
        Family::Inet
    } else {
        Family::Inet6
    };
    if family != usual {
        return Err(name.error(format!(
            "protocol {} needs a set of family {usual}, not {family}: use the other ICMP",
            name.text
        )));
    }
    if let Some((kind, code)) = port.split('/') {
        let kind = kind.number("ICMP type", 0..=u8::MAX.into())? as u8;
        let code = code.number("ICMP code", 0..=u8::MAX.into())? as u8;
        return Ok(u16::from_be_bytes([kind, code]));
    }
    let known = names::icmp(proto, port.text).filter(|_| !port.text.is_empty());
    known.ok_or_else(|| {
        port.error(format!(
            "ICMP type \"{}\" is unknown: write TYPE/CODE, for example 3/1",
            port.text
        ))
    })
}

/// An element as `ipset save` prints it, without its options.
pub(super) struct Name<'a, K>(pub K, pub &'a Header);

impl<K: Key> fmt::Display for Name<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Name(key, header) = self;
        let (length, proto, port) = key.rest();
        match header.family.address(key.net()) {
            IpAddr::V4(address) => write!(f, "{address}")?,
            IpAddr::V6(address) => match compatible(address) {
                Some(address) => write!(f, "::{address}")?,
                None => write!(f, "{address}")?,
            },
        }
        if length < K::WIDTH && !header.kind.has_netmask() {
            write!(f, "/{length}")?;
        }
        if proto == 0 {
            return Ok(());
        }
        match names::protocol_name(proto) {
            Some(name) => write!(f, ",{name}:")?,
            None => write!(f, ",{proto}:")?,
        }
        if !matches!(proto, ICMP | ICMPV6) {
            return write!(f, "{port}");
        }
        let [kind, code] = port.to_be_bytes();
        match names::icmp_name(proto, port) {
            Some(name) => f.write_str(name),
            None => write!(f, "{kind}/{code}"),
        }
    }
}

/// The IPv4 address that glibc prints in an IPv4-compatible address such as `::192.0.2.1`.
fn compatible(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = u128::from(address);
    (0x1_0000..=u128::from(u32::MAX))
        .contains(&bits)
        .then(|| Ipv4Addr::from(bits as u32))
}

/// The rest of an `add` line: element and options.
pub(super) fn write_element<K: Key>(
    out: &mut impl fmt::Write,
    key: K,
    options: &Options,
    header: &Header,
    times: Times,
) -> fmt::Result {
    let name = Name(key, header);
    writeln!(out, "{name}{}", Printed(options, header, times))
}
