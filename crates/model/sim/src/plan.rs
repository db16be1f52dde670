//! A plan of shaping: the classes of a configuration on many virtual CPUs, before such a machine is bought.
//!
//! ```text
//! demand -----> senders of a CPU --.                    .--> meters: rate, burst, time in the queue
//! capture --> RSS --> ring of a CPU --> shaper instance -+--> cost of the packets and of the shared words
//!                                             |
//!                              SharedRates: one rate for all CPUs
//! ```
//!
//! Each virtual CPU has the shaper instances of one worker ([`ShapeInstance::sharing`]), which are the code that
//! shapes real packets. A CPU receives at most [`BATCH`] packets, then its instances have their turn, and then it is
//! busy for the cost of both. CPUs act in the order of virtual time, so a plan has one thread and no race.
//!
//! Invariant: the same settings, seed and capture give the same findings.
//!
//! Absent: drivers, memory bandwidth, caches, interrupts, and senders that slow down by loss. The charges of the
//! network stack and the impairments of a configuration are absent, too.

mod cpu;
mod demand;
mod enough;
mod fleet;
mod meter;
mod rss;
mod shaped;
mod verdict;

use fairpath_class::ClassSet;
use fairpath_core::limit::LimitError;
use fairpath_core::sched::SchedRuntimeError;
use fairpath_shape::{Lines, ShapeInstanceError, SharedError, Side};
use thiserror::Error;

pub use demand::Demand;
pub use enough::enough;
pub use fleet::Packets;
pub use meter::RateFindings;
pub use rss::{RSS_ENTRIES, Rss};
pub use verdict::{Cause, FULL_FROM, HOLDS_FROM, Verdict, judge};

use crate::simulate::Watch;
use crate::traffic::TrafficError;
use fleet::Fleet;

/// Maximum number of virtual CPUs.
pub const MAX_CPUS: u32 = 512;
/// Maximum memory of a plan.
pub const MAX_MEMORY_BYTES: u64 = 4 << 30;
/// Packets that a CPU receives before its instances have their turn, and packets of a turn.
pub const BATCH: u32 = 64;
/// Packets that wait for a CPU, at most: a usual receive ring.
pub const RING_PACKETS: usize = 2048;
/// Events between two checks for an interruption.
const LOOK_EVERY: u32 = 1 << 12;

/// The time that a CPU needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// For each packet that it receives, ns.
    pub local_ns: u64,
    /// For each operation on a word that all CPUs share, ns. Those on one word come one after the other.
    pub shared_ns: u64,
}

/// The settings of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanSettings {
    /// Virtual CPUs: 1 to [`MAX_CPUS`].
    pub cpus: u32,
    /// Their cost.
    pub cost: Cost,
    /// The end in virtual time, or `None`: the end of the capture.
    pub duration_ns: Option<u64>,
    /// The time before rates are measured. Bursts are measured from the start.
    pub warm_up_ns: u64,
    /// Bytes of the Ethernet frame of a generated packet.
    pub packet_bytes: u32,
    /// The seed of generated packets, and of the CPUs that have them.
    pub seed: u64,
}

/// The classes and the trees of both directions.
#[derive(Clone, Copy, Debug)]
pub struct PlanSubject<'a> {
    /// The classes.
    pub classes: &'a ClassSet,
    /// Their trees.
    pub lines: &'a Lines,
    /// The directions to simulate.
    pub sides: &'a [Side],
}

/// The packets of a plan.
pub enum Offered<'a> {
    /// Generated.
    Demand(Demand),
    /// Of a capture. Times are divided by the speed.
    Capture {
        /// The packets.
        packets: &'a mut dyn Packets,
        /// More than 0.
        speed: f64,
    },
}

/// The measurements of a virtual CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuFindings {
    /// The part of the time in which it was busy: 0 to 1.
    pub use_ratio: f64,
    /// Packets that it received.
    pub packets: u64,
    /// Operations on shared words.
    pub operations: u64,
    /// Packets that it lost, because it was too slow to receive them.
    pub lost: u64,
}

/// The measurements of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFindings {
    /// By CPU.
    pub cpus: Vec<CpuFindings>,
    /// The rates of the configuration: the line first, parents before children.
    pub rates: Vec<RateFindings>,
    /// The measured time.
    pub measured_ns: u64,
    /// True if it ended before its time.
    pub interrupted: bool,
    /// Packets that were not offered, by reason.
    pub excluded: Vec<(&'static str, u64)>,
}

/// A plan cannot be simulated.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The number of CPUs.
    #[error("plan for {cpus} CPUs: the number must be 1 to {MAX_CPUS}")]
    Cpus {
        /// As requested.
        cpus: u32,
    },
    /// Nothing is limited.
    #[error(
        "plan {direction}: neither the line nor a class has a ceiling: set {direction} in [shape] or at a class"
    )]
    NoRates {
        /// "down" or "up".
        direction: &'static str,
    },
    /// The trees impair packets.
    #[error(
        "plan: the tree impairs packets, which a plan does not simulate: remove impair from its nodes"
    )]
    Impaired,
    /// Too much memory.
    #[error(
        "plan for {cpus} CPUs: the instances need {} MiB, and the limit is {} MiB: plan fewer CPUs, fewer classes or one direction",
        bytes >> 20, MAX_MEMORY_BYTES >> 20
    )]
    Memory {
        /// As requested.
        cpus: u32,
        /// Needed.
        bytes: u64,
    },
    /// The rates cannot be shared.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// The same.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// An instance cannot be built.
    #[error(transparent)]
    Instance(#[from] ShapeInstanceError),
    /// An instance failed.
    #[error(transparent)]
    SchedRuntime(#[from] SchedRuntimeError),
    /// The capture failed.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}

/// Simulates until the end, or until `watch` returns false.
///
/// O(packets x levels of the tree). Memory: [`MAX_MEMORY_BYTES`] at most.
///
/// # Errors
/// [`PlanError`].
pub fn simulate(
    subject: &PlanSubject<'_>,
    settings: &PlanSettings,
    offered: Offered<'_>,
    watch: Watch<'_>,
) -> Result<PlanFindings, PlanError> {
    if !(1..=MAX_CPUS).contains(&settings.cpus) {
        return Err(PlanError::Cpus {
            cpus: settings.cpus,
        });
    }
    let mut fleet = Fleet::new(subject, settings, offered)?;
    let interrupted = fleet.run(watch)?;
    Ok(fleet.finish(interrupted))
}
