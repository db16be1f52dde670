//! A million corrupted packets through the native core: no crash, no table out of bounds, no chunk lost.
//!
//! Mutations of generated traffic: bits, lengths, cuts, splices, repeats, wrong times and link types. With
//! `FAIRPATH_SANITIZE` set (`cargo xtask sanitize`) AddressSanitizer and UBSan check the C.
//! `make test` runs 20 % of them, from the environment's seed; `FAIRPATH_MUTATIONS=n` changes their number.

mod traffic;

use std::time::Instant;

use fairpath_core::{Config, Event, Frame, Mode, Monitor};
use fairpath_units::{Share, test_seed};
use traffic::{Options, Random, SECOND, generate};

/// The interval of checks of the tables, in packets.
const CHECK_EVERY: u64 = 20_000;

fn mutations() -> u64 {
    let wanted = std::env::var("FAIRPATH_MUTATIONS").ok();
    wanted
        .and_then(|n| n.parse().ok())
        .unwrap_or(Share::reported().of(1_000_000))
}

/// Small tables, so that all of them overflow.
fn config(mode: Mode) -> Config {
    Config {
        flow_sets: 4,
        half_sets: 1,
        chunks: 48,
        max_segments: 24,
        flow_timeout: 5 * SECOND,
        half_open_timeout: 2 * SECOND,
        closed_timeout: SECOND,
        evict_guard: SECOND,
        mode: mode as u32,
        ..Config::default()
    }
}

fn assert_sound(monitor: &Monitor, config: &Config, what: &str) {
    let usage = monitor.usage();
    assert!(
        usage.flows <= u64::from(config.flow_sets) * 8,
        "{what}: {usage:?}"
    );
    assert!(
        usage.half_open <= u64::from(config.half_sets) * 8,
        "{what}: {usage:?}"
    );
    assert!(
        usage.chunks <= u64::from(config.chunks),
        "{what}: {usage:?}"
    );
    assert_eq!(
        monitor.held(),
        Some(usage.chunks),
        "{what}: chunks that flows hold"
    );
}

/// Changes a frame, now and then beyond recognition.
fn mutate(random: &mut Random, frame: &mut Frame, data: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..random.within(0, 4) {
        let at = random.within(0, data.len() as u64) as usize;
        match random.within(0, 12) {
            0 => data.truncate(at),
            1 if at < other.len() => {
                data.truncate(at);
                data.extend_from_slice(&other[at..]);
            }
            2 if at < data.len() => {
                let end = (at + random.within(1, 9) as usize).min(data.len());
                data[at..end].fill(random.draw() as u8);
            }
            3 => data.insert(at, random.draw() as u8),
            4 => frame.wire_len = random.draw() as u32,
            5 => frame.link = random.within(0, 8) as u16,
            6 => {
                frame.now = frame
                    .now
                    .wrapping_add(random.draw() % (20 * SECOND))
                    .wrapping_sub(10 * SECOND)
            }
            7 => {
                frame.segs = random.draw() as u32 % 70_000;
                frame.ifindex = random.draw() as u32 % 4;
                frame.direction = random.draw() as u8;
                frame.flags = random.draw() as u8 & 3;
                frame.vlan = random.draw() as u16;
            }
            _ if at < data.len() => data[at] ^= 1 << random.within(0, 8),
            _ => {}
        }
    }
}

#[test]
fn corrupted_packets_keep_the_tables_consistent() {
    let first = test_seed();
    // Some long flows, and many short ones, whose handshakes meet.
    let shapes = [
        (4, 20_000),
        (10, 20_000),
        (10, 60_000),
        (200, 300),
        (200, 300),
    ];
    let frames: Vec<(Frame, Vec<u8>)> = (0u64..)
        .zip(shapes)
        .flat_map(|(seed, (flows, bytes))| {
            let options = Options {
                flows,
                bytes,
                ..Options::default()
            };
            generate(first.wrapping_add(seed), &options)
                .frames()
                .collect::<Vec<_>>()
        })
        .collect();
    let (mut random, mut samples, mut spent) =
        (Random::new(first), 0u64, std::time::Duration::ZERO);
    let modes = [Mode::Hybrid, Mode::Seq, Mode::Ts, Mode::Handshake];
    let each = mutations() / modes.len() as u64;
    for mode in modes {
        let config = config(mode);
        let mut monitor = Monitor::new(&config);
        let mut report = |event| samples += u64::from(matches!(event, Event::Sample(_)));
        for i in 0..each {
            let (frame, data) = &frames[i as usize % frames.len()];
            let (mut frame, mut data) = (*frame, data.clone());
            let other = &frames[random.draw() as usize % frames.len()].1;
            mutate(&mut random, &mut frame, &mut data, other);
            let start = Instant::now();
            monitor.frame(&frame, &data, &mut report);
            spent += start.elapsed();
            if i % CHECK_EVERY == 0 {
                assert_sound(
                    &monitor,
                    &config,
                    &format!("seed {first}, {mode:?}, packet {i}"),
                );
            }
        }
        monitor.finish(&mut report);
        assert_sound(
            &monitor,
            &config,
            &format!("seed {first}, {mode:?}, finished"),
        );
        let stats = monitor.stats();
        assert_eq!(stats.lock_failures, 0);
        assert_eq!(stats.events_lost, 0);
        for (name, reached) in [
            ("malformed", stats.malformed),
            ("truncated", stats.truncated),
            ("flows_refused", stats.flows_refused),
            ("segments_refused", stats.segments_refused),
            ("flows_evicted", stats.flows_evicted),
            ("half_open_evicted", stats.half_open_evicted),
        ] {
            assert!(reached > 0 || each < 250_000, "the mutations reach {name}");
        }
    }
    let rate = mutations() as f64 / spent.as_secs_f64() / 1e6;
    println!(
        "seed {first}: {samples} samples from {} corrupted packets, {rate:.2} million a second",
        mutations()
    );
    assert!(samples > 0);
}

/// Nothing but noise, while a header and shorter.
#[test]
fn random_bytes_leave_the_tables_sound() {
    let config = config(Mode::Hybrid);
    let mut monitor = Monitor::new(&config);
    let seed = test_seed();
    let mut random = Random::new(seed);
    for i in 0..mutations() / 10 {
        let data: Vec<u8> = (0..random.within(0, 200))
            .map(|_| random.draw() as u8)
            .collect();
        let frame = Frame {
            now: i,
            wire_len: random.draw() as u32,
            link: random.within(0, 8) as u16,
            ..Frame::default()
        };
        monitor.frame(&frame, &data, |_| {});
    }
    monitor.finish(|_| {});
    assert_sound(&monitor, &config, &format!("seed {seed}"));
}
