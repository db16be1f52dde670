//! The parts of shared rates that workers claim: by the floors, weights and flows that have packets at each.
//!
//! Workers that wait for a limit take turns, and get the rate in proportion to their grants. With equal grants, a worker
//! with one sparse class would get as much as one with many busy classes. So grants follow what a single scheduler
//! would give to the packets of each worker.

/// The packets of a node at one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Bits a second that it sent.
    pub rate: f64,
    /// Flows that wait; 0: nothing waits.
    pub waiting: f64,
}

/// A node that uses a shared rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimant {
    /// Its number in the tree.
    pub node: u32,
    /// Bits a second that it has first; 0: none.
    pub floor: f64,
    /// Bits a second, at most.
    pub ceil: f64,
    /// Its share of what is left.
    pub weight: f64,
    /// Who gets what it gets.
    pub below: Below,
}

/// Who gets the rate of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Below {
    /// Its flows, by worker.
    Flows(Vec<Demand>),
    /// Its children.
    Children(Vec<Claimant>),
}

/// What a node gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its number in the tree.
    pub node: u32,
    /// Bits a second, by worker.
    pub by_worker: Vec<f64>,
    /// Packets of it wait, by worker.
    pub waits: Vec<bool>,
    /// Bits a second for a weight of 1, of its children that cannot use more.
    pub level: f64,
}

/// The growth of a demand that is met, until the next turn.
pub(crate) const GROWTH: f64 = 1.25;
/// A demand that is met is at least this share of the rate: a class that begins must not wait for a turn.
const BEGIN: f64 = 0.001;

impl Claimant {
    /// Bits a second that it can use.
    pub fn wanted(&self) -> f64 {
        let below: f64 = match &self.below {
            Below::Children(children) => children.iter().map(Claimant::wanted).sum(),
            Below::Flows(demands) if demands.iter().any(|demand| demand.waiting > 0.0) => self.ceil,
            Below::Flows(demands) => demands.iter().map(|demand| demand.rate).sum::<f64>() * GROWTH,
        };
        below.min(self.ceil)
    }

    /// Divides a rate as one scheduler does. Writes the claims of the node and all below it, and returns its own.
    pub fn divide(&self, given: f64, claims: &mut Vec<Claim>) -> Claim {
        let claim = match &self.below {
            Below::Flows(demands) => Claim {
                node: self.node,
                by_worker: split(given, demands),
                waits: demands.iter().map(|demand| demand.waiting > 0.0).collect(),
                level: 0.0,
            },
            Below::Children(children) => {
                let (level, given) = allotted(given, children);
                let each: Vec<Claim> = (children.iter().zip(given))
                    .map(|(child, given)| child.divide(given, claims))
                    .collect();
                let workers = each.first().map_or(0, |child| child.by_worker.len());
                let all = 0..workers;
                Claim {
                    node: self.node,
                    by_worker: (all.clone())
                        .map(|worker| each.iter().map(|child| child.by_worker[worker]).sum())
                        .collect(),
                    waits: all
                        .map(|worker| each.iter().any(|child| child.waits[worker]))
                        .collect(),
                    level,
                }
            }
        };
        claims.push(claim.clone());
        claim
    }
}

/// A rate as one scheduler divides it: floors first, then by weight, and no child gets more than it can use. Also bits a
/// second for a weight of 1.
fn allotted(rate: f64, children: &[Claimant]) -> (f64, Vec<f64>) {
    let wanted: Vec<f64> = children
        .iter()
        .map(|child| child.wanted().min(rate))
        .collect();
    let floors: Vec<f64> = (children.iter().zip(&wanted))
        .map(|(child, wanted)| child.floor.min(*wanted))
        .collect();
    let all: f64 = floors.iter().sum();
    if all >= rate && all > 0.0 {
        let parts = floors.iter().map(|floor| floor / all * rate);
        return (0.0, parts.collect());
    }
    // A child gets the larger of its floor and its share: the level up to which all are filled, by bisection.
    let at = |level: f64| -> Vec<f64> {
        let each = children.iter().zip(&wanted).zip(&floors);
        each.map(|((child, wanted), floor)| (child.weight * level).max(*floor).min(*wanted))
            .collect()
    };
    let smallest = children
        .iter()
        .map(|child| child.weight)
        .fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, rate / smallest.max(f64::MIN_POSITIVE));
    for _ in 0..48 {
        let middle = (low + high) / 2.0;
        match at(middle).iter().sum::<f64>() > rate {
            true => high = middle,
            false => low = middle,
        }
    }
    (high, at(low))
}

