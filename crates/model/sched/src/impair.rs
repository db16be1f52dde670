//! Impairments as people write them: loss, delay, jitter, rate traces and the rest of a bad network.
//!
//! ```text
//! flags, TOML --set--> Builder --finish--> Spec --add_to--> ImpairConfig, words --> core
//!    files ---^                              '--> Display: reads as the same Spec
//! ```
//!
//! What the words mean, and where they differ from netem's, is in `docs/design/0012-impairment.md`.
//! Everything that is drawn comes from the seed and the packet's number, so that a run repeats.
//! Absent: the rate; that is a line's or a node's ceiling, before which the delay lies.

mod builder;
mod distribution;
mod layout;
mod loss;
mod normal;
mod text;
mod trace;

pub use builder::{BadSetting, BadSpec, Builder, KEYS};
pub use distribution::Distribution;
pub use layout::{STANDARD_PIPE, seed_of};
pub use loss::Loss;
pub use trace::{DelayTrace, MAX_POINTS, RateTrace};

/// A bad network: what packets of one direction meet. The default is a good one.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Which packets are lost.
    pub loss: Loss,
    /// Of every packet, where no trace tells otherwise.
    pub delay_ns: u64,
    /// Delays that change by time.
    pub delay_trace: Option<DelayTrace>,
    /// How far delays vary: half the width of the uniform, else the standard deviation.
    pub jitter_ns: u64,
    /// How delays vary.
    pub distribution: Distribution,
    /// Of one packet's delay with the last one's, -1 to 1: of the normal numbers behind them.
    pub correlation: f64,
    /// Packets may pass each other, as their delays have it.
    pub order_free: bool,
    /// Chance of going ahead, undelayed.
    pub reorder: f64,
    /// Of so many packets, one may go ahead at most.
    pub reorder_gap: u32,
    /// Chance of arriving twice.
    pub duplicate: f64,
    /// Chance of one bit turned over.
    pub corrupt: f64,
    /// Packets leave in slots.
    pub slot: Option<Slot>,
    /// Packets leave together at multiples of this; 0: when they are due.
    pub release_ns: u64,
    /// The line sends by a trace.
    pub rate_trace: Option<RateTrace>,
    /// Bytes that each packet takes on the line besides its own.
    pub overhead: u32,
    /// Bytes of a cell for packets; 0: the line has no cells.
    pub cell: u32,
    /// Bytes of a cell's head.
    pub cell_overhead: u32,
    /// Of everything that is drawn.
    pub seed: u64,
    /// Packets that may be delayed at a time.
    pub pipe: Option<u32>,
}

/// Packets leave together, as from a radio that has its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Least time between openings.
    pub least_ns: u64,
    /// Most time between them.
    pub most_ns: u64,
    /// Packets of a slot; 0 any number.
    pub packets: u32,
    /// Bytes of a slot, the last packet's beyond; 0 any number.
    pub bytes: u32,
}

/// What cells carry besides packets, unless the line says: the header of ATM.
const STANDARD_CELL_OVERHEAD: u32 = 5;

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
            cell_overhead: STANDARD_CELL_OVERHEAD,
            seed: 1,
            pipe: None,
        }
    }
}

impl Spec {
    /// Whether nothing happens to any packet.
    pub fn is_nothing(&self) -> bool {
        let good = Spec {
            seed: self.seed,
            pipe: self.pipe,
            ..Spec::default()
        };
        *self == good
    }

    /// Whether it loses packets and does nothing else: then an XDP program can do it.
    pub fn is_loss_alone(&self) -> bool {
        let lossless = Spec {
            loss: Loss::None,
            ..self.clone()
        };
        !self.is_nothing() && lossless.is_nothing()
    }

    /// Whether packets wait before their leaf.
    pub fn delays(&self) -> bool {
        let times = [self.delay_ns, self.jitter_ns, self.release_ns];
        let varies = self.delay_trace.is_some() || self.slot.is_some();
        varies
            || times.iter().any(|ns| *ns > 0)
            || matches!(self.distribution, Distribution::Measured { .. })
    }

    /// The share of packets that are lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        self.loss.mean()
    }

    /// The mean delay in ns as it is asked for: before order, slots and release make more of it.
    /// Delays that would be less than nothing count as nothing.
    pub fn mean_delay_ns(&self) -> f64 {
        let deviation = self.distribution.deviations(self.jitter_ns);
        let mean = |standing: u64| normal::mean_of_delay(standing, &deviation);
        match &self.delay_trace {
            Some(trace) => trace.mean(mean),
            None => mean(self.delay_ns),
        }
    }
}
