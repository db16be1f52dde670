//! Random operations for a new policy, and their outcomes.
//!
//! `fairpath sched check` runs the same operations in every available runtime and compares the outcomes.
//! The same seed gives the same operations. Realistic traffic is not part of it; that is
//! `fairpath_sim::traffic`.

use fairpath_core::sched::{
    COST_ONE, Meta, NEVER, NodeConfig, Op, Outcome, OutcomeKind, Over, Plan, Policy, SchedConfig,
    SchedRuntime, SchedRuntimeError, policies,
};

use fairpath_statistics::Random;

/// Handles of a trial; fewer packets than that wait at any time.
const HANDLES: u32 = 256;
const LIMIT: u32 = 200;
/// Flows that packets belong to.
const FLOWS: u64 = 24;
/// Operations are this far apart, at most: about a packet's time at 1 Gbit/s.
const STEP_NS: u64 = 20_000;
/// Times that a trial waits for packets to leave, in the end.
const DRAINS: u32 = 4 * LIMIT;
/// Of `enum fp_pifo_kind`: exact for any ranks.
const HEAP: u32 = 1;

/// A tree whose first node has the policy: alone where it ranks packets or flows, else above two
/// leaves that are first in, first out, with a floor and a ceiling.
pub fn plan(policy: &Policy, over: Over) -> Plan {
    let fifo = policies().iter().find(|policy| policy.name == "fifo");
    let node = |parent, policy: &Policy, over| NodeConfig {
        parent,
        policy: policy.id,
        over,
        queue: HEAP,
        cost: COST_ONE,
        params: policy.standards(),
        ..NodeConfig::default()
    };
    let mut nodes = vec![node(0, policy, over)];
    let mut class_table = vec![1];
    if let (Over::Children | Over::References, Some(fifo)) = (over, fifo) {
        // References are to packets, not to flows.
        let second = match over {
            Over::Children => Over::Flows,
            _ => Over::Packets,
        };
        nodes.extend([node(1, fifo, Over::Packets), node(1, fifo, second)]);
        nodes[2].cost = COST_ONE / 3;
        for leaf in &mut nodes[1..] {
            (leaf.ceil, leaf.floor, leaf.burst) = (8 << 20, 80 << 20, 20_000);
        }
        class_table = vec![2, 3, 2, 3];
    }
    Plan {
        config: config(),
        nodes,
        class_table,
        ..Plan::default()
    }
}

fn config() -> SchedConfig {
    SchedConfig {
        packets: HANDLES,
        limit_packets: LIMIT,
        flows: 64,
        hosts: 16,
        references: 4 * HANDLES,
        ..SchedConfig::default()
    }
}

/// A tree's plan with as many handles as a trial has.
pub fn narrowed(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.config.packets = HANDLES;
    plan.config.limit_packets = plan.config.limit_packets.min(LIMIT);
    plan
}

/// `count` operations for a plan whose nodes have these policies, by node: packets come and leave, are
/// taken out, weights and parameters change. O(count).
pub fn operations(policy_of: &[&Policy], classes: u32, count: usize, seed: u64) -> Vec<Op> {
    let (mut random, mut now) = (Random::new(seed), 1_000_000);
    let operation = |_| {
        now += random.below(STEP_NS);
        operation(&mut random, now, policy_of, classes)
    };
    (0..count).map(operation).collect()
}

fn operation(random: &mut Random, now: u64, policy_of: &[&Policy], classes: u32) -> Op {
    let handle = 1 + random.below(HANDLES.into()) as u32;
    let node = random.below(policy_of.len().max(1) as u64) as usize;
    let params = policy_of.get(node).map_or(&[][..], |policy| &policy.params);
    match random.below(100) {
        0..50 => Op::enqueue(now, handle, packet(random, now, classes)),
        50..97 => Op::dequeue(now, 1 + random.below(3) as u32),
        97 => Op::remove(now, handle),
        98 => {
            let flow = flow_hash(random.below(FLOWS));
            Op::weight(now, node as u32 + 1, flow, COST_ONE / 2)
        }
        _ if params.is_empty() => Op::dequeue(now, 1),
        _ => {
            let index = random.below(params.len() as u64) as usize;
            let param = &params[index];
            let near = param.standard / 2 + random.below(param.standard.max(2));
            let value = param.encode(near.clamp(param.min, param.most));
            Op::param(now, node as u32 + 1, index as u32, value)
        }
    }
}

fn flow_hash(flow: u64) -> u32 {
    (flow as u32).wrapping_mul(0x9e37_79b1)
}

fn packet(random: &mut Random, now: u64, classes: u32) -> Meta {
    Meta {
        arrival: now,
        hint: random.below(1 << 20),
        bytes: 60 + random.below(1455) as u32,
        flow_hash: flow_hash(random.below(FLOWS)),
        class_id: random.below(u64::from(classes.max(1))) as u32,
        mark: random.below(4) as u32,
        dscp: random.below(64) as u8,
        ecn: random.below(4) as u8,
        source: [random.below(3) as u8; 16],
        destination: [random.below(3) as u8; 16],
        ..Meta::default()
    }
}

/// Runs the operations, then lets out what still waits.
///
/// # Errors
/// The home's, or what its audit found.
pub fn run(runtime: &mut dyn SchedRuntime, ops: &[Op]) -> Result<Trial, SchedRuntimeError> {
    let mut outcomes = Vec::new();
    runtime.run(ops, &mut outcomes)?;
    let mut now = ops.last().map_or(0, |op| op.now);
    for _ in 0..DRAINS {
        let new = outcomes.len();
        runtime.run(&[Op::dequeue(now, LIMIT)], &mut outcomes)?;
        let last = outcomes.get(new..).and_then(<[_]>::last);
        match last {
            Some(last) if last.kind == OutcomeKind::Nothing && last.at == NEVER => break,
            Some(last) if last.kind == OutcomeKind::Nothing => now = now.max(last.at),
            _ => {}
        }
    }
    runtime.audit().map_err(SchedRuntimeError::Plan)?;
    let count = |kind| outcomes.iter().filter(|o| o.kind == kind).count() as u64;
    let queued = count(OutcomeKind::Queued);
    let stats = runtime.stats();
    Ok(Trial {
        sent: count(OutcomeKind::Sent),
        dropped: count(OutcomeKind::Dropped),
        stuck: stats
            .enqueued
            .saturating_sub(stats.sent + stats.dropped.iter().sum::<u64>()),
        queued,
        outcomes,
    })
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Every outcome, in order.
    pub outcomes: Vec<Outcome>,
    /// Packets that waited.
    pub queued: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that neither left nor were dropped, although nothing throttled them any more.
    pub stuck: u64,
}

impl Trial {
    /// The first outcome that another home has otherwise: its index, ours, theirs.
    pub fn differs(&self, other: &Trial) -> Option<(usize, Option<Outcome>, Option<Outcome>)> {
        let length = self.outcomes.len().max(other.outcomes.len());
        let pair = |i: usize| {
            (
                i,
                self.outcomes.get(i).copied(),
                other.outcomes.get(i).copied(),
            )
        };
        (0..length)
            .map(pair)
            .find(|(_, ours, theirs)| ours != theirs)
    }
}
