//! Packets that an ACK filter may drop: ACKs whose information a later one has, too.

use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_core::sched::{Classifier, End, Meta};
use fairpath_core::{Frame, Link};
use fairpath_wire::MacAddr;
use fairpath_wire::tcp::{Flags, Header, TcpOption};

const NUMBER: u32 = 0xffff_fff0;

/// The metadata of a segment with these options, flags and bytes of data, in both families.
fn metas(flags: Flags, options: Vec<TcpOption>, data: usize) -> [Meta; 2] {
    let header = Header {
        src_port: 50_000,
        dst_port: 443,
        ack: NUMBER,
        flags,
        options,
        ..Header::default()
    };
    let ethernet = || fairpath_wire::Frame::ethernet(MacAddr::local(1), MacAddr::local(2));
    let v4 = ethernet().ipv4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1));
    let v6 = ethernet().ipv6(
        Ipv6Addr::LOCALHOST,
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    );
    [v4, v6].map(|ip| {
        let mut bytes = ip.tcp(header.clone()).zeros(data).build();
        // As on the wire: Ethernet pads short frames.
        bytes.resize(bytes.len().max(60), 0);
        let frame = Frame {
            wire_len: bytes.len() as u32,
            segs: 1,
            link: Link::Ethernet as u16,
            ..Frame::default()
        };
        Classifier::new(0).look(&frame, &bytes, End::Receiver).0
    })
}

fn timestamps() -> Vec<TcpOption> {
    let times = TcpOption::Timestamps { tsval: 7, tsecr: 8 };
    vec![TcpOption::Nop, TcpOption::Nop, times]
}

#[test]
fn plain_acks_can_be_replaced() {
    for options in [Vec::new(), timestamps()] {
        for (flags, bits) in [
            (Flags::ACK, 0x10),
            (Flags::ACK | Flags::PSH, 0x18),
            (Flags::ACK | Flags::ECE, 0x50),
        ] {
            for meta in metas(flags, options.clone(), 0) {
                assert_eq!((meta.ack_flags, meta.ack), (Meta::PURE_ACK | bits, NUMBER));
            }
        }
    }
}

/// Timestamps and SACK blocks: left and right edges.
fn with_sack(blocks: &[(u32, u32)]) -> Vec<TcpOption> {
    let sack = TcpOption::Sack(blocks.to_vec());
    [timestamps(), vec![TcpOption::Nop, TcpOption::Nop, sack]].concat()
}

#[test]
fn sack_blocks_of_acks_are_read() {
    let nops = || vec![TcpOption::Nop, TcpOption::Nop];
    let four = TcpOption::Sack(vec![(10, 20), (30, 40), (50, 60), (70, 80)]);
    let block = |left: u64| left << 32 | (left + 10);
    for (options, expected) in [
        (with_sack(&[(10, 20)]), [block(10), 0, 0, 0]),
        (
            with_sack(&[(30, 40), (10, 20), (50, 60)]),
            [block(30), block(10), block(50), 0],
        ),
        ([nops(), vec![four]].concat(), [10, 30, 50, 70].map(block)),
        (timestamps(), [0; 4]),
    ] {
        for meta in metas(Flags::ACK, options, 0) {
            assert_eq!((meta.ack_flags, meta.ack), (Meta::PURE_ACK | 0x10, NUMBER));
            assert_eq!(meta.sack, expected);
        }
    }
}

#[test]
fn acks_with_more_information_stay() {
    // These report a duplicate (RFC 2883): before the number, and in the second block.
    let before = with_sack(&[(NUMBER - 20, NUMBER)]);
    let inside = with_sack(&[(20, 30), (10, 40)]);
    // An option of MPTCP (kind 30).
    let other = TcpOption::Raw(vec![30, 4, 0, 0]);
    for (flags, options, data) in [
        (Flags::ACK, timestamps(), 1),
        (Flags::ACK, before, 0),
        (Flags::ACK, inside, 0),
        (Flags::ACK, with_sack(&[(30, 20)]), 0),
        (Flags::ACK, with_sack(&[(20, 30)]), 1),
        (Flags::ACK, [timestamps(), vec![other]].concat(), 0),
        (Flags::ACK | Flags::SYN, timestamps(), 0),
        (Flags::ACK | Flags::FIN, timestamps(), 0),
        (Flags::ACK | Flags::RST, Vec::new(), 0),
        (Flags::ACK | Flags::URG, Vec::new(), 0),
        (Flags::PSH, Vec::new(), 0),
    ] {
        for meta in metas(flags, options.clone(), data) {
            assert_eq!(
                (meta.ack_flags, meta.ack),
                (0, 0),
                "{flags:?} {options:?} {data}"
            );
        }
    }
}
