//! The native runtime: one scheduler in plain memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ffi::{self, Sched};
use super::{
    Account, Custom, Function, ImpairStats, Meta, NodeStats, OUTCOMES_PER_OP, Op, Outcome, Plan,
    Policy, SchedLayout, SchedMemory, SchedRuntime, SchedRuntimeError, SchedStats,
};
use crate::limit::LimitCpu;

/// Of `struct fp_sched`.
const ALIGN: usize = 64;
/// Capacity of outcomes of one call into the core.
pub(super) const CAPACITY: usize = 8 * OUTCOMES_PER_OP;

/// A tree of policies over queues, natively.
///
/// ```
/// use fairpath_core::sched::{SchedRuntime, Meta, NodeConfig, Op, OutcomeKind, Over, Plan, SchedConfig, Scheduler};
///
/// let fifo = NodeConfig { policy: 1, over: Over::Packets, queue: 2, queue_buckets: 1, ..NodeConfig::default() };
/// let config = SchedConfig { packets: 10, limit_packets: 10, ..SchedConfig::default() };
/// let plan = Plan { config, nodes: vec![fifo], class_table: vec![1], ..Plan::default() };
/// let mut scheduler = Scheduler::new(&plan).unwrap();
/// let mut outcomes = Vec::new();
/// let packet = Meta { bytes: 1500, ..Meta::default() };
/// scheduler.run(&[Op::enqueue(5, 1, packet), Op::dequeue(9, 1)], &mut outcomes).unwrap();
/// assert_eq!((outcomes[1].kind, outcomes[1].handle, outcomes[1].at), (OutcomeKind::Sent, 1, 4));
/// ```
pub struct Scheduler {
    pub(super) memory: SchedMemory,
    allocation: Arc<Allocation>,
    pub(super) capacity: Vec<Outcome>,
    /// By number, from [`Policy::CUSTOM`] on.
    pub(super) customs: Box<Customs>,
    /// Nodes that may have shared limits: all, or none.
    pub(super) limited: u32,
    /// Whose pools it uses.
    pub(super) limits: Option<LimitCpu>,
}

type Customs = Vec<Box<dyn Custom>>;

// SAFETY: the scheduler owns its memory, and nothing else refers to it.
unsafe impl Send for Scheduler {}

/// The memory of a scheduler.
struct Allocation {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain bytes, freed by the last owner.
unsafe impl Send for Allocation {}
// SAFETY: nothing is read or written through it.
unsafe impl Sync for Allocation {}

impl std::ops::Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated by build() with this layout, and not used any more.
        unsafe { dealloc(self.at.as_ptr(), self.layout) };
    }
}

/// The counters of a scheduler that another thread uses, and the costs of its nodes. Each number was valid at some time during
/// the reading, so together they are approximately consistent.
pub struct SchedReader {
    memory: SchedMemory,
    _allocation: Arc<Allocation>,
}

impl SchedReader {
    /// Sums since the start.
    pub fn stats(&self) -> SchedStats {
        self.memory.stats()
    }

    /// See [`SchedMemory::node_stats`].
    pub fn node_stats(&self, node: u32) -> NodeStats {
        self.memory.node_stats(node)
    }

    /// See [`SchedMemory::account`].
    pub fn account(&self, node: u32) -> Account {
        self.memory.account(node)
    }

    /// See [`SchedMemory::impair_stats`].
    pub fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.memory.impair_stats(impairment)
    }

    /// See [`SchedMemory::set_cost`].
    pub fn set_cost(&self, node: u32, cost: u32) {
        self.memory.set_cost(node, cost);
    }

    /// See [`SchedMemory::waiting`].
    pub fn waiting(&self, node: u32) -> u32 {
        self.memory.waiting(node)
    }
}

