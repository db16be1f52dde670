//! A new plan adopts the packets of an old one: no packet is lost, order and debts continue, and a
//! refusal changes nothing.

mod sched_oracle;

use std::collections::BTreeSet;

use fairpath_core::sched::{
    COST_ONE, Changes, Custom, Drop, Function, HandoverError, ImpairConfig, LossConfig, LossModel,
    Meta, NEVER, NodeConfig, Op, Outcome, OutcomeKind, Over, Plan, Policy, SchedConfig,
    SchedRuntime, SchedStats, Scheduler, chance, encode_rate, policies,
};
use fairpath_units::test_seed;
use sched_oracle::log::{Random, Writer};
use sched_oracle::trees::tree;

const TREES: u64 = 300;
const OPS: usize = 1_200;
const HEAP: u32 = 1;

fn run(scheduler: &mut Scheduler, ops: &[Op]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    scheduler.run(ops, &mut outcomes).unwrap();
    outcomes
}

fn adopt(new: &mut Scheduler, old: &mut Scheduler, changes: &Changes) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    new.adopt(old, changes, 0, &mut outcomes).unwrap();
    outcomes
}

/// Handles that wait after these outcomes, where `waiting` did before.
fn follow(mut waiting: BTreeSet<u32>, outcomes: &[Outcome]) -> BTreeSet<u32> {
    for outcome in outcomes.iter().filter(|outcome| outcome.handle != 0) {
        match outcome.kind {
            OutcomeKind::Queued => assert!(waiting.insert(outcome.handle), "{outcome:?}"),
            OutcomeKind::Sent => assert!(waiting.remove(&outcome.handle), "{outcome:?}"),
            OutcomeKind::Dropped => drop(waiting.remove(&outcome.handle)),
            _ => {}
        }
    }
    waiting
}

/// Dequeues at the returned times, until there is none.
fn drain(scheduler: &mut Scheduler, mut now: u64) -> Vec<Outcome> {
    let mut all = Vec::new();
    for _ in 0..20_000 {
        let outcomes = run(scheduler, &[Op::dequeue(now, 1000)]);
        let last = outcomes.last().copied();
        all.extend(outcomes);
        match last.filter(|last| last.kind == OutcomeKind::Nothing) {
            Some(Outcome { at: NEVER, .. }) => break,
            reported => now = reported.map_or(now, |reported| reported.at),
        }
    }
    all
}

/// A log in the first century, with packets without a later time.
fn log_for(random: &mut Random, tree: &sched_oracle::trees::Tree) -> Vec<Op> {
    let mut log = Writer::new(random).write(random, tree, OPS);
    let first = log[0].now;
    for op in &mut log {
        op.now = op.now.saturating_sub(first);
        op.meta.hint >>= 8;
        op.meta.bytes = op.meta.bytes.min(9000);
    }
    log
}

/// Packets that came and are neither sent nor dropped.
fn before_leaving(stats: &SchedStats) -> u64 {
    stats.enqueued - stats.sent - stats.dropped.iter().sum::<u64>()
}

/// Seeds of trees, always as many: they take a second, and what they move is added up.
fn trees() -> impl Iterator<Item = u64> {
    let first = test_seed();
    (0..TREES).map(move |n| first.wrapping_add(n))
}

