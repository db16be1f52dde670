//! Retransmission timeouts, which no model but Padhye's knows: how often they come, and how long after
//! them flows are held up.

use fairpath_report::statistics::median;

use crate::record::RunRecord;

/// TCP's state after a retransmission timeout (TCP_CA_Loss, linux/tcp.h).
const CA_LOSS: u8 = 4;

/// Timeouts of a run's flows in its measured part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeouts {
    /// A second of a flow.
    pub per_second: f64,
    /// Of the sockets' samples, those in TCP's state Loss: from a timeout to the acknowledgement of all
    /// that had been sent before it. The silence before the timer ran out is not in it.
    pub in_loss: f64,
}

impl Timeouts {
    /// Medians over runs; none without any.
    pub fn middle(runs: &[Timeouts]) -> Option<Timeouts> {
        let of = |of: fn(&Timeouts) -> f64| median(&runs.iter().map(of).collect::<Vec<f64>>());
        Some(Timeouts {
            per_second: of(|t| t.per_second)?,
            in_loss: of(|t| t.in_loss)?,
        })
    }
}

/// A run's; none where loss events were not counted, or samples do not tell how long was looked.
pub fn of(run: &RunRecord) -> Option<Timeouts> {
    let (mut count, mut seconds) = (0, 0.0);
    let (mut in_loss, mut samples) = (0, 0);
    for flow in &run.flows {
        let range = run.warmup_seconds..=run.seconds;
        let measured = || flow.samples.iter().filter(|s| range.contains(&s.at));
        count += flow.loss_events.as_ref()?.timeouts;
        seconds += measured().next_back()?.at - measured().next()?.at;
        in_loss += measured().filter(|s| s.ca_state == CA_LOSS).count();
        samples += measured().count();
    }
    (seconds > 0.0).then(|| Timeouts {
        per_second: count as f64 / seconds,
        in_loss: in_loss as f64 / samples as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FlowRecord, LossEvents, TcpSample};

    /// Measured from 1 s to 2 s: eleven samples, three of them in state Loss, and two timeouts.
    fn run() -> RunRecord {
        let sample = |tenth: u32| TcpSample {
            at: f64::from(tenth) / 10.0,
            ca_state: match tenth {
                // Before the measurement and behind it nothing counts.
                0..10 | 15..18 | 21.. => CA_LOSS,
                _ => 3,
            },
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

    #[test]
    fn they_are_told_a_second_and_by_the_samples_behind_them() {
        let told = of(&run()).unwrap();
        assert!((told.per_second - 2.0).abs() < 1e-9, "{told:?}");
        assert!((told.in_loss - 3.0 / 11.0).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn two_flows_are_a_mean_of_both() {
        let mut two = run();
        let mut quiet = two.flows[0].clone();
        quiet.loss_events = Some(LossEvents::default());
        quiet.samples.iter_mut().for_each(|s| s.ca_state = 0);
        two.flows.push(quiet);
        let told = of(&two).unwrap();
        assert!((told.per_second - 1.0).abs() < 1e-9, "{told:?}");
        assert!((told.in_loss - 3.0 / 22.0).abs() < 1e-9, "{told:?}");
    }

    #[test]
    fn what_was_not_counted_or_sampled_is_not_told() {
        let mut uncounted = run();
        uncounted.flows[0].loss_events = None;
        assert_eq!(of(&uncounted), None);
        let mut single = run();
        single.flows[0].samples.truncate(11);
        assert_eq!(of(&single), None);
        assert_eq!(of(&RunRecord::default()), None);
    }

    #[test]
    fn of_several_runs_medians_are_told() {
        let one = |per_second, in_loss| Timeouts {
            per_second,
            in_loss,
        };
        let middle = Timeouts::middle(&[one(1.0, 0.9), one(3.0, 0.1), one(2.0, 0.2)]);
        assert_eq!(middle, Some(one(2.0, 0.2)));
        assert_eq!(Timeouts::middle(&[]), None);
    }
}
