//! Quantities of bulk flows.

use super::{Better, Measure, Metric, Series, Who, is_requested, quantile};
use crate::record::{FlowRecord, RunRecord, TcpSample};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "goodput",
        title: "Goodput",
        measure: Measure::Rate,
        better: Better::Higher,
        about: "Bytes that the receiving application got in the measured part, all flows together.",
        value: goodput,
        samples: Some(goodput_samples),
        series: Some(goodput_series),
    },
    Metric {
        name: "goodput-share",
        title: "Share of what the link lets through",
        measure: Measure::Share,
        better: Better::Higher,
        about: "Goodput against the most that TCP's payload can reach on the slowest link (its rate less headers).",
        value: goodput_share,
        samples: None,
        series: None,
    },
    Metric {
        name: "goodput-with-start",
        title: "Goodput, start included",
        measure: Measure::Rate,
        better: Better::Higher,
        about: "Receiver's goodput over the whole life of the flows, slow start included.",
        value: goodput_with_start,
        samples: None,
        series: None,
    },
    Metric {
        name: "share-of-flows",
        title: "Share of all flows' goodput",
        measure: Measure::Share,
        better: Better::Neither,
        about: "Share of the selected flows (`share-of-flows@bbr`) in the goodput of all flows.",
        value: share_of_flows,
        samples: None,
        series: None,
    },
    Metric {
        name: "retransmits",
        title: "Segments sent again",
        measure: Measure::Share,
        better: Better::Lower,
        about: "Segments that the kernel sent again against all that it sent, in the measured part.",
        value: retransmits,
        samples: None,
        series: None,
    },
    Metric {
        name: "loss-events",
        title: "Loss events a segment",
        measure: Measure::Share,
        better: Better::Lower,
        about: "Recoveries and timeouts begun against segments sent: what models of congestion control take as p.",
        value: loss_events,
        samples: None,
        series: None,
    },
    Metric {
        name: "timeouts",
        title: "Retransmission timeouts",
        measure: Measure::Number,
        better: Better::Lower,
        about: "Recoveries that began with a timeout, all flows together.",
        value: timeouts,
        samples: None,
        series: None,
    },
    Metric {
        name: "cwnd",
        title: "Congestion window",
        measure: Measure::Segments,
        better: Better::Neither,
        about: "Median of the socket's congestion window, sampled through sock_diag in the measured part.",
        value: |run, who| median_of(run, who, |s| Some(f64::from(s.cwnd))),
        samples: Some(|run, who| samples_of(run, who, |s| Some(f64::from(s.cwnd)))),
        series: Some(|run, who| series_of(run, who, |s| Some(f64::from(s.cwnd)))),
    },
    Metric {
        name: "pacing",
        title: "Pacing rate",
        measure: Measure::Rate,
        better: Better::Neither,
        about: "Median of the socket's pacing rate, sampled through sock_diag in the measured part.",
        value: |run, who| median_of(run, who, pacing),
        samples: None,
        series: Some(|run, who| series_of(run, who, pacing)),
    },
    Metric {
        name: "bbr-bandwidth",
        title: "BBR's estimate of the bandwidth",
        measure: Measure::Rate,
        better: Better::Neither,
        about: "Median of what BBR takes for the bandwidth, sampled through sock_diag where the socket uses BBR.",
        value: |run, who| median_of(run, who, |s| s.bbr_bw_bps.map(|bps| bps as f64)),
        samples: None,
        series: Some(|run, who| series_of(run, who, |s| s.bbr_bw_bps.map(|bps| bps as f64))),
    },
];

/// The selected flows, by name or congestion control.
pub(super) fn flows<'a>(run: &'a RunRecord, who: Who<'a>) -> impl Iterator<Item = &'a FlowRecord> {
    run.flows
        .iter()
        .filter(move |f| is_requested(who, &f.name) || is_requested(who, &f.congestion))
}

/// The sum over the selected flows; none without a flow.
fn sum(run: &RunRecord, who: Who, value: fn(&FlowRecord) -> f64) -> Option<f64> {
    flows(run, who).map(value).reduce(|a, b| a + b)
}

fn goodput(run: &RunRecord, who: Who) -> Option<f64> {
    sum(run, who, |f| f.goodput_bps)
}

fn goodput_with_start(run: &RunRecord, who: Who) -> Option<f64> {
    sum(run, who, |f| f.goodput_with_start_bps)
}

fn goodput_share(run: &RunRecord, who: Who) -> Option<f64> {
    let limit = run.bottleneck.as_ref()?.goodput_limit_bps;
    Some(goodput(run, who)? / limit)
}

fn share_of_flows(run: &RunRecord, who: Who) -> Option<f64> {
    Some(goodput(run, who)? / goodput(run, None)?)
}

fn retransmits(run: &RunRecord, who: Who) -> Option<f64> {
    let again = sum(run, who, |f| f.retransmits as f64)?;
    let sent = sum(run, who, |f| f.segments_sent as f64)?;
    (sent > 0.0).then(|| again / sent)
}

