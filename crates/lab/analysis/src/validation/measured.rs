//! Validation of delays by independent measurements, and of jitter by those of the emulator.
//!
//! The mean delay of an emulator behind a rate is compared with its plan (`of_link`), which also an emulator
//! that omits the delay fulfils. The minimum RTT of sockets and pings is independent: it is at least the
//! delays of the links, and at most these plus full queues.

use crate::experiment::{Direction, Experiment, FRAME_BITS};
use crate::record::{Fault, FaultKind, FlowRecord, LinkRecord, RunRecord};
use crate::topology::Topology;

use super::fault;

/// Tolerance of the minimum RTT below the delays, as a share.
pub(super) const MAX_SHORT: f64 = 0.05;
/// Tolerance above delays and full queues, as a share or in ns: processors take time.
const MAX_LONG: f64 = 0.05;
const MAX_LONG_NS: f64 = 2e6;
/// A tick of TCP's timestamps in Linux.
const TIMESTAMP_NS: f64 = 1e6;
/// Number of independent delays for a deviation: its own is 2 % then.
const MIN_DELAYS: f64 = 1_000.0;
/// Tolerance of a deviation, as a share of the configured one.
const MAX_JITTER_OFF: f64 = 0.15;
/// A delay below this many deviations is often clamped at 0, and at 0 deviations 0.58 of one remains.
const WHOLE_DEVIATIONS: f64 = 3.0;
const CUT_DEVIATION: f64 = 0.5;
/// With order kept, packets that come close together wait for the slowest of them: of the deviation 0.3 is
/// left at 10,000 packets in one, by simulation.
const KEPT_DEVIATION: f64 = 0.1;

/// Round trips that say that links did not delay, or delayed by more than they were to.
pub fn round_trips(run: &RunRecord, experiment: &Experiment) -> Vec<Fault> {
    let Ok(topology) = Topology::of(&experiment.topology) else {
        return Vec::new();
    };
    let of_flow = |flow: &FlowRecord| {
        let (_, spec) = experiment.kind_of(&flow.name)?;
        let path = Path::of(experiment, &topology, &spec.from, &spec.to)?;
        let min = min_of_socket(flow)?;
        path.fault(&format!("flow {}", flow.name), min, finer(min))
    };
    let of_ping = |ping: &crate::record::PingRecord| {
        let spec = experiment.pings.get(&ping.name)?;
        let path = Path::of(experiment, &topology, &spec.from, &spec.to)?;
        let measured = ping.rtts_ns.iter().map(|(_, ns)| *ns);
        let min = measured.chain(ping.idle_rtts_ns.iter().copied()).min()?;
        path.fault(&format!("ping {}", ping.name), min as f64, min as f64)
    };
    (run.flows.iter().filter_map(of_flow))
        .chain(run.pings.iter().filter_map(of_ping))
        .collect()
}

/// The kernel's own least round trip, ns.
fn min_of_socket(flow: &FlowRecord) -> Option<f64> {
    let known = |us: &u32| *us > 0 && *us < u32::MAX;
    let min = flow.samples.iter().map(|sample| sample.min_rtt_us);
    min.filter(known).min().map(|us| f64::from(us) * 1e3)
}

/// The most that a socket's least round trip may have been. Of what was sent again the kernel knows it by
/// TCP's timestamps, in whole ms.
fn finer(min_ns: f64) -> f64 {
    match min_ns % TIMESTAMP_NS == 0.0 {
        true => min_ns + TIMESTAMP_NS,
        false => min_ns,
    }
}

/// The expected round trip over some links.
struct Path {
    /// Their delays.
    delay_ns: f64,
    /// The maximum delay of their queues; `None` for a queue without a configured limit.
    queue_ns: Option<f64>,
}