/// The part of a leaf at each worker: what it sends where nothing waits, and the rest by the flows that wait.
fn split(given: f64, demands: &[Demand]) -> Vec<f64> {
    let waiting: f64 = demands.iter().map(|demand| demand.waiting).sum();
    let sent: f64 = demands.iter().map(|demand| demand.rate).sum();
    if waiting == 0.0 {
        let part = |demand: &Demand| given * demand.rate / sent.max(f64::MIN_POSITIVE);
        return demands.iter().map(part).collect();
    }
    let met = |demand: &Demand| match demand.waiting > 0.0 || demand.rate == 0.0 {
        true => 0.0,
        false => (demand.rate * GROWTH).max(given * BEGIN),
    };
    let all_met: f64 = demands.iter().map(met).sum();
    let scale = match all_met > given {
        true => given / all_met,
        false => 1.0,
    };
    let rest = (given - all_met * scale).max(0.0);
    let part = |demand: &Demand| met(demand) * scale + rest * demand.waiting / waiting;
    demands.iter().map(part).collect()
}

/// Packets of the largest grant of a low rate, where grants of equal workers are a packet. O(1).
pub fn most_packets(rate: u64, packet: u32) -> f64 {
    /// More would not divide much better.
    const MOST: f64 = 8.0;
    /// Others wait for so long, or for a packet.
    const LONGEST_NS: f64 = 10_000_000.0;
    let packet_ns = f64::from(packet) * 8e9 / rate.max(1) as f64;
    (LONGEST_NS / packet_ns).floor().clamp(1.0, MOST)
}

