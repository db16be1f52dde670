//! The largest scale at which the emulation of an experiment is valid on this machine, by short trials.
//!
//! Rates are scaled by a factor and link times by its inverse, so the product of rate and round-trip time
//! stays, and with it windows in segments. The cost of loss as a share of the link rate is then the same,
//! except for effects in real time (CUBIC's cubic growth, timeouts, delayed acknowledgements).
//! Trials use the most demanding settings: those without loss, at the
//! base of axes that have one, one for each network and congestion control.

use std::collections::BTreeSet;

use fairpath_analysis::experiment::{Experiment, NamedScale, ScaleChoice};
use fairpath_analysis::manifest::Scale;
use fairpath_analysis::record::{FaultKind, RunRecord};
use fairpath_analysis::validation::is_disturbed;

use crate::grid::Cell;
use crate::run::{Bench, Trouble, base_rtt_ns};

/// Factors in the order of their trials.
const FACTORS: [f64; 6] = [1.0, 0.5, 0.25, 0.1, 0.05, 0.02];
/// Seconds of a trial, and of these before the measurement, where round trips are short.
const TRIAL_SECONDS: f64 = 3.0;
const TRIAL_WARMUP: f64 = 1.0;
/// Round trips that a trial has more, and of these before the measurement: a start takes some.
const TRIAL_ROUND_TRIPS: f64 = 20.0;
const WARMUP_ROUND_TRIPS: f64 = 10.0;
/// A trial is never longer than this, seconds.
const MAX_TRIAL_SECONDS: f64 = 15.0;
/// A trial that the host or other programs disturbed is made this many times.
const ATTEMPTS: u32 = 4;
/// A trial's goodput is at least this share of what the link lets through: nothing else bounds it.
const FULL_SHARE: f64 = 0.95;

/// Finds the scale: the factor, and the words for the manifest where it is not 1.
///
/// # Errors
/// No factor is true, or what would fail every run.
pub fn find(
    bench: &mut Bench,
    cells: &[Cell],
    mut report: impl FnMut(&str),
) -> Result<(f64, Option<Scale>), Trouble> {
    match cells.first().map(|cell| cell.experiment.scale) {
        None => Ok((1.0, None)),
        Some(ScaleChoice::Fixed(factor)) => Ok((factor, words(factor, "as configured"))),
        Some(ScaleChoice::Named(NamedScale::Auto)) => {
            by_trial(bench, &most_demanding(cells), &mut report)
        }
    }
}

/// The maximum duration of trials with short round trips, seconds; `each` is the time to set up a run.
pub fn cost(experiment: &Experiment, each: f64) -> f64 {
    match experiment.scale {
        ScaleChoice::Fixed(_) => 0.0,
        ScaleChoice::Named(NamedScale::Auto) => FACTORS.len() as f64 * (TRIAL_SECONDS + each),
    }
}

fn by_trial(
    bench: &mut Bench,
    cells: &[&Cell],
    report: &mut impl FnMut(&str),
) -> Result<(f64, Option<Scale>), Trouble> {
    let mut why = String::new();
    for factor in FACTORS {
        match first_fault(bench, cells, factor, report)? {
            None => {
                report(&format!("scale {factor}: valid"));
                return Ok((
                    factor,
                    words(factor, "the largest at which trials were valid"),
                ));
            }
            Some(fault) => {
                report(&format!("scale {factor}: {fault}"));
                why = fault;
            }
        }
    }
    Err(Trouble::Fatal(anyhow::anyhow!(
        "no scale down to {} has a valid emulation here: {why}: free the processors, or set --scale \
         (--scale FACTOR)",
        FACTORS[FACTORS.len() - 1]
    )))
}

/// The first fault at a factor, of the first trial that is invalid.
fn first_fault(
    bench: &mut Bench,
    cells: &[&Cell],
    factor: f64,
    report: &mut impl FnMut(&str),
) -> Result<Option<String>, Trouble> {
    for cell in cells {
        let mut run = || bench.run(&trial(cell, factor), factor);
        let fault = judged(factor, report, &mut run)?;
        if fault.is_some() {
            return Ok(fault);
        }
    }
    Ok(None)
}

