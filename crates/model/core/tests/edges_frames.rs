//! Edge cases of frames: what is parsed, what is refused and under which name (docs/design/0003).

mod traffic;

use std::net::{Ipv4Addr, Ipv6Addr};

use fairpath_core::{Config, Frame as Meta, Link, Monitor, Stats};
use fairpath_wire::ipv6::Extension;
use fairpath_wire::tcp::{Flags, Header, TcpOption};
use fairpath_wire::{EtherType, Frame, MacAddr, icmp, ipv4, ipv6, sll, vlan};
use traffic::script::{A, B, Talk};

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SRC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

fn ethernet() -> Frame {
    Frame::ethernet(MacAddr::local(1), MacAddr::local(2))
}

fn header() -> Header {
    Header {
        src_port: 1,
        dst_port: 2,
        flags: Flags::ACK,
        ..Header::default()
    }
}

/// Returns the counters after one frame.
fn stats_of(link: Link, data: &[u8], wire_len: usize) -> Stats {
    let mut monitor = Monitor::new(&Config::default().with_flows(64));
    let meta = Meta {
        now: 1,
        wire_len: wire_len as u32,
        link: link as u16,
        ..Meta::default()
    };
    monitor.frame(&meta, data, |_| {});
    monitor.stats()
}

fn ethernet_stats(data: &[u8]) -> Stats {
    stats_of(Link::Ethernet, data, data.len())
}

/// Payload bytes that the core finds in a frame of one TCP packet; `None` where it finds no TCP.
fn payload(link: Link, data: &[u8], wire_len: usize) -> Option<u64> {
    let stats = stats_of(link, data, wire_len);
    (stats.tcp_packets == 1).then_some(stats.tcp_bytes)
}

/// Notes 1b: up to four tags, PPPoE in them, cooked captures, PPP, BSD loopback and bare IP.
#[test]
fn every_encapsulation_leads_to_the_same_payload() {
    let tag = vlan::Header {
        priority: 0,
        drop_eligible: false,
        id: 5,
        ethertype: EtherType::VLAN,
    };
    let cooked = |version| {
        Frame::sll(sll::Header {
            version,
            packet_type: sll::PacketType::ToUs,
            addr: MacAddr::local(1),
            ethertype: EtherType::EXPERIMENT,
        })
    };
    let wraps = [
        (Link::Ethernet, ethernet()),
        (Link::Ethernet, ethernet().vlan(1)),
        (
            Link::Ethernet,
            ethernet().vlan_tag(EtherType::SERVICE_VLAN, tag).vlan(1),
        ),
        (
            Link::Ethernet,
            ethernet()
                .vlan_tag(EtherType::OLD_SERVICE_VLAN, tag)
                .vlan(1),
        ),
        (Link::Ethernet, ethernet().vlan(1).vlan(2).vlan(3).vlan(4)),
        (Link::Ethernet, ethernet().pppoe(1)),
        (
            Link::Ethernet,
            ethernet().vlan(1).vlan(2).vlan(3).vlan(4).pppoe(1),
        ),
        (Link::Raw, Frame::raw()),
        (Link::Ppp, Frame::ppp()),
        (Link::Null, Frame::null()),
        (Link::Null, Frame::loopback()),
        (Link::Sll, cooked(sll::Version::V1)),
        (
            Link::Sll2,
            cooked(sll::Version::V2(fairpath_units::IfIndex(1))),
        ),
        (Link::Sll, cooked(sll::Version::V1).vlan(1)),
    ];
    for (link, outer) in wraps {
        for inner in [outer.clone().ipv4(SRC, DST), outer.ipv6(SRC6, DST6)] {
            let data = inner.clone().tcp(header()).zeros(33).build();
            assert_eq!(
                payload(link, &data, data.len()),
                Some(33),
                "{link:?} {inner:?}"
            );
        }
    }
}

#[test]
fn five_tags_and_other_ethertypes_are_not_ip() {
    let five = ethernet()
        .vlan(1)
        .vlan(2)
        .vlan(3)
        .vlan(4)
        .vlan(5)
        .ipv4(SRC, DST)
        .tcp(header());
    assert_eq!(ethernet_stats(&five.build()).not_ip, 1);
    assert_eq!(ethernet_stats(&ethernet().zeros(46).build()).not_ip, 1);
    assert_eq!(
        ethernet_stats(&ethernet().pppoe(1).zeros(10).build()).not_ip,
        1,
        "LCP"
    );
}

