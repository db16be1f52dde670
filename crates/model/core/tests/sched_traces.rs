//! The rate trace of the link is replaced while packets wait: another one restarts, and neither stalls
//! the link nor floods it; the same one continues.

use fairpath_core::sched::{
    COST_ONE, Changes, ImpairConfig, Meta, NodeConfig, OPPORTUNITY, Op, OutcomeKind, Over, Plan,
    SchedConfig, SchedRuntime, Scheduler, policies,
};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;
const HEAP: u32 = 1;
/// Handles, and packets of one opportunity that wait from the beginning on.
const PACKETS: u32 = 4000;

/// Times between opportunities: 1 Gbit/s, and 10 Mbit/s.
const FAST_NS: u64 = 12_000;
const SLOW_NS: u64 = 1_200_000;

/// A FIFO whose line sends by a trace of ten opportunities, the first at 0; another table of
/// `before` words is before it.
fn line(every_ns: u64, before: usize) -> Plan {
    let fifo = policies().iter().find(|policy| policy.name == "fifo");
    let impairment = ImpairConfig {
        chances_at: before as u32 + 1,
        chances: 10,
        chances_period: 10 * every_ns,
        ..ImpairConfig::default()
    };
    let mut words = vec![7; before];
    words.extend((0..10).map(|chance| chance * every_ns));
    Plan {
        config: SchedConfig {
            packets: PACKETS,
            limit_packets: PACKETS,
            flows: 64,
            service: 1,
            ..SchedConfig::default()
        },
        nodes: vec![NodeConfig {
            policy: fifo.unwrap().id,
            over: Over::Packets,
            queue: HEAP,
            cost: COST_ONE,
            impair: 1,
            ..NodeConfig::default()
        }],
        class_table: vec![1],
        impairments: vec![impairment],
        words,
        ..Plan::default()
    }
}

/// The number of packets that leave at `now`.
fn leave(scheduler: &mut Scheduler, now: u64) -> u64 {
    let mut outcomes = Vec::new();
    scheduler
        .run(&[Op::dequeue(now, PACKETS)], &mut outcomes)
        .unwrap();
    let sent = outcomes
        .iter()
        .filter(|reported| reported.kind == OutcomeKind::Sent);
    sent.count() as u64
}

/// Packets of `bytes` come at `now`, one for each handle from `first` on.
fn come(scheduler: &mut Scheduler, now: u64, first: u32, bytes: u32) {
    let meta = Meta {
        bytes,
        ..Meta::default()
    };
    let ops: Vec<Op> = (first..=PACKETS)
        .map(|handle| Op::enqueue(now, handle, meta))
        .collect();
    scheduler.run(&ops, &mut Vec::new()).unwrap();
}

/// A line whose trace has run for an hour, with packets that came just now.
fn busy(plan: &Plan) -> Scheduler {
    let mut line = Scheduler::new(plan).unwrap();
    leave(&mut line, 0);
    leave(&mut line, HOUR);
    come(&mut line, HOUR, 1, OPPORTUNITY as u32);
    line
}

fn adopt(plan: &Plan, old: &mut Scheduler, now: u64) -> Scheduler {
    let mut new = Scheduler::new(plan).unwrap();
    let mut outcomes = Vec::new();
    new.adopt(old, &Changes::none(1), now, &mut outcomes)
        .unwrap();
    assert_eq!(outcomes, []);
    new
}

/// Packets that leave in each of ten windows of 100 opportunities, from `from` on.
fn by_window(line: &mut Scheduler, from: u64, every_ns: u64) -> Vec<u64> {
    let window = |line: &mut Scheduler, number: u64| {
        let times = (number * 100)..(number * 100 + 100);
        times.map(|time| leave(line, from + time * every_ns)).sum()
    };
    (0..10).map(|number| window(line, number)).collect()
}

#[test]
fn another_trace_applies_at_once() {
    for (from, to) in [(FAST_NS, SLOW_NS), (SLOW_NS, FAST_NS)] {
        let mut old = busy(&line(from, 0));
        let mut new = adopt(&line(to, 0), &mut old, HOUR);
        assert_eq!(by_window(&mut new, HOUR, to), [100; 10], "{from} to {to}");
    }
}

#[test]
fn a_changed_trace_restarts() {
    for (from, to) in [(FAST_NS, SLOW_NS), (SLOW_NS, FAST_NS)] {
        let (mut plan, other) = (line(from, 0), line(to, 10));
        plan.words.extend(&other.words[10..]);
        let mut scheduler = busy(&plan);
        let changes = plan.impairments[0].changes(HOUR, 1, &other.impairments[0]);
        let mut outcomes = Vec::new();
        scheduler.run(&changes, &mut outcomes).unwrap();
        assert!(
            outcomes
                .iter()
                .all(|reported| reported.kind == OutcomeKind::Done)
                && !outcomes.is_empty()
        );
        assert_eq!(
            by_window(&mut scheduler, HOUR, to),
            [100; 10],
            "{from} to {to}"
        );
    }
}

#[test]
fn the_same_trace_continues_after_handover() {
    // Adopted between any two opportunities, and more often than these.
    let mut scheduler = busy(&line(SLOW_NS, 0));
    let mut sent = 0;
    for step in 0..1000 {
        let now = HOUR + step * SLOW_NS / 3;
        scheduler = adopt(&line(SLOW_NS, step as usize % 7), &mut scheduler, now);
        sent += leave(&mut scheduler, now);
    }
    // One packet for each third step; the opportunity of the first one passed before packets came.
    assert_eq!(sent, 333);
}

#[test]
fn a_restored_trace_restarts() {
    let untraced = || {
        let mut plan = line(SLOW_NS, 0);
        plan.config.service = 0;
        plan
    };
    let mut scheduler = busy(&line(SLOW_NS, 0));
    let mut free = adopt(&untraced(), &mut scheduler, HOUR);
    // As many as one dequeue tries.
    assert_eq!(leave(&mut free, HOUR), 1024);
    // An hour without one is no hour of opportunities.
    let mut traced = adopt(&line(SLOW_NS, 0), &mut free, 2 * HOUR);
    assert_eq!(by_window(&mut traced, 2 * HOUR, SLOW_NS), [100; 10]);
}

#[test]
fn excess_bytes_are_owed_to_the_next_trace() {
    let plan = line(SLOW_NS, 0);
    let mut old = Scheduler::new(&plan).unwrap();
    come(&mut old, 0, PACKETS - 1, 9 * OPPORTUNITY as u32);
    assert_eq!(leave(&mut old, SLOW_NS), 1);
    let mut new = adopt(&line(FAST_NS, 0), &mut old, SLOW_NS);
    // Eight opportunities are owed, and the next packet needs one that is left.
    assert_eq!(leave(&mut new, SLOW_NS), 0);
    assert_eq!(leave(&mut new, SLOW_NS + 7 * FAST_NS), 0);
    assert_eq!(leave(&mut new, SLOW_NS + 8 * FAST_NS), 1);
}
