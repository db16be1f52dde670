//! Waiting for a condition with a deadline.

use std::time::{Duration, Instant};

/// Time between two checks of a condition: short relative to deadlines, long relative to the check.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Asks `condition` until it answers `Some`, for at most `deadline`.
///
/// The condition is asked at least once. Returns `None` when time is up.
pub fn wait_for<T>(deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
