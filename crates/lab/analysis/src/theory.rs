//! Models at measured conditions: the flows of each run with their round-trip times and loss events.
//!
//! The prediction of a run is the sum over its flows, limited to the link rate. A cell's
//! is the median over its valid runs, and so is its residual: a run is compared with what it measured
//! itself, not with what others did.

use fairpath_report::statistics::{Estimate, mean, median, median_with_interval};

use super::grid::Cell;
use super::timeouts::{self, Timeouts};
use super::{BOOTSTRAP_SEED, CONFIDENCE};
use crate::metrics;
use crate::model::{Conditions, Prediction, mathis, residual};
use crate::record::{FlowRecord, RunRecord};

/// Linux's least retransmission timeout, to which variation adds (tcp_rto_min, net/tcp.h).
const MIN_TIMEOUT_SECONDS: f64 = 0.2;
const US: f64 = 1e-6;

/// A model by its name in figures and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The square-root law.
    Mathis,
    /// With timeouts.
    Padhye,
    /// RFC 9438.
    Cubic,
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 3] = [Model::Mathis, Model::Cubic, Model::Padhye];

    /// "Mathis".
    pub fn name(self) -> &'static str {
        match self {
            Model::Mathis => "Mathis",
            Model::Padhye => "Padhye",
            Model::Cubic => "RFC 9438",
        }
    }

    fn of(self, prediction: &Prediction) -> Option<f64> {
        match self {
            Model::Mathis => Some(prediction.mathis_bps),
            Model::Padhye => Some(prediction.padhye_bps),
            Model::Cubic => prediction.cubic_bps,
        }
    }
}

/// The measured conditions of a flow for the models.
///
/// None without sampled round trips, counted loss events, or a segment size.
pub fn conditions(flow: &FlowRecord, run: &RunRecord) -> Option<Conditions> {
    let measured = || {
        flow.samples
            .iter()
            .filter(|s| s.at >= run.warmup_seconds && s.rtt_us > 0)
    };
    let rtts: Vec<f64> = measured().map(|s| f64::from(s.rtt_us) * US).collect();
    let variations: Vec<f64> = measured().map(|s| f64::from(s.rttvar_us) * US).collect();
    let rtt_seconds = mean(&rtts)?;
    let events = flow.loss_events.as_ref().filter(|e| e.segments > 0)?;
    let known = flow.mss_bytes > 0;
    Some(Conditions {
        rtt_seconds,
        loss_event_rate: events.events as f64 / events.segments as f64,
        mss_bytes: known.then_some(f64::from(flow.mss_bytes))?,
        // Where it was not measured: delayed ACKs, the habit of every receiver.
        segments_per_ack: flow.segments_per_ack.unwrap_or(2.0),
        timeout_seconds: rtt_seconds + (4.0 * mean(&variations)?).max(MIN_TIMEOUT_SECONDS),
    })
}

/// The predictions of the models for a run; `None` if a flow has no model (BBR) or measured too little.
pub fn prediction(run: &RunRecord) -> Option<Prediction> {
    let of = |flow: &FlowRecord| {
        let same_all_along = flow
            .congestion_seen
            .iter()
            .all(|seen| *seen == flow.congestion);
        let conditions = conditions(flow, run).filter(|_| same_all_along)?;
        Prediction::of(&flow.congestion, &conditions)
    };
    let flows: Option<Vec<Prediction>> = run.flows.iter().map(of).collect();
    let sum = flows?.into_iter().reduce(Prediction::plus)?;
    let limit = run
        .bottleneck
        .as_ref()
        .map_or(f64::INFINITY, |b| b.goodput_limit_bps);
    Some(sum.bounded(limit)).filter(|p| p.mathis_bps.is_finite())
}

/// Mathis for senders that count segments, all flows together, never above the link; none where
/// [`prediction`] is none.
fn per_segment_bps(run: &RunRecord) -> Option<f64> {
    prediction(run)?;
    let of = |flow: &FlowRecord| {
        let conditions = conditions(flow, run)?;
        Some(mathis::per_segment_goodput_bps(&conditions))
    };
    let flows: Option<Vec<f64>> = run.flows.iter().map(of).collect();
    let limit = run
        .bottleneck
        .as_ref()
        .map_or(f64::INFINITY, |b| b.goodput_limit_bps);
    Some(flows?.iter().sum::<f64>().min(limit))
}

