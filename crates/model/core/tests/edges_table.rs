//! Tests of full tables, a full pool and full lists (docs/design/0003).

mod traffic;

use fairpath_core::{Config, Reason, Usage};
use fairpath_wire::tcp::Flags;
use traffic::SECOND;
use traffic::script::{A, B, Talk};

/// The smallest tables there are.
fn tiny() -> Config {
    Config {
        flow_sets: 1,
        half_sets: 1,
        chunks: 4096,
        ..Config::default()
    }
}

/// Eight flows that talked until `ms`, which fill the tiny table.
fn full(config: Config, ms: u64) -> Talk {
    let mut talk = Talk::new(config);
    for port in 1..=8 {
        talk.flow.port[A] = port;
        talk.handshake(0);
        talk.at(ms).seq(1001).ack(501).data(10).send();
    }
    assert_eq!(talk.monitor.usage().flows, 8);
    talk.rtts();
    talk
}

/// Are the eight still measured?
fn assert_all_alive(talk: &mut Talk, ms: u64) {
    assert_eq!(talk.ended, []);
    for port in 1..=8 {
        talk.flow.port[A] = port;
        talk.at(ms).from(B).seq(501).ack(1011).send();
    }
    assert_eq!(talk.rtts().len(), 8);
}

/// Notes 2.11.
#[test]
fn a_syn_flood_does_not_evict_established_flows() {
    let mut talk = full(tiny(), 100);
    for i in 0..60_000u16 {
        talk.flow.port[A] = i.wrapping_add(100);
        talk.at(200 + u64::from(i) / 1000)
            .seq(u32::from(i) << 16)
            .flags(Flags::SYN)
            .send();
    }
    let usage = talk.monitor.usage();
    assert_eq!((usage.flows, usage.half_open), (8, 8));
    assert!(talk.monitor.stats().half_open_evicted > 50_000);
    assert_all_alive(&mut talk, 300);
}

/// Notes 2.11: SYNs and ACKs from forged addresses complete handshakes of one side only.
#[test]
fn forged_handshakes_do_not_evict_established_flows() {
    let mut talk = full(tiny(), 100);
    for i in 0..20_000u16 {
        talk.flow.port[A] = i.wrapping_add(100);
        let ms = 200 + u64::from(i) / 1000;
        talk.at(ms).seq(7).flags(Flags::SYN).send();
        talk.at(ms).seq(8).ack(9).send();
    }
    assert_all_alive(&mut talk, 300);
    assert!(talk.monitor.stats().flows_refused > 0);
}

/// Notes 2.27.
#[test]
fn an_ack_flood_does_not_evict_established_flows() {
    let mut talk = full(tiny(), 100);
    for i in 0..60_000u16 {
        talk.flow.port[A] = i.wrapping_add(100);
        talk.at(200 + u64::from(i) / 1000)
            .seq(u32::from(i))
            .ack(1)
            .data(10)
            .send();
    }
    assert_eq!(talk.monitor.stats().flows_refused, 60_000);
    assert_all_alive(&mut talk, 300);
}

/// Notes 2.27: what has been silent for longer than the guard is evicted, the longest first.
#[test]
fn idle_flows_are_evicted_for_new_ones() {
    let mut talk = full(tiny(), 100);
    talk.flow.port[A] = 3;
    talk.at(20_000).seq(1011).ack(501).data(10).send();
    talk.flow.port[A] = 100;
    talk.at(40_000).seq(1).ack(1).data(10).send();
    assert_eq!(
        talk.ended
            .iter()
            .map(|record| record.reason)
            .collect::<Vec<_>>(),
        [Reason::Evicted]
    );
    assert_ne!(talk.ended[0].key.endpoint(0).port(), 3);
    assert_eq!(talk.monitor.stats().flows_evicted, 1);
}

/// One-sided flows keep their place for a second, closed ones not at all.
#[test]
fn closed_and_one_sided_flows_are_evicted_first() {
    let mut talk = full(tiny(), 100);
    talk.flow.port[A] = 5;
    talk.at(110).seq(1011).ack(501).flags(Flags::RST).send();
    talk.flow.port[A] = 100;
    talk.at(120).seq(1).ack(1).data(10).send();
    assert_eq!(
        talk.monitor.stats().flows_refused,
        0,
        "took the closed flow's place"
    );
    talk.flow.port[A] = 101;
    talk.at(130).seq(1).ack(1).data(10).send();
    assert_eq!(
        talk.monitor.stats().flows_refused,
        1,
        "the other one-sided flow is still new"
    );
    talk.at(1500).seq(1).ack(1).data(10).send();
    assert_eq!(talk.monitor.stats().flows_refused, 1);
    assert_eq!(talk.monitor.stats().one_sided_flows, 1);
}

