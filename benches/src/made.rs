//! A capture to be read: downloads of many flows as a router between server and client sees them.
//!
//! ```text
//!   server ── far ── tap ── near ── client
//! ```
//!
//! Slow start up to a bound, ACKs of every second segment, timestamps of a millisecond, and loss
//! between tap and client that is answered by duplicate ACKs with SACK and one retransmission a
//! round. The same seed makes the same file. Deliberately absent: reordering, pauses, uploads.

use fairpath_statistics::Random;
use std::io::Write;
use std::net::Ipv4Addr;

use anyhow::Context;
use fairpath_wire::capture::{LinkType, Packet, Writer};
use fairpath_wire::{ethernet, ipv4, tcp};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const MSS: u32 = 1448;
const SNAP_BYTES: usize = 96;
const MOST_IN_FLIGHT: u32 = 40;
/// Of 1,000 data segments.
const LOST: u64 = 5;
/// Flows begin within this.
const BEGIN_NS: u64 = 60_000_000_000;
/// Between the segments of a round.
const GAP_NS: u64 = 30_000;
const MILLI: u64 = 1_000_000;
/// 2025-01-01: captures have a date.
const EPOCH_NS: u64 = 1_735_689_600_000_000_000;

/// A packet that is still to be written.
pub struct Segment {
    time: u64,
    flow: u32,
    from_server: bool,
    flags: tcp::Flags,
    seq: u32,
    ack: u32,
    len: u32,
    tsval: u32,
    tsecr: u32,
    sack: Option<(u32, u32)>,
}

/// Writes a pcap file of at least `packets` packets; returns how many.
///
/// # Errors
/// Where `out` cannot be written.
pub fn write(out: impl Write, packets: usize) -> anyhow::Result<u64> {
    let mut random = Random::new(SEED);
    let mut all = Vec::with_capacity(packets + 10_000);
    let mut flows = 0;
    while all.len() < packets {
        Download::new(flows, &mut random).run(&mut random, &mut all);
        flows += 1;
    }
    all.sort_by_key(|s| s.time);
    let mut writer = Writer::pcap(out, LinkType::ETHERNET)?;
    let mut bytes = Vec::new();
    for segment in &all {
        let wire_len = segment.emit(&mut bytes);
        bytes.truncate(SNAP_BYTES);
        let packet = Packet {
            wire_len,
            ..Packet::new(EPOCH_NS + segment.time, &bytes)
        };
        writer.write(&packet).context("write the capture")?;
    }
    writer.finish().context("write the capture")?;
    Ok(all.len() as u64)
}

/// One flow while it is made.
struct Download {
    flow: u32,
    now: u64,
    far: u64,
    near: u64,
    segments: u64,
    next: u32,
    window: u32,
}

/// Where both sides' numbers begin.
const FIRST_SEQ: u32 = 100_000;
const CLIENT_SEQ: u32 = 50_000;

impl Download {
    fn new(flow: u32, random: &mut Random) -> Download {
        // Most are short, some are long: between 4 and about 4,000 segments.
        let size = 4 << random.below(10);
        Download {
            flow,
            now: random.below(BEGIN_NS),
            far: (2 + random.below(80)) * MILLI,
            near: (1 + random.below(20)) * MILLI,
            segments: size + random.below(size),
            next: FIRST_SEQ + 1,
            window: 10,
        }
    }

    fn run(mut self, random: &mut Random, all: &mut Vec<Segment>) {
        self.handshake(all);
        while self.segments > 0 {
            let lost = self.round(random, all);
            self.window = if lost {
                (self.window / 2).max(4)
            } else {
                (2 * self.window).min(MOST_IN_FLIGHT)
            };
        }
        self.end(all);
    }

    fn push(&self, all: &mut Vec<Segment>, time: u64, segment: Segment) {
        all.push(Segment {
            time,
            flow: self.flow,
            ..segment
        });
    }

    fn handshake(&mut self, all: &mut Vec<Segment>) {
        let syn = Segment::client(CLIENT_SEQ, 0, self.now).flags(tcp::Flags::SYN);
        self.push(all, self.now, syn);
        self.now += self.far;
        let answer = tcp::Flags::SYN | tcp::Flags::ACK;
        let syn_ack = Segment::server(FIRST_SEQ, 0, self.now).flags(answer);
        self.push(all, self.now, syn_ack);
        self.now += self.near;
        self.push(
            all,
            self.now,
            Segment::ack(FIRST_SEQ + 1, self.now, self.now - self.near),
        );
        self.now += self.far;
    }

