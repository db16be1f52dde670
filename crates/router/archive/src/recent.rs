//! The last minutes by interval, in memory.

use std::collections::VecDeque;

use fairpath_history::history::{Counts, Effort, IntervalCounts, encode};

/// Time of which intervals are kept, nanoseconds.
pub const RECENT_NS: u64 = 300_000_000_000;
/// Maximum size of all intervals in memory, bytes. With more active rows, fewer intervals are kept.
pub const MAX_RECENT_BYTES: usize = 24 << 20;

/// An interval, compressed.
#[derive(Debug)]
pub struct Interval {
    /// The slice that contains it.
    pub slice: i64,
    /// Unix time of its begin, nanoseconds.
    pub unix_ns: u64,
    /// Its length, nanoseconds.
    pub length_ns: u64,
    /// The counts by number of the row.
    pub block: Vec<u8>,
}

/// Intervals of whole slices.
#[derive(Debug, Default)]
pub struct Recent {
    intervals: VecDeque<Interval>,
    bytes: usize,
    measured_ns: u64,
    /// The last slice that was removed: the rest of it is not added.
    removed: i64,
}

impl Recent {
    /// Adds an interval, and removes the slices that are too old.
    pub fn push(&mut self, slice: i64, interval: &IntervalCounts, rows: &[(u64, Counts)]) {
        if slice == self.removed {
            return;
        }
        let block = encode(rows, Effort::Fast);
        self.bytes += block.len();
        self.measured_ns += interval.length_ns;
        self.intervals.push_back(Interval {
            slice,
            unix_ns: interval.unix_ns,
            length_ns: interval.length_ns,
            block,
        });
        while let Some(oldest) = self.intervals.front()
            && (self.measured_ns > RECENT_NS || self.bytes > MAX_RECENT_BYTES)
        {
            // The open slice is complete in the file or in memory anyway.
            let slice = oldest.slice;
            self.removed = slice;
            let of_slice = |first: &&Interval| first.slice == slice;
            let count = self.intervals.iter().take_while(of_slice).count();
            for first in self.intervals.drain(..count) {
                self.bytes -= first.block.len();
                self.measured_ns -= first.length_ns;
            }
        }
    }

    /// The first slice whose intervals are all here.
    pub fn first_slice(&self) -> Option<i64> {
        self.intervals.front().map(|first| first.slice)
    }

    /// The intervals, the oldest first.
    pub fn intervals(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn slices_are_whole_or_absent() {
        let mut recent = Recent::default();
        let mut push = |slice: i64, seconds: u64| {
            let interval = IntervalCounts {
                unix_ns: 0,
                length_ns: seconds * 1_000_000_000,
                names: Arc::new([]),
                rows: Vec::new(),
            };
            recent.push(slice, &interval, &[]);
            let slices = recent.intervals().map(|interval| interval.slice);
            (recent.first_slice(), slices.collect::<Vec<_>>())
        };
        assert_eq!(push(1, 200), (Some(1), vec![1]));
        assert_eq!(push(2, 90), (Some(1), vec![1, 2]));
        assert_eq!(push(2, 90), (Some(2), vec![2, 2]));
        // The open slice itself is too long: none of it stays, or comes.
        assert_eq!(push(2, 190), (None, vec![]));
        assert_eq!(push(2, 10), (None, vec![]));
        assert_eq!(push(3, 10), (Some(3), vec![3]));
    }
}
