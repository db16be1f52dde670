//! Bytes that the network stack sent on the link of a shaper instance, which could not delay them.
//!
//! ```text
//! counter of the back end --> sent --+--> carried      while the shaper instance had nothing to send
//!                                    +--> charged      as packets of the class `stack`, with its share
//!                                    '--> not charged  beyond the maximum debt
//! ```
//!
//! Invariants: `sent = carried + charged + not_charged`, and the debt is at most [`Debt::limit`]. So
//! subscribers wait for [`STACK_DEBT_NS`] of the link rate at most, however much the stack sent. The share
//! of the class is the floor of its node ([`fairpath_sched::tree::STACK_SHARE`]).

use std::time::Duration;

/// The maximum debt, in time of the link.
pub const STACK_DEBT_NS: u64 = 10_000_000;
/// At low rates the debt may be two full frames.
const MIN_DEBT: u64 = 2 * FRAME;
/// A full frame without its checksum: a smaller charge would be finer than the packets next to it.
const FRAME: u64 = 1514;
/// Charges that a debt is divided into, so that packets may leave between them.
const PARTS: u64 = 32;
/// The most that one charge stands for.
const MOST: u64 = 16_384;
const SECOND: u128 = 1_000_000_000;

/// Traffic of the stack on one link, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounts {
    /// Bytes that it sent.
    pub sent: u64,
    /// Of them, bytes that were not charged, because the debt was at its limit.
    pub not_charged: u64,
    /// Bytes that wait to be charged: the present debt.
    pub debt: u64,
    /// The present debt, in time of the link.
    pub debt_ns: u64,
}

impl StackCounts {
    /// Adds those of another instance on the same link.
    pub fn add(&mut self, other: &StackCounts) {
        self.sent += other.sent;
        self.not_charged += other.not_charged;
        self.debt += other.debt;
        self.debt_ns += other.debt_ns;
    }
}

/// What the stack sent on one link, and what of it is charged.
#[derive(Clone, Debug)]
pub struct Debt {
    /// The link rate; 0 is none.
    bps: u64,
    counter: Option<u64>,
    /// The last reading.
    read: u64,
    owed: u64,
    sent: u64,
    not_charged: u64,
}

impl Debt {
    /// Of a link of this rate, bits per second.
    pub fn new(bps: u64) -> Debt {
        Debt {
            bps,
            counter: None,
            read: 0,
            owed: 0,
            sent: 0,
            not_charged: 0,
        }
    }

    /// Another link rate. A greater debt than its limit is forgiven as it is charged.
    pub fn set_rate(&mut self, bps: u64) {
        self.bps = bps;
    }

    /// Whatever was sent before is not charged: the next reading is the base of the counter.
    pub fn pause(&mut self) {
        self.counter = None;
    }

    /// The maximum debt, bytes.
    pub fn limit(&self) -> u64 {
        match self.bps {
            // A link without a rate is not limited, and charges leave it at once.
            0 => MIN_DEBT,
            _ => self.bytes_in(STACK_DEBT_NS).max(MIN_DEBT),
        }
    }

    /// The most that one charge stands for, bytes.
    pub fn part(&self) -> u64 {
        (self.limit() / PARTS).clamp(FRAME, MOST)
    }

    /// The counter of the stack's bytes is `counter` at `now`. Returns the bytes to charge.
    ///
    /// The first reading is the base. A counter that goes backwards was reset, and is a base too.
    pub fn take(&mut self, now: u64, counter: u64) -> u64 {
        let before = self.counter.replace(counter);
        let silent = now.saturating_sub(self.read);
        self.read = now;
        let Some(before) = before else { return 0 };
        let more = counter.wrapping_sub(before);
        if more > u64::MAX / 2 {
            return 0;
        }
        self.sent = self.sent.saturating_add(more);
        // A shaper instance with packets reads much more often: the link was free for the stack.
        let carried = match silent > STACK_DEBT_NS {
            true => self.bytes_in(silent),
            false => 0,
        };
        let rest = if self.bps == 0 {
            0
        } else {
            more.saturating_sub(carried)
        };
        let charged = rest.min(self.limit().saturating_sub(self.owed));
        self.owed += charged;
        self.not_charged = self.not_charged.saturating_add(rest - charged);
        charged
    }

