//! Link types: what the first byte of a captured packet belongs to.

use std::fmt;

/// A link-layer header type by its number in capture files (the tcpdump.org LINKTYPE registry).
///
/// Numbers without a name here are kept as they are. In addition to the registered 101, two numbers mean raw IP in files: 12 and 14,
/// the BSD values of `DLT_RAW` that old tools wrote; [`LinkType::canonical`] folds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the byte order of the capturing host, then IP.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet II and 802.3.
    pub const ETHERNET: LinkType = LinkType(1);
    /// PPP, with or without the HDLC address and control bytes (RFC 1661, RFC 1662).
    pub const PPP: LinkType = LinkType(9);
    /// PPPoE session packets, from the PPPoE header on (RFC 2516).
    pub const PPP_ETHER: LinkType = LinkType(51);
    /// IPv4 or IPv6, distinguished by the first nibble.
    pub const RAW: LinkType = LinkType(101);
    /// OpenBSD loopback: a 4-byte address family in network order, then IP.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked capture, version 1: 16 bytes (`tcpdump -i any` of old).
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// IPv4 without a link-layer header.
    pub const IPV4: LinkType = LinkType(228);
    /// IPv6 without a link-layer header.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux cooked capture, version 2: 20 bytes, with the interface index.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// The same link type under its registered number: 12 and 14 become [`LinkType::RAW`].
    pub fn canonical(self) -> LinkType {
        match self.0 {
            12 | 14 => LinkType::RAW,
            _ => self,
        }
    }

    /// The name in the registry, if this crate knows it.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.canonical() {
            LinkType::NULL => "NULL",
            LinkType::ETHERNET => "ETHERNET",
            LinkType::PPP => "PPP",
            LinkType::PPP_ETHER => "PPP_ETHER",
            LinkType::RAW => "RAW",
            LinkType::LOOP => "LOOP",
            LinkType::LINUX_SLL => "LINUX_SLL",
            LinkType::IPV4 => "IPV4",
            LinkType::IPV6 => "IPV6",
            LinkType::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "link type {}", self.0),
        }
    }
}
