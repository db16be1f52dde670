//! Headers: what is emitted is what is parsed, and no bytes make a parser panic.

use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_units::IfIndex;
use fairpath_wire::checksum::{checksum, update_u32};
use fairpath_wire::icmp::{Family, Message};
use fairpath_wire::ip::{Ecn, IpProto, pseudo_header};
use fairpath_wire::ipv6::Extension;
use fairpath_wire::tcp::{Flags, TcpOption};
use fairpath_wire::{
    EtherType, Frame, MacAddr, ParseError, ethernet, icmp, ipv4, ipv6, pppoe, sll, tcp, udp, vlan,
};
use proptest::collection::vec;
use proptest::prelude::*;

const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2);

fn option() -> impl Strategy<Value = TcpOption> {
    prop_oneof![
        Just(TcpOption::Nop),
        any::<u16>().prop_map(TcpOption::Mss),
        any::<u8>().prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        vec(any::<(u32, u32)>(), 1..3).prop_map(TcpOption::Sack),
        any::<(u32, u32)>().prop_map(|(tsval, tsecr)| TcpOption::Timestamps { tsval, tsecr }),
        (30_u8..=255, vec(any::<u8>(), 0..5)).prop_map(|(kind, data)| TcpOption::Raw(
            [&[kind, data.len() as u8 + 2], &data[..]].concat()
        )),
    ]
}

fn tcp_header() -> impl Strategy<Value = tcp::Header> {
    let numbers = (any::<[u16; 4]>(), any::<[u32; 2]>(), 0_u16..0x1000);
    (numbers, vec(option(), 0..3)).prop_map(
        |(([src_port, dst_port, window, urgent], [seq, ack], flags), options)| {
            let flags = Flags(flags);
            tcp::Header {
                src_port,
                dst_port,
                seq,
                ack,
                flags,
                window,
                urgent,
                options,
            }
        },
    )
}

fn ipv4_header() -> impl Strategy<Value = ipv4::Header> {
    let numbers = (
        any::<[u32; 2]>(),
        any::<[u8; 4]>(),
        any::<u16>(),
        any::<[bool; 2]>(),
        0_u16..8192,
    );
    (numbers, vec(any::<[u8; 4]>(), 0..=10)).prop_map(
        |((addrs, bytes, id, flags, fragment_offset), options)| ipv4::Header {
            src: addrs[0].into(),
            dst: addrs[1].into(),
            protocol: IpProto(bytes[0]),
            ttl: bytes[1],
            dscp: bytes[2] >> 2,
            ecn: Ecn::from_bits(bytes[3]),
            id,
            dont_fragment: flags[0],
            more_fragments: flags[1],
            fragment_offset,
            options: options.concat(),
        },
    )
}

/// Contents whose length needs no padding, so that they come back as they are.
fn extension() -> impl Strategy<Value = Extension> {
    let filled =
        |fixed: usize| (0_usize..4).prop_flat_map(move |n| vec(any::<u8>(), n * 8 + 8 - fixed));
    prop_oneof![
        filled(2).prop_map(Extension::HopByHop),
        filled(2).prop_map(Extension::DestinationOptions),
        (any::<[u8; 2]>(), filled(4)).prop_map(|([kind, segments_left], data)| {
            Extension::Routing {
                kind,
                segments_left,
                data,
            }
        }),
        (any::<bool>(), any::<u32>()).prop_map(|(more, id)| Extension::Fragment {
            offset: 0,
            more,
            id
        }),
        (any::<[u32; 2]>(), filled(4)).prop_map(|([spi, sequence], check)| Extension::Auth {
            spi,
            sequence,
            check
        }),
    ]
}

fn ipv6_header() -> impl Strategy<Value = ipv6::Header> {
    (
        any::<[u128; 2]>(),
        any::<[u8; 3]>(),
        0_u32..1 << 20,
        vec(extension(), 0..6),
    )
        .prop_map(|(addrs, bytes, flow_label, extensions)| ipv6::Header {
            src: addrs[0].into(),
            dst: addrs[1].into(),
            protocol: IpProto::TCP,
            hop_limit: bytes[0],
            dscp: bytes[1] >> 2,
            ecn: Ecn::from_bits(bytes[2]),
            flow_label,
            extensions,
        })
}

