//! Random trees: to ten levels, every kind of node above every other that may be.

use fairpath_core::limit::Limits;
use fairpath_core::sched::{
    COST_ONE, Function, LEVELS, NodeConfig, Op, Over, Overflow, PARAMS, Plan, Policy, SPLIT,
    SchedConfig, Share, encode_rate, policies,
};

use super::impairments;
use super::log::Random;
use super::policy::{MODES, Wild};
use super::shipped;

const HEAP: u32 = 1;
const BANDS: u32 = 2;
/// Places in the table of flows: sets of eight never fill up.
const FLOWS: u32 = 2048;
/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// Nodes at most.
const NODES: usize = 14;

/// A tree, and what its policies say of themselves.
#[derive(Clone, Debug)]
pub struct Tree {
    pub plan: Plan,
    /// The custom policy, if it can be named.
    pub wild: Option<Policy>,
    /// Of each node.
    pub policies: Vec<Policy>,
    /// Lengths of packets are anything, so that virtual time comes to its end.
    pub huge: bool,
}

/// The common properties of all nodes of a tree.
struct Style {
    wild: Option<Policy>,
    levels: u64,
    fattest: bool,
    /// Queues of references may refuse some; else they may hold some back.
    refuses: bool,
}

/// A custom policy with some of the functions.
pub fn wild(random: &mut Random) -> Policy {
    let all = [
        Function::RankEnqueue,
        Function::RankDequeue,
        Function::SendTime,
        Function::OnDrop,
    ];
    let some: Vec<Function> = all.into_iter().filter(|_| random.below(4) > 0).collect();
    let wants = random.pick(&[
        0,
        Policy::WANTS_DUE,
        Policy::WANTS_DUE,
        Policy::WANTS_ELIGIBLE,
    ]);
    let more =
        random.below(2) as u32 * Policy::WANTS_EMPTY + random.below(2) as u32 * Policy::WANTS_HOSTS;
    Wild::policy(&some, wants | more)
}

impl Style {
    fn policy(&self, random: &mut Random, over: Over) -> Policy {
        if let Some(wild) = &self.wild
            && random.below(3) > 0
        {
            return wild.clone();
        }
        let fits = |policy: &&Policy| {
            let known = shipped::KNOWN.contains(&policy.name.as_str());
            known && policy.over.contains(&over)
        };
        let fitting: Vec<&Policy> = policies().iter().filter(fits).collect();
        fitting[random.below(fitting.len() as u64) as usize].clone()
    }

    /// Returns the kind of a child of such a node.
    fn over(&self, random: &mut Random, parent: Option<Over>, level: u64) -> Over {
        let inner = level + 1 < self.levels && (level < 2 || random.below(5) > 0);
        match (parent, inner) {
            (Some(Over::References), true) => Over::References,
            (Some(Over::References), false) => Over::Packets,
            (_, true) if !self.fattest && random.below(6) == 0 => Over::References,
            (_, true) => Over::Children,
            (_, false) if self.fattest || random.below(2) == 0 => Over::Flows,
            (_, false) => Over::Packets,
        }
    }
}

/// Every value that the parameter may have, its ends more often.
pub fn param(random: &mut Random, policy: &Policy, index: usize) -> u64 {
    let Some(param) = policy.params.get(index) else {
        return random.below(2 * MODES);
    };
    let between = param.min + random.below((param.most - param.min).saturating_add(1));
    let values = [param.min, param.most, param.standard, between];
    param.encode(random.pick(&values))
}

fn rate(random: &mut Random) -> u64 {
    let bps = random.pick(&[0, 0, 1_000_000, 100_000_000, 10_000_000_000]);
    encode_rate(bps)
}

fn node(
    random: &mut Random,
    style: &Style,
    parent: u32,
    over: Over,
    above: Option<Over>,
) -> (NodeConfig, Policy) {
    let policy = style.policy(random, over);
    let mut params = [0; PARAMS];
    for (index, value) in params.iter_mut().enumerate() {
        *value = param(random, &policy, index);
    }
    let queue = random.pick(&[HEAP, HEAP, BANDS]);
    let buckets = random.pick(&[1, 2, 16, 64]);
    let mut node = NodeConfig {
        parent,
        policy: policy.id,
        over,
        queue,
        queue_buckets: if queue == BANDS { buckets } else { 0 },
        cost: random.pick(&[COST_ONE, COST_ONE, 1, 3000, 200_000, u32::MAX]),
        floor: rate(random),
        ceil: rate(random),
        burst: random.pick(&[0, 1000, 5_000_000]),
        params,
        ..NodeConfig::default()
    };
    let may_refuse = match over {
        Over::Packets => true,
        Over::Flows => !policy.functions.contains(&Function::SendTime),
        Over::References => style.refuses,
        Over::Children => false,
    };
    if may_refuse && random.below(2) == 0 {
        node.queue_capacity = random.pick(&[1, 4, 16]);
        node.queue_full = u32::from(over == Over::Packets && above != Some(Over::References));
    }
    if may_refuse && over != Over::Flows && node.queue == BANDS && random.below(4) == 0 {
        node.queue_beyond = 1;
    }
    if over as u32 <= Over::Flows as u32 && random.below(4) == 0 {
        node.limit_packets = random.pick(&[0, 3, 12]);
        node.limit_bytes = random.pick(&[0, 4000, 20_000]);
    }
    (node, policy)
}

