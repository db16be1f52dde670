//! Metrics of the network: achieved loss, queues, lateness of the emulator, processor time.

use super::{Better, Measure, Metric, Who, is_requested};
use crate::record::{LinkRecord, QueueRecord, RunRecord};

const NS: f64 = 1e-9;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "loss",
        title: "Achieved loss",
        measure: Measure::Share,
        better: Better::Neither,
        about: "Ratio of wire packets that the emulation dropped to those received, over directions with configured loss.",
        value: loss,
        samples: None,
        series: None,
    },
    Metric {
        name: "lateness-p50",
        title: "Lateness of the emulator (median)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median lateness of packets in the emulator, of the worst direction.",
        value: |run, who| lateness(run, who, 0),
        samples: None,
        series: None,
    },
    Metric {
        name: "lateness-p99",
        title: "Lateness of the emulator (p99)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "99th percentile of the lateness of packets in the emulator, of the worst direction.",
        value: |run, who| lateness(run, who, 1),
        samples: None,
        series: None,
    },
    Metric {
        name: "queue-sojourn",
        title: "Time in the queue (median)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "Median time that packets spent in the scheduled queue; the slowest queue counts.",
        value: |run, who| sojourn(run, who, 0),
        samples: None,
        series: None,
    },
    Metric {
        name: "queue-sojourn-p99",
        title: "Time in the queue (p99)",
        measure: Measure::Time,
        better: Better::Lower,
        about: "99th percentile of the time that packets spent in the scheduled queue; the slowest queue counts.",
        value: |run, who| sojourn(run, who, 2),
        samples: None,
        series: None,
    },
    Metric {
        name: "drops",
        title: "Packets dropped by queues",
        measure: Measure::Share,
        better: Better::Lower,
        about: "Ratio of packets that queues of the experiment dropped to those enqueued, without emulated loss.",
        value: drops,
        samples: None,
        series: None,
    },
    Metric {
        name: "marks",
        title: "Packets marked by queues",
        measure: Measure::Share,
        better: Better::Neither,
        about: "Packets that scheduled queues marked (ECN) against those that came to them.",
        value: marks,
        samples: None,
        series: None,
    },
    Metric {
        name: "cpu",
        title: "Processors busy",
        measure: Measure::Cores,
        better: Better::Lower,
        about: "Processors of the machine that were busy, everything together.",
        value: cpu,
        samples: None,
        series: None,
    },
    Metric {
        name: "cpu-measurement",
        title: "Processor time of the measurement",
        measure: Measure::Cores,
        better: Better::Lower,
        about: "Processors that sampling, pings and passive measurement kept busy.",
        value: |run, _| cpu_of(run, |part| part.starts_with("measurement")),
        samples: None,
        series: None,
    },
    Metric {
        name: "cpu-network",
        title: "Processor time of impairment and shaping",
        measure: Measure::Cores,
        better: Better::Lower,
        about: "Processors that the processes of fairpath kept busy, which were the network under test.",
        value: |run, _| cpu_of(run, |part| part.starts_with("fairpath")),
        samples: None,
        series: None,
    },
];

fn links<'a>(run: &'a RunRecord, who: Who<'a>) -> impl Iterator<Item = &'a LinkRecord> {
    run.links.iter().filter(move |l| is_requested(who, &l.name))
}

fn queues<'a>(run: &'a RunRecord, who: Who<'a>) -> impl Iterator<Item = &'a QueueRecord> {
    run.queues
        .iter()
        .filter(move |q| is_requested(who, &q.name) || is_requested(who, &q.policy))
}

fn loss(run: &RunRecord, who: Who) -> Option<f64> {
    // A direction that loses nothing by design, such as that of acknowledgements, thins nothing out.
    let is_lossy =
        |l: &&LinkRecord| l.loss_requested.is_some_and(|share| share > 0.0) || l.lost > 0;
    let is_held = |l: &&LinkRecord| l.loss_requested.is_some();
    let any = links(run, who).any(|l| is_lossy(&l));
    let lossy = || links(run, who).filter(move |l| if any { is_lossy(l) } else { is_held(l) });
    let packets: u64 = lossy().map(|l| l.packets).sum();
    let lost: u64 = lossy().map(|l| l.lost).sum();
    (packets > 0).then(|| lost as f64 / packets as f64)
}

