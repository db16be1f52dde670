//! Frames before and behind the forwarder, byte by byte, from captures on both sides.

use std::collections::BTreeMap;

use fairpath_testbed::{
    Capture, CaptureOptions, Direction, Iperf3, Iperf3Server, Need, Netns, Offloads, requires,
};
use fairpath_wire::IpProto;
use fairpath_wire::capture::Reader;
use fairpath_wire::ip::pseudo_header;

use crate::bridge::{Bridge, SERVER, SERVER6};
use crate::jumbo::JUMBO;

/// Maximum of bytes of a captured frame: whole ones.
const SNAPLEN: u32 = 2048;

pub fn capture(ns: &Netns, name: &str, direction: Direction) -> Capture {
    capture_long(ns, name, direction, SNAPLEN)
}

/// The same of frames of up to `snaplen` bytes.
pub fn capture_long(ns: &Netns, name: &str, direction: Direction, snaplen: u32) -> Capture {
    let options = CaptureOptions {
        // The capture's ring has a place of this size for each frame: no larger than needed.
        snaplen: Some(snaplen),
        direction,
        filter: "tcp or udp".to_owned(),
        ..CaptureOptions::default()
    };
    Capture::start_anonymous(ns, name, &options).unwrap()
}

/// Every frame, and how often it came.
pub fn frames(capture: Capture) -> BTreeMap<Vec<u8>, u32> {
    let mut captured = capture.stop().unwrap();
    assert_eq!(captured.dropped, 0);
    let bytes = captured.bytes().unwrap();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut frames = BTreeMap::new();
    while let Some(packet) = reader.next().unwrap() {
        *frames.entry(packet.data.to_vec()).or_default() += 1;
    }
    frames
}

/// The frame as it would be if its sender had computed the checksum, by the test's own arithmetic.
fn finished(frame: &[u8]) -> Vec<u8> {
    let v6 = frame[12..14] == [0x86, 0xdd];
    let (at, proto) = if v6 { (54, frame[20]) } else { (34, frame[23]) };
    let proto = IpProto(proto);
    let field = at + if proto == IpProto::TCP { 16 } else { 6 };
    let length = frame.len() - at;
    let sum = if v6 {
        let ip = |at: usize| <[u8; 16]>::try_from(&frame[at..at + 16]).unwrap();
        pseudo_header(ip(22).into(), ip(38).into(), proto, length)
    } else {
        let ip = |at: usize| <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap();
        pseudo_header(ip(26).into(), ip(30).into(), proto, length)
    };
    let mut frame = frame.to_vec();
    frame[field..field + 2].fill(0);
    let checksum = match sum.bytes(&frame[at..]).finish() {
        0 => 0xffff,
        checksum => checksum,
    };
    frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Traffic of both protocols and families, seen where it leaves the client and where it arrives.
fn seen(offloads: Offloads, mtu: u32) -> [BTreeMap<Vec<u8>, u32>; 2] {
    let bridge = Bridge::build(offloads);
    for link in &bridge.links {
        link.set_mtu(mtu).unwrap();
    }
    let mut opening = bridge.opening();
    opening.mtu = mtu;
    let carrying = bridge.carry(&opening);
    let snaplen = SNAPLEN.max(mtu + 100);
    let captures = [
        capture_long(&bridge.client, "c0", Direction::Out, snaplen),
        capture_long(&bridge.server, "s0", Direction::In, snaplen),
    ];
    for part in 0..100 {
        let bytes = part * (mtu as usize - 100) / 100;
        bridge.send(SERVER, 1, bytes);
        bridge.send(SERVER6, 1, bytes + 1);
    }
    let server = Iperf3Server::start(&bridge.server, 5201).unwrap();
    for ip in [SERVER.into(), std::net::IpAddr::from(SERVER6)] {
        let transfer = Iperf3::to(ip, server.port()).bytes(u64::from(200 * mtu));
        transfer.run(&bridge.client).unwrap();
    }
    let seen = captures.map(frames);
    carrying.end();
    seen
}

#[test]
fn partial_checksums_are_completed_and_nothing_else_changes() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("iperf3"));
    only_checksums_change(1500);
}

#[test]
fn partial_checksums_of_jumbo_frames_are_completed() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("iperf3"));
    only_checksums_change(JUMBO);
}

fn only_checksums_change(mtu: u32) {
    let [before, behind] = seen(Offloads::On, mtu);
    let mut expected: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut partial = [0; 4];
    for (frame, times) in &before {
        let whole = finished(frame);
        let v6 = usize::from(frame[12] == 0x86);
        let tcp = usize::from(frame[if v6 == 1 { 20 } else { 23 }] == 6);
        partial[2 * v6 + tcp] += u32::from(&whole != frame);
        *expected.entry(whole).or_default() += times;
    }
    assert!(partial.iter().all(|kind| *kind > 50), "{partial:?}");
    assert_eq!(expected, behind);
}

#[test]
fn complete_frames_arrive_byte_for_byte() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("iperf3"));
    let [before, behind] = seen(Offloads::Off, 1500);
    assert!(before.len() > 400, "{}", before.len());
    assert_eq!(before, behind);
}

#[test]
fn jumbo_frames_arrive_byte_for_byte() {
    requires!(Need::Root, Need::Tool("tcpdump"), Need::Tool("iperf3"));
    let [before, behind] = seen(Offloads::Off, JUMBO);
    let long = before.keys().filter(|frame| frame.len() > 8000).count();
    assert!(long > 100, "{long} of {}", before.len());
    assert_eq!(before, behind);
}
