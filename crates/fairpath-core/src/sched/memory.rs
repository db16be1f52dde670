//! A scheduler's memory, wherever it lies: laid out, read and audited from user space.

use std::ptr::NonNull;

use super::ffi::{self, RawPlan, Sched};
use super::{
    Function, HomeError, LEVELS, NodeConfig, NodeStats, Over, Plan, Policy, SPLIT, SchedStats,
    policies,
};

/// Handles, flows, nodes and references of one scheduler, each at most.
pub const MAX_OF_A_KIND: u32 = 1 << 24;

/// A formatted scheduler's memory; does not own it.
#[derive(Debug)]
pub struct SchedMemory {
    pub(crate) sched: NonNull<Sched>,
}

// SAFETY: the memory is plain bytes that one caller at a time works on.
unsafe impl Send for SchedMemory {}

/// What the C side reads of a plan, and what it counts in.
pub(crate) struct Laid {
    plan: Plan,
    wants: Vec<u32>,
    functions: Vec<u32>,
    flow_bytes: Vec<u32>,
    children: Vec<u32>,
}

impl Laid {
    /// Checks the plan; `custom` is the author's policy, if one may be named.
    pub(crate) fn new(plan: &Plan, custom: Option<&Policy>) -> Result<Laid, HomeError> {
        let mut plan = plan.clone();
        plan.config.nodes = plan.nodes.len() as u32;
        plan.config.classes = plan.class_table.len() as u32;
        plan.config.splits = plan.splits.len() as u32;
        plan.config.flows = plan.config.flows.next_multiple_of(8).max(8);
        plan.config.hosts = plan.config.hosts.next_multiple_of(8);
        plan.config.packets = plan.config.packets.max(1);
        check_sizes(&plan)?;
        check_tables(&plan)?;
        let mut laid = Laid {
            wants: Vec::with_capacity(plan.nodes.len()),
            functions: Vec::with_capacity(plan.nodes.len()),
            flow_bytes: Vec::with_capacity(plan.nodes.len()),
            children: vec![0; plan.nodes.len() + 1],
            plan,
        };
        for (index, node) in laid.plan.nodes.iter().enumerate() {
            let known = policies().iter().chain(custom);
            let Some(policy) = known.into_iter().find(|policy| policy.id == node.policy) else {
                return Err(wrong(
                    index,
                    format!("has policy {}, which is not there", node.policy),
                ));
            };
            check_node(&laid.plan, index, policy)?;
            laid.wants.push(policy.wants);
            laid.functions.push(bits(&policy.functions));
            laid.flow_bytes.push(policy.state_bytes[0]);
        }
        Ok(laid)
    }

    fn raw(&self) -> RawPlan {
        RawPlan {
            config: &raw const self.plan.config,
            nodes: self.plan.nodes.as_ptr(),
            wants: self.wants.as_ptr(),
            functions: self.functions.as_ptr(),
            flow_bytes: self.flow_bytes.as_ptr(),
            classes: self.plan.class_table.as_ptr(),
            splits: self.plan.splits.as_ptr(),
        }
    }

    /// Bytes that the scheduler needs.
    pub(crate) fn bytes(&mut self) -> u64 {
        self.children.fill(0);
        let raw = self.raw();
        // SAFETY: the plan's tables have the lengths that its configuration says; `children` has one
        // entry for each node and one more.
        unsafe { ffi::fp_native_sched_bytes(&raw const raw, self.children.as_mut_ptr()) }
    }

    /// Formats zeroed memory of [`Laid::bytes`].
    ///
    /// # Safety
    /// `at` points to that many zeroed, writable bytes, aligned to 64, that outlive the value; nothing
    /// but the core touches them while it lives.
    pub(crate) unsafe fn format(&mut self, at: NonNull<u8>) -> Result<SchedMemory, HomeError> {
        let sched = at.cast::<Sched>();
        let raw = self.raw();
        let (children, mut node) = (self.children.as_mut_ptr(), 0);
        // SAFETY: the caller promises size, zeroes and alignment; `children` was counted by `bytes`.
        let misfit = unsafe {
            ffi::fp_native_sched_format(sched.as_ptr(), &raw const raw, children, &raw mut node)
        };
        if misfit == 0 {
            return Ok(SchedMemory { sched });
        }
        let what = [
            "",
            "kind",
            "capacity",
            "number of buckets",
            "granularity",
            "policy when full or outside",
        ];
        let what = what.get(misfit as usize).unwrap_or(&"size");
        Err(HomeError::Plan(format!(
            "the queue of node {node} cannot have this {what}"
        )))
    }
}

fn bits(functions: &[Function]) -> u32 {
    functions
        .iter()
        .fold(0, |bits, function| bits | 1 << *function as u32)
}

fn wrong(index: usize, text: String) -> HomeError {
    HomeError::Plan(format!("node {} {text}", index + 1))
}

fn check_sizes(plan: &Plan) -> Result<(), HomeError> {
    let c = &plan.config;
    let sizes = [
        ("packets", c.packets),
        ("flows", c.flows),
        ("hosts", c.hosts),
        ("nodes", c.nodes),
        ("classes", c.classes),
        ("references", c.references),
    ];
    for (name, size) in sizes {
        if size > MAX_OF_A_KIND {
            let text = format!("{size} {name} are more than {MAX_OF_A_KIND}");
            return Err(HomeError::Plan(text));
        }
    }
    if c.limit_packets > c.packets {
        let text = format!(
            "a limit of {} packets exceeds the {} handles",
            c.limit_packets, c.packets
        );
        return Err(HomeError::Plan(text));
    }
    Ok(())
}

