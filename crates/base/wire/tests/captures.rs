//! Captures in both formats, both byte orders, plain and gzipped: what is written is what is read.

mod capture_builder;

use std::io::{Read, Write};

use capture_builder::{CaptureBuilder, ORDERS, Order};
use fairpath_wire::capture::{
    Direction, Format, LinkType, MAX_PACKET_BYTES, Packet, ReadError, Reader, WriteError, Writer,
};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A packet that owns its bytes, to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    number: u64,
    time_ns: u64,
    wire_len: u32,
    data: Vec<u8>,
    link: LinkType,
    interface: u32,
    direction: Option<Direction>,
}

fn read_all(bytes: impl Read) -> Result<Vec<Kept>, ReadError> {
    let mut reader = Reader::new(bytes)?;
    let mut all = Vec::new();
    while let Some(p) = reader.next()? {
        let Packet {
            number,
            time_ns,
            wire_len,
            data,
            link,
            interface,
            direction,
        } = p;
        all.push(Kept {
            number,
            time_ns,
            wire_len,
            data: data.to_vec(),
            link,
            interface,
            direction,
        });
    }
    Ok(all)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Gives one byte a time and an interruption before each: the worst pipe there is.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let len = self.0.len().min(buf.len()).min(1);
        buf[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

#[test]
fn pcap_of_every_magic_keeps_its_times() {
    for order in ORDERS {
        for (magic, extra, ns) in [
            (0xa1b2_c3d4, 0, 5_000),
            (0xa1b2_3c4d, 0, 5),
            (0xa1b2_cd34_u32, 8, 5_000),
        ] {
            // The length of the frame check sequence is in the high bits of the link type.
            let mut file = CaptureBuilder::pcap(order, magic, 4, 0x2400_0071);
            for len in [0_u8, 3] {
                file.u32(0xffff_fff0)
                    .u32(5)
                    .u32(len.into())
                    .u32(1500)
                    .raw(&vec![0xee; extra])
                    .raw(&vec![len; len.into()]);
            }
            let packets = read_all(&file.bytes[..]).unwrap();
            assert_eq!(packets.len(), 2);
            let expected = Kept {
                number: 2,
                time_ns: 0xffff_fff0 * 1_000_000_000 + ns,
                wire_len: 1500,
                data: vec![3; 3],
                link: LinkType::LINUX_SLL,
                interface: 0,
                direction: None,
            };
            assert_eq!(packets[1], expected, "{order:?} {magic:#x}");
        }
    }
}

#[test]
fn old_pcap_versions_have_their_lengths_swapped() {
    for (minor, first, second) in [(2, 60, 3), (3, 60, 3), (3, 3, 60), (4, 3, 60)] {
        let mut file = CaptureBuilder::pcap(Order::Big, 0xa1b2_c3d4, minor, 1);
        file.u32(0).u32(0).u32(first).u32(second).raw(&[9; 3]);
        let packets = read_all(&file.bytes[..]).unwrap();
        assert_eq!(
            (packets[0].wire_len, packets[0].data.len()),
            (60, 3),
            "2.{minor}"
        );
    }
}

#[test]
fn pcapng_sections_interfaces_and_blocks_are_all_understood() {
    for order in ORDERS {
        let file = CaptureBuilder::everything(order);
        let mut reader = Reader::new(&file[..]).unwrap();
        while reader.next().unwrap().is_some() {}
        assert_eq!(reader.format(), Format::Pcapng);
        assert_eq!(reader.interface_name(0), Some("wan0"));
        assert_eq!(reader.interface_name(1), None);
        assert_eq!(reader.interfaces().len(), 3);
        assert_eq!((reader.packets(), reader.offset()), (5, file.len() as u64));

        let kept = |number, time_ns, wire_len, data: &[u8], link, interface, direction| Kept {
            number,
            time_ns,
            wire_len,
            data: data.to_vec(),
            link,
            interface,
            direction,
        };
        let expected = [
            kept(
                2,
                100_000_000_005,
                60,
                &[1; 59],
                LinkType::ETHERNET,
                0,
                None,
            ),
            kept(
                3,
                7_000,
                4,
                &[2; 4],
                LinkType::RAW,
                1,
                Some(Direction::Outbound),
            ),
            kept(
                4,
                9_000,
                3,
                &[3; 3],
                LinkType::RAW,
                1,
                Some(Direction::Inbound),
            ),
            kept(6, 0, 60, &[4; 4], LinkType::LINUX_SLL, 2, None),
            kept(7, 500_000_000, 1, &[5], LinkType::LINUX_SLL, 2, None),
        ];
        assert_eq!(read_all(&file[..]).unwrap(), expected, "{order:?}");
    }
}

#[test]
fn corrupted_options_do_not_lose_the_packet() {
    let mut file = CaptureBuilder::new(Order::Little);
    file.section();
    file.interface(1, 0, |b| {
        b.option(9, &[9, 9]).option(2, &[0xff, b'x']);
    });
    file.enhanced_with(0, 1, 1, &[1], |b| {
        b.option(2, &[1; 3]).u16(2).u16(400);
    });
    let packets = read_all(&file.bytes[..]).unwrap();
    assert_eq!((packets[0].time_ns, packets[0].direction), (1_000, None));
}

#[test]
fn sections_of_both_orders_may_follow_each_other() {
    let mut file = CaptureBuilder::everything(Order::Little);
    file.extend(CaptureBuilder::everything(Order::Big));
    let packets = read_all(&file[..]).unwrap();
    assert_eq!(packets.len(), 10);
    assert_eq!((packets[9].number, packets[9].interface), (14, 5));
}

#[test]
fn gzip_members_read_like_the_plain_file() {
    let file = CaptureBuilder::everything(Order::Big);
    let plain = read_all(&file[..]).unwrap();
    assert_eq!(read_all(&gzip(&file)[..]).unwrap(), plain);
    let (front, back) = file.split_at(77);
    let members = [gzip(front), gzip(&[]), gzip(back)].concat();
    assert_eq!(read_all(&members[..]).unwrap(), plain);
    assert_eq!(read_all(Trickle(&members, false)).unwrap(), plain);
}

#[test]
fn slow_streams_read_like_the_file() {
    let file = CaptureBuilder::everything(Order::Little);
    assert_eq!(
        read_all(Trickle(&file, false)).unwrap(),
        read_all(&file[..]).unwrap()
    );
}

#[test]
fn blocks_larger_than_the_window_are_skipped() {
    let mut file = CaptureBuilder::new(Order::Little);
    file.section();
    file.interface(1, 0, |_| {});
    file.block(0x0a, |b| b.bytes.resize(3_000_000, 1));
    file.enhanced(0, 1, 1, &[1]);
    assert_eq!(read_all(&file.bytes[..]).unwrap().len(), 1);
}

#[test]
fn captures_survive_writing_and_reading() {
    let long = vec![7; MAX_PACKET_BYTES as usize];
    let mut pcap = Writer::pcap(Vec::new(), LinkType::RAW).unwrap();
    let mut pcapng = Writer::pcapng(Vec::new()).unwrap();
    assert_eq!(pcapng.interface("lan0", LinkType::RAW).unwrap(), 0);
    assert_eq!(pcapng.interface("", LinkType::ETHERNET).unwrap(), 1);
    // More bytes than the window has, at every alignment.
    let lens = (0..40).chain([long.len()]).chain(1000..1600);
    for (i, len) in lens.clone().enumerate() {
        let time_ns = 1_700_000_000_123_456_789 + i as u64;
        let packet = Packet {
            link: LinkType::RAW,
            wire_len: 300_000,
            ..Packet::new(time_ns, &long[..len])
        };
        pcap.write(&packet).unwrap();
        let direction = [None, Some(Direction::Inbound), Some(Direction::Outbound)][i % 3];
        pcapng
            .write(&Packet {
                direction,
                ..packet
            })
            .unwrap();
    }
    let (pcap, pcapng) = (pcap.finish().unwrap(), pcapng.finish().unwrap());
    let (from_pcap, from_pcapng) = (read_all(&pcap[..]).unwrap(), read_all(&pcapng[..]).unwrap());
    assert_eq!(from_pcap.len(), lens.clone().count());
    for (i, len) in lens.enumerate() {
        assert_eq!(from_pcap[i].time_ns, 1_700_000_000_123_456_789 + i as u64);
        assert_eq!(
            (from_pcap[i].data.len(), from_pcap[i].wire_len),
            (len, 300_000)
        );
        assert_eq!(
            from_pcapng[i].direction,
            [None, Some(Direction::Inbound), Some(Direction::Outbound)][i % 3]
        );
        assert_eq!(
            Kept {
                direction: None,
                ..from_pcapng[i].clone()
            },
            from_pcap[i]
        );
    }
    let mut reader = Reader::new(&pcapng[..]).unwrap();
    while reader.next().unwrap().is_some() {}
    assert_eq!(
        reader.offset(),
        pcapng.len() as u64,
        "offsets count what has left the window"
    );
    assert_eq!(
        (reader.interface_name(0), reader.interface_name(1)),
        (Some("lan0"), None)
    );
}

#[test]
fn writer_refuses_unreadable_packets() {
    let mut pcap = Writer::pcap(Vec::new(), LinkType::ETHERNET).unwrap();
    let long = vec![0; MAX_PACKET_BYTES as usize + 1];
    assert!(matches!(
        pcap.write(&Packet::new(0, &long)),
        Err(WriteError::PacketTooLong { len: 262_145 })
    ));
    assert!(matches!(
        pcap.write(&Packet::new(u64::MAX, &[])),
        Err(WriteError::Time { .. })
    ));
    let packet = Packet::new(0, &[]);
    assert!(matches!(
        pcap.write(&Packet {
            interface: 1,
            ..packet
        }),
        Err(WriteError::UnknownInterface {
            interface: 1,
            known: 1
        })
    ));
    assert!(matches!(
        pcap.write(&Packet {
            link: LinkType::RAW,
            ..packet
        }),
        Err(WriteError::LinkMismatch {
            packet: LinkType::RAW,
            interface: LinkType::ETHERNET
        })
    ));
    assert!(matches!(
        pcap.interface("eth1", LinkType::ETHERNET),
        Err(WriteError::Interface { .. })
    ));
    let file = pcap.finish().unwrap();
    assert_eq!(file.len(), 24, "a refused packet leaves nothing behind");
}
