//! Mirror of `bpf/core/sched/loss.h` and `impair.h`: an impairment as the core reads it.
//!
//! `fairpath-sched` builds it from configuration. Times in ns, chances from [`chance`], tables and
//! traces as indices of words plus 1; 0 is none.

use super::{Framing, Op, ffi};

/// Words of a pattern of losses.
pub const PATTERN_WORDS: usize = 16;
/// Chances of a model of loss.
pub const LOSS_CHANCES: usize = 8;
/// Parts of a table's range. The table has one more entry.
pub const TABLE_PARTS: usize = 1024;
/// Normal numbers and correlations are shifted left by this.
pub const Z_SHIFT: u32 = 24;
/// Range of tables of deviations: minus this to this.
pub const Z_MOST: f64 = 8.0;
/// Bytes of an opportunity of a rate trace.
pub const OPPORTUNITY: u64 = 1504;
/// Words of an [`ImpairConfig`].
pub const IMPAIR_WORDS: usize = size_of::<ImpairConfig>() / 8;

/// A probability as a threshold of the core: 0 is never and 1 is always, exactly.
///
/// ```
/// use fairpath_core::sched::chance;
///
/// assert_eq!((chance(0.0), chance(0.5), chance(1.0)), (0, 1 << 63, u64::MAX));
/// ```
pub fn chance(probability: f64) -> u64 {
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    // The cast saturates: 1 becomes the value for "always".
    (probability * ALL) as u64
}

/// The core's mixer (`fp_mix64`): every output bit depends on every bit of `x`.
pub fn mix64(x: u64) -> u64 {
    ffi::fp_native_mix64(x)
}

/// The model of loss (`enum fp_loss_model`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LossModel {
    /// Nothing is lost.
    #[default]
    None = 0,
    /// Each packet alone: `chances[0]`.
    Each = 1,
    /// Good and bad: good to bad, bad to good, loss in good, loss in bad, begins bad.
    Two = 2,
    /// Of 1: to 3, to 3 or 4; of 2: to 3; of 3: to 1, to 1 or 2; begins in 1, in 1 or 2, in 1 to 3.
    Four = 3,
    /// The bits of a pattern, repeated.
    Pattern = 4,
}

/// `struct fp_loss_config`: the complete input of an XDP program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LossConfig {
    /// Of all draws.
    pub seed: u64,
    /// A [`LossModel`] as a number: a configuration from outside may have any value.
    pub model: u32,
    /// Used bits of the pattern, from the lowest of the first word.
    pub bits: u32,
    /// By model.
    pub chances: [u64; LOSS_CHANCES],
    /// A set bit is a loss.
    pub pattern: [u64; PATTERN_WORDS],
}

/// `struct fp_loss_state`: the state of an XDP program; all zero before the first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LossState {
    /// Numbered so far.
    pub packets: u64,
    /// Of the chain.
    pub state: u32,
    /// Nonzero if the last one was lost.
    pub lost: u32,
}

/// `struct fp_impair_config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ImpairConfig {
    /// Which packets are lost.
    pub loss: LossConfig,
    /// Without jitter.
    pub delay: u64,
    /// Chance of duplication.
    pub copy: u64,
    /// Chance of one inverted bit.
    pub corrupt: u64,
    /// Chance of leaving early, without delay.
    pub ahead: u64,
    /// At most one of this number of packets leaves early.
    pub gap: u32,
    /// 1: packets leave by their own delays, in any order.
    pub free_order: u32,
    /// Normal numbers by draw: upper half, then its last part; each of [`TABLE_PARTS`] plus 1.
    pub normal_at: u32,
    /// Deviations from the delay, signed, by normal number.
    pub jitter_at: u32,
    /// Correlation of a packet's normal number with the last one's.
    pub rho: i32,
    /// The square root of 1 - rho * rho.
    pub fresh: i32,
    /// Times and delays alternately, by time, the first at 0.
    pub delays_at: u32,
    /// Pairs of them.
    pub delays: u32,
    /// Then they repeat.
    pub delays_period: u64,
    /// Minimum time between slots.
    pub slot_min: u64,
    /// Maximum of time added to it.
    pub slot_spread: u32,
    /// Packets of a slot; 0 any number.
    pub slot_packets: u32,
    /// Bytes of a slot, which the last packet may exceed; 0 any number.
    pub slot_bytes: u32,
    /// Of the emulated link.
    pub framing: Framing,
    /// Packets leave together at multiples of this; 0 none.
    pub release: u64,
    /// Times of opportunities; of the impairment that is the plan's `service`.
    pub chances_at: u32,
    /// Of them.
    pub chances: u32,
    /// Then they repeat.
    pub chances_period: u64,
}

impl ImpairConfig {
    /// As words, in order. O(1).
    pub fn to_words(&self) -> [u64; IMPAIR_WORDS] {
        // SAFETY: integers without padding between them, of that many words.
        unsafe { std::mem::transmute_copy(self) }
    }

    /// From words.
    pub fn from_words(words: &[u64; IMPAIR_WORDS]) -> ImpairConfig {
        // SAFETY: any words are integers.
        unsafe { std::mem::transmute_copy(words) }
    }

    /// The operations that change `impairment` from `self` to `next` at `now`, while packets pass.
    /// Its tables must be among the words of the plan already.
    pub fn changes(&self, now: u64, impairment: u32, next: &ImpairConfig) -> Vec<Op> {
        let words = self.to_words().into_iter().zip(next.to_words());
        let changed = (0u32..).zip(words).filter(|(_, (old, new))| old != new);
        let op = |(word, (_, new))| Op::impair(now, impairment, word, new);
        changed.map(op).collect()
    }
}

/// Counters of an impairment (`struct fp_impair_stats`), sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ImpairStats {
    /// Packets on the wire: a GSO packet counts its segments.
    pub packets: u64,
    /// Of them, lost.
    pub lost: u64,
    /// Runs of consecutive losses.
    pub bursts: u64,
    /// GSO packets, which are lost whole.
    pub gso_packets: u64,
    /// Duplicated.
    pub copied: u64,
    /// Left with an inverted bit.
    pub corrupted: u64,
    /// Left early, as configured.
    pub ahead: u64,
    /// Delayed, perhaps by 0.
    pub delayed: u64,
    /// Sum of configured delays.
    pub requested_ns: u64,
    /// Sum of delays after order, slots and release.
    pub held_ns: u64,
    /// Sum of lateness at release: the scheduler was not called earlier.
    pub late_ns: u64,
    /// Maximum lateness.
    pub late_most_ns: u64,
    /// Released after a packet that arrived later.
    pub reordered: u64,
    /// Always 0.
    pub zero: u64,
}
