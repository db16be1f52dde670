//! Completes checksums that the sender's stack left to the hardware. Pure.
//!
//! A veth has no hardware and its peer trusts it, so a stack sends packets with a partial checksum
//! into it: the field has only the sum of the pseudo-header. XDP cannot see the kernel's mark of
//! such a packet, and a frame sent through AF_XDP has none, so it would leave with a wrong
//! checksum.
//!
//! A packet is recognised by the sum of the pseudo-header in its field. Then the checksum is
//! computed in full. A correct packet stays as it is, byte for byte, because the computation gives
//! the same value. A checksum that is wrong for another reason stays wrong, except by a chance of 1
//! in 65,536.
//!
//! Covers TCP and UDP over IPv4 and IPv6, behind VLAN tags and extension headers (RFC 9293 section
//! 3.1, RFC 768, RFC 8200 section 8.1). Deliberately absent: SCTP (its CRC), and packets in
//! tunnels, whose inner checksum a stack can also leave partial: disable tx-checksumming there.

use crate::network::{self, Network, be16};

const MAX_EXTENSIONS: usize = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Offset of the checksum in the transport header.
const TCP_CHECKSUM: usize = 16;
/// See [`TCP_CHECKSUM`].
const UDP_CHECKSUM: usize = 6;

/// A partial checksum, and the bytes that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// Offset of the field.
    field: usize,
    /// The first byte that it covers, and the first one after these.
    covers: [usize; 2],
}

/// The position of a transport header, and the sum of other data that its checksum covers.
struct Transport {
    proto: u8,
    /// The header's first byte.
    at: usize,
    /// The first byte after the packet.
    end: usize,
    pseudo: u64,
}

impl Partial {
    /// The partial checksum of an Ethernet frame of `bytes` bytes, which begins with `first`: all headers
    /// are in it. `None` if it is complete or absent, or in a fragment or a truncated packet, or if there
    /// is no TCP or UDP. Takes about 10 ns.
    pub fn of(first: &[u8], bytes: usize) -> Option<Partial> {
        let transport = find(first)?;
        let field = match transport.proto {
            TCP => transport.at + TCP_CHECKSUM,
            UDP => transport.at + UDP_CHECKSUM,
            _ => return None,
        };
        let there = first.get(field..field + 2)?;
        let there = u16::from_ne_bytes([there[0], there[1]]);
        let none = transport.proto == UDP && there == 0;
        let short = field + 2 > transport.end || transport.end > bytes;
        if short || none || !same(there, fold(transport.pseudo)) {
            return None;
        }
        Some(Partial {
            field,
            covers: [transport.at, transport.end],
        })
    }

