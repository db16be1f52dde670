//! Criteria: properties that assign an endpoint of a packet to a class, as text, rule and slow lookup.
//!
//! A new match needs a variant of [`Criterion`] and an entry of [`MATCHES`]. The compiler reports
//! missing arms. Its line in `bpf/core/class/matches.h` is the part of the packet path.

use std::net::IpAddr;

use fairpath_core::{Prefix, Rules};

use crate::value::{self, BadValue};

/// A property that assigns an endpoint of a packet to a class. If several apply, the first in this order
/// is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Criterion {
    /// Packet mark, never 0.
    Mark(u32),
    /// The endpoint's link-layer address.
    Mac([u8; 6]),
    /// A prefix of the endpoint's address.
    Prefix(Prefix),
    /// Outermost VLAN towards the endpoint, 1 to 4094.
    Vlan(u16),
    /// Differentiated services code point, 0 to 63.
    Dscp(u8),
    /// Interface towards the endpoint.
    Interface(String),
}

/// A criterion with one value, in files.
#[derive(Debug)]
pub(crate) struct Match {
    /// Its key in TOML and column of CSV.
    pub word: &'static str,
    /// True if TOML may have a number.
    pub may_be_number: bool,
    /// Reads a value.
    pub read: fn(&str) -> Result<Criterion, BadValue>,
}

/// All criteria except prefixes, in the order of messages.
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

/// The properties of one endpoint of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// Its address.
    pub address: IpAddr,
    /// Packet mark, if it applies to this endpoint.
    pub mark: Option<u32>,
    /// Link-layer address, if it is the endpoint's.
    pub mac: Option<[u8; 6]>,
    /// Outermost VLAN towards it.
    pub vlan: Option<u16>,
    /// Code point, if it applies to this endpoint.
    pub dscp: Option<u8>,
    /// Interface towards it.
    pub interface: Option<&'a str>,
}

/// The endpoint of a criterion, and its precondition (`FP_OF_...` in `matches.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Either end, without precondition.
    Any,
    /// The end on a known link, with the name of the link's property.
    Link(&'static str),
    /// The end inside, which needs configured uplinks.
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

/// The part of a criterion that a capture lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureGap {
    /// Captures do not have it.
    Absent,
    /// It needs the direction of packets, which most captures do not have.
    NeedsDirection,
    /// It holds on one link: packets of other interfaces lack it.
    OfOneLink,
}

impl Criterion {
    /// Its endpoint.
    pub fn whom(&self) -> Whom {
        match self {
            Criterion::Mark(_) | Criterion::Dscp(_) => Whom::Inside,
            Criterion::Mac(_) => Whom::Link("MAC address"),
            Criterion::Vlan(_) => Whom::Link("VLAN"),
            Criterion::Prefix(_) | Criterion::Interface(_) => Whom::Any,
        }
    }

    /// Returns the reason why a capture has less of it than live traffic; `None` for a prefix.
    pub fn in_captures(&self) -> Option<CaptureGap> {
        match self {
            Criterion::Mark(_) => Some(CaptureGap::Absent),
            Criterion::Dscp(_) => Some(CaptureGap::NeedsDirection),
            Criterion::Mac(_) | Criterion::Vlan(_) | Criterion::Interface(_) => {
                Some(CaptureGap::OfOneLink)
            }
            Criterion::Prefix(_) => None,
        }
    }

    /// Adds the core's rule for `slot`, none for an interface without index.
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

    /// The precedence if an endpoint matches. The lowest applies.
    pub(crate) fn fits(&self, of: &Endpoint<'_>) -> Option<(u8, u8)> {
        let (order, fits) = match self {
            Criterion::Mark(mark) => (0, of.mark == Some(*mark)),
            Criterion::Mac(mac) => (1, of.mac == Some(*mac)),
            // The longest prefix applies.
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
