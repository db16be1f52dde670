//! The conditions for flows and changes: names, times and ends that a run can have.

use std::collections::BTreeMap;

use super::known;
use crate::experiment::{Experiment, FlowKind, FlowSpec, LinkSpec};

/// Flows that a run has at most.
const MAX_FLOWS: u32 = 200;

/// Checks that flows can be run, and that every change of delay or congestion control comes during them.
///
/// # Errors
/// Object, cause, remedy.
pub fn check(experiment: &Experiment, hosts: &[&str]) -> Result<(), String> {
    for (name, flow) in &experiment.flows {
        let what = format!("flow {name}");
        known("host", &flow.from, hosts, &what)?;
        known("host", &flow.to, hosts, &what)?;
        load(&what, flow)?;
        times(&what, flow, experiment.seconds)?;
    }
    names(&experiment.flows)?;
    for (name, link) in &experiment.links {
        steps(name, link, experiment.seconds)?;
    }
    Ok(())
}

fn load(what: &str, flow: &FlowSpec) -> Result<(), String> {
    if flow.number > MAX_FLOWS {
        return Err(format!(
            "{what}: number {} is more than {MAX_FLOWS}",
            flow.number
        ));
    }
    match (flow.kind, &flow.congestion, &flow.bitrate) {
        (FlowKind::Tcp, None, _) => Err(format!(
            "{what}: no congestion control; write one, for the kernel's default differs"
        )),
        (FlowKind::Udp, _, None) => Err(format!("{what}: UDP needs a bitrate")),
        (FlowKind::Udp, ..) if !flow.switch.is_empty() => Err(format!(
            "{what}: UDP has no congestion control to switch; leave the switch out, or make it TCP"
        )),
        _ => Ok(()),
    }
}

/// It starts, and switches in order, before the run ends.
fn times(what: &str, flow: &FlowSpec, seconds: f64) -> Result<(), String> {
    let last = flow.start + flow.stagger * f64::from(flow.number.saturating_sub(1));
    if !(flow.start >= 0.0 && flow.stagger >= 0.0 && last < seconds) {
        return Err(format!(
            "{what}: its last start at {last} s is not within the run's {seconds} s; let it start earlier, or make \
             seconds more"
        ));
    }
    if flow.seconds.is_some_and(|own| own.is_nan() || own <= 0.0) {
        return Err(format!(
            "{what}: it is to last no time; write seconds above 0, or leave them out"
        ));
    }
    let moments = flow.switch.iter().map(|switch| switch.at);
    in_order(&format!("{what}: switch"), moments, flow.start, seconds)
}

fn steps(name: &str, link: &LinkSpec, seconds: f64) -> Result<(), String> {
    let moments = link.delay_steps.iter().map(|step| step.at);
    in_order(&format!("link {name}: delay-steps"), moments, 0.0, seconds)
}

/// Each moment is behind the one before it, between `from` and `to`.
fn in_order(
    what: &str,
    moments: impl Iterator<Item = f64>,
    from: f64,
    to: f64,
) -> Result<(), String> {
    let mut before = from;
    for (number, at) in moments.enumerate() {
        if !(at >= from && at < to) {
            return Err(format!(
                "{what}: at {at} s is not between {from} and {to} s, when it would change something; write a time \
                 between, or make seconds more"
            ));
        }
        if number > 0 && at <= before {
            return Err(format!(
                "{what}: at {at} s is not after {before} s before it; write them in order, each moment once"
            ));
        }
        before = at;
    }
    Ok(())
}

/// Several flows of one kind are "bulk", "bulk-2", ...: no other kind has one of these names.
fn names(flows: &BTreeMap<String, FlowSpec>) -> Result<(), String> {
    for (name, flow) in flows {
        let numbered = (2..=flow.number).map(|number| format!("{name}-{number}"));
        if let Some(taken) = numbered.into_iter().find(|own| flows.contains_key(own)) {
            return Err(format!(
                "flow {taken}: number {} of {name} makes one of that name, too; name it otherwise",
                flow.number
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::experiment::Document;

    const TEXT: &str = "name = 'x'\ntitle = 'X'\nquestion = '?'\ntopology = 'router'\nseconds = 5\n\
        [links.wan]\nrtt = '20ms'\n\
        delay-steps = [{ at = 1.0, delay = '5ms' }, { at = 2.0, delay = '6ms' }]\n\
        [flows.bulk]\ncongestion = 'cubic'\nnumber = 2\nstart = 1.0\n\
        switch = [{ at = 2.0, to = 'reno' }, { at = 3.0, to = 'cubic' }]\n\
        [flows.bulk-3]\ncongestion = 'cubic'\n[flows.call]\nkind = 'udp'\nbitrate = '1mbit'\n";

    fn refusal(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        let refused = Document::parse("x.toml", &TEXT.replacen(from, to, 1));
        refused.map_or_else(|error| error.to_string(), |_| format!("{to} is taken"))
    }

    #[test]
    fn runnable_experiments_are_accepted() {
        Document::parse("x.toml", TEXT).unwrap();
    }

    #[test]
    fn unreachable_settings_are_refused_with_a_remedy() {
        for (from, to, reported) in [
            (
                "at = 2.0, delay",
                "at = 5.0, delay",
                "link wan: delay-steps: at 5 s is not between 0 and 5 s",
            ),
            (
                "at = 2.0, delay",
                "at = 0.5, delay",
                "at 0.5 s is not after 1 s",
            ),
            (
                "at = 3.0, to",
                "at = 8.0, to",
                "flow bulk: switch: at 8 s is not between 1 and 5 s",
            ),
            (
                "at = 2.0, to",
                "at = 0.5, to",
                "at 0.5 s is not between 1 and 5 s",
            ),
            (
                "start = 1.0",
                "start = 9.0",
                "flow bulk: its last start at 9 s is not within the run's 5 s",
            ),
            (
                "start = 1.0",
                "start = 1.0\nstagger = 4.0",
                "its last start at 5 s",
            ),
            (
                "start = 1.0",
                "start = 1.0\nseconds = 0.0",
                "it is to last no time",
            ),
            (
                "[flows.bulk-3]",
                "[flows.bulk-2]",
                "flow bulk-2: number 2 of bulk makes one of that name",
            ),
            (
                "'1mbit'",
                "'1mbit'\nswitch = [{ at = 2.0, to = 'bbr' }]",
                "flow call: UDP has no congestion control",
            ),
        ] {
            let error = refusal(from, to);
            assert!(error.contains(reported), "{to}: {error}");
        }
    }
}
