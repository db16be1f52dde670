//! Declarations of `native.c` and the layout of its arguments.

use super::{
    Account, Framing, ImpairConfig, ImpairStats, Meta, NodeConfig, NodeStats, Op, Outcome,
    SchedConfig, SchedStats,
};

/// `struct fp_sched`: the start of a scheduler's memory.
#[repr(C, align(64))]
pub(crate) struct Sched {
    _opaque: [u8; 0],
}

/// `struct fp_plan`.
#[repr(C)]
pub(crate) struct RawPlan {
    pub config: *const SchedConfig,
    pub nodes: *const NodeConfig,
    pub wants: *const u32,
    pub functions: *const u32,
    pub flow_bytes: *const u32,
    pub classes: *const u32,
    pub splits: *const u32,
    pub impairments: *const ImpairConfig,
    pub words: *const u64,
}

/// `struct fp_param`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawParam {
    pub name: [u8; 24],
    pub unit: [u8; 16],
    pub about: [u8; 104],
    pub min: u64,
    pub most: u64,
    pub standard: u64,
}

/// `struct fp_policy`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawPolicy {
    pub version: u32,
    pub over: u32,
    pub usual: u32,
    pub wants: u32,
    pub zero: u32,
    pub flow_bytes: u32,
    pub class_bytes: u32,
    pub global_bytes: u32,
    pub name: [u8; 24],
    pub about: [u8; 160],
    pub source: [u8; 160],
    pub queue: [u32; 4],
    pub params: [RawParam; super::PARAMS],
}

/// `struct fp_changes`, followed by its tables.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawChanges {
    pub nodes_at: u64,
    pub classes_at: u64,
    pub nodes: u32,
    pub classes: u32,
}

unsafe extern "C" {
    pub(crate) fn fp_native_move_begin(
        sched: *mut Sched,
        old: *mut Sched,
        changes: *mut RawChanges,
        now: u64,
        others: u32,
    ) -> i32;
    pub(crate) fn fp_native_move(
        sched: *mut Sched,
        old: *mut Sched,
        changes: *mut RawChanges,
        outcomes: *mut Outcome,
        most: u32,
        reported: *mut u32,
    ) -> i32;
    pub(crate) fn fp_native_clear(sched: *mut Sched) -> u32;
    pub(crate) fn fp_native_policy(number: u32) -> *const RawPolicy;
    pub(crate) fn fp_native_policy_functions(number: u32) -> u32;
    pub(crate) fn fp_native_sched_bytes(plan: *const RawPlan, children: *mut u32) -> u64;
    pub(crate) fn fp_native_sched_format(
        sched: *mut Sched,
        plan: *const RawPlan,
        children: *mut u32,
        node: *mut u32,
    ) -> i32;
    pub(crate) fn fp_native_sched_custom(sched: *mut Sched, custom: u64);
    pub(crate) fn fp_native_sched_limits(sched: *mut Sched, limits: *mut u8, cpu: u32);
    pub(crate) fn fp_native_sched_limit_node(sched: *mut Sched, node: u32, ceil: u32, floor: u32);
    pub(crate) fn fp_native_sched_waiting(sched: *mut Sched, node: u32) -> u32;
    pub(crate) fn fp_native_sched_cost(sched: *mut Sched, node: u32, cost: u32);
    pub(crate) fn fp_native_sched_run(
        sched: *mut Sched,
        ops: *const Op,
        count: u32,
        outcomes: *mut Outcome,
        most: u32,
        reported: *mut u32,
    ) -> u32;
    pub(crate) fn fp_native_sched_begin(
        sched: *mut Sched,
        ops: *const Op,
        count: u32,
        outcomes: *mut Outcome,
        most: u32,
    );
    pub(crate) fn fp_native_sched_progress(sched: *mut Sched, reported: *mut u32) -> u32;
    pub(crate) fn fp_native_sched_stats(sched: *const Sched, stats: *mut SchedStats);
    pub(crate) fn fp_native_account(sched: *mut Sched, node: u32, account: *mut Account);
    pub(crate) fn fp_native_impair_stats(sched: *mut Sched, impair: u32, stats: *mut ImpairStats);
    pub(crate) fn fp_native_node_stats(sched: *mut Sched, node: u32, stats: *mut NodeStats);
    pub(crate) fn fp_native_takes_longer(sched: *mut Sched, meta: *const Meta, ns: u64) -> i32;
    pub(crate) safe fn fp_native_link_bytes(framing: &Framing, bytes: u32, segments: u32) -> u32;
    pub(crate) safe fn fp_native_mix64(x: u64) -> u64;
    pub(crate) fn fp_native_sched_audit(sched: *mut Sched, place: *mut u64) -> u32;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::sched::memory::HEADER;
    use crate::sched::{Drop, Meta, Policy};

    const LENGTH: usize = 49;

    unsafe extern "C" {
        static fp_native_sched_layout: [u32; LENGTH];
        static fp_native_sched_layout_len: u32;
    }

    #[test]
    fn layout_matches_the_c_compiler() {
        // SAFETY: constants of the native library.
        let c = unsafe { fp_native_sched_layout };
        // SAFETY: as above.
        assert_eq!(unsafe { fp_native_sched_layout_len } as usize, LENGTH);
        let rust = [
            size_of::<Meta>(),
            size_of::<Op>(),
            size_of::<Outcome>(),
            size_of::<NodeConfig>(),
            size_of::<SchedConfig>(),
            size_of::<SchedStats>(),
            size_of::<NodeStats>(),
            size_of::<RawPolicy>(),
            size_of::<RawParam>(),
            size_of::<RawPlan>(),
            size_of::<[u64; 16]>(),
            size_of::<Account>(),
            offset_of!(Meta, source),
            offset_of!(Meta, dscp),
            offset_of!(Op, node),
            offset_of!(Op, meta),
            offset_of!(Outcome, reason),
            offset_of!(NodeConfig, cost),
            offset_of!(NodeConfig, floor),
            offset_of!(NodeConfig, params),
            offset_of!(SchedConfig, overflow),
            offset_of!(SchedConfig, horizon),
            offset_of!(SchedConfig, max_sojourn),
            offset_of!(SchedStats, put_off),
            offset_of!(NodeStats, bytes),
            offset_of!(RawPolicy, queue),
            offset_of!(Account, sojourn),
            offset_of!(RawParam, standard),
            Drop::AckFiltered as usize,
            offset_of!(SchedConfig, ack_filter),
            offset_of!(Meta, ack),
            Policy::CUSTOM as usize,
            Policy::CUSTOMS,
            size_of::<RawChanges>(),
            offset_of!(RawChanges, nodes),
            size_of::<ImpairConfig>(),
            size_of::<ImpairStats>(),
            offset_of!(ImpairConfig, delay),
            offset_of!(ImpairConfig, delays_period),
            offset_of!(ImpairConfig, release),
            offset_of!(ImpairConfig, chances_period),
            offset_of!(Outcome, bit),
            offset_of!(NodeConfig, impair),
            offset_of!(SchedConfig, framing),
            offset_of!(ImpairConfig, framing),
            size_of::<Framing>(),
            offset_of!(Framing, cell_bytes),
            HEADER[0] as usize,
            HEADER[1] as usize,
        ];
        assert_eq!(c.map(|number| number as usize), rust);
    }
}
