//! Declarations of `native.c`, and the opaque memory of a monitor.

use crate::abi::{Config, Frame, RawFlowEvent, Stats};

/// `struct fp_rtt`: the beginning of a monitor's memory, wherever it lies.
#[repr(C, align(64))]
pub(crate) struct Rtt {
    _opaque: [u8; 0],
}

/// `struct fp_sink`.
#[repr(C)]
pub(crate) struct Sink {
    pub events: *mut RawFlowEvent,
    pub capacity: u32,
    pub used: u32,
}

unsafe extern "C" {
    pub(crate) fn fp_native_bytes(config: *const Config) -> u64;
    pub(crate) fn fp_native_format(rtt: *mut Rtt, config: *const Config);
    pub(crate) fn fp_native_frame(
        rtt: *mut Rtt,
        frame: *const Frame,
        data: *const u8,
        bytes: u32,
        sink: *mut Sink,
    ) -> i32;
    pub(crate) fn fp_native_expire(rtt: *mut Rtt, now: u64, sets: u32, sink: *mut Sink);
    pub(crate) fn fp_native_finish(rtt: *mut Rtt, now: u64, set: *mut u32, sink: *mut Sink) -> i32;
    pub(crate) fn fp_native_usage(rtt: *mut Rtt, used: *mut [u64; 3]);
    pub(crate) fn fp_native_held(rtt: *mut Rtt) -> u64;
    pub(crate) fn fp_native_stats(rtt: *mut Rtt, sum: *mut Stats);
    pub(crate) fn fp_native_watch(rtt: *mut Rtt, ifindex: u32, watch: u32) -> i32;
    #[cfg(test)]
    pub(crate) static fp_native_layout: [u32; 26];
    #[cfg(test)]
    pub(crate) static fp_native_layout_len: u32;
}
