//! The position of the IP header in a frame. Pure.
//!
//! After Ethernet and up to four VLAN tags (IEEE 802.1Q, 802.1ad). Deliberately absent: PPPoE,
//! whose frames the XDP programs pass to the stack.

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const MAX_VLAN_TAGS: usize = 4;
/// Of Ethernet's header.
const ETHERTYPE: usize = 12;
const TAG_BYTES: usize = 4;

/// The first byte of a header, by family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    V4(usize),
    V6(usize),
}

impl Network {
    /// Offset of the header.
    pub fn at(self) -> usize {
        match self {
            Network::V4(at) | Network::V6(at) => at,
        }
    }
}

/// By the EtherType; the header itself is not read and may be truncated.
pub(crate) fn find(frame: &[u8]) -> Option<Network> {
    let mut at = ETHERTYPE;
    let mut ethertype = be16(frame, at)?;
    for _ in 0..MAX_VLAN_TAGS {
        if !VLAN.contains(&ethertype) {
            break;
        }
        at += TAG_BYTES;
        ethertype = be16(frame, at)?;
    }
    match ethertype {
        IPV4 => Some(Network::V4(at + 2)),
        IPV6 => Some(Network::V6(at + 2)),
        _ => None,
    }
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([field[0], field[1]]))
}