    /// A window of data with its ACKs; true if something of it was lost.
    fn round(&mut self, random: &mut Random, all: &mut Vec<Segment>) -> bool {
        let count = u64::from(self.window).min(self.segments);
        let mut holes = Vec::new();
        for i in 0..count {
            let (time, seq) = (self.now + i * GAP_NS, self.next);
            self.push(all, time, Segment::server(seq, MSS, time));
            self.next += MSS;
            let back = time + self.near + random.below(MILLI / 4);
            if random.below(1000) < LOST {
                holes.push(seq);
            } else if let Some(&hole) = holes.first() {
                let mut duplicate = Segment::ack(hole, back, self.now);
                duplicate.sack = Some((holes[holes.len() - 1] + MSS, self.next));
                self.push(all, back, duplicate);
            } else if i % 2 == 1 || i + 1 == count {
                self.push(
                    all,
                    back,
                    Segment::ack(self.next, back, time - GAP_NS * (i % 2)),
                );
            }
        }
        self.now += self.near + self.far + count * GAP_NS;
        for (i, &hole) in holes.iter().enumerate() {
            self.push(all, self.now, Segment::server(hole, MSS, self.now));
            let back = self.now + self.near;
            let upto = holes.get(i + 1).copied().unwrap_or(self.next);
            self.push(all, back, Segment::ack(upto, back, self.now));
            self.now = back + self.far;
        }
        self.segments -= count;
        !holes.is_empty()
    }

    fn end(&self, all: &mut Vec<Segment>) {
        let fin = tcp::Flags::FIN | tcp::Flags::ACK;
        self.push(
            all,
            self.now,
            Segment::server(self.next, 0, self.now).flags(fin),
        );
        let back = self.now + self.near;
        let answer = Segment::ack(self.next + 1, back, self.now).flags(fin);
        self.push(all, back, answer);
        let last = back + self.far;
        let mut ack = Segment::server(self.next + 1, 0, last);
        ack.ack = CLIENT_SEQ + 2;
        self.push(all, last, ack);
    }
}

/// A clock of a millisecond.
fn ticks(time: u64) -> u32 {
    (time / MILLI) as u32 + 1000
}

impl Segment {
    /// Data of the server, or its acknowledgement if `len` is 0.
    pub fn server(seq: u32, len: u32, now: u64) -> Segment {
        Segment {
            time: now,
            flow: 0,
            from_server: true,
            flags: tcp::Flags::ACK,
            seq,
            ack: CLIENT_SEQ + 1,
            len,
            tsval: ticks(now),
            tsecr: ticks(now.saturating_sub(20 * MILLI)),
            sack: None,
        }
    }

    fn client(seq: u32, ack: u32, now: u64) -> Segment {
        Segment {
            from_server: false,
            seq,
            ack,
            tsecr: 0,
            ..Segment::server(seq, 0, now)
        }
    }

    /// An ACK of the client that echoes what the server sent past the tap at `echoed`.
    pub fn ack(ack: u32, now: u64, echoed: u64) -> Segment {
        Segment {
            tsecr: ticks(echoed),
            ..Segment::client(CLIENT_SEQ + 1, ack, now)
        }
    }

    /// The same of another flow.
    pub fn of_flow(self, flow: u32) -> Segment {
        Segment { flow, ..self }
    }

    fn flags(mut self, flags: tcp::Flags) -> Segment {
        self.flags = flags;
        self
    }

    /// Its headers and zeros as captured, and its length on the wire.
    pub fn emit(&self, out: &mut Vec<u8>) -> u32 {
        let client = Ipv4Addr::from(0x0a40_0001 + self.flow / 40_000);
        let server = Ipv4Addr::from(0xc000_0201 + self.flow % 100);
        // A port that no dissector claims.
        let (client_port, server_port) = (10_000 + (self.flow % 40_000) as u16, 5999);
        let mut options = vec![
            tcp::TcpOption::Nop,
            tcp::TcpOption::Nop,
            tcp::TcpOption::Timestamps {
                tsval: self.tsval,
                tsecr: self.tsecr,
            },
        ];
        if let Some(block) = self.sack {
            options.extend([tcp::TcpOption::Nop, tcp::TcpOption::Nop]);
            options.push(tcp::TcpOption::Sack(vec![block]));
        }
        let (src, dst, ports) = if self.from_server {
            (server, client, (server_port, client_port))
        } else {
            (client, server, (client_port, server_port))
        };
        let header = tcp::Header {
            src_port: ports.0,
            dst_port: ports.1,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: 0xffff,
            urgent: 0,
            options,
        };
        let network = ipv4::Header {
            protocol: fairpath_wire::IpProto::TCP,
            ..ipv4::Header::new(src, dst)
        };
        let link = ethernet::Header {
            dst: ethernet::MacAddr::local(1 + u8::from(self.from_server)),
            src: ethernet::MacAddr::local(2 - u8::from(self.from_server)),
            ethertype: ethernet::EtherType::IPV4,
        };
        out.clear();
        link.emit(out);
        network.emit(header.header_len() + self.len as usize, out);
        header.emit(out);
        let wire_len = out.len() + self.len as usize;
        out.resize(wire_len.min(SNAP_BYTES), 0);
        wire_len as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_wire::capture::Reader;

    #[test]
    fn a_generated_capture_is_ordered_and_truncated() {
        let mut file = Vec::new();
        let written = write(&mut file, 5_000).unwrap();
        let mut reader = Reader::new(&file[..]).unwrap();
        let (mut count, mut last) = (0, 0);
        while let Some(packet) = reader.next().unwrap() {
            assert!(packet.time_ns >= last && packet.data.len() <= SNAP_BYTES);
            (count, last) = (count + 1, packet.time_ns);
        }
        assert_eq!(count, written);
    }
}
