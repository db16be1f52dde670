//! Validation of a run: its faults, each with the observation and the remedy.
//!
//! Pure: a record and its experiment. A run with a fault is kept, marked, and excluded from figures. A slow
//! CUBIC flow proves nothing if its window or the processor was the reason.

mod measured;
mod remarks;
mod words;

use crate::experiment::Experiment;
use crate::record::{
    Fault, FaultKind, FlowRecord, KERNEL_PART, LinkRecord, PASSIVE_PART, RunRecord,
};
use crate::topology::Topology;

pub use remarks::{FEW_LOSS_EVENTS, remarks};

/// Of the time with something to send, the part that windows may hold a sender back.
const MAX_WINDOW_LIMITED: f64 = 0.05;
/// Tolerance of the mean delay: this share of the configured delay, or this number of ns if that is more.
const MAX_DELAY_OFF: f64 = 0.05;
const MAX_DELAY_OFF_NS: f64 = 50_000.0;
/// Of all processors, the part that the host may take away.
const MAX_STOLEN: f64 = 0.05;
/// The same for the kernel's packet threads: an emulator that is awake before a packet is due delays them
/// for that time, while processors are idle.
const MAX_KERNEL_WAITED: f64 = 0.4;
/// Of the time, the part that a sender, a receiver or an emulator may have waited for a processor.
const MAX_WAITED: f64 = 0.1;
/// Of all processors, the part that others may have used: what is no part of the run.
const MAX_OTHERS: f64 = 0.25;
/// Tolerance of a flow's goodput above the link rate: the queue drains after the warm-up.
const MAX_OF_RATE: f64 = 1.1;
/// Of a flow's measured time, the part that its goodput must be known for.
const MIN_KNOWN: f64 = 0.8;

/// Everything that is wrong with a run; nothing: it is true.
pub fn faults(run: &RunRecord, experiment: &Experiment) -> Vec<Fault> {
    let mut found = Vec::new();
    for flow in &run.flows {
        if !experiment.measures_machine {
            found.extend(window_limited(flow, run.warmup_seconds));
        }
        found.extend(wrong_congestion(flow, experiment));
        found.extend(unmeasured_flow(flow, run, experiment));
    }
    for link in &run.links {
        found.extend(of_link(link, run));
        found.extend(misread(link));
        found.extend(measured::jitter(link, experiment));
    }
    found.extend(measured::round_trips(run, experiment));
    found.extend(offloads_on(run));
    found.extend(missing_links(run, experiment));
    found.extend(beyond_the_rate(run, experiment));
    found.extend(missing_parts(run, experiment));
    found.extend(processors(run, experiment));
    found
}

fn fault(kind: FaultKind, text: String) -> Fault {
    Fault { kind, text }
}

/// The kernel's own account of what held the sender back, in the measured part.
fn window_limited(flow: &FlowRecord, from: f64) -> Option<Fault> {
    let before = flow.samples.iter().rfind(|sample| sample.at <= from);
    let first = before.or(flow.samples.first())?;
    let last = flow.samples.last()?;
    let busy = last.busy_us.saturating_sub(first.busy_us);
    let receiver = last.rwnd_limited_us.saturating_sub(first.rwnd_limited_us);
    let sender = last
        .sndbuf_limited_us
        .saturating_sub(first.sndbuf_limited_us);
    let share = (receiver + sender) as f64 / busy.max(1) as f64;
    (share > MAX_WINDOW_LIMITED).then(|| {
        let text = format!(
            "flow {}: {:.0} % of the time the receiver's window or the sender's buffer held it back \
             ({receiver} and {sender} of {busy} us), not its congestion control; make tcp_rmem and tcp_wmem \
             larger, or leave its window to the kernel",
            flow.name,
            share * 100.0
        );
        fault(FaultKind::WindowLimited, text)
    })
}

/// The kernel must have used the configured congestion control and the configured changes, in order.
fn wrong_congestion(flow: &FlowRecord, experiment: &Experiment) -> Option<Fault> {
    if flow.congestion.is_empty() {
        return None;
    }
    let switches = experiment
        .kind_of(&flow.name)
        .map(|(_, spec)| spec.switch.as_slice())
        .unwrap_or_default();
    let mut wanted = vec![flow.congestion.clone()];
    wanted.extend(switches.iter().map(|switch| switch.to.clone()));
    wanted.dedup();
    (flow.congestion_seen != wanted).then(|| {
        let text = format!(
            "flow {}: configured {}, but the kernel used {}: load the module, and allow it \
             (net.ipv4.tcp_allowed_congestion_control)",
            flow.name,
            wanted.join(", then "),
            or_nothing(&flow.congestion_seen.join(", then "))
        );
        fault(FaultKind::WrongCongestion, text)
    })
}

fn or_nothing(text: &str) -> &str {
    if text.is_empty() {
        "nothing that was seen"
    } else {
        text
    }
}

