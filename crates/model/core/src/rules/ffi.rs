//! The functions of `rules.c`.

use std::ptr::NonNull;

use super::{Rules, Work};

unsafe extern "C" {
    #[cfg(test)]
    static fp_native_rules_sizes: [u32; 10];
    fn fp_native_rules_seed(rules: *mut Rules, seed: u64);
    fn fp_native_rules_advise(at: *mut u64, bytes: u64);
    fn fp_native_rules_read(work: *mut Work) -> u32;
    fn fp_native_rules_evaluate(rules: *mut Rules, work: *mut Work, hook: u32) -> u32;
    fn fp_native_rules_drop_early(
        rules: *mut Rules,
        quiet: *mut Rules,
        work: *mut Work,
        length: u32,
    ) -> u32;
    fn fp_native_rules_chain(rules: *mut Rules, work: *mut Work, chain: u32) -> u32;
}

/// Sizes of header, image header and scratch, the number of tests, and sizes of a table's parts, as
/// the core has them.
#[cfg(test)]
pub(super) fn sizes() -> [u32; 10] {
    // SAFETY: a constant of the core.
    unsafe { fp_native_rules_sizes }
}

/// Derives the keys of the tables' hash.
pub(super) fn seed(rules: NonNull<Rules>, seed: u64) {
    // SAFETY: the caller wrote a header there, and the core writes its keys only.
    unsafe { fp_native_rules_seed(rules.as_ptr(), seed) };
}

/// Advises the kernel to use huge pages.
pub(super) fn advise(memory: &mut [u64]) {
    // SAFETY: advice about pages inside of the slice; it does not change their content.
    unsafe { fp_native_rules_advise(memory.as_mut_ptr(), size_of_val(memory) as u64) };
}

pub(super) fn read(work: &mut Work) -> bool {
    // SAFETY: the core reads and writes the scratch only.
    unsafe { fp_native_rules_read(work) != 0 }
}

pub(super) fn evaluate(rules: NonNull<Rules>, work: &mut Work, hook: u32) {
    // SAFETY: `rules` was written by Memory::format() from a checked image.
    unsafe { fp_native_rules_evaluate(rules.as_ptr(), work, hook) };
}

pub(super) fn drop_early(rules: NonNull<Rules>, work: &mut Work, length: u32) -> bool {
    let mut quiet = std::mem::MaybeUninit::uninit();
    // SAFETY: as above; the core writes `quiet` before it reads it.
    unsafe { fp_native_rules_drop_early(rules.as_ptr(), quiet.as_mut_ptr(), work, length) != 0 }
}

pub(super) fn evaluate_chain(rules: NonNull<Rules>, work: &mut Work, chain: u32) {
    // SAFETY: as above, and the caller compared the number of the chain.
    unsafe { fp_native_rules_chain(rules.as_ptr(), work, chain) };
}
