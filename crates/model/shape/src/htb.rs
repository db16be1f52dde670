//! A tree for the kernel's HTB: floors become rates, ceilings ceilings, weights quanta, leaves leaves.
//!
//! ```text
//! Tree --trim--> nodes --rates--> floors that fit, ceilings --numbers--> minors --> HtbPlan
//! ```
//!
//! Invariants that HTB itself does not ensure: the sum of the rates of a node's children is at most its
//! own rate, and no rate or ceiling is above that of a higher node. So nothing below a node is ever sent
//! above its ceiling. Floors that exceed the rate shrink in proportion, and are counted.
//!
//! Numbers are stable: a node's minor follows from its name, its parent, whether it is a leaf, and the
//! running classes. No state has to be stored for that, even after a crash. A node that moves, or
//! becomes a leaf, gets another number, because HTB can do neither in place.
//!
//! Absent: what HTB does not have. Policies of inner nodes, weights between them and limits of queues
//! are listed in [`HtbPlan::unkept`]; a node that splits by DSCP is refused.

mod numbers;
mod queues;
mod rates;
mod sizes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use fairpath_core::sched::{COST_ONE, NodeConfig};
use fairpath_sched::tree::Tree;

pub use queues::{QUEUE_INTERVAL_NS, QueueChange, QueueCounts, QueueRates};
pub use rates::{MIN_BPS, UNLIMITED_BPS};
pub use sizes::{
    GSO_BYTES, LATENESS_NS, MAX_QUANTUM_BYTES, MIN_QUANTUM_BYTES, TURN_NS, base_quantum_bytes,
    burst_bytes, is_fair_to_gso, quantum_bytes,
};

/// Classes that one tree can have: minors 1 to 0xfffe, but the root's own major.
pub const MAX_HTB_CLASSES: usize = 65_533;
/// Levels of HTB, from the first class to a leaf.
pub const MAX_HTB_LEVELS: usize = 8;
/// Minor of the leaf of what has no class; it stays as long as the tree runs.
pub const DEFAULT_MINOR: u16 = 0xfffe;

/// A class of HTB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtbNode {
    /// Of the tree that it was made of; 0 for a leaf that was added for what has no class.
    pub node: u32,
    /// Its number.
    pub minor: u16,
    /// Its parent's; 0 the root qdisc.
    pub parent: u16,
    /// It has no children.
    pub leaf: bool,
    /// What it is sure of.
    pub rate_bps: u64,
    /// What it gets at most.
    pub ceil_bps: u64,
    /// How much it may send at once at its rate.
    pub burst_bytes: u32,
    /// The same at its ceiling.
    pub cburst_bytes: u32,
    /// Of a leaf: its share of what is left over.
    pub quantum_bytes: u32,
}

/// Something of a tree that HTB does without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unkept {
    /// The node's name.
    pub node: String,
    /// What it loses.
    pub what: &'static str,
}

/// All of an interface's classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HtbPlan {
    /// Parents before children.
    pub classes: Vec<HtbNode>,
    /// By class number, the first for what has no class: the leaf's minor.
    pub minors: Vec<u16>,
    /// Floors that were sold twice, and are less here than in the tree.
    pub shrunk: usize,
    /// What of the tree HTB does without.
    pub unkept: Vec<Unkept>,
    /// Packets that one leaf holds at most.
    pub limit_packets: u32,
    /// The interface's largest frame without FCS.
    pub frame_bytes: u32,
    /// The lowest rate that leaves share although a GSO packet takes longer than a turn of it: leaves with such packets
    /// get more than their share, unless they split them.
    pub unfair_to_gso_bps: Option<u64>,
}

/// HTB cannot have this tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HtbPlanError {
    /// More classes than there are numbers.
    #[error(
        "shape by HTB: {classes} classes are more than the {MAX_HTB_CLASSES} that it can have; use another back end"
    )]
    TooMany {
        /// Of the tree, inner ones included.
        classes: usize,
    },
    /// Too many levels.
    #[error(
        "shape by HTB: node \"{node}\" is on level {level}, but HTB has {MAX_HTB_LEVELS}: use fewer levels, or another back end"
    )]
    TooDeep {
        /// The first such node.
        node: String,
        /// Its level, the topmost being 1.
        level: usize,
    },
    /// A node that splits by DSCP.
    #[error(
        "shape by HTB: node \"{node}\" splits its packets by DSCP, which HTB cannot; leave its children out, or use another back end"
    )]
    Split {
        /// The node.
        node: String,
    },
}

