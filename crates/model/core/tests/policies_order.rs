//! `priority`, `diffserv`, `token_bucket` and `pacing`: order, starvation, rates and bursts.

#[path = "policies/link.rs"]
mod link;
mod policies;

use fairpath_core::sched::{
    Drop, Meta, NodeConfig, Op, Outcome, OutcomeKind, Over, Plan, SchedRuntime, Scheduler,
    encode_rate,
};
use fairpath_units::test_seed;
use link::{Audited, Dice, Link, MS, SECOND, bytes_by_source, within_a_percent};
use policies::{Watched, node, packet, plan, weighing, with_param};
use proptest::prelude::*;

/// Expedited forwarding, best effort, lower effort.
const EF: u8 = 46;
const BE: u8 = 0;
const LE: u8 = 1;

fn leaf(name: &str, over: Over, params: &[(&str, u64)]) -> NodeConfig {
    let node = node(0, name, over);
    params.iter().fold(node, |node, (param, value)| {
        with_param(node, name, param, *value)
    })
}

fn one(leaf: NodeConfig) -> Plan {
    plan(vec![leaf], vec![1])
}

fn sent(outcomes: &[Outcome]) -> Vec<u32> {
    let sent = outcomes
        .iter()
        .filter(|outcome| outcome.kind == OutcomeKind::Sent);
    sent.map(|outcome| outcome.handle).collect()
}

/// The distance to the next packet, its DSCP, and the number that leave after it.
fn traffic() -> impl Strategy<Value = Vec<(u64, u8, u32)>> {
    let after = prop_oneof![3 => Just(0_u64), 3 => 0..3_000_000_u64];
    proptest::collection::vec((after, 0..64_u8, 0..3_u32), 1..300)
}

/// Packets that leave are those of the smallest `rank`, the first of equals.
fn compare<H: SchedRuntime>(runtime: H, traffic: &[(u64, u8, u32)], rank: impl Fn(u8, u64) -> u64) {
    let mut audited = Audited::new(runtime);
    let mut waiting: Vec<(u64, u32)> = vec![];
    let mut now = 0;
    for ((after, dscp, leave), handle) in traffic.iter().zip(1..) {
        now += after;
        let meta = Meta {
            dscp: *dscp,
            ..packet(handle, 1000)
        };
        audited.run(Op::enqueue(now, handle, meta));
        waiting.push((rank(*dscp, now), handle));
        let outcomes = audited.run(Op::dequeue(now, *leave));
        waiting.sort_unstable();
        let leave = waiting.len().min(*leave as usize);
        let expected: Vec<u32> = waiting.drain(..leave).map(|(_, handle)| handle).collect();
        assert_eq!(sent(&outcomes), expected, "at {now}");
    }
    audited.runtime.audit().unwrap();
}

proptest! {
    #![proptest_config(fairpath_units::property!(150))]

    #[test]
    fn priority_serves_first_band_and_first_of_band(traffic in traffic()) {
        let plan = one(leaf("priority", Over::Packets, &[]));
        compare(Scheduler::new(&plan).unwrap(), &traffic, |dscp, _| u64::from(7 - dscp / 8));
    }

    #[test]
    fn guard_limits_the_advantage_of_better_bands(traffic in traffic(), guard in 1..5_000_000_u64) {
        let plan = one(leaf("priority", Over::Packets, &[("guard", guard)]));
        let rank = |dscp: u8, now| now + u64::from(7 - dscp / 8) * guard;
        compare(Scheduler::new(&plan).unwrap(), &traffic, rank);
    }

    #[test]
    fn a_token_bucket_never_exceeds_rate_and_burst(
        sizes in proptest::collection::vec((0..3_000_000_u64, 60..1500_u32), 2..120),
        burst in 1500..20_000_u64,
        rate in prop_oneof![Just(8_000_000_u64), 1_000_000..1_000_000_000_u64],
    ) {
        let plan = one(leaf("token_bucket", Over::Packets, &[("rate", rate), ("burst", burst)]));
        bucket_agrees(Scheduler::new(&plan).unwrap(), &sizes, rate, burst);
    }
}

