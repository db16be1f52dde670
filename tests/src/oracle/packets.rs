//! Frames of every kind that the rule tables distinguish, from a seed.
//!
//! Each frame of [`frames`] reaches the first hook: the kernel's own checks before it are met. Those of [`refused`] fail one.

#![expect(
    missing_docs,
    reason = "names of protocols and fields describe themselves"
)]

use fairpath_rules::Family;
use fairpath_statistics::Random;
use fairpath_wire::checksum::checksum;

use super::pools::{
    Focus, HOSTS4, HOSTS6, ICMP, ICMP6, IN_MAC, LOCAL4, LOCAL6, MACS, NUMBERS, ODD4, ODD6, OPTIONS,
    OPTIONS6, OUT_MAC, OWN4, OWN6, PORTS, TOS, TTLS,
};

pub const ETH_IPV4: u16 = 0x0800;
pub const ETH_ARP: u16 = 0x0806;
pub const ETH_IPV6: u16 = 0x86dd;
const ETH_VLAN: u16 = 0x8100;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const ICMP_PROTOCOL: u8 = 1;
const DCCP: u8 = 33;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const AH: u8 = 51;
const ICMP6_PROTOCOL: u8 = 58;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION: u8 = 60;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
/// No match is specific to these; 255 has no assignment.
const OTHER_PROTOCOLS: [u8; 6] = [2, 4, 41, 47, 89, 255];

/// Lengths at which headers end, or at which matches test for their end.
const CUTS: [usize; 10] = [0, 1, 3, 4, 7, 8, 12, 13, 16, 19];

/// The hook that the frames go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// PREROUTING, and INPUT of ARP.
    Ingress,
    /// INPUT of IP: to this host, not in fragments, without options that routing rejects.
    Input,
}

/// Frames for the tables of `family`, which is not that of bridges; the same for the same seed.
pub fn frames(family: Family, toward: Toward, seed: u64, count: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let focus = Focus::of(seed);
    let mut one = || {
        let (ethertype, packet) = packet(&mut random, family, toward, focus);
        framed(&mut random, ethertype, &packet)
    };
    (0..count).map(|_| one()).collect()
}

/// A packet and its ethertype; for bridges one of the other families.
pub fn packet(random: &mut Random, family: Family, toward: Toward, focus: Focus) -> (u16, Vec<u8>) {
    match family {
        Family::Ipv4 => (ETH_IPV4, v4(random, toward, focus)),
        Family::Ipv6 => (ETH_IPV6, v6(random, toward, focus)),
        Family::Arp => (ETH_ARP, arp(random)),
        Family::Bridge => {
            let family = random.pick(&[Family::Ipv4, Family::Ipv4, Family::Ipv6, Family::Arp]);
            packet(random, family, toward, focus)
        }
    }
}

/// Ethernet, with a VLAN tag of priority only in one of ten frames, and bytes after the packet in some.
fn framed(random: &mut Random, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let to = match random.below(10) {
        0 => [0xff; 6],
        1 if ethertype == ETH_IPV6 => [0x33, 0x33, 0, 0, 0, 1],
        1 => [0x01, 0, 0x5e, 0, 0, 1],
        _ => IN_MAC,
    };
    let from = random.pick(&MACS[1..5]);
    let mut frame = [&to[..], &from].concat();
    if random.one_in(10) {
        frame.extend(ETH_VLAN.to_be_bytes());
        frame.extend([0xa0, 0]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    match random.below(6) {
        0 => frame.resize(frame.len().max(60), 0),
        1 => frame.resize(frame.len() + 7, 0x5a),
        _ => {}
    }
    frame
}

/// An Ethernet frame to `in0` without tag and padding.
pub fn plain(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&IN_MAC[..], &OUT_MAC, &ethertype.to_be_bytes(), packet].concat()
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.draw() as u8).collect()
}

fn port(random: &mut Random) -> [u8; 2] {
    random.pick(&PORTS).to_be_bytes()
}

/// A few bytes, rarely more.
fn payload(random: &mut Random) -> Vec<u8> {
    let len = match random.below(4) {
        0 => 0,
        1 => random.index(200),
        _ => random.index(32),
    };
    bytes(random, len)
}

