//! The clock of packets.

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of CLOCK_MONOTONIC, which is what the programs read.
///
/// # Errors
/// Where the kernel refuses, which it does not.
pub fn monotonic_ns() -> anyhow::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("read the clock")?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
