//! A SYN flood at full rate during established flows, in virtual time through the core.
//!
//! The live scenario (tests/netns/flooding.rs) floods as fast as this machine can make packets;
//! here the rate is exact: 100,000 SYN/s from forged addresses, with 10,000 established flows
//! that answer once a second. Not one of their samples may be missing.

use std::net::Ipv4Addr;

use fairpath_core::{Config, Event, Frame, Link, Method, Monitor};
use fairpath_wire::Frame as Wire;
use fairpath_wire::tcp::{Flags, Header};

const FLOWS: u32 = 10_000;
const SYNS_A_SECOND: u64 = 100_000;
const SECOND: u64 = 1_000_000_000;
/// From data to its acknowledgement.
const RTT: u64 = 20_000_000;
const DATA: u32 = 100;

const SOURCE: usize = 26;
const SOURCE_PORT: usize = 34;
const SEQ: usize = 38;

/// Frames made once and patched: addresses, ports and numbers lie at fixed places.
struct Templates {
    syn: Vec<u8>,
    syn_ack: Vec<u8>,
    ack: Vec<u8>,
    data: Vec<u8>,
}

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn segment(from_server: bool, flags: Flags, payload: usize) -> Vec<u8> {
    let (source, destination, ports) = match from_server {
        true => (SERVER, CLIENT, (80, 40_000)),
        false => (CLIENT, SERVER, (40_000, 80)),
    };
    let tcp = Header {
        src_port: ports.0,
        dst_port: ports.1,
        flags,
        window: 1000,
        ..Header::default()
    };
    Wire::ethernet([2; 6], [4; 6])
        .ipv4(source, destination)
        .tcp(tcp)
        .zeros(payload)
        .build()
}

impl Templates {
    fn new() -> Templates {
        Templates {
            syn: segment(false, Flags::SYN, 0),
            syn_ack: segment(true, Flags::SYN | Flags::ACK, 0),
            ack: segment(false, Flags::ACK, 0),
            data: segment(true, Flags::ACK, DATA as usize),
        }
    }
}

struct Scene {
    monitor: Monitor,
    samples: u64,
    wrong: u64,
}

impl Scene {
    /// `client` is patched into the client's side, `seq` and `ack` into the TCP header.
    fn send(&mut self, now: u64, frame: &[u8], from_server: bool, client: u32, seq: u32, ack: u32) {
        let mut bytes = frame.to_vec();
        let (address, port) = match from_server {
            true => (SOURCE + 4, SOURCE_PORT + 2),
            false => (SOURCE, SOURCE_PORT),
        };
        bytes[address..address + 4].copy_from_slice(&client.to_be_bytes());
        bytes[port..port + 2].copy_from_slice(&40_000u16.to_be_bytes());
        bytes[SEQ..SEQ + 4].copy_from_slice(&seq.to_be_bytes());
        bytes[SEQ + 4..SEQ + 8].copy_from_slice(&ack.to_be_bytes());
        let reported = Frame {
            now,
            wire_len: bytes.len() as u32,
            link: Link::Ethernet as u16,
            ..Frame::default()
        };
        let (samples, wrong) = (&mut self.samples, &mut self.wrong);
        self.monitor.frame(&reported, &bytes, |event| {
            if let Event::Sample(sample) = event
                && sample.method == Method::Seq
            {
                *samples += 1;
                *wrong += u64::from(sample.rtt != RTT);
            }
        });
    }
}

fn established(i: u32) -> u32 {
    u32::from(CLIENT) + 1 + i
}

/// Forged addresses lie outside those of the established flows and never come twice.
fn forged(n: u64) -> u32 {
    0x2000_0000 + (n as u32).wrapping_mul(2_654_435_761) % 0x6000_0000
}

fn no_sample_is_missing(seconds: u64) {
    let templates = Templates::new();
    let config = Config {
        seed: 7,
        ..Config::default()
    };
    let mut scene = Scene {
        monitor: Monitor::new(&config),
        samples: 0,
        wrong: 0,
    };
    for i in 0..FLOWS {
        let now = 1 + u64::from(i) * 10_000;
        scene.send(now, &templates.syn, false, established(i), 0, 0);
        scene.send(now + 1, &templates.syn_ack, true, established(i), 0, 1);
        scene.send(now + 2, &templates.ack, false, established(i), 1, 1);
    }
    let (mut syns, start) = (0, SECOND);
    for second in 0..seconds {
        // In step: of each flow's second, its data come after as many SYNs as its turn says.
        for i in 0..FLOWS {
            let now = start + second * SECOND + u64::from(i) * (SECOND / u64::from(FLOWS));
            for _ in 0..SYNS_A_SECOND / u64::from(FLOWS) {
                scene.send(now, &templates.syn, false, forged(syns), 9, 0);
                syns += 1;
            }
            let seq = 1 + second as u32 * DATA;
            scene.send(now, &templates.data, true, established(i), seq, 1);
            scene.send(
                now + RTT,
                &templates.ack,
                false,
                established(i),
                1,
                seq + DATA,
            );
        }
    }
    let stats = scene.monitor.stats();
    println!(
        "{syns} SYNs in {seconds} s during {FLOWS} flows: {} samples, {} half-open flows evicted",
        scene.samples, stats.half_open_evicted
    );
    assert_eq!(syns, seconds * SYNS_A_SECOND);
    assert_eq!(scene.samples, seconds * u64::from(FLOWS));
    assert_eq!(scene.wrong, 0);
    assert_eq!((stats.flows_evicted, stats.flows_refused), (0, 0));
    assert!(
        stats.half_open_evicted > syns / 2,
        "the flood did not press"
    );
}

#[test]
fn five_seconds_of_syns_cost_no_sample() {
    no_sample_is_missing(5);
}

#[cfg(feature = "soak")]
#[test]
fn soak_a_minute_of_syns_costs_no_sample() {
    no_sample_is_missing(60);
}
