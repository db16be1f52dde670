//! Times with units.

use std::time::Duration;

/// Reads `10s`, `1.5ms`, `5m`, `2h`. A unit is required.
///
/// # Errors
/// The text is not a time.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    fairpath_units::quantity::read_duration(text).map_err(|bad| bad.to_string())
}

/// Whole nanoseconds, limited to the largest number.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
