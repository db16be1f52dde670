//! The description of a policy (`struct fp_policy` in `bpf/core/sched/policy.h`), and the interface
//! for policies that are not compiled in.

use std::sync::LazyLock;

use super::ffi::{self, RawParam, RawPolicy};
use super::{Meta, Over, PARAMS};

/// A policy's functions, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Function {
    /// A packet is enqueued.
    RankEnqueue = 0,
    /// A packet is dequeued.
    RankDequeue = 1,
    /// Its earliest send time.
    SendTime = 2,
    /// Another part of the scheduler dropped a packet.
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
    /// Minimum, in its unit.
    pub min: u64,
    /// Maximum, in its unit.
    pub most: u64,
    /// Default.
    pub standard: u64,
}

/// A policy as described in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its number in this build; custom policies have those from [`Policy::CUSTOM`] on.
    pub id: u32,
    /// As in trees and on the command line.
    pub name: String,
    /// One line.
    pub about: String,
    /// Paper or RFC.
    pub source: String,
    /// The entries that it can rank.
    pub over: Vec<Over>,
    /// The default of these.
    pub usual: Over,
    /// The bits `WANTS_*`.
    pub wants: u32,
    /// Bytes of state: of a flow or child, of a node (with parameters), of the policy.
    pub state_bytes: [u32; 3],
    /// A `PifoKind`, buckets, shift of granularity and behaviour when full; zeros: the default.
    pub queue: [u32; 4],
    /// In the order of its enumeration.
    pub params: Vec<Param>,
    /// The functions that it has.
    pub functions: Vec<Function>,
}

/// A policy that runs outside the core: a custom policy, by its verified instructions.
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

    /// The same number for the same instructions. Their state continues where another scheduler
    /// [adopts](super::Scheduler::adopt) it, and is invalid for other policies.
    fn identity(&self) -> u64 {
        0
    }
}

/// An invalid description of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// Not the bytes of a `struct fp_policy`.
    #[error("its POLICY block has {0} bytes instead of {expected}; it was compiled for another version", expected = Policy::BYTES)]
    Size(usize),
    /// Another version.
    #[error("it was compiled for version {0} of policy.h, this is version {VERSION}")]
    Version(u32),
    /// A text that is empty, not terminated or not ASCII.
    #[error("{0} is not valid text")]
    Text(&'static str),
    /// A number that is out of range.
    #[error("{0}")]
    Range(String),
}

/// `FP_POLICY_VERSION`.
const VERSION: u32 = 1;
/// Maximum bytes of state of a flow, of a node with its parameters, of the policy.
const STATE_BYTES: [u32; 3] = [64, 128, 64];
/// The units that parameters may have.
const UNITS: [&str; 5] = ["", "ns", "bytes", "bps", "packets"];

impl Policy {
    /// The number of the first custom policy.
    pub const CUSTOM: u32 = 24;
    /// Numbers of custom policies.
    pub const CUSTOMS: usize = 8;
    /// Bytes of a `struct fp_policy` in the section `.fairpath.policy`.
    pub const BYTES: usize = size_of::<RawPolicy>();
    /// [`Policy::wants`]: number of waiting flows of its hosts.
    pub const WANTS_HOSTS: u32 = 1;
    /// [`Policy::wants`]: entries may be due.
    pub const WANTS_DUE: u32 = 2;
    /// [`Policy::wants`]: flows keep their turn after their last packet.
    pub const WANTS_EMPTY: u32 = 4;
    /// [`Policy::wants`]: entries become eligible in the node's own virtual time.
    pub const WANTS_ELIGIBLE: u32 = 8;
    /// All valid bits.
    pub const WANTS: u32 = 15;

    /// Reads the description of a policy.
    ///
    /// # Errors
    /// The problem.
    pub fn read(bytes: &[u8], id: u32, functions: &[Function]) -> Result<Policy, BadPolicy> {
        if bytes.len() != Policy::BYTES {
            return Err(BadPolicy::Size(bytes.len()));
        }
        // SAFETY: as many bytes as the structure, which consists of integers: any bytes are valid.
        let raw = unsafe { bytes.as_ptr().cast::<RawPolicy>().read_unaligned() };
        Policy::from_raw(&raw, id, functions)
    }

