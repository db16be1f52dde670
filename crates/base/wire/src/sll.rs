//! Linux cooked capture headers, versions 1 and 2: what `tcpdump -i any` writes in place of Ethernet.
//!
//! ```text
//! v1: packet type 2 | ARPHRD 2 | address length 2 | address 8 | protocol 2
//! v2: protocol 2 | zero 2 | ifindex 4 | ARPHRD 2 | packet type 1 | address length 1 | address 8
//! ```

use fairpath_units::IfIndex;

use crate::ethernet::{EtherType, MacAddr};
use crate::fields::{ParseError, array, be16, be32};

/// Length of version 1.
pub const V1_BYTES: usize = 16;
/// Length of version 2.
pub const V2_BYTES: usize = 20;

/// The ARPHRD number of Ethernet (`linux/if_arp.h`).
pub const ARPHRD_ETHER: u16 = 1;

/// Which version of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// Without the interface.
    V1,
    /// With the interface index.
    V2(IfIndex),
}

/// The direction and kind of the packet (`linux/if_packet.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// Sent to this host.
    ToUs,
    /// Broadcast by another host.
    Broadcast,
    /// Multicast by another host.
    Multicast,
    /// Sent by another host to another host.
    ToOther,
    /// Sent by this host.
    Outgoing,
}

impl PacketType {
    const ALL: [PacketType; 5] = [
        PacketType::ToUs,
        PacketType::Broadcast,
        PacketType::Multicast,
        PacketType::ToOther,
        PacketType::Outgoing,
    ];

    fn from_number(number: u16) -> Result<PacketType, ParseError> {
        let wrong = ParseError::Field {
            header: "sll",
            field: "packet type",
            value: number.into(),
        };
        PacketType::ALL
            .get(usize::from(number))
            .copied()
            .ok_or(wrong)
    }
}

/// A cooked header of an Ethernet interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version, and what only one has.
    pub version: Version,
    /// The direction and kind of the packet.
    pub packet_type: PacketType,
    /// The sender's hardware address.
    pub addr: MacAddr,
    /// The type of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Length in bytes.
    pub fn header_len(&self) -> usize {
        match self.version {
            Version::V1 => V1_BYTES,
            Version::V2(_) => V2_BYTES,
        }
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let addr_len = self.addr.0.len() as u8;
        match self.version {
            Version::V1 => {
                out.extend([0, self.packet_type as u8]);
                out.extend(ARPHRD_ETHER.to_be_bytes());
                out.extend([0, addr_len]);
                out.extend(self.addr.0);
                out.extend([0; 2]);
                out.extend(self.ethertype.0.to_be_bytes());
            }
            Version::V2(ifindex) => {
                out.extend(self.ethertype.0.to_be_bytes());
                out.extend([0; 2]);
                out.extend(ifindex.0.to_be_bytes());
                out.extend(ARPHRD_ETHER.to_be_bytes());
                out.extend([self.packet_type as u8, addr_len]);
                out.extend(self.addr.0);
                out.extend([0; 2]);
            }
        }
    }

    /// A version 1 header, and what follows it.
    pub fn parse_v1(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (f, rest) = array::<V1_BYTES>("sll", bytes)?;
        let header = Header {
            version: Version::V1,
            packet_type: PacketType::from_number(be16(f, 0))?,
            addr: MacAddr([f[6], f[7], f[8], f[9], f[10], f[11]]),
            ethertype: EtherType(be16(f, 14)),
        };
        Ok((header, rest))
    }

    /// A version 2 header, and what follows it.
    pub fn parse_v2(bytes: &[u8]) -> Result<(Header, &[u8]), ParseError> {
        let (f, rest) = array::<V2_BYTES>("sll2", bytes)?;
        let header = Header {
            version: Version::V2(IfIndex(be32(f, 4))),
            packet_type: PacketType::from_number(f[10].into())?,
            addr: MacAddr([f[12], f[13], f[14], f[15], f[16], f[17]]),
            ethertype: EtherType(be16(f, 0)),
        };
        Ok((header, rest))
    }
}