fn lateness(run: &RunRecord, who: Who, index: usize) -> Option<f64> {
    let worst = links(run, who)
        .filter_map(|l| l.lateness_ns)
        .map(|quantiles| quantiles[index])
        .max()?;
    Some(worst as f64 * NS)
}

fn sojourn(run: &RunRecord, who: Who, index: usize) -> Option<f64> {
    let slowest = queues(run, who)
        .filter_map(|q| q.sojourn_ns)
        .map(|quantiles| quantiles[index])
        .max()?;
    Some(slowest as f64 * NS)
}

/// Over scheduled queues; where there is none, over the queues of impaired links.
fn drops(run: &RunRecord, who: Who) -> Option<f64> {
    let mut arrived: u64 = queues(run, who).map(|q| q.arrived).sum();
    let mut dropped: u64 = queues(run, who).map(|q| q.dropped).sum();
    if arrived == 0 {
        arrived = links(run, who).map(|l| l.packets).sum();
        dropped = links(run, who).map(|l| l.queue_dropped).sum();
    }
    (arrived > 0).then(|| dropped as f64 / arrived as f64)
}

fn marks(run: &RunRecord, who: Who) -> Option<f64> {
    let arrived: u64 = queues(run, who).map(|q| q.arrived).sum();
    let marked: u64 = queues(run, who).map(|q| q.marked).sum();
    (arrived > 0).then(|| marked as f64 / arrived as f64)
}

fn cpu(run: &RunRecord, _who: Who) -> Option<f64> {
    (run.cpu.cpus > 0).then(|| run.cpu.total())
}

fn cpu_of(run: &RunRecord, is_part: fn(&str) -> bool) -> Option<f64> {
    run.cpu
        .parts
        .iter()
        .filter(|(part, _)| is_part(part))
        .map(|(_, cores)| *cores)
        .reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use crate::metrics::find;
    use crate::record::{LinkRecord, QueueRecord, RunRecord};

    fn link(name: &str, lost: u64, loss_requested: Option<f64>) -> LinkRecord {
        LinkRecord {
            name: name.into(),
            packets: 1000,
            lost,
            loss_requested,
            queue_dropped: 5,
            lateness_ns: Some([20_000 + lost, 90_000, 0, 0]),
            ..LinkRecord::default()
        }
    }

    fn run() -> RunRecord {
        RunRecord {
            links: vec![link("data", 10, Some(0.01)), link("acks", 0, None)],
            ..RunRecord::default()
        }
    }

    #[test]
    fn only_directions_with_configured_loss_count_as_loss() {
        assert_eq!(find("loss").unwrap().value(&run()), Some(0.01));
        assert_eq!(find("loss@acks").unwrap().value(&run()), None);
        assert_eq!(
            find("lateness-p50").unwrap().value(&run()),
            Some(20_010.0 * 1e-9)
        );
    }

    #[test]
    fn a_lossless_direction_does_not_dilute_loss() {
        let mut run = run();
        run.links[1].loss_requested = Some(0.0);
        assert_eq!(find("loss").unwrap().value(&run), Some(0.01));
        run.links.remove(0);
        assert_eq!(find("loss").unwrap().value(&run), Some(0.0));
    }

    #[test]
    fn the_passive_measurement_is_measurement_and_no_network() {
        let mut run = run();
        let part = |(name, cores): (&str, f64)| (name.to_owned(), cores);
        run.cpu.parts = [
            ("measurement", 0.25),
            (crate::record::PASSIVE_PART, 0.5),
            ("fairpath impair wan", 1.0),
        ]
        .map(part)
        .into();
        assert_eq!(find("cpu-measurement").unwrap().value(&run), Some(0.75));
        assert_eq!(find("cpu-network").unwrap().value(&run), Some(1.0));
    }

    #[test]
    fn queue_drops_are_reported_before_link_drops() {
        let mut run = run();
        assert_eq!(find("drops").unwrap().value(&run), Some(0.005));
        run.queues.push(QueueRecord {
            policy: "codel".into(),
            arrived: 200,
            dropped: 2,
            marked: 20,
            sojourn_ns: Some([1_000, 2_000, 3_000]),
            ..QueueRecord::default()
        });
        assert_eq!(find("drops").unwrap().value(&run), Some(0.01));
        assert_eq!(find("marks@codel").unwrap().value(&run), Some(0.1));
        assert_eq!(
            find("queue-sojourn-p99").unwrap().value(&run),
            Some(3_000.0 * 1e-9)
        );
    }
}
