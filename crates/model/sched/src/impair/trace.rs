//! Delays and rates that change over time, from a file or an inline value.
//!
//! A delay trace has a time and a delay in each line. A last line with only a time sets the period
//! after which the trace repeats. An inline trace uses commas: `0s 20ms, 10s 80ms, 20s`. A rate trace
//! has the format of Mahimahi: each line is the time in ms at which 1504 bytes may leave.

use fairpath_units::quantity;

/// Maximum points of a trace.
pub const MAX_POINTS: usize = 1 << 20;
/// The period of a trace with a single point.
const LONE_NS: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A repeated trace of delays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayTrace {
    /// The name of the file, or the inline points.
    pub source: String,
    /// Start time and delay, both in ns, in ascending order. The first start time is 0.
    pub points: Vec<(u64, u64)>,
    /// The period after which the trace repeats.
    pub period_ns: u64,
}

/// A repeated trace of times at which 1504 bytes may leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateTrace {
    /// The name of the file.
    pub source: String,
    /// The times in ns, in ascending order and less than the period.
    pub times_ns: Vec<u64>,
    /// The period after which the trace repeats.
    pub period_ns: u64,
}

/// Lines that are not empty, with their numbers.
fn lines(text: &str, in_place: bool) -> impl Iterator<Item = (usize, &str)> {
    let separator = move |c: char| c == '\n' || (in_place && c == ',');
    text.split(separator)
        .enumerate()
        .map(|(at, line)| (at + 1, line.split('#').next().unwrap_or("").trim()))
        .filter(|(_, line)| !line.is_empty())
}

impl DelayTrace {
    /// True if the text is an inline trace and not the name of a file.
    pub(super) fn is_in_place(text: &str) -> bool {
        text.contains(',') || text.split_whitespace().count() > 1
    }

    pub(super) fn read(source: &str, text: &str, in_place: bool) -> Result<DelayTrace, String> {
        let mut points = Vec::new();
        let mut end = None;
        for (number, line) in lines(text, in_place) {
            let wrong = |cause: String| format!("line {number}: {cause}");
            if end.is_some() {
                return Err(wrong(
                    "a line follows the period: write the time without a delay last".into(),
                ));
            }
            let mut words = line.split_whitespace();
            let time = words.next().unwrap_or_default();
            let time = quantity::read_time(time).map_err(|bad| wrong(bad.to_string()))?;
            if points.last().is_some_and(|(last, _)| *last >= time) {
                return Err(wrong("its time is not after the previous time".into()));
            }
            match (words.next(), words.next()) {
                (Some(delay), None) => {
                    let delay = quantity::read_time(delay).map_err(|bad| wrong(bad.to_string()))?;
                    points.push((time, delay));
                }
                (None, _) => end = Some(time),
                _ => {
                    return Err(wrong(
                        "it has no time and delay: write for example 10s 20ms".into(),
                    ));
                }
            }
            if points.len() > MAX_POINTS {
                return Err(format!(
                    "it has too many points: the maximum is {MAX_POINTS}"
                ));
            }
        }
        if points.first().is_none_or(|(time, _)| *time != 0) {
            return Err("its first point is not at 0s: begin with 0s and a delay".into());
        }
        let last = points[points.len() - 1].0;
        let as_before = points
            .len()
            .checked_sub(2)
            .map(|before| 2 * last - points[before].0);
        Ok(DelayTrace {
            source: source.to_owned(),
            period_ns: end.or(as_before).unwrap_or(LONE_NS),
            points,
        })
    }

    /// The mean over time of `of` applied to each delay.
    pub(super) fn mean(&self, of: impl Fn(u64) -> f64) -> f64 {
        let next = self.points.iter().skip(1).map(|(time, _)| *time);
        let ends = next.chain([self.period_ns]);
        let part = |((time, delay), end): (&(u64, u64), u64)| (end - time) as f64 * of(*delay);
        let sum: f64 = self.points.iter().zip(ends).map(part).sum();
        sum / self.period_ns as f64
    }
}

impl RateTrace {
    pub(super) fn read(source: &str, text: &str) -> Result<RateTrace, String> {
        let mut times_ns = Vec::new();
        let mut last = 0;
        for (number, line) in lines(text, false) {
            let ms: Option<u64> = line.parse().ok().filter(|ms| *ms < u64::MAX / MS / 2);
            let Some(ms) = ms else {
                return Err(format!("line {number}: \"{line}\" is not a number of ms"));
            };
            if ms < last {
                return Err(format!(
                    "line {number}: {ms} is less than the previous time {last}"
                ));
            }
            last = ms;
            times_ns.push(ms * MS);
            if times_ns.len() > MAX_POINTS {
                return Err(format!(
                    "it has too many lines: the maximum is {MAX_POINTS}"
                ));
            }
        }
        if last == 0 {
            return Err("its last line is the period and must be greater than 0".into());
        }
        // Times at the end of the period are the beginning of the next period.
        let period_ns = last * MS;
        times_ns.iter_mut().for_each(|time| *time %= period_ns);
        times_ns.sort_unstable();
        Ok(RateTrace {
            source: source.to_owned(),
            times_ns,
            period_ns,
        })
    }

    /// The mean rate in bits per second.
    pub fn mean_bps(&self) -> f64 {
        let bits = self.times_ns.len() as f64 * fairpath_core::sched::OPPORTUNITY as f64 * 8.0;
        bits * 1e9 / self.period_ns as f64
    }
}
