//! Times as people write them.

use std::time::Duration;

/// Reads `10`, `10s`, `1.5ms`, `5min`, `2h`: seconds where no unit is given.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    fairpath_units::quantity::read_duration(text).map_err(|bad| bad.to_string())
}

/// Whole nanoseconds; what does not fit is the greatest number.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
