//! The effect of a wire on one direction of traffic: a pure engine with time as an argument.
//!
//! Frames wait in a heap ordered by release time, then by arrival. A frame without reordering never
//! leaves before an earlier one, even if the arrival clock stepped between CPUs. Loss is decided first and
//! from two draws a frame, so which frames are lost depends on seed, rate and position only.

use fairpath_statistics::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Most frames that wait in one direction: 10 s of 6,500 packets a second, or 100 MB of full frames.
pub(super) const QUEUE_LIMIT_FRAMES: usize = 65_536;

/// Most buffers kept for reuse.
const SPARE_LIMIT_FRAMES: usize = 1024;

/// The impairment of frames in one direction; the default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Added delay of every frame.
    pub delay: Duration,
    /// Probability that a frame is lost, independent of all others.
    pub loss: f64,
    /// Probability that a frame that is not lost arrives twice.
    pub duplicate: f64,
    /// Frames that were delayed, so that later ones leave first.
    pub reorder: Option<Reorder>,
    /// Seed of the losses and duplicates.
    pub seed: u64,
}

impl Impairment {
    /// A delay and nothing else.
    pub fn delay(delay: Duration) -> Impairment {
        Impairment {
            delay,
            ..Impairment::default()
        }
    }

    /// Adds Bernoulli loss.
    #[must_use]
    pub fn with_loss(mut self, probability: f64, seed: u64) -> Impairment {
        self.loss = probability;
        self.seed = seed;
        self
    }

    /// Adds duplication.
    #[must_use]
    pub fn with_duplicates(mut self, probability: f64) -> Impairment {
        self.duplicate = probability;
        self
    }

    /// Adds reordering: every `every`-th frame that is not lost waits `hold` longer.
    #[must_use]
    pub fn with_reorder(mut self, every: u64, hold: Duration) -> Impairment {
        self.reorder = Some(Reorder { every, hold });
        self
    }
}

/// Every n-th frame is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Which frames: every n-th; 0 means none.
    pub every: u64,
    /// The additional waiting time.
    pub hold: Duration,
}

/// The outcome of an offered frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Queued,
    Duplicated,
    Delayed,
    Lost,
    QueueFull,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    release_ns: u64,
    position: u64,
    frame: Vec<u8>,
}

/// The frames in flight in one direction.
#[derive(Debug)]
pub(super) struct Engine {
    impairment: Impairment,
    draws: Random,
    waiting: BinaryHeap<Reverse<Waiting>>,
    spare: Vec<Vec<u8>>,
    position: u64,
    survivors: u64,
    latest_ns: u64,
}

impl Engine {
    pub(super) fn new(impairment: Impairment) -> Engine {
        Engine {
            draws: Random::new(impairment.seed),
            impairment,
            waiting: BinaryHeap::new(),
            spare: Vec::new(),
            position: 0,
            survivors: 0,
            latest_ns: 0,
        }
    }

    /// Changes what happens to later frames; frames under way keep their release time.
    ///
    /// Draws and the count for reordering restart. Later frames are still not reordered.
    pub(super) fn change(&mut self, impairment: Impairment) {
        self.draws = Random::new(impairment.seed);
        self.survivors = 0;
        self.impairment = impairment;
    }

    /// Takes a frame that arrived at `arrival_ns`. O(log n).
    pub(super) fn offer(&mut self, arrival_ns: u64, frame: &[u8]) -> Outcome {
        let lost = self.draws.happens(self.impairment.loss);
        let twice = self.draws.happens(self.impairment.duplicate);
        if lost {
            return Outcome::Lost;
        }
        if self.waiting.len() + usize::from(twice) >= QUEUE_LIMIT_FRAMES {
            return Outcome::QueueFull;
        }
        self.survivors += 1;
        let held = self.hold_of(self.survivors);
        let due = arrival_ns + nanos(self.impairment.delay);
        if let Some(hold) = held {
            self.push(due + nanos(hold), frame);
            return Outcome::Delayed;
        }
        self.latest_ns = self.latest_ns.max(due);
        self.push(self.latest_ns, frame);
        if twice {
            self.push(self.latest_ns, frame);
            return Outcome::Duplicated;
        }
        Outcome::Queued
    }

