//! The difference between the running and the desired tree, as messages in an order that the kernel
//! accepts.

use std::collections::HashSet;

use super::dump::HtbRunning;
use super::leaf::{self, LeafKind, Leaves, Limits};
use super::wire::{self, Kept};
use super::{Device, HtbClass, HtbError, HtbTree};
use crate::message::Request;

/// One message, and its class.
pub(super) struct Step {
    pub what: &'static str,
    pub minor: u16,
    pub request: Request,
}

/// Changes of classes, without the qdiscs of leaves.
pub(super) struct Work<'a> {
    pub steps: Vec<Step>,
    /// Leaves without their qdisc, each with the number of steps before it.
    pub bare: Vec<(usize, &'a HtbClass)>,
    /// Leaves in all.
    pub leaves: usize,
    /// Classes to add, to change, to leave alone.
    pub counts: [usize; 3],
}

impl<'a> Work<'a> {
    /// Parents before children, in `order`.
    pub fn find(
        device: Device<'_>,
        tree: &'a HtbTree,
        order: &[usize],
        running: &HtbRunning,
    ) -> Result<Work<'a>, HtbError> {
        let inner: HashSet<u16> = tree.classes.iter().map(|class| class.parent).collect();
        let mut work = Work {
            steps: Vec::new(),
            bare: Vec::new(),
            leaves: 0,
            counts: [0; 3],
        };
        let mut kept = Vec::new();
        for class in order.iter().map(|at| &tree.classes[*at]) {
            let step = step(device, tree.major, class, running)?;
            let new = !running.classes.contains_key(&class.minor);
            let count = if new {
                0
            } else {
                2 - usize::from(step.is_some())
            };
            work.counts[count] += 1;
            work.steps.extend(step);
            if inner.contains(&class.minor) {
                continue;
            }
            work.leaves += 1;
            if lacks_leaf(running, class.minor, tree.leaves) {
                work.bare.push((work.steps.len(), class));
            } else {
                kept.push(class);
            }
        }
        // Some limits depend on the number of leaves.
        let limits = work.limits(tree);
        let steps = kept
            .iter()
            .filter_map(|class| retarget(device, tree.major, class, running, &limits));
        work.steps.extend(steps);
        Ok(work)
    }
}

impl Work<'_> {
    pub fn limits(&self, tree: &HtbTree) -> Limits {
        Limits {
            leaves: self.leaves,
            packets: tree.limit_packets,
            frame_bytes: tree.frame_bytes,
        }
    }
}

/// Running classes that are not in the tree, children before their parents.
pub(super) fn stale(running: &HtbRunning, tree: &HtbTree) -> Vec<u16> {
    let wanted: HashSet<u16> = tree.classes.iter().map(|class| class.minor).collect();
    let level = |minor: &u16| {
        std::iter::successors(Some(*minor), |at| Some(running.classes.get(at)?.parent)).count()
    };
    let mut stale: Vec<u16> = running.classes.keys().copied().collect();
    stale.retain(|minor| !wanted.contains(minor));
    stale.sort_by_key(|minor| (std::cmp::Reverse(level(minor)), *minor));
    stale
}

/// The message that changes a class to the desired state, if needed.
fn step(
    device: Device<'_>,
    major: u16,
    class: &HtbClass,
    running: &HtbRunning,
) -> Result<Option<Step>, HtbError> {
    let there = running.classes.get(&class.minor);
    if let Some(there) = there.filter(|there| there.parent != class.parent) {
        return Err(HtbError::Moves {
            name: device.name.to_owned(),
            minor: class.minor,
            running: there.parent,
            wanted: class.parent,
        });
    }
    if there.is_some_and(|there| there.kept.serves_as(&Kept::of(class), there.leaf)) {
        return Ok(None);
    }
    Ok(Some(Step {
        what: if there.is_some() { "change" } else { "add" },
        minor: class.minor,
        request: wire::set_class(device.ifindex, major, class, there.is_none()),
    }))
}

/// The messages for a qdisc of this kind on a leaf. One of another kind is removed before, because
/// the new one gets its handle.
pub(super) fn leaf_steps(
    (device, major): (Device<'_>, u16),
    running: &HtbRunning,
    class: &HtbClass,
    kind: LeafKind,
    limits: &Limits,
) -> Vec<Step> {
    let (ifindex, minor) = (device.ifindex, class.minor);
    let other = running.leaves.contains_key(&minor);
    let remove = other.then(|| leaf::removal(ifindex, major, minor));
    let make = leaf::request(ifindex, (major, minor), kind, limits, class.leaf_bps);
    let step = |request| Step {
        what: "give a queue to",
        minor,
        request,
    };
    remove.into_iter().chain([make]).map(step).collect()
}

/// A running leaf without a listed qdisc has HTB's own FIFO: a run was interrupted. A class that has
/// children until they are retired cannot have a qdisc; it gets one with the next tree.
fn lacks_leaf(running: &HtbRunning, minor: u16, leaves: Leaves) -> bool {
    let there = running.leaves.get(&minor);
    match leaves {
        Leaves::Best => match running.classes.get(&minor) {
            Some(class) => class.leaf && there.is_none(),
            None => true,
        },
        Leaves::Only(wanted) => there.and_then(|leaf| leaf.kind) != Some(wanted),
    }
}

/// A qdisc whose class has another rate now may need another target or limit.
fn retarget(
    device: Device<'_>,
    major: u16,
    class: &HtbClass,
    running: &HtbRunning,
    limits: &Limits,
) -> Option<Step> {
    let leaf = running.leaves.get(&class.minor)?;
    let before_bps = running.classes.get(&class.minor)?.kept.ceil * 8;
    let request = leaf::retarget(
        device.ifindex,
        (major, class.minor),
        (leaf.kind?, leaf.limit),
        limits,
        [before_bps, class.leaf_bps],
    );
    Some(Step {
        what: "change the queue of",
        minor: class.minor,
        request: request?,
    })
}