/// Half-open flows end silently, counted.
#[test]
fn handshakes_that_never_complete_are_counted() {
    let mut talk = Talk::default();
    talk.at(0).seq(1000).flags(Flags::SYN).send();
    for second in 1..60 {
        talk.flow.port[A] = 1;
        talk.at(second * 1000).seq(1).ack(1).data(10).send();
    }
    assert_eq!(talk.monitor.usage().half_open, 0);
    assert_eq!(talk.monitor.stats().half_open_failed, 1);
    assert_eq!(talk.ended, []);
}

/// Refused connections too.
#[test]
fn a_handshake_that_is_reset_is_counted() {
    let mut talk = Talk::default();
    talk.at(0).seq(1000).flags(Flags::SYN).send();
    talk.at(20)
        .from(B)
        .seq(0)
        .ack(1001)
        .flags(Flags::RST | Flags::ACK)
        .send();
    assert_eq!(talk.monitor.stats().half_open_failed, 1);
    assert_eq!(talk.monitor.usage(), Usage::default());
    assert_eq!(talk.rtts(), [20], "a refusal is an answer");
}

/// Notes 2.18: what does not fit is counted, what fitted is measured, and what comes later again.
#[test]
fn more_outstanding_segments_than_allowed_are_refused() {
    let config = Config {
        max_segments: 20,
        ..Config::default().with_flows(64)
    };
    let mut talk = Talk::new(config);
    talk.handshake(0);
    talk.rtts();
    for i in 0..50 {
        talk.at(100).seq(1001 + 100 * i).ack(501).data(100).send();
    }
    assert_eq!(talk.monitor.stats().segments_refused, 30);
    for i in [5, 19, 20, 50] {
        talk.at(120).from(B).seq(501).ack(1001 + 100 * i).send();
    }
    assert_eq!(
        talk.rtts(),
        [20; 3],
        "the ACK of the last one covers none that was remembered"
    );
    talk.at(200).seq(6001).ack(501).data(100).send();
    talk.at(220).from(B).seq(501).ack(6101).send();
    assert_eq!(talk.rtts(), [20]);
}

/// The same where the pool is exhausted: by one flow, to the harm of another, until it is acknowledged.
#[test]
fn an_exhausted_pool_is_counted_and_recovers() {
    let config = Config {
        chunks: 16,
        ..Config::default().with_flows(64)
    };
    let mut talk = Talk::new(Config {
        chunks: 16,
        ..config
    });
    talk.handshake(0);
    talk.rtts();
    for i in 0..200 {
        talk.at(100).seq(1001 + 100 * i).ack(501).data(100).send();
    }
    assert_eq!(talk.monitor.usage().chunks, 16);
    assert!(talk.monitor.stats().segments_refused > 0);
    assert_eq!(talk.monitor.held(), Some(16));
    // A hole without a chunk to note it in.
    talk.at(110).seq(30_001).ack(501).data(100).send();
    talk.at(120).from(B).seq(501).ack(30_101).send();
    talk.rtts();
    assert!(
        talk.monitor.usage().chunks <= 2,
        "all but the last are given back"
    );
    talk.at(200).seq(30_101).ack(501).data(100).send();
    talk.at(220).from(B).seq(501).ack(30_201).send();
    assert_eq!(talk.rtts(), [20]);
}

/// Everything a flow holds comes back when it goes.
#[test]
fn chunks_come_back_when_flows_end() {
    let config = Config {
        flow_timeout: 10 * SECOND,
        ..Config::default().with_flows(256)
    };
    let mut talk = Talk::new(config);
    for port in 1..100 {
        talk.flow.port[A] = port;
        talk.handshake(0);
        talk.at(100).seq(1001).ack(501).data(100).send();
        talk.at(100).seq(1301).ack(501).data(100).send(); // and a hole
        talk.at(100).from(B).seq(501).ack(1001).data(700).send();
    }
    assert_eq!(talk.monitor.held(), Some(talk.monitor.usage().chunks));
    assert!(talk.monitor.usage().chunks >= 2 * 99);
    talk.flow.port[A] = 9999;
    for second in 1..60 {
        talk.at(second * 1000).seq(1).ack(1).send();
    }
    let usage = talk.monitor.usage();
    assert_eq!((usage.flows, usage.chunks), (1, 0));
}
