//! Hash tables of an image: open addressing in which every key is near the place of its hash.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Powers of two by which a table has more places than keys, at first and at most.
pub const GROWTH: std::ops::RangeInclusive<u32> = 1..=4;

/// The finalizer of SplitMix64 (`fp_mix64`).
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The seed of the hash in a table with this growth. It is another one in each process: rules and
/// sets may come from files of others, whose keys would collide under a known one.
pub fn seed(growth: u32) -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    mix(*SEED ^ u64::from(growth))
}

/// Numbers of keys by place, at most `probes` from that of their hash, in a table for `room` keys. None if
/// one finds no place.
pub fn place(
    hashes: impl ExactSizeIterator<Item = u32>,
    room: usize,
    growth: u32,
    probes: usize,
) -> Option<Vec<Option<u32>>> {
    let size = room.next_power_of_two() << growth;
    let mut slots = vec![None; size];
    for (at, hash) in hashes.enumerate() {
        let slot = (0..probes.min(size))
            .map(|step| (hash as usize + step) & (size - 1))
            .find(|slot| slots[*slot].is_none())?;
        slots[slot] = Some(at as u32);
    }
    Some(slots)
}