/// A tree's node on its way to a class.
struct Node {
    id: u32,
    /// Index of its parent.
    parent: Option<usize>,
    leaf: bool,
    config: NodeConfig,
}

/// What the tree is for HTB.
///
/// `frame_bytes` is the interface's largest frame without FCS; `majors` the numbers of qdiscs of trees, which are no
/// minors; `running` returns the parent of a running minor, and whether it is a leaf. O(nodes).
///
/// # Errors
/// [`HtbPlanError`] names what HTB cannot have.
pub fn htb_plan(
    tree: &Tree,
    frame_bytes: u32,
    majors: Range<u16>,
    running: impl Fn(u16) -> Option<(u16, bool)>,
) -> Result<HtbPlan, HtbPlanError> {
    let mut nodes = trim(&tree.plan.nodes);
    let default = default_leaf(tree, &mut nodes);
    refuse(tree, &nodes, MAX_HTB_CLASSES + 1 - majors.len().max(1))?;
    let rates = rates::rates(&nodes);
    let minors = numbers::numbers(tree, &nodes, (default, majors), running);
    let siblings = Siblings::of(&nodes);
    let class = |(at, node): (usize, &Node)| {
        let [rate_bps, ceil_bps] = rates.of[at];
        HtbNode {
            node: node.id,
            minor: minors[at],
            parent: node.parent.map_or(0, |parent| minors[parent]),
            leaf: node.leaf,
            rate_bps,
            ceil_bps,
            burst_bytes: burst_bytes(rate_bps, frame_bytes),
            cburst_bytes: burst_bytes(ceil_bps, frame_bytes),
            quantum_bytes: siblings.quantum_bytes(&nodes, at, &rates.of, frame_bytes),
        }
    };
    let classes: Vec<HtbNode> = nodes.iter().enumerate().map(class).collect();
    Ok(HtbPlan {
        minors: by_class(tree, &classes),
        classes,
        shrunk: rates.shrunk,
        unkept: unkept(tree, &nodes, &siblings, frame_bytes),
        limit_packets: tree.plan.config.limit_packets,
        frame_bytes,
        unfair_to_gso_bps: unfair_to_gso_bps(&nodes, &rates.of),
    })
}

/// See [`HtbPlan::unfair_to_gso_bps`].
fn unfair_to_gso_bps(nodes: &[Node], rates: &[[u64; 2]]) -> Option<u64> {
    let mut leaves = vec![0u32; nodes.len()];
    for parent in nodes.iter().filter(|n| n.leaf).filter_map(|n| n.parent) {
        leaves[parent] += 1;
    }
    let shared = rates.iter().zip(leaves).filter(|(_, leaves)| *leaves > 1);
    let slow = shared.map(|([_, ceil_bps], _)| *ceil_bps);
    slow.filter(|bps| !is_fair_to_gso(*bps)).min()
}

/// The nodes without those at the top that have one inner child: HTB has few levels. A ceiling that
/// they have is their child's.
fn trim(all: &[NodeConfig]) -> Vec<Node> {
    let mut children = vec![0u32; all.len() + 1];
    for node in all {
        children[node.parent as usize] += 1;
    }
    let inner = |at: usize| children[at + 1] > 0;
    let mut top = 0;
    let mut slowest = 0;
    while children[top + 1] == 1 && all.get(top + 1).is_some_and(|_| inner(top + 1)) {
        slowest = slowest.max(all[top].ceil);
        top += 1;
    }
    let node = |(at, config): (usize, &NodeConfig)| Node {
        id: at as u32 + 1,
        parent: (at > top).then(|| config.parent as usize - 1 - top),
        leaf: !inner(at),
        config: *config,
    };
    let mut nodes: Vec<Node> = all.iter().enumerate().skip(top).map(node).collect();
    if let Some(first) = nodes.first_mut() {
        // Encoded rates are times: the greater is the slower.
        first.config.ceil = first.config.ceil.max(slowest);
    }
    nodes
}

/// The index of the leaf of what has no class: the tree's, or one that is added.
fn default_leaf(tree: &Tree, nodes: &mut Vec<Node>) -> usize {
    let entry = tree.plan.class_table.first().copied().unwrap_or(0);
    if let Some(at) = nodes.iter().position(|node| node.id == entry && node.leaf) {
        return at;
    }
    nodes.push(Node {
        id: 0,
        parent: nodes.first().filter(|first| !first.leaf).map(|_| 0),
        leaf: true,
        config: NodeConfig {
            cost: COST_ONE,
            ..NodeConfig::default()
        },
    });
    nodes.len() - 1
}

