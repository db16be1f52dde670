//! Impairments as configured: loss, delay, jitter, rate traces, and others.
//!
//! ```text
//! options, TOML --set--> Builder --finish--> Spec --add_to--> ImpairConfig, words --> core
//!      files ---^                              '--> Display: text that parses to the same Spec
//! ```
//!
//! `docs/design/0012-impairment.md` defines the options and their differences from netem. All random
//! outcomes derive from the seed and the packet number, so that a run is repeatable. Absent: the
//! rate, which is the ceiling of a link or node behind the delay.

mod builder;
mod distribution;
mod layout;
mod loss;
mod normal;
mod text;
mod trace;

pub use builder::{BadSetting, BadSpec, Builder, KEYS};
pub use distribution::Distribution;
pub use layout::{DEFAULT_PIPE, seed_of};
pub use loss::Loss;
pub use trace::{DelayTrace, MAX_POINTS, RateTrace};

/// The impairments of one direction. The default has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The loss model.
    pub loss: Loss,
    /// The delay of every packet, unless there is a trace.
    pub delay_ns: u64,
    /// Delays that change over time.
    pub delay_trace: Option<DelayTrace>,
    /// The jitter: half the width of a uniform distribution, or else the standard deviation.
    pub jitter_ns: u64,
    /// The distribution of the jitter.
    pub distribution: Distribution,
    /// The correlation of consecutive delays, -1 to 1. It applies to the underlying normal numbers.
    pub correlation: f64,
    /// True if packets may be reordered by their delays.
    pub order_free: bool,
    /// The probability of leaving early, without delay.
    pub reorder: f64,
    /// At most one of this number of packets leaves early.
    pub reorder_gap: u32,
    /// The probability of duplication.
    pub duplicate: f64,
    /// The probability of corruption, which inverts one bit.
    pub corrupt: f64,
    /// Packets leave in slots.
    pub slot: Option<Slot>,
    /// Packets leave together at multiples of this time. 0 means that they leave when they are due.
    pub release_ns: u64,
    /// The trace of the link rate.
    pub rate_trace: Option<RateTrace>,
    /// Bytes of link overhead per packet.
    pub overhead: u32,
    /// Payload bytes of a cell. 0 means that the link has no cells.
    pub cell: u32,
    /// Bytes of a cell header.
    pub cell_overhead: u32,
    /// True if the last cell of a packet is as short as its payload (PTM).
    pub cell_partial: bool,
    /// Minimum bytes of a packet on the link, with the overhead.
    pub mpu: u32,
    /// The seed of all random outcomes.
    pub seed: u64,
    /// Maximum packets in the delay queue.
    pub pipe: Option<u32>,
}

/// Slots in which packets leave together, as on a radio link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Minimum time between slots.
    pub min_ns: u64,
    /// Maximum time between slots.
    pub most_ns: u64,
    /// Maximum packets of a slot, or 0 for no limit.
    pub packets: u32,
    /// Bytes of a slot, or 0 for no limit. The last packet may exceed them.
    pub bytes: u32,
}

/// Default cell overhead: the header of ATM.
const DEFAULT_CELL_OVERHEAD: u32 = 5;

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            loss: Loss::None,
            delay_ns: 0,
            delay_trace: None,
            jitter_ns: 0,
            distribution: Distribution::Uniform,
            correlation: 0.0,
            order_free: false,
            reorder: 0.0,
            reorder_gap: 1,
            duplicate: 0.0,
            corrupt: 0.0,
            slot: None,
            release_ns: 0,
            rate_trace: None,
            overhead: 0,
            cell: 0,
            cell_overhead: DEFAULT_CELL_OVERHEAD,
            cell_partial: false,
            mpu: 0,
            seed: 1,
            pipe: None,
        }
    }
}

impl Spec {
    /// True if there is no impairment.
    pub fn is_nothing(&self) -> bool {
        let good = Spec {
            seed: self.seed,
            pipe: self.pipe,
            ..Spec::default()
        };
        *self == good
    }

    /// True if it only loses packets. An XDP program can do that.
    pub fn is_loss_alone(&self) -> bool {
        let lossless = Spec {
            loss: Loss::None,
            ..self.clone()
        };
        !self.is_nothing() && lossless.is_nothing()
    }

    /// True if packets take more bytes on the link than their own.
    pub fn frames(&self) -> bool {
        self.overhead > 0 || self.cell > 0 || self.mpu > 0
    }

    /// True if packets are delayed before their leaf.
    pub fn delays(&self) -> bool {
        let times = [self.delay_ns, self.jitter_ns, self.release_ns];
        let varies = self.delay_trace.is_some() || self.slot.is_some();
        varies
            || times.iter().any(|ns| *ns > 0)
            || matches!(self.distribution, Distribution::Measured { .. })
    }

    /// The expected loss.
    pub fn mean_loss(&self) -> f64 {
        self.loss.mean()
    }

    /// The configured mean delay in ns, without the effects of order, slots and release. Negative
    /// delays count as 0.
    pub fn mean_delay_ns(&self) -> f64 {
        let deviation = self.distribution.deviations(self.jitter_ns);
        let mean = |standing: u64| normal::mean_of_delay(standing, &deviation);
        match &self.delay_trace {
            Some(trace) => trace.mean(mean),
            None => mean(self.delay_ns),
        }
    }

    /// The configured standard deviation of a delay in ns, without a delay trace and the effects of
    /// order, slots and release. Negative delays count as 0.
    pub fn delay_deviation_ns(&self) -> f64 {
        let deviations = self.distribution.deviations(self.jitter_ns);
        normal::deviation_of_delay(self.delay_ns, &deviations)
    }
}
