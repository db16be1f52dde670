//! Criteria: what leads an endpoint of a packet to a class, in words, as rules, and as the slow lookup.
//!
//! A new match is a variant of [`Criterion`] and an entry of [`MATCHES`]; the compiler names the arms
//! that lack it. What the packet path does is its line in `bpf/core/class/matches.h`.

use std::net::IpAddr;

use fairpath_core::{Prefix, Rules};

use crate::value::{self, BadValue};

/// What leads an endpoint of a packet to a class; where several do, the first of this order wins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criterion {
    /// Packet mark, never 0.
    Mark(u32),
    /// The endpoint's link-layer address.
    Mac([u8; 6]),
    /// The endpoint's address lies in it.
    Prefix(Prefix),
    /// Outermost VLAN by which the endpoint is reached, 1 to 4094.
    Vlan(u16),
    /// Differentiated services code point, 0 to 63.
    Dscp(u8),
    /// Interface by which the endpoint is reached.
    Interface(String),
}

/// A criterion with one value, as files have it.
#[derive(Debug)]
pub(crate) struct Match {
    /// Its key in TOML and column of CSV.
    pub word: &'static str,
    /// Whether TOML may give it as a number.
    pub may_be_number: bool,
    /// Reads a value.
    pub read: fn(&str) -> Result<Criterion, BadValue>,
}

/// All but prefixes, in the order in which messages list them.
pub(crate) static MATCHES: &[Match] = &[
    Match {
        word: "vlan",
        may_be_number: true,
        read: |text| value::vlan(text).map(Criterion::Vlan),
    },
    Match {
        word: "interface",
        may_be_number: false,
        read: |text| value::interface(text).map(Criterion::Interface),
    },
    Match {
        word: "mac",
        may_be_number: false,
        read: |text| value::mac(text).map(Criterion::Mac),
    },
    Match {
        word: "mark",
        may_be_number: true,
        read: |text| value::mark(text).map(Criterion::Mark),
    },
    Match {
        word: "dscp",
        may_be_number: true,
        read: |text| value::dscp(text).map(Criterion::Dscp),
    },
];

/// What is known of one endpoint of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// Its address.
    pub address: IpAddr,
    /// Packet mark, if it speaks of this endpoint.
    pub mark: Option<u32>,
    /// Link-layer address, if it is the endpoint's.
    pub mac: Option<[u8; 6]>,
    /// Outermost VLAN by which it is reached.
    pub vlan: Option<u16>,
    /// Code point, if it speaks of this endpoint.
    pub dscp: Option<u8>,
    /// Interface by which it is reached.
    pub interface: Option<&'a str>,
}

/// Which endpoint a criterion speaks of, and where that is known (`FP_OF_...` in `matches.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Either end, everywhere.
    Any,
    /// The end whose link is known; the name of what the link tells.
    Link(&'static str),
    /// The end inside; the monitor must know the uplinks.
    Inside,
}

impl std::fmt::Display for Criterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Criterion::Mark(mark) => write!(f, "mark {mark:#x}"),
            Criterion::Mac(m) => write!(
                f,
                "MAC {:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}",
                m[0], m[1], m[2], m[3], m[4], m[5]
            ),
            Criterion::Prefix(prefix) => write!(f, "prefix {prefix}"),
            Criterion::Vlan(vlan) => write!(f, "VLAN {vlan}"),
            Criterion::Dscp(dscp) => write!(f, "DSCP {dscp}"),
            Criterion::Interface(name) => write!(f, "interface {name}"),
        }
    }
}

impl Criterion {
    /// Which endpoint it speaks of.
    pub fn whom(&self) -> Whom {
        match self {
            Criterion::Mark(_) | Criterion::Dscp(_) => Whom::Inside,
            Criterion::Mac(_) => Whom::Link("MAC address"),
            Criterion::Vlan(_) => Whom::Link("VLAN"),
            Criterion::Prefix(_) | Criterion::Interface(_) => Whom::Any,
        }
    }

    /// Adds the core's rule that leads to `slot`; none for an interface without index.
    pub(crate) fn add_to(
        &self,
        rules: &mut Rules,
        slot: u32,
        index_of: impl FnOnce(&str) -> Option<u32>,
    ) {
        match self {
            Criterion::Mark(mark) => rules.marks.push((*mark, slot)),
            Criterion::Mac(mac) => rules.macs.push((*mac, slot)),
            Criterion::Prefix(prefix) => rules.prefixes.push((*prefix, slot)),
            Criterion::Vlan(vlan) => rules.vlans.push((*vlan, slot)),
            Criterion::Dscp(dscp) => rules.dscps.push((*dscp, slot)),
            Criterion::Interface(name) => {
                let index = index_of(name);
                rules.interfaces.extend(index.map(|index| (index, slot)));
            }
        }
    }

    /// Whether an endpoint fits, and if so its place in the order: the lowest wins.
    pub(crate) fn fits(&self, of: &Endpoint<'_>) -> Option<(u8, u8)> {
        let (order, fits) = match self {
            Criterion::Mark(mark) => (0, of.mark == Some(*mark)),
            Criterion::Mac(mac) => (1, of.mac == Some(*mac)),
            // The longest wins.
            Criterion::Prefix(prefix) => {
                return prefix
                    .contains(of.address)
                    .then_some((2, u8::MAX - prefix.len));
            }
            Criterion::Vlan(vlan) => (3, of.vlan == Some(*vlan)),
            Criterion::Dscp(dscp) => (4, of.dscp == Some(*dscp)),
            Criterion::Interface(name) => (5, of.interface == Some(name.as_str())),
        };
        fits.then_some((order, 0))
    }
}