fn loss_events(run: &RunRecord, who: Who) -> Option<f64> {
    let mut events = 0;
    let mut segments = 0;
    for flow in flows(run, who) {
        let counted = flow.loss_events.as_ref()?;
        events += counted.events;
        segments += counted.segments;
    }
    (segments > 0).then(|| events as f64 / segments as f64)
}

fn timeouts(run: &RunRecord, who: Who) -> Option<f64> {
    flows(run, who)
        .map(|f| f.loss_events.as_ref().map(|events| events.timeouts as f64))
        .reduce(|a, b| Some(a? + b?))?
}

fn pacing(sample: &TcpSample) -> Option<f64> {
    // Sockets that do not pace have the largest number there.
    (sample.pacing_bps < u64::from(u32::MAX) * 1000).then_some(sample.pacing_bps as f64)
}

fn goodput_samples(run: &RunRecord, who: Who) -> Vec<f64> {
    flows(run, who)
        .flat_map(|f| &f.goodput)
        .filter(|(end, _)| *end > run.warmup_seconds)
        .map(|(_, bps)| *bps)
        .collect()
}

fn goodput_series(run: &RunRecord, who: Who) -> Vec<Series> {
    let series = |f: &FlowRecord| Series {
        name: f.name.clone(),
        points: f.goodput.clone(),
    };
    flows(run, who)
        .filter(|f| !f.goodput.is_empty())
        .map(series)
        .collect()
}

/// A sampled quantity in the measured part, of all selected flows.
pub(super) fn samples_of(run: &RunRecord, who: Who, of: fn(&TcpSample) -> Option<f64>) -> Vec<f64> {
    flows(run, who)
        .flat_map(|f| &f.samples)
        .filter(|s| s.at >= run.warmup_seconds)
        .filter_map(of)
        .collect()
}

pub(super) fn median_of(
    run: &RunRecord,
    who: Who,
    of: fn(&TcpSample) -> Option<f64>,
) -> Option<f64> {
    quantile(samples_of(run, who, of), 0.5)
}

pub(super) fn series_of(
    run: &RunRecord,
    who: Who,
    of: fn(&TcpSample) -> Option<f64>,
) -> Vec<Series> {
    flows(run, who)
        .map(|f| Series {
            name: f.name.clone(),
            points: f
                .samples
                .iter()
                .filter_map(|s| of(s).map(|value| (s.at, value)))
                .collect(),
        })
        .filter(|series| !series.points.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::metrics::find;
    use crate::record::{Bottleneck, FlowRecord, LossEvents, RunRecord, TcpSample};

    fn flow(name: &str, congestion: &str, goodput_bps: f64) -> FlowRecord {
        FlowRecord {
            name: name.into(),
            congestion: congestion.into(),
            goodput_bps,
            retransmits: 10,
            segments_sent: 1000,
            loss_events: Some(LossEvents {
                events: 5,
                timeouts: 1,
                segments: 1000,
                ..LossEvents::default()
            }),
            samples: (0..4u32)
                .map(|i| TcpSample {
                    at: f64::from(i),
                    cwnd: 10 * i,
                    pacing_bps: u64::MAX,
                    ..TcpSample::default()
                })
                .collect(),
            ..FlowRecord::default()
        }
    }

    fn run() -> RunRecord {
        RunRecord {
            seconds: 4.0,
            warmup_seconds: 1.0,
            bottleneck: Some(Bottleneck {
                goodput_limit_bps: 100.0,
                ..Bottleneck::default()
            }),
            flows: vec![flow("a", "cubic", 20.0), flow("b", "bbr", 60.0)],
            ..RunRecord::default()
        }
    }

    #[test]
    fn flows_are_grouped_by_name_or_congestion_control() {
        for (name, expected) in [
            ("goodput", 80.0),
            ("goodput@cubic", 20.0),
            ("goodput@b", 60.0),
            ("goodput-share", 0.8),
            ("share-of-flows@bbr", 0.75),
            ("retransmits", 0.01),
            ("loss-events", 0.005),
            ("timeouts", 2.0),
            ("cwnd", 20.0),
        ] {
            assert_eq!(find(name).unwrap().value(&run()), Some(expected), "{name}");
        }
        assert_eq!(find("goodput@reno").unwrap().value(&run()), None);
    }

    #[test]
    fn missing_counts_are_not_estimated() {
        let mut run = run();
        run.flows[1].loss_events = None;
        assert_eq!(find("loss-events").unwrap().value(&run), None);
        assert_eq!(find("timeouts").unwrap().value(&run), None);
        assert_eq!(find("loss-events@cubic").unwrap().value(&run), Some(0.005));
    }

    #[test]
    fn a_socket_without_pacing_has_no_pacing_rate() {
        assert_eq!(find("pacing").unwrap().value(&run()), None);
    }

    #[test]
    fn samples_exclude_the_warm_up_that_series_include() {
        let run = run();
        assert_eq!(find("cwnd@a").unwrap().samples(&run), [10.0, 20.0, 30.0]);
        assert_eq!(find("cwnd").unwrap().series(&run)[1].points.len(), 4);
    }
}
