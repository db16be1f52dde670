//! Captures with what public ones had and few have: data and the ACK of it, 10 ms later, in each.
//!
//! The row names what tshark and Fairpath do (docs/design/0004).

use std::fs::{self, File};
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::path::Path;

use fairpath_testbed::{Need, requires};
use fairpath_tests::binary;
use fairpath_tests::rtt::read_capture;
use fairpath_wire::capture::{LinkType, Packet, Writer};
use fairpath_wire::tcp::{Flags, Header, TcpOption};
use fairpath_wire::{Frame, MacAddr};

use crate::{Samples, oracle, subject};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const MS: u64 = 1_000_000;

fn ethernet(ethertype: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = Frame::ethernet(MacAddr::local(1), MacAddr::local(2)).build();
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    frame.extend(content);
    frame
}

/// 100 bytes of data with these options, and their ACK: IP packets.
fn exchange(options: Vec<TcpOption>) -> [Vec<u8>; 2] {
    let header = Header {
        src_port: 4000,
        dst_port: 443,
        seq: 1001,
        ack: 501,
        flags: Flags::ACK,
        window: 1000,
        options,
        ..Header::default()
    };
    let answer = Header {
        src_port: 443,
        dst_port: 4000,
        seq: 501,
        ack: 1101,
        options: Vec::new(),
        ..header.clone()
    };
    [
        Frame::raw()
            .ipv4(CLIENT, SERVER)
            .tcp(header)
            .zeros(100)
            .build(),
        Frame::raw().ipv4(SERVER, CLIENT).tcp(answer).build(),
    ]
}

