//! What a policy says of itself (`struct fp_policy` in `bpf/core/policy.h`), and the way in for one
//! that is not compiled into this home.

use super::{Meta, Over, RATE_SHIFT};

/// A policy's functions, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Function {
    /// A packet came.
    RankEnqueue = 0,
    /// A packet leaves.
    RankDequeue = 1,
    /// When it may leave.
    SendTime = 2,
    /// A packet was dropped by somebody else.
    OnDrop = 3,
}

/// A parameter of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// As in TOML and on the command line.
    pub name: String,
    /// "ns", "bytes", "bps", "packets" or nothing.
    pub unit: String,
    /// One line.
    pub about: String,
    /// Least value, in its unit.
    pub least: u64,
    /// Largest value, in its unit.
    pub most: u64,
    /// Where nothing is said.
    pub standard: u64,
}

impl Param {
    /// What the core keeps for `value`, which is in this parameter's unit: rates are kept as by
    /// [`encode_rate`], everything else as it is.
    pub fn encode(&self, value: u64) -> u64 {
        if self.unit == "bps" {
            encode_rate(value)
        } else {
            value
        }
    }
}

/// Nanoseconds a byte << [`RATE_SHIFT`], to the nearest, of a rate in bits a second; 0, no rate,
/// for 0. The error is below 10^-5 up to 100 Gbit/s.
pub fn encode_rate(bps: u64) -> u64 {
    if bps == 0 {
        return 0;
    }
    const BYTE_NS: u128 = 8_000_000_000 << RATE_SHIFT;
    let bps = u128::from(bps);
    u64::try_from((BYTE_NS + bps / 2) / bps).unwrap_or(u64::MAX)
}

/// A policy as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its number in this build; an author's file is [`Policy::CUSTOM`].
    pub id: u32,
    /// As in trees and on the command line.
    pub name: String,
    /// One line.
    pub about: String,
    /// Paper or RFC.
    pub source: String,
    /// What it can rank.
    pub over: Vec<Over>,
    /// What it ranks unless the tree says otherwise.
    pub usual: Over,
    /// The bits `WANTS_*`.
    pub wants: u32,
    /// Bytes of state: of a flow or child, of a node (parameters included), of the policy.
    pub state_bytes: [u32; 3],
    /// A `PifoKind`, buckets, granularity's shift and what happens when full; zeroes: the usual.
    pub queue: [u32; 4],
    /// In the order of its enumeration.
    pub params: Vec<Param>,
    /// The functions that it has.
    pub functions: Vec<Function>,
}

/// A policy that runs outside the core: an author's file, by its verified instructions.
pub trait Custom: Send {
    /// One call; slices as in `struct flow`, `struct class` (parameters first) and `struct global`.
    /// `call` is the memory of `struct fp_call`.
    fn call(
        &mut self,
        function: Function,
        packet: &Meta,
        flow: &mut [u64; 8],
        class: &mut [u64; 16],
        global: &mut [u64; 8],
        call: &mut [u64; 16],
    ) -> u64;
}

/// The policies that are compiled in, by number.
pub fn policies() -> &'static [Policy] {
    &[]
}
