//! The length of a packet: its header claims one, its frame has another (docs/design/0002).
//!
//! A sender writes the header. If Fairpath believed it, 42 bytes would count as 65,535, for whichever
//! subscriber the header names. The oracle reads a frame byte by byte and knows one rule: no packet
//! is longer than its frame was on the wire.

use fairpath_core::sched::{Classifier, End};
use fairpath_core::{ClassReading, Config, Frame, Link, Monitor, Prefix, Rules, Stats, UP};
use fairpath_units::test_seeds;
use fairpath_wire::tcp::{Flags, Header};
use fairpath_wire::{Frame as Packet, MacAddr};

#[path = "traffic/mod.rs"]
mod traffic;
use traffic::{MS, Random, SECOND};

const HEAD_BYTES: usize = 192;
const MAX_IP_BYTES: u64 = 1 << 20;
const SLOT: u32 = 3;
const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [198, 51, 100, 7];
const HOST6: &str = "2001:db8::1";
const SERVER6: &str = "2001:db8:1::7";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Measured,
    NotIp,
    Truncated,
    Malformed,
    Fragment,
    Other,
}

/// The expected result for a frame: the outcome, and the bytes that count for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found(Outcome, u64);

/// The bytes of a frame that are shown, and how many it has.
struct Shown<'a> {
    bytes: &'a [u8],
    wire: usize,
}

impl Shown<'_> {
    /// A byte, or why there is none.
    fn at(&self, at: usize) -> Result<usize, Outcome> {
        match self.bytes.get(at) {
            Some(byte) => Ok(usize::from(*byte)),
            None if self.bytes.len() < self.wire => Err(Outcome::Truncated),
            None => Err(Outcome::Malformed),
        }
    }

    fn pair(&self, at: usize) -> Result<usize, Outcome> {
        Ok(self.at(at)? << 8 | self.at(at + 1)?)
    }
}

/// The network header: its position and version.
fn network(f: &Shown<'_>) -> Result<(usize, u8), Outcome> {
    f.at(13)?;
    let (mut kind, mut at, mut tags) = (f.pair(12)?, 14, 0);
    while [0x8100, 0x88a8, 0x9100].contains(&kind) && tags < 4 {
        kind = f.pair(at + 2)?;
        (at, tags) = (at + 4, tags + 1);
    }
    if kind == 0x8864 {
        f.at(at + 7)?;
        let first = f.at(at + 6)?;
        (kind, at) = match first % 2 {
            1 => (first, at + 7),
            _ => (f.pair(at + 6)?, at + 8),
        };
        kind = match kind {
            0x21 => 0x800,
            0x57 => 0x86dd,
            _ => 0,
        };
    }
    match kind {
        0x800 => Ok((at, 4)),
        0x86dd => Ok((at, 6)),
        _ => Err(Outcome::NotIp),
    }
}

/// The rest of a packet after its network header: protocol, position, bytes to its end.
fn transport(f: &Shown<'_>, protocol: usize, at: usize, left: usize) -> Result<Outcome, Outcome> {
    let need = match protocol {
        6 => 20,
        1 | 58 => 8,
        _ => return Ok(Outcome::Other),
    };
    if left < need {
        return Err(Outcome::Malformed);
    }
    f.at(at + need - 1)?;
    if protocol == 6 {
        let header = (f.at(at + 12)? >> 4) * 4;
        return match header >= 20 && header <= left {
            true => Ok(Outcome::Measured),
            false => Err(Outcome::Malformed),
        };
    }
    let echo = [(1, 8), (1, 0), (58, 128), (58, 129)].contains(&(protocol, f.at(at)?));
    Ok(match echo && f.at(at + 1)? == 0 {
        true => Outcome::Measured,
        false => Outcome::Other,
    })
}

