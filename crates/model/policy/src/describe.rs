//! The description of a policy: `struct fp_policy`, out of the object's section of that name.
//!
//! The core reads the block, as it does for built-in policies. The errors here are specific to custom
//! policies: sizes in place of STATE, names that cannot be typed, a gap between parameters. All errors
//! are reported, not only the first.

use fairpath_core::sched::{BadPolicy, Function, PARAMS, Param, Policy};

use crate::elf::Numbers;

/// Of a node's state: its parameters.
const PARAM_BYTES: u32 = 8 * PARAMS as u32;
/// `struct fp_param`, at the end of the block.
const PARAM_SIZE: usize = 168;

/// The defect of the POLICY block. What to do about it follows the colon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It cannot be read at all.
    #[error("its POLICY block: {0}{remedy}", remedy = remedy(.0))]
    Block(#[from] BadPolicy),
    /// The name cannot be typed.
    #[error("{0} \"{1}\": a name is a small letter, then small letters, digits, _ and -")]
    Name(&'static str, String),
    /// Unknown wishes.
    #[error(".wants = {0:#x}: there are WANTS_HOSTS, WANTS_DUE, WANTS_EMPTY and WANTS_ELIGIBLE")]
    Wants(u32),
    /// The block differs from the structure.
    #[error(
        "struct {0} has {1} bytes and POLICY has {2}: begin it with STATE, and do not set .{0}_bytes"
    )]
    Claimed(&'static str, u32, u32),
    /// The node's structure does not begin with its parameters.
    #[error("struct class has {0} bytes: begin it with PARAMS; which take {PARAM_BYTES}")]
    NoParams(u32),
    /// Twice the same.
    #[error("parameter {0} is there twice: rename one")]
    Twice(String),
    /// A parameter behind an empty one.
    #[error("parameter [{0}] has no name: number them from [0], without gaps")]
    Gap(usize),
    /// Ranks nothing, and its queue has an order.
    #[error(
        "it has no RANK_ENQUEUE: return 0 there for first in, first out, \
         or choose a queue of one band (.queue = {{ .kind = FP_BANDS, .buckets = 1 }})"
    )]
    NoRank,
}

fn remedy(bad: &BadPolicy) -> &'static str {
    match bad {
        BadPolicy::Text(_) => ": .name, .about and .source are of letters, and there",
        BadPolicy::Size(_) | BadPolicy::Version(_) => ": compile it with this fairpath's headers",
        BadPolicy::Range(_) => "",
    }
}

/// Kind and buckets of a queue in which all ranks are equal: one band (`FP_BANDS`).
const ONE_BAND: [u32; 2] = [2, 1];

/// Reads the block. `sizes` are those of flow, class and global that the compiler reports, if any.
pub(super) fn describe(
    block: &[u8],
    sizes: Option<[u32; 3]>,
    functions: &[Function],
) -> Result<Policy, Vec<Defect>> {
    let policy = Policy::read(block, Policy::CUSTOM, functions).map_err(|bad| vec![bad.into()])?;
    let mut defects = Vec::new();
    if !is_name(&policy.name) {
        defects.push(Defect::Name(".name", policy.name.clone()));
    }
    if policy.wants & !Policy::WANTS != 0 {
        defects.push(Defect::Wants(policy.wants));
    }
    let one_band = policy.queue[..2] == ONE_BAND;
    if !functions.contains(&Function::RankEnqueue) && !one_band {
        defects.push(Defect::NoRank);
    }
    check_sizes(policy.state_bytes, sizes, &mut defects);
    check_params(&policy.params, &mut defects);
    let table = &block[block.len().saturating_sub(PARAMS * PARAM_SIZE)..];
    let mut rest = table.chunks_exact(PARAM_SIZE).skip(policy.params.len());
    if rest.any(|param| param.iter().any(|byte| *byte != 0)) {
        defects.push(Defect::Gap(policy.params.len()));
    }
    if defects.is_empty() {
        Ok(policy)
    } else {
        Err(defects)
    }
}

/// A name as trees, command lines and file names can have it.
pub fn is_name(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    name.len() <= 23 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(rest)
}

fn check_sizes(claimed: [u32; 3], sizes: Option<[u32; 3]>, defects: &mut Vec<Defect>) {
    let sizes = sizes.unwrap_or(claimed);
    for (name, (size, claimed)) in ["flow", "class", "global"]
        .iter()
        .zip(sizes.iter().zip(claimed))
    {
        if *size != claimed {
            defects.push(Defect::Claimed(name, *size, claimed));
        }
    }
    if sizes[1] < PARAM_BYTES {
        defects.push(Defect::NoParams(sizes[1]));
    }
}

fn check_params(params: &[Param], defects: &mut Vec<Defect>) {
    for (i, param) in params.iter().enumerate() {
        if !is_name(&param.name) {
            defects.push(Defect::Name("parameter", param.name.clone()));
        }
        if params[..i].iter().any(|other| other.name == param.name) {
            defects.push(Defect::Twice(param.name.clone()));
        }
    }
}

/// The structures' sizes as the compiler has them.
pub(super) fn sizes(section: &[u8]) -> Option<[u32; 3]> {
    Some([section.u32_at(0)?, section.u32_at(4)?, section.u32_at(8)?])
}
