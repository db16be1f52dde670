//! Ethernet II headers (IEEE 802.3, clause 3).
//!
//! ```text
//! destination 6 | source 6 | ethertype 2
//! ```

use std::fmt;

use crate::fields::{ParseError, array, be16};

/// Length of the header.
pub const HEADER_BYTES: usize = 14;

/// The length to which a frame is padded, without its check sequence (IEEE 802.3, 4A.4.2: 64 with it).
pub const MIN_FRAME_BYTES: usize = 60;

/// The type of the bytes behind the header (IANA, "ETHER TYPES").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// A customer VLAN tag (802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// PPPoE session packets (RFC 2516).
    pub const PPPOE_SESSION: EtherType = EtherType(0x8864);
    /// A service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
    /// The EtherType that some switches write before an outer tag instead of 0x88a8.
    pub const OLD_SERVICE_VLAN: EtherType = EtherType(0x9100);
    /// Local experiments (IEEE 802): what a frame without any layer above is given.
    pub const EXPERIMENT: EtherType = EtherType(0x88b5);
}

/// A hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// A locally administered unicast address, one for each `host`.
    pub const fn local(host: u8) -> MacAddr {
        MacAddr([0x02, 0, 0, 0, 0, host])
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(bytes: [u8; 6]) -> MacAddr {
        MacAddr(bytes)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Receiver.
    pub dst: MacAddr,
    /// Sender.
    pub src: MacAddr,
    /// The type of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Appends the 14 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.dst.0);
        out.extend(self.src.0);
        out.extend(self.ethertype.0.to_be_bytes());
    }

    /// The header, and what follows it.
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (dst, rest) = array::<6>("ethernet", bytes)?;
        let (src, rest) = array::<6>("ethernet", rest)?;
        let (ethertype, rest) = array::<2>("ethernet", rest)?;
        let ethertype = EtherType(be16(ethertype, 0));
        Ok((
            Header {
                dst: MacAddr(*dst),
                src: MacAddr(*src),
                ethertype,
            },
            rest,
        ))
    }
}
