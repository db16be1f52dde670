//! A tree on a link: the link rate limits the tree and the packets that other programs send.
//!
//! ```text
//! line (class_tree) --- shared (class_tree, ceil = link rate) --+-- the tree
//!                                                               '-- stack (drr)
//! ```
//!
//! A tree whose root is a class_tree becomes `shared` itself. `stack` represents packets that the
//! network stack sends on the same link. A back end that cannot delay them charges them here. Its
//! floor is a share of the link rate: the rest remains to the tree, however much the stack sends.

use fairpath_core::sched::{
    COST_ONE, LEVELS, NodeConfig, Over, PARAMS, Policy, encode_rate, policies,
};

use super::Tree;

/// The link below a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The link rate, bits per second.
    pub bps: u64,
    /// The burst after idle time, ns.
    pub burst_ns: u64,
    /// True if the network stack also sends on the link.
    pub stack: bool,
}

/// Default burst of a link. It compensates for late timers of a busy machine, and a modem behind the
/// link gets at most CoDel's target at once.
pub const LINK_BURST_NS: u64 = 5_000_000;

/// The node `stack` has the link rate, divided by this, as its floor.
pub const STACK_SHARE: u64 = 2;

/// The policy for shares and ceilings.
const INNER: &str = "class_tree";

/// The tree has too many levels below the nodes of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("put the tree on a link: it has {levels} levels, and the maximum is {most}: remove levels")]
pub struct TooDeep {
    /// The levels of the tree.
    pub levels: usize,
    /// The maximum that leaves levels for the link.
    pub most: usize,
}

impl Tree {
    /// Puts the tree below the nodes of the link. O(nodes).
    ///
    /// # Errors
    /// [`TooDeep`].
    pub fn on_link(mut self, link: &Link) -> Result<Tree, TooDeep> {
        let inner = shipped(INNER);
        let is_inner = self.plan.nodes[0].policy == inner.id;
        let above = if is_inner { 1 } else { 2 };
        let levels = self.levels();
        if levels + above > LEVELS {
            let most = LEVELS - above;
            return Err(TooDeep { levels, most });
        }
        self.shift(above);
        let child = |parent| NodeConfig {
            parent,
            ..inner_node(inner)
        };
        let mut top = vec![child(0)];
        if !is_inner {
            top.push(child(1));
        }
        self.plan.nodes[0].parent = above as u32;
        self.plan.nodes.splice(0..0, top);
        let shared = &mut self.plan.nodes[1];
        shared.ceil = encode_rate(link.bps);
        shared.burst = link.burst_ns;
        self.name_above(above, inner);
        if link.stack {
            self.add_stack(link);
        }
        Ok(self)
    }

    /// The node with the link rate, in a tree on a link.
    pub const SHARED: u32 = 2;

    /// The class number of packets from the network stack: the last of the table.
    pub fn stack_class(&self) -> u32 {
        self.plan.class_table.len() as u32 - 1
    }

    /// The node of packets from the network stack.
    pub fn stack_node(&self) -> u32 {
        self.plan.class_table[self.stack_class() as usize]
    }

    fn levels(&self) -> usize {
        let mut level = vec![1; self.plan.nodes.len() + 1];
        level[0] = 0;
        for (at, node) in self.plan.nodes.iter().enumerate() {
            level[at + 1] = level[node.parent as usize] + 1;
        }
        level.into_iter().max().unwrap_or(0)
    }

    /// Inserts `by` nodes before all others.
    fn shift(&mut self, by: usize) {
        let by = by as u32;
        let plan = &mut self.plan;
        let parents = plan.nodes.iter_mut().map(|node| &mut node.parent);
        let named = plan.class_table.iter_mut().chain(&mut plan.splits);
        for number in parents.chain(named).filter(|number| **number != 0) {
            *number += by;
        }
    }

    fn name_above(&mut self, above: usize, inner: &Policy) {
        let at = self.policy_index(inner);
        let mut names: Vec<String> = ["line", "shared"][..above]
            .iter()
            .map(|name| self.unique(name))
            .collect();
        names.append(&mut self.names.nodes);
        let names_of = &mut self.names;
        names_of.nodes = names;
        names_of.policy_of.splice(0..0, vec![at; above]);
        names_of.heaviest.splice(0..0, vec![1; above]);
        names_of.ids = (names_of.nodes.iter().cloned()).zip(1..).collect();
    }

    fn add_stack(&mut self, link: &Link) {
        let drr = shipped("drr");
        let (at, name) = (self.policy_index(drr), self.unique("stack"));
        let plan = &mut self.plan;
        plan.nodes.push(NodeConfig {
            parent: Tree::SHARED,
            policy: drr.id,
            over: Over::Flows,
            queue: drr.queue[0],
            queue_buckets: drr.queue[1],
            params: defaults(drr),
            cost: COST_ONE,
            floor: stack_floor(encode_rate(link.bps)),
            ..NodeConfig::default()
        });
        plan.class_table.push(plan.nodes.len() as u32);
        plan.config.classes = plan.class_table.len() as u32;
        self.names.ids.insert(name.clone(), plan.nodes.len() as u32);
        self.names.nodes.push(name);
        self.names.policy_of.push(at);
        self.names.heaviest.push(1);
    }

    fn policy_index(&mut self, policy: &Policy) -> usize {
        let policies = &mut self.names.policies;
        let found = policies.iter().position(|known| known.id == policy.id);
        found.unwrap_or_else(|| {
            policies.push(policy.clone());
            policies.len() - 1
        })
    }