/// A flow whose goodput is not known for most of its time was not measured.
fn unmeasured_flow(flow: &FlowRecord, run: &RunRecord, experiment: &Experiment) -> Option<Fault> {
    let begins = run.warmup_seconds.max(flow.start_seconds);
    // iperf3 counts whole seconds.
    let own = experiment
        .kind_of(&flow.name)
        .and_then(|(_, spec)| spec.seconds);
    let ends = own.map_or(run.seconds, |seconds| flow.start_seconds + seconds.ceil());
    let measured = ends.min(run.seconds) - begins;
    let known = flow.goodput.last().map_or(0.0, |(last, _)| last - begins);
    (known < MIN_KNOWN * measured).then(|| {
        let text = format!(
            "flow {}: its goodput is known for {:.1} s of {measured:.1} s; did its connection begin late, or end?",
            flow.name,
            known.max(0.0)
        );
        fault(FaultKind::NotMeasured, text)
    })
}

/// The results of the emulator, against its configuration.
fn of_link(link: &LinkRecord, run: &RunRecord) -> Vec<Fault> {
    let mut found = Vec::new();
    let name = &link.name;
    if link.gso_packets > 0 {
        let text = format!(
            "{name}: {} of {} packets were GSO packets, so loss and queues did not apply to wire packets: disable TSO \
             and GRO upstream",
            link.gso_packets, link.packets
        );
        found.push(fault(FaultKind::OffloadsOn, text));
    }
    if let (Some((low, high)), true) = (link.loss_interval, link.packets > 0) {
        // The emulator reports the interval of its observations, other engines that of the configuration.
        let share = link.lost as f64 / link.packets as f64;
        let requested = link.loss_requested.unwrap_or(share);
        if ![share, requested]
            .iter()
            .all(|loss| (low..=high).contains(loss))
        {
            let text = format!(
                "{name}: {:.3} % of {} packets were lost; configured were {:.3} %, for which {:.3} to {:.3} % is expected",
                share * 100.0,
                link.packets,
                requested * 100.0,
                low * 100.0,
                high * 100.0
            );
            found.push(fault(FaultKind::NotImpaired, text));
        }
    }
    found.extend(wrong_delay(link, run));
    if link.own_dropped > 0 || link.reordered > 0 {
        let text = format!(
            "{name}: the emulator dropped {} packets unexpectedly and reordered {}: configure a lower rate",
            link.own_dropped, link.reordered
        );
        found.push(fault(FaultKind::EmulatorFailed, text));
    }
    if let (Some(why), true) = (&link.invalid, found.is_empty()) {
        found.push(fault(FaultKind::EmulatorFailed, format!("{name}: {why}")));
    }
    found
}

/// Words that did not come to the emulator as they were said.
fn misread(link: &LinkRecord) -> Option<Fault> {
    let what =
        (!link.stated.is_empty()).then(|| words::misread(&link.stated, &link.requested))??;
    let text = format!(
        "{}: {what}; is this fairpath's own binary (--fairpath)?",
        link.name
    );
    Some(fault(FaultKind::NotImpaired, text))
}

/// A direction without a separate delay is compared with the round-trip time that it is part of.
fn wrong_delay(link: &LinkRecord, run: &RunRecord) -> Option<Fault> {
    let requested = link.delay_requested_ns? as f64;
    let mean = link.delay_mean_ns? as f64;
    let off = (mean - requested).abs();
    let round_trip = run.bottleneck.as_ref().map_or(0, |b| b.base_rtt_ns) as f64;
    // A rate plans a wait of some ns even without other packets.
    let whole = match requested < MAX_DELAY_OFF_NS {
        true => round_trip.max(requested),
        false => requested,
    };
    (off > (whole * MAX_DELAY_OFF).max(MAX_DELAY_OFF_NS)).then(|| {
        let text = format!(
            "{}: the mean delay was {:.3} ms, and {:.3} ms were configured",
            link.name,
            mean / 1e6,
            requested / 1e6
        );
        fault(FaultKind::NotImpaired, text)
    })
}

/// Interfaces of an emulated link that accept or build GSO packets: the queues of senders and routers then
/// differ from those of a wire, even if the emulator segments the packets again.
fn offloads_on(run: &RunRecord) -> Option<Fault> {
    let is_on = |state: &&str| {
        state
            .split(", ")
            .any(|word| word == "tso on" || word == "gro on")
    };
    let on: Vec<&str> = (run.offloads.iter())
        .filter(|(_, state)| is_on(&state.as_str()))
        .map(|(interface, _)| interface.as_str())
        .collect();
    (!on.is_empty() && !run.links.is_empty()).then(|| {
        let text = format!(
            "offloads are enabled at {}: GSO packets form there, and links do not process wire packets: disable TSO and \
             GRO (offloads = false)",
            on.join(", ")
        );
        fault(FaultKind::OffloadsOn, text)
    })
}

