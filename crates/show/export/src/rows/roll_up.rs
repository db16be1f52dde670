//! Adds up the rows of intervals to rows of longer steps.

use std::collections::HashMap;

use fairpath_history::IntervalRow;
use fairpath_history::snapshot::Kind;

/// Adds up rows, by kind and name.
#[derive(Debug)]
pub(super) struct RollUp {
    step_ns: u64,
    /// Number of the open step: its Unix time divided by the length.
    step: Option<u64>,
    /// Sum of the intervals with rows.
    length_ns: u64,
    rows: Vec<IntervalRow>,
    places: HashMap<(Kind, String), usize>,
}

impl RollUp {
    /// Steps begin at multiples of their length in Unix time.
    pub fn new(step_ns: u64) -> RollUp {
        RollUp {
            step_ns: step_ns.max(1),
            step: None,
            length_ns: 0,
            rows: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Adds the rows of an interval. Returns the step that it completes: the interval itself if it is
    /// not shorter than a step. O(buckets of the rows).
    pub fn add(&mut self, rows: Vec<IntervalRow>) -> Vec<IntervalRow> {
        let Some(first) = rows.first() else {
            return Vec::new();
        };
        let step = first.unix_ns / self.step_ns;
        // Another step, earlier or later: the clock may have been set.
        let mut completed = match self.step {
            Some(open) if open != step => self.take(),
            _ => Vec::new(),
        };
        if first.interval_ns >= self.step_ns {
            completed.extend(self.take());
            completed.extend(rows);
            return completed;
        }
        self.step = Some(step);
        self.length_ns += first.interval_ns;
        for row in rows {
            let key = (row.kind, row.name.clone());
            match self.places.get(&key) {
                Some(place) => self.rows[*place].merge(&row),
                None => {
                    self.places.insert(key, self.rows.len());
                    self.rows.push(row);
                }
            }
        }
        completed
    }

    /// The rows of the open step.
    pub fn take(&mut self) -> Vec<IntervalRow> {
        self.places.clear();
        let length_ns = std::mem::take(&mut self.length_ns);
        let unix_ns = self.step.take().unwrap_or(0) * self.step_ns;
        let mut rows = std::mem::take(&mut self.rows);
        for row in &mut rows {
            (row.unix_ns, row.interval_ns) = (unix_ns, length_ns);
            row.settle();
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn row(name: &str, unix_s: u64, length_s: u64) -> IntervalRow {
        let mut row = IntervalRow {
            unix_ns: unix_s * SECOND,
            interval_ns: length_s * SECOND,
            name: name.to_owned(),
            bytes_up: 5,
            inside_samples: 1,
            inside_sum_rtt_ns: unix_s,
            ..IntervalRow::default()
        };
        row.inside_histogram.record(unix_s * 1_000_000);
        row.settle();
        row
    }

    /// Begin, length, name and bytes.
    fn brief(rows: &[IntervalRow]) -> Vec<(u64, u64, &str, u64)> {
        let brief =
            |row: &IntervalRow| (row.unix_ns / SECOND, row.interval_ns / SECOND, row.bytes_up);
        rows.iter()
            .map(|row| (brief(row).0, brief(row).1, &*row.name, brief(row).2))
            .collect()
    }

    #[test]
    fn aligned_steps_have_their_intervals() {
        let mut steps = RollUp::new(10 * SECOND);
        for at in 107..110 {
            let rows = [row("a", at, 1)]
                .into_iter()
                .chain((at == 108).then(|| row("b", at, 1)));
            assert_eq!(steps.add(rows.collect()), []);
        }
        assert_eq!(steps.add(Vec::new()), []);
        let step = steps.add(vec![row("a", 110, 1)]);
        assert_eq!(brief(&step), [(100, 3, "a", 15), (100, 3, "b", 5)]);
        assert_eq!(step[0].inside_samples, 3);
        assert_eq!(step[0].inside_max_rtt_ns, row("", 109, 1).inside_max_rtt_ns);
        assert_eq!(step[0].inside_mean_rtt_ns, Some(108));
        // The clock is set back, and far ahead.
        assert_eq!(brief(&steps.add(vec![row("a", 55, 1)])), [(110, 1, "a", 5)]);
        assert_eq!(
            brief(&steps.add(vec![row("a", 4_000, 1)])),
            [(50, 1, "a", 5)]
        );
        // Kinds with one name are not one row.
        let interface = IntervalRow {
            kind: Kind::Interface,
            ..row("a", 4_001, 1)
        };
        assert_eq!(steps.add(vec![interface]), []);
        assert_eq!(steps.take().len(), 2);
        assert_eq!(steps.take(), []);
    }

    #[test]
    fn longer_intervals_stay_as_they_are() {
        let mut steps = RollUp::new(10 * SECOND);
        steps.add(vec![row("a", 101, 1)]);
        let rows = vec![row("a", 103, 15)];
        let completed = steps.add(rows.clone());
        assert_eq!(brief(&completed), [(100, 1, "a", 5), (103, 15, "a", 5)]);
        assert_eq!(completed[1..], rows);
    }
}
