//! Packets that target REJECT sends, as nf_reject_ipv4 and nf_reject_ipv6 of Linux 6.18 make them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fairpath_wire::checksum::Sum;
use fairpath_wire::ip::{IpProto, pseudo_header};
use fairpath_wire::tcp::Flags;
use fairpath_wire::{Frame, icmp, ipv4, ipv6, tcp};

/// A rejected packet.
#[derive(Debug, Clone, Copy)]
pub struct Rejected<'a> {
    /// The number of `--reject-with`.
    pub kind: u8,
    /// From the network header on. It may be cut.
    pub bytes: &'a [u8],
    /// Bytes of the packet, or of all that offloads put together.
    pub length: u32,
    /// The network device accepted it for this host only: no broadcast, no multicast.
    pub is_for_host: bool,
    /// The kernel routes it to a broadcast or multicast address.
    pub is_to_many: bool,
    /// The destination is an address of this host.
    pub is_local: bool,
    /// The kernel or a device has checked the checksum, or will complete it.
    pub is_checked: bool,
    /// The destination before its translation, of a connection that the kernel will forget.
    pub original: Option<(IpAddr, u16)>,
}

/// The reason why no packet answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The packet is an error of ICMP, or a reset of TCP.
    Error,
    /// A later fragment.
    Fragment,
    /// To or from an address of several hosts, or of none.
    Address,
    /// A wrong checksum.
    Checksum,
    /// A header is cut, or is not that of TCP.
    Header,
    /// No source address leads to the sender.
    Route,
}

/// Bytes of an ICMP error, with all headers (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4).
const MAX_ERROR: usize = 576;
const MAX_ERROR6: usize = 1280;
/// The precedence of errors: internetwork control.
const PRECEDENCE: u8 = 0xc0;
/// TOS without precedence and ECN's second bit.
const TOS: u8 = 0x1e;

/// A packet and the place of its transport header.
struct Opened<'a> {
    packet: &'a Rejected<'a>,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Offset of the transport header.
    at: usize,
    is_later_fragment: bool,
}

impl Rejected<'_> {
    /// The answer from its IP header on. `route` knows how packets get to an address from a source, if it is
    /// given: it returns the source, and the TTL or hop limit. An unspecified IPv4 source leaves the
    /// choice to the kernel.
    ///
    /// # Errors
    /// [`Silence`]: the packet gets no answer.
    pub fn answer(
        &self,
        route: impl FnOnce(IpAddr, Option<IpAddr>) -> Option<(IpAddr, u8)>,
    ) -> Result<Vec<u8>, Silence> {
        let original = self.original.and_then(|(address, port)| {
            let mut bytes = self.bytes.to_vec();
            restore(&mut bytes, address, port)?;
            Some(bytes)
        });
        let packet = Rejected {
            bytes: original.as_deref().unwrap_or(self.bytes),
            ..*self
        };
        // The checksum of the packet as it is.
        let seen = Opened::of(self)?;
        let opened = Opened::of(&packet)?;
        match self.kind {
            6 => opened.reset(&seen, route),
            kind => opened.error(&seen, code(kind, opened.source), route),
        }
    }
}

/// The code of "destination unreachable".
fn code(kind: u8, to: IpAddr) -> u8 {
    match (kind, to) {
        (0..=3, IpAddr::V4(_)) => kind,
        (4, _) => 9,
        (5, _) => 10,
        (7, _) => 13,
        (16, _) => 0,
        (17, _) => 1,
        (18, _) => 3,
        (20, _) => 5,
        (21, _) => 6,
        // Port unreachable.
        (_, IpAddr::V4(_)) => 3,
        (_, IpAddr::V6(_)) => 4,
    }
}