/// Notes 2.14: extension headers up to the limit of eight.
#[test]
fn ipv6_extensions_are_followed_up_to_the_limit() {
    let padding = || Extension::DestinationOptions(Vec::new());
    let varied = vec![
        Extension::HopByHop(vec![1, 2, 0, 0]),
        Extension::Routing {
            kind: 4,
            segments_left: 0,
            data: vec![0; 12],
        },
        Extension::Auth {
            spi: 1,
            sequence: 1,
            check: vec![0; 12],
        },
        padding(),
    ];
    let frame = |extensions: Vec<Extension>| {
        let ip = ipv6::Header {
            extensions,
            ..ipv6::Header::new(SRC6, DST6)
        };
        ethernet().ipv6_header(ip).tcp(header()).zeros(33).build()
    };
    let found = |data: &[u8]| payload(Link::Ethernet, data, data.len());
    assert_eq!(found(&frame(varied)), Some(33));
    for count in 0..=8 {
        assert_eq!(found(&frame(vec![padding(); count])), Some(33), "{count}");
    }
    assert_eq!(ethernet_stats(&frame(vec![padding(); 9])).other_protocol, 1);
}

#[test]
fn an_extension_longer_than_its_packet_is_malformed() {
    let ip = ipv6::Header {
        extensions: vec![Extension::DestinationOptions(Vec::new())],
        ..ipv6::Header::new(SRC6, DST6)
    };
    let mut data = ethernet().ipv6_header(ip).tcp(header()).build();
    data[14 + 40 + 1] = 200;
    assert_eq!(ethernet_stats(&data).malformed, 1);
}

/// Extensions beyond the parsed bytes are as if not captured.
#[test]
fn headers_behind_long_extensions_are_truncated() {
    let ip = ipv6::Header {
        extensions: vec![Extension::DestinationOptions(vec![1, 250, 0, 0]); 1],
        ..ipv6::Header::new(SRC6, DST6)
    };
    let mut data = ethernet().ipv6_header(ip).zeros(400).build();
    data[14 + 40] = 6;
    data[14 + 40 + 1] = 30;
    assert_eq!(ethernet_stats(&data).truncated, 1);
}

/// A frame with these TCP options, answered by B; does A's TSval 5 count?
fn timestamps_found(options: Vec<TcpOption>, snap_len: usize) -> bool {
    let mut talk = Talk::default();
    talk.handshake_ts(0);
    talk.rtts();
    // Ambiguous by number, so only the TSval decides.
    talk.at(100).seq(1001).ack(501).data(100).ts(5, 2).send();
    let again = Header {
        src_port: talk.flow.port[A],
        dst_port: talk.flow.port[B],
        seq: 1001,
        ack: 501,
        flags: Flags::ACK,
        options,
        ..Header::default()
    };
    let data = ethernet()
        .ipv4(SRC4_A, DST4_B)
        .tcp(again)
        .zeros(100)
        .build();
    let meta = Meta {
        now: 150 * traffic::MS,
        wire_len: data.len() as u32,
        link: Link::Ethernet as u16,
        ..Meta::default()
    };
    talk.frame(meta, &data[..data.len().min(snap_len)]);
    talk.at(170).from(B).seq(501).ack(1101).ts(3, 6).send();
    assert_eq!(
        talk.monitor.stats().tcp_packets,
        6,
        "options never cost the packet"
    );
    talk.rtts() == [20]
}

const SRC4_A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const DST4_B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TS: TcpOption = TcpOption::Timestamps { tsval: 6, tsecr: 2 };

/// Notes 2.14: at any position, after up to thirty other options.
#[test]
fn timestamps_are_found_among_other_options() {
    use TcpOption::{Mss, Nop, Raw, Sack, SackPermitted, WindowScale};
    assert!(timestamps_found(vec![Nop, Nop, TS], 1500));
    assert!(timestamps_found(vec![TS], 1500));
    assert!(timestamps_found(
        vec![Mss(1460), SackPermitted, TS, Nop, WindowScale(7)],
        1500
    ));
    assert!(timestamps_found(vec![Sack(vec![(1, 2), (3, 4)]), TS], 1500));
    assert!(timestamps_found(
        vec![
            Raw(vec![
                200, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                0
            ]),
            TS
        ],
        1500
    ));
    let mut thirty = vec![Nop; 30];
    thirty.push(TS);
    assert!(timestamps_found(thirty, 1500));
}