/// From a random tree to another one, or to itself, and on.
fn into_another(same: bool) -> usize {
    let (mut moved, mut at_delay_queues) = (0, 0);
    for seed in trees() {
        let mut random = Random::new(seed);
        let from = tree(&mut random, None);
        let log = log_for(&mut random, &from);
        let mut plan = if same {
            from.plan.clone()
        } else {
            tree(&mut random, None).plan
        };
        plan.config.packets = plan.config.packets.max(from.plan.config.packets);
        let mut old = Scheduler::new(&from.plan).unwrap();
        let waiting = follow(BTreeSet::new(), &run(&mut old, &log));
        let before = old.stats();
        let mut new = Scheduler::new(&plan).unwrap();
        if seed % 2 == 0 {
            new.commit();
        }
        let changes = Changes {
            nodes: (0..plan.nodes.len())
                .map(|_| random.below(20) as u32)
                .collect(),
            classes: vec![],
        };
        let changes = if same {
            Changes::none(plan.nodes.len())
        } else {
            changes
        };
        let reported = adopt(&mut new, &mut old, &changes);
        assert!(
            reported.iter().all(|reported| reported.drop().is_some()),
            "seed {seed}"
        );
        new.audit()
            .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        let after = new.stats();
        assert_eq!((before.sent, before.enqueued), (after.sent, after.enqueued));
        let left = follow(waiting.clone(), &reported);
        let held: u32 = (1..=plan.nodes.len() as u32)
            .map(|id| new.node_stats(id).packets)
            .sum();
        // Those at the delay queue count at no node; the audit has counted them.
        let gated = before_leaving(&after) - u64::from(held);
        at_delay_queues += gated;
        assert_eq!(left.len() as u64, u64::from(held) + gated, "seed {seed}");
        moved += left.len();
        let left = follow(left, &drain(&mut new, log[OPS - 1].now));
        assert_eq!(left, BTreeSet::new(), "seed {seed}");
        new.audit()
            .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(
        at_delay_queues > 0,
        "{at_delay_queues} moved between delay queues"
    );
    moved
}

#[test]
fn handover_to_another_tree_keeps_packets() {
    let moved = into_another(false);
    assert!(moved > 300, "{moved}");
}

#[test]
fn handover_to_the_same_tree_keeps_packets() {
    let moved = into_another(true);
    assert!(moved > 300, "{moved}");
}

#[test]
fn an_emptied_scheduler_returns_all_handles_and_works() {
    let mut waited = 0;
    for seed in trees() {
        let mut random = Random::new(seed);
        let tree = tree(&mut random, None);
        let log = log_for(&mut random, &tree);
        let (first, second) = log.split_at(OPS / 2);
        let mut scheduler = Scheduler::new(&tree.plan).unwrap();
        let waiting = follow(BTreeSet::new(), &run(&mut scheduler, first));
        assert_eq!(scheduler.clear() as usize, waiting.len(), "seed {seed}");
        waited += waiting.len();
        let audit = |scheduler: &Scheduler| {
            let audited = scheduler.audit();
            audited.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        };
        audit(&scheduler);
        let now = second[0].now;
        let reported = run(&mut scheduler, &[Op::dequeue(now, 9)]);
        assert_eq!(
            (reported[0].kind, reported[0].at),
            (OutcomeKind::Nothing, NEVER)
        );
        let waiting = follow(BTreeSet::new(), &run(&mut scheduler, second));
        audit(&scheduler);
        let left = follow(waiting, &drain(&mut scheduler, log[OPS - 1].now));
        assert_eq!(left, BTreeSet::new(), "seed {seed}");
    }
    assert!(waited > 300, "{waited}");
}

fn policy(name: &str) -> &'static fairpath_core::sched::Policy {
    let named = policies().iter().find(|policy| policy.name == name);
    named.unwrap_or_else(|| panic!("no policy {name}"))
}

fn leaf(parent: u32, name: &str) -> NodeConfig {
    NodeConfig {
        parent,
        policy: policy(name).id,
        over: Over::Packets,
        queue: HEAP,
        cost: COST_ONE,
        params: policy(name).standards(),
        ..NodeConfig::default()
    }
}

fn plan(nodes: Vec<NodeConfig>, class_table: Vec<u32>) -> Plan {
    let config = SchedConfig {
        packets: 500,
        limit_packets: 500,
        flows: 64,
        ..SchedConfig::default()
    };
    Plan {
        config,
        nodes,
        class_table,
        ..Plan::default()
    }
}

fn sent(outcomes: &[Outcome]) -> Vec<(u32, u64)> {
    let sent = outcomes
        .iter()
        .filter(|reported| reported.kind == OutcomeKind::Sent);
    sent.map(|reported| (reported.handle, reported.at))
        .collect()
}

#[test]
fn self_ranked_packets_keep_order_across_handover() {
    for name in ["fifo", "srpt", "edf", "priority"] {
        let plan = plan(vec![leaf(0, name)], vec![1]);
        let mut random = Random::new(test_seed());
        // Handles come in no order, several packets at a time.
        let come = |random: &mut Random, from: u32| -> Vec<Op> {
            let handle = |i: u32| (i * 37) % 499 + 1;
            let ops = (from..from + 90).map(|i| {
                let hint = random.below(40);
                let meta = Meta {
                    bytes: 100,
                    hint,
                    dscp: hint as u8,
                    ..Meta::default()
                };
                Op::enqueue(u64::from(i / 3), handle(i), meta)
            });
            ops.collect()
        };
        let (first, second) = (come(&mut random, 0), come(&mut random, 90));
        let mut alone = Scheduler::new(&plan).unwrap();
        run(&mut alone, &first);
        let mut expected = sent(&run(&mut alone, &[Op::dequeue(40, 30)]));
        run(&mut alone, &second);
        expected.extend(sent(&drain(&mut alone, 100)));

        let mut old = Scheduler::new(&plan).unwrap();
        run(&mut old, &first);
        let mut got = sent(&run(&mut old, &[Op::dequeue(40, 30)]));
        let mut new = Scheduler::new(&plan).unwrap();
        assert_eq!(adopt(&mut new, &mut old, &Changes::none(1)), []);
        run(&mut new, &second);
        got.extend(sent(&drain(&mut new, 100)));
        assert_eq!(got, expected, "{name}");
        assert_eq!(got.len(), 180);
    }
}

