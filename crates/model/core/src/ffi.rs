//! Declarations of `native.c`, and the opaque memory of a monitor.

use crate::abi::{Config, Counts, Frame, Key, RawFlowEvent, Stats};
use crate::aggregate::ClassCounts;
use crate::hash::HashKeys;
use crate::sched::Meta;

/// `struct fp_rtt`: the start of a monitor's memory.
#[repr(C, align(64))]
pub(crate) struct Rtt {
    _opaque: [u8; 0],
}

/// `struct fp_pair`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawPair {
    pub addr: [u64; 2],
    pub bytes: [u64; 2],
    pub rtt_sum_ns: u64,
    pub slot: u32,
    pub kind_length: u32,
    pub samples: u32,
    pub max_rtt_us: u32,
    pub lost_packets: u32,
    pub zero: u32,
}

/// `struct fp_flow_view`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawFlow {
    pub key: Key,
    pub opened: u64,
    pub last: u64,
    pub min: [u64; 2],
    pub counts: [Counts; 2],
    pub slot: [u32; 2],
    pub p50: [u16; 2],
    pub closed: u32,
}

/// `struct fp_filter`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawFilter {
    pub addr: [u64; 2],
    pub mask: [u64; 2],
    pub port: u16,
    pub flags: u16,
    pub zero: u32,
}

unsafe extern "C" {
    pub(crate) fn fp_native_bytes(config: *const Config) -> u64;
    pub(crate) fn fp_native_seed(rtt: *const Rtt) -> u64;
    pub(crate) fn fp_native_format(rtt: *mut Rtt, config: *const Config);
    pub(crate) fn fp_native_frame(
        rtt: *mut Rtt,
        cpu: u32,
        frame: *const Frame,
        data: *const u8,
        bytes: u32,
    ) -> i32;
    pub(crate) fn fp_native_event(
        rtt: *mut Rtt,
        cpu: u32,
        until: u64,
        out: *mut RawFlowEvent,
    ) -> u32;
    pub(crate) fn fp_native_look(
        rtt: *mut Rtt,
        frame: *const Frame,
        data: *const u8,
        bytes: u32,
        end: u32,
        meta: *mut Meta,
    ) -> i32;
    pub(crate) fn fp_native_hash_fill(keys: *mut HashKeys, seed: u64);
    pub(crate) fn fp_native_meta_hash(keys: *const HashKeys, meta: *const Meta) -> u32;
    #[cfg(test)]
    pub(crate) fn fp_native_parse(
        rtt: *mut Rtt,
        frame: *const Frame,
        data: *const u8,
        bytes: u32,
        path: u32,
        result: *mut [u8; 256],
    ) -> i32;
    #[cfg(test)]
    pub(crate) fn fp_native_hash_key(keys: *const HashKeys, key: *const Key) -> u32;
    #[cfg(test)]
    pub(crate) fn fp_native_hash_1(keys: *const HashKeys, a: u64) -> u64;
    #[cfg(test)]
    pub(crate) fn fp_native_hash_3(keys: *const HashKeys, a: u64, b: u64, c: u64) -> u64;
    pub(crate) fn fp_native_expire(rtt: *mut Rtt, now: u64, sets: u32);
    pub(crate) fn fp_native_finish(rtt: *mut Rtt, now: u64, set: *mut u32) -> i32;
    pub(crate) fn fp_native_usage(rtt: *mut Rtt, used: *mut [u64; 5]);
    pub(crate) fn fp_native_held(rtt: *mut Rtt) -> u64;
    pub(crate) fn fp_native_stats(rtt: *mut Rtt, sum: *mut Stats);
    pub(crate) fn fp_native_watch(rtt: *mut Rtt, ifindex: u32, watch: u32) -> i32;
    pub(crate) fn fp_native_count_interface(rtt: *mut Rtt, ifindex: u32, slot: u32) -> i32;
    pub(crate) fn fp_native_filters(rtt: *mut Rtt, filters: *const RawFilter, count: u32);
    pub(crate) fn fp_native_filter_class(rtt: *mut Rtt, slot: u32, flags: u32);
    pub(crate) fn fp_native_filter_classes(rtt: *mut Rtt, some: u32);
    pub(crate) fn fp_native_free_image(rtt: *mut Rtt) -> *mut u8;
    pub(crate) fn fp_native_image(rtt: *const Rtt) -> u32;
    pub(crate) fn fp_native_turn_image(rtt: *mut Rtt);
    pub(crate) fn fp_native_begin_slot(rtt: *mut Rtt, slot: u32, generation: u32);
    pub(crate) fn fp_native_counts(rtt: *mut Rtt, counts: *mut ClassCounts);
    pub(crate) fn fp_native_turn_reading(rtt: *mut Rtt) -> u32;
    pub(crate) fn fp_native_cells(
        rtt: *mut Rtt,
        half: u32,
        at: *mut u32,
        out: *mut u64,
        space: u32,
    ) -> u32;
    pub(crate) fn fp_native_pairs(
        rtt: *mut Rtt,
        half: u32,
        at: *mut u32,
        out: *mut RawPair,
        space: u32,
    ) -> u32;
    pub(crate) fn fp_native_flows(
        rtt: *mut Rtt,
        slot: u32,
        at: *mut u32,
        out: *mut RawFlow,
        space: u32,
    ) -> u32;
    #[cfg(test)]
    pub(crate) static fp_native_layout: [u32; 40];
    #[cfg(test)]
    pub(crate) static fp_native_layout_len: u32;
}