/// An access point's tunnel: UDP, CAPWAP (RFC 5415 section 4.3), 802.11, LLC and SNAP.
fn capwap(ip: &[u8]) -> Vec<u8> {
    let mut inner = vec![0, 0x10, 0x03, 0, 0, 0, 0, 0];
    // tshark expects the frame control of these in reverse order.
    inner.extend([0x02, 0x08, 0, 0]);
    inner.extend([2; 18]);
    inner.extend([0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    inner.extend(ip);
    let outer = Frame::ethernet(MacAddr::local(1), MacAddr::local(2));
    let hosts = [Ipv4Addr::new(172, 16, 0, 1), Ipv4Addr::new(172, 16, 0, 2)];
    outer
        .ipv4(hosts[0], hosts[1])
        .udp(5247, 5247)
        .payload(&inner)
        .build()
}

/// A provider's backbone bridge (802.1ah): an I-tag, then a whole frame.
fn backbone(ip: &[u8]) -> Vec<u8> {
    let mut inner = vec![0, 0, 1, 0];
    inner.extend(ethernet(0x800, ip));
    ethernet(0x88e7, &inner)
}

/// Cisco FabricPath: addresses, a tag, then a whole frame with its checksum.
fn fabric_path(ip: &[u8]) -> Vec<u8> {
    let mut inner = vec![0, 0x60];
    inner.extend(ethernet(0x800, ip));
    inner.extend([0; 4]);
    ethernet(0x8903, &inner)
}

/// PPPoE with a protocol field of one byte (RFC 1661 section 6.5).
fn pppoe_compressed(ip: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ip.len() + 1).unwrap().to_be_bytes();
    let mut inner = vec![0x11, 0, 0, 1, length[0], length[1], 0x21];
    inner.extend(ip);
    ethernet(0x8864, &inner)
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let file = BufWriter::new(File::create(path).unwrap());
    let mut out = Writer::pcap(file, LinkType::ETHERNET).unwrap();
    for (time, frame) in (0..)
        .map(|n| 1_700_000_000_000 * MS + 10 * MS * n)
        .zip(frames)
    {
        out.write(&Packet::new(time, frame)).unwrap();
    }
    out.finish().unwrap();
}

#[test]
fn unusual_packets_are_measured_or_counted_as_documented() {
    requires!(Need::Tool("tshark"));
    let directory = tempfile::tempdir().unwrap();
    let plain = |ip: &[u8]| ethernet(0x800, ip);
    let beyond = |ip: &[u8]| {
        let mut frame = ethernet(0x800, ip);
        if ip.len() > 100 {
            frame[16..18].copy_from_slice(&1500u16.to_be_bytes());
        }
        frame
    };
    let raw = |bytes: &[u8]| vec![TcpOption::Raw(bytes.to_vec())];
    type Wrap<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    type Case<'a> = (&'a str, Wrap<'a>, Vec<TcpOption>, bool, bool, &'a str);
    // Whether tshark and Fairpath show the sample, and how the counters show the rest.
    let cases: [Case<'_>; 11] = [
        ("plain", &plain, vec![], true, true, ""),
        (
            "option of length 0",
            &plain,
            raw(&[77, 0, 1, 1]),
            true,
            true,
            "",
        ),
        (
            "option of length 1",
            &plain,
            raw(&[77, 1, 1, 1]),
            true,
            true,
            "",
        ),
        (
            "option beyond the header",
            &plain,
            raw(&[77, 41, 1, 1]),
            true,
            true,
            "",
        ),
        (
            "timestamps of 9 bytes",
            &plain,
            raw(&[8, 9, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]),
            true,
            true,
            "",
        ),
        (
            "timestamps of 11 bytes",
            &plain,
            raw(&[8, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            true,
            true,
            "",
        ),
        (
            "PPPoE, one byte of protocol",
            &pppoe_compressed,
            vec![],
            true,
            true,
            "",
        ),
        (
            "IP length beyond the frame",
            &beyond,
            vec![],
            true,
            false,
            "malformed",
        ),
        ("CAPWAP", &capwap, vec![], true, false, "other_protocol"),
        ("802.1ah", &backbone, vec![], true, false, "not_ip"),
        ("FabricPath", &fabric_path, vec![], true, false, "not_ip"),
    ];
    for (name, wrap, options, by_tshark, by_fairpath, counter) in cases {
        let capture = directory.path().join("crafted.pcap");
        write(&capture, &exchange(options).map(|ip| wrap(&ip)));
        let sample = |shown| match shown {
            true => Samples::from([(2, 10 * MS)]),
            false => Samples::new(),
        };
        assert_eq!(
            oracle::samples(&capture).tcp,
            sample(by_tshark),
            "tshark: {name}"
        );
        for how in [
            &["--method", "seq", "--match", "tshark"][..],
            &["--method", "ts"][..0],
        ] {
            // In mid-flow, the product does not trust the first data of a direction.
            let expected = sample(by_fairpath && !how.is_empty());
            let found = subject::samples(&capture, how).tcp();
            assert_eq!(found, expected, "{how:?}: {name}");
        }
        if !counter.is_empty() {
            let records = read_capture(&capture, &[]);
            assert!(
                records.number(&format!("/counters/{counter}")) > 0,
                "{name}"
            );
        }
    }
}

/// Some programs write a second and more of microseconds.
#[test]
fn a_second_and_more_of_microseconds_is_carried() {
    requires!(Need::Tool("tshark"));
    let directory = tempfile::tempdir().unwrap();
    let capture = directory.path().join("micros.pcap");
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    let times = [[100u32, 999_999], [100, 1_500_000]];
    for ([seconds, fraction], ip) in times.into_iter().zip(exchange(vec![])) {
        let frame = ethernet(0x800, &ip);
        let len = frame.len() as u32;
        for word in [seconds, fraction, len, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    fs::write(&capture, bytes).unwrap();
    let expected = Samples::from([(2, 500_001_000)]);
    assert_eq!(oracle::samples(&capture).tcp, expected);
    let how = ["--method", "seq", "--match", "tshark"];
    assert_eq!(subject::samples(&capture, &how).tcp(), expected);
}

/// tshark reads these files. Fairpath refuses them by name, with a remedy.
#[test]
fn files_of_other_programs_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let magics: [(&str, &[u8]); 2] = [
        ("snoop", b"snoop\0\0\0\0\0\0\x02\0\0\0\x04"),
        ("etherpeek", b"\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
    ];
    for (name, magic) in magics {
        let capture = directory.path().join(name);
        fs::write(&capture, [magic, &[0; 200]].concat()).unwrap();
        let mut command = binary::command(binary::fairpath());
        let output = command.args(["rtt", "-r"]).arg(&capture).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("fairpath: error: "), "{stderr}");
        assert!(stderr.contains("editcap"), "{stderr}");
    }
}
