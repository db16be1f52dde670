//! The line of a class: its lowest round-trip time of the last days, and evidence of its saturation.
//!
//! The plan of a class is what its provider configured, and its line may carry less. A line is
//! *saturated* if the rate stays at a plateau while round-trip times are above their base or packets
//! are lost, and was not so when it last had less traffic. A delay that remains with little traffic is
//! not caused by load. This is judged by blocks of [`BLOCK_NS`] of traffic, so that bursts of a second and the
//! length of an interval do not matter. A block is a few sums, so its cost does not depend on the rate.

use fairpath_core::{DOWN, UP, bucket_middle};
use serde::{Deserialize, Serialize};

use super::baseline::share_at_least;
use super::tally::Share;

/// Duration of a block: intervals with traffic, not elapsed time.
pub const BLOCK_NS: u64 = 10_000_000_000;
/// Maximum duration of a block. One that has too few samples by then is ignored.
const BLOCK_MAX_S: f32 = 60.0;
/// Minimum number of round-trip times of a block.
pub const BLOCK_MIN_SAMPLES: u64 = 10;
/// Length of a part of the time that the base covers.
pub const BASE_SLOT_NS: u64 = 12 * 3_600_000_000_000;
/// Number of these parts: the base is the lowest round-trip time of three days.
pub const BASE_SLOTS: usize = 6;
/// A block is above the base by this factor ...
pub const SATURATED_FACTOR: f64 = 1.5;
/// ... and by this time, nanoseconds.
pub const SATURATED_FLOOR_NS: f64 = 10e6;
/// ... or it surely lost more than this share.
pub const SATURATED_LOSS: f64 = 0.01;
/// A median is far above the base from this factor on. The base is the second lowest of thousands of
/// blocks, so it is lower than the usual round-trip time where that varies, as by Wi-Fi.
pub const FAR_FACTOR: f64 = 2.0;
/// Minimum rate of a saturated line, bits per second.
pub const SATURATED_MIN_BPS: f64 = 100e3;
/// Rates of two blocks within this share of the larger one are a plateau.
const PLATEAU: f64 = 0.25;
/// Share of the rate of one direction that acknowledgements do not reach in the other one.
const ACKNOWLEDGEMENTS: f64 = 0.1;

/// Minimum factor between the rates of a saturated block and of the last one that was not.
const CONTRAST: f64 = 2.0;

/// No round-trip time.
const NONE: u16 = u16::MAX;

/// The lowest round-trip times of the last days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Base {
    /// Number of the current part, and the two lowest buckets in it.
    slot: u32,
    lows: [u16; 2],
    /// The values of the parts before.
    closed: [u16; BASE_SLOTS - 1],
}

impl Default for Base {
    fn default() -> Base {
        Base {
            slot: 0,
            lows: [NONE; 2],
            closed: [NONE; BASE_SLOTS - 1],
        }
    }
}

impl Base {
    fn add(&mut self, t: u64, bucket: u16) {
        let slot = (t / BASE_SLOT_NS) as u32;
        let passed = slot.saturating_sub(self.slot) as usize;
        for _ in 0..passed.min(BASE_SLOTS) {
            self.closed.rotate_right(1);
            self.closed[0] = self.lows[1];
            self.lows = [NONE; 2];
        }
        self.slot = self.slot.max(slot);
        let [first, second] = self.lows;
        self.lows = [first.min(bucket), second.min(bucket.max(first))];
    }

    /// The minimum over the parts of the second lowest block of each, nanoseconds, so that a single
    /// block does not determine it. Of one block only if there is no other.
    pub fn value(&self) -> Option<u64> {
        let closed = self.closed.iter().copied();
        let low = closed.fold(self.lows[1], u16::min);
        let low = if low == NONE { self.lows[0] } else { low };
        (low != NONE).then(|| bucket_middle(low))
    }

    /// The base, if a round-trip time is above it by `factor` and [`SATURATED_FLOOR_NS`].
    pub fn below(&self, rtt_ns: u64, factor: f64) -> Option<u64> {
        let is_above = |base: &u64| {
            let base = *base as f64;
            rtt_ns as f64 > (base * factor).max(base + SATURATED_FLOOR_NS)
        };
        self.value().filter(is_above)
    }
}