fn oracle(data: &[u8], wire: usize) -> Found {
    let shown = Shown {
        bytes: &data[..data.len().min(HEAD_BYTES)],
        wire: wire.max(data.len().min(HEAD_BYTES)),
    };
    let (ip, version) = match network(&shown) {
        Ok(found) => found,
        Err(outcome) => return Found(outcome, 0),
    };
    let minimum = if version == 4 { 20 } else { 40 };
    if let Err(outcome) = shown.at(ip + minimum - 1) {
        return Found(outcome, 0);
    }
    let (byte, pair) = (|at| shown.at(at).unwrap(), |at| shown.pair(at).unwrap());
    let header = match version {
        4 => (byte(ip) & 15) * 4,
        _ => 40,
    };
    if byte(ip) >> 4 != usize::from(version) || header < minimum {
        return Found(Outcome::Malformed, 0);
    }
    let room = shown.wire - ip;
    let total = match (version, pair(ip + if version == 4 { 2 } else { 4 })) {
        (_, 0) => room,
        (4, claimed) => claimed,
        (_, claimed) => claimed + 40,
    };
    let most = MAX_IP_BYTES + if version == 4 { 0 } else { 40 };
    if total < header || total > room || total as u64 > most {
        return Found(Outcome::Malformed, (room as u64).min(MAX_IP_BYTES));
    }
    let (protocol, later) = match version {
        4 => (byte(ip + 9), pair(ip + 6) & 0x1fff != 0),
        _ => (byte(ip + 6), false),
    };
    let outcome = match later {
        true => Outcome::Fragment,
        false => match transport(&shown, protocol, ip + header, total - header) {
            Ok(outcome) | Err(outcome) => outcome,
        },
    };
    Found(outcome, total as u64)
}

fn rules() -> Rules {
    Rules {
        prefixes: vec![
            (Prefix::new(HOST.into(), 32), SLOT),
            (Prefix::new(HOST6.parse().unwrap(), 128), SLOT),
        ],
        ..Rules::default()
    }
}

fn frame(now: u64, wire_len: usize, segs: u32) -> Frame {
    Frame {
        now,
        wire_len: u32::try_from(wire_len).unwrap_or(u32::MAX),
        segs,
        link: Link::Ethernet as u16,
        ..Frame::default()
    }
}

struct Bench {
    monitor: Monitor,
    now: u64,
}

impl Bench {
    fn new() -> Bench {
        let mut monitor = Monitor::new(&Config::default().with_flows(256).with_classes(10));
        monitor.set_rules(&rules(), &[]).unwrap();
        Bench {
            monitor,
            now: SECOND,
        }
    }

    fn bytes(&mut self) -> u64 {
        let mut reading = ClassReading::default();
        self.monitor.read_classes(&mut reading);
        reading.counts[SLOT as usize].dir[UP].bytes
    }

    /// The result of the core for the frame.
    fn found(&mut self, data: &[u8], wire: usize) -> Found {
        let (was, before) = (self.bytes(), self.monitor.stats());
        self.now += MS;
        self.monitor.frame(&frame(self.now, wire, 1), data, |_| {});
        let after = self.monitor.stats();
        let measured = |s: &Stats| s.tcp_packets + s.echo_packets + s.second_hook_packets;
        let more = [
            (Outcome::Measured, measured(&after) - measured(&before)),
            (Outcome::NotIp, after.not_ip - before.not_ip),
            (Outcome::Truncated, after.truncated - before.truncated),
            (Outcome::Malformed, after.malformed - before.malformed),
            (Outcome::Fragment, after.fragments - before.fragments),
            (Outcome::Other, after.other_protocol - before.other_protocol),
        ];
        let counted: Vec<_> = more.into_iter().filter(|(_, more)| *more > 0).collect();
        let [(outcome, 1)] = counted[..] else {
            panic!("one frame has one outcome: {counted:?}")
        };
        Found(outcome, self.bytes() - was)
    }
}

fn ethernet() -> Packet {
    Packet::ethernet(MacAddr::local(1), MacAddr::local(2))
}

fn tcp() -> Header {
    Header {
        src_port: 4000,
        dst_port: 443,
        flags: Flags::ACK,
        ..Header::default()
    }
}

/// Sets the length field of the IP header at `ip`.
fn claim(data: &mut [u8], ip: usize, bytes: u16) {
    let at = if data[ip] >> 4 == 4 { ip + 2 } else { ip + 4 };
    data[at..at + 2].copy_from_slice(&bytes.to_be_bytes());
}