/// Undoes the translation of the destination, with checksums.
fn restore(bytes: &mut [u8], address: IpAddr, port: u16) -> Option<()> {
    let rejected = Rejected {
        kind: 0,
        bytes,
        length: 0,
        is_for_host: true,
        is_to_many: false,
        is_local: false,
        is_checked: true,
        original: None,
    };
    let opened = Opened::of(&rejected).ok()?;
    let (protocol, at) = (IpProto(opened.protocol), opened.at);
    let place = match address {
        IpAddr::V4(_) => 16..20,
        IpAddr::V6(_) => 24..40,
    };
    let octets = match &address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    if opened.destination.is_ipv4() != address.is_ipv4() {
        return None;
    }
    let old = bytes.get(place.clone())?.to_vec();
    bytes[place].copy_from_slice(&octets);
    if address.is_ipv4() {
        change(bytes, 10, &old, &octets);
    }
    let sum = match protocol {
        IpProto::TCP => at + 16,
        IpProto::UDP => at + 6,
        _ => return Some(()),
    };
    let ports = bytes.get(at + 2..at + 4)?.to_vec();
    bytes[at + 2..at + 4].copy_from_slice(&port.to_be_bytes());
    let has_none = protocol == IpProto::UDP && bytes.get(sum..sum + 2) == Some(&[0, 0]);
    if !has_none {
        change(bytes, sum, &old, &octets);
        change(bytes, sum, &ports, &port.to_be_bytes());
    }
    Some(())
}

/// Updates a checksum for words that changed.
fn change(bytes: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    let Some(place) = bytes.get_mut(at..at + 2) else {
        return;
    };
    let words = |bytes: &[u8]| -> Vec<u16> {
        let words = bytes.chunks_exact(2);
        words
            .map(|word| u16::from_be_bytes([word[0], word[1]]))
            .collect()
    };
    let mut sum = u16::from_be_bytes([place[0], place[1]]);
    for (old, new) in words(old).into_iter().zip(words(new)) {
        sum = fairpath_wire::checksum::update(sum, old, new);
    }
    place.copy_from_slice(&sum.to_be_bytes());
}