/// Notes 2.14: an option that says it is shorter than its own head ends the list.
#[test]
fn option_shorter_than_two_bytes_ends_the_options() {
    for length in [0, 1] {
        assert!(!timestamps_found(
            vec![TcpOption::Raw(vec![77, length]), TS],
            1500
        ));
    }
    assert!(
        !timestamps_found(vec![TcpOption::Raw(vec![0]), TS], 1500),
        "end of options"
    );
    assert!(
        !timestamps_found(vec![TcpOption::Raw(vec![77, 41]), TS], 1500),
        "beyond the header"
    );
    assert!(!timestamps_found(
        vec![
            TcpOption::Raw(vec![8, 9, 0, 0, 0, 6, 0, 0, 0]),
            TcpOption::Nop
        ],
        1500
    ));
}

/// Notes 2.14: 80 bytes of capture hold the first 26 bytes of options.
#[test]
fn options_cut_by_the_snap_length_are_absent() {
    let early = vec![TcpOption::Nop, TcpOption::Nop, TS];
    let late = vec![TcpOption::Sack(vec![(1, 2), (3, 4)]), TS];
    assert!(timestamps_found(early.clone(), 80));
    assert!(!timestamps_found(late.clone(), 80));
    assert!(timestamps_found(late, 82));
    assert!(!timestamps_found(early.clone(), 65), "one byte short");
    assert!(timestamps_found(early, 66));
}

/// Notes 2.14.
#[test]
fn a_header_longer_than_its_packet_is_malformed() {
    let mut data = ethernet().ipv4(SRC, DST).tcp(header()).zeros(10).build();
    for (words, malformed) in [
        (15, true),
        (8, true),
        (7, false),
        (5, false),
        (4, true),
        (0, true),
    ] {
        data[14 + 20 + 12] = words << 4;
        let stats = ethernet_stats(&data);
        assert_eq!(stats.malformed == 1, malformed, "{words}");
        assert_eq!(stats.tcp_packets == 0, malformed, "{words}");
    }
}

#[test]
fn contradicting_ip_lengths_are_malformed() {
    let good = ethernet().ipv4(SRC, DST).tcp(header()).build();
    for (at, value) in [(14, 0x44), (14, 0x65), (14 + 3, 19)] {
        let mut data = good.clone();
        data[at] = value;
        assert_eq!(ethernet_stats(&data).malformed, 1, "{at} {value:x}");
    }
    let mut v6 = ethernet().ipv6(SRC6, DST6).tcp(header()).build();
    v6[14 + 5] = 19;
    assert_eq!(ethernet_stats(&v6).malformed, 1);
}

/// Every shorter capture is truncated, every shorter frame malformed, and none is read beyond.
#[test]
fn headers_not_captured_are_truncated() {
    for frame in [
        ethernet().vlan(1).ipv4(SRC, DST),
        ethernet().pppoe(1).ipv6(SRC6, DST6),
    ] {
        let data = frame.tcp(header()).zeros(5).build();
        for len in 0..data.len() - 5 {
            let cut = stats_of(Link::Ethernet, &data[..len], data.len());
            assert_eq!((cut.truncated, cut.malformed), (1, 0), "{len}");
            let short = ethernet_stats(&data[..len]);
            assert_eq!((short.truncated, short.malformed), (0, 1), "{len}");
        }
        assert_eq!(
            payload(Link::Ethernet, &data[..data.len() - 5], data.len()),
            Some(5),
            "payload is not needed"
        );
    }
}

/// Notes 2.4: Ethernet pads short frames, and switches append trailers; neither is payload.
#[test]
fn padding_and_trailers_are_not_payload() {
    let short = ethernet().ipv4(SRC, DST).tcp(header()).padded();
    for frame in [short.clone(), short.trailer(&[1, 2, 3, 4])] {
        let data = frame.build();
        assert!(data.len() >= 60);
        assert_eq!(payload(Link::Ethernet, &data, data.len()), Some(0));
    }
    let v6 = ethernet()
        .ipv6(SRC6, DST6)
        .tcp(header())
        .zeros(3)
        .trailer(&[9; 8])
        .build();
    assert_eq!(payload(Link::Ethernet, &v6, v6.len()), Some(3));
}