/// The finding: 10,000 frames of 42 bytes, each with a header that claims 65,535.
#[test]
fn ten_thousand_forged_frames_count_their_real_bytes() {
    let mut forged = ethernet()
        .ipv4(HOST.into(), SERVER.into())
        .udp(1, 2)
        .build();
    assert_eq!(forged.len(), 42);
    claim(&mut forged, 14, u16::MAX);
    let mut bench = Bench::new();
    for number in 0..10_000 {
        let frame = frame(SECOND + number, forged.len(), 1);
        bench.monitor.frame(&frame, &forged, |_| {});
    }
    assert_eq!(bench.bytes(), 10_000 * 28);
    assert_eq!(bench.monitor.stats().malformed, 10_000);
}

/// A malformed packet keeps its class and its bytes in a shaper: neither gains by it.
#[test]
fn forged_frame_stays_in_class_of_its_sender() {
    let mut classifier = Classifier::new(10);
    classifier.set_rules(&rules()).unwrap();
    for bytes in [0, 19, 28, 29, u16::MAX] {
        let mut data = ethernet()
            .ipv4(HOST.into(), SERVER.into())
            .udp(1, 2)
            .build();
        claim(&mut data, 14, bytes);
        let (meta, whole) = classifier.look(&frame(1, data.len(), 1), &data, End::Sender);
        assert_eq!((meta.class_id, meta.bytes), (SLOT, 42), "{bytes}");
        assert_eq!(whole, bytes == 0 || bytes == 28, "{bytes}");
    }
}

/// By hand, so that an error that core and oracle share is visible.
#[test]
fn the_original_length_decides_at_every_limit() {
    use Outcome::{Malformed, Measured, Truncated};
    let v4 = ethernet()
        .ipv4(HOST.into(), SERVER.into())
        .tcp(tcp())
        .build();
    let v6 = ethernet()
        .ipv6(HOST6.parse().unwrap(), SERVER6.parse().unwrap())
        .tcp(tcp())
        .build();
    let mut bench = Bench::new();
    // Claimed by the header, on the wire, captured; found.
    let cases = [
        (40, 54, 54, Found(Measured, 40)),
        // A frame padded to 60 bytes, or with a trailer, is longer than its packet.
        (40, 60, 54, Found(Measured, 40)),
        (40, 1514, 54, Found(Measured, 40)),
        (41, 54, 54, Found(Malformed, 40)),
        // Of a frame of 1,514 bytes 54 were captured, or 40.
        (1500, 1514, 54, Found(Measured, 1500)),
        (1501, 1514, 54, Found(Malformed, 1500)),
        (1500, 1514, 40, Found(Truncated, 1500)),
        (1501, 1514, 40, Found(Malformed, 1500)),
        (1500, 1514, 33, Found(Truncated, 0)),
        (1500, 33, 33, Found(Malformed, 0)),
        // GSO.
        (65_535, 65_549, 54, Found(Measured, 65_535)),
        (65_535, 65_548, 54, Found(Malformed, 65_534)),
        // BIG TCP, and captures of a sender that offloads.
        (0, 65_550, 54, Found(Measured, 65_536)),
        (0, 524_288 + 14, 54, Found(Measured, 524_288)),
        (0, 54, 54, Found(Measured, 40)),
        (0, usize::MAX, 54, Found(Malformed, MAX_IP_BYTES)),
        // A header that is larger than its packet.
        (19, 54, 54, Found(Malformed, 40)),
        (20, 54, 54, Found(Malformed, 20)),
        (39, 54, 54, Found(Malformed, 39)),
        // A capture that has more bytes than it claims.
        (40, 0, 54, Found(Measured, 40)),
        (41, 20, 54, Found(Malformed, 40)),
    ];
    for (claimed, wire, captured, expected) in cases {
        let mut data = v4.clone();
        claim(&mut data, 14, claimed);
        let data = &data[..captured];
        let what = format!("{claimed} claimed, {wire} on the wire, {captured} captured");
        assert_eq!(bench.found(data, wire), expected, "{what}");
        assert_eq!(oracle(data, wire), expected, "oracle: {what}");
    }
    let cases = [
        (20, 74, 74, Found(Measured, 60)),
        (20, 80, 74, Found(Measured, 60)),
        (21, 74, 74, Found(Malformed, 60)),
        (65_535, 74, 74, Found(Malformed, 60)),
        (65_535, 65_589, 74, Found(Measured, 65_575)),
        (65_535, 65_588, 74, Found(Malformed, 65_574)),
        (0, 65_590, 74, Found(Measured, 65_576)),
        (0, 74, 74, Found(Measured, 60)),
        (19, 74, 74, Found(Malformed, 59)),
        (1460, 1514, 60, Found(Truncated, 1500)),
        (1460, 60, 60, Found(Malformed, 46)),
        (1460, 53, 53, Found(Malformed, 0)),
    ];
    for (claimed, wire, captured, expected) in cases {
        let mut data = v6.clone();
        claim(&mut data, 14, claimed);
        let data = &data[..captured];
        let what = format!("IPv6: {claimed} claimed, {wire} on the wire, {captured} captured");
        assert_eq!(bench.found(data, wire), expected, "{what}");
        assert_eq!(oracle(data, wire), expected, "oracle: {what}");
    }
}

