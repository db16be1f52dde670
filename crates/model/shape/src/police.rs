//! From a tree to limits without queues: the ceiling of a node is a limit around those below it.

use fairpath_core::limit::{LEVELS, LimitConfig, LimitRate};
use fairpath_core::sched::{Setting, limit_rate};
use fairpath_sched::tree::Tree;

/// More limits are above each other than a packet can pay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "class {class:?}: {} rates are above each other, and limits without queues have at most {LEVELS}: remove rates, or use a back end with queues",
    LEVELS + 1
)]
pub struct TooManyLimits {
    /// The lowest class.
    pub class: String,
}

/// The limits of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicePlan {
    /// Parents before children.
    pub limits: Vec<LimitConfig>,
    /// By limit: the name of its node.
    pub names: Vec<String>,
    /// By class number: the number of its limit, from 1; 0: it has none.
    pub of_class: Vec<u32>,
    /// Nodes with a floor, which limits without queues cannot keep.
    pub floors: usize,
}

/// Bytes of a usual packet.
const PACKET: u64 = 1514;

/// The queue in which packets wait that limits delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceQueue {
    /// Its capacity, packets.
    pub packets: u32,
    /// That of each of its flows.
    pub flow_packets: u32,
}

impl PolicePlan {
    /// The capacity of a queue and of its flows with which packets may wait as long as their limits let them: twice that
    /// in usual packets. O(limits).
    pub fn capacity(&self) -> u32 {
        let packets = |limit: &LimitConfig| {
            let usual = LimitRate::new(limit.rate.bits);
            let bytes = u128::from(usual.wait) * u128::from(usual.bits) / 8_000_000_000;
            u32::try_from(2 * (bytes.div_ceil(PACKET.into()))).unwrap_or(u32::MAX)
        };
        self.limits.iter().map(packets).max().unwrap_or(0)
    }

    /// The limits where packets wait instead of being dropped: in all, at most half of the queue's capacity in usual
    /// packets, and for a limit that is the lowest of a class, which may have one flow, half of that of a flow. So the
    /// queue has space for small packets, too. No packet is late, so after a pause no more may leave than the usual
    /// burst. O(limits + classes).
    pub fn paced(&self, queue: PaceQueue) -> Vec<LimitConfig> {
        let mut capacities = vec![queue.packets; self.limits.len()];
        for limit in &self.of_class {
            let own = (*limit as usize)
                .checked_sub(1)
                .and_then(|at| capacities.get_mut(at));
            if let Some(own) = own {
                *own = queue.packets.min(queue.flow_packets);
            }
        }
        let limits = self.limits.iter().zip(capacities);
        let paced = limits.map(|(limit, packets)| {
            let usual = LimitRate::new(limit.rate.bits);
            let half = u128::from(packets / 2) * u128::from(PACKET) * 8_000_000_000;
            let half = u64::try_from(half / u128::from(usual.bits)).unwrap_or(u64::MAX);
            LimitConfig {
                rate: LimitRate {
                    wait: usual.wait.min(half),
                    ..usual
                },
                ..*limit
            }
        });
        paced.collect()
    }
}

