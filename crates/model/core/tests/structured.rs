//! Structured addresses fill a flow table like random ones, with every seed (bpf/core/hash.h).

mod traffic;

use std::collections::HashSet;

use fairpath_core::sched::{
    COST_ONE, Classifier, End, NodeConfig, Op, Over, Plan, SchedConfig, SchedRuntime, Scheduler,
    policies,
};
use fairpath_core::{Config, Mode, Monitor, OTHER};
use traffic::occupancy::refusals;
use traffic::structured::{PATTERNS, Pattern};

/// Flows and sets: the default table with few flows, tables that are a third full, and full ones.
const SIZES: [(u32, u32); 4] = [(1_000, 8192), (6_000, 2048), (8_192, 1024), (1_000, 128)];
/// A queue, by the number of `enum fp_pifo_kind`.
const HEAP: u32 = 1;
/// The seeds are fixed, because the test compares a number with a limit.
const SEEDS: [u64; 3] = [0, 1, 0x0123_4567_89ab_cdef];

fn fill(pattern: &Pattern, flows: u32, sets: u32, seed: u64, mode: Mode) -> Monitor {
    let mut monitor = Monitor::new(&Config {
        seed,
        mode: mode as u32,
        ..Config::default().with_flows(sets * 8)
    });
    for n in 0..flows {
        let (frame, data) = pattern.data(n);
        monitor.frame(&frame, &data, |_| ());
    }
    monitor
}

#[test]
fn patterns_have_different_flows() {
    for pattern in &PATTERNS {
        let flows: HashSet<_> = (0..65_536)
            .map(|n| pattern.flow(n))
            .map(|flow| (flow.address, flow.port))
            .collect();
        assert_eq!(flows.len(), 65_536, "{}", pattern.name);
    }
}

#[test]
fn structured_flows_find_entries_like_random_ones() {
    for pattern in &PATTERNS {
        for (flows, sets) in SIZES {
            for seed in SEEDS {
                let monitor = fill(pattern, flows, sets, seed, Mode::Hybrid);
                let (refused, limit) = (monitor.stats().flows_refused, refusals(flows, sets, 8));
                let what = format!("{}: {flows} flows, {sets} sets, seed {seed}", pattern.name);
                assert!(refused <= limit, "{what}: {refused} refused, not {limit}");
                assert_eq!(monitor.usage().flows + refused, u64::from(flows), "{what}");
            }
        }
    }
}

/// 1,000 clients are 1.5 % of the table.
#[test]
fn tshark_mode_refuses_no_structured_flow() {
    for pattern in &PATTERNS {
        let monitor = fill(pattern, 1_000, 8192, 0, Mode::Tshark);
        let usage = monitor.usage();
        assert_eq!((usage.flows, usage.refused), (1_000, 0), "{}", pattern.name);
    }
}

/// The summary reports flows, not packets, and how full the table was.
#[test]
fn refused_flows_are_counted_once_each() {
    for (flows, error) in [(9, 0), (200, 4), (20_000, 600)] {
        let mut monitor = Monitor::new(&Config {
            flow_sets: 1,
            ..Config::default()
        });
        for n in (0..flows).chain(8..flows) {
            let (frame, data) = PATTERNS[2].data(n);
            monitor.frame(&frame, &data, |_| ());
        }
        let (usage, refused) = (monitor.usage(), u64::from(flows) - 8);
        assert_eq!(monitor.stats().flows_refused, 2 * refused);
        assert!(usage.refused.abs_diff(refused) <= error, "{usage:?}");
        assert_eq!((usage.flows, usage.refused_at), (8, 8));
    }
}

