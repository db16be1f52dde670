//! Time, interfaces and counts as types, and how people read them.
//!
//! Pure: no clock is read here. Every type is a thin wrapper whose unit is in its name.

mod count;
pub mod quantity;
mod repeat;
mod seed;
mod skip;
mod span;
mod suggest;
pub mod text;

use std::fmt;

pub use count::counted;
pub use repeat::{Disturbed, RETRIES_LOG_ENV, repeat_disturbed, report_retry};
pub use seed::{Share, TEST_SEED_ENV, TEST_SHARE_ENV, test_seed, test_seeds};
pub use skip::{SKIP_LOG_ENV, skip_test};
pub use span::span;
pub use suggest::nearest;

/// A span or a point of time in nanoseconds (monotonic live, the capture's clock offline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);
    /// One millisecond.
    pub const MILLISECOND: Nanos = Nanos(1_000_000);

    /// Appends the text of [`fmt::Display`]. O(length), without floating point.
    pub fn append(self, out: &mut Vec<u8>) {
        let (thousandth, unit): (u64, &[u8]) = match self.0 {
            ns @ 0..1_000 => {
                decimal(out, ns, 1);
                out.extend_from_slice(b" ns");
                return;
            }
            1_000..1_000_000 => (1, b" us"),
            1_000_000..1_000_000_000 => (1_000, b" ms"),
            _ => (1_000_000, b" s"),
        };
        let thousandths = self.0.saturating_add(thousandth / 2) / thousandth;
        decimal(out, thousandths / 1_000, 1);
        out.push(b'.');
        decimal(out, thousandths % 1_000, 3);
        out.extend_from_slice(unit);
    }
}

/// Appends a number of at least `digits` digits, with leading zeros. O(digits).
pub fn decimal(out: &mut Vec<u8>, number: u64, digits: usize) {
    const MOST: usize = 20;
    let mut text = [b'0'; MOST];
    let (mut left, mut begin) = (number, MOST);
    while left > 0 || MOST - begin < digits.min(MOST) {
        begin -= 1;
        text[begin] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    out.extend_from_slice(&text[begin..]);
}

impl fmt::Display for Nanos {
    /// Three significant decimals in the largest unit that keeps the number at or above one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(24);
        self.append(&mut text);
        f.pad(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
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

    #[test]
    fn a_span_is_rounded_to_three_decimals() {
        assert_eq!(Nanos(0).to_string(), "0 ns");
        assert_eq!(Nanos(1_000_499).to_string(), "1.000 ms");
        assert_eq!(Nanos(1_000_501).to_string(), "1.001 ms");
        assert_eq!(Nanos(999_999_999).to_string(), "1000.000 ms");
        assert_eq!(Nanos(u64::MAX).to_string(), "18446744073.709 s");
        assert_eq!(
            format!("{:>9}|{:<9}", Nanos(7), Nanos(7)),
            "     7 ns|7 ns     "
        );
    }
}