/// A class of 1 Mbit/s under a root.
fn one_class(name: &str) -> Plan {
    let root = NodeConfig {
        over: Over::Children,
        ..leaf(0, "class_tree")
    };
    let class = NodeConfig {
        ceil: encode_rate(1_000_000),
        ..leaf(1, name)
    };
    plan(vec![root, class], vec![2])
}

#[test]
fn handover_does_not_raise_the_ceiling() {
    let plan = one_class("fifo");
    let mut scheduler = Scheduler::new(&plan).unwrap();
    let packet = Meta {
        bytes: 1250,
        ..Meta::default()
    };
    let ops: Vec<Op> = (1..=400)
        .map(|handle| Op::enqueue(0, handle, packet))
        .collect();
    run(&mut scheduler, &ops);
    let mut bytes = 0;
    for ms in 0..1000 {
        let mut new = Scheduler::new(&plan).unwrap();
        adopt(&mut new, &mut scheduler, &Changes::none(2));
        scheduler = new;
        bytes += sent(&run(&mut scheduler, &[Op::dequeue(ms * 1_000_000, 100)])).len() * 1250;
    }
    // A second at 1 Mbit/s, and the packet that may leave at once.
    assert!((124_000..=127_500).contains(&bytes), "{bytes}");
    let node = scheduler.node_stats(2);
    assert_eq!(
        (node.sent_bytes, node.packets),
        (bytes as u64, 400 - node.sent as u32)
    );
}

#[test]
fn node_that_was_not_there_begins_with_nothing() {
    let plan = one_class("fifo");
    let mut old = Scheduler::new(&plan).unwrap();
    let packet = Meta {
        bytes: 1250,
        ..Meta::default()
    };
    let ops: Vec<Op> = (1..=9)
        .map(|handle| Op::enqueue(0, handle, packet))
        .collect();
    run(&mut old, &ops);
    assert_eq!(sent(&run(&mut old, &[Op::dequeue(1, 9)])).len(), 1);
    let mut new = Scheduler::new(&plan).unwrap();
    adopt(
        &mut new,
        &mut old,
        &Changes {
            nodes: vec![1, 0],
            classes: vec![],
        },
    );
    assert_eq!(new.node_stats(2).sent, 0);
    assert_eq!(sent(&run(&mut new, &[Op::dequeue(2, 9)])).len(), 1);
}

#[test]
fn handover_uses_new_class_numbers() {
    let root = NodeConfig {
        over: Over::Children,
        ..leaf(0, "stfq")
    };
    let nodes = vec![root, leaf(1, "fifo"), leaf(1, "fifo"), leaf(1, "fifo")];
    let mut old = Scheduler::new(&plan(nodes.clone(), vec![2, 3, 4])).unwrap();
    let of = |class_id| Meta {
        class_id,
        bytes: 100,
        ..Meta::default()
    };
    run(
        &mut old,
        &[
            Op::enqueue(0, 1, of(1)),
            Op::enqueue(0, 2, of(2)),
            Op::enqueue(0, 3, of(0)),
        ],
    );
    // Class 1 is 2 now; class 2 is unused; the leaf of unmatched packets is the third.
    let mut new = Scheduler::new(&plan(nodes, vec![3, 0, 4])).unwrap();
    let changes = Changes {
        nodes: vec![1, 2, 3, 4],
        classes: vec![0, 2, 0],
    };
    assert_eq!(adopt(&mut new, &mut old, &changes), []);
    let leaves: BTreeSet<(u32, u32)> = drain(&mut new, 5)
        .iter()
        .filter(|reported| reported.kind == OutcomeKind::Sent)
        .map(|reported| (reported.handle, reported.node))
        .collect();
    assert_eq!(leaves, BTreeSet::from([(1, 4), (2, 3), (3, 3)]));
}

