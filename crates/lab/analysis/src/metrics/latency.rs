//! Round-trip times of sockets, passing packets and pings.

use super::bulk::{median_of, samples_of, series_of};
use super::{Better, Measure, Metric, Series, Who, is_requested, quantile};
use crate::record::{PingRecord, RunRecord, TcpSample};

const NS: f64 = 1e-9;
const US: f64 = 1e-6;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "rtt-p50",
        title: "Round trip of the flows (median)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median of the sockets' smoothed round trip, sampled through sock_diag in the measured part.",
        value: |run, who| median_of(run, who, smoothed),
        samples: Some(|run, who| samples_of(run, who, smoothed)),
        series: Some(|run, who| series_of(run, who, smoothed)),
    },
    Metric {
        name: "rtt-p99",
        title: "Round trip of the flows (p99)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "99th percentile of the sockets' smoothed round trip in the measured part.",
        value: |run, who| quantile(samples_of(run, who, smoothed), 0.99),
        samples: Some(|run, who| samples_of(run, who, smoothed)),
        series: Some(|run, who| series_of(run, who, smoothed)),
    },
    Metric {
        name: "rtt-min",
        title: "Least round trip of the flows",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Least of the sockets' least round trips: the path without a queue.",
        value: |run, who| quantile(samples_of(run, who, min), 0.0),
        samples: None,
        series: None,
    },
    Metric {
        name: "passive-rtt-p50",
        title: "Passive RTT (median)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median round trip of single packets as `fairpath rtt` saw them pass.",
        value: |run, _| passive(run, 1),
        samples: None,
        series: None,
    },
    Metric {
        name: "passive-rtt-p99",
        title: "Passive RTT (p99)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "99th percentile of round trips of single packets as `fairpath rtt` saw them pass.",
        value: |run, _| passive(run, 3),
        samples: None,
        series: None,
    },
    Metric {
        name: "passive-retransmits",
        title: "Passively measured retransmissions",
        measure: Measure::Share,
        better: Better::Lower,
        about: "Segments that `fairpath rtt` saw pass again against all segments with data.",
        value: passive_retransmits,
        samples: None,
        series: None,
    },
    Metric {
        name: "ping-p50",
        title: "Ping during the flows (median)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median RTT of echo requests during the flows.",
        value: |run, who| quantile(ping_samples(run, who), 0.5),
        samples: Some(ping_samples),
        series: Some(ping_series),
    },
    Metric {
        name: "ping-p99",
        title: "Ping during the flows (p99)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "99th percentile of the RTT of echo requests during the flows.",
        value: |run, who| quantile(ping_samples(run, who), 0.99),
        samples: Some(ping_samples),
        series: Some(ping_series),
    },
    Metric {
        name: "ping-idle",
        title: "Ping before the flows",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median round trip of echo requests before the flows began.",
        value: ping_idle,
        samples: None,
        series: None,
    },
    Metric {
        name: "ping-added",
        title: "What the flows add to a ping",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median ping during the flows minus the median ping before them.",
        value: |run, who| Some(quantile(ping_samples(run, who), 0.5)? - ping_idle(run, who)?),
        samples: None,
        series: None,
    },
    Metric {
        name: "ping-loss",
        title: "Pings without an answer",
        measure: Measure::Share,
        better: Better::Lower,
        about: "Echo requests of the measured part that had no answer.",
        value: ping_loss,
        samples: None,
        series: None,
    },
];

fn smoothed(sample: &TcpSample) -> Option<f64> {
    (sample.rtt_us > 0).then(|| f64::from(sample.rtt_us) * US)
}

fn min(sample: &TcpSample) -> Option<f64> {
    // The kernel's word for "none yet" is the largest number.
    (sample.min_rtt_us > 0 && sample.min_rtt_us < u32::MAX)
        .then(|| f64::from(sample.min_rtt_us) * US)
}

