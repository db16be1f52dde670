//! The fairness of flows on a link: Jain's index in windows, the worst share, and when it settles.
//!
//! R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination for resource
//! allocation in shared computer systems", DEC-TR-301, 1984: `(sum x)^2 / (n sum x^2)`, 1 where all
//! have the same, 1/n where one has all; for two flows 0.5 to 1. A mean over a whole run hides flows
//! that alternate, so the index is computed over goodput in windows of [`WINDOW_SECONDS`].

use crate::record::{FlowRecord, RunRecord};

/// Long against a round trip, short against a run.
pub const WINDOW_SECONDS: f64 = 1.0;
/// Flows have settled where the index is at least this ...
pub const SETTLED: f64 = 0.95;
/// ... in this many windows one after the other, the first of which gives the time.
pub const SETTLED_WINDOWS: usize = 3;

/// Jain's index of these shares; none without flows, or if all shares are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The smallest share of the flows' sum, times their number: 1 where all have the same, 0 where
/// one has nothing.
pub fn worst_share(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let min = shares.iter().copied().reduce(f64::min)?;
    (sum > 0.0).then(|| min / sum * shares.len() as f64)
}

/// When the flows of a run had settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Convergence {
    /// Seconds from the start of the last flow to the first of [`SETTLED_WINDOWS`] windows with an
    /// index of at least [`SETTLED`].
    After(f64),
    /// Not in this many seconds.
    Never(f64),
}

/// One window of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Its end, seconds since the traffic began.
    pub end: f64,
    /// Jain's index of the flows' goodput in it.
    pub jain: f64,
}

/// The index by windows from the start of the last flow (and never before the measured part).
///
/// Empty with fewer than two flows, and where a flow has no goodput over time.
pub fn windows(run: &RunRecord) -> Vec<Window> {
    windows_from(run, last_start(run).max(run.warmup_seconds))
}

/// Mean index over [`windows`].
pub fn mean_jain(run: &RunRecord) -> Option<f64> {
    let windows = windows(run);
    (!windows.is_empty())
        .then(|| windows.iter().map(|w| w.jain).sum::<f64>() / windows.len() as f64)
}

/// [`worst_share`] of what the flows got from the start of the last one to the end.
pub fn run_worst_share(run: &RunRecord) -> Option<f64> {
    let from = last_start(run).max(run.warmup_seconds);
    if run.flows.len() < 2 || run.seconds <= from {
        return None;
    }
    let shares: Vec<f64> = run
        .flows
        .iter()
        .map(|f| bits(f, from, run.seconds))
        .collect();
    worst_share(&shares)
}

/// When the flows had settled; none with fewer than two flows or too short a run.
pub fn convergence(run: &RunRecord) -> Option<Convergence> {
    let start = last_start(run);
    let windows = windows_from(run, start);
    if windows.len() < SETTLED_WINDOWS {
        return None;
    }
    let first = windows
        .windows(SETTLED_WINDOWS)
        .position(|row| row.iter().all(|w| w.jain >= SETTLED));
    Some(match first {
        Some(index) => Convergence::After(index as f64 * WINDOW_SECONDS),
        None => Convergence::Never(windows.len() as f64 * WINDOW_SECONDS),
    })
}

fn last_start(run: &RunRecord) -> f64 {
    run.flows
        .iter()
        .map(|f| f.start_seconds)
        .fold(0.0, f64::max)
}

fn windows_from(run: &RunRecord, from: f64) -> Vec<Window> {
    if run.flows.len() < 2 || run.flows.iter().any(|f| f.goodput.is_empty()) {
        return Vec::new();
    }
    let count = ((run.seconds - from) / WINDOW_SECONDS + 1e-9)
        .floor()
        .max(0.0) as usize;
    (0..count)
        .filter_map(|index| {
            let begin = from + index as f64 * WINDOW_SECONDS;
            let end = begin + WINDOW_SECONDS;
            let shares: Vec<f64> = run.flows.iter().map(|f| bits(f, begin, end)).collect();
            jain(&shares).map(|jain| Window { end, jain })
        })
        .collect()
}