    fn unique(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.names.ids.contains_key(&name) {
            name.push('_');
        }
        name
    }
}

/// The floor of the node `stack`, as in a plan, on a link with this ceiling.
pub fn stack_floor(ceil: u64) -> u64 {
    // An encoded rate is a time per byte.
    ceil.saturating_mul(STACK_SHARE)
}

fn inner_node(policy: &Policy) -> NodeConfig {
    NodeConfig {
        policy: policy.id,
        over: Over::Children,
        queue: match policy.queue[0] {
            0 => super::queue::HEAP,
            kind => kind,
        },
        queue_buckets: policy.queue[1],
        queue_shift: policy.queue[2],
        queue_full: policy.queue[3],
        cost: COST_ONE,
        ..NodeConfig::default()
    }
}

fn defaults(policy: &Policy) -> [u64; PARAMS] {
    let mut encoded = [0; PARAMS];
    for (place, param) in encoded.iter_mut().zip(&policy.params) {
        *place = param.encode(param.standard);
    }
    encoded
}

fn shipped(name: &str) -> &'static Policy {
    let found = policies().iter().find(|policy| policy.name == name);
    found.expect("the built-in policies are compiled in")
}

#[cfg(test)]
mod tests {
    use fairpath_core::sched::{Meta, Op, OutcomeKind, SchedRuntime, Scheduler};

    use super::*;
    use crate::tree::Known;

    const SECOND: u64 = 1_000_000_000;
    const LINK: Link = Link {
        bps: 8_000_000,
        burst_ns: LINK_BURST_NS,
        stack: true,
    };

    fn tree(policy: &str) -> Tree {
        let known = Known {
            policies: policies(),
            classes: &[],
        };
        Tree::of_policy(shipped(policy), known).unwrap()
    }

    /// Bytes per second that leave from the tree and the stack, which sends `charged` per second.
    fn sent(tree: &Tree, charged: u64) -> [u64; 2] {
        let mut scheduler = Scheduler::new(&tree.plan).unwrap();
        let mut outcomes = Vec::new();
        let (mut sent, mut charges) = ([0; 2], 0);
        let packet = |class_id| Meta {
            bytes: 1000,
            class_id,
            ..Meta::default()
        };
        let mut held = [0; 3];
        for now in (0..SECOND).step_by(100_000) {
            let mut ops = Vec::new();
            if held[1] == 0 {
                ops.push(Op::enqueue(now, 1, packet(0)));
                held[1] = 1;
            }
            if held[2] == 0 && charges * 1000 * SECOND <= charged * now {
                ops.push(Op::enqueue(now, 2, packet(tree.stack_class())));
                (held[2], charges) = (1, charges + 1);
            }
            ops.push(Op::dequeue(now, 4));
            outcomes.clear();
            scheduler.run(&ops, &mut outcomes).unwrap();
            for outcome in outcomes.iter().filter(|o| o.kind == OutcomeKind::Sent) {
                held[outcome.handle as usize] = 0;
                sent[outcome.handle as usize - 1] += 1000;
            }
        }
        sent
    }

    #[test]
    fn link_rate_holds_for_every_tree() {
        for policy in ["fifo", "fq_codel", "drr"] {
            let tree = tree(policy).on_link(&LINK).unwrap();
            let [own, _] = sent(&tree, 0);
            assert!((990_000..=1_005_000).contains(&own), "{policy}: {own}");
        }
    }

    #[test]
    fn stack_traffic_is_charged_up_to_its_share() {
        for policy in ["fifo", "fq_codel", "drr"] {
            let tree = tree(policy).on_link(&LINK).unwrap();
            let [own, stack] = sent(&tree, 400_000);
            assert!((395_000..=405_000).contains(&stack), "{policy}: {stack}");
            assert!((590_000..=610_000).contains(&own), "{policy}: {own}");
            let [own, stack] = sent(&tree, 800_000);
            assert!((490_000..=510_000).contains(&stack), "{policy}: {stack}");
            assert!((490_000..=510_000).contains(&own), "{policy}: {own}");
        }
    }

    #[test]
    fn link_nodes_keep_existing_names() {
        let text = "[[node]]\nname = \"line\"\npolicy = \"drr\"\n\
            [[node]]\nname = \"a\"\nparent = \"line\"\npolicy = \"fifo\"\nmatch = { class = [3] }\n\
            [[node]]\nname = \"b\"\nparent = \"line\"\npolicy = \"fifo\"\nmatch = { class = [\"*\"] }\n";
        let known = Known {
            policies: policies(),
            classes: &[],
        };
        let tree = Tree::read("t", text, known)
            .unwrap()
            .on_link(&LINK)
            .unwrap();
        assert_eq!(
            tree.names.nodes(),
            ["line_", "shared", "line", "a", "b", "stack"]
        );
        let leaf = |class_id| {
            let meta = Meta {
                class_id,
                ..Meta::default()
            };
            tree.names.node(tree.leaf(&meta).unwrap()).to_owned()
        };
        assert_eq!([0, 1, 3].map(leaf), ["b", "b", "a"]);
        assert_eq!(leaf(tree.stack_class()), "stack");
        assert_eq!(tree.names.policy(1).unwrap().name, "class_tree");
        assert_eq!(tree.names.policy(4).unwrap().name, "fifo");
    }
}
