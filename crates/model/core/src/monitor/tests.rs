//! The two paths of the parser (`bpf/core/parse/usual.h`) against each other.

use fairpath_statistics::Random;

use super::*;
use crate::abi::Link;
use crate::memory::ParserPath;

const ROUNDS: u32 = 400_000;

/// A usual packet: TCP over IPv4 or IPv6 in Ethernet, with timestamps or no options.
fn usual(random: &mut Random) -> Vec<u8> {
    let (v6, timestamps) = (random.below(2) == 1, random.below(2) == 1);
    let mut frame: Vec<u8> = (0..6).map(|_| random.draw() as u8).collect();
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 1]);
    let header = if timestamps { 32u16 } else { 20 };
    let payload = [0, 1, 7, 1448][random.below(4) as usize];
    let traffic_class = random.draw() as u8;
    if v6 {
        frame.extend_from_slice(&[
            0x86,
            0xdd,
            0x60 | traffic_class >> 4,
            traffic_class << 4,
            0,
            9,
        ]);
        frame.extend_from_slice(&(header + payload).to_be_bytes());
        frame.extend_from_slice(&[6, 64]);
        frame.extend((0..32).map(|_| random.draw() as u8));
    } else {
        frame.extend_from_slice(&[8, 0, 0x45, traffic_class]);
        frame.extend_from_slice(&(20 + header + payload).to_be_bytes());
        frame.extend_from_slice(&[1, 2, 0x40, 0, 64, 6, 3, 4]);
        // Now and then both ends have one address.
        let far = random.below(8) as u8;
        frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, far]);
    }
    frame.extend((0..12).map(|_| random.draw() as u8));
    frame.extend_from_slice(&[(header * 4) as u8, random.draw() as u8]);
    frame.extend((0..6).map(|_| random.draw() as u8));
    if timestamps {
        frame.extend_from_slice(&[1, 1, 8, 10]);
        frame.extend((0..8).map(|_| random.draw() as u8));
    }
    frame.resize(frame.len() + usize::from(payload), 0x5a);
    frame
}

#[test]
fn usual_packets_parse_alike_on_both_paths() {
    let seed = fairpath_units::test_seed();
    let mut random = Random::new(seed);
    let mut monitor = Monitor::new(&Config::default().with_flows(1024));
    let mut taken = [0u32; 2];
    for round in 0..ROUNDS {
        let mut data = usual(&mut random);
        let mut frame = Frame {
            wire_len: data.len() as u32,
            segs: [0, 1, 1, 3][random.below(4) as usize],
            link: Link::Ethernet as u16,
            vlan: [0, 0, 0x1064][random.below(3) as usize],
            ..Frame::default()
        };
        // Half of them unchanged; the others with changes of headers and lengths.
        let changed = round % 2 == 1;
        if changed {
            for _ in 0..=random.below(3) {
                let at = random.below(data.len().min(90) as u64) as usize;
                match random.below(6) {
                    0 => data.truncate(at.max(1)),
                    1 => frame.wire_len = at as u32,
                    2 => frame.link = random.below(8) as u16,
                    3 => data.insert(at, 0),
                    _ => data[at] ^= 1 << random.below(8),
                }
            }
        }
        let long = monitor.parse(&frame, &data, ParserPath::Long);
        let both = monitor.parse(&frame, &data, ParserPath::Both);
        assert!(
            long == both,
            "seed {seed}, round {round}: {frame:?} {data:x?}"
        );
        let (usual, _) = monitor.parse(&frame, &data, ParserPath::Usual);
        taken[usize::from(changed)] += usual as u32;
        assert!(
            changed || usual == 1,
            "seed {seed}, round {round}: {data:x?}"
        );
    }
    assert!(taken[1] > ROUNDS / 10, "{taken:?}");
}
