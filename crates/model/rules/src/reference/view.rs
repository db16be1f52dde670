//! Bytes of a packet from its network header on, with two ends: that of the packet, and that of the
//! captured bytes.

use crate::packet::{Packet, Unknown};
use crate::tree::Family;

/// An early end of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The packet is dropped. A negated condition may match nevertheless, and then the rule counts.
    HotDrop {
        matched: bool,
    },
    Unknown(Unknown),
}

impl From<Unknown> for Stop {
    fn from(unknown: Unknown) -> Self {
        Stop::Unknown(unknown)
    }
}

pub(super) type Answer = Result<bool, Stop>;

pub(super) const HOT_DROP: Stop = Stop::HotDrop { matched: false };
pub(super) const CUT: Stop = Stop::Unknown(Unknown::CutBytes);

const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const ESP: u8 = 50;
pub(super) const AUTH: u8 = 51;
pub(super) const NO_NEXT: u8 = 59;
pub(super) const DESTINATION: u8 = 60;

/// A packet from its network header on. Targets change it.
#[derive(Debug)]
pub(super) struct View {
    bytes: Vec<u8>,
    family: Family,
    /// Length of the packet as the kernel counts it.
    pub length: usize,
}

/// The place of the transport header, as matches see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transport {
    pub offset: usize,
    /// IPv4: the fragment offset in units of 8 bytes. IPv6: in bytes.
    pub fragment: u32,
}

/// The outcome of a walk along IPv6 extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    Found {
        protocol: u8,
        place: Transport,
    },
    /// No such header.
    Absent,
    /// The headers end too early.
    Broken,
}

/// Headers that the kernel walks over; ESP is not one of them.
pub(super) fn is_extension(header: u8) -> bool {
    matches!(
        header,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTH | NO_NEXT | DESTINATION
    )
}

/// Length of an extension header in bytes, from its second byte.
pub(super) fn extension_length(header: u8, length: u8) -> usize {
    match header {
        FRAGMENT => 8,
        AUTH => (usize::from(length) + 2) * 4,
        _ => (usize::from(length) + 1) * 8,
    }
}

impl View {
    pub fn new(packet: &Packet) -> Self {
        let bytes = packet.network_bytes().to_vec();
        let length = wire_length(packet.family, &bytes, packet.length);
        Self {
            bytes,
            family: packet.family,
            length,
        }
    }

    /// Bytes of the packet; `None` if it ends before.
    pub fn get(&self, at: usize, count: usize) -> Result<Option<&[u8]>, Stop> {
        match at.checked_add(count) {
            Some(end) if end <= self.length => self.bytes.get(at..end).map(Some).ok_or(CUT),
            _ => Ok(None),
        }
    }

    pub fn array<const N: usize>(&self, at: usize) -> Result<Option<[u8; N]>, Stop> {
        let bytes = self.get(at, N)?;
        Ok(bytes.map(|bytes| bytes.try_into().expect("get returns the requested count")))
    }

    /// A header without which the kernel drops the packet.
    pub fn header<const N: usize>(&self, at: usize) -> Result<[u8; N], Stop> {
        self.array(at)?.ok_or(HOT_DROP)
    }

    /// Part of the network header, which the kernel has checked before any rule.
    pub fn fixed<const N: usize>(&self, at: usize) -> Result<[u8; N], Stop> {
        self.array(at)?.ok_or(CUT)
    }

    pub fn byte(&self, at: usize) -> Result<u8, Stop> {
        Ok(self.fixed::<1>(at)?[0])
    }

    pub fn u16(&self, at: usize) -> Result<u16, Stop> {
        Ok(u16::from_be_bytes(self.fixed(at)?))
    }

    fn address(&self, v4: usize, v6: usize) -> Result<u128, Stop> {
        Ok(match self.family {
            Family::Ipv6 => u128::from_be_bytes(self.fixed(v6)?),
            _ => u128::from(u32::from_be_bytes(self.fixed(v4)?)),
        })
    }

    pub fn source(&self) -> Result<u128, Stop> {
        self.address(12, 8)
    }

    pub fn destination(&self) -> Result<u128, Stop> {
        self.address(16, 24)
    }

    pub fn ttl(&self) -> Result<u8, Stop> {
        self.byte(if self.family == Family::Ipv6 { 7 } else { 8 })
    }

    /// The byte with DSCP and ECN.
    pub fn tos(&self) -> Result<u8, Stop> {
        Ok(match self.family {
            Family::Ipv6 => (self.u16(0)? >> 4) as u8,
            _ => self.byte(1)?,
        })
    }

    /// The transport header of an IPv4 packet.
    pub fn transport4(&self) -> Result<Transport, Stop> {
        Ok(Transport {
            offset: usize::from(self.byte(0)? & 15) * 4,
            fragment: u32::from(self.u16(6)? & 0x1fff),
        })
    }

