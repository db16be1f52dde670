//! The memory of a scheduler: formatted, read and checked from user space.

use std::ptr::NonNull;

use super::ffi::{self, RawPlan, Sched};
use super::{
    Account, Function, ImpairStats, LEVELS, Meta, NodeConfig, NodeLimits, NodeStats,
    OUTCOMES_PER_OP, Op, Outcome, OutcomeKind, Over, Plan, Policy, SPLIT, SchedRuntimeError,
    SchedStats, policies,
};
use crate::limit::Limits;

/// Maximum of handles, flows, nodes and references of one scheduler.
pub const MAX_OF_A_KIND: u32 = 1 << 24;

/// Capacity of outcomes of a test run.
const OUTCOMES_OF_A_RUN: usize = 8 * OUTCOMES_PER_OP;

/// An outcome in memory that another program may write.
#[repr(C)]
#[derive(Clone, Copy)]
struct Raw {
    rank: u64,
    at: u64,
    op: u32,
    handle: u32,
    node: u32,
    kind: u8,
    reason: u8,
    flags: u8,
    zero: u8,
    bit: u32,
    zero2: u32,
}

impl Raw {
    fn checked(self) -> Outcome {
        let kind = match self.kind {
            1 => OutcomeKind::Queued,
            2 => OutcomeKind::Sent,
            3 => OutcomeKind::Dropped,
            4 => OutcomeKind::Nothing,
            5 => OutcomeKind::Done,
            _ => OutcomeKind::Failed,
        };
        let Raw {
            rank,
            at,
            op,
            handle,
            node,
            reason,
            flags,
            zero,
            bit,
            zero2,
            ..
        } = self;
        Outcome {
            rank,
            at,
            op,
            handle,
            node,
            kind,
            reason,
            flags,
            zero,
            bit,
            zero2,
        }
    }
}

/// A formatted scheduler's memory; does not own it.
#[derive(Debug)]
pub struct SchedMemory {
    pub(crate) sched: NonNull<Sched>,
}

// SAFETY: the memory is plain bytes that one caller at a time uses.
unsafe impl Send for SchedMemory {}

/// A valid plan in the form of the core: its memory size and format.
#[derive(Debug)]
pub struct SchedLayout {
    plan: Plan,
    wants: Vec<u32>,
    functions: Vec<u32>,
    flow_bytes: Vec<u32>,
    children: Vec<u32>,
}

impl SchedLayout {
    /// Checks the plan, which may name these custom policies.
    ///
    /// # Errors
    /// [`SchedRuntimeError::Plan`] names the node and the problem.
    pub fn new(plan: &Plan, customs: &[Policy]) -> Result<SchedLayout, SchedRuntimeError> {
        let mut plan = plan.clone();
        plan.config.nodes = plan.nodes.len() as u32;
        plan.config.classes = plan.class_table.len() as u32;
        plan.config.splits = plan.splits.len() as u32;
        plan.config.impairments = plan.impairments.len() as u32;
        plan.config.words = plan.words.len() as u32;
        plan.config.flows = plan.config.flows.next_multiple_of(8).max(8);
        plan.config.hosts = plan.config.hosts.next_multiple_of(8);
        plan.config.packets = plan.config.packets.max(1);
        check_sizes(&plan)?;
        check_tables(&plan)?;
        let mut built = SchedLayout {
            wants: Vec::with_capacity(plan.nodes.len()),
            functions: Vec::with_capacity(plan.nodes.len()),
            flow_bytes: Vec::with_capacity(plan.nodes.len()),
            children: vec![0; plan.nodes.len() + 1],
            plan,
        };
        for (index, node) in built.plan.nodes.iter().enumerate() {
            let mut known = policies().iter().chain(customs);
            let Some(policy) = known.find(|policy| policy.id == node.policy) else {
                return Err(wrong(
                    index,
                    format!("has policy {}, which does not exist", node.policy),
                ));
            };
            check_node(&built.plan, index, policy)?;
            built.wants.push(policy.wants);
            built.functions.push(bits(&policy.functions));
            built.flow_bytes.push(policy.state_bytes[0]);
        }
        check_references(&built)?;
        Ok(built)
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
            impairments: self.plan.impairments.as_ptr(),
            words: self.plan.words.as_ptr(),
        }
    }

    /// Bytes that the scheduler needs.
    pub fn bytes(&mut self) -> u64 {
        self.children.fill(0);
        let raw = self.raw();
        // SAFETY: the plan's tables have the lengths in its configuration; `children` has one entry
        // for each node and one more.
        unsafe { ffi::fp_native_sched_bytes(&raw const raw, self.children.as_mut_ptr()) }
    }

    /// Formats zeroed memory of [`SchedLayout::bytes`].
    ///
    /// # Errors
    /// [`SchedRuntimeError::Plan`]: invalid queue.
    ///
    /// # Safety
    /// `at` points to that many zeroed, writable bytes, aligned to 64, that outlive the value; only
    /// the core uses them while it lives.
    pub unsafe fn format(&mut self, at: NonNull<u8>) -> Result<SchedMemory, SchedRuntimeError> {
        let sched = at.cast::<Sched>();
        let raw = self.raw();
        let (children, mut node) = (self.children.as_mut_ptr(), 0);
        // SAFETY: the caller ensures size, zeroes and alignment; `children` was counted by `bytes`.
        let invalid_field = unsafe {
            ffi::fp_native_sched_format(sched.as_ptr(), &raw const raw, children, &raw mut node)
        };
        if invalid_field == 0 {
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
        let what = what.get(invalid_field as usize).unwrap_or(&"size");
        Err(SchedRuntimeError::Plan(format!(
            "the queue of node {node} cannot have this {what}"
        )))
    }
}