/// A transport header with its payload, sometimes cut short, and its protocol.
fn segment(random: &mut Random, family: Family, focus: Focus) -> (u8, Vec<u8>) {
    let kind = match focus {
        _ if random.one_in(2) => random.below(16),
        Focus::Tcp => 0,
        Focus::Udp => 5,
        Focus::Icmp => 8,
        Focus::Sctp => 10,
        Focus::Dccp => 11,
        Focus::Ah => 13,
        Focus::Esp => 14,
        Focus::Extensions => random.below(16),
    };
    let (protocol, mut bytes) = match kind {
        0..5 => (TCP, tcp(random)),
        5..8 => (UDP, udp(random)),
        8 if family == Family::Ipv4 && !random.one_in(5) => (ICMP_PROTOCOL, icmp(random, &ICMP)),
        8 | 9 => (ICMP6_PROTOCOL, icmp(random, &ICMP6)),
        10 => (SCTP, sctp(random)),
        11 => (DCCP, dccp(random)),
        12 => (UDP_LITE, udp(random)),
        13 => (AH, authentication(random, TCP)),
        14 => (ESP, esp(random)),
        _ => (random.pick(&OTHER_PROTOCOLS), payload(random)),
    };
    match random.below(12) {
        0 => bytes.truncate(random.pick(&CUTS)),
        1 => bytes.truncate(random.index(bytes.len() + 1)),
        _ => {}
    }
    (protocol, bytes)
}

/// All flags, and options that are valid, cut short, of length 0 or beyond the header.
fn tcp(random: &mut Random) -> Vec<u8> {
    let mut options = match random.below(5) {
        0 => vec![2, 4, 5, 180, 4, 2, 1, 3, 3, 7, 0, 0],
        1 => vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
        2 => options(random),
        _ => Vec::new(),
    };
    options.truncate(40);
    options.resize(options.len().next_multiple_of(4), 0);
    let words = match random.below(12) {
        0 => random.below(16) as u8,
        _ => 5 + (options.len() / 4) as u8,
    };
    let flags = match random.below(3) {
        0 => random.draw() as u8,
        _ => random.pick(&[0x02, 0x12, 0x10, 0x18, 0x11, 0x04, 0x00, 0x3f, 0xc2]),
    };
    let reserved = if random.one_in(8) { 0x0f } else { 0 };
    let (from, to) = (port(random), port(random));
    let header = [&from[..], &to, &[0, 0, 0, 1, 0, 0, 0, 2]].concat();
    let rest = [words << 4 | reserved, flags, 0x10, 0, 0xab, 0xcd, 0, 0];
    [header, rest.to_vec(), options, payload(random)].concat()
}

/// Kinds, lengths and values; one in four lengths is wrong.
fn options(random: &mut Random) -> Vec<u8> {
    let mut options = Vec::new();
    for _ in 0..random.below(5) {
        let kind = random.pick(&OPTIONS);
        options.push(kind);
        if kind == 1 {
            continue;
        }
        let len = random.index(6);
        let stated = match random.below(4) {
            0 => random.below(60) as u8,
            _ => len as u8 + 2,
        };
        options.push(stated);
        options.extend(bytes(random, len));
    }
    options
}

fn udp(random: &mut Random) -> Vec<u8> {
    let (from, to, data) = (port(random), port(random), payload(random));
    let len = (8 + data.len() as u16).to_be_bytes();
    [&from[..], &to, &len, &[0, 0], &data].concat()
}