    /// Writes a word of the header, and for IPv4 corrects its checksum (RFC 1624).
    fn put(&mut self, at: usize, word: u16) {
        let Ok(before) = self.u16(at) else { return };
        self.write(at, &word.to_be_bytes());
        if let (Family::Ipv4, Ok(sum)) = (self.family, self.u16(10)) {
            let total = u32::from(!sum) + u32::from(!before) + u32::from(word);
            let folded = (total & 0xffff) + (total >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            self.write(10, &(!folded as u16).to_be_bytes());
        }
    }

    /// Inserts bytes, and corrects the length in the header.
    pub fn insert(&mut self, at: usize, bytes: [u8; 4]) {
        self.bytes.splice(at..at, bytes);
        self.length += bytes.len();
        match self.family {
            Family::Ipv6 => self.put(4, (self.length - IPV6_HEADER) as u16),
            _ => self.put(2, self.length as u16),
        }
    }

    /// Writes bytes that were captured.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        if let Some(slots) = self.bytes.get_mut(at..at + bytes.len()) {
            slots.copy_from_slice(bytes);
        }
    }

    pub fn set_ttl(&mut self, ttl: u8) {
        let word = match self.family {
            Family::Ipv6 => self.byte(6).map(|next| (6, [next, ttl])),
            _ => self.byte(9).map(|protocol| (8, [ttl, protocol])),
        };
        match word {
            Ok((at, word)) => self.put(at, u16::from_be_bytes(word)),
            // IPv4, cut behind it.
            Err(_) => self.write(8, &[ttl]),
        }
    }

    pub fn set_tos(&mut self, tos: u8) {
        let tos = u16::from(tos);
        if let Ok(word) = self.u16(0) {
            self.put(
                0,
                match self.family {
                    Family::Ipv6 => word & 0xf00f | tos << 4,
                    _ => word & 0xff00 | tos,
                },
            );
        }
    }

    /// Walks along IPv6 extension headers to `target`, or to the header after them
    /// (`ipv6_find_hdr`).
    ///
    /// A later fragment ends the walk: its place stays at 0 if the header after it is the target.
    pub fn find_header(&self, target: Option<u8>) -> Result<Walked, Stop> {
        let mut header = self.byte(6)?;
        let mut at = IPV6_HEADER;
        let found = |protocol, offset, fragment| Walked::Found {
            protocol,
            place: Transport { offset, fragment },
        };
        loop {
            let wanted = target == Some(header);
            if !is_extension(header) || header == NO_NEXT {
                let ends = target.is_none() || wanted;
                return Ok(if ends {
                    found(header, at, 0)
                } else {
                    Walked::Absent
                });
            }
            let Some([next, length]) = self.array(at)? else {
                return Ok(Walked::Broken);
            };
            if header == ROUTING && self.array::<4>(at)?.is_none() {
                return Ok(Walked::Broken);
            }
            if header == FRAGMENT {
                let Some(field) = self.array(at + 2)? else {
                    return Ok(Walked::Broken);
                };
                let offset = u32::from(u16::from_be_bytes(field) & !7);
                let last = !is_extension(next) || next == NO_NEXT;
                if offset != 0 {
                    return Ok(match target {
                        None if last => found(next, 0, offset),
                        _ if wanted => found(header, at, offset),
                        _ => Walked::Absent,
                    });
                }
            }
            if wanted {
                return Ok(found(header, at, 0));
            }
            at += extension_length(header, length);
            header = next;
        }
    }

    /// The protocol after IPv6 extension headers, its place and the fragment's field
    /// (`ipv6_skip_exthdr`); `None` if the headers end too early or with no next header.
    pub fn skip_extensions(&self) -> Result<Option<(u8, usize, u16)>, Stop> {
        let mut header = self.byte(6)?;
        let mut at = IPV6_HEADER;
        let mut fragment = 0;
        while is_extension(header) {
            if header == NO_NEXT {
                return Ok(None);
            }
            let Some([next, length]) = self.array(at)? else {
                return Ok(None);
            };
            if header == FRAGMENT {
                let Some(field) = self.array(at + 2)? else {
                    return Ok(None);
                };
                fragment = u16::from_be_bytes(field);
                if fragment & !7 != 0 {
                    break;
                }
            }
            at += extension_length(header, length);
            header = next;
        }
        Ok(Some((header, at, fragment)))
    }
}

/// Bytes that a header of IPv6 can say.
pub(super) const LONGEST: usize = IPV6_HEADER + 0xffff;

/// The IP layer removes bytes after the length that the header has (`ip_rcv`, `ip6_rcv`).
fn wire_length(family: Family, bytes: &[u8], length: usize) -> usize {
    let field = |at: usize| {
        let pair = bytes.get(at..at + 2)?;
        Some(usize::from(u16::from_be_bytes([pair[0], pair[1]])))
    };
    let total = match family {
        // Segments of TCP (GSO) that are together longer than the field can say.
        Family::Ipv4 if field(2) == Some(0) && length > 0xffff => None,
        Family::Ipv4 => field(2),
        // A jumbogram has its length in a hop-by-hop option (RFC 2675).
        Family::Ipv6 if field(4) == Some(0) && bytes.get(6) == Some(&HOP_BY_HOP) => None,
        Family::Ipv6 if field(4) == Some(0) && length > LONGEST => None,
        Family::Ipv6 => field(4).map(|payload| payload + IPV6_HEADER),
        Family::Arp | Family::Bridge => None,
    };
    total.map_or(length, |total| total.min(length))
}

/// A view of the IPv4 or IPv6 packet in a frame of a bridge, whose length is that of the frame.
pub(super) fn inner(view: &View, family: Family) -> View {
    View {
        bytes: view.bytes.clone(),
        family,
        length: view.length,
    }
}

/// True if the packet has a whole IPv4 or IPv6 header.
pub(super) fn has_header(view: &View) -> Result<bool, Stop> {
    let size = match view.family {
        Family::Ipv6 => IPV6_HEADER,
        _ => IPV4_HEADER,
    };
    Ok(view.get(0, size)?.is_some())
}
