//! Rates and ceilings with the invariants of [`super`] that HTB does not ensure.
//!
//! A class of HTB that is within its rate sends, whatever its ancestors have; so the rates of children
//! have to fit into their parent's.

use fairpath_core::sched::RATE_SHIFT;

use super::Node;

/// The rate of a class without a floor: HTB wants one, and it is what such a class never waits for.
pub const MIN_BPS: u64 = 1_000;
/// The ceiling of a link without a configured rate.
pub const UNLIMITED_BPS: u64 = 1_000_000_000_000;
/// What the kernel takes at least: a byte a second.
const MIN_OF_ALL_BPS: u64 = 8;

pub(super) struct Rates {
    /// Rate and ceiling, by node.
    pub of: Vec<[u64; 2]>,
    /// Nodes whose floor did not fit.
    pub shrunk: usize,
}

/// The rate that the core's encoding stands for (`encode_rate`); `None` for none.
fn bps(encoded: u64) -> Option<u64> {
    let bits = 8_000_000_000_u128 << RATE_SHIFT;
    (encoded != 0).then(|| ((bits + u128::from(encoded) / 2) / u128::from(encoded)) as u64)
}

/// Parents come before their children.
pub(super) fn rates(nodes: &[Node]) -> Rates {
    let ceilings = ceilings(nodes);
    let wanted = wanted(nodes, &ceilings);
    let mut below = vec![0u128; nodes.len()];
    for (node, wanted) in nodes.iter().zip(&wanted) {
        if let Some(parent) = node.parent {
            below[parent] += u128::from(*wanted);
        }
    }
    let mut of: Vec<[u64; 2]> = Vec::with_capacity(nodes.len());
    let mut shrunk = 0;
    for (at, node) in nodes.iter().enumerate() {
        let rate = match node.parent {
            // The link cannot borrow.
            None => ceilings[at],
            Some(parent) => share(wanted[at], of[parent][0], below[parent]),
        };
        shrunk +=
            usize::from(bps(node.config.floor).is_some_and(|floor| rate < floor.min(wanted[at])));
        of.push([rate, ceilings[at].max(rate)]);
    }
    Rates { of, shrunk }
}

/// Own ones, but never above those higher up.
fn ceilings(nodes: &[Node]) -> Vec<u64> {
    let mut ceilings: Vec<u64> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let above = node.parent.map_or(UNLIMITED_BPS, |parent| ceilings[parent]);
        let own = bps(node.config.ceil).unwrap_or(above);
        ceilings.push(own.min(above).max(MIN_OF_ALL_BPS));
    }
    ceilings
}

/// The floor, or what children want if that is more; at most the ceiling.
fn wanted(nodes: &[Node], ceilings: &[u64]) -> Vec<u64> {
    let mut wanted = vec![0u64; nodes.len()];
    for (at, node) in nodes.iter().enumerate().rev() {
        let floor = bps(node.config.floor).unwrap_or(MIN_BPS);
        wanted[at] = wanted[at].max(floor).min(ceilings[at]);
        if let Some(parent) = node.parent {
            wanted[parent] = wanted[parent].saturating_add(wanted[at]);
        }
    }
    wanted
}

/// All that is wanted, or a share of what there is.
fn share(wanted: u64, there: u64, together: u128) -> u64 {
    if together <= u128::from(there) {
        return wanted;
    }
    let share = u128::from(wanted) * u128::from(there) / together;
    (share as u64).max(MIN_OF_ALL_BPS)
}