/// Children after their parents, one after another, until there are enough.
fn grow(random: &mut Random, style: &Style) -> (Vec<NodeConfig>, Vec<Policy>) {
    let over = style.over(random, None, 0);
    let (root, policy) = node(random, style, 0, over, None);
    let (mut nodes, mut policies, mut levels) = (vec![root], vec![policy], vec![0]);
    let mut at = 0;
    while at < nodes.len() {
        let above = nodes[at].over;
        let children = match above {
            Over::Packets | Over::Flows => 0,
            _ if nodes.len() >= NODES => 1,
            _ => 1 + random.below(3),
        };
        for _ in 0..children {
            let level = levels[at] + 1;
            let over = style.over(random, Some(above), level);
            let (node, policy) = node(random, style, at as u32 + 1, over, Some(above));
            nodes.push(node);
            policies.push(policy);
            levels.push(level);
        }
        at += 1;
    }
    (nodes, policies)
}

/// Some inner nodes split by DSCP among leaves, or later nodes, or none.
fn split(random: &mut Random, nodes: &mut [NodeConfig]) -> Vec<u32> {
    let (mut splits, count) = (vec![], nodes.len() as u64);
    let is_leaf = |id: &u32| nodes[*id as usize - 1].over as u32 <= Over::Flows as u32;
    let leaves: Vec<u32> = (1..=count as u32).filter(is_leaf).collect();
    for (index, node) in nodes.iter_mut().enumerate() {
        if node.over as u32 <= Over::Flows as u32 || random.below(3) > 0 {
            continue;
        }
        node.split = splits.len() as u32 + 1;
        let after = index as u64 + 2;
        splits.extend((0..SPLIT).map(|_| match random.below(20) {
            0 => 0,
            1..4 => (after + random.below(count + 1 - after)) as u32,
            _ => random.pick(&leaves),
        }));
    }
    splits
}

fn class_table(random: &mut Random, nodes: &[NodeConfig]) -> Vec<u32> {
    let goes = |node: &NodeConfig| node.over as u32 <= Over::Flows as u32 || node.split > 0;
    let ids = (1..=nodes.len() as u32).filter(|id| goes(&nodes[*id as usize - 1]));
    let ids: Vec<u32> = ids.collect();
    let anyone = random.below(nodes.len() as u64 + 1) as u32;
    let some = random.pick(&ids);
    let first = random.pick(&[anyone, some, some, some]);
    std::iter::once(first).chain(ids).collect()
}

fn config(random: &mut Random, style: &Style, huge: bool) -> SchedConfig {
    let packets = random.pick(&[6, 24, 24, 60]);
    SchedConfig {
        packets,
        limit_packets: random.pick(&[packets, packets, packets / 2]),
        limit_bytes: if huge {
            0
        } else {
            random.pick(&[0, 0, 8000, 30_000])
        },
        flows: FLOWS,
        hosts: 256,
        references: match style.refuses {
            true => random.pick(&[7, 1000]),
            false => 1000,
        },
        overflow: if style.fattest {
            Overflow::Fattest
        } else {
            Overflow::Tail
        },
        seed: random.draw() as u32,
        ack_filter: random.below(2) as u32,
        horizon: random.pick(&[0, 0, 0, 300, 2_000_000]),
        max_sojourn: random.pick(&[0, 0, 0, 300, 100_000, 2_000_000]),
        ..SchedConfig::default()
    }
}

/// A log whose times the limits of a tree can have: they end after 36 years.
pub fn from_start(tree: &Tree, log: &mut [Op]) {
    let first = log.first().map_or(0, |op| op.now);
    for op in log.iter_mut().filter(|_| tree.plan.config.limited > 0) {
        op.now = op.now.saturating_sub(first) + SECOND;
    }
}

/// Limits of a scheduler of this tree alone.
pub fn limits(tree: &Tree) -> Option<(Limits, Share)> {
    let share = Share::of(&tree.plan, &tree.policies).ok();
    let share = share.filter(|_| tree.plan.config.limited > 0)?;
    Some((Limits::new(1, &share.limits).unwrap(), share))
}

/// A tree, in which a custom policy may be (`wild`).
pub fn tree(random: &mut Random, wild: Option<Policy>) -> Tree {
    let mut style = Style {
        wild,
        levels: random.pick(&[1, 2, 3, 3, 4, 5, 8, 10]),
        fattest: random.below(5) == 0,
        refuses: random.below(2) == 0,
    };
    assert!(style.levels < LEVELS as u64);
    let (mut nodes, policies) = grow(random, &style);
    let holds = nodes.iter().zip(&policies).any(|(node, policy)| {
        node.over == Over::References && policy.functions.contains(&Function::SendTime)
    });
    if holds {
        style.refuses = false;
        for node in nodes
            .iter_mut()
            .filter(|node| node.over == Over::References)
        {
            (node.queue_capacity, node.queue_full, node.queue_beyond) = (0, 0, 0);
        }
    }
    let huge = random.below(8) == 0;
    let splits = split(random, &mut nodes);
    let (impairments, words) = impairments::before(random, &mut nodes);
    let mut config = config(random, &style, huge);
    if random.below(2) == 0 {
        config.service = random.below(impairments.len() as u64 + 1) as u32;
    }
    let mut plan = Plan {
        config,
        class_table: class_table(random, &nodes),
        splits,
        nodes,
        impairments,
        words,
    };
    let sharable = Share::of(&plan, &policies).is_ok();
    plan.config.limited = (sharable && random.below(3) == 0).into();
    Tree {
        plan,
        wild: style.wild,
        policies,
        huge,
    }
}
