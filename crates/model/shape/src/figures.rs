//! Outcomes of packets, by node of a tree. Those of a node include the nodes below it.
//!
//! Invariant, once nothing moves: `arrived = sent + dropped + held`, for each node and in sum. A reading
//! under traffic is off by the packets of the moment.

use fairpath_core::sched::{Account, NodeStats, Plan, SOJOURN_BINS, sojourn_of_bin};
use fairpath_sched::tree::Tree;

/// How long packets waited: counts by bin, see [`fairpath_core::sched::SOJOURN_BINS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sojourns(Box<[u32; SOJOURN_BINS]>);

impl Default for Sojourns {
    fn default() -> Sojourns {
        Sojourns(Box::new([0; SOJOURN_BINS]))
    }
}

impl Sojourns {
    /// Packets counted.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|n| u64::from(*n)).sum()
    }

    /// What came since an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Sojourns) -> Sojourns {
        let mut since = self.clone();
        for (now, before) in since.0.iter_mut().zip(before.0.iter()) {
            *now = now.wrapping_sub(*before);
        }
        since
    }

    /// The sojourn that a share `q` of packets does not exceed, ns: the upper end of its bin, at most
    /// a quarter too much. `None` without packets.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * q).ceil() as u64).max(1);
        let mut below = 0;
        let bin = self.0.iter().position(|n| {
            below += u64::from(*n);
            below >= rank
        })?;
        Some(sojourn_of_bin(bin + 1))
    }

    fn add(&mut self, bins: &[u32; SOJOURN_BINS]) {
        for (sum, n) in self.0.iter_mut().zip(bins) {
            *sum = sum.wrapping_add(*n);
        }
    }
}

/// The outcomes of packets of a node and all nodes below, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Packets that came.
    pub arrived: u64,
    /// Their bytes on the wire.
    pub arrived_bytes: u64,
    /// Packets that left.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Of them, with CE set here.
    pub marked: u64,
    /// Packets dropped, by `fairpath_core::sched::Drop`.
    pub dropped: [u64; 32],
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets that wait.
    pub held: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// How long those that left had waited.
    pub sojourns: Sojourns,
}

impl Figures {
    /// Packets dropped for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    fn add_leaf(&mut self, stats: &NodeStats, account: &Account) {
        self.arrived += account.arrived;
        self.arrived_bytes += account.arrived_bytes;
        self.sent += stats.sent;
        self.sent_bytes += stats.sent_bytes;
        self.marked += stats.marked;
        for (sum, n) in self.dropped.iter_mut().zip(account.dropped) {
            *sum += n;
        }
        self.dropped_bytes += account.dropped_bytes;
        self.held += u64::from(stats.packets);
        self.backlog_bytes += u64::from(stats.bytes);
        self.sojourns.add(&account.sojourn);
    }

    /// Packets that left or were dropped at nodes below that have ended since, and at no leaf.
    fn add_ended(&mut self, stats: &NodeStats, account: &Account) {
        let dropped = account.dropped.iter().sum();
        let ended = NodeStats {
            sent: account.arrived.saturating_sub(dropped),
            sent_bytes: account.arrived_bytes.saturating_sub(account.dropped_bytes),
            marked: stats.marked,
            ..NodeStats::default()
        };
        self.add_leaf(&ended, account);
    }

    /// Adds those of another node, or of the same one at another worker.
    pub fn add(&mut self, other: &Figures) {
        self.arrived += other.arrived;
        self.arrived_bytes += other.arrived_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.marked += other.marked;
        for (sum, n) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += n;
        }
        self.dropped_bytes += other.dropped_bytes;
        self.held += other.held;
        self.backlog_bytes += other.backlog_bytes;
        self.sojourns.add(&other.sojourns.0);
    }
}

/// Where figures are read: the shape of a tree.
#[derive(Clone, Debug, Default)]
pub struct Places {
    parents: Vec<u32>,
    is_leaf: Vec<bool>,
}

impl Places {
    /// Those of a tree.
    pub fn of(tree: &Tree) -> Places {
        Places::of_plan(&tree.plan)
    }

    fn of_plan(plan: &Plan) -> Places {
        let mut is_leaf = vec![true; plan.nodes.len() + 1];
        for node in &plan.nodes {
            is_leaf[node.parent as usize] = false;
        }
        Places {
            parents: plan.nodes.iter().map(|node| node.parent).collect(),
            is_leaf,
        }
    }

    /// Reads all nodes. Index 0 is the sum of all, packets without a leaf included; then node 1, the root,
    /// and so on. O(nodes), about 700 bytes each.
    pub fn read(&self, node: impl Fn(u32) -> (NodeStats, Account)) -> Vec<Figures> {
        let mut all = vec![Figures::default(); self.parents.len() + 1];
        // Children come after their parents.
        for at in (1..all.len()).rev() {
            let (stats, account) = node(at as u32);
            if self.is_leaf[at] {
                all[at].add_leaf(&stats, &account);
            } else {
                all[at].add_ended(&stats, &account);
            }
            let (above, below) = all.split_at_mut(at);
            above[self.parents[at - 1] as usize].add(&below[0]);
        }
        let (_, nobody) = node(0);
        all[0].add_ended(&NodeStats::default(), &nobody);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_upper_ends_of_their_bins() {
        let mut sojourns = Sojourns::default();
        assert_eq!(sojourns.quantile(0.5), None);
        let mut bins = [0; SOJOURN_BINS];
        (bins[0], bins[20], bins[SOJOURN_BINS - 1]) = (50, 49, 1);
        sojourns.add(&bins);
        assert_eq!(sojourns.quantile(0.5), Some(1280));
        assert_eq!(sojourns.quantile(0.99), Some(40_960));
        assert_eq!(sojourns.quantile(1.0), Some(1 << 34));
        let more = {
            let mut more = sojourns.clone();
            more.add(&bins);
            more
        };
        assert_eq!(more.since(&sojourns).count(), 100);
    }
}
