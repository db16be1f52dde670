//! Capture files through the reader, their packets through the native core.

#![no_main]

use fairpath_core::{Config, Frame, Link, Monitor};
use fairpath_wire::capture::{MAX_PACKET_BYTES, Reader};
use libfuzzer_sys::fuzz_target;

/// A gzipped input of a few bytes may hold millions of packets.
const MAX_PACKETS: u64 = 100_000;

fuzz_target!(|input: &[u8]| {
    let Ok(mut reader) = Reader::new(input) else {
        return;
    };
    let config = Config {
        flow_sets: 2,
        half_sets: 1,
        chunks: 24,
        ..Config::default()
    };
    let mut monitor = Monitor::new(&config);
    while let Ok(Some(packet)) = reader.next() {
        assert!(packet.data.len() as u32 <= MAX_PACKET_BYTES);
        let frame = Frame {
            now: packet.time_ns,
            number: packet.number,
            wire_len: packet.wire_len,
            link: Link::Ethernet as u16,
            ..Frame::default()
        };
        monitor.frame(&frame, packet.data, |_| {});
        if packet.number > MAX_PACKETS {
            break;
        }
    }
    monitor.finish(|_| {});
    assert_eq!(monitor.held(), Some(monitor.usage().chunks));
});