/// The sums of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Block {
    seconds: f32,
    bits: [f32; 2],
    samples: f32,
    /// Sum of the buckets of its samples. Buckets are logarithmic, so the mean is a geometric one.
    buckets: f32,
    lost: f32,
    data: f32,
}

/// The means of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Means {
    pub rates_bps: [f64; 2],
    bucket: u16,
    lossy: bool,
}

/// The line of a class. Arrays are indexed by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AccessLine {
    pub base: Base,
    block: Block,
    /// Rates of the block before.
    before_bps: [f32; 2],
    /// Rates of the last block without delay and loss, 0 if none is known.
    calm_bps: [f32; 2],
}

impl AccessLine {
    /// Adds an interval, and returns the means of the block that it completes. O(buckets).
    pub fn add(
        &mut self,
        dt_ns: u64,
        rates_bps: [f64; 2],
        loss: Share,
        inside: impl Iterator<Item = (u16, u64)>,
    ) -> Option<Means> {
        let (block, seconds) = (&mut self.block, dt_ns as f64 / 1e9);
        block.seconds += seconds as f32;
        for (bits, rate) in block.bits.iter_mut().zip(rates_bps) {
            *bits += (rate * seconds) as f32;
        }
        for (bucket, count) in inside {
            block.samples += count as f32;
            block.buckets += count as f32 * f32::from(bucket);
        }
        block.lost += loss.lost as f32;
        block.data += loss.of as f32;
        if block.seconds < BLOCK_NS as f32 / 1e9 {
            return None;
        }
        let enough = block.samples >= BLOCK_MIN_SAMPLES as f32;
        if !enough && block.seconds < BLOCK_MAX_S {
            return None;
        }
        let block = std::mem::take(block);
        enough.then(|| Means {
            rates_bps: [UP, DOWN].map(|dir| f64::from(block.bits[dir] / block.seconds)),
            bucket: (block.buckets / block.samples).round() as u16,
            lossy: share_at_least(block.lost as u64, block.data as u64) > SATURATED_LOSS,
        })
    }

    /// True for a block without delay and loss.
    fn is_calm(&self, block: &Means) -> bool {
        let rtt_ns = bucket_middle(block.bucket);
        !block.lossy && self.base.below(rtt_ns, SATURATED_FACTOR).is_none()
    }

    /// Learns a block, and returns the direction in which the line was saturated. `reference_bps` are
    /// the rates that the line is assumed to carry.
    pub fn learn(&mut self, t: u64, block: &Means, reference_bps: [f64; 2]) -> Option<usize> {
        self.base.add(t, block.bucket);
        let before = std::mem::replace(&mut self.before_bps, block.rates_bps.map(|r| r as f32));
        let rates = block.rates_bps;
        if self.is_calm(block) {
            self.calm_bps = rates.map(|rate| rate.max(1.0) as f32);
            return None;
        }
        let calm = self.calm_bps.map(f64::from);
        let is_loaded = |dir: usize| calm[dir] > 0.0 && rates[dir] >= CONTRAST * calm[dir];
        if ![UP, DOWN].into_iter().any(is_loaded) {
            self.calm_bps = [0.0; 2];
            return None;
        }
        let plateau = |dir: &usize| {
            let (now, before) = (rates[*dir], f64::from(before[*dir]));
            is_loaded(*dir)
                && now >= SATURATED_MIN_BPS
                && now >= ACKNOWLEDGEMENTS * rates[1 - *dir]
                && (now - before).abs() <= PLATEAU * now.max(before)
        };
        let share = |dir: &usize| rates[*dir] / reference_bps[*dir];
        let directions = [UP, DOWN].into_iter().filter(plateau);
        directions.max_by(|a, b| share(a).total_cmp(&share(b)))
    }
}

#[cfg(test)]
mod tests {
    use fairpath_core::bucket_of;

    use super::*;

    const MS: u64 = 1_000_000;

    fn near(base: &Base, ms: u64) -> bool {
        let value = base.value().unwrap() as f64;
        (value / (ms * MS) as f64 - 1.0).abs() < 0.03
    }

