//! Keeps the parts of shared rates near what one scheduler would give, from counters of the workers.
//!
//! Every [`INTERVAL_NS`], each rate that several workers wait for is divided by [`claims`](crate::claims), and so are
//! those below it. Workers get grants of the size of their claims. At each worker, children share by its claims, too: a
//! class whose packets are at several workers has a part of its weight at each. Others have equal grants and their
//! weights. Between, the limits alone decide: no rate is exceeded or left unused, whatever this does.

use std::collections::{BTreeMap, BTreeSet};

use fairpath_core::sched::{COST_ONE, NodeConfig, Over, SchedReader, decode_rate};
use fairpath_sched::tree::Tree;

use crate::claims::{Below, Claim, Claimant, Demand, grants, most_packets};
use crate::shared::SharedRates;

/// Nanoseconds between two readings of the workers.
pub const INTERVAL_NS: u64 = 20_000_000;
/// A worker that waited for a rate claims it for this time.
const CLAIMS_NS: u64 = 5 * INTERVAL_NS;
/// Bytes of a usual packet.
const PACKET: u32 = 1514;
/// The weight of the present claims against those before: a sample may miss flows that wait elsewhere.
const PRESENT: f64 = 0.5;
/// Costs of children of one node differ by at most this factor more than those of the tree.
const COSTS: f64 = 64.0;
/// `FP_PIFO_HEAP`: a window clamps ranks by larger costs.
const HEAP: u32 = 1;
/// The policy whose children have costs by claims: others may use a cost as a rank.
const BY_WEIGHT: &str = "class_tree";

/// Divides the shared rates of a tree among its workers.
#[derive(Debug)]
pub struct Balance {
    nodes: Vec<Node>,
    /// By node: what it got at the last look. Only nodes at and below rates that several workers wait for.
    claims: BTreeMap<u32, Claim>,
    /// Nodes whose grants are set.
    contended: BTreeSet<u32>,
}

#[derive(Debug, Default)]
struct Node {
    config: NodeConfig,
    children: Vec<u32>,
    /// Costs of its children may change.
    by_weight: bool,
    /// The shared word of its ceiling at the last look.
    granted: u64,
    /// By worker: waits for its ceiling, and when they changed.
    waits: Vec<(u32, u64)>,
    /// By worker: bytes that it had sent.
    sent: Vec<u64>,
    /// The time of these.
    counted: u64,
    /// By worker: its cost, if it is not that of the tree.
    costs: Vec<u32>,
}

impl Balance {
    /// For a tree. O(nodes).
    pub fn new(tree: &Tree) -> Balance {
        let root = Node::default();
        let mut nodes = vec![root];
        for (config, number) in tree.plan.nodes.iter().zip(1..) {
            nodes[config.parent as usize].children.push(number);
            nodes.push(Node {
                config: *config,
                by_weight: config.queue == HEAP
                    && tree
                        .names
                        .policy(number)
                        .is_some_and(|policy| policy.name == BY_WEIGHT),
                ..Node::default()
            });
        }
        Balance {
            nodes,
            claims: BTreeMap::new(),
            contended: BTreeSet::new(),
        }
    }

    /// Divides the rates that workers waited for recently. O(nodes) words, and for each of these rates the nodes below it
    /// at each worker, until one at which nothing waits.
    pub fn look(&mut self, rates: &mut SharedRates, workers: &[SchedReader], now: u64) {
        let numbers = 1..self.nodes.len() as u32;
        let contended: BTreeSet<u32> = numbers
            .filter(|node| self.is_contended(rates, *node, now))
            .collect();
        let mut found = Vec::new();
        for node in &contended {
            if !self.is_below(*node, &contended) {
                let claimant = self.claimant(rates, workers, *node, now, &contended);
                claimant.divide(claimant.wanted(), &mut found);
            }
        }
        let mut before = std::mem::take(&mut self.claims);
        for mut claim in found {
            if let Some(before) = before.get(&claim.node) {
                for (part, before) in claim.by_worker.iter_mut().zip(&before.by_worker) {
                    *part = *part * PRESENT + before * (1.0 - PRESENT);
                }
            }
            self.claims.insert(claim.node, claim);
        }
        before.retain(|node, _| !self.claims.contains_key(node));
        for node in before.into_keys() {
            self.share_as_the_tree(workers, node);
        }
        for node in self.contended.difference(&contended) {
            rates.set_grants(*node, &vec![0; workers.len()]);
        }
        for node in &contended {
            if let Some(claim) = self.claims.get(node) {
                let most = most_packets(rates.ceil_bits(*node).unwrap_or(0), PACKET);
                let usual = rates.usual_grant(*node);
                let bytes = grants(&claim.by_worker, usual, PACKET, most);
                rates.set_grants(*node, &bytes);
            }
        }
        self.contended = contended;
        let claimed: Vec<u32> = self.claims.keys().copied().collect();
        for node in claimed {
            if self.nodes[node as usize].by_weight {
                self.share_by_claims(workers, node);
            }
        }
    }

