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

#[test]
fn acks_with_more_information_stay() {
    let sack = TcpOption::Sack(vec![(100, 200)]);
    let with_sack = [timestamps(), vec![TcpOption::Nop, TcpOption::Nop, sack]].concat();
    // An option of MPTCP (kind 30).
    let other = TcpOption::Raw(vec![30, 4, 0, 0]);
    for (flags, options, data) in [
        (Flags::ACK, timestamps(), 1),
        (Flags::ACK, with_sack, 0),
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