impl Path {
    /// Of the way there and back; none: its delays change, or only the emulator can read them.
    fn of(experiment: &Experiment, topology: &Topology, from: &str, to: &str) -> Option<Path> {
        let there = topology.path(from, to)?;
        let back = topology.path(to, from)?;
        let mut path = Path {
            delay_ns: 0.0,
            queue_ns: Some(0.0),
        };
        for (link, towards) in there.iter().chain(&back) {
            let spec = experiment.links.get(&link.name);
            let Some(direction) = spec.map(|spec| spec.towards(towards)) else {
                continue;
            };
            if direction.jitter.ns() > 0
                || !direction.delay_steps.is_empty()
                || direction.impair.is_some()
            {
                return None;
            }
            path.add(&direction);
        }
        (path.delay_ns > 0.0).then_some(path)
    }

    fn add(&mut self, direction: &Direction) {
        self.delay_ns += direction.delay.ns() as f64;
        if let Some(rate) = direction.rate {
            // What waits, and the packet itself.
            let holds = |limit: u32| (f64::from(limit) + 1.0) * FRAME_BITS / rate.bps() * 1e9;
            let more = direction.limit_packets().map(holds);
            self.queue_ns = self.queue_ns.zip(more).map(|(sum, more)| sum + more);
        }
    }

    /// `finer_ns` is the most that `min_ns` may stand for.
    fn fault(&self, who: &str, min_ns: f64, finer_ns: f64) -> Option<Fault> {
        let delay = self.delay_ns;
        let most = self.queue_ns.map(|queue| delay + queue);
        let slack = |ns: f64| (ns * MAX_LONG).max(MAX_LONG_NS);
        let what = if finer_ns < delay * (1.0 - MAX_SHORT) {
            "packets were not held that long".to_owned()
        } else if most.is_some_and(|most| min_ns > most + slack(most)) {
            let most = most.unwrap_or_default() / 1e6;
            format!("with full queues a round trip is {most:.3} ms: something else held packets")
        } else {
            return None;
        };
        let text = format!(
            "{who}: the minimum RTT was {:.3} ms, and delays of {:.3} ms were configured; {what}",
            min_ns / 1e6,
            delay / 1e6
        );
        Some(fault(FaultKind::NotImpaired, text))
    }
}

/// Delays whose variation differs from the configured jitter.
pub fn jitter(link: &LinkRecord, experiment: &Experiment) -> Option<Fault> {
    let direction = direction_of(link, experiment)?;
    let seen = link.delay_deviation_ns? as f64;
    let requested = direction.jitter.ns() as f64;
    let rho = direction.correlation.map_or(0.0, |share| share.value());
    let independent = link.packets as f64 * (1.0 - rho) / (1.0 + rho);
    if requested == 0.0 || independent < MIN_DELAYS || direction.impair.is_some() {
        return None;
    }
    let is_cut = (direction.delay.ns() as f64) < WHOLE_DEVIATIONS * requested;
    let min = match (direction.reordering, is_cut) {
        (false, _) => KEPT_DEVIATION,
        (true, true) => CUT_DEVIATION,
        (true, false) => 1.0 - MAX_JITTER_OFF,
    };
    // A queue's delay varies, too, and kept order adds what packets wait for one another.
    let is_alone = direction.rate.is_none() && direction.reordering;
    let most = is_alone.then_some(1.0 + MAX_JITTER_OFF);
    let is_within = seen >= min * requested && most.is_none_or(|most| seen <= most * requested);
    (!is_within).then(|| {
        let text = format!(
            "{}: delays had a standard deviation of {:.3} ms, and a jitter of {:.3} ms was configured",
            link.name,
            seen / 1e6,
            requested / 1e6
        );
        fault(FaultKind::NotImpaired, text)
    })
}

