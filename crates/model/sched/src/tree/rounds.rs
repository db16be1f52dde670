//! The bytes that leave until every child of a node had a turn.
//!
//! Children that share by weight get their shares over a round: until the lightest has sent a full packet.
//! Within it, the lightest waits for all others. So a round of a second is a second of delay for it.

use std::fmt;

use fairpath_core::sched::{NodeConfig, decode_rate};
use fairpath_units::quantity::written;

use super::Tree;

/// Policies that share among children by weight.
const WEIGHTED: [&str; 6] = ["class_tree", "drr", "hclock", "hpfq", "qfq", "stfq"];
/// The bytes of a full packet.
const PACKET_BYTES: u64 = 1514;
/// Children wait noticeably in a longer round.
pub const LONG_ROUND_NS: u64 = 100_000_000;

/// A round of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The name of the node.
    pub node: String,
    /// The number of its children.
    pub children: usize,
    /// The weight of the heaviest child, relative to the lightest.
    pub ratio: u64,
    /// The bytes that leave until the lightest child has sent a full packet.
    pub bytes: u64,
    /// The lowest ceiling of the node and those above, or the link rate; 0: none.
    pub bps: u64,
}

impl Round {
    /// The time of a round, if there is a rate.
    pub fn ns(&self) -> Option<u64> {
        let ns = u128::from(self.bytes) * 8_000_000_000 / u128::from(self.bps.max(1));
        (self.bps > 0).then(|| u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// True if children wait noticeably.
    pub fn is_long(&self) -> bool {
        self.ns().is_some_and(|ns| ns > LONG_ROUND_NS)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Round {
            node,
            children,
            bytes,
            bps,
            ..
        } = self;
        write!(
            f,
            "node {node:?}: a round of its {children} children is {bytes} bytes"
        )?;
        if let Some(ns) = self.ns() {
            let (ms, rate) = (ns as f64 / 1e6, written(*bps, "bps"));
            write!(f, ", {ms:.1} ms at {rate}")?;
        }
        if self.is_long() {
            f.write_str(": the lightest child can wait as long: use weights that differ less, or fewer children")?;
        }
        Ok(())
    }
}

impl Tree {
    /// The rounds of all nodes that share by weight, the longest first. `link_bps` is the rate of the link, 0 without.
    /// O(nodes log nodes).
    pub fn rounds(&self, link_bps: u64) -> Vec<Round> {
        let nodes = &self.plan.nodes;
        let parent_of = |node: &NodeConfig| (node.parent as usize).checked_sub(1);
        // Cost is the inverse of weight: that of the lightest child is the maximum.
        let mut lightest = vec![0u64; nodes.len()];
        for node in nodes {
            if let Some(parent) = parent_of(node) {
                lightest[parent] = lightest[parent].max(node.cost.into());
            }
        }
        let mut rounds = vec![(0usize, 0u64, 0u64); nodes.len()];
        let mut bps = vec![0u64; nodes.len()];
        for (at, node) in nodes.iter().enumerate() {
            let own = Some(decode_rate(node.ceil)).filter(|bps| *bps > 0);
            let above = parent_of(node).map_or(link_bps, |parent| bps[parent]);
            bps[at] = own
                .into_iter()
                .chain((above > 0).then_some(above))
                .min()
                .unwrap_or(0);
            if let Some(parent) = parent_of(node) {
                let share = lightest[parent] / u64::from(node.cost.max(1));
                let (children, sum, most) = &mut rounds[parent];
                *children += 1;
                *sum += share;
                *most = (*most).max(share);
            }
        }
        let is_weighted = |at: usize| {
            let policy = self.names.policy(at as u32 + 1);
            policy.is_some_and(|policy| WEIGHTED.contains(&policy.name.as_str()))
        };
        let found = rounds
            .into_iter()
            .enumerate()
            .filter(|(at, round)| round.0 > 1 && is_weighted(*at));
        let mut found: Vec<Round> = found
            .map(|(at, (children, sum, ratio))| Round {
                node: self.names.node(at as u32 + 1).to_owned(),
                children,
                ratio,
                bytes: sum * PACKET_BYTES,
                bps: bps[at],
            })
            .collect();
        found.sort_by_key(|round| std::cmp::Reverse((round.ns(), round.bytes)));
        found
    }
}

#[cfg(test)]
mod tests {
    use fairpath_core::sched::policies;

    use super::super::Known;
    use super::*;

    fn tree(root: &str, weights: [u32; 2]) -> Result<Tree, String> {
        let [a, b] = weights;
        let text = format!(
            "[[node]]\nname = \"root\"\n{root}\n\
             [[node]]\nname = \"a\"\nparent = \"root\"\npolicy = \"fifo\"\nweight = {a}\nmatch = {{ class = [1] }}\n\
             [[node]]\nname = \"b\"\nparent = \"root\"\npolicy = \"fifo\"\nweight = {b}\nmatch = {{ class = [\"*\"] }}\n"
        );
        let known = Known {
            policies: policies(),
            classes: &[],
        };
        Tree::read("t", &text, known).map_err(|bad| bad.to_string())
    }

    #[test]
    fn rounds_are_the_bytes_until_the_lightest_sends() {
        let tree = tree("policy = \"stfq\"", [10_000, 1]).unwrap();
        let round = &tree.rounds(1_000_000_000)[0];
        assert_eq!(
            (round.bytes, round.ratio, round.children),
            (10_001 * 1514, 10_000, 2)
        );
        assert_eq!(round.ns(), Some(121_132_112));
        assert!(round.is_long());
        let text = round.to_string();
        assert!(text.contains("15141514 bytes, 121.1 ms at 1gbit"), "{text}");
        assert!(!tree.rounds(10_000_000_000)[0].is_long());
        assert_eq!(tree.rounds(0)[0].ns(), None);
    }

    #[test]
    fn the_lowest_ceiling_above_counts() {
        let link = crate::tree::Link {
            bps: 10_000_000,
            burst_ns: crate::tree::LINK_BURST_NS,
            stack: false,
        };
        let tree = tree("policy = \"drr\"", [1, 1])
            .unwrap()
            .on_link(&link)
            .unwrap();
        let round = &tree.rounds(1_000_000_000)[0];
        assert_eq!(round.bytes, 2 * 1514);
        assert!(round.bps.abs_diff(10_000_000) < 1_000, "{}", round.bps);
        assert!(!round.is_long());
    }
}