/// Notes 2.20: a sender that offloads writes length 0; the frame's length replaces it.
#[test]
fn ip_length_zero_takes_the_frames_length() {
    let mut v4 = ethernet().ipv4(SRC, DST).tcp(header()).build();
    v4[14 + 2..14 + 4].fill(0);
    assert_eq!(
        payload(Link::Ethernet, &v4, v4.len() + 70_000),
        Some(70_000)
    );
    let mut v6 = ethernet().vlan(1).ipv6(SRC6, DST6).tcp(header()).build();
    v6[18 + 4..18 + 6].fill(0);
    assert_eq!(
        payload(Link::Ethernet, &v6, v6.len() + 70_000),
        Some(70_000)
    );
    assert_eq!(
        stats_of(Link::Ethernet, &v4, 2 << 20).malformed,
        1,
        "no packet has 2 MiB"
    );
}

/// Notes 2.22: only the first fragment has ports, and not even its end is known.
#[test]
fn later_fragments_are_counted_and_not_parsed() {
    for frame in [ethernet().ipv4(SRC, DST), ethernet().ipv6(SRC6, DST6)] {
        // The payload of the later ones looks like a TCP header.
        let whole = frame.tcp(header()).payload(&[0x50; 4000]);
        let mut monitor = Monitor::new(&Config::default().with_flows(64));
        let fragments = whole.fragments(1000, 7);
        for (i, fragment) in fragments.iter().enumerate() {
            let data = fragment.build();
            let meta = Meta {
                now: 1 + i as u64,
                wire_len: data.len() as u32,
                link: Link::Ethernet as u16,
                ..Meta::default()
            };
            monitor.frame(&meta, &data, |_| {});
        }
        let stats = monitor.stats();
        assert_eq!(stats.fragments as usize, fragments.len() - 1);
        assert_eq!(stats.tcp_packets, 1, "the first one");
        assert_eq!(monitor.usage().flows, 1);
    }
}

/// Notes 2.22: the first fragment's data end nowhere that is known: no sample from it, and no loss.
#[test]
fn a_first_fragment_is_not_measured() {
    let mut talk = Talk::default();
    talk.handshake(0);
    talk.rtts();
    talk.at(100)
        .seq(1001)
        .ack(501)
        .data(100)
        .send_changed(|bytes| bytes[14 + 6] |= 0x20);
    talk.at(120).from(B).seq(501).ack(1101).send();
    assert_eq!(talk.rtts(), []);
}

/// Notes 2.30: an ICMP error quotes a packet that is somewhere else.
#[test]
fn icmp_errors_are_not_the_traffic_they_quote() {
    let messages = [
        icmp::Message::Unreachable { code: 1 },
        icmp::Message::TooBig { mtu: 1400 },
        icmp::Message::TimeExceeded { code: 0 },
    ];
    for message in messages {
        let tcp = ethernet().ipv4(SRC, DST).tcp(header()).zeros(8);
        let error = ethernet().ipv4(DST, SRC).icmp(message).quote(&tcp).build();
        let tcp6 = ethernet().ipv6(SRC6, DST6).tcp(header()).zeros(8);
        let error6 = ethernet()
            .ipv6(DST6, SRC6)
            .icmp(message)
            .quote(&tcp6)
            .build();
        for data in [error, error6] {
            let stats = ethernet_stats(&data);
            assert_eq!((stats.other_protocol, stats.tcp_packets), (1, 0));
        }
    }
}

/// ICMP of one family inside the other is no echo.
#[test]
fn other_protocols_are_counted_and_left_alone() {
    let udp = ethernet().ipv4(SRC, DST).udp(53, 53).zeros(20).build();
    assert_eq!(ethernet_stats(&udp).other_protocol, 1);
    let wrong = ipv4::Header {
        protocol: fairpath_wire::IpProto(58),
        ..ipv4::Header::new(SRC, DST)
    };
    let data = ethernet()
        .ipv4_header(wrong)
        .payload(&[128, 0, 0, 0, 0, 0, 0, 0])
        .build();
    assert_eq!(ethernet_stats(&data).other_protocol, 1);
}