/// The comparison of a cell with models.
#[derive(Clone, Debug, PartialEq)]
pub struct TheoryRow {
    /// Measured goodput.
    pub goodput: Estimate,
    /// Mean round trip of the flows, seconds.
    pub rtt_seconds: f64,
    /// Loss events a segment.
    pub loss_event_rate: f64,
    /// Each model's goodput (median over runs), and the residual of what was measured.
    pub models: Vec<(Model, f64, Estimate)>,
    /// Mathis for senders that count segments, as Linux does, and not ACKs (median over runs).
    pub mathis_per_segment_bps: f64,
    /// Timeouts (medians over runs), where they were counted.
    pub timeouts: Option<Timeouts>,
    /// The nearer one of Mathis and RFC 9438, and its residual.
    pub nearest: (&'static str, Estimate),
    /// The loss-event rate at which Mathis meets the link rate, where the link is known.
    pub meeting: Option<f64>,
}

/// The cell's row, for [`Cell::theory`]; none where no valid run has a prediction.
pub(super) fn row(cell: &Cell) -> Option<TheoryRow> {
    let goodput = metrics::find("goodput").ok()?;
    let runs: Vec<(f64, Prediction, &RunRecord)> = cell
        .runs
        .iter()
        .filter_map(|run| Some((goodput.value(run)?, prediction(run)?, *run)))
        .collect();
    let model = |model: Model| {
        let predicted: Option<Vec<f64>> = runs.iter().map(|(_, p, _)| model.of(p)).collect();
        let predicted = predicted?;
        let residuals: Vec<f64> = runs
            .iter()
            .zip(&predicted)
            .map(|((measured, ..), predicted)| residual(*measured, *predicted))
            .collect();
        Some((model, median(&predicted)?, estimate(&residuals)?))
    };
    Some(TheoryRow {
        goodput: estimate(&runs.iter().map(|(g, ..)| *g).collect::<Vec<f64>>())?,
        rtt_seconds: median(&over_runs(&runs, |c| c.rtt_seconds))?,
        loss_event_rate: median(&over_runs(&runs, |c| c.loss_event_rate))?,
        models: Model::ALL.into_iter().filter_map(model).collect(),
        mathis_per_segment_bps: median(&values(&runs, per_segment_bps))?,
        timeouts: Timeouts::middle(&values(&runs, timeouts::of)),
        nearest: nearest(&runs)?,
        meeting: median(&values(&runs, meeting)),
    })
}

fn estimate(values: &[f64]) -> Option<Estimate> {
    median_with_interval(values, CONFIDENCE, BOOTSTRAP_SEED)
}

/// The values of each run.
fn values<T>(
    runs: &[(f64, Prediction, &RunRecord)],
    of: impl Fn(&RunRecord) -> Option<T>,
) -> Vec<T> {
    runs.iter().filter_map(|(.., run)| of(run)).collect()
}

/// Mean over each run's flows.
fn over_runs(runs: &[(f64, Prediction, &RunRecord)], of: fn(&Conditions) -> f64) -> Vec<f64> {
    let of_run = |(.., run): &(f64, Prediction, &RunRecord)| {
        let flows: Vec<f64> = run
            .flows
            .iter()
            .filter_map(|flow| conditions(flow, run).as_ref().map(of))
            .collect();
        mean(&flows)
    };
    runs.iter().filter_map(of_run).collect()
}

/// One name for the cell: the model that is nearer in the median, and its residuals.
fn nearest(runs: &[(f64, Prediction, &RunRecord)]) -> Option<(&'static str, Estimate)> {
    let measured = median(&runs.iter().map(|(g, ..)| *g).collect::<Vec<f64>>())?;
    let of =
        |model: Model| -> Option<Vec<f64>> { runs.iter().map(|(_, p, _)| model.of(p)).collect() };
    let mathis_bps = median(&of(Model::Mathis)?)?;
    let middle = Prediction {
        mathis_bps,
        padhye_bps: mathis_bps,
        cubic_bps: of(Model::Cubic).and_then(|all| median(&all)),
    };
    let (name, _) = middle.nearest(measured);
    let model = Model::ALL.into_iter().find(|model| model.name() == name)?;
    let residuals: Vec<f64> = runs
        .iter()
        .filter_map(|(g, p, _)| Some(residual(*g, model.of(p)?)))
        .collect();
    Some((name, estimate(&residuals)?))
}

/// `p*` of a run: at the minimum RTT of its sockets, since there is no queue at that loss; several flows
/// share the link.
pub fn meeting(run: &RunRecord) -> Option<f64> {
    let limit = run.bottleneck.as_ref()?.goodput_limit_bps / run.flows.len() as f64;
    let of = |flow: &FlowRecord| {
        let min = flow
            .samples
            .iter()
            .map(|s| s.min_rtt_us)
            .filter(|us| (1..u32::MAX).contains(us))
            .min()?;
        let conditions = Conditions {
            rtt_seconds: f64::from(min) * US,
            ..conditions(flow, run)?
        };
        Some(mathis::loss_rate_at(limit, &conditions))
    };
    median(&run.flows.iter().filter_map(of).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Bottleneck, LossEvents, TcpSample};

    /// 1448 B at 1 ms and 1 % of loss events, no delayed ACKs: Mathis 141.9 Mbit/s.
    fn run(congestion: &str, goodput_bps: f64) -> RunRecord {
        let sample = |at, rtt_us| TcpSample {
            at,
            rtt_us,
            min_rtt_us: 800,
            ..TcpSample::default()
        };
        RunRecord {
            warmup_seconds: 1.0,
            bottleneck: Some(Bottleneck {
                goodput_limit_bps: 200e6,
                ..Bottleneck::default()
            }),
            flows: vec![FlowRecord {
                congestion: congestion.into(),
                congestion_seen: vec![congestion.into()],
                goodput_bps,
                mss_bytes: 1448,
                segments_per_ack: Some(1.0),
                loss_events: Some(LossEvents {
                    events: 100,
                    timeouts: 0,
                    segments: 10_000,
                    ..LossEvents::default()
                }),
                // The first is from before the measurement.
                samples: vec![sample(0.5, 9000), sample(1.5, 900), sample(2.5, 1100)],
                ..FlowRecord::default()
            }],
            ..RunRecord::default()
        }
    }

    fn cell<'a>(runs: &'a [RunRecord]) -> Cell<'a> {
        Cell::new(Default::default(), runs.iter().collect())
    }

    #[test]
    fn models_use_measured_conditions() {
        let run = run("cubic", 150e6);
        let requested = conditions(&run.flows[0], &run).unwrap();
        assert!((requested.rtt_seconds - 0.001).abs() < 1e-12);
        assert!((requested.loss_event_rate - 0.01).abs() < 1e-12);
        assert!((requested.timeout_seconds - 0.201).abs() < 1e-12);
        let prediction = prediction(&run).unwrap();
        assert!(
            (prediction.mathis_bps / 141.87e6 - 1.0).abs() < 1e-3,
            "{prediction:?}"
        );
    }

    #[test]
    fn rows_have_residuals_and_the_nearer_model() {
        let runs = [
            run("cubic", 150e6),
            run("cubic", 130e6),
            run("cubic", 142e6),
        ];
        let row = row(&cell(&runs)).unwrap();
        assert_eq!(row.goodput.samples, 3);
        assert_eq!(row.models.len(), 3);
        assert!(row.nearest.1.value.abs() < 0.01, "{row:?}");
        let interval = row.nearest.1.interval.unwrap();
        assert!(interval.low < -0.08 && interval.high > 0.05, "{interval:?}");
        // (1448 * 8 * 1.2247 / 0.0008 / 200e6)^2
        assert!((row.meeting.unwrap() - 0.007_861).abs() < 1e-5, "{row:?}");
    }

    /// With two segments an ACK Mathis is 100.3 Mbit/s, for who counts segments still 141.9; the nearer one
    /// is chosen among Mathis at the measured b and RFC 9438.
    #[test]
    fn rows_compare_mathis_with_measurements() {
        let mut delayed = run("reno", 100e6);
        delayed.flows[0].segments_per_ack = Some(2.0);
        let row = row(&cell(std::slice::from_ref(&delayed))).unwrap();
        let (_, mathis, _) = row.models[0];
        assert!((mathis / 100.32e6 - 1.0).abs() < 1e-3, "{row:?}");
        assert!((row.mathis_per_segment_bps / 141.87e6 - 1.0).abs() < 1e-3);
        assert_eq!(row.nearest.0, "Mathis");
        assert!(row.nearest.1.value.abs() < 0.01, "{row:?}");
        delayed.bottleneck.as_mut().unwrap().goodput_limit_bps = 120e6;
        assert_eq!(per_segment_bps(&delayed), Some(120e6));
    }

    #[test]
    fn the_link_bounds_predictions() {
        let mut fast = run("reno", 190e6);
        fast.flows[0].loss_events = Some(LossEvents {
            events: 0,
            timeouts: 0,
            segments: 10_000,
            ..LossEvents::default()
        });
        let prediction = prediction(&fast).unwrap();
        assert_eq!((prediction.mathis_bps, prediction.cubic_bps), (200e6, None));
        fast.bottleneck = None;
        assert_eq!(super::prediction(&fast), None);
    }

    #[test]
    fn bbr_and_flows_that_switched_have_no_model() {
        assert_eq!(prediction(&run("bbr", 1.0)), None);
        let mut switched = run("cubic", 1.0);
        switched.flows[0].congestion_seen.push("bbr".into());
        assert_eq!(prediction(&switched), None);
        assert_eq!(row(&cell(&[switched])), None);
    }
}
