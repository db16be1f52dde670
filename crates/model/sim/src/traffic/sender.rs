//! A sender that always has something to send and reacts to what becomes of it: additive increase,
//! multiplicative decrease, with slow start (RFC 5681 section 3.1), halving at most once a round.
//!
//! Absent: retransmission (a lost packet is lost), timeouts other than by having nothing on the way,
//! and delayed acknowledgements. It gives an AQM something to do; it is no model of TCP.

use std::collections::VecDeque;

/// The window that a sender begins with, packets (RFC 6928).
const FIRST_WINDOW: u32 = 10;
/// The window that a sender keeps (RFC 5681 section 3.1: the loss window is 1; fast recovery's 2).
const LEAST_WINDOW: u32 = 2;

/// The window and what is on its way.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    rtt_ns: u64,
    most: u32,
    reacts: bool,
    window: u32,
    /// Packets acknowledged since the window last grew.
    since: u32,
    threshold: u32,
    on_the_way: u32,
    /// One reaction a round: none before this time.
    deaf_until: u64,
    /// When acknowledgements come, and whether they tell of loss or a mark. In order.
    acks: VecDeque<(u64, bool)>,
    /// It is going to be asked to [`Sender::learn`].
    awaits: bool,
}

impl Sender {
    pub fn new(rtt_ns: u64, most: u32, reacts: bool) -> Sender {
        Sender {
            rtt_ns,
            most,
            reacts,
            window: if reacts { FIRST_WINDOW.min(most) } else { most },
            since: 0,
            threshold: most,
            on_the_way: 0,
            deaf_until: 0,
            acks: VecDeque::new(),
            awaits: true,
        }
    }

    /// How many packets may be sent now.
    pub fn room(&self) -> u32 {
        self.window.saturating_sub(self.on_the_way)
    }

    pub fn sends(&mut self) {
        self.on_the_way += 1;
    }

    /// A packet left the queue, or was dropped: the sender learns of it a round later. Gives when
    /// it will, if it does not wait for something already.
    pub fn left(&mut self, now: u64, bad: bool) -> Option<u64> {
        let at = now.saturating_add(self.rtt_ns);
        self.acks.push_back((at, bad));
        let wakes = (!self.awaits).then_some(at);
        self.awaits = true;
        wakes
    }

    /// Takes in what is known by `now`; gives when to look again: now, if it may send, or when more
    /// will be known.
    pub fn learn(&mut self, now: u64) -> Option<u64> {
        while let Some((at, bad)) = self.acks.front().copied().filter(|(at, _)| *at <= now) {
            self.acks.pop_front();
            self.on_the_way -= 1;
            if bad && self.reacts {
                self.shrink(at);
            } else if self.reacts {
                self.grow();
            }
        }
        let next = match self.room() {
            0 => self.acks.front().map(|(at, _)| *at),
            _ => Some(now),
        };
        self.awaits = next.is_some();
        next
    }

    fn shrink(&mut self, now: u64) {
        if now >= self.deaf_until {
            self.window = (self.window / 2).max(LEAST_WINDOW.min(self.most));
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
            self.window = (self.window + 1).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_a_round_until_a_loss_halves_it_once() {
        let mut sender = Sender::new(100, 1000, true);
        for round in 1..=3 {
            for _ in 0..sender.room() {
                sender.sends();
            }
            for _ in 0..sender.on_the_way {
                sender.left(round * 100, false);
            }
            sender.learn(round * 100 + 100);
        }
        assert_eq!(sender.room(), 80);
        for _ in 0..80 {
            sender.sends();
            sender.left(1000, true);
        }
        assert_eq!(sender.learn(1099), Some(1100));
        assert_eq!(sender.learn(1100), Some(1100));
        assert_eq!(sender.room(), 40, "eighty losses of one round are one");
    }

    #[test]
    fn a_sender_that_does_not_react_keeps_its_window() {
        let mut sender = Sender::new(100, 64, false);
        assert_eq!(sender.room(), 64);
        sender.sends();
        sender.left(0, true);
        sender.learn(100);
        assert_eq!(sender.room(), 64);
    }

    #[test]
    fn who_waits_for_nothing_is_woken_once_and_by_the_first_to_leave() {
        let mut sender = Sender::new(100, 2, false);
        sender.sends();
        sender.sends();
        assert_eq!(sender.learn(5), None);
        assert_eq!(sender.left(10, false), Some(110));
        assert_eq!(sender.left(20, false), None);
        assert_eq!(sender.learn(110), Some(110));
    }
}