/// Send times compared with a token bucket in bytes; and every interval's bytes.
fn bucket_agrees<H: SchedRuntime>(runtime: H, sizes: &[(u64, u32)], rate_bps: u64, burst: u64) {
    let mut audited = Audited::new(runtime);
    let (mut tokens, mut last, mut now) = (burst as f64, 0, 0);
    let per_ns = rate_bps as f64 / 8e9;
    let mut left: Vec<(u64, u64)> = vec![];
    for ((after, bytes), handle) in sizes.iter().zip(1..) {
        now += after;
        // Sivaraman 3.1: tokens come with time, a packet's length is taken, and may be owed.
        tokens = (tokens + (now - last) as f64 * per_ns).min(burst as f64);
        let owed = (f64::from(*bytes) - tokens).max(0.0) / per_ns;
        (tokens, last) = (tokens - f64::from(*bytes), now);
        let outcome = audited.run(Op::enqueue(now, handle, packet(handle, *bytes)))[0];
        assert_eq!(outcome.kind, OutcomeKind::Queued);
        let expected = now as f64 + owed;
        assert!(
            (outcome.at as f64 - expected).abs() < 200.0,
            "{} instead of {expected}",
            outcome.at
        );
        left.push((outcome.at, u64::from(*bytes)));
    }
    for (first, (from, _)) in left.iter().enumerate() {
        let mut sum = 0;
        for (to, bytes) in &left[first..] {
            sum += bytes;
            let allowed = burst as f64 + (to - from) as f64 * per_ns;
            assert!(
                sum as f64 <= allowed + 1.0,
                "{sum} bytes from {from} to {to}"
            );
        }
    }
    assert!(left.is_sorted(), "first in, first out");
}

#[test]
fn flows_of_a_band_take_turns_after_better() {
    for (name, params) in [("priority", &[][..]), ("diffserv", &[("guard", 0)][..])] {
        let mut watched = Watched::natively(&one(leaf(name, Over::Flows, params)));
        let marked = |flow, dscp| Meta {
            dscp,
            ..packet(flow, 1000)
        };
        let packets = [(7, BE), (7, BE), (8, BE), (8, BE), (9, EF), (9, EF)];
        for ((flow, dscp), handle) in packets.into_iter().zip(1..) {
            assert!(watched.enqueue(handle, marked(flow, dscp)));
        }
        assert_eq!(watched.dequeue_many(9), [5, 6, 1, 3, 2, 4], "{name}");
    }
}

#[test]
fn the_lighter_child_goes_once_in_a_guard() {
    for (guard, expected) in [(0, 0), (20 * MS, 49)] {
        let root = with_param(
            node(0, "priority", Over::Children),
            "priority",
            "guard",
            guard,
        );
        let child = |weight| weighing(node(1, "fifo", Over::Packets), weight);
        let plan = plan(vec![root, child(8), child(1)], vec![0, 2, 3]);
        let source = |class_id| Meta {
            class_id,
            ..packet(class_id, 1250)
        };
        let runtime = Scheduler::new(&plan).unwrap();
        // A packet takes 0.1 ms.
        let mut link = Link::new(runtime, 1000, 100_000_000, vec![source(1), source(2)]);
        let sent = link.saturate(SECOND, 3, |_, _| true);
        let light = sent.iter().filter(|one| one.source == 1).count();
        assert!(
            (expected..=expected + 1).contains(&light),
            "guard {guard}: {light}"
        );
        let waited = sent
            .iter()
            .filter(|one| one.source == 1)
            .map(|one| one.sojourn);
        assert!(waited.max().is_none_or(|longest| longest <= 3 * guard + MS));
    }
}

#[test]
fn no_packet_is_reordered_longer_than_guard() {
    // Best effort fills the link alone; lower effort still gets through.
    let node = leaf("diffserv", Over::Packets, &[("guard", 10 * MS)]);
    let sources = [BE, LE].map(|dscp| Meta {
        dscp,
        ..packet(dscp.into(), 1250)
    });
    let runtime = Scheduler::new(&one(node)).unwrap();
    let mut link = Link::new(runtime, 1000, 100_000_000, sources.to_vec());
    let sent = link.saturate(SECOND, 5, |_, _| true);
    let bulk: Vec<u64> = sent
        .iter()
        .filter(|one| one.source == 1)
        .map(|one| one.sojourn)
        .collect();
    assert!(bulk.len() > 300, "{}", bulk.len());
    // 10 ms, and the best effort that waited before it.
    assert!(
        bulk.iter().all(|wait| *wait <= 11 * MS),
        "{:?}",
        bulk.iter().max()
    );
}