/// PPPoE with the protocol field in one byte, as after negotiated compression (RFC 1661).
fn pppoe_compressed(version: u8, inner: &[u8]) -> Vec<u8> {
    let mut data = ethernet().build();
    data[12..14].copy_from_slice(&[0x88, 0x64]);
    let length = u16::try_from(inner.len() + 1).unwrap().to_be_bytes();
    let protocol = if version == 4 { 0x21 } else { 0x57 };
    data.extend([0x11, 0, 0, 1, length[0], length[1], protocol]);
    data.extend(inner);
    data
}

#[test]
fn pppoe_with_a_compressed_protocol_field_is_read() {
    let v4 = Packet::raw().ipv4(HOST.into(), SERVER.into());
    let v6 = Packet::raw().ipv6(HOST6.parse().unwrap(), SERVER6.parse().unwrap());
    for (version, inner) in [(4, v4), (6, v6)] {
        let inner = inner.tcp(tcp()).zeros(33).build();
        let data = pppoe_compressed(version, &inner);
        let found = Bench::new().found(&data, data.len());
        assert_eq!(found, Found(Outcome::Measured, inner.len() as u64));
    }
    let mut lcp = pppoe_compressed(4, &[0; 40]);
    lcp[20] = 0xc1;
    assert_eq!(
        Bench::new().found(&lcp, lcp.len()),
        Found(Outcome::NotIp, 0)
    );
}

/// A packet of any kind within any link header, and where its IP header is.
fn any_packet(random: &mut Random) -> (Vec<u8>, usize) {
    let mut packet = ethernet();
    let tags = random.pick(&[0, 0, 0, 1, 2, 4]);
    for tag in 0..tags {
        packet = packet.vlan(tag + 1);
    }
    let pppoe = random.chance(200);
    if pppoe {
        packet = packet.pppoe(1);
    }
    let compressed = tags == 0 && !pppoe && random.chance(200);
    if compressed {
        packet = Packet::raw();
    }
    let v4 = random.chance(500);
    packet = match v4 {
        true => packet.ipv4(HOST.into(), SERVER.into()),
        false => packet.ipv6(HOST6.parse().unwrap(), SERVER6.parse().unwrap()),
    };
    packet = match random.chance(700) {
        true => packet.tcp(tcp()),
        false => packet.udp(1, 2),
    };
    let data = packet.zeros(random.pick(&[0, 0, 1, 6, 100, 1400])).build();
    match compressed {
        true => (pppoe_compressed(if v4 { 4 } else { 6 }, &data), 21),
        false => (data, 14 + 4 * usize::from(tags) + if pppoe { 8 } else { 0 }),
    }
}