fn passive(run: &RunRecord, index: usize) -> Option<f64> {
    let quantiles = run.passive.as_ref()?.rtt_ns?;
    Some(quantiles[index] as f64 * NS)
}

fn passive_retransmits(run: &RunRecord, _who: Who) -> Option<f64> {
    let passive = run.passive.as_ref()?;
    (passive.segments > 0).then(|| passive.retransmitted as f64 / passive.segments as f64)
}

fn pings<'a>(run: &'a RunRecord, who: Who<'a>) -> impl Iterator<Item = &'a PingRecord> {
    run.pings.iter().filter(move |p| is_requested(who, &p.name))
}

fn ping_samples(run: &RunRecord, who: Who) -> Vec<f64> {
    pings(run, who)
        .flat_map(|p| &p.rtts_ns)
        .map(|(_, ns)| *ns as f64 * NS)
        .collect()
}

fn ping_series(run: &RunRecord, who: Who) -> Vec<Series> {
    let series = |p: &PingRecord| Series {
        name: p.name.clone(),
        points: p
            .rtts_ns
            .iter()
            .map(|(at, ns)| (*at, *ns as f64 * NS))
            .collect(),
    };
    pings(run, who)
        .filter(|p| !p.rtts_ns.is_empty())
        .map(series)
        .collect()
}

fn ping_idle(run: &RunRecord, who: Who) -> Option<f64> {
    let idle = pings(run, who)
        .flat_map(|p| &p.idle_rtts_ns)
        .map(|ns| *ns as f64 * NS);
    quantile(idle.collect(), 0.5)
}

fn ping_loss(run: &RunRecord, who: Who) -> Option<f64> {
    let sent: f64 = pings(run, who).map(|p| f64::from(p.sent)).sum();
    let answered: usize = pings(run, who).map(|p| p.rtts_ns.len()).sum();
    // An answer may come after the measured part began for a request from before it.
    (sent > 0.0).then(|| (1.0 - answered as f64 / sent).max(0.0))
}

#[cfg(test)]
mod tests {
    use crate::metrics::find;
    use crate::record::{FlowRecord, PassiveRecord, PingRecord, RunRecord, TcpSample};

    fn run() -> RunRecord {
        let sample = |rtt_us, min_rtt_us| TcpSample {
            rtt_us,
            min_rtt_us,
            ..TcpSample::default()
        };
        RunRecord {
            flows: vec![FlowRecord {
                samples: vec![sample(0, u32::MAX), sample(600, 500), sample(800, 480)],
                ..FlowRecord::default()
            }],
            pings: vec![PingRecord {
                name: "ping".into(),
                sent: 4,
                rtts_ns: vec![(0.0, 2_000_000), (0.1, 4_000_000), (0.2, 6_000_000)],
                idle_rtts_ns: vec![1_000_000, 1_000_000, 3_000_000],
            }],
            passive: Some(PassiveRecord {
                samples: 9,
                rtt_ns: Some([1, 2_000, 3, 4_000]),
                retransmitted: 1,
                segments: 50,
            }),
            ..RunRecord::default()
        }
    }

    #[test]
    fn round_trips_by_three_directions() {
        for (name, expected) in [
            ("rtt-p50", 700e-6),
            ("rtt-min", 480e-6),
            ("passive-rtt-p50", 2e-6),
            ("passive-rtt-p99", 4e-6),
            ("passive-retransmits", 0.02),
            ("ping-p50", 4e-3),
            ("ping-idle", 1e-3),
            ("ping-added", 3e-3),
            ("ping-loss", 0.25),
        ] {
            let got = find(name).unwrap().value(&run()).unwrap();
            assert!((got - expected).abs() < 1e-12, "{name}: {got}");
        }
    }

    #[test]
    fn another_ping_was_not_measured() {
        assert_eq!(find("ping-p50@voice").unwrap().value(&run()), None);
        assert_eq!(
            find("ping-p50@ping").unwrap().series(&run())[0]
                .points
                .len(),
            3
        );
    }
}
