//! The content of a qdisc: a plan and the rules of its classes, in one half of the arena.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use fairpath_core::sched::{
    Changes, End, Op, Plan, Policy, SchedLayout, SchedMemory, SchedRuntimeError, policies,
};
use fairpath_core::{Config, Memory, Rules};

use super::QdiscError;
use super::port::Half;
use super::slots::{QdiscPolicy, placed};

/// Capacity of the monitor's tables next to a scheduler, in flows: none are tracked.
const FLOWS: u32 = 8;
/// The same for outstanding segments.
const CHUNKS: u32 = 16;

/// A plan with the rules of its classes.
#[derive(Clone, Debug)]
pub struct QdiscContent<'a> {
    /// The scheduler. Handles above the number at registration are not used.
    pub plan: &'a Plan,
    /// Its custom policies, in the order of their numbers: at most [`super::QDISC_POLICIES`].
    pub customs: &'a [QdiscPolicy<'a>],
    /// Slots are class numbers of the plan's table.
    pub rules: &'a Rules,
    /// The end of a packet whose class counts: the receiver, towards subscribers.
    pub end: End,
    /// Metadata for a process that finds the qdisc later: which class is which.
    pub note: &'a [u8],
}

impl QdiscContent<'_> {
    /// Lowers a limit to the number of handles. The number of delayed packets cannot be lowered.
    pub(super) fn check_handles(&self, capacity: u32) -> Result<(), QdiscError> {
        let needed = self.plan.config.packets;
        match needed > capacity && !self.plan.impairments.is_empty() {
            true => Err(QdiscError::TooFew { needed, capacity }),
            false => Ok(()),
        }
    }
}

/// The plan as a qdisc runs it: without marks (parameter `ecn` is 0), because a BPF qdisc may not
/// write to a packet.
pub fn without_marks(plan: &Plan, customs: &[Policy]) -> Plan {
    let mut plan = plan.clone();
    for node in &mut plan.nodes {
        let mut known = policies().iter().chain(customs);
        let policy = known.find(|policy| policy.id == node.policy);
        if let Some((index, _)) = policy.and_then(|policy| policy.param("ecn")) {
            node.params[index] = 0;
        }
    }
    plan
}

/// A BPF qdisc sends packets unchanged, and each once.
fn check_packets_stay(plan: &Plan) -> Result<(), SchedRuntimeError> {
    let mut numbered = (1..).zip(&plan.impairments);
    match numbered.find(|(_, config)| config.copy | config.corrupt != 0) {
        None => Ok(()),
        Some((number, _)) => Err(SchedRuntimeError::Plan(format!(
            "impairment {number} duplicates or corrupts packets, which a BPF qdisc cannot; omit duplicate and corrupt, or use AF_XDP or NFQUEUE"
        ))),
    }
}

/// A content during its construction in a half.
pub(super) struct ContentLayout {
    layout: SchedLayout,
    config: Config,
    changes: Vec<u64>,
    sched_bytes: u64,
    note_bytes: u64,
}

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(64)
}

impl ContentLayout {
    pub(super) fn new(
        content: &QdiscContent<'_>,
        slots: &[usize],
        packets: u32,
        changes: &Changes,
        seed: u64,
    ) -> Result<ContentLayout, SchedRuntimeError> {
        check_packets_stay(content.plan)?;
        let (plan, customs) = placed(content.plan, content.customs, slots);
        let mut plan = without_marks(&plan, &customs);
        plan.config.limit_packets = plan.config.limit_packets.min(packets);
        plan.config.packets = packets;
        let mut layout = SchedLayout::new(&plan, &customs)?;
        // Only look-ups: nothing is counted or tracked, so this is the minimum.
        let mut config = Config::default().with_flows(FLOWS).with_classes(0);
        (config.half_sets, config.chunks) = (1, CHUNKS);
        (config.cell_sets, config.pair_sets) = (1, 1);
        config.seed = seed;
        Ok(ContentLayout {
            sched_bytes: aligned(layout.bytes()),
            layout,
            config,
            changes: changes.to_words(),
            note_bytes: content.note.len() as u64,
        })
    }