#[test]
fn refused_handover_changes_neither_scheduler() {
    let log: Vec<Op> = (1..=50)
        .map(|handle| Op::enqueue(0, handle, Meta::default()))
        .collect();
    let many = plan(vec![leaf(0, "fifo")], vec![1]);
    let mut few = many.clone();
    (few.config.packets, few.config.limit_packets) = (50, 50);
    let (mut old, mut small) = (
        Scheduler::new(&many).unwrap(),
        Scheduler::new(&few).unwrap(),
    );
    let mut used = Scheduler::new(&many).unwrap();
    run(&mut old, &log);
    run(&mut used, &log[..3]);
    let mut reported = Vec::new();
    let mut query = |new: &mut Scheduler| new.adopt(&mut old, &Changes::none(1), 0, &mut reported);
    assert_eq!(query(&mut small), Err(HandoverError::FewerHandles));
    assert_eq!(query(&mut used), Err(HandoverError::NotFresh));
    assert_eq!(reported, []);
    old.audit().unwrap();
    assert_eq!(sent(&drain(&mut old, 9)).len(), 50);
    assert_eq!(sent(&drain(&mut used, 9)).len(), 3);
    assert_eq!(drain(&mut small, 9).len(), 1);
}

#[test]
fn a_spent_scheduler_refuses_every_packet() {
    let plan = plan(vec![leaf(0, "fifo")], vec![1]);
    let (mut old, mut new) = (
        Scheduler::new(&plan).unwrap(),
        Scheduler::new(&plan).unwrap(),
    );
    run(&mut old, &[Op::enqueue(0, 1, Meta::default())]);
    adopt(&mut new, &mut old, &Changes::none(1));
    let reported = run(
        &mut old,
        &[Op::enqueue(1, 1, Meta::default()), Op::dequeue(2, 1)],
    );
    assert_eq!(reported[0].drop(), Some(Drop::BadHandle));
    assert_eq!(
        (reported[1].kind, reported[1].at),
        (OutcomeKind::Nothing, NEVER)
    );
}

#[test]
fn later_packets_wait_behind_handed_over_ones() {
    for name in ["fq_codel", "drr", "stfq"] {
        let flows = NodeConfig {
            over: Over::Flows,
            ..leaf(0, name)
        };
        let plan = plan(vec![flows], vec![1]);
        let meta = |i: u32| Meta {
            bytes: 500,
            flow_hash: i % 5 + 1,
            ..Meta::default()
        };
        let come = |range: std::ops::Range<u32>| -> Vec<Op> {
            range
                .map(|i| Op::enqueue(u64::from(i), i + 1, meta(i)))
                .collect()
        };
        let (mut old, mut new) = (
            Scheduler::new(&plan).unwrap(),
            Scheduler::new(&plan).unwrap(),
        );
        run(&mut old, &come(0..100));
        let mut left = sent(&run(&mut old, &[Op::dequeue(200, 33)]));
        assert_eq!(adopt(&mut new, &mut old, &Changes::none(1)), []);
        run(
            &mut new,
            &come(100..200)
                .iter()
                .map(|op| Op {
                    now: op.now + 200,
                    ..*op
                })
                .collect::<Vec<_>>(),
        );
        left.extend(sent(&drain(&mut new, 500)));
        assert_eq!(left.len(), 200);
        for flow in 0..5 {
            let of_flow = left
                .iter()
                .map(|(handle, _)| handle - 1)
                .filter(|i| i % 5 == flow);
            assert!(of_flow.is_sorted(), "{name}, flow {flow}");
        }
    }
}

/// A custom policy that ranks by the number of calls of its node.
struct Counting(u64);

impl Custom for Counting {
    fn identity(&self) -> u64 {
        self.0
    }

    fn call(
        &mut self,
        _: Function,
        _: &Meta,
        _: &mut [u64; 8],
        class: &mut [u64; 16],
        _: &mut [u64; 8],
        _: &mut [u64; 16],
    ) -> u64 {
        class[8] += 1;
        class[8]
    }
}

