//! The same operations on the same tree: natively and in the kernel, outcome by outcome.

use fairpath_bpf::SchedRun;
use fairpath_core::sched::{
    COST_ONE, Meta, NodeConfig, Op, Outcome, Over, Plan, Policy, SchedConfig, SchedRuntime,
    Scheduler, Setting, encode_rate, policies,
};
use fairpath_testbed::{Need, requires};
use fairpath_units::test_seed;

const HEAP: u32 = 1;
const PACKETS: u32 = 500;
const OPS: usize = 20_000;

/// splitmix64 (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// A node with the queue that its policy wants.
fn node(parent: u32, policy: &Policy, over: Over) -> NodeConfig {
    let [kind, buckets, shift, full] = policy.queue;
    NodeConfig {
        parent,
        policy: policy.id,
        over,
        queue: if kind == 0 { HEAP } else { kind },
        queue_buckets: buckets,
        queue_shift: shift,
        queue_full: full,
        cost: COST_ONE,
        params: policy.standards(),
        ..NodeConfig::default()
    }
}

fn plan(nodes: Vec<NodeConfig>, leaves: &[u32]) -> Plan {
    let config = SchedConfig {
        packets: PACKETS,
        limit_packets: PACKETS - 50,
        flows: 64,
        hosts: 64,
        references: 4 * PACKETS,
        ..SchedConfig::default()
    };
    let class_table = std::iter::once(0).chain(leaves.iter().copied()).collect();
    Plan {
        config,
        nodes,
        class_table,
        ..Plan::default()
    }
}

fn flow(number: u64) -> u32 {
    (number as u32).wrapping_mul(0x9e37_79b1)
}

/// A node's weight or rates change; now and then there is no such node or setting.
fn setting(now: u64, dice: &mut Dice) -> Op {
    let rate = encode_rate(100_000 + dice.below(50_000_000));
    let (setting, value) = match dice.below(4) {
        0 => (Setting::Cost, dice.below(40_000)),
        1 => (Setting::Floor, rate * dice.below(2)),
        2 => (Setting::Ceil, rate * dice.below(2)),
        _ => (Setting::Burst, dice.below(20_000_000)),
    };
    let op = Op::node(now, dice.below(6) as u32, setting, value);
    let count = op.count + 4 * u32::from(dice.below(20) == 0);
    Op { count, ..op }
}

/// Random operations: bursts in and out, idle times, handles that are taken, removals, weights.
fn ops(dice: &mut Dice, classes: u64, leaf: u32) -> Vec<Op> {
    let mut now = 1_000_000;
    let op = |now: u64, dice: &mut Dice| match dice.below(100) {
        0..55 => {
            let mut meta = Meta {
                bytes: 60 + dice.below(1460) as u32,
                flow_hash: flow(dice.below(90)),
                class_id: dice.below(classes + 1) as u32,
                dscp: dice.below(64) as u8,
                ecn: dice.below(4) as u8,
                hint: dice.below(1 << 20),
                arrival: now,
                ..Meta::default()
            };
            meta.source[15] = dice.below(9) as u8;
            meta.destination[15] = dice.below(5) as u8;
            Op::enqueue(now, 1 + dice.below(PACKETS.into()) as u32, meta)
        }
        55..96 => Op::dequeue(now, dice.below(3) as u32),
        96 => setting(now, dice),
        97 => Op::remove(now, dice.below(PACKETS.into()) as u32),
        98 => Op::weight(
            now,
            leaf,
            flow(dice.below(90)),
            1 + dice.below(40_000) as u32,
        ),
        _ => Op::dequeue(now, 500),
    };
    (0..OPS)
        .map(|_| {
            now += match dice.below(1000) {
                0 => 3_600_000_000_000,
                1..20 => 20_000_000,
                _ => dice.below(200_000),
            };
            op(now, dice)
        })
        .collect()
}

fn outcomes(runtime: &mut dyn SchedRuntime, ops: &[Op]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    runtime.run(ops, &mut outcomes).unwrap();
    runtime
        .audit()
        .unwrap_or_else(|fault| panic!("{}: {fault}", runtime.name()));
    outcomes
}

fn agree(what: &str, plan: &Plan, seed: u64, classes: u64, leaf: u32) {
    let ops = ops(&mut Dice(seed), classes, leaf);
    let mut native = Scheduler::new(plan).unwrap();
    let mut kernel = SchedRun::load(plan).unwrap();
    let ours = outcomes(&mut native, &ops);
    let theirs = outcomes(&mut kernel, &ops);
    if let Some(at) = ours
        .iter()
        .zip(&theirs)
        .position(|(ours, theirs)| ours != theirs)
    {
        let op = &ops[ours[at].op as usize];
        panic!(
            "{what}, seed {seed}, outcome {at}:\n{op:?}\nnative {:?}\nkernel {:?}",
            ours[at], theirs[at]
        );
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
    assert_eq!(native.stats(), kernel.stats(), "{what}");
    assert!(
        native.stats().sent > OPS as u64 / 20,
        "{what}: {:?}",
        native.stats()
    );
    for node in 1..=plan.nodes.len() as u32 {
        assert_eq!(native.node_stats(node), kernel.node_stats(node), "{what}");
    }
}

#[test]
fn every_policy_agrees_in_both_runtimes() {
    requires!(Need::Root);
    let first = test_seed();
    for (policy, n) in policies().iter().zip(1..) {
        let seed = first.wrapping_add(n);
        for over in policy
            .over
            .iter()
            .filter(|over| matches!(over, Over::Packets | Over::Flows))
        {
            let plan = plan(vec![node(0, policy, *over)], &[1]);
            agree(&format!("{} over {over:?}", policy.name), &plan, seed, 1, 1);
        }
    }
}

#[test]
fn trees_of_each_policy_agree_in_both_runtimes() {
    requires!(Need::Root);
    let fifo = &policies()[0];
    let first = test_seed();
    for (policy, n) in policies().iter().zip(1..) {
        let seed = first.wrapping_add(n);
        for over in policy
            .over
            .iter()
            .filter(|over| matches!(over, Over::Children | Over::References))
        {
            let leaf = |parent| node(parent, fifo, Over::Packets);
            let inner = |parent| node(parent, policy, *over);
            let nodes = vec![
                inner(0),
                inner(1),
                leaf(1),
                leaf(2),
                inner(2),
                leaf(5),
                leaf(5),
            ];
            let plan = plan(nodes, &[3, 4, 6, 7]);
            agree(
                &format!("a tree of {} over {over:?}", policy.name),
                &plan,
                seed,
                4,
                4,
            );
        }
    }
}