/// The tin of every DSCP by name, from RFC 4594's classes.
fn tin_by_name(dscp: u8, tins: u64) -> u64 {
    let (control, voice, calls) = ([48, 56], [44, 46], [32, 40]);
    let (shell, quick, heavy, bulk) = ([16], [18, 20, 22], [10, 12, 14], [1, 8]);
    let video = [24, 26, 28, 30, 34, 36, 38];
    let classes: [&[u8]; 8] = [
        &control, &voice, &calls, &shell, &quick, &video, &heavy, &bulk,
    ];
    let class = classes.iter().position(|class| class.contains(&dscp));
    match (tins, class) {
        (8, Some(class)) => [0, 1, 1, 2, 3, 4, 6, 7][class],
        (8, None) => 5,
        (4, Some(class)) => [0, 0, 0, 1, 1, 1, 2, 3][class],
        (4, None) => 2,
        (3, Some(class)) => [0, 0, 1, 1, 1, 1, 1, 2][class],
        (3, None) => 1,
        _ => 0,
    }
}

#[test]
fn every_dscp_maps_to_the_documented_tin() {
    for tins in [1, 3, 4, 8] {
        let params = [("tins", tins), ("guard", 0)];
        let mut watched = Watched::natively(&one(leaf("diffserv", Over::Packets, &params)));
        for dscp in 0..64 {
            assert!(watched.enqueue(
                u32::from(dscp) + 1,
                Meta {
                    dscp,
                    ..packet(1, 100)
                }
            ));
        }
        let mut expected: Vec<u8> = (0..64).collect();
        expected.sort_by_key(|dscp| tin_by_name(*dscp, tins));
        let order: Vec<u8> = watched
            .dequeue_many(64)
            .iter()
            .map(|handle| *handle as u8 - 1)
            .collect();
        assert_eq!(order, expected, "{tins} tins");
    }
}

#[test]
fn token_bucket_counts_as_the_papers_send_time() {
    // A byte a microsecond, a bucket of 1500: two packets of 1000 wait for what they lack.
    let params = [("rate", 8_000_000), ("burst", 1500)];
    let mut watched = Watched::natively(&one(leaf("token_bucket", Over::Packets, &params)));
    let at = |watched: &mut Watched<Scheduler>, now, handle| {
        watched.run(&[Op::enqueue(now, handle, packet(1, 1000))])[0].at
    };
    assert_eq!(at(&mut watched, 0, 1), 0);
    assert_eq!(at(&mut watched, 0, 2), 500_000);
    assert_eq!(at(&mut watched, 0, 3), 1_500_000);
    assert_eq!(watched.at(499_999).dequeue_many(9), [1]);
    assert_eq!(watched.at(500_000).dequeue_many(9), [2]);
    assert_eq!(watched.at(10 * MS).dequeue_many(9), [3]);
    // Ten milliseconds later the bucket is full, and holds no more than that.
    assert_eq!(at(&mut watched, 20 * MS, 4), 20 * MS);
    assert_eq!(at(&mut watched, 20 * MS, 5), 20 * MS + 500_000);
}

#[test]
fn token_bucket_reaches_its_rate_within_a_percent() {
    for (over, flows) in [(Over::Packets, 1), (Over::Flows, 3)] {
        let node = leaf(
            "token_bucket",
            over,
            &[("rate", 20_000_000), ("burst", 3000)],
        );
        let sources = (1..=3).map(|flow| packet(flow, 500 * flow)).collect();
        let runtime = Scheduler::new(&one(node)).unwrap();
        let mut link = Link::new(runtime, 1000, 1_000_000_000, sources);
        let sent = link.saturate(SECOND, 4, |_, _| true);
        let bytes = bytes_by_source(&sent, 3);
        within_a_percent(bytes.iter().sum::<u64>() * 8, 20_000_000 * flows, "all");
        if flows == 3 {
            bytes
                .iter()
                .for_each(|bytes| within_a_percent(bytes * 8, 20_000_000, "a flow"));
        }
    }
}

#[test]
fn paced_flows_leave_evenly_and_independently() {
    let node = leaf("pacing", Over::Packets, &[("rate", 8_000_000)]);
    let mut watched = Watched::natively(&one(node));
    // Three packets of 1000 bytes of two flows; the second weighs twice as much.
    watched.run(&[Op::weight(0, 1, 2, fairpath_core::sched::COST_ONE / 2)]);
    let mut ats = vec![];
    for handle in 1..=6 {
        let flow = 2 - handle % 2;
        ats.push(watched.run(&[Op::enqueue(MS, handle, packet(flow, 1000))])[0].at);
    }
    assert_eq!(ats, [MS, MS, 2 * MS, MS + MS / 2, 3 * MS, 2 * MS]);
    assert_eq!(watched.at(2 * MS).dequeue_many(9), [1, 2, 4, 3, 6]);
    // A time that is past is now.
    assert_eq!(
        watched.run(&[Op::enqueue(9 * MS, 1, packet(1, 1000))])[0].at,
        9 * MS
    );
}