fn icmp(random: &mut Random, kinds: &[(u8, u8)]) -> Vec<u8> {
    let (kind, code) = random.pick(kinds);
    let mut message = vec![kind, code, 0, 0, 0, 1, 0, 1];
    message.extend(payload(random));
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Chunks with flags and data; lengths are sometimes 0, too small or beyond the packet.
fn sctp(random: &mut Random) -> Vec<u8> {
    let (from, to) = (port(random), port(random));
    let mut packet = [&from[..], &to, &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    for _ in 0..random.below(5) {
        let kind = random.pick(&[0, 0, 1, 2, 3, 6, 7, 14, 192]);
        let flags = random.pick(&[0, 1, 3, 4, 7]);
        let data = random.index(12);
        let len = match random.below(10) {
            0 => random.pick(&[0, 1, 3, 400]),
            _ => 4 + data as u16,
        };
        packet.extend([kind, flags]);
        packet.extend(len.to_be_bytes());
        packet.extend(bytes(random, data.next_multiple_of(4)));
    }
    packet
}

/// Generic header of 16 bytes, type, options.
fn dccp(random: &mut Random) -> Vec<u8> {
    let mut options = match random.below(3) {
        0 => Vec::new(),
        _ => options(random),
    };
    options.resize(options.len().next_multiple_of(4), 0);
    let words = match random.below(10) {
        0 => random.below(12) as u8,
        _ => 4 + (options.len() / 4) as u8,
    };
    let kind = (random.below(11) as u8) << 1 | 1;
    let (from, to) = (port(random), port(random));
    let header = [&from[..], &to, &[words, 0, 0, 0, kind, 0, 0, 0]].concat();
    [header, vec![0, 0, 0, 1], options, payload(random)].concat()
}

fn number(random: &mut Random) -> [u8; 4] {
    random.pick(&NUMBERS).to_be_bytes()
}

/// An authentication header, `next` after it.
fn authentication(random: &mut Random, next: u8) -> Vec<u8> {
    let value = random.pick(&[0, 1, 3]);
    let reserved = if random.one_in(8) { 1 } else { 0 };
    let spi = number(random);
    let header = [&[next, 1 + value, 0, reserved][..], &spi, &[0, 0, 0, 1]].concat();
    let value = bytes(random, usize::from(value) * 4);
    [header, value, tcp(random)].concat()
}

fn esp(random: &mut Random) -> Vec<u8> {
    let spi = number(random);
    [&spi[..], &[0, 0, 0, 1], &payload(random)].concat()
}

/// The fields of an IPv4 header that tests choose.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    pub from: [u8; 4],
    pub to: [u8; 4],
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    /// Flags and offset in units of 8 bytes.
    pub fragment: u16,
    /// Of a length that is a multiple of 4.
    pub options: &'a [u8],
}

impl Ipv4<'_> {
    pub const MORE: u16 = 0x2000;

    pub fn new(protocol: u8) -> Ipv4<'static> {
        Ipv4 {
            from: HOSTS4[0],
            to: OWN4,
            protocol,
            tos: 0,
            ttl: 64,
            fragment: 0,
            options: &[],
        }
    }

    /// The packet, with a valid checksum.
    pub fn packet(&self, data: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let len = ((header + data.len()) as u16).to_be_bytes();
        let fragment = self.fragment.to_be_bytes();
        let first = [0x40 | (header / 4) as u8, self.tos];
        let middle = [self.ttl, self.protocol, 0, 0];
        let mut packet = [&first[..], &len, &[0x12, 0x34], &fragment, &middle].concat();
        packet.extend([self.from, self.to].concat());
        packet.extend(self.options);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(data);
        packet
    }
}

fn v4(random: &mut Random, toward: Toward, focus: Focus) -> Vec<u8> {
    let ingress = toward == Toward::Ingress;
    let (protocol, data) = segment(random, Family::Ipv4, focus);
    let (mut from, mut to) = (random.pick(&HOSTS4), random.pick(&LOCAL4));
    let mut options = Vec::new();
    let mut fragment = random.pick(&[0, 0, 0x4000]);
    if ingress {
        if random.one_in(3) {
            from = random.pick(&ODD4);
        }
        to = match random.below(4) {
            0 => random.pick(&ODD4),
            1 => random.pick(&HOSTS4),
            _ => OWN4,
        };
        fragment = match random.below(12) {
            0 => Ipv4::MORE,
            1 => random.pick(&[1, Ipv4::MORE | 1]),
            2 => random.pick(&[2, 100, Ipv4::MORE | 185]),
            3 => 0x8000,
            _ => fragment,
        };
        if random.one_in(6) {
            options = v4_options(random);
        }
    } else if random.one_in(6) {
        options = vec![1; 4 * (1 + random.index(3))];
    }
    Ipv4 {
        from,
        to,
        protocol,
        tos: random.pick(&TOS),
        ttl: random.pick(&TTLS),
        fragment,
        options: &options,
    }
    .packet(&data)
}

/// Router alert, record route, no operation, and bytes without meaning.
fn v4_options(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => vec![148, 4, 0, 0],
        1 => vec![7, 7, 4, 0, 0, 0, 0, 0],
        2 => vec![1; 4 * (1 + random.index(10))],
        _ => {
            let words = 1 + random.index(10);
            bytes(random, 4 * words)
        }
    }
}