/// The number of used entries that a refusal notes stays right while flows start and end.
#[test]
fn a_refusal_notes_how_full_the_table_was() {
    let config = Config::default().with_flows(4096);
    let mut monitor = Monitor::new(&config);
    for n in 0..4096 {
        let (mut frame, data) = PATTERNS[0].data(n);
        frame.now = u64::from(n) * 1_000_000_000;
        monitor.frame(&frame, &data, |_| ());
    }
    // Far later, all are over; then eight thousand at once fill it.
    monitor.expire(
        100_000_000_000_000,
        config.flow_sets + config.half_sets,
        |_| (),
    );
    assert_eq!(monitor.usage().flows, 0);
    let before = monitor.usage().refused_at;
    assert_eq!(before, 0, "nothing was refused so far");
    let mut first = None;
    for n in 0..8192 {
        let (mut frame, data) = PATTERNS[2].data(n);
        frame.now = 200_000_000_000_000 + u64::from(n);
        monitor.frame(&frame, &data, |_| ());
        if first.is_none() && monitor.stats().flows_refused > 0 {
            first = Some(monitor.usage().flows);
        }
    }
    let usage = monitor.usage();
    assert_eq!(Some(usage.refused_at), first, "the table only filled up");
    assert!(usage.refused_at > 512 && usage.flows > 3000, "{usage:?}");
}

/// Each flow of a scheduler has a queue, too; `shared` counts those that found none.
#[test]
fn structured_flows_find_queues_like_random_ones() {
    for pattern in &PATTERNS {
        for seed in SEEDS {
            let plan = Plan {
                config: SchedConfig {
                    packets: 1000,
                    limit_packets: 1000,
                    flows: 1024,
                    references: 1000,
                    seed: seed as u32,
                    ..SchedConfig::default()
                },
                nodes: vec![NodeConfig {
                    policy: policies().iter().find(|p| p.name == "stfq").unwrap().id,
                    over: Over::Flows,
                    queue: HEAP,
                    cost: COST_ONE,
                    ..NodeConfig::default()
                }],
                class_table: vec![1],
                ..Plan::default()
            };
            let mut scheduler = Scheduler::new(&plan).unwrap();
            let mut classifier = Classifier::with_seed(0, seed);
            let look = |n| {
                let (frame, data) = pattern.data(n);
                Op::enqueue(0, n + 1, classifier.look(&frame, &data, End::Receiver).0)
            };
            let ops: Vec<Op> = (0..1000).map(look).collect();
            scheduler.run(&ops, &mut Vec::new()).unwrap();
            let (shared, limit) = (scheduler.stats().shared, refusals(1000, 128, 8));
            let what = format!("{}, seed {seed}", pattern.name);
            assert!(shared <= limit, "{what}: {shared} shared, not {limit}");
        }
    }
}

/// A live shaper draws its seed, so that no sender can compute who shares its queue.
#[test]
fn flow_hashes_depend_on_the_seed() {
    let (frame, data) = PATTERNS[0].data(1);
    let hash = |seed| {
        let mut classifier = Classifier::with_seed(0, seed);
        classifier.look(&frame, &data, End::Receiver).0.flow_hash
    };
    assert_eq!(hash(7), hash(7));
    assert_ne!(hash(7), hash(8));
    let (meta, _) = Classifier::new(0).look(&frame, &data, End::Receiver);
    assert_eq!(meta.flow_hash, hash(0));
    assert_eq!(meta.flow_hash, meta.with_flow_hash().flow_hash);
}

/// Interface indexes step where devices are made in groups, as tunnels or containers.
#[test]
fn stepping_interface_indexes_find_places() {
    let steps = [
        2, 3, 7, 10, 16, 32, 64, 100, 128, 256, 512, 610, 987, 1000, 1024, 1597, 2048, 4096,
    ];
    let half = steps.map(|step| (step, 512));
    for (step, interfaces) in [(1, 1024)].into_iter().chain(half) {
        for first in [1u32, 1_000, 300_000] {
            let mut monitor = Monitor::new(&Config::default().with_flows(256));
            let index = |n: u32| first + n * step;
            let placed = (0..interfaces).filter(|n| monitor.watch(index(*n), true, OTHER));
            let what = format!("{interfaces} interfaces from {first}, {step} apart");
            assert_eq!(placed.count(), interfaces as usize, "{what}");
        }
    }
}