#[test]
fn pacing_holds_its_rates_within_a_percent() {
    let node = leaf("pacing", Over::Packets, &[("rate", 5_000_000)]);
    let sources = (1..=5).map(|flow| packet(flow, 300 * flow)).collect();
    let mut link = Link::new(
        Scheduler::new(&one(node)).unwrap(),
        1000,
        1_000_000_000,
        sources,
    );
    let sent = link.saturate(2 * SECOND, 3, |_, _| true);
    for bytes in bytes_by_source(&sent, 5) {
        within_a_percent(bytes * 4, 5_000_000, "a flow");
    }
}

#[test]
fn a_packet_beyond_the_horizon_leaves_no_trace() {
    let mut plan = one(leaf("pacing", Over::Packets, &[("rate", 8_000_000)]));
    plan.config.horizon = 2 * MS;
    let mut watched = Watched::natively(&plan);
    let outcomes: Vec<Outcome> = (1..=5)
        .flat_map(|handle| watched.run(&[Op::enqueue(0, handle, packet(1, 1000))]))
        .collect();
    let drops: Vec<Option<Drop>> = outcomes.iter().map(Outcome::drop).collect();
    assert_eq!(
        drops,
        [None, None, None, Some(Drop::Horizon), Some(Drop::Horizon)]
    );
    // A millisecond later the next one fits, where the dropped ones would have been.
    assert_eq!(
        watched.run(&[Op::enqueue(MS, 6, packet(1, 1000))])[0].at,
        3 * MS
    );
}

#[test]
fn a_packet_that_waited_too_long_is_dropped() {
    for (policy, over) in [("fifo", Over::Packets), ("fq_codel", Over::Flows)] {
        let mut plan = one(leaf(policy, over, &[]));
        plan.config.max_sojourn = 500 * MS;
        let mut watched = Watched::natively(&plan);
        for handle in 1..=3 {
            watched.run(&[Op::enqueue(0, handle, packet(1, 1000))]);
        }
        watched.run(&[Op::enqueue(300 * MS, 4, packet(2, 1000))]);
        // At the limit it is sent; CoDel drops none of the last ones.
        assert_eq!(watched.at(500 * MS).dequeue_many(1), [1], "{policy}");
        let outcomes = watched.run(&[Op::dequeue(500 * MS + 1, 2)]);
        let drops: Vec<Drop> = outcomes.iter().filter_map(Outcome::drop).collect();
        assert_eq!(drops, [Drop::TooOld; 2], "{policy}");
        assert_eq!(sent(&outcomes), [4], "{policy}");
    }
}

#[test]
fn at_low_rates_packets_wait_for_four_lengths() {
    // 1,000 bytes take a second.
    let slow = encode_rate(8_000);
    let root = NodeConfig {
        ceil: slow,
        ..leaf("fifo", Over::Packets, &[])
    };
    let mut plan = one(root);
    plan.config.max_sojourn = 500 * MS;
    let mut watched = Watched::natively(&plan);
    for handle in 1..=2 {
        watched.run(&[Op::enqueue(0, handle, packet(1, 1000))]);
    }
    assert_eq!(watched.at(4 * SECOND - MS).dequeue_many(1), [1]);
    let outcomes = watched.run(&[Op::dequeue(4 * SECOND + MS, 1)]);
    assert_eq!(outcomes[0].drop(), Some(Drop::TooOld));
}

/// An ACK of 66 bytes that can be replaced.
fn ack(flow: u32, number: u32) -> Meta {
    Meta {
        ack_flags: Meta::PURE_ACK | 0x10,
        ack: number,
        ..packet(flow, 66)
    }
}

#[test]
fn a_later_ack_replaces_the_one_ahead() {
    let mut plan = one(leaf("fq_codel", Over::Flows, &[]));
    plan.config.ack_filter = 1;
    let mut watched = Watched::natively(&plan);
    // The numbers wrap.
    for handle in 1..=10 {
        watched.run(&[Op::enqueue(
            0,
            handle,
            ack(1, (handle * 1000).wrapping_sub(3000)),
        )]);
    }
    // Data, a duplicate, an older one, other flags and another flow stay.
    watched.run(&[Op::enqueue(0, 11, packet(1, 66))]);
    watched.run(&[Op::enqueue(0, 12, ack(1, 8_000))]);
    watched.run(&[Op::enqueue(0, 13, ack(1, 8_000))]);
    watched.run(&[Op::enqueue(0, 14, ack(1, 7_000))]);
    let echo = Meta {
        ack_flags: Meta::PURE_ACK | 0x50,
        ..ack(1, 9_000)
    };
    watched.run(&[Op::enqueue(0, 15, echo)]);
    watched.run(&[Op::enqueue(0, 16, ack(2, 9_000))]);
    let outcomes = watched.run(&[Op::enqueue(0, 17, ack(2, 9_001))]);
    let dropped: Vec<_> = outcomes
        .iter()
        .filter_map(|o| Some((o.handle, o.drop()?)))
        .collect();
    assert_eq!(dropped, [(16, Drop::AckFiltered)]);
    let mut left = watched.at(0).dequeue_many(20);
    left.sort_unstable();
    assert_eq!(left, [10, 11, 12, 13, 14, 15, 17]);
}