impl<'a> Opened<'a> {
    fn of(packet: &'a Rejected<'a>) -> Result<Self, Silence> {
        let bytes = packet.bytes;
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => {
                let header = bytes.first_chunk::<20>().ok_or(Silence::Header)?;
                let address = |at: usize| {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| header[at + byte]);
                    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
                };
                Ok(Self {
                    packet,
                    source: address(12),
                    destination: address(16),
                    protocol: header[9],
                    at: usize::from(header[0] & 15) * 4,
                    is_later_fragment: u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0,
                })
            }
            Some(6) => {
                let header = bytes.first_chunk::<40>().ok_or(Silence::Header)?;
                let address = |at: usize| {
                    let bytes = header[at..].first_chunk::<16>().expect("inside");
                    IpAddr::V6(Ipv6Addr::from(*bytes))
                };
                let (protocol, at, is_later_fragment) = transport6(bytes)?;
                Ok(Self {
                    packet,
                    source: address(8),
                    destination: address(24),
                    protocol,
                    at,
                    is_later_fragment,
                })
            }
            _ => Err(Silence::Header),
        }
    }

    /// Bytes from the transport header on.
    fn transport(&self) -> &'a [u8] {
        self.packet.bytes.get(self.at..).unwrap_or_default()
    }

    /// Refuses a packet with a wrong checksum. That of a cut packet is believed.
    fn check(&self) -> Result<(), Silence> {
        let whole = self.packet.bytes.len() as u64 >= u64::from(self.packet.length);
        if self.packet.is_checked || !whole {
            return Ok(());
        }
        let bytes = self.transport();
        let sum = match (IpProto(self.protocol), self.source) {
            (IpProto::UDP, _) if bytes.get(6..8) == Some(&[0, 0]) => return Ok(()),
            // Protocols with optional, partial or other checksums: GRE, ESP, AH, DCCP, SCTP, UDP-Lite.
            (IpProto(47 | 50 | 51 | 33 | 132 | 136), _) => return Ok(()),
            (IpProto::TCP | IpProto::UDP, _) | (_, IpAddr::V6(_)) => pseudo_header(
                self.source,
                self.destination,
                IpProto(self.protocol),
                bytes.len(),
            ),
            _ => Sum::new(),
        };
        match sum.bytes(bytes).finish() {
            0 => Ok(()),
            _ => Err(Silence::Checksum),
        }
    }

    /// A reset. `seen` is the packet as rules met it.
    fn reset(
        &self,
        seen: &Opened<'_>,
        route: impl FnOnce(IpAddr, Option<IpAddr>) -> Option<(IpAddr, u8)>,
    ) -> Result<Vec<u8>, Silence> {
        if self.is_later_fragment {
            return Err(Silence::Fragment);
        }
        let header = self.transport().first_chunk::<20>();
        let header = header.filter(|_| IpProto(self.protocol) == IpProto::TCP);
        let header = header.ok_or(Silence::Header)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let flags = Flags(word(12) & 0x1ff);
        if flags.contains(Flags::RST) {
            return Err(Silence::Error);
        }
        seen.check()?;
        if self.packet.is_to_many || is_many(self.source) || is_many(self.destination) {
            return Err(Silence::Address);
        }
        let mut answer = tcp::Header {
            src_port: word(2),
            dst_port: word(0),
            flags: Flags::RST,
            ..tcp::Header::default()
        };
        if flags.contains(Flags::ACK) {
            answer.seq = long(8);
        } else {
            let headers = self.at as u32 + u32::from(header[12] >> 4) * 4;
            let data = self.packet.length.wrapping_sub(headers);
            let ends = [Flags::SYN, Flags::FIN].map(|flag| u32::from(flags.contains(flag)));
            answer.flags = Flags(Flags::RST.0 | Flags::ACK.0);
            answer.ack = long(4)
                .wrapping_add(data)
                .wrapping_add(ends[0])
                .wrapping_add(ends[1]);
        }
        let routed = route(self.source, Some(self.destination));
        let (_, hops) = routed.ok_or(Silence::Route)?;
        let frame = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Frame::raw().ipv4_header(ipv4::Header {
                    ttl: hops,
                    dont_fragment: true,
                    ..ipv4::Header::new(destination, source)
                })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Frame::raw().ipv6_header(ipv6::Header {
                    hop_limit: hops,
                    ..ipv6::Header::new(destination, source)
                })
            }
            _ => return Err(Silence::Header),
        };
        Ok(frame.tcp(answer).build())
    }

    /// An error of ICMP.
    fn error(
        &self,
        seen: &Opened<'_>,
        code: u8,
        route: impl FnOnce(IpAddr, Option<IpAddr>) -> Option<(IpAddr, u8)>,
    ) -> Result<Vec<u8>, Silence> {
        if self.is_later_fragment {
            return Err(Silence::Fragment);
        }
        seen.check()?;
        if !self.packet.is_for_host || self.packet.is_to_many || is_many(self.destination) {
            return Err(Silence::Address);
        }
        let bytes = self.packet.bytes;
        let message = icmp::Message::Unreachable { code };
        let kind = self.transport().first();
        let known = self.packet.is_local.then_some(self.destination);
        let routed = || route(self.source, known).ok_or(Silence::Route);
        match self.source {
            IpAddr::V4(source) => {
                if IpProto(self.protocol) == IpProto::ICMP {
                    let kind = kind.ok_or(Silence::Header)?;
                    // Echo, timestamp, information and address mask.
                    if !matches!(kind, 0 | 8 | 13..=18) {
                        return Err(Silence::Error);
                    }
                }
                let tos = bytes[1] & TOS | PRECEDENCE;
                let (IpAddr::V4(from), hops) = routed()? else {
                    return Err(Silence::Route);
                };
                let header = ipv4::Header {
                    ttl: hops,
                    dscp: tos >> 2,
                    ecn: fairpath_wire::ip::Ecn::from_bits(tos & 3),
                    dont_fragment: false,
                    ..ipv4::Header::new(from, source)
                };
                let room = MAX_ERROR - ipv4::HEADER_BYTES - icmp::HEADER_BYTES;
                let quoted = &bytes[..bytes.len().min(room)];
                let frame = Frame::raw().ipv4_header(header).icmp(message);
                Ok(frame.payload(quoted).build())
            }
            IpAddr::V6(source) => {
                if source.is_unspecified() || source.is_multicast() {
                    return Err(Silence::Address);
                }
                if IpProto(self.protocol) == IpProto::ICMPV6 {
                    // Errors have types below 128.
                    match kind {
                        None => return Err(Silence::Header),
                        Some(0..=127) => return Err(Silence::Error),
                        Some(_) => {}
                    }
                }
                let (IpAddr::V6(from), hops) = routed()? else {
                    return Err(Silence::Route);
                };
                let header = ipv6::Header {
                    hop_limit: hops,
                    ..ipv6::Header::new(from, source)
                };
                let room = MAX_ERROR6 - ipv6::HEADER_BYTES - icmp::HEADER_BYTES;
                let quoted = &bytes[..bytes.len().min(room)];
                let frame = Frame::raw().ipv6_header(header).icmp(message);
                Ok(frame.payload(quoted).build())
            }
        }
    }
}