/// Structured: only what lengths depend on is changed, and to values near a limit.
#[test]
fn any_lengths_are_those_of_the_oracle() {
    let (mut seen, mut checked) = (Vec::new(), 0);
    for seed in test_seeds(40) {
        let mut random = Random::new(seed);
        let mut bench = Bench::new();
        for _ in 0..2_000 {
            let (mut data, ip) = any_packet(&mut random);
            let whole = data.len();
            let near = (whole - ip) as i64 + random.pick(&[-41, -40, -39, -1, 0, 1, 40]);
            let claimed = random.pick(&[near, near, 0, 1, 19, 20, 39, 40, 0xfffe, 0xffff]);
            if random.chance(600) {
                claim(&mut data, ip, claimed.clamp(0, 0xffff) as u16);
            }
            if random.chance(200) && data[ip] >> 4 == 4 {
                data[ip] = 0x40 | random.within(0, 16) as u8;
            }
            if random.chance(100) && data[ip] >> 4 == 4 {
                data[ip + 6] = random.pick(&[0x20, 0x1f, 0]);
            }
            if random.chance(200) {
                let at = ip + if data[ip] >> 4 == 4 { 32 } else { 52 };
                data[at.min(whole - 1)] = (random.within(0, 16) << 4) as u8;
            }
            let padded = random.pick(&[0, 0, 6, 100]);
            let wire = random.pick(&[
                whole + padded,
                whole + padded,
                whole - 1,
                0,
                65_535,
                65_535 + ip,
                65_536 + ip,
                ip + MAX_IP_BYTES as usize,
                ip + MAX_IP_BYTES as usize + 1,
                u32::MAX as usize,
            ]);
            if random.chance(20) {
                // ARP, or the discovery of PPPoE.
                data[12..14].copy_from_slice(&random.pick(&[[8, 6], [0x88, 0x63]]));
            }
            if random.chance(300) {
                data.truncate(random.within(0, whole as u64 + 1) as usize);
            }
            let expected = oracle(&data, wire);
            let what = format!(
                "seed {seed}: {wire} on the wire, {:x?}",
                &data[..data.len().min(80)]
            );
            assert_eq!(bench.found(&data, wire), expected, "{what}");
            assert!(expected.1 <= wire.max(data.len()) as u64, "{what}");
            if !seen.contains(&expected.0) {
                seen.push(expected.0);
            }
            checked += 1;
        }
    }
    assert!(checked < 80_000 || seen.len() == 6, "{seen:?}");
}

/// Bytes that wait in a flow: more than 32 bits within the second that they may wait.
#[test]
fn pending_bytes_of_a_flow_do_not_wrap() {
    const BYTES: usize = 500_000;
    let mut data = ethernet()
        .ipv4(HOST.into(), SERVER.into())
        .tcp(Header { seq: 1, ..tcp() })
        .build();
    claim(&mut data, 14, 0);
    // Data of an established flow, SYNs of one that never is, and the same packet at a second hook.
    for (flags, ifindex) in [(Flags::ACK, 0), (Flags::SYN, 0), (Flags::ACK, 2)] {
        data[14 + 20 + 13] = flags.0 as u8;
        let mut bench = Bench::new();
        bench.monitor.frame(&frame(SECOND, 54, 1), &data, |_| {});
        for number in 0..10_000 {
            let frame = Frame {
                ifindex,
                ..frame(SECOND + number, BYTES + 14, 1)
            };
            bench.monitor.frame(&frame, &data, |_| {});
        }
        bench.monitor.expire(SECOND << 20, 4096, |_| {});
        let mut reading = ClassReading::default();
        bench.monitor.read_classes(&mut reading);
        let talkers: u64 = reading
            .pairs
            .iter()
            .filter(|pair| pair.kind == fairpath_core::PairKind::Talker)
            .map(|pair| pair.bytes_up)
            .sum();
        let volume = reading.counts[SLOT as usize].dir[UP].bytes;
        assert!(volume > u64::from(u32::MAX), "{volume}");
        assert_eq!(talkers, volume, "{flags:?}, interface {ifindex}");
    }
}