fn refuse(tree: &Tree, nodes: &[Node], most: usize) -> Result<(), HtbPlanError> {
    let name = |node: &Node| tree.names.node(node.id).to_owned();
    if nodes.len() > most {
        return Err(HtbPlanError::TooMany {
            classes: nodes.len(),
        });
    }
    let mut levels: Vec<usize> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let level = node.parent.map_or(0, |parent| levels[parent]) + 1;
        levels.push(level);
        if level > MAX_HTB_LEVELS {
            return Err(HtbPlanError::TooDeep {
                node: name(node),
                level,
            });
        }
        if node.config.split != 0 {
            return Err(HtbPlanError::Split { node: name(node) });
        }
    }
    Ok(())
}

/// The range of costs among each node and its siblings. What a byte costs is the inverse of the weight.
struct Siblings {
    /// By node: the maximum, which is the cost of the lightest, and the minimum.
    of: Vec<[u32; 2]>,
}

impl Siblings {
    fn of(nodes: &[Node]) -> Siblings {
        let mut range = vec![[1, u32::MAX]; nodes.len() + 1];
        let family = |node: &Node| node.parent.map_or(0, |parent| parent + 1);
        for node in nodes {
            let [max, min] = &mut range[family(node)];
            *max = node.config.cost.max(*max);
            *min = node.config.cost.max(1).min(*min);
        }
        Siblings {
            of: nodes.iter().map(|node| range[family(node)]).collect(),
        }
    }

    fn is_lightest(&self, nodes: &[Node], at: usize) -> bool {
        nodes[at].config.cost == self.of[at][0]
    }

    fn quantum_bytes(&self, nodes: &[Node], at: usize, rates: &[[u64; 2]], frame: u32) -> u32 {
        let [max, min] = self.of[at].map(u64::from);
        let parent = nodes[at].parent.unwrap_or(at);
        let base = base_quantum_bytes(rates[parent][1], max, min, frame);
        quantum_bytes(max, nodes[at].config.cost.max(1).into(), base)
    }

    /// HTB has no quantum that is as many times that of the lightest sibling as the weights.
    fn exceeds_quanta(&self, nodes: &[Node], at: usize, frame: u32) -> bool {
        let quantum = u64::from(self.of[at][0]) * u64::from(frame.max(MIN_QUANTUM_BYTES));
        quantum / u64::from(nodes[at].config.cost.max(1)) > MAX_QUANTUM_BYTES.into()
    }
}

fn by_class(tree: &Tree, classes: &[HtbNode]) -> Vec<u16> {
    let mut of_node = vec![DEFAULT_MINOR; tree.plan.nodes.len() + 1];
    for class in classes.iter().filter(|class| class.leaf && class.node != 0) {
        of_node[class.node as usize] = class.minor;
    }
    let entry = |node: &u32| match of_node.get(*node as usize) {
        Some(minor) if *node != 0 => *minor,
        _ => DEFAULT_MINOR,
    };
    let table = tree.plan.class_table.iter().map(entry);
    let mut minors: Vec<u16> = table.collect();
    if minors.is_empty() {
        minors.push(DEFAULT_MINOR);
    }
    minors
}

fn unkept(tree: &Tree, nodes: &[Node], siblings: &Siblings, frame_bytes: u32) -> Vec<Unkept> {
    let mut found = Vec::new();
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.id != 0) {
        let policy = tree
            .names
            .policy(node.id)
            .map(|policy| policy.name.as_str());
        let what = match (node.leaf, policy) {
            (false, Some(name)) if name != "class_tree" => {
                "its policy: HTB shares by floors and ceilings"
            }
            (false, _) if !siblings.is_lightest(nodes, at) => {
                "its weight: HTB shares by weight among leaves only"
            }
            (true, Some(name)) if name != "fq_codel" => {
                "its policy: the leaf's qdisc takes its place"
            }
            (true, _) if siblings.exceeds_quanta(nodes, at, frame_bytes) => {
                "its weight: HTB's quantum is at most 200,000 bytes"
            }
            _ => continue,
        };
        found.push(Unkept {
            node: tree.names.node(node.id).to_owned(),
            what,
        });
    }
    found
}
