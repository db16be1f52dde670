//! From an experiment to the plan of its measurement. Pure, except for the names of namespaces.

use std::time::Duration;

use fairpath_analysis::experiment::buffer::round_trip_ns;
use fairpath_analysis::experiment::{Experiment, FlowKind, FlowSpec};
use fairpath_analysis::record::Bottleneck;
use fairpath_analysis::topology::Topology;

use crate::measure::call::CallPlan;
use crate::measure::ping::PingPlan;
use crate::measure::traffic::{FlowPlan, Load};
use crate::network::{MTU, Network};

/// iperf3's first port; each flow has its own.
const FIRST_PORT: u16 = 5201;
/// A call's first port.
const CALL_PORT: u16 = 4000;
/// The receiver's intervals in short runs, up to this number of seconds, and in longer ones.
const SHORT_RUN: f64 = 30.0;
const INTERVALS_MS: [u64; 2] = [100, 500];
/// Payload of UDP flows' packets, bytes: with headers less than any MTU.
const UDP_PAYLOAD: u32 = 1200;
/// Bytes of Ethernet's header, which the rate counts with each packet.
const ETHERNET: u32 = 14;
/// Headers of IPv4 and TCP with timestamps.
const HEADERS: u32 = 20 + 32;
/// UDP's header with IPv4's: without, a rate of payload is not one of packets.
const UDP_HEADERS: u32 = 28;

/// The link that bounds the first flow, if its way has a rate.
pub fn bottleneck(experiment: &Experiment, topology: &Topology) -> Option<Bottleneck> {
    let flow = experiment.flows.values().find(|flow| flow.number > 0)?;
    let there = topology.path(&flow.from, &flow.to)?;
    let direction = |(link, towards): &(&fairpath_analysis::topology::Cable, &str)| {
        let spec = experiment.links.get(&link.name)?;
        Some(spec.towards(towards))
    };
    let rates = there.iter().filter_map(|step| direction(step)?.rate);
    let rate = rates.map(|rate| rate.bps()).min_by(f64::total_cmp)?;
    let mss = MTU - HEADERS;
    let packet = MTU + ETHERNET;
    Some(Bottleneck {
        rate_bps: rate,
        mss_bytes: mss,
        packet_bytes: packet,
        goodput_limit_bps: rate * f64::from(mss) / f64::from(packet),
        base_rtt_ns: round_trip_ns(experiment, topology, &flow.from, &flow.to),
    })
}

/// Every flow, in order; several of one kind are "bulk", "bulk-2", ...
pub fn flows(experiment: &Experiment, network: &Network) -> Vec<FlowPlan> {
    let mut plans = Vec::new();
    for (name, spec) in &experiment.flows {
        for number in 1..=spec.number {
            let name = if number == 1 {
                name.clone()
            } else {
                format!("{name}-{number}")
            };
            let start = spec.start + spec.stagger * f64::from(number - 1);
            let left = (experiment.seconds - start).max(1.0);
            let seconds = spec.seconds.unwrap_or(left).min(left);
            let port = FIRST_PORT + u16::try_from(plans.len()).unwrap_or(u16::MAX - FIRST_PORT);
            plans.push(FlowPlan {
                name,
                client: network.host(&spec.from).clone(),
                server: network.host(&spec.to).clone(),
                server_ip: network.address(&spec.to).into(),
                port,
                reverse: false,
                load: load(spec),
                start_seconds: start,
                seconds: seconds.ceil() as u32,
                interval: interval(experiment.seconds),
                cpus: None,
            });
        }
    }
    plans
}

fn interval(seconds: f64) -> Duration {
    let [short, long] = INTERVALS_MS.map(Duration::from_millis);
    if seconds <= SHORT_RUN { short } else { long }
}

fn load(spec: &FlowSpec) -> Load {
    let bitrate = spec.bitrate.map(|rate| rate.bps().round() as u64);
    match spec.kind {
        FlowKind::Tcp => Load::Tcp {
            congestion: spec.congestion.clone().unwrap_or_default(),
            bitrate_bps: bitrate,
            window_bytes: spec.window.map(u64::from),
        },
        FlowKind::Udp => Load::Udp {
            // The experiment's rate is that of packets.
            bitrate_bps: bitrate.unwrap_or(0) * u64::from(UDP_PAYLOAD)
                / u64::from(UDP_PAYLOAD + UDP_HEADERS),
            payload_bytes: UDP_PAYLOAD,
        },
    }
}

/// True if a flow has a congestion control to be sampled.
pub fn is_tcp(plan: &FlowPlan) -> bool {
    matches!(plan.load, Load::Tcp { .. })
}

/// Pings.
pub fn pings(experiment: &Experiment, network: &Network) -> Vec<PingPlan> {
    let plan = |(name, spec): (&String, &fairpath_analysis::experiment::PingSpec)| PingPlan {
        name: name.clone(),
        from: network.host(&spec.from).clone(),
        to: network.address(&spec.to),
        interval: Duration::from_nanos(spec.interval.ns()),
    };
    experiment.pings.iter().map(plan).collect()
}

/// Calls.
pub fn calls(experiment: &Experiment, network: &Network) -> Vec<CallPlan> {
    let plan =
        |(port, (name, spec)): (u16, (&String, &fairpath_analysis::experiment::CallSpec))| {
            CallPlan {
                name: name.clone(),
                from: network.host(&spec.from).clone(),
                to: network.host(&spec.to).clone(),
                to_ip: network.address(&spec.to),
                port,
                dscp: 0,
            }
        };
    (CALL_PORT..).zip(&experiment.calls).map(plan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::experiment::FormName;
    use fairpath_analysis::experiment::document::Document;

    #[test]
    fn bottleneck_is_the_slowest_link_of_the_path() {
        let document = Document::open("ripe88").unwrap();
        for setting in document.settings(FormName::Quick) {
            let experiment = document.at(FormName::Quick, &setting).unwrap();
            let topology = Topology::of(&experiment.topology).unwrap();
            let found = bottleneck(&experiment, &topology).unwrap();
            assert_eq!(
                (found.rate_bps, found.base_rtt_ns),
                (900e6, 500_000),
                "{setting:?}"
            );
            assert_eq!((found.mss_bytes, found.packet_bytes), (1448, 1514));
            assert!((found.goodput_limit_bps - 860.766e6).abs() < 1e3);
        }
    }
}