    /// Several workers waited for the rate of a node recently.
    fn is_contended(&mut self, rates: &SharedRates, number: u32, now: u64) -> bool {
        let Some(granted) = rates.granted(number) else {
            return false;
        };
        let node = &mut self.nodes[number as usize];
        if node.granted != granted {
            node.granted = granted;
            let is_first = node.waits.is_empty();
            node.waits.resize(rates.workers() as usize, (0, 0));
            for (worker, (waits, at)) in (0..).zip(&mut node.waits) {
                let refusals = rates.pool(number, worker).map_or(0, |pool| pool.refusals);
                if refusals != std::mem::replace(waits, refusals) && !is_first {
                    *at = now;
                }
            }
        }
        // A slow rate has its turns less often.
        let packet = rates.ceil_bits(number).unwrap_or(0).max(1);
        let turns = u64::from(PACKET) * 8_000_000_000 / packet * 4 * u64::from(rates.workers());
        let since = now.saturating_sub(CLAIMS_NS.max(turns));
        node.waits.iter().filter(|(_, at)| *at > since).count() > 1
    }

    fn is_below(&self, node: u32, some: &BTreeSet<u32>) -> bool {
        let mut at = self.nodes[node as usize].config.parent;
        while at != 0 && !some.contains(&at) {
            at = self.nodes[at as usize].config.parent;
        }
        at != 0
    }

    /// A node with what waits at it and below.
    fn claimant(
        &mut self,
        rates: &SharedRates,
        workers: &[SchedReader],
        number: u32,
        now: u64,
        contended: &BTreeSet<u32>,
    ) -> Claimant {
        let demands = self.demands(workers, number, now);
        let node = &self.nodes[number as usize];
        let config = node.config;
        let waits = demands.iter().any(|demand| demand.waiting > 0.0);
        let below = match config.over {
            Over::Children if waits || contended.contains(&number) => {
                let children = node.children.clone();
                let child = |child| self.claimant(rates, workers, child, now, contended);
                Below::Children(children.into_iter().map(child).collect())
            }
            _ => Below::Flows(demands),
        };
        let bits = |of: Option<u64>, own| of.unwrap_or_else(|| decode_rate(own)) as f64;
        let ceil = bits(rates.ceil_bits(number), config.ceil);
        Claimant {
            node: number,
            floor: bits(rates.floor_bits(number), config.floor),
            ceil: if ceil > 0.0 { ceil } else { f64::INFINITY },
            weight: weight(&config),
            below,
        }
    }

    /// The packets of a node, by worker.
    fn demands(&mut self, workers: &[SchedReader], number: u32, now: u64) -> Vec<Demand> {
        let node = &mut self.nodes[number as usize];
        let sent: Vec<u64> = workers
            .iter()
            .map(|worker| worker.node_stats(number).sent_bytes)
            .collect();
        let before = std::mem::replace(&mut node.sent, sent);
        let ns = now.saturating_sub(std::mem::replace(&mut node.counted, now));
        let rate = |at: usize| match before.get(at) {
            Some(before) => {
                let bytes = node.sent[at].saturating_sub(*before);
                bytes as f64 * 8e9 / ns.max(1) as f64
            }
            // It is known at the next look.
            None => 0.0,
        };
        let demand = |(at, worker): (usize, &SchedReader)| Demand {
            rate: rate(at),
            waiting: worker.waiting(number).into(),
        };
        workers.iter().enumerate().map(demand).collect()
    }

    /// At each worker, the children of a node share by their claims there.
    fn share_by_claims(&mut self, workers: &[SchedReader], number: u32) {
        let children = self.nodes[number as usize].children.clone();
        let level = self.claims.get(&number).map_or(0.0, |claim| claim.level);
        for (at, worker) in workers.iter().enumerate() {
            let share = |child: &u32| {
                // A class that begins, or does not use its share, has all of its weight.
                let whole = level * weight(&self.nodes[*child as usize].config);
                match self.claims.get(child) {
                    Some(claim) if claim.waits[at] => claim.by_worker[at],
                    Some(claim) => claim.by_worker[at].max(whole),
                    None => whole,
                }
            };
            let shares: Vec<f64> = children.iter().map(share).collect();
            let most = shares.iter().copied().fold(0.0, f64::max);
            for (child, share) in children.iter().zip(shares) {
                let cost = f64::from(COST_ONE)
                    * (most / share.max(f64::MIN_POSITIVE))
                        .min(COSTS / weight(&self.nodes[*child as usize].config));
                if most > 0.0 {
                    self.set_cost(worker, *child, (at, workers.len()), cost as u32);
                }
            }
        }
    }

    /// The children of a node have their costs of the tree.
    fn share_as_the_tree(&mut self, workers: &[SchedReader], number: u32) {
        if !self.nodes[number as usize].by_weight {
            return;
        }
        for child in self.nodes[number as usize].children.clone() {
            let cost = self.nodes[child as usize].config.cost;
            for (at, worker) in workers.iter().enumerate() {
                self.set_cost(worker, child, (at, workers.len()), cost);
            }
        }
    }

    fn set_cost(&mut self, worker: &SchedReader, child: u32, (at, of): (usize, usize), cost: u32) {
        let node = &mut self.nodes[child as usize];
        node.costs.resize(of, node.config.cost);
        if node.costs[at] != cost {
            node.costs[at] = cost;
            worker.set_cost(child, cost);
        }
    }
}

fn weight(config: &NodeConfig) -> f64 {
    f64::from(COST_ONE) / f64::from(config.cost.max(1))
}