/// Bits that a flow delivered between two moments, its intervals taken as even in themselves.
pub(crate) fn bits(flow: &FlowRecord, begin: f64, end: f64) -> f64 {
    let mut sum = 0.0;
    let mut interval_begin = flow.start_seconds;
    for &(interval_end, bps) in &flow.goodput {
        let overlap = interval_end.min(end) - interval_begin.max(begin);
        sum += bps * overlap.max(0.0);
        interval_begin = interval_end;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(start_seconds: f64, rates: &[f64]) -> FlowRecord {
        FlowRecord {
            start_seconds,
            goodput: rates
                .iter()
                .enumerate()
                .map(|(i, bps)| (start_seconds + i as f64 + 1.0, *bps))
                .collect(),
            ..FlowRecord::default()
        }
    }

    fn run(seconds: f64, flows: Vec<FlowRecord>) -> RunRecord {
        RunRecord {
            seconds,
            flows,
            ..RunRecord::default()
        }
    }

    /// Jain, Chiu, Hawe 1984: where k of n share evenly and the rest has nothing, the index is k/n;
    /// two users with 20 and 80: 10^4 / (2 * 6800).
    #[test]
    fn the_index_of_the_paper() {
        assert_eq!(jain(&[3.0; 10]), Some(1.0));
        assert_eq!(jain(&[1.0, 1.0, 0.0, 0.0, 0.0]), Some(0.4));
        assert_eq!(jain(&[7.0, 0.0]), Some(0.5));
        assert!((jain(&[20.0, 80.0]).unwrap() - 0.735_294).abs() < 1e-6);
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
    }

    #[test]
    fn equal_shares_have_a_worst_share_of_one() {
        assert_eq!(worst_share(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(worst_share(&[0.0, 5.0]), Some(0.0));
        assert!((worst_share(&[20.0, 80.0]).unwrap() - 0.4).abs() < 1e-12);
    }

    /// Both have 50 in the mean, but never at once: windows see what the mean hides.
    #[test]
    fn flows_that_take_turns_are_not_fair() {
        let turns = run(
            6.0,
            vec![
                flow(0.0, &[100.0, 0.0, 100.0, 0.0, 100.0, 0.0]),
                flow(0.0, &[0.0, 100.0, 0.0, 100.0, 0.0, 100.0]),
            ],
        );
        assert_eq!(mean_jain(&turns), Some(0.5));
        assert_eq!(run_worst_share(&turns), Some(1.0));
        assert_eq!(convergence(&turns), Some(Convergence::Never(6.0)));
    }

    #[test]
    fn settling_is_counted_from_the_last_start() {
        let settles = run(
            10.0,
            vec![
                flow(
                    0.0,
                    &[90.0, 90.0, 90.0, 80.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0],
                ),
                flow(2.0, &[5.0, 10.0, 50.0, 50.0, 50.0, 50.0, 50.0, 50.0]),
            ],
        );
        assert_eq!(windows(&settles).len(), 8);
        assert_eq!(convergence(&settles), Some(Convergence::After(2.0)));
        let warm = RunRecord {
            warmup_seconds: 4.0,
            ..settles
        };
        assert_eq!(mean_jain(&warm), Some(1.0));
        assert_eq!(run_worst_share(&warm), Some(1.0));
        assert_eq!(convergence(&warm), Some(Convergence::After(2.0)));
    }

    #[test]
    fn intervals_and_windows_need_not_agree() {
        let mut short = flow(0.0, &[]);
        short.goodput = vec![(0.4, 10.0), (1.2, 20.0), (2.0, 30.0)];
        assert!((bits(&short, 0.0, 1.0) - (4.0 + 12.0)).abs() < 1e-9);
        assert!((bits(&short, 1.0, 2.0) - (4.0 + 24.0)).abs() < 1e-9);
    }

    #[test]
    fn one_flow_is_neither_fair_nor_unfair() {
        let alone = run(5.0, vec![flow(0.0, &[1.0; 5])]);
        assert_eq!(mean_jain(&alone), None);
        assert_eq!(run_worst_share(&alone), None);
        assert_eq!(convergence(&alone), None);
    }
}
