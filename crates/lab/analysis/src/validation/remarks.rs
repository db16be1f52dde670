//! Limits of a valid run.

use crate::record::{FlowRecord, RunRecord};

/// Fewer loss events than this give their rate to no better than 25 % (the deviation of a count is its
/// root), and the mean of a window to not much better.
pub const FEW_LOSS_EVENTS: u64 = 20;
/// Congestion controls whose window is a matter of loss events.
const LOSS_BASED: [&str; 2] = ["cubic", "reno"];

/// The limits of a run, a sentence each; empty if there are none.
pub fn remarks(run: &RunRecord) -> Vec<String> {
    let is_lossy = run
        .links
        .iter()
        .any(|link| link.loss_requested.is_some_and(|share| share > 0.0));
    let few = |flow: &FlowRecord| {
        let counted = flow.loss_events.as_ref()?;
        let is_model = LOSS_BASED.contains(&flow.congestion.as_str());
        (is_lossy && is_model && counted.events < FEW_LOSS_EVENTS).then(|| {
            format!(
                "flow {}: {} loss events in the measured part, fewer than {FEW_LOSS_EVENTS}: its agreement with a model is chance; run it \
                 longer",
                flow.name, counted.events
            )
        })
    };
    run.flows.iter().filter_map(few).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::record::LossEvents;

    fn of(congestion: &str, events: u64, loss: f64) -> Vec<String> {
        let mut run = run();
        run.links[0].loss_requested = Some(loss);
        run.flows[0].congestion = congestion.into();
        run.flows[0].loss_events = Some(LossEvents {
            events,
            ..LossEvents::default()
        });
        remarks(&run)
    }

    #[test]
    fn few_loss_events_are_reported_for_configured_loss() {
        let reported = of("cubic", 19, 0.01);
        assert_eq!(reported.len(), 1);
        assert!(
            reported[0].starts_with("flow bulk: 19 loss events"),
            "{reported:?}"
        );
        assert_eq!(of("reno", 0, 0.01).len(), 1);
        for (congestion, events, loss) in [("cubic", 20, 0.01), ("cubic", 0, 0.0), ("bbr", 3, 0.01)]
        {
            assert_eq!(
                of(congestion, events, loss),
                [""; 0],
                "{congestion} {events}"
            );
        }
    }
}
