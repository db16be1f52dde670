//! The operations and outcomes of an instance's scheduler, for an operation log.
//!
//! An instance never waits for a file: it collects, hands over in batches, and ends the recording if
//! they are not accepted in time. The operations until then are a complete log.

use std::sync::mpsc::SyncSender;

use fairpath_core::sched::{Op, Outcome};
use fairpath_sched::log::Batch;

/// Operations that are handed over at once: about 200 kB.
const FULL: usize = 1024;

/// The instance's end of a recording. When dropped, it hands over the rest and closes the channel.
#[derive(Debug)]
pub struct Recorder {
    to: Option<SyncSender<Batch>>,
    gathered: Batch,
    left: u64,
}

impl Recorder {
    /// At most `most` operations into `to`.
    pub fn new(to: SyncSender<Batch>, most: u64) -> Recorder {
        Recorder {
            to: Some(to),
            gathered: Batch::default(),
            left: most,
        }
    }

    /// One call of the scheduler.
    pub(crate) fn take(&mut self, ops: &[Op], outcomes: &[Outcome]) {
        if self.to.is_none() || ops.is_empty() {
            return;
        }
        if ops.len() as u64 > self.left {
            return self.end();
        }
        self.left -= ops.len() as u64;
        let before = self.gathered.ops.len() as u32;
        self.gathered.ops.extend_from_slice(ops);
        let reported = outcomes.iter().map(|outcome| Outcome {
            op: outcome.op + before,
            ..*outcome
        });
        self.gathered.outcomes.extend(reported);
        if self.gathered.ops.len() >= FULL {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        if let Some(to) = &self.to
            && !gathered.ops.is_empty()
            && to.try_send(gathered).is_err()
        {
            self.to = None;
        }
    }

    fn end(&mut self) {
        self.hand_on();
        self.to = None;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use fairpath_core::sched::{Meta, OutcomeKind};

    use super::*;

    fn outcome(op: u32) -> Outcome {
        Outcome {
            op,
            kind: OutcomeKind::Queued,
            ..Outcome::default()
        }
    }

    fn ops(count: u64) -> Vec<Op> {
        let op = |now| Op::enqueue(now, 1, Meta::default());
        (0..count).map(op).collect()
    }

    #[test]
    fn calls_are_batched_and_flushed_at_the_end() {
        let (to, from) = sync_channel(4);
        let mut recorder = Recorder::new(to, u64::MAX);
        recorder.take(&ops(1000), &[outcome(999)]);
        assert!(from.try_recv().is_err());
        recorder.take(&ops(100), &[outcome(0), outcome(99)]);
        let batch = from.try_recv().unwrap();
        assert_eq!(batch.ops.len(), 1100);
        let places: Vec<u32> = batch.outcomes.iter().map(|outcome| outcome.op).collect();
        assert_eq!(places, [999, 1000, 1099]);
        recorder.take(&ops(5), &[]);
        drop(recorder);
        assert_eq!(from.iter().map(|batch| batch.ops.len()).sum::<usize>(), 5);
    }

    #[test]
    fn recording_ends_at_its_limit_or_without_reader() {
        let (to, from) = sync_channel(4);
        let mut recorder = Recorder::new(to, 12);
        for _ in 0..3 {
            recorder.take(&ops(5), &[]);
        }
        assert_eq!(from.iter().map(|batch| batch.ops.len()).sum::<usize>(), 10);
        let (to, from) = sync_channel(1);
        let mut recorder = Recorder::new(to, u64::MAX);
        for _ in 0..3 {
            recorder.take(&ops(FULL as u64), &[]);
        }
        assert_eq!(from.iter().count(), 1);
    }
}
