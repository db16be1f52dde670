//! Generated demand: which CPUs have packets of which class, and how many.
//!
//! A sender has packets of one class on one CPU. It sends at most a multiple of the class's rate, and has at most a
//! window of packets on the way. So it waits for a queue that is full, as TCP does, and it overloads no CPU by
//! packets that would be dropped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fairpath_statistics::Random;

/// Times the rate that a sender wants if it always has packets.
const ALWAYS: f64 = 2.0;
/// Times the rate of all senders together, by a power law.
const POWER_LAW: f64 = 1.3;
/// Times the rate that other CPUs have next to one that always has packets.
const RARE: f64 = 0.001;
/// The same next to a quarter of CPUs.
const RARE_NEXT_TO_QUARTER: f64 = 0.002;
/// A sender that was delayed makes up for this time, at most.
const CATCH_UP_NS: f64 = 10_000_000.0;
/// No sender: the packet is of a capture.
pub(super) const NO_SENDER: u32 = u32::MAX;

/// The demand of CPUs for the rate of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Every CPU always has packets.
    All,
    /// One CPU always has packets, and the others have 0.1 % of the rate each.
    One,
    /// A quarter of CPUs always has packets, and the others have 0.2 % of the rate each.
    Quarter,
    /// 1.3 times the rate by a power law: the second CPU has half of the first, the third a third.
    Zipf,
}

impl Demand {
    /// By CPU, the busiest first: the wanted part of the rate.
    pub fn shares(self, cpus: u32) -> Vec<f64> {
        let harmonic: f64 = (1..=cpus).map(|n| 1.0 / f64::from(n)).sum();
        let some = |always: u32, rare: f64| -> Vec<f64> {
            let share = |cpu| if cpu < always { ALWAYS } else { rare };
            (0..cpus).map(share).collect()
        };
        match self {
            Demand::All => some(cpus, 0.0),
            Demand::One => some(1, RARE),
            Demand::Quarter => some(cpus.div_ceil(4), RARE_NEXT_TO_QUARTER),
            Demand::Zipf => (1..=cpus)
                .map(|n| POWER_LAW / harmonic / f64::from(n))
                .collect(),
        }
    }
}

/// A sender of one class on one CPU.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// Index of the direction.
    pub side: u32,
    /// The number of its class.
    pub class_id: u32,
    /// The leaf of its packets.
    pub leaf: u32,
    /// The hash of its flow.
    pub flow_hash: u32,
    /// Packets on the way, at most.
    pub window: u32,
    interval_ns: f64,
    next: f64,
    flying: u32,
}

impl Sender {
    /// Packets of a class every `interval_ns`, from a random part of the first interval on.
    pub fn new(
        [side, class_id, leaf]: [u32; 3],
        interval_ns: f64,
        window: u32,
        start: u64,
        random: &mut Random,
    ) -> Sender {
        Sender {
            side,
            class_id,
            leaf,
            flow_hash: random.draw() as u32 | 1,
            window,
            interval_ns,
            next: start as f64 + interval_ns * random.unit(),
            flying: 0,
        }
    }
}

/// The senders of a CPU.
#[derive(Debug, Default)]
pub(super) struct Senders {
    all: Vec<Sender>,
    /// Those whose window is not full, by the time of their next packet.
    due: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Senders {
    /// Adds one.
    pub fn add(&mut self, sender: Sender) {
        self.due
            .push(Reverse((sender.next as u64, self.all.len() as u32)));
        self.all.push(sender);
    }

    /// Packets that are on the way at once, at most.
    pub fn most_packets(&self) -> u32 {
        self.all.iter().map(|sender| sender.window).sum()
    }

    /// Bytes of some senders.
    pub fn bytes(senders: u32) -> u64 {
        let each = size_of::<Sender>() + size_of::<Reverse<(u64, u32)>>();
        each as u64 * u64::from(senders)
    }

    /// Their number.
    pub fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// The time of the next packet.
    pub fn next_time(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next packet that is there at `now`: its time, its sender, and the number of that.
    pub fn take(&mut self, now: u64) -> Option<(u64, &Sender, u32)> {
        let (at, number) = pop_if_due(&mut self.due, now)?;
        let sender = &mut self.all[number as usize];
        sender.next = (sender.next + sender.interval_ns).max(at as f64 - CATCH_UP_NS);
        sender.flying += 1;
        if sender.flying < sender.window {
            // Times do not go back: a packet is there at the earliest when the one before it is.
            self.due
                .push(Reverse(((sender.next as u64).max(at), number)));
        }
        Some((at, sender, number))
    }

    /// A packet of a sender left or was dropped.
    pub fn release(&mut self, number: u32, now: u64) {
        let Some(sender) = self.all.get_mut(number as usize) else {
            return;
        };
        if sender.flying == sender.window {
            self.due
                .push(Reverse(((sender.next as u64).max(now), number)));
        }
        sender.flying -= 1;
    }
}

/// The first of a queue by time, if it is due.
fn pop_if_due(queue: &mut BinaryHeap<Reverse<(u64, u32)>>, now: u64) -> Option<(u64, u32)> {
    let due = queue.peek().is_some_and(|Reverse((at, _))| *at <= now);
    let first = if due { queue.pop() } else { None };
    first.map(|Reverse(first)| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_have_their_documented_sums() {
        let sum = |demand: Demand| demand.shares(64).iter().sum::<f64>();
        let near = |is: f64, expected: f64| assert!((is - expected).abs() < 1e-9, "{is}");
        near(sum(Demand::All), 128.0);
        near(sum(Demand::One), 2.0 + 63.0 * 0.001);
        near(sum(Demand::Quarter), 32.0 + 48.0 * 0.002);
        near(sum(Demand::Zipf), 1.3);
        for cpus in [1, 2, 512] {
            assert_eq!(Demand::Zipf.shares(cpus).len(), cpus as usize);
        }
    }

    #[test]
    fn a_full_window_stops_its_sender() {
        let mut senders = Senders::default();
        senders.add(Sender::new([0, 1, 2], 10.0, 2, 0, &mut Random::new(1)));
        let later = 1_000;
        assert!(senders.take(later).is_some() && senders.take(later).is_some());
        assert!(senders.take(later).is_none());
        assert_eq!(senders.next_time(), None);
        senders.release(0, later);
        assert_eq!(senders.next_time(), Some(later));
        assert!(senders.take(later).is_some() && senders.take(later).is_none());
    }
}
