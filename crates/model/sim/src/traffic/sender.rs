//! A sender with unlimited data that reacts to loss and marks: additive increase, multiplicative
//! decrease and slow start (RFC 5681 section 3.1). It halves its window at most once per round trip.
//!
//! Absent: retransmissions, timeouts except with no packet in flight, and delayed acknowledgements. It
//! is load for an AQM and not a model of TCP.

use std::collections::VecDeque;

/// The initial window, packets (RFC 6928).
const FIRST_WINDOW: u32 = 10;
/// The minimum window (RFC 5681 section 3.1: the loss window is 1, and fast recovery uses 2).
const MIN_WINDOW: u32 = 2;

/// The window and the packets in flight.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    rtt_ns: u64,
    max_window: u32,
    reacts: bool,
    window: u32,
    /// Packets acknowledged since the window last grew.
    since: u32,
    threshold: u32,
    in_flight: u32,
    /// The earliest time of the next reaction, which limits reactions to one per round trip.
    deaf_until: u64,
    /// The arrival times of acknowledgements, in order, and whether they report loss or a mark.
    acks: VecDeque<(u64, bool)>,
    /// True if a call of [`Sender::learn`] is scheduled.
    awaits: bool,
}

impl Sender {
    pub fn new(rtt_ns: u64, max_window: u32, reacts: bool) -> Sender {
        Sender {
            rtt_ns,
            max_window,
            reacts,
            window: if reacts {
                FIRST_WINDOW.min(max_window)
            } else {
                max_window
            },
            since: 0,
            threshold: max_window,
            in_flight: 0,
            deaf_until: 0,
            acks: VecDeque::new(),
            awaits: true,
        }
    }

    /// The number of packets that may be sent now.
    pub fn capacity(&self) -> u32 {
        self.window.saturating_sub(self.in_flight)
    }

    pub fn sends(&mut self) {
        self.in_flight += 1;
    }

    /// A packet was sent or dropped. The sender reacts one round trip later. Returns that time if no
    /// call is scheduled.
    pub fn left(&mut self, now: u64, bad: bool) -> Option<u64> {
        let at = now.saturating_add(self.rtt_ns);
        self.acks.push_back((at, bad));
        let wakes = (!self.awaits).then_some(at);
        self.awaits = true;
        wakes
    }

    /// Processes the acknowledgements up to `now`. Returns the time of the next call: `now` if it may
    /// send, or the next acknowledgement.
    pub fn learn(&mut self, now: u64) -> Option<u64> {
        while let Some((at, bad)) = self.acks.front().copied().filter(|(at, _)| *at <= now) {
            self.acks.pop_front();
            self.in_flight -= 1;
            if bad && self.reacts {
                self.shrink(at);
            } else if self.reacts {
                self.grow();
            }
        }
        let next = match self.capacity() {
            0 => self.acks.front().map(|(at, _)| *at),
            _ => Some(now),
        };
        self.awaits = next.is_some();
        next
    }

    fn shrink(&mut self, now: u64) {
        if now >= self.deaf_until {
            self.window = (self.window / 2).max(MIN_WINDOW.min(self.max_window));
            self.threshold = self.window;
            self.since = 0;
            self.deaf_until = now + self.rtt_ns;
        }
    }

    fn grow(&mut self) {
        self.since += 1;
        let wanted = if self.window < self.threshold {
            1
        } else {
            self.window
        };
        if self.since >= wanted {
            self.since = 0;
            self.window = (self.window + 1).min(self.max_window);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_doubles_until_a_loss_halves_it() {
        let mut sender = Sender::new(100, 1000, true);
        for round in 1..=3 {
            for _ in 0..sender.capacity() {
                sender.sends();
            }
            for _ in 0..sender.in_flight {
                sender.left(round * 100, false);
            }
            sender.learn(round * 100 + 100);
        }
        assert_eq!(sender.capacity(), 80);
        for _ in 0..80 {
            sender.sends();
            sender.left(1000, true);
        }
        assert_eq!(sender.learn(1099), Some(1100));
        assert_eq!(sender.learn(1100), Some(1100));
        assert_eq!(sender.capacity(), 40, "eighty losses of one round are one");
    }

    #[test]
    fn non_reacting_sender_keeps_its_window() {
        let mut sender = Sender::new(100, 64, false);
        assert_eq!(sender.capacity(), 64);
        sender.sends();
        sender.left(0, true);
        sender.learn(100);
        assert_eq!(sender.capacity(), 64);
    }

    #[test]
    fn idle_sender_is_woken_once() {
        let mut sender = Sender::new(100, 2, false);
        sender.sends();
        sender.sends();
        assert_eq!(sender.learn(5), None);
        assert_eq!(sender.left(10, false), Some(110));
        assert_eq!(sender.left(20, false), None);
        assert_eq!(sender.learn(110), Some(110));
    }
}