/// Directions of links with an impairment but without a report.
fn missing_links(run: &RunRecord, experiment: &Experiment) -> Vec<Fault> {
    let Ok(topology) = Topology::of(&experiment.topology) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (name, spec) in &experiment.links {
        let ends = topology.link(name).map(|link| &link.ends);
        for far in ends.into_iter().flatten() {
            let own = format!("/{name}: towards {far}");
            let is_reported = run
                .links
                .iter()
                .any(|reported| reported.name.ends_with(&own));
            if !spec.towards(far).is_plain() && !is_reported {
                let text = format!(
                    "link {name}: nothing was done to packets towards {far}; does the emulator have that direction \
                     (the run's commands)?"
                );
                found.push(fault(FaultKind::NotImpaired, text));
            }
        }
    }
    found
}

/// No link exceeds its rate, except by bursts and the ends of intervals.
fn beyond_the_rate(run: &RunRecord, experiment: &Experiment) -> Option<Fault> {
    let limit = run.bottleneck.as_ref()?.goodput_limit_bps;
    // Flows of other paths have other links.
    let mut directions = experiment.flows.values().map(|flow| (&flow.from, &flow.to));
    let first = directions.next()?;
    let is_shared = directions.all(|direction| direction == first);
    let rates = run.flows.iter().map(|flow| flow.goodput_bps);
    let goodput = if is_shared {
        rates.sum()
    } else {
        rates.fold(0.0, f64::max)
    };
    (goodput > limit * MAX_OF_RATE).then(|| {
        let text = format!(
            "flows reached {:.1} Mbit/s, and the link lets {:.1} through: it had no such rate",
            goodput / 1e6,
            limit / 1e6
        );
        fault(FaultKind::NotImpaired, text)
    })
}

/// The other measurements during the flows.
fn missing_parts(run: &RunRecord, experiment: &Experiment) -> Vec<Fault> {
    let mut missing = Vec::new();
    if experiment.watch.is_some() && run.passive.is_none() {
        missing
            .push("`fairpath rtt` reported nothing: run it separately for the reason".to_owned());
    }
    for ping in run.pings.iter().filter(|ping| ping.rtts_ns.is_empty()) {
        missing.push(format!("ping {}: no answer", ping.name));
    }
    for call in run.calls.iter().filter(|call| call.delays_ns.is_empty()) {
        missing.push(format!("call {}: no packet", call.name));
    }
    let as_fault = |text| fault(FaultKind::NotMeasured, text);
    missing.into_iter().map(as_fault).collect()
}

/// The shares of the processors that the host took, and that others used.
fn disturbances(run: &RunRecord) -> (f64, f64) {
    let cpu = &run.cpu;
    let all = f64::from(cpu.cpus.max(1));
    let parts: f64 = cpu.parts.values().sum();
    // Interrupts process packets of any process, and belong to none on an idle processor.
    let others = (cpu.busy - cpu.interrupts - parts) / all;
    (cpu.stolen / all, others)
}

/// True if the host or other programs took too much of the processors. Another run may be valid.
pub fn is_disturbed(run: &RunRecord) -> bool {
    let (stolen, others) = disturbances(run);
    stolen > MAX_STOLEN || others > MAX_OTHERS
}

/// A program that waits for a processor is limited by it, on any link. Full processors alone prove
/// nothing: an emulator that waits for the next packet busily fills one.
fn processors(run: &RunRecord, experiment: &Experiment) -> Vec<Fault> {
    let cpu = &run.cpu;
    let all = f64::from(cpu.cpus.max(1));
    let (stolen, others) = disturbances(run);
    let mut found = Vec::new();
    if !experiment.measures_machine && stolen > MAX_STOLEN {
        let text = format!(
            "the host took {:.0} % of the processors from this machine; run it when the host is quiet",
            stolen * 100.0
        );
        found.push(fault(FaultKind::SharedCpu, text));
    }
    if !experiment.measures_machine && others > MAX_OTHERS {
        let text = format!(
            "what is no part of the run used {:.0} % of the processors; end what else runs",
            others * 100.0
        );
        found.push(fault(FaultKind::SharedCpu, text));
    }
    let most = |part: &str| match part {
        KERNEL_PART => MAX_KERNEL_WAITED,
        _ => MAX_WAITED,
    };
    let waited = (cpu.waited.iter())
        .filter(|(part, share)| *part != PASSIVE_PART && **share > most(part))
        .max_by(|a, b| a.1.total_cmp(b.1))
        .filter(|_| !experiment.measures_machine);
    if let Some((part, share)) = waited {
        let mut parts: Vec<_> = cpu.parts.iter().collect();
        parts.sort_by(|a, b| b.1.total_cmp(a.1));
        let most: Vec<String> = (parts.iter().take(3))
            .map(|(name, cores)| format!("{name} {:.0} %", **cores * 100.0))
            .collect();
        let text = format!(
            "{part} waited {:.0} % of the time for a processor ({:.0} % idle; of one: {}), so the processor limited the traffic, not \
             the link: end other programs, or use a smaller --scale",
            share * 100.0,
            ((all - cpu.busy - cpu.stolen) / all).max(0.0) * 100.0,
            most.join(", ")
        );
        found.push(fault(FaultKind::SharedCpu, text));
    }
    found
}

mod criteria;
pub use criteria::criteria;

#[cfg(test)]
mod tests;