proptest! {
    #![proptest_config(fairpath_units::property!(512))]

    #[test]
    fn tcp_survives_a_round_trip(header in tcp_header(), payload in vec(any::<u8>(), 0..20)) {
        prop_assume!(header.header_len() <= 60);
        let mut out = Vec::new();
        header.emit(&mut out);
        prop_assert_eq!(out.len(), header.header_len());
        out.extend(&payload);
        prop_assert_eq!(tcp::Header::parse(&out), Ok((header, &payload[..])));
    }

    #[test]
    fn ipv4_survives_a_round_trip_without_trailer(header in ipv4_header(), payload in vec(any::<u8>(), 0..20)) {
        let mut out = Vec::new();
        header.emit(payload.len(), &mut out);
        out.extend(&payload);
        out.extend([0xee; 9]);
        prop_assert_eq!(ipv4::Header::parse(&out), Ok((header, &payload[..])));
    }

    #[test]
    fn ipv6_survives_a_round_trip_with_extensions(header in ipv6_header(), payload in vec(any::<u8>(), 1..20)) {
        let mut out = Vec::new();
        header.emit(payload.len(), &mut out);
        prop_assert_eq!(out.len(), header.header_len());
        out.extend(&payload);
        out.extend([0xee; 9]);
        prop_assert_eq!(ipv6::Header::parse(&out), Ok((header, &payload[..])));
    }

    #[test]
    fn link_layers_survive_a_round_trip(addrs in any::<[[u8; 6]; 2]>(), n in any::<[u16; 4]>(), ifindex in any::<u32>()) {
        let mut out = Vec::new();
        let ethertype = EtherType(n[0]);
        let ethernet = ethernet::Header { dst: MacAddr(addrs[0]), src: MacAddr(addrs[1]), ethertype };
        ethernet.emit(&mut out);
        prop_assert_eq!(ethernet::Header::parse(&out), Ok((ethernet, &[][..])));

        out.clear();
        let tag = vlan::Header { priority: (n[1] & 7) as u8, drop_eligible: n[2] & 1 == 1, id: n[3] & 0xfff, ethertype };
        tag.emit(&mut out);
        prop_assert_eq!(vlan::Header::parse(&out), Ok((tag, &[][..])));

        out.clear();
        let pppoe = pppoe::Header { session: n[1], protocol: pppoe::PppProto(n[2]) };
        pppoe.emit(3, &mut out);
        out.extend([1, 2, 3, 0, 0]);
        prop_assert_eq!(pppoe::Header::parse(&out), Ok((pppoe, &[1, 2, 3][..])));

        out.clear();
        let v1 = sll::Header {
            version: sll::Version::V1,
            packet_type: sll::PacketType::Outgoing,
            addr: MacAddr(addrs[0]),
            ethertype,
        };
        v1.emit(&mut out);
        prop_assert_eq!(sll::Header::parse_v1(&out), Ok((v1, &[][..])));

        out.clear();
        let v2 = sll::Header { version: sll::Version::V2(IfIndex(ifindex)), ..v1 };
        v2.emit(&mut out);
        prop_assert_eq!(sll::Header::parse_v2(&out), Ok((v2, &[][..])));
    }

    #[test]
    fn icmp_and_udp_survive_a_round_trip(id in any::<u16>(), seq in any::<u16>(), code in 5_u8.., payload in vec(any::<u8>(), 0..9)) {
        let messages = [
            Message::EchoRequest { id, seq },
            Message::EchoReply { id, seq },
            Message::Unreachable { code },
            Message::TooBig { mtu: id.into() },
            Message::TimeExceeded { code },
            Message::Other { kind: 200, code, rest: u32::from(id) << 16 | u32::from(seq) },
        ];
        for (family, message) in [Family::V4, Family::V6].into_iter().flat_map(|f| messages.map(|m| (f, m))) {
            let mut out = Vec::new();
            message.emit(family, &mut out);
            out.extend(&payload);
            prop_assert_eq!(Message::parse(family, &out), Ok((message, &payload[..])));
        }
        let header = udp::Header { src_port: id, dst_port: seq, no_checksum: true };
        let mut out = Vec::new();
        header.emit(payload.len(), &mut out);
        out.extend(&payload);
        out.push(0xee);
        prop_assert_eq!(udp::Header::parse(&out), Ok((header, &payload[..])));
    }

    #[test]
    fn no_bytes_make_a_parser_panic(mut bytes in vec(any::<u8>(), 0..200), first in prop::sample::select(vec![0x45, 0x4f, 0x60])) {
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        let _ = (ethernet::Header::parse(&bytes), vlan::Header::parse(&bytes), pppoe::Header::parse(&bytes));
        let _ = (ipv4::Header::parse(&bytes), ipv6::Header::parse(&bytes), udp::Header::parse(&bytes));
        let _ = (tcp::Header::parse(&bytes), icmp::Message::parse(Family::V6, &bytes));
        let _ = (sll::Header::parse_v1(&bytes), sll::Header::parse_v2(&bytes));
    }

    #[test]
    fn a_translated_address_needs_only_an_update(payload in vec(any::<u8>(), 0..40), to in any::<u32>()) {
        let build = |src: Ipv4Addr| Frame::raw().ipv4(src, B4).tcp(tcp::Header::default()).payload(&payload).build();
        let (before, after) = (build(A4), build(to.into()));
        let sum = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        for at in [10, 36] {
            prop_assert_eq!(update_u32(sum(&before, at), A4.into(), to), sum(&after, at));
        }
    }
}

