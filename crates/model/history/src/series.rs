//! The counts of one row over a long time, in steps: the question, and the answer for people and programs.

use fairpath_core::{DOWN, INSIDE, OUTSIDE, UP};
use serde::{Deserialize, Serialize};

use crate::history::Counts;
use crate::snapshot::Kind;

/// Version of the form of [`Series`].
pub const SERIES_SCHEMA: u32 = 1;
/// Maximum number of steps in an answer.
pub const MAX_STEPS: u64 = 10_000;
/// A step is chosen, if none is given, such that there are no more than these.
pub const USUAL_STEPS: u64 = 400;
const SECOND_NS: u64 = 1_000_000_000;
/// Steps that are chosen, seconds.
const CHOICE_S: [u64; 11] = [
    1, 10, 60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400,
];

/// Requests the counts of a row between two times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesQuery {
    /// The name of the row.
    pub name: String,
    /// Its kind. `None`: a class, else an interface, else a subnet, else `other`.
    #[serde(default)]
    pub kind: Option<Kind>,
    /// Unix time of the begin, nanoseconds.
    pub since_unix_ns: u64,
    /// Unix time of the end, nanoseconds.
    pub until_unix_ns: u64,
    /// Length of a step, nanoseconds: whole seconds. `None`: chosen by the time.
    #[serde(default)]
    pub step_ns: Option<u64>,
}

/// A question that cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The end is not after the begin.
    #[error("history: the time ends before it begins: name an end after the begin")]
    Empty,
    /// The step is not a number of seconds.
    #[error("history: a step is one or more whole seconds")]
    Step,
    /// Too many steps.
    #[error(
        "history: {steps} steps, and at most {MAX_STEPS} are given: request steps of {min_step_s} s or more, or less time"
    )]
    TooMany {
        /// Requested steps.
        steps: u64,
        /// The shortest step that is possible, seconds.
        min_step_s: u64,
    },
}

impl SeriesQuery {
    /// The step, given or chosen.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn step(&self) -> Result<u64, QueryError> {
        let time_ns = self
            .until_unix_ns
            .checked_sub(self.since_unix_ns)
            .filter(|time| *time > 0)
            .ok_or(QueryError::Empty)?;
        let Some(step_ns) = self.step_ns else {
            let fits = |step: &u64| time_ns.div_ceil(step * SECOND_NS) <= USUAL_STEPS;
            let [.., day] = CHOICE_S;
            let chosen = CHOICE_S.into_iter().find(fits).unwrap_or_else(|| {
                // Whole days for years.
                day * time_ns.div_ceil(day * SECOND_NS * USUAL_STEPS)
            });
            return Ok(chosen * SECOND_NS);
        };
        if step_ns == 0 || !step_ns.is_multiple_of(SECOND_NS) {
            return Err(QueryError::Step);
        }
        match time_ns.div_ceil(step_ns) {
            steps if steps > MAX_STEPS => Err(QueryError::TooMany {
                steps,
                min_step_s: time_ns.div_ceil(SECOND_NS).div_ceil(MAX_STEPS),
            }),
            _ => Ok(step_ns),
        }
    }
}

/// The counts of a row in steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// [`SERIES_SCHEMA`].
    pub schema: u32,
    /// The name of the row.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Unix time of the begin of the first requested step, nanoseconds.
    pub since_unix_ns: u64,
    /// Unix time of the end, nanoseconds.
    pub until_unix_ns: u64,
    /// Length of a step, nanoseconds. A point of a time that is kept in longer steps is longer.
    pub step_ns: u64,
    /// Unix time of the first measurement that is kept, of any row, nanoseconds.
    pub oldest_unix_ns: Option<u64>,
    /// The steps with counts, by time. A step that is missing was idle, or not measured.
    pub points: Vec<SeriesPoint>,
    /// Times without measurement, after the first that is kept.
    pub unmeasured: Vec<Span>,
    /// Number of corrupted blocks, whose counts are missing.
    pub corrupted: u64,
    /// The sum of all points. `None` without points.
    pub total: Option<SeriesPoint>,
}

/// A time between two Unix times, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its begin.
    pub since_unix_ns: u64,
    /// Its end.
    pub until_unix_ns: u64,
}

