//! Words of a scheduler's memory that another program overwrites.
//!
//! Not its geometry (design 0009): the head of `struct fp_sched` and that of its pool say where
//! things are, and are the port's to protect.

use super::log::Random;

/// Words of `struct fp_sched` before what changes while it runs (`now`).
const HEAD: usize = 44;
/// The word that says where the pool is.
const POOL_AT: usize = 14;
/// Words of the pool's own head.
const POOL_HEAD: usize = 16;

fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[8 * at..8 * at + 8].try_into();
    u64::from_le_bytes(bytes.expect("eight bytes"))
}

/// The written value and its position.
#[derive(Clone, Copy, Debug)]
pub struct Blow {
    pub word: usize,
    pub value: u64,
}

impl Blow {
    /// One that hits no geometry; every second one hits what is in front of the queues.
    pub fn pick(random: &mut Random, bytes: &[u8]) -> Blow {
        let pool = word(bytes, POOL_AT) as usize / 8;
        let words = bytes.len() / 8;
        let word = match random.below(2) {
            0 => HEAD + random.below((pool - HEAD) as u64) as usize,
            _ => pool + POOL_HEAD + random.below((words - pool - POOL_HEAD) as u64) as usize,
        };
        let (small, anything) = (random.below(70), random.draw());
        let values = [
            0,
            1,
            small,
            small << 32,
            small | small << 32,
            anything,
            u64::MAX,
            1 << 63,
        ];
        let value = random.pick(&values);
        Blow { word, value }
    }

    pub fn strike(self, bytes: &mut [u8]) {
        let at = 8 * self.word;
        bytes[at..at + 8].copy_from_slice(&self.value.to_le_bytes());
    }
}