fn address6(words: [u16; 8]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An IPv6 packet from the first host to `in0`; `next` is the protocol of `data`.
pub fn v6_packet(next: u8, data: &[u8]) -> Vec<u8> {
    v6_with((HOSTS6[0], OWN6), (0, 64), next, data)
}

/// An IPv6 packet with addresses, traffic class and hop limit.
pub fn v6_with(
    (from, to): ([u16; 8], [u16; 8]),
    (class, limit): (u8, u8),
    next: u8,
    data: &[u8],
) -> Vec<u8> {
    let first = [0x60 | class >> 4, class << 4, 0, 0];
    let len = (data.len() as u16).to_be_bytes();
    let header = [&first[..], &len, &[next, limit]].concat();
    [header, address6(from), address6(to), data.to_vec()].concat()
}

fn v6(random: &mut Random, toward: Toward, focus: Focus) -> Vec<u8> {
    let addresses = match toward {
        Toward::Ingress => {
            let own = random.one_in(12);
            let from = if own { OWN6 } else { random.pick(&HOSTS6) };
            let to = match random.below(4) {
                0 => random.pick(&ODD6),
                1 => random.pick(&HOSTS6),
                _ => OWN6,
            };
            (from, to)
        }
        Toward::Input => (random.pick(&HOSTS6), random.pick(&LOCAL6)),
    };
    let (mut next, mut data) = segment(random, Family::Ipv6, focus);
    if random.one_in(12) {
        (next, data) = (NO_NEXT_HEADER, payload(random));
    }
    // From the last header to the first.
    let headers = match focus {
        Focus::Extensions => random.below(5),
        _ => random.below(8).saturating_sub(3),
    };
    for _ in 0..headers {
        let (kind, mut header) = extension(random, next);
        header.append(&mut data);
        (next, data) = (kind, header);
    }
    if random.one_in(12) {
        data.truncate(random.index(data.len().min(48) + 1));
    }
    if random.one_in(if focus == Focus::Extensions { 3 } else { 8 }) {
        let mut header = hop_by_hop(random, next);
        header.append(&mut data);
        (next, data) = (0, header);
    } else if next == 0 {
        // The kernel reads a hop-by-hop header in front, and would refuse most others.
        next = NO_NEXT_HEADER;
    }
    let limits = (random.pick(&TOS), random.pick(&TTLS));
    v6_with(addresses, limits, next, &data)
}

/// Any extension header, and its number.
fn extension(random: &mut Random, next: u8) -> (u8, Vec<u8>) {
    match random.below(10) {
        0 => (0, with_options(random, next)),
        1..4 => (DESTINATION, with_options(random, next)),
        4..6 => (ROUTING, routing(random, next)),
        6..9 => (FRAGMENT, fragment_header(random, next)),
        _ => {
            let value = random.pick(&[0, 2]);
            let mut header = vec![next, 1 + value, 0, 0];
            header.extend(number(random));
            header.extend(bytes(random, 4 + 4 * usize::from(value)));
            (AH, header)
        }
    }
}

/// A header of options, whose length may be wrong.
fn with_options(random: &mut Random, next: u8) -> Vec<u8> {
    let mut header = hop_by_hop(random, next);
    if random.one_in(8) {
        header[1] = random.below(6) as u8;
    }
    if random.one_in(8) {
        header[2] = random.pick(&OPTIONS6);
        header[3] = random.below(12) as u8;
    }
    header
}

/// A header of options that the kernel accepts in front.
fn hop_by_hop(random: &mut Random, next: u8) -> Vec<u8> {
    let mut options = Vec::new();
    for _ in 0..random.below(4) {
        match random.pick(&OPTIONS6) {
            5 => options.extend([5, 2, 0, 0]),
            // PadN; of zeros, and at most 7 bytes with its neighbours.
            1 => options.extend([1, 1, 0, 0x1e, 0]),
            kind => {
                let len = random.index(5);
                options.extend([kind, len as u8]);
                options.extend(bytes(random, len));
            }
        }
    }
    let header = (2 + options.len()).next_multiple_of(8);
    let pad = header - 2 - options.len();
    match pad {
        0 => {}
        1 => options.push(0),
        _ => {
            options.extend([1, pad as u8 - 2]);
            options.resize(header - 2, 0);
        }
    }
    [vec![next, (header / 8 - 1) as u8], options].concat()
}

fn routing(random: &mut Random, next: u8) -> Vec<u8> {
    let addresses = random.index(4);
    let len = match random.below(8) {
        0 => random.below(8) as u8,
        _ => 2 * addresses as u8,
    };
    let kind = random.pick(&[0, 0, 2, 4, 9]);
    let left = random.below(4) as u8;
    let reserved = if random.one_in(4) { 1 } else { 0 };
    let mut header = vec![next, len, kind, left, 0, 0, 0, reserved];
    for _ in 0..addresses {
        header.extend(address6(random.pick(&HOSTS6)));
    }
    header
}

fn fragment_header(random: &mut Random, next: u8) -> Vec<u8> {
    let offset = random.pick(&[0u16, 0, 0, 1, 2, 185]);
    let reserved = if random.one_in(6) { 6 } else { 0 };
    let more = random.below(2) as u16;
    let field = (offset << 3 | reserved | more).to_be_bytes();
    let first = [next, if random.one_in(6) { 1 } else { 0 }];
    let identification = number(random);
    [&first[..], &field, &identification].concat()
}

/// An ARP packet of Ethernet and IPv4, with these types.
fn arp_packet(random: &mut Random, hardware: u16, protocol: u16, lengths: [u8; 2]) -> Vec<u8> {
    let operation: u16 = random.pick(&[1, 1, 1, 2, 2, 3, 4, 8, 9, 0, 10, 257]);
    let mut any4 = || match random.one_in(4) {
        true => random.pick(&ODD4),
        false => random.pick(&HOSTS4),
    };
    let from = any4();
    // The same address in both places is a gratuitous announcement.
    let to = [from, any4(), OWN4];
    let to = random.pick(&to);
    let mut packet = [hardware.to_be_bytes(), protocol.to_be_bytes(), lengths].concat();
    packet.extend(operation.to_be_bytes());
    packet.extend(random.pick(&MACS));
    packet.extend(from);
    packet.extend(random.pick(&MACS));
    packet.extend(to);
    packet
}

fn arp(random: &mut Random) -> Vec<u8> {
    let hardware = random.pick(&[1, 1, 1, 1, 6, 0, 0x0101, 0xffff]);
    let protocol = random.pick(&[0x0800, 0x0800, 0x0800, 0x86dd, 0, 0x0806]);
    arp_packet(random, hardware, protocol, [6, 4])
}

/// Frames that the kernel drops, or passes elsewhere, before the first hook, with the reason. A bridge drops none of them.
pub fn refused(family: Family) -> Vec<(&'static str, Vec<u8>)> {
    let (ethertype, packet) = match family {
        Family::Ipv4 => (ETH_IPV4, Ipv4::new(UDP).packet(&[0, 1, 0, 1, 0, 8, 0, 0])),
        Family::Ipv6 => (ETH_IPV6, v6_packet(UDP, &[0, 1, 0, 1, 0, 8, 0, 0])),
        Family::Arp => {
            let packet = arp_packet(&mut Random::new(0), 1, ETH_IPV4, [6, 4]);
            (ETH_ARP, packet)
        }
        Family::Bridge => return Vec::new(),
    };
    let frame = plain(ethertype, &packet);
    let mut other_host = frame.clone();
    other_host[..6].copy_from_slice(&MACS[2]);
    let mut frames = vec![
        ("another host's", other_host),
        ("ethertype", plain(0x88b5, &packet)),
        (
            "VLAN",
            [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat(),
        ),
        ("one byte short", frame[..frame.len() - 1].to_vec()),
        ("header cut", frame[..14 + 19].to_vec()),
    ];
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[14 + at] = byte;
        frame
    };
    match family {
        Family::Ipv4 => frames.extend([
            ("checksum", changed(8, 63)),
            ("version", changed(0, 0x55)),
            ("header length", changed(0, 0x44)),
            ("total length", changed(3, 29)),
            ("total length below the header's", changed(3, 19)),
        ]),
        Family::Ipv6 => {
            let unknown = [UDP, 0, 0x5e, 0, 1, 2, 0, 0];
            let beyond = [UDP, 0, 0x1e, 9, 1, 2, 0, 0];
            let mut loopback = changed(8, 0);
            loopback[22..38].copy_from_slice(&address6([0, 0, 0, 0, 0, 0, 0, 1]));
            frames.extend([
                ("version", changed(0, 0x40)),
                ("payload length", changed(5, 9)),
                ("multicast source", changed(8, 0xff)),
                ("loopback source", loopback),
                (
                    "unknown hop-by-hop option",
                    plain(ethertype, &v6_packet(0, &unknown)),
                ),
                (
                    "hop-by-hop option beyond its header",
                    plain(ethertype, &v6_packet(0, &beyond)),
                ),
            ]);
        }
        Family::Arp | Family::Bridge => frames.extend([
            ("hardware length", changed(4, 8)),
            ("protocol length", changed(5, 16)),
        ]),
    }
    frames
}