    #[test]
    fn a_base_is_the_second_lowest_of_days() {
        let mut base = Base::default();
        assert_eq!(base.value(), None);
        let add = |base: &mut Base, slot: u64, ms: u64| {
            base.add(slot * BASE_SLOT_NS, bucket_of(ms * MS));
        };
        add(&mut base, 7, 300);
        assert!(near(&base, 300));
        for ms in [5, 20, 300, 300, 21] {
            add(&mut base, 7, ms);
        }
        assert!(near(&base, 20), "{base:?}");
        // Days under load do not raise it until the quiet part is older than the others.
        for slot in 8..13 {
            (0..99).for_each(|_| add(&mut base, slot, 300));
            assert!(near(&base, 20), "{slot} {base:?}");
        }
        (0..99).for_each(|_| add(&mut base, 13, 300));
        assert!(near(&base, 300), "{base:?}");
        // A clock that jumps by years.
        add(&mut base, 1 << 18, 40);
        assert!(near(&base, 40), "{base:?}");
    }

    /// A block of one interval.
    fn block(line: &mut AccessLine, rates: [f64; 2], ms: u64, loss: Share) -> Means {
        let samples = std::iter::once((bucket_of(ms * MS), BLOCK_MIN_SAMPLES));
        line.add(BLOCK_NS, rates, loss, samples).unwrap()
    }

    fn learnt(line: &mut AccessLine, rates: [f64; 2], ms: u64, lost: u64) -> Option<usize> {
        let means = block(line, rates, ms, Share { lost, of: 10_000 });
        line.learn(0, &means, [18e6, 105e6])
    }

    #[test]
    fn saturation_needs_a_plateau_and_delay_or_loss() {
        let mut line = AccessLine::default();
        let quiet = |line: &mut AccessLine| assert_eq!(learnt(line, [20e3, 30e3], 10, 0), None);
        let twice = |line: &mut AccessLine, rates: [f64; 2], ms: u64, lost: u64| {
            quiet(line);
            assert_eq!(learnt(line, rates, ms, lost), None, "no plateau yet");
            learnt(line, rates.map(|rate| rate * 0.9), ms, lost)
        };
        quiet(&mut line);
        assert_eq!(twice(&mut line, [0.2e6, 8e6], 280, 0), Some(DOWN));
        assert_eq!(twice(&mut line, [0.2e6, 8e6], 15, 0), None, "no delay");
        assert_eq!(twice(&mut line, [0.2e6, 8e6], 15, 300), Some(DOWN));
        assert_eq!(twice(&mut line, [0.2e6, 8e6], 15, 90), None, "little loss");
        // An upload at its plan, with acknowledgements down.
        assert_eq!(twice(&mut line, [17e6, 0.5e6], 200, 0), Some(UP));
        // A few packets per second saturate no line.
        assert_eq!(twice(&mut line, [90e3, 90e3], 280, 0), None);
        assert_eq!(learnt(&mut line, [0.2e6, 8e6], 280, 0), None);
        assert_eq!(learnt(&mut line, [0.2e6, 30e6], 280, 0), None, "no plateau");
    }

    #[test]
    fn delay_without_load_is_no_saturation() {
        let stream = [0.1e6, 5e6];
        let mut line = AccessLine::default();
        (0..9).for_each(|_| assert_eq!(learnt(&mut line, stream, 10, 0), None));
        // A fault during a stream of one rate, and one during silence before a stream.
        (0..9).for_each(|_| assert_eq!(learnt(&mut line, stream, 90, 0), None));
        learnt(&mut line, [20e3; 2], 10, 0);
        learnt(&mut line, [20e3; 2], 90, 0);
        (0..9).for_each(|_| assert_eq!(learnt(&mut line, stream, 90, 0), None));
    }

    #[test]
    fn a_block_needs_time_and_samples() {
        let mut line = AccessLine::default();
        let one = || std::iter::once((bucket_of(10 * MS), 1));
        let mut add =
            |seconds: u64| line.add(seconds * 1_000_000_000, [1e6; 2], Share::default(), one());
        assert!((0..9).all(|_| add(1).is_none()));
        assert!(add(1).is_some_and(|means| (means.rates_bps[UP] - 1e6).abs() < 1.0));
        // Ten samples in 40 s are a block, three in 60 s are none.
        assert!((0..9).all(|_| add(4).is_none()) && add(4).is_some());
        assert!((0..3).all(|_| add(20).is_none()));
        assert!((0..9).all(|_| add(1).is_none()) && add(1).is_some());
    }
}