#[test]
fn a_deep_frame_parses_layer_by_layer() {
    let header = tcp::Header {
        flags: Flags::PSH | Flags::ACK,
        ..Default::default()
    };
    let frame = Frame::ethernet(MacAddr::local(1), MacAddr::local(2))
        .vlan(10)
        .vlan(20)
        .pppoe(7)
        .ipv4(A4, B4)
        .ipv6(A6, B6)
        .tcp(header.clone())
        .payload(b"data")
        .trailer(&[1; 4]);
    let bytes = frame.build();
    let (ethernet, rest) = ethernet::Header::parse(&bytes).unwrap();
    assert_eq!(
        (ethernet.src, ethernet.ethertype),
        (MacAddr::local(1), EtherType::VLAN)
    );
    let (outer, rest) = vlan::Header::parse(rest).unwrap();
    let (inner, rest) = vlan::Header::parse(rest).unwrap();
    assert_eq!(
        (outer.id, outer.ethertype, inner.id, inner.ethertype),
        (10, EtherType::VLAN, 20, EtherType::PPPOE_SESSION)
    );
    let (pppoe, rest) = pppoe::Header::parse(rest).unwrap();
    assert_eq!(
        pppoe,
        pppoe::Header {
            session: 7,
            protocol: pppoe::PppProto::IPV4
        }
    );
    let (ipv4, rest) = ipv4::Header::parse(rest).unwrap();
    assert_eq!(
        ipv4,
        ipv4::Header {
            protocol: IpProto::IPV6,
            ..ipv4::Header::new(A4, B4)
        }
    );
    let (ipv6, rest) = ipv6::Header::parse(rest).unwrap();
    assert_eq!(
        ipv6,
        ipv6::Header {
            protocol: IpProto::TCP,
            ..ipv6::Header::new(A6, B6)
        }
    );
    let sum = pseudo_header(A6.into(), B6.into(), IpProto::TCP, rest.len())
        .bytes(rest)
        .finish();
    assert_eq!(sum, 0, "the inner addresses are in the checksum");
    assert_eq!(tcp::Header::parse(rest), Ok((header, &b"data"[..])));
}