    fn from_raw(raw: &RawPolicy, id: u32, functions: &[Function]) -> Result<Policy, BadPolicy> {
        if raw.version != VERSION {
            return Err(BadPolicy::Version(raw.version));
        }
        let state_bytes = [raw.flow_bytes, raw.class_bytes, raw.global_bytes];
        for (what, (bytes, most)) in ["flow", "class", "global"]
            .iter()
            .zip(state_bytes.into_iter().zip(STATE_BYTES))
        {
            if bytes > most {
                let text = format!("struct {what} has {bytes} bytes, the maximum is {most}");
                return Err(BadPolicy::Range(text));
            }
        }
        let over: Vec<Over> = [Over::Packets, Over::Flows, Over::Children, Over::References]
            .into_iter()
            .filter(|over| raw.over >> *over as u32 & 1 == 1)
            .collect();
        let usual = over.iter().copied().find(|over| *over as u32 == raw.usual);
        let usual =
            usual.ok_or_else(|| BadPolicy::Range("its `usual` is not in its `over`".into()))?;
        let params = raw.params.iter().take_while(|param| param.name[0] != 0);
        Ok(Policy {
            id,
            name: text(&raw.name, "its name")?,
            about: text(&raw.about, "its description")?,
            source: text(&raw.source, "its source")?,
            over,
            usual,
            wants: raw.wants,
            state_bytes,
            queue: raw.queue,
            params: params.map(Param::from_raw).collect::<Result<_, _>>()?,
            functions: functions.to_vec(),
        })
    }

    /// Its parameter of this name, and the parameter's number.
    pub fn param(&self, name: &str) -> Option<(usize, &Param)> {
        let mut all = self.params.iter().enumerate();
        all.find(|(_, param)| param.name == name)
    }

    /// The default parameters in the form of the core.
    pub fn standards(&self) -> [u64; PARAMS] {
        let mut values = [0; PARAMS];
        for (value, param) in values.iter_mut().zip(&self.params) {
            *value = param.encode(param.standard);
        }
        values
    }
}

impl Param {
    fn from_raw(raw: &RawParam) -> Result<Param, BadPolicy> {
        let name = text(&raw.name, "a parameter's name")?;
        let unit = if raw.unit[0] == 0 {
            String::new()
        } else {
            text(&raw.unit, "a parameter's unit")?
        };
        if !UNITS.contains(&unit.as_str()) {
            return Err(BadPolicy::Range(format!(
                "parameter {name} has the unit {unit:?}, which is not one of {UNITS:?}"
            )));
        }
        if !(raw.min..=raw.most).contains(&raw.standard) {
            return Err(BadPolicy::Range(format!(
                "parameter {name}: the default {} is not between {} and {}",
                raw.standard, raw.min, raw.most
            )));
        }
        let about = text(&raw.about, "a parameter's description")?;
        Ok(Param {
            name,
            unit,
            about,
            min: raw.min,
            most: raw.most,
            standard: raw.standard,
        })
    }

    /// Converts a value in its unit to the form of the core: rates as nanoseconds per byte,
    /// shifted.
    pub fn encode(&self, value: u64) -> u64 {
        if self.unit == "bps" {
            encode_rate(value)
        } else {
            value
        }
    }
}

/// Converts bits per second to ns per byte << [`super::RATE_SHIFT`], rounded; 0 stays 0 (none).
pub fn encode_rate(bps: u64) -> u64 {
    if bps == 0 {
        return 0;
    }
    let ns = (8_000_000_000_u128 << super::RATE_SHIFT) + u128::from(bps) / 2;
    u64::try_from(ns / u128::from(bps))
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Converts the result of [`encode_rate`] to bits per second, rounded; 0 (none) stays 0.
///
/// ```
/// use fairpath_core::sched::{decode_rate, encode_rate};
/// assert_eq!(decode_rate(encode_rate(22_000_000)), 22_000_000);
/// assert_eq!(decode_rate(encode_rate(0)), 0);
/// ```
pub fn decode_rate(encoded: u64) -> u64 {
    if encoded == 0 {
        return 0;
    }
    let bits = (8_000_000_000_u128 << super::RATE_SHIFT) + u128::from(encoded) / 2;
    u64::try_from(bits / u128::from(encoded)).unwrap_or(u64::MAX)
}

fn text(bytes: &[u8], what: &'static str) -> Result<String, BadPolicy> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(BadPolicy::Text(what))?;
    let printable = bytes[..end].iter().all(|byte| (b' '..=b'~').contains(byte));
    if end == 0 || !printable {
        return Err(BadPolicy::Text(what));
    }
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The policies that are compiled in, by number.
pub fn policies() -> &'static [Policy] {
    static POLICIES: LazyLock<Vec<Policy>> =
        LazyLock::new(|| (1..Policy::CUSTOM).filter_map(shipped).collect());
    &POLICIES
}

fn shipped(number: u32) -> Option<Policy> {
    // SAFETY: any number may be queried for.
    let raw = unsafe { ffi::fp_native_policy(number) };
    // SAFETY: null, or a constant of the core.
    let raw = unsafe { raw.as_ref() }?;
    // SAFETY: any number may be queried for.
    let bits = unsafe { ffi::fp_native_policy_functions(number) };
    let all = [
        Function::RankEnqueue,
        Function::RankDequeue,
        Function::SendTime,
        Function::OnDrop,
    ];
    let functions: Vec<Function> = all
        .into_iter()
        .filter(|function| bits >> *function as u32 & 1 == 1)
        .collect();
    Some(
        Policy::from_raw(raw, number, &functions)
            .expect("shipped policies say what they are; a test reads them all"),
    )
}
