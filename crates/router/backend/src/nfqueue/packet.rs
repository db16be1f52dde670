//! A queued packet as the classifier and policies know packets.

use std::num::NonZeroU32;

use fairpath_core::{Frame, FrameDirection, Link};
use fairpath_nfqueue::Packet;
use fairpath_shape::Side;

/// Bytes of a packet that are copied. The Ethernet header is synthetic, so fewer than the parser's maximum.
pub const HEADER_BYTES: u32 = 160;
/// An Ethernet header, which packets have on the wire and not here.
const ETHERNET: u32 = 14;

/// Where packets are seen: on their way to an interface.
#[derive(Clone, Copy)]
pub struct At {
    pub side: Side,
    /// The interface towards subscribers.
    pub inside: u32,
    /// The interface that they leave by.
    pub out: u32,
    /// Of `out`.
    pub mtu_bytes: u32,
}

/// An Ethernet header and what follows.
pub struct Head {
    bytes: [u8; (ETHERNET + HEADER_BYTES) as usize],
    len: usize,
}

impl Head {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The packet as the classifier and policies know packets: its frame, first bytes, bytes on the wire.
pub fn describe(packet: &Packet<'_>, now: u64, at: &At) -> (Frame, Head, u32) {
    let payload = packet.payload();
    let mut head = Head {
        bytes: [0; (ETHERNET + HEADER_BYTES) as usize],
        len: 0,
    };
    let copied = payload.len().min(HEADER_BYTES as usize);
    head.bytes[12..14].copy_from_slice(&packet.ether_type().0.to_be_bytes());
    head.bytes[14..14 + copied].copy_from_slice(&payload[..copied]);
    head.len = ETHERNET as usize + copied;
    let segments = segments(packet, payload, at.mtu_bytes);
    let (segs, bytes) = (segments.count.get(), segments.bytes);
    // The end whose class counts must be the one of whose link something is known.
    let direction = match at.side {
        Side::Down => FrameDirection::Out,
        Side::Up => FrameDirection::In,
    };
    let arrived_by = packet.devices().input.map_or(0, |index| index.0);
    let frame = Frame {
        now,
        wire_len: bytes,
        segs,
        ifindex: match at.side {
            Side::Down => at.out,
            Side::Up if arrived_by != 0 => arrived_by,
            Side::Up => at.inside,
        },
        rx_ifindex: arrived_by,
        link: Link::Ethernet as u16,
        direction: direction as u8,
        mark: packet.mark(),
        ..Frame::default()
    };
    (frame, head, bytes)
}

/// The segments of a packet on the wire.
#[derive(Debug, PartialEq, Eq)]
struct Segments {
    count: NonZeroU32,
    bytes: u32,
}

/// Each segment of a GSO packet carries as much as the MTU allows, with all headers.
fn segments(packet: &Packet<'_>, payload: &[u8], mtu: u32) -> Segments {
    segments_of(
        packet.len(),
        packet.info().gso(),
        header_bytes(payload),
        mtu,
    )
}

fn segments_of(len: u32, gso: bool, headers: u32, mtu: u32) -> Segments {
    let capacity = mtu.saturating_sub(headers).max(1);
    let count = match gso && len > mtu {
        true => len.saturating_sub(headers).div_ceil(capacity).max(1),
        false => 1,
    };
    let bytes = len + (count - 1) * headers + count * ETHERNET;
    Segments {
        count: NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN),
        bytes,
    }
}

/// Bytes of the headers that each segment of a GSO packet repeats: IP and TCP or UDP.
fn header_bytes(ip: &[u8]) -> u32 {
    let byte = |at: usize| u32::from(ip.get(at).copied().unwrap_or(0));
    let (network, protocol) = match byte(0) >> 4 {
        4 => ((byte(0) & 15) * 4, byte(9)),
        _ => (40, byte(6)),
    };
    let transport = match protocol {
        6 => (byte(network as usize + 12) >> 4) * 4,
        _ => 8,
    };
    network + transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gso_packet_is_charged_as_its_segments() {
        let of = |len, gso| {
            let Segments { count, bytes } = segments_of(len, gso, 52, 1500);
            (count.get(), bytes)
        };
        assert_eq!(of(1500, false), (1, 1514));
        assert_eq!(of(60, false), (1, 74));
        // 45 segments of 1448 bytes of data: 45 * 1514 on the wire.
        assert_eq!(of(52 + 45 * 1448, true), (45, 45 * 1514));
        assert_eq!(of(52 + 1448 + 1, true), (2, 1514 + 52 + 1 + 14));
        // An MTU that cannot be is survived.
        let _ = segments_of(60_000, true, 52, 40);
    }

    #[test]
    fn headers_are_measured_in_both_families() {
        let mut ip = [0; 64];
        (ip[0], ip[9], ip[32]) = (0x45, 6, 0x80);
        assert_eq!(header_bytes(&ip), 52);
        let mut ip = [0; 64];
        (ip[0], ip[6], ip[52]) = (0x60, 6, 0x50);
        assert_eq!(header_bytes(&ip), 60);
        assert_eq!(header_bytes(&[]), 48);
    }
}