/// Bytes of the grants of each worker with these claims of a rate. `usual`: bytes of a grant of equal workers, 0 where it
/// is a packet. `packet`: bytes of a usual packet, of which such a grant has at most `most`.
pub fn grants(claims: &[f64], usual: u32, packet: u32, most: f64) -> Vec<u32> {
    let claimed: Vec<f64> = claims
        .iter()
        .copied()
        .filter(|claim| *claim > 0.0)
        .collect();
    if claimed.len() < 2 {
        return vec![0; claims.len()];
    }
    let (usual, packet) = (f64::from(usual), f64::from(packet));
    let all: f64 = claimed.iter().sum();
    let largest = claimed.iter().copied().fold(0.0, f64::max);
    let unit = claimed
        .iter()
        .copied()
        .fold(largest, f64::min)
        .max(largest / most);
    let bytes = |claim: &f64| match usual > packet {
        true => (usual * claims.len() as f64 * claim / all).max(packet),
        // In whole packets.
        false => packet * (claim / unit).round().clamp(1.0, most),
    };
    claims.iter().map(|claim| bytes(claim) as u32).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: f64 = 1e9;

    fn leaf(floor: f64, weight: f64, demands: &[Demand]) -> Claimant {
        Claimant {
            node: 0,
            floor,
            ceil: f64::INFINITY,
            weight,
            below: Below::Flows(demands.to_vec()),
        }
    }

    fn node(ceil: f64, weight: f64, children: Vec<Claimant>) -> Claimant {
        Claimant {
            node: 0,
            floor: 0.0,
            ceil,
            weight,
            below: Below::Children(children),
        }
    }

    fn busy(flows: f64) -> Demand {
        Demand {
            rate: 1e8,
            waiting: flows,
        }
    }

    const NONE: Demand = Demand {
        rate: 0.0,
        waiting: 0.0,
    };

    /// Parts of the rate, by worker.
    fn parts(children: Vec<Claimant>) -> Vec<f64> {
        let port = node(RATE, 1.0, children);
        let claim = port.divide(port.wanted(), &mut Vec::new());
        claim.by_worker.iter().map(|part| part / RATE).collect()
    }

    fn near(found: &[f64], wanted: &[f64]) {
        let differs = |(a, b): (&f64, &f64)| (a - b).abs() > 0.002;
        assert!(
            found.len() == wanted.len() && !found.iter().zip(wanted).any(differs),
            "{found:?}, not {wanted:?}"
        );
    }

    #[test]
    fn weights_hold_across_workers() {
        // Three quarters at worker 0, one at worker 1.
        let heavy = leaf(0.0, 3.0, &[busy(1.0), NONE]);
        let light = leaf(0.0, 1.0, &[NONE, busy(1.0)]);
        near(&parts(vec![heavy, light.clone()]), &[0.75, 0.25]);
        // One is at both: its weight counts once.
        let both = leaf(0.0, 1.0, &[busy(1.0), busy(1.0)]);
        near(&parts(vec![both, light]), &[0.25, 0.75]);
    }

    #[test]
    fn floors_come_before_weights() {
        let at = |worker: usize| {
            let mut demands = [NONE; 16];
            demands[worker] = busy(1.0);
            leaf(if worker == 3 { 6e8 } else { 0.0 }, 1.0, &demands)
        };
        let found = parts((0..16).map(at).collect());
        near(&found[2..5], &[0.4 / 15.0, 0.6, 0.4 / 15.0]);
    }

    #[test]
    fn flows_of_a_leaf_get_equal_parts() {
        near(
            &parts(vec![leaf(0.0, 1.0, &[busy(3.0), busy(1.0)])]),
            &[0.75, 0.25],
        );
    }

    #[test]
    fn flows_below_a_site_count_at_the_port() {
        // Two sites of the same weight; the flows of one are at both workers.
        let first = node(RATE, 1.0, vec![leaf(0.0, 1.0, &[busy(9.0), busy(1.0)])]);
        let other = node(RATE, 1.0, vec![leaf(0.0, 1.0, &[NONE, busy(1.0)])]);
        near(&parts(vec![first, other]), &[0.45, 0.55]);
        // The rate of a site leaves the rest to others.
        let slow = node(1e8, 1.0, vec![leaf(0.0, 1.0, &[busy(1.0), NONE])]);
        let other = leaf(0.0, 1.0, &[NONE, busy(1.0)]);
        near(&parts(vec![slow, other]), &[0.1, 0.9]);
    }

    #[test]
    fn met_demands_leave_the_rest_to_others() {
        let small = Demand {
            rate: 0.04 * RATE,
            waiting: 0.0,
        };
        let small = leaf(0.0, 1.0, &[small, NONE]);
        let large = leaf(0.0, 1.0, &[NONE, busy(1.0)]);
        near(&parts(vec![small, large]), &[0.05, 0.95]);
    }

    #[test]
    fn grants_of_packets_are_in_proportion() {
        let packets = |claims: &[f64]| -> Vec<u32> {
            let bytes = grants(claims, 0, 1000, 8.0);
            bytes.iter().map(|bytes| bytes / 1000).collect()
        };
        assert_eq!(packets(&[1.0, 1.0]), [1, 1]);
        assert_eq!(packets(&[0.6, 0.2, 0.001, 0.0, 0.2]), [8, 3, 1, 1, 3]);
        assert_eq!(packets(&[0.95, 0.05]), [8, 1]);
        assert_eq!(packets(&[0.7, 0.1]), [7, 1]);
        assert_eq!(packets(&[1.0, 0.0]), [0, 0]);
    }

    #[test]
    fn slow_rates_have_short_turns() {
        assert_eq!(most_packets(100_000_000, 1514), 8.0);
        assert_eq!(most_packets(5_000_000, 1514), 4.0);
        assert_eq!(most_packets(100_000, 1514), 1.0);
        assert_eq!(most_packets(0, 1514), 1.0);
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        #[test]
        fn claims_sum_up_and_grants_are_bounded(
            kinds in prop::collection::vec((0u32..1000, 1u32..1000, 1u32..100), 1..6),
            demands in prop::collection::vec((0u32..1000, 0u32..5), 48),
            workers in 1usize..9, usual in prop_oneof![Just(0u32), 4000u32..100_000],
        ) {
            let demand = |(rate, waiting): &(u32, u32)| Demand {
                rate: f64::from(*rate) * 1e6,
                waiting: f64::from(*waiting),
            };
            let leaves: Vec<Claimant> = kinds.iter().enumerate().map(|(at, (floor, ceil, weight))| {
                let at: Vec<Demand> = demands[at * workers % 40..].iter().take(workers).map(demand).collect();
                let ceil = f64::from(*ceil.max(floor)) * 1e6;
                Claimant { ceil, ..leaf(f64::from(*floor) * 1e6, f64::from(*weight), &at) }
            }).collect();
            let port = node(RATE, 1.0, leaves);
            let given = port.wanted();
            let mut all = Vec::new();
            let claim = port.divide(given, &mut all);
            let sum: f64 = claim.by_worker.iter().sum();
            prop_assert!((sum - given).abs() <= given * 1e-6, "{sum} of {given}");
            prop_assert!(all.iter().flat_map(|claim| &claim.by_worker).all(|part| *part >= 0.0));
            let grants = grants(&claim.by_worker, usual, 1514, 8.0);
            let sum: u64 = grants.iter().map(|bytes| u64::from(*bytes)).sum();
            let most = workers as u64 * u64::from(usual + 1514);
            prop_assert!(usual == 0 || sum <= most, "{sum} of {most}");
            prop_assert!(grants.iter().all(|bytes| usual > 0 || *bytes <= 8 * 1514));
        }
    }
}
