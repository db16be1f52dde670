//! Our reader compared with pcap-parser: the same packets, and the speed of both.
//!
//! `cargo test --release -p fairpath-wire --test capture_peer -- --ignored --nocapture` prints the speeds.

use std::fs::File;
use std::io::{Read, Write};

use fairpath_wire::capture::{Direction, LinkType, Packet, Reader, Writer};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

const PACKET_BYTES: usize = 74;

/// Times, lengths and bytes, folded into one number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Digest {
    packets: u64,
    sum: u64,
}

impl Digest {
    fn add(&mut self, time_ns: u64, wire_len: u32, data: &[u8]) {
        self.packets += 1;
        let ends = data.first().copied().unwrap_or(0) ^ data.last().copied().unwrap_or(0);
        for part in [time_ns, wire_len.into(), data.len() as u64, ends.into()] {
            self.sum = self.sum.rotate_left(5).wrapping_add(part);
        }
    }
}

fn write_packets<W: Write>(mut writer: Writer<W>, count: u64) -> W {
    let mut data = [0; PACKET_BYTES + 26];
    for i in 0..count {
        data[..8].copy_from_slice(&i.to_le_bytes());
        let len = PACKET_BYTES - 13 + (i % 27) as usize;
        let direction = [Some(Direction::Inbound), Some(Direction::Outbound)][(i % 2) as usize];
        let time_ns = 1_700_000_000_000_000_000 + i * 1_237;
        writer
            .write(&Packet {
                direction,
                ..Packet::new(time_ns, &data[..len])
            })
            .unwrap();
    }
    writer.finish().unwrap()
}

fn pcap<W: Write>(out: W) -> Writer<W> {
    Writer::pcap(out, LinkType::ETHERNET).unwrap()
}

fn pcapng<W: Write>(out: W) -> Writer<W> {
    let mut writer = Writer::pcapng(out).unwrap();
    writer.interface("eth0", LinkType::ETHERNET).unwrap();
    writer
}

fn ours(input: impl Read) -> Digest {
    let mut digest = Digest::default();
    let mut reader = Reader::new(input).unwrap();
    while let Some(packet) = reader.next().unwrap() {
        digest.add(packet.time_ns, packet.wire_len, packet.data);
    }
    digest
}

fn peer(input: impl Read + Send + 'static) -> Digest {
    let mut digest = Digest::default();
    let mut reader = create_reader(512 * 1024, input).unwrap();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    PcapBlockOwned::Legacy(b) => {
                        let time_ns = u64::from(b.ts_sec) * 1_000_000_000 + u64::from(b.ts_usec);
                        digest.add(time_ns, b.origlen, b.data);
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(b)) => {
                        let time_ns = u64::from(b.ts_high) << 32 | u64::from(b.ts_low);
                        digest.add(time_ns, b.origlen, b.packet_data());
                    }
                    _ => {}
                }
                reader.consume_noshift(used);
            }
            Err(PcapError::Eof) => return digest,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(e) => panic!("{e:?}"),
        }
    }
}

#[test]
fn the_peer_reads_the_same_packets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("peer");
    for file in [
        write_packets(pcap(Vec::new()), 20_000),
        write_packets(pcapng(Vec::new()), 20_000),
    ] {
        std::fs::write(&path, &file).unwrap();
        let digest = ours(&file[..]);
        assert_eq!(digest.packets, 20_000);
        assert_eq!(digest, peer(File::open(&path).unwrap()));
    }
}
