//! A scheduler takes over what waits in another: a new plan begins to hold and no packet is lost.
//!
//! The moving itself is `bpf/core/sched/move.h`, the same natively and in the kernel.

use super::Outcome;
use super::ffi::{self, RawChanges};
use super::scheduler::{ROOM, Scheduler};

/// What became of the numbers of nodes and classes.
///
/// Where a new node was there before, its sums go on, and so does what it owes (its clocks and its
/// flows' states) if its policy charges what leaves. Empty tables: all nodes are new, and classes
/// kept their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// For each node of the new plan, the root first: which node of the old one it was; 0 none.
    pub nodes: Vec<u32>,
    /// For each class number of the old plan, from 0: which number it has now; 0 none. Packets that
    /// wait are distinguished by it. Numbers beyond the table are kept.
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

    /// As the core reads it: `struct fp_changes` and both tables, in words of 8 bytes.
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

/// Nothing was taken over, and nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeOverError {
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
    /// Hands over what waits in `from`: packets keep handle, metadata and the time they waited, and
    /// are ranked in the order of their arrival. Those that the new plan has no place for are dropped
    /// for its reasons and told in `outcomes`; nothing else is told. Sums go on; what an author's
    /// policy kept does only where both have the same ([`Custom::identity`](super::Custom::identity)).
    ///
    /// `from` is spent then: it holds no packet, and refuses all. Some 200 ns a node and 1 to 2 us a
    /// packet where [`Scheduler::commit`] went before.
    ///
    /// ```
    /// # use fairpath_core::sched::{Changes, Home, Meta, NodeConfig, Op, OutcomeKind, Over, Plan, SchedConfig, Scheduler};
    /// # let fifo = NodeConfig { policy: 1, over: Over::Packets, queue: 2, queue_buckets: 1, ..NodeConfig::default() };
    /// # let config = SchedConfig { packets: 10, limit_packets: 10, ..SchedConfig::default() };
    /// # let plan = Plan { config, nodes: vec![fifo], class_table: vec![1], ..Plan::default() };
    /// # let new_plan = plan.clone();
    /// let mut old = Scheduler::new(&plan).unwrap();
    /// let mut outcomes = Vec::new();
    /// old.run(&[Op::enqueue(5, 7, Meta::default())], &mut outcomes).unwrap();
    /// outcomes.clear();
    /// let mut new = Scheduler::new(&new_plan).unwrap();
    /// new.take_over(&mut old, &Changes::none(1), 6, &mut outcomes).unwrap();
    /// new.run(&[Op::dequeue(9, 1)], &mut outcomes).unwrap();
    /// assert_eq!((outcomes[0].kind, outcomes[0].handle, outcomes[0].at), (OutcomeKind::Sent, 7, 4));
    /// ```
    ///
    /// # Errors
    /// [`TakeOverError`]; then both are as they were.
    pub fn take_over(
        &mut self,
        from: &mut Scheduler,
        changes: &Changes,
        now: u64,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), TakeOverError> {
        let mut words = changes.to_words();
        let changes: *mut RawChanges = words.as_mut_ptr().cast();
        let (new, old) = (self.memory.sched.as_ptr(), from.memory.sched.as_ptr());
        let identity = |one: &Scheduler| one.custom.as_ref().map(|custom| custom.identity());
        let other = i32::from(identity(self) != identity(from));
        // SAFETY: both are formatted and different; `words` holds the tables that its header tells.
        match unsafe { ffi::fp_native_move_begin(new, old, changes, now, other) } {
            0 => {}
            1 => return Err(TakeOverError::NotFresh),
            _ => return Err(TakeOverError::FewerHandles),
        }
        loop {
            let mut told = 0;
            let room = self.room.as_mut_ptr();
            // SAFETY: as above; `room` has ROOM places.
            let left =
                unsafe { ffi::fp_native_move(new, old, changes, room, ROOM as u32, &raw mut told) };
            outcomes.extend_from_slice(&self.room[..told as usize]);
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Empties the scheduler: all handles are the port's again, and nothing is told; each packet is
    /// counted as [`Drop::Removed`](super::Drop::Removed). Returns how many waited. For a port whose
    /// link went down.
    pub fn clear(&mut self) -> u32 {
        // SAFETY: `sched` is formatted.
        unsafe { ffi::fp_native_clear(self.memory.sched.as_ptr()) }
    }
}