    /// Of the debt, `bytes` left the shaper instance.
    pub fn pay(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// What was counted.
    pub fn counts(&self) -> StackCounts {
        let ns = match self.bps {
            0 => 0,
            bps => u128::from(self.owed) * 8 * SECOND / u128::from(bps),
        };
        StackCounts {
            sent: self.sent,
            not_charged: self.not_charged,
            debt: self.owed,
            debt_ns: u64::try_from(ns).unwrap_or(u64::MAX),
        }
    }

    /// Bytes that the link carries in `ns`.
    fn bytes_in(&self, ns: u64) -> u64 {
        let bytes = u128::from(self.bps) * u128::from(ns) / (8 * SECOND);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Whether the stack takes the link: [`fairpath_sched::tree::STACK_SHARE`] of its rate or more, for
/// [`StackAlarm::AFTER`].
#[derive(Clone, Copy, Debug, Default)]
pub struct StackAlarm {
    over: Duration,
    raised: bool,
}

impl StackAlarm {
    /// The time above the share that is reported.
    pub const AFTER: Duration = Duration::from_secs(3);

    /// The stack sent at `stack_bps` for the last `time`. Returns whether to warn: once, until its rate
    /// is below the share again.
    pub fn take(&mut self, stack_bps: f64, link_bps: u64, time: Duration) -> bool {
        let share = link_bps as f64 / fairpath_sched::tree::STACK_SHARE as f64;
        if link_bps == 0 || stack_bps < share {
            *self = StackAlarm::default();
            return false;
        }
        self.over += time;
        let warn = self.over >= StackAlarm::AFTER && !self.raised;
        self.raised |= warn;
        warn
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const RATES: [u64; 5] = [
        1_000_000,
        19_000_000,
        500_000_000,
        1_000_000_000,
        10_000_000_000,
    ];

    /// A debt whose base is `counter`.
    fn debt(bps: u64, counter: u64) -> Debt {
        let mut debt = Debt::new(bps);
        assert_eq!(debt.take(0, counter), 0);
        debt
    }

    #[test]
    fn debt_is_bounded_in_time_at_every_rate() {
        for bps in RATES {
            let mut debt = debt(bps, 0);
            let charged = debt.take(MS, u64::MAX / 2);
            let counts = debt.counts();
            assert_eq!((charged, counts.debt), (debt.limit(), debt.limit()));
            assert_eq!(counts.sent - counts.not_charged, charged, "{bps}");
            // Two full frames take 24 ms of 1 Mbit/s.
            assert!(
                counts.debt_ns <= STACK_DEBT_NS.max(MIN_DEBT * 8 * 1000),
                "{bps}"
            );
        }
    }

    #[test]
    fn a_debt_at_its_limit_takes_no_more() {
        let mut debt = debt(8_000_000, 0);
        assert_eq!(debt.limit(), 10_000);
        assert_eq!(debt.take(MS, 9_999), 9_999);
        assert_eq!(debt.take(MS, 10_000), 1);
        assert_eq!(debt.take(MS, 10_001), 0);
        assert_eq!(debt.counts().not_charged, 1);
        debt.pay(1_000);
        assert_eq!(debt.take(MS, 12_001), 1_000);
        assert_eq!(debt.counts().not_charged, 1_001);
    }

    #[test]
    fn bytes_before_the_first_reading_are_not_charged() {
        let mut debt = debt(8_000_000, 1 << 40);
        assert_eq!(debt.take(MS, (1 << 40) + 100), 100);
        debt.pause();
        assert_eq!(debt.take(2 * MS, 1 << 50), 0);
        assert_eq!(debt.take(3 * MS, (1 << 50) + 100), 100);
        assert_eq!((debt.counts().sent, debt.counts().not_charged), (200, 0));
    }

    #[test]
    fn counters_wrap_and_are_reset() {
        let mut wraps = debt(8_000_000, u64::MAX - 99);
        assert_eq!(wraps.take(MS, 100), 200);
        let mut reset = debt(8_000_000, 1 << 40);
        assert_eq!(reset.take(MS, 500), 0);
        assert_eq!(reset.take(2 * MS, 700), 200);
        assert_eq!(reset.counts().sent, 200);
    }

    #[test]
    fn an_hour_of_silence_leaves_no_debt() {
        for bps in RATES {
            let hour = 3_600_000 * MS;
            let could = bps / 8 * 3600;
            let mut idle = debt(bps, 0);
            assert_eq!(idle.take(hour, could), 0, "{bps}");
            assert_eq!(idle.counts().not_charged, 0);
            let mut above = debt(bps, 0);
            assert_eq!(above.take(hour, 2 * could), above.limit());
            assert_eq!(above.counts().not_charged, could - above.limit());
        }
        assert_eq!(debt(10_000_000_000, 0).take(u64::MAX, u64::MAX / 2), 0);
    }

    #[test]
    fn a_link_without_a_rate_owes_nothing() {
        let mut debt = debt(0, 0);
        assert_eq!(debt.take(MS, 1 << 40), 0);
        let expected = StackCounts {
            sent: 1 << 40,
            ..StackCounts::default()
        };
        assert_eq!(debt.counts(), expected);
    }

    #[test]
    fn a_lower_rate_pays_the_debt_first() {
        let mut debt = debt(80_000_000, 0);
        assert_eq!(debt.take(MS, 100_000), 100_000);
        debt.set_rate(8_000_000);
        assert_eq!(debt.take(2 * MS, 200_000), 0);
        debt.pay(95_000);
        assert_eq!(debt.take(3 * MS, 300_000), 5_000);
    }

    #[test]
    fn a_warning_needs_seconds_and_comes_once() {
        let mut alarm = StackAlarm::default();
        let mut take = |bps: f64| alarm.take(bps, 100_000_000, Duration::from_secs(1));
        assert_eq!(
            [50e6, 50e6, 50e6, 90e6].map(&mut take),
            [false, false, true, false]
        );
        assert_eq!(
            [49e6, 60e6, 60e6, 60e6].map(&mut take),
            [false, false, false, true]
        );
        assert_eq!([0.0, 60e6, 60e6, 10.0].map(&mut take), [false; 4]);
        assert!(!alarm.take(1e9, 0, Duration::from_secs(100)), "no rate");
    }

    proptest! {
        #[test]
        fn sent_is_carried_charged_or_not_charged(
            bps in prop::sample::select(RATES.to_vec()),
            steps in prop::collection::vec((0u64..40 * MS, 0u64..3_000_000, 0u64..100_000), 1..200),
        ) {
            let (mut debt, mut now, mut counter, mut charged) = (debt(bps, 0), 0, 0u64, 0u64);
            let mut free = 0u64;
            for (wait, bytes, paid) in steps {
                now += wait;
                counter += bytes;
                charged += debt.take(now, counter);
                if wait > STACK_DEBT_NS {
                    free += (u128::from(bps) * u128::from(wait) / 8_000_000_000) as u64;
                }
                debt.pay(paid);
                let counts = debt.counts();
                prop_assert!(counts.debt <= debt.limit());
                prop_assert_eq!(counts.sent, counter);
                prop_assert!(charged + counts.not_charged <= counts.sent);
                // What is neither charged nor refused fits the time in which nothing else was sent.
                prop_assert!(counts.sent - charged - counts.not_charged <= free);
            }
        }
    }
}
