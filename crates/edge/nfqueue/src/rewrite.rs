//! New content for a packet, with matching lengths and checksums.
//!
//! The kernel does not complete checksums of rewritten packets. So the content is completed here:
//! total or payload length, the IPv4 header checksum, the length of UDP, the checksums of TCP, UDP,
//! ICMP and ICMPv6 (RFC 9293 section 3.1, RFC 768, RFC 792, RFC 4443 section 2.3). Not completed:
//! fragments after the IP header, UDP over IPv4 without a checksum, and other protocols.
//!
//! Refused: GSO packets (each segment needs its own headers, and the segment size is unknown),
//! packets that were not copied whole, partial checksums of other protocols (SCTP), and unfinished
//! source routes, whose checksum is for another destination.
//!
//! Consequence: a packet that arrived corrupted and unverified (`checksum_not_verified`) leaves
//! with a valid checksum. Verify it first if that matters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_wire::IpProto;
use fairpath_wire::checksum::checksum;
use fairpath_wire::ip::{self, pseudo_header};

use crate::error::RewriteError;
use crate::message::{VALUE_LIMIT_BYTES, be16};
use crate::packet::Packet;

/// RFC 8200 names seven extensions.
const EXTENSION_LIMIT: usize = 16;
const IPV6_BYTES: usize = 40;

/// New content of one packet, completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    id: u32,
    bytes: Vec<u8>,
}

impl Rewrite {
    /// The packet that it belongs to.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The new packet from the network header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Inverts a bit, counted from the start of the network header. A larger number than the packet
    /// has bits wraps. False if the packet is empty.
    pub fn flip(&mut self, bit: u32) -> bool {
        let Some(at) = (bit as usize).checked_rem(self.bytes.len() * 8) else {
            return false;
        };
        self.bytes[at / 8] ^= 0x80 >> (at % 8);
        true
    }
}

impl Packet<'_> {
    /// Makes `content` (from the network header, of any length) the new content of this packet.
    ///
    /// Sets lengths and checksums for `content`. Cost: the checksum over all of it.
    ///
    /// # Errors
    /// If that would corrupt the packet: see [`RewriteError`].
    pub fn rewrite(&self, mut content: Vec<u8>) -> Result<Rewrite, RewriteError> {
        let id = self.id;
        if self.info().gso() {
            return Err(RewriteError::GsoPacket { id });
        }
        if !self.is_complete() {
            return Err(RewriteError::Partial { id });
        }
        if content.len() > VALUE_LIMIT_BYTES {
            let (len, limit) = (content.len(), VALUE_LIMIT_BYTES);
            return Err(RewriteError::TooLong { id, len, limit });
        }
        complete(&mut content, self.info().checksum_not_ready())
            .ok_or(RewriteError::Unreadable { id })?;
        Ok(Rewrite { id, bytes: content })
    }
}

impl Packet<'_> {
    /// The packet with its original content, including corruption, for [`Rewrite::flip`]: nothing
    /// is completed, so a receiver detects the inverted bit.
    ///
    /// # Errors
    /// As [`Packet::rewrite`]; also if a checksum is partial, which would be wrong: bind without
    /// GSO, then the kernel completes it.
    pub fn verbatim(&self) -> Result<Rewrite, RewriteError> {
        let id = self.id;
        if self.info().gso() {
            return Err(RewriteError::GsoPacket { id });
        }
        if !self.is_complete() {
            return Err(RewriteError::Partial { id });
        }
        if self.info().checksum_not_ready() {
            return Err(RewriteError::Unreadable { id });
        }
        let bytes = self.payload().to_vec();
        Ok(Rewrite { id, bytes })
    }
}

impl Packet<'_> {
    /// The packet with Congestion Experienced set (RFC 3168), and else its original content. `None` if its sender
    /// is not ECN-capable.
    ///
    /// # Errors
    /// As [`Packet::verbatim`].
    pub fn marked(&self) -> Result<Option<Rewrite>, RewriteError> {
        let mut rewrite = self.verbatim()?;
        Ok(ip::set_ce(&mut rewrite.bytes).then_some(rewrite))
    }
}

