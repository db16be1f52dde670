//! Frames through the native core; README.md describes the input.

#![no_main]

use fairpath_core::{Config, Frame, Mode, Monitor};
use libfuzzer_sys::fuzz_target;

const HEAD: usize = 6;

fuzz_target!(|input: &[u8]| {
    for mode in [Mode::Hybrid, Mode::Ts] {
        run(input, mode);
    }
});

fn run(mut input: &[u8], mode: Mode) {
    let config = Config {
        flow_sets: 2,
        half_sets: 1,
        chunks: 24,
        max_segments: 16,
        mode: mode as u32,
        ..Config::default()
    };
    let mut monitor = Monitor::new(&config);
    let mut frame = Frame::default();
    while let Some((head, rest)) = input.split_at_checked(HEAD) {
        let (ms, len) = (
            u16::from_le_bytes([head[2], head[3]]),
            u16::from_le_bytes([head[4], head[5]]),
        );
        let (data, rest) = rest.split_at(usize::from(len).min(rest.len()));
        frame.number += 1;
        frame.now += u64::from(ms) * 1_000_000;
        frame.link = u16::from(head[0] & 7);
        frame.direction = head[1] & 3;
        frame.ifindex = u32::from(head[1] >> 4);
        frame.wire_len = u32::from(len);
        monitor.frame(&frame, data, |_| {});
        input = rest;
    }
    monitor.finish(|_| {});
    let usage = monitor.usage();
    assert!(
        usage.flows <= 16 && usage.half_open <= 8 && usage.chunks <= 24,
        "{usage:?}"
    );
    assert_eq!(monitor.held(), Some(usage.chunks), "chunks that flows hold");
}
