//! The clocks of live monitoring.

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since 1970 by the real-time clock, which may be set at any time; 0 before 1970.
///
/// # Errors
/// The kernel refuses, which it does not.
pub fn unix_ns() -> anyhow::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).context("read the clock")?;
    let ns = i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec());
    Ok(u64::try_from(ns).unwrap_or(0))
}