fn bits(functions: &[Function]) -> u32 {
    functions
        .iter()
        .fold(0, |bits, function| bits | 1 << *function as u32)
}

fn wrong(index: usize, text: String) -> SchedRuntimeError {
    SchedRuntimeError::Plan(format!("node {} {text}", index + 1))
}

fn check_sizes(plan: &Plan) -> Result<(), SchedRuntimeError> {
    let c = &plan.config;
    let sizes = [
        ("packets", c.packets),
        ("flows", c.flows),
        ("hosts", c.hosts),
        ("nodes", c.nodes),
        ("classes", c.classes),
        ("references", c.references),
        ("impairments", c.impairments),
        ("words of impairments", c.words),
    ];
    for (name, size) in sizes {
        if size > MAX_OF_A_KIND {
            let text = format!("{size} {name} are more than {MAX_OF_A_KIND}");
            return Err(SchedRuntimeError::Plan(text));
        }
    }
    if c.limit_packets > c.packets {
        let text = format!(
            "a limit of {} packets exceeds the {} handles",
            c.limit_packets, c.packets
        );
        return Err(SchedRuntimeError::Plan(text));
    }
    Ok(())
}

fn check_tables(plan: &Plan) -> Result<(), SchedRuntimeError> {
    let nodes = plan.nodes.len() as u32;
    if nodes == 0 {
        return Err(SchedRuntimeError::Plan("the tree has no node".into()));
    }
    if plan.config.service as usize > plan.impairments.len() {
        return Err(SchedRuntimeError::Plan(format!(
            "the root uses the rate trace of impairment {} of {}",
            plan.config.service,
            plan.impairments.len()
        )));
    }
    if plan.class_table.is_empty() {
        return Err(SchedRuntimeError::Plan(
            "the table of classes has no entry 0".into(),
        ));
    }
    let mut named = plan.class_table.iter().chain(&plan.splits);
    if let Some(node) = named.find(|node| **node > nodes) {
        return Err(SchedRuntimeError::Plan(format!(
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

/// `FP_AIFO`, whose admission refuses entries before it is full.
const AIFO: u32 = 6;

/// True if the queue of the node may refuse a rank.
fn refuses_ranks(node: &NodeConfig) -> bool {
    node.queue == AIFO || node.queue_below | node.queue_beyond != 0
}

impl NodeConfig {
    /// True if children or flows with packets may end in no queue, or wait without limit. Refusing
    /// a child or a flow refuses no packet, and neither does pushing one out. A flow that cannot
    /// move to its rank stays the first. Such a node is invalid.
    pub fn may_strand(&self, policy: &Policy) -> bool {
        let held = policy.functions.contains(&Function::SendTime);
        let pushes_out = self.queue_full != 0;
        let few = self.queue_capacity != 0;
        match self.over {
            Over::Children => few || refuses_ranks(self),
            Over::Flows => few && (held || pushes_out) || refuses_ranks(self),
            Over::Packets | Over::References => false,
        }
    }
}

fn check_node(plan: &Plan, index: usize, policy: &Policy) -> Result<(), SchedRuntimeError> {
    let node = &plan.nodes[index];
    let is_leaf = matches!(node.over, Over::Packets | Over::Flows);
    if (node.parent == 0) != (index == 0) || node.parent as usize > index {
        return Err(wrong(
            index,
            format!(
                "has parent {}: parents must precede their children, the root first",
                node.parent
            ),
        ));
    }
    if level(plan, node) >= LEVELS {
        return Err(wrong(index, format!("is deeper than {LEVELS} levels")));
    }
    if !policy.over.contains(&node.over) {
        return Err(wrong(
            index,
            format!("ranks {:?}, which policy {} cannot", node.over, policy.name),
        ));
    }
    if node.may_strand(policy) {
        let text = format!(
            "is over {:?} and its queue may refuse some of them, whose packets would never leave; \
             omit its capacity, and clamp ranks outside its window",
            node.over
        );
        return Err(wrong(index, text));
    }
    let both = Policy::WANTS_DUE | Policy::WANTS_ELIGIBLE;
    if policy.wants & both == both {
        let text = format!(
            "has policy {}, which sets WANTS_DUE and WANTS_ELIGIBLE; a child can wait for only one of them",
            policy.name
        );
        return Err(wrong(index, text));
    }
    if node.split as usize > (plan.splits.len() + 1).saturating_sub(SPLIT) {
        return Err(wrong(
            index,
            "splits by entries that are not in the table".into(),
        ));
    }
    if node.impair as usize > plan.impairments.len() || (node.impair != 0 && !is_leaf) {
        let text = format!(
            "has impairment {} of {}, which must exist and belong to a leaf",
            node.impair,
            plan.impairments.len()
        );
        return Err(wrong(index, text));
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
            "is over packets, where no flow is the fattest".into(),
        ));
    }
    Ok(())
}

/// A reference from the shaper cannot be refused: its packet is queued below.
fn check_references(built: &SchedLayout) -> Result<(), SchedRuntimeError> {
    let nodes = built.plan.nodes.iter().zip(&built.functions).enumerate();
    let mut over = nodes.filter(|(_, (node, _))| node.over == Over::References);
    let holds = over
        .clone()
        .any(|(_, (_, bits))| bits >> Function::SendTime as u32 & 1 == 1);
    let refuses =
        |node: &NodeConfig| refuses_ranks(node) || node.queue_capacity | node.queue_full != 0;
    match over.find(|(_, (node, _))| refuses(node)) {
        Some((index, _)) if holds => {
            let text = "is over references and may refuse some, in a tree that delays references";
            Err(wrong(index, text.into()))
        }
        _ => Ok(()),
    }
}

/// `FP_SCHED_MAGIC`, `FP_SCHED_VERSION`: the first words of a scheduler.
pub(super) const HEADER: [u32; 2] = [0x6463_7366, 7];

impl SchedMemory {
    /// A scheduler of this version that another process formatted; `None` if there is none.
    ///
    /// # Safety
    /// `at` points to readable bytes of a scheduler's header, aligned to 64. If it is a scheduler,
    /// it is complete and outlives the value.
    pub unsafe fn found(at: NonNull<u8>) -> Option<SchedMemory> {
        // SAFETY: the caller ensures the bytes.
        let header = unsafe { at.cast::<[u32; 2]>().read_volatile() };
        (header == HEADER).then(|| SchedMemory { sched: at.cast() })
    }

    /// Counters since the start.
    pub fn stats(&self) -> SchedStats {
        let mut stats = SchedStats::default();
        // SAFETY: `sched` is formatted, `stats` a `struct fp_sched_stats`.
        unsafe { ffi::fp_native_sched_stats(self.sched.as_ptr(), &raw mut stats) };
        stats
    }

    /// Counters of a node; zeros if there is none.
    pub fn node_stats(&self, node: u32) -> NodeStats {
        let mut stats = NodeStats::default();
        // SAFETY: `sched` is formatted, `stats` a `struct fp_node_stats`, and numbers are checked.
        unsafe { ffi::fp_native_node_stats(self.sched.as_ptr(), node, &raw mut stats) };
        stats
    }

    /// Entries in the queue of a node: packets, flows or children that may leave; 0 if there is no such node.
    pub fn waiting(&self, node: u32) -> u32 {
        // SAFETY: `sched` is formatted, and numbers are checked.
        unsafe { ffi::fp_native_sched_waiting(self.sched.as_ptr(), node) }
    }

    /// Sets the cost of a byte of a node, as [`Setting::Cost`](super::Setting::Cost) does, while another thread may use the
    /// scheduler. Nothing happens if there is no such node or the cost is 0.
    pub fn set_cost(&self, node: u32, cost: u32) {
        // SAFETY: `sched` is formatted, and numbers are checked. It is one aligned word, which the core reads once.
        unsafe { ffi::fp_native_sched_cost(self.sched.as_ptr(), node, cost) };
    }

    /// Counts of all packets of a leaf; 0 for packets without a leaf. Zeros if the plan requests no
    /// accounts.
    pub fn account(&self, node: u32) -> Account {
        let mut account = Account::default();
        // SAFETY: `sched` is formatted, `account` a `struct fp_account`, and numbers are checked.
        unsafe { ffi::fp_native_account(self.sched.as_ptr(), node, &raw mut account) };
        account
    }

    /// True if a packet takes longer than `ns` at the lowest ceiling of its leaf and the nodes above.
    pub fn takes_longer(&self, meta: &Meta, ns: u64) -> bool {
        // SAFETY: `sched` is formatted, `meta` a `struct fp_meta`, and numbers are checked.
        unsafe { ffi::fp_native_takes_longer(self.sched.as_ptr(), meta, ns) != 0 }
    }

    /// Counters of an impairment; zeros if there is none.
    pub fn impair_stats(&self, impairment: u32) -> ImpairStats {
        let mut stats = ImpairStats::default();
        // SAFETY: `sched` is formatted, `stats` a `struct fp_impair_stats`, and numbers are checked.
        unsafe {
            ffi::fp_native_impair_stats(self.sched.as_ptr(), impairment, &raw mut stats);
        }
        stats
    }

    /// Checks the memory for contradictions. Walks through everything.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn audit(&self) -> Result<(), String> {
        let mut place = 0;
        // SAFETY: `sched` is formatted.
        let fault = unsafe { ffi::fp_native_sched_audit(self.sched.as_ptr(), &raw mut place) };
        let words = match fault {
            0 => return Ok(()),
            1 => format!("the number of packets, {place}, differs from the count"),
            2 => format!("the number of bytes, {place}, differs from the count"),
            3 => format!("packet or flow {place} is in no queue"),
            4 => format!("the packets of flow {place} differ from its count"),
            5 => format!("node {place} has packets to send and is not in its parent's queue"),
            6 => format!("node {place} is in its parent's queue without packets"),
            7 => {
                format!("the number of queued references, {place}, differs from the number in use")
            }
            9 => format!("node {place} is not queued where its due time belongs"),
            _ => format!("of {place} enqueued packets, not all are sent, dropped or waiting"),
        };
        Err(words)
    }

    /// Prepares a test run of `ops`, which are copied to `capacity`, followed by outcomes. Returns how
    /// many of them fit.
    ///
    /// # Safety
    /// `capacity` points to [`SchedMemory::capacity_bytes`] of `most_ops` writable bytes in the same
    /// mapping as the scheduler; nothing runs on it now.
    pub unsafe fn begin(&mut self, ops: &[Op], capacity: NonNull<u8>, most_ops: usize) -> usize {
        let count = ops.len().min(most_ops);
        let to = capacity.cast::<Op>();
        // SAFETY: `capacity` begins with `most_ops` operations, and `count` is not larger.
        unsafe { to.as_ptr().copy_from_nonoverlapping(ops.as_ptr(), count) };
        // SAFETY: the part of outcomes follows that of operations.
        let outcomes = unsafe { to.add(most_ops) }.cast::<Outcome>();
        let (sched, most) = (self.sched.as_ptr(), OUTCOMES_OF_A_RUN as u32);
        // SAFETY: both parts are in the scheduler's mapping, as documented.
        unsafe {
            ffi::fp_native_sched_begin(sched, to.as_ptr(), count as u32, outcomes.as_ptr(), most);
        }
        count
    }

    /// Returns the outcomes of the run so far, and how many operations are done.
    ///
    /// # Safety
    /// `capacity` and `most_ops` are those of [`SchedMemory::begin`]; nothing runs now.
    pub unsafe fn progress(
        &mut self,
        capacity: NonNull<u8>,
        most_ops: usize,
        outcomes: &mut Vec<Outcome>,
    ) -> usize {
        let mut reported = 0;
        // SAFETY: `sched` is formatted.
        let done = unsafe { ffi::fp_native_sched_progress(self.sched.as_ptr(), &raw mut reported) };
        // SAFETY: the part of outcomes follows that of operations.
        let from = unsafe { capacity.cast::<Op>().add(most_ops) }.cast::<Raw>();
        for index in 0..(reported as usize).min(OUTCOMES_OF_A_RUN) {
            // SAFETY: within the outcomes' part.
            let at = unsafe { from.add(index) };
            // SAFETY: as above; any bytes are integers.
            outcomes.push(unsafe { at.read() }.checked());
        }
        done as usize
    }

    /// Bytes that [`SchedMemory::begin`] needs for `most_ops` operations.
    pub fn capacity_bytes(most_ops: usize) -> usize {
        most_ops * size_of::<Op>() + OUTCOMES_OF_A_RUN * size_of::<Outcome>()
    }

    /// Its start, for tests that corrupt it.
    #[doc(hidden)]
    pub fn start(&self) -> *mut u8 {
        self.sched.as_ptr().cast()
    }

    /// Draws from limits in the same mapping, as CPU `cpu` of them, whose pools nothing else uses. `nodes`: the limits
    /// of each, the root first. The plan has [`SchedConfig::limited`](super::SchedConfig::limited).
    ///
    /// # Panics
    /// There is no such CPU.
    pub fn draw_from(&mut self, limits: &Limits, cpu: u32, nodes: &[NodeLimits]) {
        assert!(cpu < limits.cpus(), "limits have no CPU {cpu}");
        self.set_limits(limits.address(), cpu, nodes);
    }

    pub(crate) fn set_limits(&mut self, limits: NonNull<u8>, cpu: u32, nodes: &[NodeLimits]) {
        for (node, limits) in (1..).zip(nodes) {
            self.set_limits_of(node, *limits);
        }
        let sched = self.sched.as_ptr();
        // SAFETY: `sched` is formatted.
        unsafe { ffi::fp_native_sched_limits(sched, limits.as_ptr(), cpu) };
    }

    /// The limits of a node; the plan has a table of limits.
    pub(crate) fn set_limits_of(&mut self, node: u32, limits: NodeLimits) {
        let number = |limit: Option<u32>| limit.map_or(0, |limit| limit + 1);
        let (ceil, floor) = (number(limits.ceil), number(limits.floor));
        // SAFETY: `sched` is formatted with a table of limits, and numbers are checked.
        unsafe { ffi::fp_native_sched_limit_node(self.sched.as_ptr(), node, ceil, floor) };
    }

    /// Draws from no limits.
    pub(crate) fn clear_limits(&mut self) {
        // SAFETY: `sched` is formatted.
        unsafe { ffi::fp_native_sched_limits(self.sched.as_ptr(), std::ptr::null_mut(), 0) };
    }

    /// Sets the argument of `fp_native_custom`, which runs custom policies.
    pub(crate) fn set_custom(&mut self, custom: *mut ()) {
        // SAFETY: `sched` is formatted; the number is only passed back.
        unsafe { ffi::fp_native_sched_custom(self.sched.as_ptr(), custom as usize as u64) };
    }
}
