//! Time, interfaces and counts as types, and how people read them.
//!
//! Pure: no clock is read here. Every type is a thin wrapper whose unit is in its name.

mod count;
pub mod quantity;
mod repeat;
mod seed;
mod skip;
mod suggest;
pub mod text;

use std::fmt;

pub use count::counted;
pub use repeat::{Disturbed, RETRIES_LOG_ENV, repeat_disturbed, report_retry};
pub use seed::{Share, TEST_SEED_ENV, TEST_SHARE_ENV, test_seed, test_seeds};
pub use skip::{SKIP_LOG_ENV, skip_test};
pub use suggest::nearest;

/// A span or a point of time in nanoseconds (monotonic live, the capture's clock offline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);
    /// One millisecond.
    pub const MILLISECOND: Nanos = Nanos(1_000_000);
}

impl fmt::Display for Nanos {
    /// Three significant decimals in the largest unit that keeps the number at or above one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            ns @ 0..1_000 => format!("{ns} ns"),
            ns @ 1_000..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
            ns @ 1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
            ns => format!("{:.3} s", ns as f64 / 1e9),
        };
        f.pad(&text)
    }
}

/// A kernel interface index; 0 means none or unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_uses_its_largest_whole_unit() {
        assert_eq!(Nanos(999).to_string(), "999 ns");
        assert_eq!(Nanos(1_500).to_string(), "1.500 us");
        assert_eq!(Nanos(20_130_000).to_string(), "20.130 ms");
        assert_eq!(Nanos(2_000_000_000).to_string(), "2.000 s");
    }
}