/// One step. Rates are means over the measured time. Percentiles are within 1.6 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Unix time of its begin, nanoseconds.
    pub unix_ns: u64,
    /// Its length, nanoseconds.
    pub length_ns: u64,
    /// The part of it that was measured, nanoseconds.
    pub measured_ns: u64,
    /// IP bytes that the hosts sent.
    pub bytes_up: u64,
    /// IP bytes that they received.
    pub bytes_down: u64,
    /// IP packets that they sent.
    pub packets_up: u64,
    /// IP packets that they received.
    pub packets_down: u64,
    /// Mean rate, bits per second.
    pub rate_up_bps: f64,
    /// Mean rate, bits per second.
    pub rate_down_bps: f64,
    /// Maximum rate of an interval of the monitor, bits per second.
    pub peak_up_bps: u64,
    /// Maximum rate of an interval of the monitor, bits per second.
    pub peak_down_bps: u64,
    /// Time in which the row was busy, nanoseconds.
    pub busy_ns: u64,
    /// RTT samples between this router and the hosts.
    pub inside_samples: u64,
    /// Median RTT of this leg, nanoseconds.
    pub inside_p50_rtt_ns: Option<u64>,
    /// 95th percentile.
    pub inside_p95_rtt_ns: Option<u64>,
    /// 99th percentile.
    pub inside_p99_rtt_ns: Option<u64>,
    /// Share of the data packets that were lost on this leg, both directions.
    pub inside_loss: Option<f64>,
    /// RTT samples between this router and the remote hosts.
    pub outside_samples: u64,
    /// As for the inside leg.
    pub outside_p50_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_p95_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_p99_rtt_ns: Option<u64>,
    /// As for the inside leg.
    pub outside_loss: Option<f64>,
}

impl SeriesPoint {
    /// The point of counts over a step.
    pub fn of(counts: &Counts, unix_ns: u64, length_ns: u64, measured_ns: u64) -> SeriesPoint {
        let (bytes, packets) = (counts.bytes(), counts.packets());
        let rate = |bytes: u64| match measured_ns {
            0 => 0.0,
            ns => bytes as f64 * 8e9 / ns as f64,
        };
        let histograms = counts.histograms();
        let [inside, outside] =
            [INSIDE, OUTSIDE].map(|leg| [0.5, 0.95, 0.99].map(|q| histograms[leg].quantile(q)));
        let loss = |leg| {
            let losses = counts.losses(leg);
            // Losses may be counted before their data.
            (losses.data > 0).then(|| (losses.lost as f64 / losses.data as f64).min(1.0))
        };
        let samples = counts.samples();
        SeriesPoint {
            unix_ns,
            length_ns,
            measured_ns,
            bytes_up: bytes[UP],
            bytes_down: bytes[DOWN],
            packets_up: packets[UP],
            packets_down: packets[DOWN],
            rate_up_bps: rate(bytes[UP]),
            rate_down_bps: rate(bytes[DOWN]),
            peak_up_bps: counts.peak_bps[UP],
            peak_down_bps: counts.peak_bps[DOWN],
            busy_ns: counts.busy_ns,
            inside_samples: samples[INSIDE],
            inside_p50_rtt_ns: inside[0],
            inside_p95_rtt_ns: inside[1],
            inside_p99_rtt_ns: inside[2],
            inside_loss: loss(INSIDE),
            outside_samples: samples[OUTSIDE],
            outside_p50_rtt_ns: outside[0],
            outside_p95_rtt_ns: outside[1],
            outside_p99_rtt_ns: outside[2],
            outside_loss: loss(OUTSIDE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step_of(seconds: u64, step_s: Option<u64>) -> Result<u64, QueryError> {
        let query = SeriesQuery {
            name: "anna".into(),
            kind: None,
            since_unix_ns: 7,
            until_unix_ns: 7 + seconds * SECOND_NS,
            step_ns: step_s.map(|step| step * SECOND_NS),
        };
        query.step().map(|step| step / SECOND_NS)
    }

    #[test]
    fn steps_are_chosen_by_the_time() {
        let day = 86_400;
        for (seconds, step) in [
            (300, 1),
            (3_600, 10),
            (day, 300),
            (7 * day, 1_800),
            (90 * day, 21_600),
            (3_650 * day, 10 * day),
        ] {
            assert_eq!(step_of(seconds, None), Ok(step), "{seconds}");
        }
    }

    #[test]
    fn steps_that_cannot_be_are_refused() {
        assert_eq!(step_of(0, None), Err(QueryError::Empty));
        assert_eq!(step_of(10, Some(0)), Err(QueryError::Step));
        assert_eq!(step_of(MAX_STEPS, Some(1)), Ok(1));
        let too_many = QueryError::TooMany {
            steps: 2 * MAX_STEPS,
            min_step_s: 2,
        };
        assert_eq!(step_of(2 * MAX_STEPS, Some(1)), Err(too_many));
    }
}
