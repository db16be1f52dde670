//! Every kind of frame that a bridge must carry, from one side to the other, byte by byte.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_bpf::{ForwardOutcome, Forwarding};
use fairpath_testbed::{FrameSocket, Need, Offloads, requires, wait_for};
use fairpath_tests::through::{Named, Setup, Through};
use fairpath_wire::ipv6::Extension;
use fairpath_wire::tcp::{Flags, Header};
use fairpath_wire::{Frame, ipv4, ipv6};

use crate::bridge::{Bridge, PATIENCE};

const FROM: [u8; 6] = [2, 0, 0, 0, 7, 1];
const TO: [u8; 6] = [2, 0, 0, 0, 7, 2];
const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 2);
/// Unique to this test.
const MARK: [u8; 24] = *b"fairpath carries frames\n";

fn base() -> Frame {
    Frame::ethernet(FROM, TO)
}

fn to(mac: [u8; 6]) -> Frame {
    Frame::ethernet(FROM, mac)
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

fn v6(extensions: Vec<Extension>) -> ipv6::Header {
    let mut header = ipv6::Header::new(A6, B6);
    header.extensions = extensions;
    header
}

fn raw(mac: [u8; 6], ethertype: u16) -> Vec<u8> {
    [&mac[..], &FROM, &ethertype.to_be_bytes(), &[1; 22], &MARK].concat()
}

/// Neighbour discovery as RFC 4861 section 4 has it; its checksum is not the bridge's business.
fn discovery(mac: [u8; 6], kind: u8) -> Vec<u8> {
    let mut frame = raw(mac, 0x86dd);
    frame.splice(14..36, [0x60, 0, 0, 0, 0, 48, 58, 255]);
    frame.splice(22..22, [A6.octets(), B6.octets()].concat());
    frame.splice(54..54, [kind, 0, 0xab, 0xcd]);
    frame.extend([0; 20]);
    frame
}

/// The frames that go through AF_XDP.
fn carried() -> Vec<(&'static str, Vec<u8>)> {
    let fragment = |offset, more| {
        let mut ip = ipv4::Header::new(A4, B4);
        (ip.fragment_offset, ip.more_fragments) = (offset, more);
        base().ipv4_header(ip).udp(1, 2).payload(&MARK).build()
    };
    let piece = |offset, more| {
        let id = 7;
        let ip = v6(vec![Extension::Fragment { offset, more, id }]);
        base().ipv6_header(ip).udp(1, 2).payload(&MARK).build()
    };
    let mut no_checksum = base().ipv4(A4, B4).udp(1, 2).payload(&MARK).build();
    no_checksum[40..42].fill(0);
    let mut wrong = base().ipv6(A6, B6).tcp(tcp()).payload(&MARK).build();
    wrong[60] ^= 1;
    let options = v6(vec![Extension::DestinationOptions(vec![1; 12])]);
    let hop = v6(vec![Extension::HopByHop(vec![1; 6])]);
    let long = [&MARK[..], &[9; 1436]].concat();
    vec![
        ("TCP", base().ipv4(A4, B4).tcp(tcp()).payload(&MARK).build()),
        (
            "TCP over IPv6",
            base().ipv6(A6, B6).tcp(tcp()).payload(&MARK).build(),
        ),
        (
            "a full frame",
            base().ipv4(A4, B4).tcp(tcp()).payload(&long).build(),
        ),
        ("a wrong checksum", wrong),
        ("UDP without a checksum", no_checksum),
        ("a first fragment", fragment(0, true)),
        ("a last fragment", fragment(5, false)),
        ("a first IPv6 fragment", piece(0, true)),
        ("a last IPv6 fragment", piece(5, false)),
        (
            "destination options",
            base()
                .ipv6_header(options)
                .tcp(tcp())
                .payload(&MARK)
                .build(),
        ),
        (
            "hop-by-hop options",
            base().ipv6_header(hop).udp(1, 2).payload(&MARK).build(),
        ),
        (
            "a tag",
            base()
                .vlan(5)
                .ipv4(A4, B4)
                .tcp(tcp())
                .payload(&MARK)
                .build(),
        ),
        (
            "a priority tag",
            base()
                .vlan(0xe000)
                .ipv4(A4, B4)
                .udp(1, 2)
                .payload(&MARK)
                .build(),
        ),
        (
            "two tags",
            base()
                .vlan(5)
                .vlan(6)
                .ipv6(A6, B6)
                .tcp(tcp())
                .payload(&MARK)
                .build(),
        ),
        (
            "a trailer",
            base()
                .ipv4(A4, B4)
                .udp(1, 2)
                .payload(&MARK)
                .trailer(&[7; 9])
                .build(),
        ),
    ]
}

/// The frames that the bridge carries.
fn bridged() -> Vec<(&'static str, ForwardOutcome, Vec<u8>)> {
    let udp = |frame: Frame| frame.ipv4(A4, B4).udp(1, 2).payload(&MARK).build();
    let group6 = [0x33, 0x33, 0, 0, 0, 5];
    vec![
        (
            "IPv4 multicast",
            ForwardOutcome::Group,
            udp(to([1, 0, 0x5e, 1, 2, 3])),
        ),
        ("broadcast", ForwardOutcome::Group, udp(to([0xff; 6]))),
        (
            "IPv6 multicast",
            ForwardOutcome::Group,
            to(group6).ipv6(A6, B6).udp(1, 2).payload(&MARK).build(),
        ),
        ("ARP to all", ForwardOutcome::Group, raw([0xff; 6], 0x0806)),
        ("an ARP answer", ForwardOutcome::NotIp, raw(TO, 0x0806)),
        (
            "a solicitation to a group",
            ForwardOutcome::Group,
            discovery(group6, 135),
        ),
        (
            "a solicitation",
            ForwardOutcome::Neighbour,
            discovery(TO, 135),
        ),
        (
            "an advertisement",
            ForwardOutcome::Neighbour,
            discovery(TO, 136),
        ),
        ("PPPoE", ForwardOutcome::NotIp, raw(TO, 0x8864)),
        ("another protocol", ForwardOutcome::NotIp, raw(TO, 0x88b5)),
    ]
}

fn arrived(
    through: &mut Through,
    socket: &mut FrameSocket,
    wanted: usize,
) -> BTreeMap<Vec<u8>, u32> {
    let mut frames = BTreeMap::new();
    let mut count = 0;
    wait_for(PATIENCE, || {
        let worked = through.forwarder.turn();
        while let Some(frame) = socket.receive() {
            if frame.windows(MARK.len()).any(|bytes| bytes == MARK) {
                *frames.entry(frame).or_default() += 1;
                count += 1;
            }
        }
        (count >= wanted && !worked).then_some(())
    });
    frames
}

#[test]
fn every_kind_of_frame_arrives_unchanged_once() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let body = || {
        let exits = ["lan", "wan"].map(|name| Named::new(name, bridge.mac(name)));
        let setup = Setup {
            own: vec![bridge.mac("br0")],
            ..Setup::new(Forwarding::Bridge, exits)
        };
        let mut through = setup.open().unwrap();
        let from = FrameSocket::open(&bridge.client, "c0").unwrap();
        let mut socket = FrameSocket::open(&bridge.server, "s0").unwrap();
        for (what, frame) in carried() {
            let before = through.monitor.outcomes()[0].of(ForwardOutcome::ToSocket);
            from.send(&frame).unwrap();
            let arrived = arrived(&mut through, &mut socket, 1);
            assert!(
                arrived == BTreeMap::from([(frame, 1)]),
                "{what}: {} came",
                arrived.len()
            );
            let outcomes = through.monitor.outcomes()[0];
            assert_eq!(
                outcomes.of(ForwardOutcome::ToSocket) - before,
                1,
                "{what} {outcomes:?}"
            );
        }
        for (what, outcome, frame) in bridged() {
            let before = through.monitor.outcomes()[0].of(outcome);
            from.send(&frame).unwrap();
            let arrived = arrived(&mut through, &mut socket, 1);
            assert!(
                arrived == BTreeMap::from([(frame, 1)]),
                "{what}: {} came",
                arrived.len()
            );
            let outcomes = through.monitor.outcomes()[0];
            assert!(outcomes.of(outcome) > before, "{what} {outcomes:?}");
        }
        assert_eq!(through.forwarder.counts().completed, 0);
    };
    bridge.bridge.enter(body).unwrap();
}