/// The fault of a trial at a factor. A smaller factor does not help against a host or other programs
/// that take the processors, so a trial that they disturbed is repeated. If all were, only their effect
/// is known: the factor is kept, unless the last trial has another fault.
fn judged(
    factor: f64,
    report: &mut impl FnMut(&str),
    run: &mut impl FnMut() -> Result<RunRecord, Trouble>,
) -> Result<Option<String>, Trouble> {
    for attempt in 1..=ATTEMPTS {
        let run = run()?;
        let Some(fault) = fault(&run) else {
            return Ok(None);
        };
        if !is_disturbed(&run) {
            return Ok(Some(fault));
        }
        if attempt < ATTEMPTS {
            report(&format!("scale {factor}: {fault}; the trial is repeated"));
            continue;
        }
        let other = run
            .faults
            .iter()
            .find(|fault| fault.kind != FaultKind::SharedCpu);
        if let Some(other) = other {
            return Ok(Some(other.text.clone()));
        }
        report(&format!(
            "scale {factor}: kept, although {ATTEMPTS} trials were disturbed: {fault}"
        ));
    }
    Ok(None)
}

/// A short form of a cell that is long enough for its round trip at this factor.
fn trial(cell: &Cell, factor: f64) -> Cell {
    let mut trial = cell.clone();
    let round_trip = base_rtt_ns(&cell.experiment) as f64 * 1e-9 / factor;
    let seconds = TRIAL_SECONDS + TRIAL_ROUND_TRIPS * round_trip;
    trial.experiment.seconds = seconds.min(MAX_TRIAL_SECONDS);
    let warmup = TRIAL_WARMUP + WARMUP_ROUND_TRIPS * round_trip;
    trial.experiment.warmup = warmup.min(MAX_TRIAL_SECONDS / 2.0);
    trial
}

fn fault(run: &RunRecord) -> Option<String> {
    let limit = run
        .bottleneck
        .as_ref()
        .map_or(0.0, |bottleneck| bottleneck.goodput_limit_bps);
    let goodput: f64 = run.flows.iter().map(|flow| flow.goodput_bps).sum();
    let short = || {
        format!(
            "its flows reached {:.0} % of the link",
            goodput / limit * 100.0
        )
    };
    let named = run.faults.first().map(|fault| fault.text.clone());
    named.or_else(|| (goodput < FULL_SHARE * limit).then(short))
}

/// The first cell of each congestion control among those that lose nothing, at the base of axes that have one
/// and the least round trip; where all lose, the first cell.
fn most_demanding(cells: &[Cell]) -> Vec<&Cell> {
    let loses = |cell: &Cell| {
        let links = cell.experiment.links.values();
        let mut specs = links.flat_map(|link| {
            link.to
                .keys()
                .map(String::as_str)
                .chain([""])
                .map(|end| link.towards(end))
        });
        specs.any(|direction| direction.loss.value() > 0.0)
    };
    let is_base = |cell: &&Cell| {
        let axes = cell.experiment.axes.iter();
        let mut based = axes.filter_map(|axis| Some((&axis.name, axis.base.as_ref()?)));
        based.all(|(axis, base)| cell.setting.get(axis) == Some(base))
    };
    let mut whole: Vec<&Cell> = cells.iter().filter(|cell| !loses(cell)).collect();
    if whole.iter().any(&is_base) {
        whole.retain(&is_base);
    }
    let min = whole.iter().map(|cell| base_rtt_ns(&cell.experiment)).min();
    let mut seen = BTreeSet::new();
    let mut found: Vec<&Cell> = (whole.into_iter())
        .filter(|cell| Some(base_rtt_ns(&cell.experiment)) == min)
        .filter(|cell| {
            let network = format!("{:?}", cell.experiment.topology);
            seen.insert((network, congestions(&cell.experiment)))
        })
        .collect();
    if found.is_empty() {
        found.extend(cells.first());
    }
    found
}

fn congestions(experiment: &Experiment) -> Vec<Option<String>> {
    let flows = experiment.flows.values();
    flows.map(|flow| flow.congestion.clone()).collect()
}

