//! The rates of a side that the instances of several workers share.
//!
//! Each worker has the whole tree, and waits at each node for its turn of the one rate ([`Limits`]). A later tree keeps
//! the limits of nodes with the same names, so no class gets its rate twice while one worker after the other continues
//! with the later tree.

use std::collections::HashMap;

use fairpath_core::limit::{LimitConfig, LimitCpu, LimitError, LimitRate, Limits, PoolReading};
use fairpath_core::sched::{
    NodeConfig, NodeLimits, Op, OpKind, Policy, SchedRuntimeError, Setting, Share, limit_rate,
};
use fairpath_sched::tree::{Tree, stack_floor};

/// A rate of a node: its name, and whether it is its floor.
type Key = (String, bool);

/// Rates cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The tree.
    #[error(transparent)]
    Tree(#[from] SchedRuntimeError),
    /// Too many workers.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// What an instance shares with others: its CPU of the limits, and the limits of its nodes.
#[derive(Debug)]
pub struct Part {
    /// Its pools.
    pub cpu: LimitCpu,
    /// By node, the root first.
    pub nodes: Vec<NodeLimits>,
}

/// The rates of a tree that several workers share.
#[derive(Debug)]
pub struct SharedRates {
    limits: Limits,
    nodes: Vec<NodeLimits>,
    numbers: HashMap<Key, u32>,
    configs: Vec<NodeConfig>,
    names: Vec<String>,
    stack: Option<u32>,
}

/// The rates of a later tree, until all workers have it.
#[derive(Debug)]
pub struct NextRates {
    /// None: the limits have space for it.
    grown: Option<Limits>,
    nodes: Vec<NodeLimits>,
    numbers: HashMap<Key, u32>,
    rates: Vec<(u32, LimitRate)>,
    configs: Vec<NodeConfig>,
    names: Vec<String>,
    stack: Option<u32>,
}

impl NextRates {
    /// By node, the root first.
    pub fn nodes(&self) -> &[NodeLimits] {
        &self.nodes
    }

    /// A worker's CPU of new limits; none if it keeps its own.
    pub fn cpu(&self, worker: u32) -> Option<LimitCpu> {
        self.grown.as_ref()?.cpu(worker)
    }
}

/// The custom policies of a tree.
pub(crate) fn custom_policies(tree: &Tree) -> Vec<Policy> {
    let customs = tree.customs.iter();
    customs.map(|custom| custom.policy.clone()).collect()
}

fn share_of(tree: &Tree) -> Result<Share, SchedRuntimeError> {
    Share::of(&tree.plan, &custom_policies(tree))
}

/// Each limit of a tree, as the tree names it.
fn keys(tree: &Tree, share: &Share) -> Vec<(Key, u32)> {
    let named = tree.names.nodes().iter().zip(&share.nodes);
    let both = named.flat_map(|(name, limits)| {
        [(limits.ceil, false), (limits.floor, true)]
            .map(|(limit, is_floor)| Some(((name.clone(), is_floor), limit?)))
    });
    both.flatten().collect()
}

/// Packets of a worker, at least, if the whole side may have as many.
const MIN_PACKETS: u32 = 1024;

/// Packets that one of `workers` workers may hold, of `limit` of all.
pub fn packets_of(limit: u32, workers: u32) -> u32 {
    limit.div_ceil(workers.max(1)).max(MIN_PACKETS.min(limit))
}

/// Limits for later trees with more nodes.
fn room(limits: usize) -> usize {
    limits + limits / 4 + 64
}

impl SharedRates {
    /// The rates of a tree for some workers; with `stack`, the tree has a node for what others send.
    ///
    /// # Errors
    /// [`SharedError`].
    pub fn new(tree: &Tree, workers: u32, stack: bool) -> Result<SharedRates, SharedError> {
        let share = share_of(tree)?;
        let limits = Limits::with_room(workers, &share.limits, room(share.limits.len()))?;
        Ok(SharedRates {
            numbers: keys(tree, &share).into_iter().collect(),
            limits,
            nodes: share.nodes,
            configs: tree.plan.nodes.clone(),
            names: tree.names.nodes().to_vec(),
            stack: stack.then(|| tree.stack_node()),
        })
    }

    /// What the instance of a worker shares; none if it has it already.
    pub fn part(&self, worker: u32) -> Option<Part> {
        Some(Part {
            cpu: self.limits.cpu(worker)?,
            nodes: self.nodes.clone(),
        })
    }

    /// Prepares the rates of a later tree. `now` is in nanoseconds.
    ///
    /// # Errors
    /// [`SharedError`]: nothing has changed.
    pub fn next(&mut self, tree: &Tree, now: u64) -> Result<NextRates, SharedError> {
        let share = share_of(tree)?;
        let keys = keys(tree, &share);
        let fresh = keys
            .iter()
            .filter(|(key, _)| !self.numbers.contains_key(key));
        let grown = match fresh.count() > self.limits.free() {
            true => Some(Limits::with_room(
                self.limits.cpus(),
                &share.limits,
                room(share.limits.len()),
            )?),
            false => None,
        };
        let mut next = NextRates {
            nodes: share.nodes.clone(),
            numbers: HashMap::new(),
            rates: Vec::new(),
            configs: tree.plan.nodes.clone(),
            names: tree.names.nodes().to_vec(),
            stack: self.stack.map(|_| tree.stack_node()),
            grown,
        };
        if let Some(grown) = &mut next.grown {
            for (key, number) in keys {
                if let Some(old) = self.numbers.get(&key) {
                    grown.continue_from(number, &self.limits, *old);
                }
                next.numbers.insert(key, number);
            }
            return Ok(next);
        }
        // From the number in the tree alone to that in these limits.
        let mut numbers = HashMap::new();
        for (key, number) in keys {
            let LimitConfig { rate, .. } = share.limits[number as usize];
            let kept = self.numbers.get(&key).copied();
            let there = match kept {
                Some(there) => {
                    next.rates.push((there, rate));
                    there
                }
                // There is space.
                None => self.limits.add(rate, now)?,
            };
            numbers.insert(number, there);
            next.numbers.insert(key, there);
        }
        for limits in &mut next.nodes {
            for limit in [&mut limits.ceil, &mut limits.floor] {
                *limit = limit.and_then(|number| numbers.get(&number).copied());
            }
        }
        Ok(next)
    }

    /// All workers have the later tree: its rates are valid now, and limits that it does not have end.
    pub fn follow(&mut self, next: NextRates, now: u64) {
        let NextRates {
            grown,
            nodes,
            numbers,
            rates,
            configs,
            names,
            stack,
        } = next;
        match grown {
            Some(grown) => self.limits = grown,
            None => {
                for (key, number) in &self.numbers {
                    if numbers.get(key) != Some(number) {
                        self.limits.remove(*number);
                    }
                }
                // Checked when it was prepared.
                let _ = self.limits.set_rates(&rates, now);
            }
        }
        (self.nodes, self.numbers, self.stack) = (nodes, numbers, stack);
        (self.configs, self.names) = (configs, names);
        // Grants that followed claims of the tree before may be too large for its rates now.
        let equal = vec![0; self.workers() as usize];
        for node in 1..=self.nodes.len() as u32 {
            self.set_grants(node, &equal);
        }
    }

    /// No worker has the later tree: limits that were made for it end.
    pub fn forget(&mut self, next: &NextRates) {
        for (key, number) in next.numbers.iter().filter(|_| next.grown.is_none()) {
            if self.numbers.get(key) != Some(number) {
                self.limits.remove(*number);
            }
        }
    }

    /// Changes a rate, before the same operation goes to each instance. Returns the limits that its node has from then
    /// on; none if the operation changes no rate.
    ///
    /// # Errors
    /// [`LimitError::Room`]: the node had no rate, and there is no space.
    pub fn set(&mut self, op: &Op, now: u64) -> Result<Option<NodeLimits>, SharedError> {
        let setting = [Setting::Ceil, Setting::Floor]
            .into_iter()
            .find(|setting| op.kind == OpKind::Node && op.count == *setting as u32);
        let Some(setting) = setting else {
            return Ok(None);
        };
        self.give_limit(op, setting, now)?;
        let mut rates = Vec::new();
        self.rate(op.node, setting, op.value, &mut rates);
        // The share of the stack follows the link rate.
        if let Some(stack) = self.stack
            && (op.node, setting) == (Tree::SHARED, Setting::Ceil)
        {
            self.rate(stack, Setting::Floor, stack_floor(op.value), &mut rates);
        }
        self.limits.set_rates(&rates, now)?;
        let at = (op.node as usize).wrapping_sub(1);
        Ok(self.nodes.get(at).copied())
    }

    /// A node that had no such rate gets a limit for it.
    fn give_limit(&mut self, op: &Op, setting: Setting, now: u64) -> Result<(), SharedError> {
        let at = (op.node as usize).wrapping_sub(1);
        let (Some(limits), Some(config)) = (self.nodes.get_mut(at), self.configs.get(at)) else {
            return Ok(());
        };
        let place = match setting {
            Setting::Ceil => &mut limits.ceil,
            _ => &mut limits.floor,
        };
        if place.is_none() && op.value != 0 && config.parent != 0 {
            let number = self
                .limits
                .add(limit_rate(config, setting, op.value), now)?;
            *place = Some(number);
            let key = (self.names[at].clone(), setting == Setting::Floor);
            self.numbers.insert(key, number);
        }
        Ok(())
    }

    fn rate(&self, node: u32, setting: Setting, value: u64, rates: &mut Vec<(u32, LimitRate)>) {
        let at = (node as usize).wrapping_sub(1);
        let limits = self.nodes.get(at).copied().unwrap_or_default();
        let limit = match setting {
            Setting::Ceil => limits.ceil,
            _ => limits.floor,
        };
        if let (Some(limit), Some(config)) = (limit, self.configs.get(at)) {
            rates.push((limit, limit_rate(config, setting, value)));
        }
    }

    /// The pool of a node's ceiling at a worker; none if the node has no shared ceiling.
    pub fn pool(&self, node: u32, worker: u32) -> Option<PoolReading> {
        let limits = self.nodes.get((node as usize).wrapping_sub(1))?;
        Some(self.limits.pool(limits.ceil?, worker))
    }

    /// Operations of a worker on the shared words of a node: of its ceiling and its floor.
    pub fn grants(&self, node: u32, worker: u32) -> u32 {
        let at = (node as usize).wrapping_sub(1);
        let limits = self.nodes.get(at).copied().unwrap_or_default();
        [limits.ceil, limits.floor]
            .into_iter()
            .flatten()
            .fold(0, |sum, limit| {
                sum.wrapping_add(self.limits.pool(limit, worker).grants)
            })
    }

    /// The most bytes above the ceiling of a node that leave in any time, with packets of at most `largest` bytes:
    /// the bound of docs/design/0021, and the packet that each scheduler may send beyond its pool. `None`: the
    /// node has no shared ceiling. O(limits).
    pub fn burst(&self, node: u32, largest: u32) -> Option<u64> {
        let limits = self.nodes.get((node as usize).wrapping_sub(1))?;
        let beyond = u64::from(largest) * u64::from(self.workers());
        Some(self.limits.burst(limits.ceil?, largest) + beyond)
    }

    /// Bytes of the rates of a tree for some workers.
    ///
    /// # Errors
    /// [`SharedError`].
    pub fn bytes(tree: &Tree, workers: u32) -> Result<u64, SharedError> {
        let limits = room(share_of(tree)?.limits.len());
        Ok(Limits::bytes(workers, limits)? as u64)
    }

    fn of(&self, node: u32) -> NodeLimits {
        let at = (node as usize).wrapping_sub(1);
        self.nodes.get(at).copied().unwrap_or_default()
    }

    /// The time until which all grants of a node's ceiling have left at the rate, ns; none if it is not shared.
    pub fn granted(&self, node: u32) -> Option<u64> {
        Some(self.limits.granted(self.of(node).ceil?))
    }

    /// The present rate of a node's ceiling, bit/s; none if it is not shared.
    pub fn ceil_bits(&self, node: u32) -> Option<u64> {
        Some(self.limits.rate(self.of(node).ceil?).bits)
    }

    /// The present rate of a node's floor, bit/s; none if it has none.
    pub fn floor_bits(&self, node: u32) -> Option<u64> {
        Some(self.limits.rate(self.of(node).floor?).bits)
    }

    /// Bytes of a grant of equal workers; 0: a packet.
    pub fn usual_grant(&self, node: u32) -> u32 {
        self.of(node)
            .ceil
            .map_or(0, |limit| self.limits.usual_grant(limit))
    }

    /// Sets the bytes of grants of a node's ceiling by worker; 0: as of equal workers.
    pub fn set_grants(&mut self, node: u32, bytes: &[u32]) {
        if let Some(limit) = self.of(node).ceil {
            for (worker, bytes) in (0..).zip(bytes) {
                self.limits.set_grant(limit, worker, *bytes);
            }
        }
    }

    /// Workers that share them.
    pub fn workers(&self) -> u32 {
        self.limits.cpus()
    }
}

#[cfg(test)]
mod tests {
    use fairpath_class::ClassSet;
    use fairpath_core::Rules;
    use fairpath_core::sched::{End, Meta};

    use super::*;
    use crate::{Both, Leaving, Lines, Settings, ShapeInstance};

    /// A flow stays in its queue for a turn after its last packet left.
    #[test]
    fn sparse_packets_take_one_grant_each() {
        let settings = Settings {
            bps: Both {
                down: 5_000_000,
                up: 0,
            },
            ..Settings::default()
        };
        let lines = Lines::new(&ClassSet::default(), &settings).unwrap();
        let tree = &lines.trees.down;
        let shared = SharedRates::new(tree, 2, false).unwrap();
        let (rules, part) = (Rules::default(), shared.part(1));
        let mut instance =
            ShapeInstance::sharing(tree, End::Receiver, &rules, 100, false, part).unwrap();
        let meta = Meta {
            bytes: 1514,
            flow_hash: 1,
            ..Meta::default()
        };
        let (mut leaving, mut now) = (Vec::new(), 1_000_000_000);
        for packet in 1..=10 {
            instance.arrive_as(1, now, meta);
            let mut next = Some(now);
            while let Some(at) = next {
                now = at.max(now + 1);
                next = instance.turn(now, 64, &mut leaving).unwrap();
            }
            assert!(matches!(leaving[..], [Leaving::Send { handle: 1, .. }]));
            leaving.clear();
            assert_eq!(shared.grants(Tree::SHARED, 1), packet);
            now += 2_400_000_000;
        }
    }
}
