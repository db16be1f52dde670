//! Declarations of `pifo.c`, and the shared structures of bpf/core/pifo/item.h and pool.h.

/// `struct fp_pool`: the start of a pool's memory.
#[repr(C, align(64))]
pub(crate) struct RawPool {
    _opaque: [u8; 0],
}

/// `struct fp_pool_config`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawPoolConfig {
    pub items: u32,
    pub pifos: u32,
    pub array_bytes: u64,
}

/// `struct fp_pifo_config`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawPifoConfig {
    pub kind: u32,
    pub capacity: u32,
    pub buckets: u32,
    pub shift: u8,
    pub full: u8,
    pub below: u8,
    pub beyond: u8,
    pub base: u64,
    pub headroom: u32,
    pub wheel: u32,
    pub ready: u32,
    pub each: u32,
}

/// `struct fp_item`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawItem {
    pub rank: u64,
    pub seq: u64,
    pub next: u32,
    pub prev: u32,
    pub place: u32,
    pub pifo: u32,
}

/// `struct fp_pifo`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawPifo {
    pub kind: u8,
    pub policies: [u8; 3],
    pub shift: u8,
    pub levels: u8,
    pub zero: [u8; 2],
    pub capacity: u32,
    pub count: u32,
    pub buckets: u32,
    pub first: u32,
    pub at: [u32; 2],
    pub base: u64,
    pub top: [u64; 2],
    pub popped: u64,
    pub pushed: u64,
    pub removed: u64,
    pub moved: u64,
    pub pushed_out: u64,
    pub was_full: u64,
    pub was_below: u64,
    pub was_beyond: u64,
    pub not_admitted: u64,
    pub errors: u64,
    pub rotations: u64,
    pub rebases: u64,
    pub searched: u64,
    pub level_at: [u32; 2],
    pub window: u32,
    pub headroom: u32,
    pub wheel: u32,
    pub ready: u32,
    pub each: u32,
    pub zero2: u32,
}

impl RawPifo {
    /// `fp_pifo_pushed()`: the field is of an `FP_PIEO`, and 0 in others.
    pub fn pushes(&self) -> u64 {
        let left = self.popped.wrapping_add(self.removed);
        let known = left
            .wrapping_add(self.pushed_out)
            .wrapping_add(self.count.into());
        if self.pushed == 0 { known } else { self.pushed }
    }
}

/// `struct fp_audit`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawAudit {
    pub flaw: u32,
    pub pifo: u32,
    pub item: u32,
    pub zero: u32,
}

/// `struct fp_native_popped` of pifo.c.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawPopped {
    pub item: u64,
    pub rank: u64,
}

unsafe extern "C" {
    pub(crate) fn fp_native_pool_bytes(config: *const RawPoolConfig) -> u64;
    pub(crate) fn fp_native_pool_arrays(config: *const RawPoolConfig) -> u64;
    pub(crate) fn fp_native_pifo_bytes(kind: u32, capacity: u32, buckets: u32) -> u64;
    pub(crate) fn fp_native_pool_format(pool: *mut RawPool, config: *const RawPoolConfig) -> i32;
    pub(crate) fn fp_native_pifo_format(
        pool: *mut RawPool,
        q: u32,
        config: *const RawPifoConfig,
        at: u64,
    ) -> i32;
    pub(crate) fn fp_native_pool_sound(pool: *const RawPool, bytes: u64) -> i32;
    pub(crate) fn fp_native_pool_audit(pool: *mut RawPool, audit: *mut RawAudit) -> i32;
    pub(crate) fn fp_native_pool_counts(pool: *mut RawPool, counts: *mut [u64; 4]);
    pub(crate) fn fp_native_pool_rank(pool: *mut RawPool, item: u32) -> u64;
    pub(crate) fn fp_native_pool_item(pool: *mut RawPool, item: u32, out: *mut RawItem);
    pub(crate) fn fp_native_pool_pifo(pool: *mut RawPool, q: u32, out: *mut RawPifo);
    pub(crate) fn fp_native_pool_run(pool: *mut RawPool, ops: *mut super::Op, count: u64);
    pub(crate) fn fp_native_pifo_push(pool: *mut RawPool, q: u32, item: u32, rank: u64) -> u64;
    pub(crate) fn fp_native_pifo_pop(pool: *mut RawPool, q: u32) -> RawPopped;
    pub(crate) fn fp_native_pifo_peek(pool: *mut RawPool, q: u32) -> u32;
    pub(crate) fn fp_native_pifo_last(pool: *mut RawPool, q: u32) -> u32;
    pub(crate) fn fp_native_pifo_pop_batch(
        pool: *mut RawPool,
        q: u32,
        out: *mut u32,
        n: u32,
    ) -> u32;
    pub(crate) fn fp_native_pifo_remove(pool: *mut RawPool, item: u32) -> i32;
    pub(crate) fn fp_native_pifo_move(pool: *mut RawPool, item: u32, rank: u64) -> i32;
    pub(crate) fn fp_native_pieo_push(
        pool: *mut RawPool,
        q: u32,
        item: u32,
        eligible: u64,
        rank: u64,
    ) -> u64;
    pub(crate) fn fp_native_pieo_pop(pool: *mut RawPool, q: u32, now: u64) -> u32;
    pub(crate) fn fp_native_pieo_next_event(pool: *mut RawPool, q: u32) -> u64;
    #[cfg(test)]
    pub(crate) static fp_native_pool_layout: [u32; 13];
    #[cfg(test)]
    pub(crate) static fp_native_pool_layout_len: u32;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn pool_layout_equals_that_of_c() {
        let rust = [
            128,
            size_of::<RawItem>(),
            size_of::<RawPifo>(),
            size_of::<RawPoolConfig>(),
            size_of::<RawPifoConfig>(),
            size_of::<super::super::Op>(),
            size_of::<RawAudit>(),
            offset_of!(RawPifo, base),
            offset_of!(RawPifo, pushed),
            offset_of!(RawPifo, rebases),
            offset_of!(RawPifo, ready),
            offset_of!(RawPifoConfig, base),
            offset_of!(super::super::Op, extra),
        ];
        // SAFETY: a constant of pifo.c.
        assert_eq!(unsafe { fp_native_pool_layout_len } as usize, rust.len());
        // SAFETY: as above, of that length.
        let c = unsafe { fp_native_pool_layout };
        assert_eq!(c.map(|n| n as usize), rust);
    }
}
