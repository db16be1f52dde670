//! Hands the waiting packets of one scheduler over to another, so that a new plan becomes active
//! without loss.
//!
//! `bpf/core/sched/move.h` moves the packets, natively and in the kernel.

use super::ffi::{self, RawChanges};
use super::scheduler::{CAPACITY, Scheduler};
use super::{Outcome, Policy};

/// The translation of node and class numbers.
///
/// If a new node existed before, its sums continue, and so do its debts (its clocks and the states
/// of its flows) if its policy charges at dequeue. With empty tables, all nodes are new, and
/// classes keep their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// For each node of the new plan, the root first: its old number; 0 none.
    pub nodes: Vec<u32>,
    /// For each class number of the old plan, from 0: its new number; 0 none. It selects the leaf
    /// of waiting packets. Numbers above the table are unchanged.
    pub classes: Vec<u32>,
}

impl Changes {
    /// None: the new plan has the same nodes and classes, with other settings.
    pub fn none(nodes: usize) -> Changes {
        Changes {
            nodes: (1..=nodes as u32).collect(),
            classes: Vec::new(),
        }
    }

    /// In the form of the core: `struct fp_changes` and both tables, in words of 8 bytes.
    pub fn to_words(&self) -> Vec<u64> {
        let header = size_of::<RawChanges>() as u64;
        let counts = [self.nodes.len() as u32, self.classes.len() as u32];
        let classes_at = header + u64::from(counts[0]) * 4;
        let numbers = counts.iter().chain(&self.nodes).chain(&self.classes);
        let numbers: Vec<u32> = numbers.copied().collect();
        let word =
            |pair: &[u32]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
        let mut words = vec![header, classes_at];
        words.extend(numbers.chunks(2).map(word));
        words
    }
}

/// Nothing was handed over or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverError {
    /// Sums and packets would mix.
    #[error("hand over packets to a scheduler: it was used already; build a new one")]
    NotFresh,
    /// Packets keep their handles.
    #[error(
        "hand over packets to a scheduler: the old one may hold more packets than the new one has handles; set `packets` of the new plan to at least that of the old one"
    )]
    FewerHandles,
}

impl Scheduler {
    /// Adopts the waiting packets of `from`. They keep handle, metadata and waiting time, and
    /// are ranked in order of arrival. Packets that the new plan refuses are dropped for its
    /// reasons, and reported in `outcomes`; other packets are not reported. Sums continue. The
    /// state of a custom policy continues only if both have the same one
    /// ([`Custom::identity`](super::Custom::identity)).
    ///
    /// Afterwards `from` is empty and refuses all packets. Takes about 200 ns per node and 1 to 2
    /// us per packet, after [`Scheduler::commit`].
    ///
    /// ```
    /// # use fairpath_core::sched::{Changes, SchedRuntime, Meta, NodeConfig, Op, OutcomeKind, Over, Plan, SchedConfig, Scheduler};
    /// # let fifo = NodeConfig { policy: 1, over: Over::Packets, queue: 2, queue_buckets: 1, ..NodeConfig::default() };
    /// # let config = SchedConfig { packets: 10, limit_packets: 10, ..SchedConfig::default() };
    /// # let plan = Plan { config, nodes: vec![fifo], class_table: vec![1], ..Plan::default() };
    /// # let new_plan = plan.clone();
    /// let mut old = Scheduler::new(&plan).unwrap();
    /// let mut outcomes = Vec::new();
    /// old.run(&[Op::enqueue(5, 7, Meta::default())], &mut outcomes).unwrap();
    /// outcomes.clear();
    /// let mut new = Scheduler::new(&new_plan).unwrap();
    /// new.adopt(&mut old, &Changes::none(1), 6, &mut outcomes).unwrap();
    /// new.run(&[Op::dequeue(9, 1)], &mut outcomes).unwrap();
    /// assert_eq!((outcomes[0].kind, outcomes[0].handle, outcomes[0].at), (OutcomeKind::Sent, 7, 4));
    /// ```
    ///
    /// # Errors
    /// [`HandoverError`]; then both are as they were.
    pub fn adopt(
        &mut self,
        from: &mut Scheduler,
        changes: &Changes,
        now: u64,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), HandoverError> {
        let mut words = changes.to_words();
        let changes: *mut RawChanges = words.as_mut_ptr().cast();
        let (new, old) = (self.memory.sched.as_ptr(), from.memory.sched.as_ptr());
        let identity =
            |one: &Scheduler, at: usize| one.customs.get(at).map(|custom| custom.identity());
        let others = (0..Policy::CUSTOMS)
            .filter(|at| identity(self, *at) != identity(from, *at))
            .fold(0, |bits, at| bits | 1 << at);
        // SAFETY: both are formatted and different; `words` holds the tables of its header.
        match unsafe { ffi::fp_native_move_begin(new, old, changes, now, others) } {
            0 => {}
            1 => return Err(HandoverError::NotFresh),
            _ => return Err(HandoverError::FewerHandles),
        }
        loop {
            let mut reported = 0;
            let capacity = self.capacity.as_mut_ptr();
            // SAFETY: as above; `capacity` has CAPACITY entries.
            let left = unsafe {
                ffi::fp_native_move(
                    new,
                    old,
                    changes,
                    capacity,
                    CAPACITY as u32,
                    &raw mut reported,
                )
            };
            outcomes.extend_from_slice(&self.capacity[..reported as usize]);
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Empties the scheduler: all handles return to the back end without outcomes. Each packet is
    /// counted as [`Drop::Removed`](super::Drop::Removed). Returns how many waited. For a back end
    /// whose link went down.
    pub fn clear(&mut self) -> u32 {
        // SAFETY: `sched` is formatted.
        unsafe { ffi::fp_native_clear(self.memory.sched.as_ptr()) }
    }
}
