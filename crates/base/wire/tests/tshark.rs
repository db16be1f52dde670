//! Captures and packets as tshark sees them: the judge that is not ours.
//!
//! Skipped with a line on standard output where tshark is not installed.

mod capture_builder;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use fairpath_units::IfIndex;
use fairpath_wire::capture::{Direction, LinkType, Packet, Reader, Writer};
use fairpath_wire::icmp::Message;
use fairpath_wire::ipv6::Extension;
use fairpath_wire::tcp::{Flags, TcpOption};
use fairpath_wire::{EtherType, Frame, MacAddr, ipv4, ipv6, sll, tcp, udp, vlan};

const A4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 2);
const BEGIN_NS: u64 = 1_700_000_000_123_456_789;

const CHECKS: [&str; 5] = [
    "ip.check_checksum",
    "tcp.check_checksum",
    "udp.check_checksum",
    "ip.defragment",
    "ipv6.defragment",
];

fn tshark_is_missing() -> bool {
    let found = Command::new("tshark")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if found.is_err() {
        fairpath_units::skip_test("tshark", "command:tshark", "tshark is not installed");
    }
    found.is_err()
}

/// One line per packet, the fields joined with `|`, several values of a field with `,`.
fn tshark(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(file)
        .args(["-n", "-T", "fields", "-E", "separator=|"]);
    CHECKS.into_iter().for_each(|check| {
        command.args(["-o", &format!("{check}:TRUE")]);
    });
    command.args(["-o", "tcp.relative_sequence_numbers:FALSE"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Writes frames to a file of their link type, 1 us apart, and asks tshark.
fn query(frames: &[Frame], fields: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("frames.pcap");
    let link = frames[0].link();
    let mut writer = Writer::pcap(Vec::new(), link).unwrap();
    for (i, frame) in frames.iter().enumerate() {
        writer
            .write(&Packet {
                link,
                ..Packet::new(BEGIN_NS + i as u64 * 1_000, &frame.build())
            })
            .unwrap();
    }
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    tshark(&path, fields)
}

fn ethernet() -> Frame {
    Frame::ethernet(MacAddr::local(1), MacAddr::local(2))
}

fn syn() -> tcp::Header {
    let options = vec![
        TcpOption::Mss(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps {
            tsval: 0xffff_fffe,
            tsecr: 0,
        },
        TcpOption::Nop,
        TcpOption::WindowScale(7),
    ];
    tcp::Header {
        src_port: 40_000,
        dst_port: 5000,
        seq: 0xffff_fff0,
        flags: Flags::SYN,
        window: 64_240,
        options,
        ..Default::default()
    }
}

fn ack() -> tcp::Header {
    let options = vec![
        TcpOption::Nop,
        TcpOption::Nop,
        TcpOption::Timestamps { tsval: 1, tsecr: 2 },
        TcpOption::Nop,
        TcpOption::Nop,
        TcpOption::Sack(vec![(10, 20), (30, 40)]),
    ];
    tcp::Header {
        src_port: 5000,
        dst_port: 40_000,
        seq: 5,
        ack: 6,
        flags: Flags::ACK | Flags::PSH,
        window: 500,
        options,
        ..Default::default()
    }
}

#[test]
fn times_interfaces_and_directions_are_exact() {
    if tshark_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("times.pcapng");
    let mut writer = Writer::pcapng(Vec::new()).unwrap();
    let names = ["wan0", "lan0"].map(|name| writer.interface(name, LinkType::ETHERNET).unwrap());
    let (bytes, wire_len) = ethernet().ipv4(A4, B4).tcp(syn()).zeros(1000).cut(61);
    for i in 0..4 {
        let direction = [Some(Direction::Inbound), Some(Direction::Outbound), None][i % 3];
        let interface = names[i % 2];
        let packet = Packet {
            wire_len,
            interface,
            direction,
            ..Packet::new(BEGIN_NS + i as u64, &bytes)
        };
        writer.write(&packet).unwrap();
    }
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    let fields = [
        "frame.number",
        "frame.time_epoch",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.cap_len",
    ];
    let expected = [
        "1|1700000000.123456789|wan0|0x00000001|1074|61",
        "2|1700000000.123456790|lan0|0x00000002|1074|61",
        "3|1700000000.123456791|wan0||1074|61",
        "4|1700000000.123456792|lan0|0x00000001|1074|61",
    ];
    assert_eq!(tshark(&path, &fields), expected);
}

#[test]
fn other_captures_read_as_in_tshark() {
    if tshark_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("external.pcapng");
    for order in capture_builder::ORDERS {
        let file = capture_builder::CaptureBuilder::everything(order);
        std::fs::write(&path, &file).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let mut ours = Vec::new();
        while let Some(p) = reader.next().unwrap() {
            let time = match p.time_ns {
                0 => String::new(),
                ns => format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
            };
            ours.push(format!(
                "{}|{time}|{}|{}",
                p.number,
                p.wire_len,
                p.data.len()
            ));
        }
        let mut theirs = tshark(
            &path,
            &[
                "frame.number",
                "frame.time_epoch",
                "frame.len",
                "frame.cap_len",
            ],
        );
        assert_eq!(
            theirs.len(),
            7,
            "five packets, a custom block, a journal entry"
        );
        theirs.remove(4);
        theirs.remove(0);
        assert_eq!(theirs, ours);
    }
}

#[test]
fn checksums_are_good_in_every_combination() {
    if tshark_is_missing() {
        return;
    }
    let plain4 = || ethernet().ipv4(A4, B4);
    let odd = ipv4::Header {
        options: vec![0x94, 4, 0, 0, 1, 1],
        ttl: 3,
        ..ipv4::Header::new(A4, B4)
    };
    let ping = Message::EchoRequest { id: 7, seq: 9 };
    let lost = plain4().tcp(syn());
    let frames = [
        plain4().tcp(syn()),
        ethernet()
            .ipv4_header(odd)
            .tcp(ack())
            .payload(b"odd")
            .padded(),
        plain4().udp(1000, 2000).zeros(1001).trailer(&[7; 5]),
        plain4()
            .udp_header(udp::Header {
                src_port: 1000,
                dst_port: 2000,
                no_checksum: true,
            })
            .zeros(8),
        plain4().icmp(ping).payload(b"ping!"),
        ethernet().ipv6(A6, B6).tcp(ack()).payload(b"six"),
        ethernet().ipv6(A6, B6).udp(1000, 2000).payload(b"s"),
        ethernet().ipv6(A6, B6).icmp(ping).payload(b"ping!"),
        plain4().icmp(Message::TooBig { mtu: 1400 }).quote(&lost),
        ethernet()
            .ipv6(A6, B6)
            .icmp(Message::TooBig { mtu: 1400 })
            .quote(&ethernet().ipv6(A6, B6).udp(7, 8)),
    ];
    let fields = [
        "ip.checksum.status",
        "tcp.checksum.status",
        "udp.checksum.status",
        "icmp.checksum.status",
        "icmpv6.checksum.status",
        "_ws.malformed",
    ];
    // 1 is good, 3 is not present; a quoted packet adds its own.
    let expected = [
        "1|1||||",
        "1|1||||",
        "1||1|||",
        "1||3|||",
        "1|||1||",
        "|1||||",
        "||1|||",
        "||||1|",
        "1,1|1||1||",
        "||1||1|",
    ];
    assert_eq!(query(&frames, &fields), expected);
}

#[test]
fn wrong_checksums_are_detected() {
    if tshark_is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.pcap");
    let mut writer = Writer::pcap(Vec::new(), LinkType::ETHERNET).unwrap();
    let mut bytes = ethernet().ipv4(A4, B4).tcp(syn()).build();
    bytes[14 + 20 + 16] ^= 1;
    writer.write(&Packet::new(0, &bytes)).unwrap();
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    assert_eq!(
        tshark(&path, &["ip.checksum.status", "tcp.checksum.status"]),
        ["1|0"]
    );
}

#[test]
fn tags_sessions_and_options_are_read_as_meant() {
    if tshark_is_missing() {
        return;
    }
    let service = vlan::Header {
        priority: 5,
        drop_eligible: true,
        id: 4094,
        ethertype: EtherType::EXPERIMENT,
    };
    let frames = [
        ethernet()
            .vlan(10)
            .vlan(20)
            .pppoe(7)
            .ipv4(A4, B4)
            .tcp(syn()),
        ethernet()
            .vlan_tag(EtherType::SERVICE_VLAN, service)
            .vlan(1)
            .ipv6(A6, B6)
            .tcp(ack())
            .zeros(3),
        ethernet().pppoe(0xffff).ipv6(A6, B6).tcp(ack()),
        ethernet().ipv4(A4, B4).ipv6(A6, B6).tcp(ack()),
    ];
    let fields = [
        "frame.protocols",
        "vlan.id",
        "ieee8021ad.id",
        "pppoe.session_id",
        "tcp.len",
        "tcp.options.timestamp.tsval",
        "tcp.options.sack_le",
        "tcp.options.mss_val",
        "tcp.options.wscale.shift",
    ];
    let expected = [
        "eth:ethertype:vlan:ethertype:vlan:ethertype:pppoes:ppp:ip:tcp|10,20||0x0007|0|4294967294||1460|7",
        "eth:ethertype:ieee8021ad:ethertype:vlan:ethertype:ipv6:tcp:data|1|4094||3|1|10,30||",
        "eth:ethertype:pppoes:ppp:ipv6:tcp|||0xffff|0|1|10,30||",
        "eth:ethertype:ip:ipv6:tcp||||0|1|10,30||",
    ];
    assert_eq!(query(&frames, &fields), expected);
}

#[test]
fn extension_headers_are_read_as_meant() {
    if tshark_is_missing() {
        return;
    }
    let with = |extensions| ipv6::Header {
        extensions,
        flow_label: 0xabcde,
        ..ipv6::Header::new(A6, B6)
    };
    // Type 2: four reserved bytes, then the runtime address, which the checksum is made for (RFC 6275 section 6.4).
    let home = Ipv6Addr::new(0x2001, 0xdb8, 0, 9, 0, 0, 0, 9);
    let route = Extension::Routing {
        kind: 2,
        segments_left: 1,
        data: [&[0; 4][..], &home.octets()].concat(),
    };
    let frames = [
        ethernet()
            .ipv6_header(with(vec![Extension::HopByHop(vec![5, 2, 0, 0]), route]))
            .tcp(syn()),
        ethernet()
            .ipv6_header(with(vec![
                Extension::HopByHop(vec![]),
                Extension::DestinationOptions(vec![0x1e, 3, 1, 2, 3]),
                Extension::Fragment {
                    offset: 0,
                    more: false,
                    id: 0x1234_5678,
                },
                Extension::Auth {
                    spi: 0x100,
                    sequence: 5,
                    check: vec![1; 12],
                },
            ]))
            .udp(1000, 2000)
            .zeros(2),
    ];
    let fields = [
        "frame.protocols",
        "ipv6.flow",
        "ipv6.routing.type",
        "ipv6.fraghdr.ident",
        "ah.spi",
        "tcp.checksum.status",
        "udp.checksum.status",
        "_ws.malformed",
        "_ws.expert.severity",
    ];
    let lines = query(&frames, &fields);
    // 2097152 is a remark: a connection begins.
    assert_eq!(
        lines[0],
        "eth:ethertype:ipv6:ipv6.hopopts:ipv6.routing:tcp|0x0abcde|2|||1|||2097152"
    );
    assert_eq!(
        lines[1],
        "eth:ethertype:ipv6:ipv6.hopopts:ipv6.dstopts:ipv6.fraghdr:ah:udp:data|0x0abcde||0x12345678|0x00000100||1||"
    );
}

#[test]
fn fragments_are_put_together_again() {
    if tshark_is_missing() {
        return;
    }
    let ping = Message::EchoRequest { id: 7, seq: 9 };
    let v4 = ethernet()
        .ipv4(A4, B4)
        .icmp(ping)
        .zeros(2000)
        .fragments(800, 77);
    let v6 = ethernet()
        .ipv6(A6, B6)
        .icmp(ping)
        .zeros(2000)
        .fragments(800, 77);
    let frames = [v4, v6].concat();
    let fields = [
        "ip.reassembled.length",
        "ipv6.reassembled.length",
        "icmp.checksum.status",
        "icmpv6.checksum.status",
    ];
    assert_eq!(
        query(&frames, &fields),
        ["|||", "|||", "2008||1|", "|||", "|||", "|2008||1"]
    );
}

#[test]
fn other_link_types_are_read_as_meant() {
    if tshark_is_missing() {
        return;
    }
    let cooked = |version| sll::Header {
        version,
        packet_type: sll::PacketType::Outgoing,
        addr: MacAddr::local(1),
        ethertype: EtherType::EXPERIMENT,
    };
    let expect = |frame: Frame, protocols: &str| {
        assert_eq!(
            query(&[frame], &["frame.protocols", "tcp.checksum.status"]),
            [format!("{protocols}|1")]
        );
    };
    expect(
        Frame::sll(cooked(sll::Version::V1)).ipv4(A4, B4).tcp(syn()),
        "sll:ethertype:ip:tcp",
    );
    expect(
        Frame::sll(cooked(sll::Version::V2(IfIndex(3))))
            .vlan(4)
            .ipv6(A6, B6)
            .tcp(syn()),
        "sll:ethertype:vlan:ethertype:ipv6:tcp",
    );
    expect(Frame::raw().ipv6(A6, B6).tcp(syn()), "raw:ipv6:tcp");
    expect(Frame::null().ipv4(A4, B4).tcp(syn()), "null:ip:tcp");
    expect(Frame::null().ipv6(A6, B6).tcp(syn()), "null:ipv6:tcp");
    expect(Frame::loopback().ipv4(A4, B4).tcp(syn()), "null:ip:tcp");
    expect(Frame::ppp().ipv6(A6, B6).tcp(syn()), "ppp:ipv6:tcp");
}