/// An ACK with these SACK blocks: left and right edges.
fn sack(number: u32, blocks: &[(u32, u32)]) -> Meta {
    let mut meta = ack(1, number);
    for (to, (left, right)) in meta.sack.iter_mut().zip(blocks) {
        *to = u64::from(*left) << 32 | u64::from(*right);
    }
    meta
}

#[test]
fn acks_replace_those_whose_blocks_they_cover() {
    let is_replaced = |earlier: Meta, later: Meta| {
        let mut plan = one(leaf("fq_codel", Over::Flows, &[]));
        plan.config.ack_filter = 1;
        let mut watched = Watched::natively(&plan);
        watched.run(&[Op::enqueue(0, 1, earlier)]);
        let outcomes = watched.run(&[Op::enqueue(0, 2, later)]);
        outcomes.iter().any(|o| o.drop() == Some(Drop::AckFiltered))
    };
    let top = u32::MAX - 10;
    for (earlier, later, replaced) in [
        // A run of packets after a hole grows.
        (sack(10, &[(20, 30)]), sack(10, &[(20, 40)]), true),
        (sack(10, &[]), sack(10, &[(20, 30)]), true),
        // The hole is filled, in part or whole.
        (sack(10, &[(20, 30)]), sack(15, &[(20, 40)]), true),
        (sack(10, &[(20, 30)]), sack(30, &[]), true),
        (sack(10, &[(20, 30), (40, 50)]), sack(30, &[(40, 60)]), true),
        // Another hole, reported in another order.
        (sack(10, &[(20, 30)]), sack(10, &[(40, 50), (20, 30)]), true),
        (sack(10, &[(40, 50), (20, 30)]), sack(10, &[(20, 60)]), true),
        // Numbers wrap.
        (sack(top, &[(top + 5, 3)]), sack(top, &[(top + 5, 6)]), true),
        // Duplicates, and those with less.
        (sack(10, &[(20, 30)]), sack(10, &[(20, 30)]), false),
        (sack(10, &[(20, 40)]), sack(10, &[(20, 30)]), false),
        (sack(10, &[(20, 30)]), sack(10, &[]), false),
        (sack(10, &[(20, 30)]), sack(9, &[(20, 40)]), false),
        // Blocks of a full option push others out.
        (sack(10, &[(20, 30)]), sack(10, &[(40, 50)]), false),
        (sack(10, &[(20, 30)]), sack(15, &[(40, 50)]), false),
        (sack(10, &[(20, 30)]), sack(29, &[]), false),
    ] {
        assert_eq!(
            is_replaced(earlier, later),
            replaced,
            "{earlier:?} {later:?}"
        );
    }
}

#[test]
fn packets_leave_at_the_times_that_they_carry() {
    let node = leaf("pacing", Over::Packets, &[("by_hint", 1)]);
    let mut audited = Audited::new(Scheduler::new(&one(node)).unwrap());
    let seed = test_seed();
    let mut dice = Dice(seed);
    let mut times: Vec<(u64, u32)> = vec![];
    for handle in 1..=500 {
        let hint = dice.below(10 * MS);
        let at = audited.run(Op::enqueue(
            MS,
            handle,
            Meta {
                hint,
                ..packet(handle, 100)
            },
        ))[0]
            .at;
        assert_eq!(at, hint.max(MS));
        times.push((at, handle));
    }
    times.sort_unstable();
    for now in (MS..11 * MS).step_by(100_000) {
        let due = times.partition_point(|(at, _)| *at <= now);
        let expected: Vec<u32> = times.drain(..due).map(|(_, handle)| handle).collect();
        assert_eq!(
            sent(&audited.run(Op::dequeue(now, 500))),
            expected,
            "at {now}, seed {seed}"
        );
    }
}