fn words(factor: f64, why: &str) -> Option<Scale> {
    (factor < 1.0).then(|| Scale {
        factor,
        text: format!(
            "Rates are {factor} of those of the experiment, and link delays are divided by that ({why}): the \
             processors of this machine cannot carry more. Rate times round trip stays, and with it windows in \
             packets, except what follows real time (CUBIC's cubic growth, timeouts, delayed \
             acknowledgements). Neither rates nor shares of the link's rate can be compared with those of another \
             scale. Where a value names a round \
             trip, it is the experiment's: here it is {:.0} times as long.",
            1.0 / factor
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::experiment::{Document, FormName};
    use fairpath_analysis::record::{Bottleneck, Fault, FlowRecord};

    #[test]
    fn trials_cover_every_network_without_loss() {
        let document = Document::open("ripe88").unwrap();
        for (form, controls) in [(FormName::Quick, 4), (FormName::Full, 6)] {
            for seed in [1, 2, 88] {
                let cells = crate::grid::plan(&document, form, seed).unwrap();
                let found = most_demanding(&cells);
                assert_eq!(found.len(), controls, "{form} {seed}");
                for cell in found {
                    assert_eq!(cell.setting["loss"], "0%");
                    assert_eq!(cell.setting["rtt"], "0.5ms");
                }
            }
        }
    }

    #[test]
    fn a_trial_has_time_for_its_round_trip() {
        let document = Document::open("ripe88").unwrap();
        let cells = crate::grid::plan(&document, FormName::Quick, 88).unwrap();
        let at = |factor| trial(&cells[0], factor).experiment;
        assert!((at(1.0).seconds - 3.01).abs() < 1e-9, "{}", at(1.0).seconds);
        assert!(
            (at(0.02).seconds - 3.5).abs() < 1e-9,
            "{}",
            at(0.02).seconds
        );
        assert!(at(1e-4).warmup < at(1e-4).seconds);
    }

    /// A trial whose flow reached `share` of the link, while others used `others` of two processors.
    fn trial_with(share: f64, others: f64, kinds: &[FaultKind]) -> RunRecord {
        let mut run = RunRecord::default();
        run.cpu.cpus = 2;
        run.cpu.busy = 2.0 * others;
        run.bottleneck = Some(Bottleneck {
            goodput_limit_bps: 100.0,
            ..Bottleneck::default()
        });
        run.flows = vec![FlowRecord {
            goodput_bps: 100.0 * share,
            ..FlowRecord::default()
        }];
        let fault = |kind: &FaultKind| Fault {
            kind: *kind,
            text: format!("{kind:?}"),
        };
        run.faults = kinds.iter().map(fault).collect();
        run
    }

    #[test]
    fn disturbed_trials_are_repeated_and_do_not_shrink() {
        let judge = |trials: Vec<RunRecord>| {
            let (mut made, mut lines) = (trials.into_iter(), Vec::new());
            let mut next = || Ok(made.next().unwrap());
            let mut report = |line: &str| lines.push(line.to_owned());
            let Ok(fault) = judged(0.5, &mut report, &mut next) else {
                panic!("a trial failed");
            };
            (fault, lines, made.count())
        };
        let valid = || trial_with(1.0, 0.1, &[]);
        let noisy = || trial_with(1.0, 0.7, &[FaultKind::SharedCpu]);
        let slow = || trial_with(0.5, 0.1, &[]);
        assert_eq!(judge(vec![valid(), valid()]), (None, vec![], 1));
        let (fault, lines, left) = judge(vec![noisy(), noisy(), valid(), valid()]);
        assert_eq!((fault, lines.len(), left), (None, 2, 1));
        assert!(
            lines[0].contains("SharedCpu; the trial is repeated"),
            "{lines:?}"
        );
        // The link is too fast for this machine: no repetition.
        let (fault, lines, left) = judge(vec![slow(), valid()]);
        assert!(fault.unwrap().contains("50 % of the link") && lines.is_empty() && left == 1);
        // Noise alone keeps the scale; another fault does not.
        let (fault, lines, _) = judge(vec![noisy(), noisy(), noisy(), noisy()]);
        assert!(
            fault.is_none() && lines[3].contains("kept, although 4 trials"),
            "{lines:?}"
        );
        let late = || trial_with(1.0, 0.7, &[FaultKind::SharedCpu, FaultKind::EmulatorFailed]);
        let (fault, ..) = judge(vec![noisy(), noisy(), noisy(), late()]);
        assert_eq!(fault.as_deref(), Some("EmulatorFailed"));
    }

    #[test]
    fn scales_below_one_are_reported() {
        assert_eq!(words(1.0, "x"), None);
        assert!(
            words(0.1, "as configured")
                .unwrap()
                .text
                .contains("are 0.1 of those")
        );
    }
}