/// The limits of a tree.
///
/// # Errors
/// [`TooManyLimits`].
pub fn police_plan(tree: &Tree) -> Result<PolicePlan, TooManyLimits> {
    let mut plan = PolicePlan::default();
    // By node, the root first: the lowest limit at it or above it, and their number.
    let mut lowest: Vec<(Option<u32>, usize)> = Vec::new();
    for (node, name) in tree.plan.nodes.iter().zip(tree.names.nodes()) {
        let above = match node.parent {
            0 => (None, 0),
            parent => lowest[parent as usize - 1],
        };
        plan.floors += usize::from(node.floor != 0);
        if node.ceil == 0 {
            lowest.push(above);
            continue;
        }
        if above.1 == LEVELS {
            let class = name.clone();
            return Err(TooManyLimits { class });
        }
        lowest.push((Some(plan.limits.len() as u32), above.1 + 1));
        plan.limits.push(LimitConfig {
            rate: limit_rate(node, Setting::Ceil, node.ceil),
            parent: above.0,
        });
        plan.names.push(name.clone());
    }
    let of_leaf = |leaf: &u32| {
        let at = (*leaf as usize).checked_sub(1)?;
        lowest.get(at)?.0
    };
    let leaves = tree.plan.class_table.iter();
    plan.of_class = leaves
        .map(|leaf| of_leaf(leaf).map_or(0, |limit| limit + 1))
        .collect();
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use fairpath_class::{ClassSet, Drafts, Uplinks};

    use super::*;
    use crate::lines::{Both, Lines, Settings};

    fn classes(csv: &str) -> ClassSet {
        let mut drafts = Drafts::new();
        drafts.read_file("classes.csv", csv.as_bytes());
        ClassSet::build(drafts, Uplinks::Unknown).set.unwrap()
    }

    fn plan(csv: &str, bps: u64) -> Result<PolicePlan, TooManyLimits> {
        let settings = Settings {
            bps: Both { down: bps, up: bps },
            ..Settings::default()
        };
        police_plan(&Lines::new(&classes(csv), &settings).unwrap().trees.down)
    }

    #[test]
    fn limits_are_around_those_of_their_classes() {
        let csv = "name,parent,prefix,down\nsite,,10.1.0.0/16,50mbit\nanna,site,10.1.0.1/32,10mbit\n\
                   bert,site,10.1.0.2/32,\nfree,,10.2.0.0/16,\n";
        let plan = plan(csv, 100_000_000).unwrap();
        assert_eq!(plan.names, ["root", "site", "anna"]);
        let parents: Vec<_> = plan.limits.iter().map(|limit| limit.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(1)]);
        let bits: Vec<u64> = plan.limits.iter().map(|limit| limit.rate.bits).collect();
        assert_eq!(bits, [100_000_000, 50_000_000, 10_000_000]);
        // Without a class, then in the order of the file: a class without a rate has that above it.
        assert_eq!(plan.of_class, [1, 2, 3, 2, 1]);
    }

    #[test]
    fn waiting_packets_fit_half_the_queue() {
        let csv = "name,parent,prefix,down\nsite,,10.1.0.0/16,800mbit\nanna,site,10.1.0.1/32,10mbit\n\
                   bert,site,10.1.0.2/32,100mbit\ncarl,site,10.1.0.3/32,100kbit\n";
        let plan = plan(csv, 10_000_000_000).unwrap();
        let waits = |packets, flow_packets| -> Vec<u64> {
            let queue = PaceQueue {
                packets,
                flow_packets,
            };
            let paced = plan.paced(queue);
            assert!(paced.iter().zip(&plan.limits).all(|(paced, policed)| {
                (paced.parent, paced.rate.bits, paced.rate.burst)
                    == (policed.parent, policed.rate.bits, 100_000)
            }));
            paced.iter().map(|limit| limit.rate.wait).collect()
        };
        assert_eq!(plan.names, ["root", "site", "anna", "bert", "carl"]);
        // Packets without a class and those of the site itself have these limits alone. 50 packets of 1,514 bytes take
        // 60.5 us at 10 Gbit/s, 757 us at 800 Mbit/s, 6.056 ms at 100 Mbit/s, and 60.6 ms at 10 Mbit/s; four take
        // 484 ms at 100 kbit/s.
        let few = [60_560, 757_000, 50_000_000, 6_056_000, 484_480_000];
        assert_eq!(waits(10_000, 100), few);
        let many = [50_000_000, 50_000_000, 50_000_000, 50_000_000, 484_480_000];
        assert_eq!(waits(1_000_000, 1_000_000), many);
        assert_eq!(waits(10_000, 1)[4], 0);
        assert_eq!(waits(plan.capacity(), plan.capacity()), many);
        assert!(waits(plan.capacity() - 2, plan.capacity())[0] < 50_000_000);
    }

    #[test]
    fn without_rates_there_are_no_limits() {
        let plan = plan("name,prefix\nanna,10.1.0.1/32\n", 0).unwrap();
        assert_eq!((plan.limits, plan.of_class), (vec![], vec![0, 0]));
    }

    #[test]
    fn more_levels_than_limits_are_refused() {
        let chain = |levels: usize| {
            let mut csv = "name,parent,prefix,down\n".to_owned();
            for level in 0..levels {
                let parent = match level {
                    0 => String::new(),
                    level => format!("c{}", level - 1),
                };
                csv += &format!("c{level},{parent},10.{level}.0.0/16,10mbit\n");
            }
            csv
        };
        assert!(plan(&chain(LEVELS - 1), 20_000_000).is_ok());
        let error = plan(&chain(LEVELS), 20_000_000).unwrap_err();
        assert_eq!(error.class, format!("c{}", LEVELS - 1));
    }
}