    /// The checksum over the parts of the frame, of any length, in order. A result of 0 is 0xffff, like in
    /// the kernel for both protocols. A pass over the packet.
    pub fn checksum<'p>(self, parts: impl IntoIterator<Item = &'p [u8]>) -> u16 {
        let [begin, end] = self.covers;
        let (mut at, mut total) = (0, 0);
        for part in parts {
            // The field is among these bytes and holds the pseudo-header's sum already.
            let covered = begin.max(at)..end.min(at + part.len());
            if !covered.is_empty() {
                let bytes = &part[covered.start - at..covered.end - at];
                let odd = (covered.start - begin) % 2 == 1;
                let folded = u64::from(fold(sum(bytes)));
                total += if odd {
                    u64::from((folded as u16).swap_bytes())
                } else {
                    folded
                };
            }
            at += part.len();
        }
        match !fold(total) {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Writes the checksum into the packet's first bytes. False if it was there already: one correct
    /// checksum of 65,536 equals the sum of the pseudo-header.
    pub fn write(self, first: &mut [u8], checksum: u16) -> bool {
        let Some(there) = first.get_mut(self.field..self.field + 2) else {
            return false;
        };
        let before = [there[0], there[1]];
        there.copy_from_slice(&checksum.to_ne_bytes());
        before != checksum.to_ne_bytes()
    }
}

/// Equal as ones' complement numbers, where 0 has two forms.
fn same(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
}

fn find(frame: &[u8]) -> Option<Transport> {
    match network::find(frame)? {
        Network::V4(at) => ipv4(frame, at),
        Network::V6(at) => ipv6(frame, at),
    }
}

fn ipv4(frame: &[u8], ip: usize) -> Option<Transport> {
    let header = usize::from(frame.get(ip)? & 0x0f) * 4;
    let total = usize::from(be16(frame, ip + 2)?);
    let fragment = be16(frame, ip + 6)? & 0x3fff;
    if frame[ip] >> 4 != 4 || header < 20 || total < header || fragment != 0 {
        return None;
    }
    let proto = *frame.get(ip + 9)?;
    Some(Transport {
        proto,
        at: ip + header,
        end: ip + total,
        pseudo: pseudo(frame.get(ip + 12..ip + 20)?, proto, total - header),
    })
}

fn ipv6(frame: &[u8], ip: usize) -> Option<Transport> {
    let end = ip + 40 + usize::from(be16(frame, ip + 4)?);
    let addresses = frame.get(ip + 8..ip + 40)?;
    let mut destination = &addresses[16..];
    let (mut at, mut next) = (ip + 40, *frame.get(ip + 6)?);
    for _ in 0..MAX_EXTENSIONS {
        let bytes = match next {
            0 | 60 => (usize::from(*frame.get(at + 1)?) + 1) * 8,
            43 => {
                let bytes = (usize::from(*frame.get(at + 1)?) + 1) * 8;
                destination = last_stop(frame.get(at..at + bytes)?).unwrap_or(destination);
                bytes
            }
            51 => (usize::from(*frame.get(at + 1)?) + 2) * 4,
            _ => break,
        };
        next = *frame.get(at)?;
        at += bytes;
    }
    let length = end.checked_sub(at)?;
    Some(Transport {
        proto: next,
        at,
        end,
        pseudo: sum(&addresses[..16]) + pseudo(destination, next, length),
    })
}

/// The final destination of a packet with a routing header, which is in the pseudo-header (RFC 8200
/// section 8.1). Types 0 and 2 have it last, type 4 (RFC 8754) first.
fn last_stop(header: &[u8]) -> Option<&[u8]> {
    if header[3] == 0 {
        return None;
    }
    match header[2] {
        0 | 2 => header.get(header.len().checked_sub(16).filter(|at| *at >= 8)?..),
        4 => header.get(8..24),
        _ => None,
    }
}

/// The sum of a pseudo-header.
fn pseudo(addresses: &[u8], proto: u8, length: usize) -> u64 {
    let be = |value: usize| u64::from((value as u16).to_be());
    sum(addresses) + be(usize::from(proto)) + be(length)
}

/// The ones' complement sum in the machine's order, which differs from the network's only by the
/// order of its bytes (RFC 1071 section 2). At most 64 KiB.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let whole: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    whole + u64::from(u32::from_ne_bytes(last))
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use fairpath_wire::ip::pseudo_header;
    use fairpath_wire::ipv6::Extension;
    use fairpath_wire::tcp::{Flags, Header};
    use fairpath_wire::{Frame, IpProto, ipv4, ipv6};

    use super::*;

    const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
    const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 2);

    /// True if the checksum was partial.
    fn complete(frame: &mut [u8]) -> bool {
        let Some(partial) = Partial::of(frame, frame.len()) else {
            return false;
        };
        let checksum = partial.checksum([&*frame]);
        partial.write(frame, checksum)
    }

    fn tcp() -> Header {
        Header {
            src_port: 40_000,
            dst_port: 443,
            seq: 12345,
            flags: Flags::ACK,
            ..Header::default()
        }
    }

    /// Bytes that differ, the same every time.
    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    /// As a stack leaves it: the transport header is at `at`, and reaches to `end`.
    fn partial(whole: &[u8], at: usize, end: usize, proto: IpProto) -> Vec<u8> {
        let v6 = whole.iter().skip(12).take(2).eq(&[0x86, 0xdd]);
        let (a, b) = match v6 {
            true => (IpAddr::V6(A6), IpAddr::V6(B6)),
            false => (IpAddr::V4(A4), IpAddr::V4(B4)),
        };
        let field = at + if proto == IpProto::TCP { 16 } else { 6 };
        let open = !pseudo_header(a, b, proto, end - at).finish();
        let mut frame = whole.to_vec();
        frame[field..field + 2].copy_from_slice(&open.to_be_bytes());
        frame
    }

    fn assert_completed(whole: &[u8], at: usize, end: usize, proto: IpProto) {
        let mut frame = partial(whole, at, end, proto);
        assert_ne!(frame, whole);
        assert!(complete(&mut frame));
        assert_eq!(frame, whole);
    }

    fn assert_untouched(frame: &[u8]) {
        let mut after = frame.to_vec();
        assert!(!complete(&mut after));
        assert_eq!(after, frame);
    }

    fn base() -> Frame {
        Frame::ethernet([2; 6], [4; 6])
    }

    #[test]
    fn partial_checksums_of_any_length_are_completed() {
        for len in (0..80).chain([511, 1447, 1448]) {
            let p = payload(len);
            let udp = |frame: Frame| frame.udp(53, 5353).payload(&p).build();
            let seg = |frame: Frame| frame.tcp(tcp()).payload(&p).build();
            let v4 = base().ipv4(A4, B4);
            let v6 = base().ipv6(A6, B6);
            assert_completed(&udp(v4.clone()), 34, 42 + len, IpProto::UDP);
            assert_completed(&udp(v6.clone()), 54, 62 + len, IpProto::UDP);
            assert_completed(&seg(v4), 34, 54 + len, IpProto::TCP);
            assert_completed(&seg(v6), 54, 74 + len, IpProto::TCP);
        }
    }

    #[test]
    fn checksums_over_several_parts_equal_those_over_one() {
        let p = payload(1001);
        let whole = base().ipv4(A4, B4).udp(1, 2).payload(&p).trailer(&[3; 7]);
        let whole = whole.build();
        let frame = partial(&whole, 34, 42 + p.len(), IpProto::UDP);
        for size in [60, 61, 333, 512, 1043, 2000] {
            let mut first = frame[..size.min(frame.len())].to_vec();
            let found = Partial::of(&first, frame.len()).unwrap();
            let checksum = found.checksum(frame.chunks(size));
            assert!(found.write(&mut first, checksum), "{size}");
            assert_eq!(first, whole[..first.len()], "{size}");
        }
        assert_eq!(Partial::of(&frame[..60], 42 + p.len() - 1), None, "cut");
    }

    #[test]
    fn padding_behind_the_packet_is_not_summed() {
        let whole = base()
            .ipv4(A4, B4)
            .udp(1, 2)
            .payload(&[9])
            .trailer(&[0xee; 17])
            .build();
        assert_completed(&whole, 34, 43, IpProto::UDP);
    }

    #[test]
    fn options_tags_and_extension_headers_are_walked_over() {
        let tagged = base().vlan(5).vlan(6).ipv4(A4, B4).tcp(tcp()).build();
        let mut frame = tagged.clone();
        let open = !pseudo_header(A4.into(), B4.into(), IpProto::TCP, 20).finish();
        frame[58..60].copy_from_slice(&open.to_be_bytes());
        assert!(complete(&mut frame));
        assert_eq!(frame, tagged);
        let mut ip = ipv6::Header::new(A6, B6);
        ip.extensions = vec![Extension::DestinationOptions(vec![1; 12])];
        let before = base().ipv6_header(ip.clone()).build().len();
        let whole = base().ipv6_header(ip).tcp(tcp()).payload(&[1, 2]).build();
        assert_completed(&whole, before, whole.len(), IpProto::TCP);
    }

    #[test]
    fn complete_or_missing_checksums_and_fragments_stay_unchanged() {
        assert_untouched(&base().ipv4(A4, B4).tcp(tcp()).payload(&payload(99)).build());
        assert_untouched(&base().ipv6(A6, B6).udp(1, 2).payload(&payload(99)).build());
        let mut none = base().ipv4(A4, B4).udp(1, 2).payload(&payload(9)).build();
        none[40..42].copy_from_slice(&[0, 0]);
        assert_untouched(&none);
        let mut ip = ipv4::Header::new(A4, B4);
        ip.more_fragments = true;
        let fragment = base()
            .ipv4_header(ip)
            .udp(1, 2)
            .payload(&payload(24))
            .build();
        assert_untouched(&partial(&fragment, 34, fragment.len(), IpProto::UDP));
        assert_untouched(&[0; 60]);
    }

    /// Chooses a payload with which the right checksum is the same as the open one.
    #[test]
    fn valid_checksums_that_look_partial_stay_valid() {
        let frame = |word: u16| {
            let frame = base().ipv4(A4, B4).udp(1, 2);
            frame.payload(&word.to_be_bytes()).build()
        };
        let looks_open = (0..=u16::MAX)
            .map(frame)
            .filter(|whole| *whole == partial(whole, 34, 44, IpProto::UDP));
        assert_eq!(
            looks_open.inspect(|frame| assert_untouched(frame)).count(),
            1
        );
    }

    #[test]
    fn wrong_checksums_stay_wrong() {
        let mut frame = base().ipv4(A4, B4).tcp(tcp()).payload(&payload(50)).build();
        frame[60] ^= 1;
        assert_untouched(&frame);
    }

    #[test]
    fn no_cut_of_a_frame_reads_beyond_it() {
        let mut ip = ipv6::Header::new(A6, B6);
        ip.extensions = vec![Extension::DestinationOptions(vec![1; 12])];
        let v6 = base().vlan(1).ipv6_header(ip).tcp(tcp()).payload(&[3; 9]);
        let v4 = base().ipv4(A4, B4).udp(1, 2).payload(&[3; 9]);
        for whole in [v6.build(), v4.build()] {
            for len in 0..whole.len() {
                assert_untouched(&whole[..len]);
            }
        }
    }

    #[test]
    fn zero_checksums_are_written_as_ones() {
        let mut whole = base().ipv4(A4, B4).udp(1, 2).payload(&[0, 0]).build();
        // The payload's word is chosen so that the sum over all is 0xffff.
        let checksum = [whole[40], whole[41]];
        whole[42..44].copy_from_slice(&checksum);
        let mut frame = partial(&whole, 34, 44, IpProto::UDP);
        assert!(complete(&mut frame));
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }
}