/// An address of no single host.
fn is_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unspecified(),
    }
}

/// Protocol and offset of the transport header behind extension headers, and whether this is a later
/// fragment.
fn transport6(bytes: &[u8]) -> Result<(u8, usize, bool), Silence> {
    let (mut next, mut at) = (bytes[6], ipv6::HEADER_BYTES);
    loop {
        let length = match next {
            0 | 43 | 60 => 8 * (usize::from(*bytes.get(at + 1).ok_or(Silence::Header)?) + 1),
            51 => 4 * (usize::from(*bytes.get(at + 1).ok_or(Silence::Header)?) + 2),
            44 => {
                let field = bytes.get(at + 2..at + 4).ok_or(Silence::Header)?;
                if u16::from_be_bytes([field[0], field[1]]) & !7 != 0 {
                    return Ok((bytes[at], at + 8, true));
                }
                8
            }
            _ => return Ok((next, at, false)),
        };
        next = *bytes.get(at).ok_or(Silence::Header)?;
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of remote hosts, with a header of either family before them more often than by chance.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let next = prop::sample::select(vec![0u8, 1, 6, 17, 43, 44, 51, 58, 60, 253]);
        let bytes = prop::collection::vec(any::<u8>(), 0..256);
        (next, any::<u8>(), bytes).prop_map(|(next, first, mut bytes)| {
            if let Some(byte) = bytes.first_mut() {
                *byte = if first < 128 { 0x40 | first & 15 } else { 0x60 };
            }
            let at = if first < 128 { 9 } else { 6 };
            if let Some(byte) = bytes.get_mut(at) {
                *byte = next;
            }
            bytes
        })
    }

    proptest! {
        #[test]
        fn hostile_bytes_get_well_formed_answers(
            bytes in hostile(),
            kind in 0u8..24,
            flags in any::<[bool; 4]>(),
            length in prop::option::of(any::<u32>()),
            translated in any::<bool>(),
        ) {
            let v4 = bytes.first().is_some_and(|byte| byte >> 4 == 4);
            let original: IpAddr = match v4 {
                true => Ipv4Addr::new(192, 0, 2, 1).into(),
                false => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            };
            let [is_for_host, is_to_many, is_local, is_checked] = flags;
            let packet = Rejected {
                kind,
                bytes: &bytes,
                length: length.unwrap_or(bytes.len() as u32),
                is_for_host,
                is_to_many,
                is_local,
                is_checked,
                original: translated.then_some((original, 53)),
            };
            if let Ok(answer) = packet.answer(|to, from| Some((from.unwrap_or(to), 64))) {
                let stated = match v4 {
                    true => u16::from_be_bytes([answer[2], answer[3]]),
                    false => u16::from_be_bytes([answer[4], answer[5]]) + 40,
                };
                prop_assert_eq!(usize::from(stated), answer.len());
                prop_assert!(answer.len() <= bytes.len() + 60);
                let place = if v4 { (12..16, 16..20) } else { (8..24, 24..40) };
                prop_assert_eq!(&answer[place.1], &bytes[place.0]);
            }
        }
    }
}