/// Sets lengths and checksums; `None` if that is not possible.
fn complete(bytes: &mut [u8], unfinished: bool) -> Option<()> {
    match bytes.first()? >> 4 {
        4 => complete_v4(bytes, unfinished),
        6 => complete_v6(bytes, unfinished),
        _ => None,
    }
}

fn complete_v4(bytes: &mut [u8], unfinished: bool) -> Option<()> {
    let header_bytes = usize::from(bytes[0] & 15) * 4;
    let total = u16::try_from(bytes.len()).ok()?;
    if header_bytes < 20 {
        return None;
    }
    let (header, transport) = bytes.split_at_mut_checked(header_bytes)?;
    set(header, 2, total)?;
    set(header, 10, 0)?;
    set(header, 10, checksum(header))?;
    // The transport checksum of a fragment covers all fragments.
    if be16(header, 6)? & 0x3fff != 0 {
        return Some(());
    }
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?));
    let ends = [address(12)?, address(16)?].map(IpAddr::V4);
    let proto = IpProto(header[9]);
    let no_udp_sum = proto == IpProto::UDP && !unfinished && be16(transport, 6) == Some(0);
    complete_transport(proto, ends, transport, unfinished, no_udp_sum)
}

fn complete_v6(bytes: &mut [u8], unfinished: bool) -> Option<()> {
    let payload = u16::try_from(bytes.len().checked_sub(IPV6_BYTES)?).ok()?;
    set(bytes, 4, payload)?;
    let address = |at: usize| Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?));
    let ends = [address(8)?, address(24)?].map(IpAddr::V6);
    let Some((proto, at)) = transport_v6(bytes)? else {
        return Some(());
    };
    let transport = bytes.get_mut(at..)?;
    complete_transport(proto, ends, transport, unfinished, false)
}

/// Protocol and offset of the transport header, `Some(None)` in a fragment.
fn transport_v6(bytes: &[u8]) -> Option<Option<(IpProto, usize)>> {
    let (mut proto, mut at) = (IpProto(bytes[6]), IPV6_BYTES);
    for _ in 0..EXTENSION_LIMIT {
        let units = usize::from(bytes.get(at + 1).copied().unwrap_or(0));
        let len = match proto {
            IpProto::FRAGMENT => return Some(None),
            IpProto::HOP_BY_HOP | IpProto::DESTINATION_OPTIONS => (units + 1) * 8,
            IpProto::ROUTING if *bytes.get(at + 3)? != 0 => return None,
            IpProto::ROUTING => (units + 1) * 8,
            IpProto::AUTH => (units + 2) * 4,
            _ => return Some(Some((proto, at))),
        };
        proto = IpProto(*bytes.get(at)?);
        at += len;
    }
    None
}

fn complete_transport(
    proto: IpProto,
    [from, to]: [IpAddr; 2],
    transport: &mut [u8],
    unfinished: bool,
    no_udp_sum: bool,
) -> Option<()> {
    let len = transport.len();
    let at = match proto {
        IpProto::TCP => 16,
        IpProto::UDP => 6,
        IpProto::ICMP | IpProto::ICMPV6 => 2,
        _ => return (!unfinished).then_some(()),
    };
    if proto == IpProto::UDP {
        set(transport, 4, u16::try_from(len).ok()?)?;
    }
    if no_udp_sum {
        return Some(());
    }
    set(transport, at, 0)?;
    let sum = if proto == IpProto::ICMP {
        checksum(transport)
    } else {
        pseudo_header(from, to, proto, len)
            .bytes(transport)
            .finish()
    };
    // RFC 768: 0 means "none", so a sum of 0 is sent as 0xffff.
    let sum = if proto == IpProto::UDP && sum == 0 {
        0xffff
    } else {
        sum
    };
    set(transport, at, sum)
}

