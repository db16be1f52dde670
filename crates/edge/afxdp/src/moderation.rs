//! Moderation of wake-ups, as a NIC moderates its interrupts. Pure.
//!
//! ```text
//!   packets   | | | |  | | |  | | | |  |
//!   without   w w w w  w w w  w w w w  w      each wakes the thread, and interrupts another CPU
//!   with      w w   w      w      w    w      at most one in an interval, for all that came since
//! ```
//!
//! A wake-up takes longer than a packet, also for the CPU that receives. So after two wake-ups within
//! the interval, the thread sleeps for the rest of it, whatever arrives or is due. It does so while
//! each interval brings packets. Packets that are further apart wake it at once, each of them.

use fairpath_units::Nanos;

/// The minimum time from one wake-up to the next one, under load. By default there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moderation {
    interval: Nanos,
    /// The last wake-up.
    woke: Nanos,
    /// Wake-ups were closer than the interval.
    dense: bool,
    /// Packets were carried since the last wake-up.
    worked: bool,
}

impl Moderation {
    /// With this interval.
    pub fn new(interval: Nanos) -> Moderation {
        Moderation {
            interval,
            ..Moderation::default()
        }
    }

    /// Packets were carried.
    pub fn note_work(&mut self) {
        self.worked = true;
    }

    /// The time for which the thread must sleep at `now`, whatever arrives. `None`: it waits for packets.
    pub fn rest(&mut self, now: Nanos) -> Option<Nanos> {
        let worked = std::mem::take(&mut self.worked);
        let end = self.woke.0 + self.interval.0;
        let rest = Nanos(end.saturating_sub(now.0));
        (worked && self.dense && rest > Nanos(0)).then_some(rest)
    }

    /// The thread woke after [`Moderation::rest`].
    pub fn rested(&mut self, now: Nanos) {
        self.woke = now;
    }

    /// The thread woke for a packet or another event.
    pub fn woken(&mut self, now: Nanos) {
        self.dense = now.0 - self.woke.0.min(now.0) < self.interval.0;
        self.woke = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 50_000;

    /// Wake-ups for packets at `times`, those after a rest, and the longest wait of a packet in ns. A
    /// turn takes 500 ns.
    fn run(interval: u64, times: &[u64]) -> (u32, u32, u64) {
        let mut moderation = Moderation::new(Nanos(interval));
        let (mut now, mut next, mut longest) = (1_000_000, 0, 0);
        let (mut wakes, mut rests) = (0, 0);
        while next < times.len() {
            match moderation.rest(Nanos(now)) {
                Some(Nanos(rest)) => {
                    now += rest;
                    rests += 1;
                    moderation.rested(Nanos(now));
                }
                None => {
                    now = now.max(times[next]);
                    wakes += 1;
                    moderation.woken(Nanos(now));
                }
            }
            while next < times.len() && times[next] <= now {
                longest = longest.max(now - times[next]);
                next += 1;
                now += 500;
                moderation.note_work();
            }
        }
        (wakes, rests, longest)
    }

    /// A packet every `gap` ns for 100 ms, after a second.
    fn every(gap: u64) -> Vec<u64> {
        (0..100_000_000 / gap)
            .map(|i| 1_000_000_000 + i * gap)
            .collect()
    }

    #[test]
    fn dense_packets_wake_once_in_an_interval() {
        for gap in [2_000, 6_000, 20_000, 40_000] {
            let (wakes, rests, longest) = run(INTERVAL, &every(gap));
            assert!(wakes <= 3 && rests <= 2_001, "{gap}: {wakes} {rests}");
            assert!(longest <= INTERVAL, "{gap}: {longest}");
        }
        let (wakes, rests, longest) = run(0, &every(6_000));
        assert_eq!(
            (wakes as usize, rests, longest),
            (every(6_000).len(), 0, 0),
            "without moderation"
        );
    }

    #[test]
    fn sparse_packets_wait_for_nothing() {
        for gap in [51_000, 100_000, 20_000_000] {
            let (wakes, rests, longest) = run(INTERVAL, &every(gap));
            assert_eq!(
                (wakes as usize, rests, longest),
                (every(gap).len(), 0, 0),
                "{gap}"
            );
        }
    }

    #[test]
    fn one_rest_without_packets_ends_moderation() {
        let mut times = every(6_000);
        let last = *times.last().unwrap();
        times.push(last + 1_000_000_000);
        let (wakes, _, _) = run(INTERVAL, &times);
        assert!(wakes <= 4, "{wakes}");
        let mut moderation = Moderation::new(Nanos(INTERVAL));
        for now in [10, 20] {
            moderation.woken(Nanos(now));
            moderation.note_work();
        }
        assert_eq!(moderation.rest(Nanos(30)), Some(Nanos(INTERVAL - 10)));
        moderation.rested(Nanos(INTERVAL + 20));
        assert_eq!(moderation.rest(Nanos(INTERVAL + 25)), None);
    }
}