    /// Scheduler, changes, metadata, then the memory of the rules, of which the last part is not
    /// committed.
    pub(super) fn bytes(&self) -> u64 {
        self.written() + 2 * self.config.image_bytes
    }

    fn changes_at(&self) -> u64 {
        self.sched_bytes
    }

    fn note_at(&self) -> u64 {
        aligned(self.changes_at() + self.changes.len() as u64 * 8)
    }

    fn rtt_at(&self) -> u64 {
        aligned(self.note_at() + self.note_bytes)
    }

    /// Bytes that must be zero before, and that the programs may write to.
    fn written(&self) -> u64 {
        self.rtt_at() + aligned(Memory::bytes(&self.config) - 2 * self.config.image_bytes)
    }

    /// Builds everything from `at`, which is at offset `at_offset` in the arena.
    ///
    /// # Safety
    /// [`ContentLayout::bytes`] bytes of a mapped arena from `at`, aligned to a page, that no program uses.
    /// `capacity` is the memory of the operation in the same arena.
    pub(super) unsafe fn format(
        mut self,
        content: &QdiscContent<'_>,
        half: &Half,
        base: NonNull<u8>,
        at_offset: u64,
        capacity: u64,
    ) -> Result<(SchedMemory, Memory), QdiscError> {
        // SAFETY: the caller ensures the half; all offsets are in it.
        let place = |offset: u64| unsafe { base.add((at_offset + offset) as usize) };
        // SAFETY: as above; this also commits the pages.
        unsafe { place(0).write_bytes(0, self.written() as usize) };
        // SAFETY: zeroed, aligned, and not shared until it is announced.
        let mut sched = unsafe { self.layout.format(place(0)) }?;
        // SAFETY: within the arena.
        let capacity = unsafe { base.add(capacity as usize) };
        // SAFETY: reserved for one operation.
        unsafe { sched.begin(&[] as &[Op], capacity, 1) };
        let changes: NonNull<u64> = place(self.changes_at()).cast();
        // SAFETY: reserved for them.
        unsafe {
            changes
                .as_ptr()
                .copy_from_nonoverlapping(self.changes.as_ptr(), self.changes.len())
        };
        let note = place(self.note_at()).as_ptr();
        // SAFETY: as above.
        unsafe { note.copy_from_nonoverlapping(content.note.as_ptr(), content.note.len()) };
        // SAFETY: zeroed except the images, which are written before use.
        let mut rules = unsafe { Memory::format(place(self.rtt_at()), &self.config) };
        rules.set_rules(content.rules, &[])?;
        half.sched_at.store(at_offset, Ordering::Relaxed);
        half.rtt_at
            .store(at_offset + self.rtt_at(), Ordering::Relaxed);
        half.changes_at
            .store(at_offset + self.changes_at(), Ordering::Relaxed);
        let note = (at_offset + self.note_at()) | self.note_bytes << 32;
        half.note.store(note, Ordering::Release);
        Ok((sched, rules))
    }
}

#[cfg(test)]
mod tests {
    use fairpath_core::sched::ImpairConfig;

    use super::*;

    #[test]
    fn delaying_plans_reserve_handles() {
        let mut plan = Plan::default();
        plan.config.packets = 1001;
        let check = |plan: &Plan, capacity| {
            let rules = Rules::default();
            let content = QdiscContent {
                plan,
                customs: &[],
                rules: &rules,
                end: End::Receiver,
                note: &[],
            };
            content.check_handles(capacity)
        };
        check(&plan, 1000).unwrap();
        plan.impairments = vec![ImpairConfig::default()];
        check(&plan, 1001).unwrap();
        let error = check(&plan, 1000).unwrap_err().to_string();
        assert!(
            error.contains("needs 1001 handles, but was registered with 1000"),
            "{error}"
        );
    }
}