/// "router/wan: towards server": what the experiment asks of it.
fn direction_of(link: &LinkRecord, experiment: &Experiment) -> Option<Direction> {
    let (_, rest) = link.name.split_once('/')?;
    let (name, far) = rest.split_once(": towards ")?;
    Some(experiment.links.get(name)?.towards(far))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{experiment_with, run};
    use super::*;
    use crate::record::PingRecord;

    const RATED: &str = "rate = '10mbit'\nrtt = '20ms'\nlimit = 50\n";

    /// A run whose least round trips are these, of its socket and of a ping.
    fn reported(link: &str, socket_us: u32, ping_ns: u64) -> Vec<Fault> {
        let mut run = run();
        for sample in &mut run.flows[0].samples {
            sample.min_rtt_us = socket_us;
        }
        run.pings = vec![PingRecord {
            name: "ping".into(),
            rtts_ns: vec![(2.0, ping_ns), (2.1, ping_ns * 9)],
            ..PingRecord::default()
        }];
        round_trips(&run, &experiment_with(&format!("{link}[pings.ping]\n")))
    }

    #[test]
    fn a_missing_delay_is_reported() {
        assert_eq!(reported(RATED, 20_100, 20_050_000), []);
        let faults = reported(RATED, 90, 20_050_000);
        assert_eq!((faults.len(), faults[0].kind), (1, FaultKind::NotImpaired));
        assert!(
            faults[0]
                .text
                .contains("flow bulk: the minimum RTT was 0.090 ms"),
            "{}",
            faults[0].text
        );
        let faults = reported(RATED, 20_100, 10_050_000);
        assert!(faults[0].text.starts_with("ping ping:"), "{faults:?}");
    }

    #[test]
    fn kernel_rtts_in_whole_ms_are_not_shortened() {
        let link = RATED.replace("20ms", "1.3ms");
        assert_eq!(reported(&link, 1_000, 1_300_000), []);
        assert_eq!(reported(&link, 1_001, 1_300_000).len(), 1);
        assert_eq!(
            reported(&link.replace("1.3ms", "2.2ms"), 1_000, 2_200_000).len(),
            1
        );
    }

    #[test]
    fn a_delay_beyond_full_queues_is_named() {
        // 51 frames of 1.2112 ms each way, and the delays: 143.5 ms.
        assert_eq!(reported(RATED, 140_000, 143_000_000), []);
        let faults = reported(RATED, 160_000, 143_000_000);
        assert!(
            faults[0].text.contains("something else held packets"),
            "{faults:?}"
        );
        let endless = RATED.replace("limit = 50\n", "");
        assert_eq!(reported(&endless, 160_000, 143_000_000), []);
    }

    #[test]
    fn where_delays_change_round_trips_prove_nothing() {
        for more in [
            "jitter = '1ms'\n",
            "delay-steps = [{ at = 2.0, delay = '1ms' }]\n",
            "impair = 'slot 1ms,2ms'\n",
        ] {
            assert_eq!(reported(&format!("{RATED}{more}"), 90, 1_000), [], "{more}");
        }
        assert_eq!(
            reported("rate = '10mbit'\n", 90, 1_000),
            [],
            "no delay is configured"
        );
    }

    /// The fault of a direction that saw this deviation, ns.
    fn shaken(link: &str, seen: u64, packets: u64) -> Option<Fault> {
        let mut run = run();
        run.links[0].delay_deviation_ns = Some(seen);
        run.links[0].packets = packets;
        jitter(&run.links[0], &experiment_with(link))
    }

    #[test]
    fn jitter_that_is_forgotten_or_another_is_named() {
        let free = "delay = '20ms'\njitter = '2ms'\nreordering = true\n";
        assert_eq!(shaken(free, 2_010_000, 10_000), None);
        for wrong in [20_000, 1_500_000, 2_500_000] {
            let fault = shaken(free, wrong, 10_000).unwrap();
            assert!(
                fault.text.contains("a jitter of 2.000 ms was configured"),
                "{}",
                fault.text
            );
        }
        assert_eq!(shaken(free, 20_000, 500), None, "too few samples");
        let rated = format!("{free}rate = '10mbit'\n");
        assert_eq!(
            shaken(&rated, 9_000_000, 10_000),
            None,
            "a queue varies too"
        );
        let kept = "delay = '20ms'\njitter = '2ms'\n";
        assert_eq!(shaken(kept, 700_000, 10_000), None);
        assert!(shaken(kept, 20_000, 10_000).is_some());
        let cut = "delay = '1ms'\njitter = '2ms'\nreordering = true\n";
        assert_eq!(shaken(cut, 1_400_000, 10_000), None);
        assert_eq!(
            shaken("delay = '20ms'\n", 0, 10_000),
            None,
            "no jitter is configured"
        );
    }
}