#[test]
fn custom_policy_state_survives_only_itself() {
    let policy = sched_oracle::policy::Wild::policy(&[Function::RankEnqueue], 0);
    let flows = NodeConfig {
        over: Over::Flows,
        policy: Policy::CUSTOM,
        ..leaf(0, "fifo")
    };
    let plan = plan(vec![flows], vec![1]);
    let build = |identity| {
        let custom = Box::new(Counting(identity));
        Scheduler::with_custom(&plan, &policy, custom).unwrap()
    };
    let rank_after = |identity| {
        let (mut old, mut new) = (build(1), build(identity));
        for now in 0..3 {
            let come = Op::enqueue(now, 1, Meta::default());
            run(&mut old, &[come, Op::dequeue(now, 1)]);
        }
        adopt(&mut new, &mut old, &Changes::none(1));
        assert_eq!(new.node_stats(1).sent, 3, "sums continue in both");
        let reported = run(&mut new, &[Op::enqueue(9, 1, Meta::default())]);
        assert_eq!(reported[0].kind, OutcomeKind::Queued);
        reported[0].rank
    };
    assert_eq!((rank_after(1), rank_after(2)), (4, 1));
}

/// Three leaves with a custom policy each; one of them changes.
#[test]
fn other_custom_policies_keep_their_state() {
    let policy = |place: u32| Policy {
        id: Policy::CUSTOM + place,
        ..sched_oracle::policy::Wild::policy(&[Function::RankEnqueue], 0)
    };
    let root = NodeConfig {
        over: Over::Children,
        ..leaf(0, "stfq")
    };
    let flows = |place: u32| NodeConfig {
        over: Over::Flows,
        policy: Policy::CUSTOM + place,
        ..leaf(1, "fifo")
    };
    let plan = plan(vec![root, flows(0), flows(1), flows(2)], vec![2, 3, 4]);
    let build = |identities: [u64; 3]| {
        let customs = (0..).zip(identities).map(|(place, identity)| {
            let custom: Box<dyn Custom> = Box::new(Counting(identity));
            (policy(place), custom)
        });
        Scheduler::with_customs(&plan, customs.collect()).unwrap()
    };
    let come = |now, class_id| {
        let meta = Meta {
            class_id,
            bytes: 100,
            ..Meta::default()
        };
        [Op::enqueue(now, 1, meta), Op::dequeue(now, 1)]
    };
    let mut old = build([1, 2, 3]);
    for class in 0..3 {
        run(&mut old, &come(u64::from(class), class));
    }
    let mut new = build([1, 9, 3]);
    adopt(&mut new, &mut old, &Changes::none(4));
    let rank = |scheduler: &mut Scheduler, class| run(scheduler, &come(9, class))[0].rank;
    let ranks = [0, 1, 2].map(|class| rank(&mut new, class));
    assert_eq!(ranks, [2, 1, 2]);
}

/// Two leaves; the first loses half of its packets by one seed, the second by this impairment.
fn two_losses(second: u32) -> Plan {
    let root = NodeConfig {
        over: Over::Children,
        ..leaf(0, "stfq")
    };
    let behind = |impair| NodeConfig {
        impair,
        ..leaf(1, "fifo")
    };
    let loss = |seed| ImpairConfig {
        loss: LossConfig {
            seed,
            model: LossModel::Each as u32,
            chances: [chance(0.5), 0, 0, 0, 0, 0, 0, 0],
            ..LossConfig::default()
        },
        ..ImpairConfig::default()
    };
    let mut plan = plan(vec![root, behind(1), behind(second)], vec![2, 3]);
    plan.impairments = vec![loss(7), loss(8)];
    plan
}

#[test]
fn joining_an_impairment_keeps_other_outcomes() {
    let come = |now: u64, class_id: u32| {
        let meta = Meta {
            class_id,
            bytes: 100,
            ..Meta::default()
        };
        [Op::enqueue(now, 1, meta), Op::dequeue(now, 1)]
    };
    let outcomes_of = |scheduler: &mut Scheduler, from: u64| -> Vec<bool> {
        let lost = |now| run(scheduler, &come(now, 0))[0].drop() == Some(Drop::Impaired);
        (from..from + 200).map(lost).collect()
    };
    let mut alone = Scheduler::new(&two_losses(2)).unwrap();
    let expected = [outcomes_of(&mut alone, 0), outcomes_of(&mut alone, 300)];
    let mut old = Scheduler::new(&two_losses(2)).unwrap();
    let first = outcomes_of(&mut old, 0);
    (200..237).for_each(|now| drop(run(&mut old, &come(now, 1))));
    let mut new = Scheduler::new(&two_losses(1)).unwrap();
    adopt(&mut new, &mut old, &Changes::none(3));
    assert_eq!(new.impair_stats(1).packets, 200);
    assert_eq!([first, outcomes_of(&mut new, 300)], expected);
}
