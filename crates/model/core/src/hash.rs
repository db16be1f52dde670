//! The hash of `bpf/core/hash.h` for user space.

use crate::ffi;
use crate::sched::Meta;

/// `FP_HASH_WORDS`.
const WORDS: usize = 5;

/// The keys of a seed (`struct fp_hash_keys`).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct HashKeys([u64; 1 + 2 * WORDS]);

impl HashKeys {
    pub fn new(seed: u64) -> HashKeys {
        let mut keys = HashKeys([0; 1 + 2 * WORDS]);
        // SAFETY: writes the keys, whose number the layout test compares.
        unsafe { ffi::fp_native_hash_fill(&raw mut keys, seed) };
        keys
    }

    /// `fp_meta_hash()`.
    pub fn of_meta(&self, meta: &Meta) -> u32 {
        // SAFETY: both are read only.
        unsafe { ffi::fp_native_meta_hash(self, meta) }
    }
}

#[cfg(test)]
mod tests;