fn set(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    bytes
        .get_mut(at..at + 2)?
        .copy_from_slice(&value.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use fairpath_wire::{Frame, icmp, tcp};

    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    /// Packets whose lengths and checksums the wire crate computed.
    fn right() -> Vec<Vec<u8>> {
        let payload = b"an odd number of bytes!";
        let v4 = || Frame::raw().ipv4(A, B);
        let v6 = || Frame::raw().ipv6(A6, B6);
        [
            v4().tcp(tcp::Header::default()).payload(payload),
            v6().tcp(tcp::Header::default()).payload(payload),
            v4().udp(1, 2).payload(payload),
            v6().udp(1, 2).payload(payload),
            v4().icmp(icmp::Message::EchoRequest { id: 1, seq: 2 })
                .payload(payload),
            v6().icmp(icmp::Message::EchoRequest { id: 1, seq: 2 })
                .payload(payload),
        ]
        .map(|frame| frame.build())
        .to_vec()
    }

    #[test]
    fn lengths_and_checksums_equal_those_of_fairpath_wire() {
        for bytes in right() {
            let mut wrong = bytes.clone();
            let transport = if bytes[0] >> 4 == 4 { 20 } else { 40 };
            // The length of the packet, with a partial checksum at every possible position.
            let length_at = if transport == 20 { 2 } else { 4 };
            wrong[length_at] ^= 0xff;
            if transport == 20 {
                wrong[10] ^= 0xff;
            }
            let proto = if transport == 20 { bytes[9] } else { bytes[6] };
            let at = match proto {
                6 => 16,
                17 => 6,
                _ => 2,
            };
            wrong[transport + at] ^= 0x55;
            assert_ne!(wrong, bytes);
            assert_eq!(complete(&mut wrong, true), Some(()));
            assert_eq!(wrong, bytes, "protocol {proto}");
        }
    }

    #[test]
    fn fragments_keep_their_transport() {
        let whole = Frame::raw().ipv4(A, B).udp(1, 2).zeros(3000);
        for fragment in whole.fragments(1500, 7) {
            let bytes = fragment.build();
            let mut again = bytes.clone();
            again[10] ^= 1;
            assert_eq!(complete(&mut again, false), Some(()));
            assert_eq!(again, bytes);
        }
    }

    #[test]
    fn udp_without_a_checksum_stays_without() {
        let mut bytes = Frame::raw().ipv4(A, B).udp(1, 2).payload(b"x").build();
        bytes[26..28].fill(0);
        let before = bytes.clone();
        assert_eq!(complete(&mut bytes, false), Some(()));
        assert_eq!(bytes, before);
        assert_eq!(complete(&mut bytes, true), Some(()));
        assert_ne!(bytes, before);
    }

    #[test]
    fn a_second_flip_undoes_a_flipped_bit() {
        let clean = right().remove(0);
        let bytes = clean.clone();
        let mut rewrite = Rewrite { id: 1, bytes };
        assert!(rewrite.flip(9));
        assert_eq!(rewrite.bytes()[1], clean[1] ^ 0x40);
        assert!(rewrite.flip(9 + clean.len() as u32 * 8));
        assert_eq!(rewrite.bytes(), clean);
        assert!(
            !Rewrite {
                id: 1,
                bytes: vec![]
            }
            .flip(0)
        );
    }

    #[test]
    fn packets_with_uncomputable_checksums_are_refused() {
        let mut sctp = Frame::raw().ipv4(A, B).udp(1, 2).payload(b"x").build();
        sctp[9] = 132;
        assert_eq!(complete(&mut sctp.clone(), true), None);
        assert_eq!(complete(&mut sctp, false), Some(()));
        for bytes in [&[][..], &[0x45], &[0x60; 39], &[0x20; 60], &[0x41; 60]] {
            assert_eq!(complete(&mut bytes.to_vec(), false), None, "{bytes:?}");
        }
    }
}