impl fmt::Debug for SchedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedReader").finish_non_exhaustive()
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Builds a plan of shipped policies. O(its memory).
    ///
    /// # Errors
    /// [`SchedRuntimeError::Plan`]: an invalid plan, or too large for this machine.
    pub fn new(plan: &Plan) -> Result<Scheduler, SchedRuntimeError> {
        Scheduler::build(plan, &[], Vec::new())
    }

    /// Builds a plan whose policy [`Policy::CUSTOM`] is `policy`, run by `custom`.
    ///
    /// # Errors
    /// [`SchedRuntimeError::Plan`]: an invalid plan, or too large for this machine.
    pub fn with_custom(
        plan: &Plan,
        policy: &Policy,
        custom: Box<dyn Custom>,
    ) -> Result<Scheduler, SchedRuntimeError> {
        Scheduler::build(plan, std::slice::from_ref(policy), vec![custom])
    }

    /// The same with several custom policies, at most [`Policy::CUSTOMS`], numbered in this order.
    ///
    /// # Errors
    /// As [`Scheduler::with_custom`].
    pub fn with_customs(
        plan: &Plan,
        customs: Vec<(Policy, Box<dyn Custom>)>,
    ) -> Result<Scheduler, SchedRuntimeError> {
        let (policies, customs): (Vec<_>, Vec<_>) = customs.into_iter().unzip();
        Scheduler::build(plan, &policies, customs)
    }

    fn build(
        plan: &Plan,
        policies: &[Policy],
        customs: Customs,
    ) -> Result<Scheduler, SchedRuntimeError> {
        let mut built = SchedLayout::new(plan, policies)?;
        let bytes = built.bytes() as usize;
        let refused = || {
            SchedRuntimeError::Plan(format!(
                "this machine does not provide {bytes} bytes of memory; use fewer packets or flows, \
                 or queues of lower capacity"
            ))
        };
        let layout = Layout::from_size_align(bytes + ALIGN, size_of::<usize>());
        let layout = layout.map_err(|_| refused())?;
        // SAFETY: the size is not zero: a header always exists.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        // SAFETY: less than ALIGN further, where at least `bytes` bytes follow.
        let at = unsafe { allocated.add(allocated.align_offset(ALIGN)) };
        let allocation = Arc::new(Allocation {
            at: allocated,
            layout,
        });
        // SAFETY: freshly allocated, zeroed, aligned, and freed after its last use.
        let mut memory = unsafe { built.format(at) }?;
        let mut customs = Box::new(customs);
        memory.set_custom((&raw mut *customs).cast());
        Ok(Scheduler {
            memory,
            allocation,
            capacity: vec![Outcome::default(); CAPACITY],
            customs,
            limited: if plan.config.limited == 0 {
                0
            } else {
                plan.nodes.len() as u32
            },
            limits: None,
        })
    }

    /// A reader of its counters, for another thread.
    pub fn reader(&self) -> SchedReader {
        let sched = self.memory.sched;
        SchedReader {
            memory: SchedMemory { sched },
            _allocation: Arc::clone(&self.allocation),
        }
    }

    /// Runs operations while outcomes fit. Returns how many ran, and the number of outcomes.
    fn step(&mut self, ops: &[Op]) -> (usize, usize) {
        let mut reported = 0;
        let count = u32::try_from(ops.len()).unwrap_or(u32::MAX);
        let sched: *mut Sched = self.memory.sched.as_ptr();
        let capacity = self.capacity.as_mut_ptr();
        // SAFETY: `sched` is formatted; `ops` has `count` operations, `capacity` that many entries.
        let ran = unsafe {
            ffi::fp_native_sched_run(
                sched,
                ops.as_ptr(),
                count,
                capacity,
                CAPACITY as u32,
                &raw mut reported,
            )
        };
        (ran as usize, reported as usize)
    }

    /// See [`SchedMemory::account`].
    pub fn account(&self, node: u32) -> Account {
        self.memory.account(node)
    }

    /// See [`SchedMemory::takes_longer`].
    pub fn takes_longer(&self, meta: &Meta, ns: u64) -> bool {
        self.memory.takes_longer(meta, ns)
    }

    /// Makes the kernel provide all of its memory now, instead of page by page as packets come. For
    /// a scheduler that will adopt the packets of another.
    pub fn commit(&mut self) {
        const PAGE: usize = 4096;
        for page in self.bytes_mut().chunks_mut(PAGE) {
            let first: *mut u8 = &raw mut page[0];
            // SAFETY: a byte of the slice; volatile, so that it is read and written although
            // nothing changes.
            let byte = unsafe { first.read_volatile() };
            // SAFETY: as above.
            unsafe { first.write_volatile(byte) };
        }
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> usize {
        self.allocation.layout.size()
    }

    /// All of its memory, for tests that corrupt it.
    #[doc(hidden)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.memory.sched.as_ptr().cast::<u8>();
        let offset = start.addr() - self.allocation.at.as_ptr().addr();
        // SAFETY: from the start of the scheduler to the end of its allocation.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes() - offset) }
    }
}

impl SchedRuntime for Scheduler {
    fn name(&self) -> &'static str {
        "native"
    }

    fn run(&mut self, ops: &[Op], outcomes: &mut Vec<Outcome>) -> Result<(), SchedRuntimeError> {
        let mut done = 0;
        while done < ops.len() {
            let (ran, reported) = self.step(&ops[done..]);
            let new = outcomes.len();
            outcomes.extend_from_slice(&self.capacity[..reported]);
            if done > 0 {
                outcomes[new..]
                    .iter_mut()
                    .for_each(|outcome| outcome.op += done as u32);
            }
            done += ran;
        }
        Ok(())
    }

    fn stats(&self) -> SchedStats {
        self.memory.stats()
    }

    fn node_stats(&self, node: u32) -> NodeStats {
        self.memory.node_stats(node)
    }

    fn impair_stats(&self, impairment: u32) -> ImpairStats {
        self.memory.impair_stats(impairment)
    }

    fn audit(&self) -> Result<(), String> {
        self.memory.audit()
    }
}

/// Called by the core for a custom policy.
///
/// # Safety
/// `customs` is the value from `Scheduler::build`; the others are as in `call.h`.
#[unsafe(no_mangle)]
unsafe extern "C" fn fp_native_custom(
    customs: u64,
    which: u32,
    packet: *const Meta,
    flow: *mut [u64; 8],
    class: *mut [u64; 16],
    global: *mut [u64; 8],
    call: *mut [u64; 16],
) -> u64 {
    let customs = customs as usize as *mut Customs;
    // SAFETY: set by build(), owned by the calling scheduler; null in a corrupted one.
    let customs = unsafe { customs.as_mut() };
    let Some(custom) = customs.and_then(|customs| customs.get_mut(which as usize / 4)) else {
        return 0;
    };
    let function = match which % 4 {
        0 => Function::RankEnqueue,
        1 => Function::RankDequeue,
        2 => Function::SendTime,
        _ => Function::OnDrop,
    };
    // SAFETY: the packet in the scheduler's memory.
    let packet = unsafe { &*packet };
    // SAFETY: eight words of state of a flow or child.
    let flow = unsafe { &mut *flow };
    // SAFETY: parameters and state of a node.
    let class = unsafe { &mut *class };
    // SAFETY: eight words of the policy's state.
    let global = unsafe { &mut *global };
    // SAFETY: `struct fp_call`, which is sixteen words long.
    let call = unsafe { &mut *call };
    custom.call(function, packet, flow, class, global, call)
}
