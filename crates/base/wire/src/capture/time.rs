//! Ticks of a capture interface to Unix nanoseconds, exactly.
//!
//! A tick is a power of ten or of two of a second (pcapng `if_tsresol`); finer ticks than a nanosecond are truncated, as
//! in tshark. Arithmetic is in 128 bits, so nothing wraps; what does not fit 64 bits of nanoseconds is `None`.

/// The duration of a tick, and the offset of the clock (pcapng `if_tsresol` and `if_tsoffset`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    tick: Tick,
    offset_s: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tick {
    /// This many nanoseconds.
    Nanos(u64),
    /// A nanosecond divided by this; `None` if too fine for 128 bits, so that every time is 0.
    Finer(Option<u128>),
    /// A second divided by two to the power of this.
    Binary(u32),
}

impl Clock {
    /// From the option bytes: the high bit of `tsresol` chooses two instead of ten as the base of the negative power.
    pub(super) fn new(tsresol: u8, offset_s: i64) -> Clock {
        let exponent = u32::from(tsresol & 0x7f);
        let tick = match (tsresol & 0x80 != 0, exponent) {
            (true, _) => Tick::Binary(exponent),
            (false, 0..=9) => Tick::Nanos(10_u64.pow(9 - exponent)),
            (false, _) => Tick::Finer(10_u128.checked_pow(exponent - 9)),
        };
        Clock { tick, offset_s }
    }

    /// Unix time in nanoseconds, or `None` before 1970 or after 2554.
    pub(super) fn unix_ns(self, ticks: u64) -> Option<u64> {
        let ns = match self.tick {
            Tick::Nanos(ns) => u128::from(ticks) * u128::from(ns),
            Tick::Finer(Some(divisor)) => u128::from(ticks) / divisor,
            Tick::Finer(None) => 0,
            Tick::Binary(exponent) => (u128::from(ticks) * 1_000_000_000) >> exponent,
        };
        if self.offset_s == 0 {
            return u64::try_from(ns).ok();
        }
        // At most 2^64 * 10^9, far below 2^127.
        let shifted = ns as i128 + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(shifted).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_is_exact_to_the_nanosecond() {
        assert_eq!(
            Clock::new(6, 0).unix_ns(1_700_000_000_123_456),
            Some(1_700_000_000_123_456_000)
        );
        assert_eq!(
            Clock::new(9, 0).unix_ns(1_700_000_000_123_456_789),
            Some(1_700_000_000_123_456_789)
        );
        assert_eq!(Clock::new(0, 0).unix_ns(7), Some(7_000_000_000));
        assert_eq!(Clock::new(12, 0).unix_ns(1_999), Some(1));
        assert_eq!(Clock::new(127, 0).unix_ns(u64::MAX), Some(0));
        assert_eq!(Clock::new(0x80, 0).unix_ns(3), Some(3_000_000_000));
        assert_eq!(Clock::new(0x80 | 32, 0).unix_ns(1 << 31), Some(500_000_000));
        assert_eq!(Clock::new(0xff, 0).unix_ns(u64::MAX), Some(0));
    }

    #[test]
    fn offset_has_both_signs_and_stops_at_1970() {
        assert_eq!(Clock::new(9, 2).unix_ns(1), Some(2_000_000_001));
        assert_eq!(Clock::new(9, -1).unix_ns(1_500_000_000), Some(500_000_000));
        assert_eq!(Clock::new(9, -2).unix_ns(1_500_000_000), None);
        assert_eq!(Clock::new(0, i64::MAX).unix_ns(u64::MAX), None);
        assert_eq!(Clock::new(6, 0).unix_ns(u64::MAX), None);
    }
}
