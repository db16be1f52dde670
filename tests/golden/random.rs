//! Packets that no kernel sends: few numbers around the wrap, any flags, any order.
//!
//! Ports and numbers are so few that copies, overlaps, reuse and answers to nothing are the rule. The
//! capture is generated from its seed each time.

use fairpath_statistics::Random;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use fairpath_wire::capture::{LinkType, Packet, Writer};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// An Ethernet frame of IP between two hosts; `side` is the sender.
fn frame(v6: bool, side: u8, proto: u8, content: &[u8]) -> Vec<u8> {
    let (src, dst) = (1 + side, 2 - side);
    let mut frame = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src];
    let bytes = content.len() as u16;
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(bytes.to_be_bytes());
        frame.extend([proto, 64]);
        for host in [src, dst] {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((bytes + 20).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, proto, 0, 0]);
        frame.extend([10, 0, 0, src, 10, 0, 0, dst]);
    }
    frame.extend(content);
    frame
}

struct Segment {
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    payload: usize,
}

/// A segment with the timestamp option, between 50000 and a separate port.
fn segment(side: u8, tcp: &Segment) -> Vec<u8> {
    let ports = if side == 0 {
        [tcp.port, 50000]
    } else {
        [50000, tcp.port]
    };
    let mut bytes: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    bytes.extend(tcp.seq.to_be_bytes());
    bytes.extend(tcp.ack.to_be_bytes());
    bytes.extend([0x80, tcp.flags]);
    bytes.extend(tcp.window.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1]);
    bytes.resize(bytes.len() + tcp.payload, 0);
    bytes
}

/// `drift` is where the numbers are that both sides move on from.
fn any_segment(random: &mut Random, side: u8, drift: u32) -> Vec<u8> {
    let near = |random: &mut Random, side: u8| {
        let base: u32 = if side == 0 { 0xffff_ff00 } else { 0x7fff_ff00 };
        base.wrapping_add(drift + random.below(12) as u32 * 10)
    };
    let mut flags = if random.one_in(20) { 0 } else { ACK };
    for (flag, times) in [(SYN, 25), (FIN, 20), (RST, 30)] {
        flags |= if random.one_in(times) { flag } else { 0 };
    }
    if random.one_in(40) {
        flags = SYN;
    }
    let tcp = Segment {
        port: 40000 + random.below(6) as u16,
        // Keep-alives begin one before.
        seq: near(random, side).wrapping_sub(u32::from(random.one_in(4))),
        ack: near(random, 1 - side).wrapping_add(u32::from(random.one_in(4))),
        flags,
        window: if random.one_in(6) { 0 } else { 1000 },
        payload: [0, 0, 1, 10, 20, 30][random.index(6)],
    };
    segment(side, &tcp)
}

/// Echo with one of three checksums, which distinguish requests with equal numbers.
fn any_echo(random: &mut Random, v6: bool) -> Vec<u8> {
    let reply = random.one_in(2);
    let [request_type, reply_type]: [u8; 2] = if v6 { [128, 129] } else { [8, 0] };
    let sum = [0x00ff, 0xf7ff, 0xfeff][random.index(3)];
    let difference =
        (u32::from(request_type) * 256).wrapping_sub(u32::from(reply_type) * 256) as i32;
    let sum = if reply {
        (sum + difference).rem_euclid(0xffff)
    } else {
        sum
    };
    let mut bytes = vec![if reply { reply_type } else { request_type }, 0];
    bytes.extend((sum as u16).to_be_bytes());
    bytes.extend([0, random.below(2) as u8, 0, random.below(4) as u8]);
    bytes.resize(40, 0);
    bytes
}

/// Writes `count` packets. Two in a hundred are cut in their TCP options.
pub fn write(path: &Path, seed: u64, count: u32) {
    let mut random = Random::new(seed);
    let mut time = 1_700_000_000_000_000_000;
    let mut out = writer(path);
    for at in 0..count {
        let (v6, side) = (random.one_in(3), random.below(2) as u8);
        let content = if random.one_in(5) {
            let proto = if v6 { 58 } else { 1 };
            frame(v6, side, proto, &any_echo(&mut random, v6))
        } else {
            frame(v6, side, 6, &any_segment(&mut random, side, at / 30 * 10))
        };
        let header = if v6 { 74 } else { 54 };
        let cut = random.one_in(50) && content[if v6 { 20 } else { 23 }] == 6;
        let kept = if cut {
            header + random.index(12)
        } else {
            content.len()
        };
        // Some follow each other in no time.
        time += random.below(4) * random.below(1_000_000);
        let packet = Packet {
            wire_len: content.len() as u32,
            ..Packet::new(time, &content[..kept])
        };
        out.write(&packet).expect("write a temporary file");
    }
    out.finish().expect("write a temporary file");
}

/// Writes more segments than tshark keeps, and ACKs of the last that it keeps and the next one.
pub fn write_many_outstanding(path: &Path, limit: u32) {
    let mut time = 1_700_000_000_000_000_000;
    let mut out = writer(path);
    let mut put = |side, seq, ack, payload| {
        let tcp = Segment {
            port: 40000,
            seq,
            ack,
            flags: ACK,
            window: 1000,
            payload,
        };
        time += 1000;
        let content = frame(false, side, 6, &segment(side, &tcp));
        out.write(&Packet::new(time, &content))
            .expect("write a temporary file");
    };
    for at in 0..limit + 5 {
        put(0, at, 1, 1);
    }
    for ack in [limit + 1, limit, limit + 2] {
        put(1, 1, ack, 0);
    }
    out.finish().expect("write a temporary file");
}

/// Writes one byte of each client and its ACK, after 1 ms. Address and port of the clients step
/// together. Returns the number of clients.
pub fn write_stepping_clients(path: &Path) -> usize {
    const CLIENTS: u16 = 1000;
    let mut time = 1_700_000_000_000_000_000;
    let mut out = writer(path);
    for n in 0..CLIENTS {
        for side in [0, 1] {
            let tcp = Segment {
                port: 1000 + n,
                seq: 1 + u32::from(side),
                ack: 2,
                flags: ACK,
                window: 1000,
                payload: usize::from(side == 0),
            };
            let mut frame = frame(n % 2 == 1, side, 6, &segment(side, &tcp));
            // The last two bytes of the client's address: source if it sends, else destination.
            let end = match (n % 2, side) {
                (0, 0) => 30,
                (0, _) => 34,
                (_, 0) => 38,
                (_, _) => 54,
            };
            frame[end - 2..end].copy_from_slice(&(n + 256).to_be_bytes());
            time += 1_000_000;
            out.write(&Packet::new(time, &frame))
                .expect("write a temporary file");
        }
    }
    out.finish().expect("write a temporary file");
    CLIENTS.into()
}

fn writer(path: &Path) -> Writer<BufWriter<File>> {
    let file = File::create(path).expect("create a temporary file");
    Writer::pcap(BufWriter::new(file), LinkType::ETHERNET).expect("write a temporary file")
}
