//! Bytes over time in at most [`SLOTS`] slots. If the time exceeds them, the slots double in width.

/// Maximum slots of a series.
pub const SLOTS: usize = 256;
/// Initial width of a slot.
const FIRST_NS: u64 = 1_000_000;

/// Sums of bytes by slot of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    width_ns: u64,
    sums: Vec<u64>,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            width_ns: FIRST_NS,
            sums: Vec::new(),
        }
    }
}

impl Series {
    /// Width of a slot.
    pub fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Sums by slot, beginning at time 0. Slots after the last are 0.
    pub fn sums(&self) -> &[u64] {
        &self.sums
    }

    /// Adds `bytes` at `now`. O(1) amortised.
    #[inline]
    pub(super) fn add(&mut self, now: u64, bytes: u32) {
        let mut slot = (now / self.width_ns) as usize;
        if slot >= self.sums.len() {
            slot = self.grow(now);
        }
        self.sums[slot] += u64::from(bytes);
    }

    #[cold]
    fn grow(&mut self, now: u64) -> usize {
        while now / self.width_ns >= SLOTS as u64 {
            self.widen();
        }
        let slot = (now / self.width_ns) as usize;
        self.sums.resize((slot + 1).max(self.sums.len()), 0);
        slot
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        self.sums = self.sums.chunks(2).map(|pair| pair.iter().sum()).collect();
    }

    /// Widens the slots to at least `width_ns`, as in another series.
    pub(super) fn widen_to(&mut self, width_ns: u64) {
        while self.width_ns < width_ns {
            self.widen();
        }
    }

    pub(super) fn merge(&mut self, other: &Series) {
        let mut other = other.clone();
        other.widen_to(self.width_ns);
        self.widen_to(other.width_ns);
        let slots = self.sums.len().max(other.sums.len());
        self.sums.resize(slots, 0);
        for (sum, more) in self.sums.iter_mut().zip(&other.sums) {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_slots_keeps_bytes_and_times() {
        let (mut long, mut short) = (Series::default(), Series::default());
        for ms in 0..1000 {
            long.add(ms * FIRST_NS, 10);
        }
        short.add(0, 7);
        short.merge(&long);
        assert_eq!(long.width_ns(), 4 * FIRST_NS);
        assert!(long.sums().iter().all(|sum| *sum == 40));
        assert_eq!((short.sums()[0], short.sums().len()), (47, 250));
        assert_eq!(short.sums().iter().sum::<u64>(), 10_007);
    }
}