#[test]
fn fragments_reassemble_to_the_packet() {
    let ping = Message::EchoRequest { id: 1, seq: 2 };
    let v4 = Frame::ethernet(MacAddr::local(1), MacAddr::local(2))
        .ipv4(A4, B4)
        .icmp(ping)
        .zeros(2992);
    let v6 = Frame::raw().ipv6(A6, B6).icmp(ping).zeros(2992);
    let (whole4, whole6) = (v4.build(), v6.build());
    let (mut joined4, mut joined6) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (i, (f4, f6)) in v4
        .fragments(1480, 77)
        .iter()
        .zip(v6.fragments(1487, 77))
        .enumerate()
    {
        let (b4, b6) = (f4.build(), f6.build());
        let (h4, p4) = ipv4::Header::parse(&b4[14..]).unwrap();
        assert_eq!(
            (h4.fragment_offset, h4.more_fragments, h4.id),
            (i as u16 * 185, i < 2, 77)
        );
        assert_eq!((h4.protocol, h4.dont_fragment), (IpProto::ICMP, false));
        joined4.extend(p4);
        let (h6, p6) = ipv6::Header::parse(&b6).unwrap();
        let place = Extension::Fragment {
            offset: i as u16 * 185,
            more: i < 2,
            id: 77,
        };
        assert_eq!((h6.protocol, h6.extensions), (IpProto::ICMPV6, vec![place]));
        joined6.extend(p6);
    }
    assert_eq!(joined4, whole4[34..]);
    assert_eq!(joined6, whole6[40..]);
    assert_eq!(checksum(&joined4), 0);
}

#[test]
fn padding_trailer_and_snap_length_leave_packet_alone() {
    let frame = Frame::ethernet(MacAddr::local(1), MacAddr::local(2))
        .ipv4(A4, B4)
        .udp(1, 2)
        .payload(b"x");
    let padded = frame.clone().padded().trailer(&[9; 4]).build();
    assert_eq!(padded.len(), 64);
    assert_eq!(padded[..43], frame.build()[..]);
    let (_, packet) = ipv4::Header::parse(&padded[14..]).unwrap();
    assert_eq!(packet.len(), 9);
    assert_eq!(frame.cut(20), (padded[..20].to_vec(), 43));
    assert_eq!(frame.cut(100).0, frame.build());
}

#[test]
fn quote_is_the_packet_without_its_link_layer() {
    let lost = Frame::ethernet(MacAddr::local(1), MacAddr::local(2))
        .vlan(3)
        .ipv4(A4, B4)
        .udp(1, 2)
        .zeros(4);
    let error = Frame::raw()
        .ipv4(B4, A4)
        .icmp(Message::TimeExceeded { code: 0 })
        .quote(&lost)
        .build();
    assert_eq!(error[28..], lost.build()[18..]);
}

#[test]
fn ipv4_options_are_truncated_without_gso_length() {
    let options = vec![TcpOption::Raw(vec![1; 50])];
    let header = tcp::Header {
        options,
        ..Default::default()
    };
    let mut out = Vec::new();
    header.emit(&mut out);
    assert_eq!((out.len(), header.header_len(), out[12]), (60, 60, 0xf0));
    let frame = Frame::raw().ipv4_header(ipv4::Header {
        options: vec![1; 41],
        ..ipv4::Header::new(A4, B4)
    });
    let bytes = frame.tcp(tcp::Header::default()).zeros(70_000).build();
    assert_eq!(
        (bytes.len(), bytes[0], &bytes[2..4]),
        (70_080, 0x4f, &[0, 0][..])
    );
    let (_, payload) = ipv4::Header::parse(&bytes).unwrap();
    assert_eq!(payload.len(), 70_020);
}

#[test]
fn an_error_names_header_and_cause() {
    let short = ipv4::Header::parse(&[0x45; 19]).unwrap_err();
    assert_eq!(short.to_string(), "ipv4: needs 20 bytes, has 19");
    let wrong = ipv6::Header::parse(&[0x45; 40]).unwrap_err();
    assert_eq!(
        wrong,
        ParseError::Field {
            header: "ipv6",
            field: "version",
            value: 4
        }
    );
    let mut bytes = Frame::raw().ipv4(A4, B4).build();
    bytes[8] -= 1;
    assert!(matches!(
        ipv4::Header::parse(&bytes),
        Err(ParseError::Field {
            field: "checksum",
            ..
        })
    ));
}
