//! The conditions for running an experiment, beyond the form of its file.
//!
//! Checked when the file is read, for every setting of both forms: an experiment that would fail after
//! an hour is refused at once.

mod flows;

use std::collections::BTreeSet;

use super::document::{Document, LoadError, nearest};
use super::form::FormName;
use super::{Experiment, LinkSpec, ScaleChoice, buffer};
use crate::results::MAX_RUNS;
use crate::topology::Topology;

/// The programs that packets may be diverted through.
const PROGRAMS: [&str; 4] = ["none", "c", "go", "fairpath"];

/// Checks names and every setting of both forms.
///
/// # Errors
/// The first thing that is wrong.
pub fn document(document: &Document) -> Result<(), LoadError> {
    let base = document.base();
    axes(base).map_err(|text| document.refused("", &text))?;
    for form in [FormName::Quick, FormName::Full] {
        grids(document, form).map_err(|text| document.refused(&format!("form {form}"), &text))?;
        let settings = document.settings(form);
        for setting in &settings {
            let experiment = document.at(form, setting)?;
            let runs = settings.len() * experiment.repeats as usize;
            if runs > MAX_RUNS {
                let text = format!("{runs} runs, and {MAX_RUNS} is the most; use fewer values");
                return Err(document.refused(&format!("form {form}"), &text));
            }
        }
    }
    Ok(())
}

/// Names of axes are there once, and figures name axes that are there.
fn axes(base: &Experiment) -> Result<(), String> {
    let names: Vec<&str> = base.axes.iter().map(|axis| axis.name.as_str()).collect();
    for axis in &base.axes {
        if names.iter().filter(|name| **name == axis.name).count() > 1 {
            return Err(format!("axis {} is there twice; name each once", axis.name));
        }
        if axis.values.is_empty() {
            return Err(format!(
                "axis {} has no values; write one at least",
                axis.name
            ));
        }
        let different: BTreeSet<String> = axis.names().into_iter().collect();
        if different.len() < axis.values.len() {
            return Err(format!(
                "axis {} has a value twice; write each once",
                axis.name
            ));
        }
    }
    for figure in &base.figures {
        crate::metrics::find(&figure.y)
            .map_err(|error| format!("figure \"{}\": {error}", figure.title))?;
        for name in [&figure.x, &figure.by, &figure.split].into_iter().flatten() {
            known(
                "axis",
                name,
                &names,
                &format!("figure \"{}\"", figure.title),
            )?;
        }
    }
    Ok(())
}

/// Grids name axes and values that are there.
fn grids(document: &Document, form: FormName) -> Result<(), String> {
    let base = document.base();
    let names: Vec<&str> = base.axes.iter().map(|axis| axis.name.as_str()).collect();
    for name in document.form(form).grid.iter().flat_map(|grid| grid.keys()) {
        known("axis", name, &names, "grid")?;
    }
    Ok(())
}

/// Checks that one setting can be run on its topology, and writes its buffers in packets.
///
/// # Errors
/// Object, cause, remedy.
pub fn setting(experiment: &mut Experiment) -> Result<(), String> {
    let topology = Topology::of(&experiment.topology).map_err(|error| error.to_string())?;
    let hosts: Vec<&str> = topology.hosts.iter().map(String::as_str).collect();
    times(experiment)?;
    links(experiment, &topology)?;
    flows::check(experiment, &hosts)?;
    if let Some(divert) = &experiment.divert {
        known("host", &divert.at, &hosts, "divert")?;
        known("program", &divert.program, &PROGRAMS, "divert")?;
    }
    if let Some(watch) = &experiment.watch {
        known("host", watch, &hosts, "watch")?;
    }
    let others = (experiment
        .pings
        .iter()
        .map(|(name, ping)| (name, &ping.from, &ping.to)))
    .chain(
        experiment
            .calls
            .iter()
            .map(|(name, call)| (name, &call.from, &call.to)),
    );
    for (name, from, to) in others {
        known("host", from, &hosts, name)?;
        known("host", to, &hosts, name)?;
    }
    buffer::in_packets(experiment, &topology)
}

fn times(experiment: &Experiment) -> Result<(), String> {
    let Experiment {
        seconds,
        warmup,
        repeats,
        ..
    } = experiment;
    if !(*warmup >= 0.0 && seconds > warmup) {
        return Err(format!(
            "seconds {seconds} leave nothing to measure after a warmup of {warmup}"
        ));
    }
    if *repeats == 0 {
        return Err("repeats 0: run each setting once at least".to_owned());
    }
    match experiment.scale {
        ScaleChoice::Fixed(factor) if !(factor > 0.0 && factor <= 1.0) => {
            Err(format!("scale {factor} is not above 0 and at most 1"))
        }
        _ => Ok(()),
    }
}

/// Links that are asked something exist, have a router to do it, and no router does two.
fn links(experiment: &Experiment, topology: &Topology) -> Result<(), String> {
    let names: Vec<&str> = topology
        .links
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    let mut busy: BTreeSet<&str> = BTreeSet::new();
    for (name, spec) in &experiment.links {
        known("link", name, &names, "links")?;
        let link = topology.link(name).expect("the name is known");
        for host in spec.to.keys() {
            let ends: Vec<&str> = link.ends.iter().map(String::as_str).collect();
            known("end", host, &ends, &format!("link {name}"))?;
        }
        round_trip_alone(name, spec)?;
        if link.ends.iter().all(|end| spec.towards(end).is_plain()) {
            continue;
        }
        let seat = topology.seat(link).ok_or_else(|| {
            format!(
                "link {name}: neither end is a router with two links, and impairing a sender's own \
                 interface misleads its TCP; put a router there"
            )
        })?;
        if !busy.insert(seat.host) {
            return Err(format!(
                "link {name}: router {} impairs another link already; put a router between",
                seat.host
            ));
        }
    }
    Ok(())
}

/// A round trip is halved between both directions: a delay next to it would replace one half.
fn round_trip_alone(name: &str, spec: &LinkSpec) -> Result<(), String> {
    let Some(rtt) = spec.rtt else {
        return Ok(());
    };
    let own = spec.to.iter().find(|(_, own)| own.delay.is_some());
    let key = match (spec.delay, own) {
        (Some(_), _) => "delay".to_owned(),
        (None, Some((host, _))) => format!("to.{host}.delay"),
        (None, None) => return Ok(()),
    };
    Err(format!(
        "link {name}: rtt {rtt} and {key} are both set; set rtt for both directions together, or delays"
    ))
}

/// `name` among `names`, or what was probably meant.
fn known(kind: &str, name: &str, names: &[&str], place: &str) -> Result<(), String> {
    if names.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, names.iter().map(|name| (*name).to_owned()));
    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
    Err(format!(
        "{place}: no {kind} \"{name}\" among {}{near}",
        names.join(", ")
    ))
}
