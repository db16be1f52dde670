//! Early loads of memory that is used soon.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Loads a value into the cache, without waiting. Without effect on processors that have no such
/// instruction here.
pub fn prefetch<T: ?Sized>(value: &T) {
    let at: *const u8 = std::ptr::from_ref(value).cast();
    for offset in (0..size_of_val(value)).step_by(LINE) {
        let line = at.wrapping_add(offset);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an instruction of every such processor, which accesses no memory visibly.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{line}]", line = in(reg) line, options(nostack, readonly, preserves_flags));
        }
        let _ = line;
    }
}
