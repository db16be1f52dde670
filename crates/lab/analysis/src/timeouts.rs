//! Retransmission timeouts, which no model but Padhye's knows: how often they come, and how long flows
//! wait for them.
//!
//! TCP's state Loss begins when the timer has run out, and at small windows it is over within a round
//! trip: the wait is before it. So waiting is measured by the acknowledged bytes from sample to sample:
//!
//! ```text
//! bytes_acked  7  9 12 12 12 12 15      four samples alike, 0.3 s: longer than a round trip of 20 ms,
//!                    '--------'         in which ACKs would have arrived
//! ```
//!
//! Samples are 0.1 s apart, so shorter waits are missing: the result is a lower bound.

use fairpath_report::statistics::median;

use crate::record::{RunRecord, TcpSample};

const US: f64 = 1e-6;

/// Timeouts of a run's flows in its measured part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// A second of a flow.
    pub per_second: f64,
    /// Of the flows' time, that in which nothing was acknowledged for longer than a round trip.
    pub stalled: f64,
}

impl Timeouts {
    /// Medians over runs; none without any.
    pub fn middle(runs: &[Timeouts]) -> Option<Timeouts> {
        let of = |of: fn(&Timeouts) -> f64| median(&runs.iter().map(of).collect::<Vec<f64>>());
        Some(Timeouts {
            per_second: of(|t| t.per_second)?,
            stalled: of(|t| t.stalled)?,
        })
    }
}

/// Those of a run; none without counts of loss events or of acknowledged bytes.
pub fn of(run: &RunRecord) -> Option<Timeouts> {
    let (mut count, mut seconds, mut stalled) = (0, 0.0, 0.0);
    for flow in &run.flows {
        let range = run.warmup_seconds..=run.seconds;
        let samples = flow.samples.iter().filter(|s| range.contains(&s.at));
        let samples: Vec<&TcpSample> = samples.collect();
        let (first, last) = (samples.first()?, samples.last()?);
        if last.bytes_acked <= first.bytes_acked {
            return None;
        }
        count += flow.loss_events.as_ref()?.timeouts;
        seconds += last.at - first.at;
        stalled += stalled_seconds(&samples);
    }
    (seconds > 0.0).then(|| Timeouts {
        per_second: count as f64 / seconds,
        stalled: stalled / seconds,
    })
}

/// Time between samples that acknowledged the same, where it is longer than the round trip.
fn stalled_seconds(samples: &[&TcpSample]) -> f64 {
    let alike = samples.chunk_by(|a, b| a.bytes_acked == b.bytes_acked);
    let lasted = |row: &[&TcpSample]| {
        let (first, last) = (row.first()?, row.last()?);
        let seconds = last.at - first.at;
        (seconds > f64::from(last.rtt_us) * US).then_some(seconds)
    };
    alike.filter_map(lasted).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FlowRecord, LossEvents};

    /// Measured from 1 s to 2 s in eleven samples at 20 ms; what each tenth has acknowledged is `acked`.
    fn run(acked: impl Fn(u32) -> u64) -> RunRecord {
        let sample = |tenth: u32| TcpSample {
            at: f64::from(tenth) / 10.0,
            rtt_us: 20_000,
            bytes_acked: acked(tenth),
            ..TcpSample::default()
        };
        RunRecord {
            seconds: 2.0,
            warmup_seconds: 1.0,
            flows: vec![FlowRecord {
                loss_events: Some(LossEvents {
                    timeouts: 2,
                    ..LossEvents::default()
                }),
                samples: (0..40).map(sample).collect(),
                ..FlowRecord::default()
            }],
            ..RunRecord::default()
        }
    }

    /// Nothing from 1.3 to 1.6 s, and from 1.8 to 1.9; and times outside the measured part.
    fn waiting(tenth: u32) -> u64 {
        match tenth {
            0..10 => 0,
            13..=16 => 13_000,
            18..=19 => 18_000,
            21.. => 21_000,
            tenth => u64::from(tenth) * 1_000,
        }
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn timeouts_are_reported_by_second_and_idle_time() {
        let reported = of(&run(waiting)).unwrap();
        assert_near(reported.per_second, 2.0);
        assert_near(reported.stalled, 0.4);
    }

    #[test]
    fn a_round_trip_without_acknowledgements_is_no_wait() {
        let mut far = run(waiting);
        far.flows[0]
            .samples
            .iter_mut()
            .for_each(|s| s.rtt_us = 150_000);
        assert_near(of(&far).unwrap().stalled, 0.3);
        far.flows[0]
            .samples
            .iter_mut()
            .for_each(|s| s.rtt_us = 350_000);
        assert_near(of(&far).unwrap().stalled, 0.0);
    }

    #[test]
    fn two_flows_are_a_mean_of_both() {
        let mut two = run(waiting);
        let mut quiet = run(u64::from).flows.remove(0);
        quiet.loss_events = Some(LossEvents::default());
        two.flows.push(quiet);
        let reported = of(&two).unwrap();
        assert_near(reported.per_second, 1.0);
        assert_near(reported.stalled, 0.2);
    }

    #[test]
    fn missing_counts_and_samples_are_not_reported() {
        let mut uncounted = run(waiting);
        uncounted.flows[0].loss_events = None;
        assert_eq!(of(&uncounted), None);
        let mut single = run(waiting);
        single.flows[0].samples.truncate(11);
        assert_eq!(of(&single), None);
        assert_eq!(
            of(&run(|_| 0)),
            None,
            "samples without what is acknowledged"
        );
        assert_eq!(of(&RunRecord::default()), None);
    }

    #[test]
    fn several_runs_are_shown_as_medians() {
        let one = |per_second, stalled| Timeouts {
            per_second,
            stalled,
        };
        let middle = Timeouts::middle(&[one(1.0, 0.9), one(3.0, 0.1), one(2.0, 0.2)]);
        assert_eq!(middle, Some(one(2.0, 0.2)));
        assert_eq!(Timeouts::middle(&[]), None);
    }
}