    /// When the next frame is due.
    pub(super) fn next_event(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse(next)| next.release_ns)
    }

    /// Removes the earliest frame that is due at `now_ns`, with its release time.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<(u64, Vec<u8>)> {
        if self.next_event()? > now_ns {
            return None;
        }
        self.waiting
            .pop()
            .map(|Reverse(next)| (next.release_ns, next.frame))
    }

    /// Gives a buffer back for reuse.
    pub(super) fn recycle(&mut self, mut frame: Vec<u8>) {
        if self.spare.len() < SPARE_LIMIT_FRAMES {
            frame.clear();
            self.spare.push(frame);
        }
    }

    /// Frames under way.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn hold_of(&self, nth: u64) -> Option<Duration> {
        let reorder = self.impairment.reorder?;
        (reorder.every > 0 && nth.is_multiple_of(reorder.every)).then_some(reorder.hold)
    }

    fn push(&mut self, release_ns: u64, frame: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(frame);
        let position = self.position;
        self.position += 1;
        self.waiting.push(Reverse(Waiting {
            release_ns,
            position,
            frame: copy,
        }));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Offers frames 0..count at the same instant and returns them in order of release.
    fn order(impairment: Impairment, count: u8) -> Vec<u8> {
        let mut engine = Engine::new(impairment);
        for frame in 0..count {
            engine.offer(1_000, &[frame]);
        }
        std::iter::from_fn(|| engine.take_due(u64::MAX))
            .map(|(_, frame)| frame[0])
            .collect()
    }

    #[test]
    fn frame_is_released_after_delay_and_not_before() {
        let mut engine = Engine::new(Impairment::delay(ms(10)));
        assert_eq!(engine.offer(5, b"x"), Outcome::Queued);
        assert_eq!(engine.next_event(), Some(10_000_005));
        assert_eq!(engine.take_due(10_000_004), None);
        assert_eq!(
            engine.take_due(10_000_005),
            Some((10_000_005, b"x".to_vec()))
        );
    }

    #[test]
    fn frames_keep_order_when_the_clock_steps_back() {
        let mut engine = Engine::new(Impairment::default());
        engine.offer(100, b"a");
        engine.offer(90, b"b");
        assert_eq!(engine.take_due(100), Some((100, b"a".to_vec())));
        assert_eq!(engine.take_due(100), Some((100, b"b".to_vec())));
    }

    #[test]
    fn every_third_frame_is_reordered() {
        let held = Impairment::default().with_reorder(3, ms(1));
        assert_eq!(order(held, 7), [0, 1, 3, 4, 6, 2, 5]);
    }

    #[test]
    fn losses_follow_the_seed_and_the_rate() {
        let lost = |seed| {
            let mut engine = Engine::new(Impairment::default().with_loss(0.1, seed));
            (0..10_000)
                .map(|_| engine.offer(0, b"") == Outcome::Lost)
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(8));
        let count = lost(7).into_iter().filter(|lost| *lost).count();
        // 10,000 draws at 0.1: standard deviation 30; five of them.
        assert!((850..=1150).contains(&count), "{count}");
    }

    #[test]
    fn duplication_does_not_change_the_lost_frames() {
        let lost = |duplicate| {
            let plain = Impairment::default()
                .with_loss(0.3, 1)
                .with_duplicates(duplicate);
            let mut engine = Engine::new(plain);
            (0..100)
                .map(|_| engine.offer(0, b"") == Outcome::Lost)
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(0.0), lost(1.0));
    }

    #[test]
    fn a_duplicate_follows_its_original() {
        assert_eq!(
            order(Impairment::default().with_duplicates(1.0), 2),
            [0, 0, 1, 1]
        );
    }

    #[test]
    fn full_queue_refuses_and_keeps_what_it_has() {
        let mut engine = Engine::new(Impairment::delay(ms(1)));
        for _ in 0..QUEUE_LIMIT_FRAMES {
            assert_eq!(engine.offer(0, b""), Outcome::Queued);
        }
        assert_eq!(engine.offer(0, b""), Outcome::QueueFull);
        assert_eq!(engine.len(), QUEUE_LIMIT_FRAMES);
    }
}