#[test]
fn frames_of_bridge_protocols_end_at_the_bridge() {
    requires!(Need::Root);
    let bridge = Bridge::build(Offloads::Off);
    let body = || {
        let exits = ["lan", "wan"].map(|name| Named::new(name, bridge.mac(name)));
        let setup = Setup {
            own: vec![bridge.mac("br0")],
            ..Setup::new(Forwarding::Bridge, exits)
        };
        let mut through = setup.open().unwrap();
        let from = FrameSocket::open(&bridge.client, "c0").unwrap();
        let mut socket = FrameSocket::open(&bridge.server, "s0").unwrap();
        // LLDP's address is link-local to a bridge (IEEE 802.1D section 7.12.6); to its own, too.
        from.send(&raw([1, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc))
            .unwrap();
        from.send(
            &to(bridge.mac("br0"))
                .ipv4(A4, B4)
                .udp(1, 2)
                .payload(&MARK)
                .build(),
        )
        .unwrap();
        // One that passes comes behind those that must not.
        let last = raw(TO, 0x88b5);
        from.send(&last).unwrap();
        let arrived = arrived(&mut through, &mut socket, 1);
        assert!(
            arrived == BTreeMap::from([(last, 1)]),
            "{} came",
            arrived.len()
        );
        let outcomes = through.monitor.outcomes()[0];
        assert!(
            outcomes.of(ForwardOutcome::Group) > 0 && outcomes.of(ForwardOutcome::Own) > 0,
            "{outcomes:?}"
        );
    };
    bridge.bridge.enter(body).unwrap();
}