fn check_tables(plan: &Plan) -> Result<(), HomeError> {
    let nodes = plan.nodes.len() as u32;
    if nodes == 0 {
        return Err(HomeError::Plan("the tree has no node".into()));
    }
    if plan.class_table.is_empty() {
        return Err(HomeError::Plan(
            "the table of classes has no entry 0".into(),
        ));
    }
    let mut named = plan.class_table.iter().chain(&plan.splits);
    if let Some(node) = named.find(|node| **node > nodes) {
        return Err(HomeError::Plan(format!(
            "a table names node {node} of {nodes}"
        )));
    }
    Ok(())
}

fn level(plan: &Plan, node: &NodeConfig) -> usize {
    let parent = |node: &NodeConfig| {
        plan.nodes
            .get((node.parent as usize).wrapping_sub(1))
            .copied()
    };
    std::iter::successors(parent(node), parent)
        .take(LEVELS + 1)
        .count()
}

fn check_node(plan: &Plan, index: usize, policy: &Policy) -> Result<(), HomeError> {
    let node = &plan.nodes[index];
    let is_leaf = matches!(node.over, Over::Packets | Over::Flows);
    if (node.parent == 0) != (index == 0) || node.parent as usize > index {
        return Err(wrong(
            index,
            format!(
                "has parent {}: parents come before children, the root first",
                node.parent
            ),
        ));
    }
    if level(plan, node) >= LEVELS {
        return Err(wrong(index, format!("lies deeper than {LEVELS} levels")));
    }
    if !policy.over.contains(&node.over) {
        return Err(wrong(
            index,
            format!("ranks {:?}, which policy {} cannot", node.over, policy.name),
        ));
    }
    if node.split as usize > (plan.splits.len() + 1).saturating_sub(SPLIT) {
        return Err(wrong(
            index,
            "splits by entries that the table does not have".into(),
        ));
    }
    let parent = plan.nodes.get((node.parent as usize).wrapping_sub(1));
    if let Some(parent) = parent {
        if matches!(parent.over, Over::Packets | Over::Flows) {
            return Err(wrong(index, "is the child of a leaf".into()));
        }
        if parent.over == Over::References && node.over == Over::Children {
            return Err(wrong(
                index,
                "is over children below one over references".into(),
            ));
        }
        let below_references = parent.over == Over::References && is_leaf;
        if below_references
            && (node.queue_full != 0 || plan.config.overflow == super::Overflow::Fattest)
        {
            return Err(wrong(
                index,
                "would drop waiting packets below references".into(),
            ));
        }
        if below_references && node.over == Over::Flows {
            return Err(wrong(
                index,
                "is over flows below references; only packets are".into(),
            ));
        }
    }
    if plan.config.overflow == super::Overflow::Fattest && node.over == Over::Packets {
        return Err(wrong(
            index,
            "is over packets, where no fattest flow is known".into(),
        ));
    }
    Ok(())
}

impl SchedMemory {
    /// Counters since the start.
    pub fn stats(&self) -> SchedStats {
        let mut stats = SchedStats::default();
        // SAFETY: `sched` is formatted, `stats` a `struct fp_sched_stats`.
        unsafe { ffi::fp_native_sched_stats(self.sched.as_ptr(), &raw mut stats) };
        stats
    }

    /// Counters of a node; zeroes if there is none.
    pub fn node_stats(&self, node: u32) -> NodeStats {
        let mut stats = NodeStats::default();
        // SAFETY: `sched` is formatted, `stats` a `struct fp_node_stats`, and numbers are checked.
        unsafe { ffi::fp_native_node_stats(self.sched.as_ptr(), node, &raw mut stats) };
        stats
    }

    /// Looks for what contradicts itself. Walks everything.
    ///
    /// # Errors
    /// What is wrong first, in words.
    pub fn audit(&self) -> Result<(), String> {
        let mut place = 0;
        // SAFETY: `sched` is formatted.
        let fault = unsafe { ffi::fp_native_sched_audit(self.sched.as_ptr(), &raw mut place) };
        let words = match fault {
            0 => return Ok(()),
            1 => format!("{place} packets are there, which is not what is counted"),
            2 => format!("{place} bytes are there, which is not what is counted"),
            3 => format!("packet or flow {place} waits in no queue"),
            4 => format!("flow {place} does not hold what it counts"),
            5 => format!("node {place} has something to send and its parent does not know"),
            6 => format!("node {place} is in its parent's queue with nothing to send"),
            7 => format!("{place} references are queued, which is not what is taken"),
            _ => format!("of {place} packets that came, not all are sent, dropped or waiting"),
        };
        Err(words)
    }

    /// Who runs an author's policy: what `fp_native_custom` gets.
    pub(crate) fn set_custom(&mut self, custom: *mut ()) {
        // SAFETY: `sched` is formatted; the number is only handed back.
        unsafe { ffi::fp_native_sched_custom(self.sched.as_ptr(), custom as usize as u64) };
    }
}
