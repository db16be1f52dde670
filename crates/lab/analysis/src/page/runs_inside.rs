//! Panels that look inside runs: a quantity over the time of a typical one, and the distribution of its
//! samples over all of them.

use fairpath_report::Unit;
use fairpath_report::figure::{Axis as FigureAxis, Panel, Point, Reference, ReferenceLine, Series};

use super::figures::{NO_VALID_RUN, lines, y_axis};
use crate::figure::FigureSpec;
use crate::grid::{Grid, Setting};
use crate::metrics::Requested;
use crate::record::{FlowRecord, RunRecord};

/// Maximum samples of a line's distribution; of more, every k-th is used.
const MAX_SAMPLES: usize = 200_000;

/// Moments that a panel marks.
const MAX_MOMENTS: usize = 5;
/// Maximum time between a change and the first sample that shows it, seconds: samples are 0.1 s apart.
const SEEN_WITHIN_SECONDS: f64 = 0.5;

/// One typical run a line (the one nearest to the median), its flows apart.
pub(super) fn timeline(
    grid: &Grid,
    spec: &FigureSpec,
    requested: &Requested,
    part: &Setting,
    title: &str,
) -> Panel {
    let x = FigureAxis::linear("Time since the start of traffic", Unit::seconds());
    let mut panel = Panel::new(title, x, y_axis(grid, spec, requested));
    for (name, part) in lines(grid, spec, requested, part) {
        let Some(run) = grid
            .cells_of(&part)
            .find_map(|cell| cell.typical(requested))
        else {
            panel.series.extend(invalid(grid, &name, &part));
            continue;
        };
        let series = requested.series(run);
        let alone = series.len() == 1;
        for one in &series {
            let name = match (&spec.by, alone) {
                (Some(_), true) => name.clone(),
                (Some(_), false) => format!("{name}: {}", one.name),
                (None, _) => one.name.clone(),
            };
            let points = one
                .points
                .iter()
                .map(|(at, value)| Point::new(*at, *value))
                .collect();
            panel = panel.with(Series::line(&name, points));
        }
        if panel.references.is_empty() {
            panel.references = moments(run);
        }
    }
    panel
}

/// An entry of the legend for a line whose runs are all invalid; none if it has a valid one.
fn invalid(grid: &Grid, name: &str, part: &Setting) -> Option<Series> {
    let is_invalid = grid.cells_of(part).all(|cell| cell.runs.is_empty());
    let named = format!("{name}: {NO_VALID_RUN}");
    is_invalid.then(|| Series::line(&named, Vec::new()).like(name))
}

/// The moments of a run: the measurement began, the network changed, or a flow its congestion control.
fn moments(run: &RunRecord) -> Vec<Reference> {
    let up = |label: String, at: f64| Reference {
        label,
        line: ReferenceLine::Up(at),
    };
    let begun =
        (run.warmup_seconds > 0.0).then(|| up("measurement starts".to_owned(), run.warmup_seconds));
    let seen = switches(run);
    // A switch to what a socket has shows in no sample, and a step of delay neither.
    let is_seen = |at: &f64| {
        seen.iter()
            .any(|(_, seen)| (seen - at).abs() < SEEN_WITHIN_SECONDS)
    };
    let unseen: Vec<Reference> = (run.changes.iter())
        .filter(|at| !is_seen(at))
        .map(|at| up("change".to_owned(), *at))
        .collect();
    begun
        .into_iter()
        .chain(seen.iter().map(|(label, at)| up(label.clone(), *at)))
        .chain(unseen)
        .take(MAX_MOMENTS)
        .collect()
}

/// Changes of congestion control as samples show them: what to, when.
fn switches(run: &RunRecord) -> Vec<(String, f64)> {
    let of_flow = |flow: &FlowRecord| {
        let name = flow.name.clone();
        let pairs = flow.samples.windows(2);
        let changed = pairs.filter(|pair| pair[0].congestion != pair[1].congestion);
        changed
            .map(move |pair| (format!("{name} to {}", pair[1].congestion), pair[1].at))
            .collect::<Vec<_>>()
    };
    run.flows.iter().flat_map(of_flow).collect()
}

/// Every sample of all valid runs of a line.
pub(super) fn distribution(
    grid: &Grid,
    spec: &FigureSpec,
    requested: &Requested,
    part: &Setting,
    title: &str,
) -> Panel {
    let unit = requested.metric.measure.unit();
    let x = match spec.log_x {
        true => FigureAxis::log(&requested.quantity(), unit),
        false => FigureAxis::linear(&requested.quantity(), unit),
    };
    let y = FigureAxis::zero_based("Share of samples", Unit::share()).range(0.0, 1.0);
    let mut panel = Panel::new(title, x, y);
    for (name, part) in lines(grid, spec, requested, part) {
        let runs = grid.cells_of(&part).flat_map(|cell| &cell.runs);
        let samples: Vec<f64> = runs.flat_map(|run| requested.samples(run)).collect();
        if samples.is_empty() {
            panel.series.extend(invalid(grid, &name, &part));
            continue;
        }
        let step = samples.len().div_ceil(MAX_SAMPLES);
        let thinned: Vec<f64> = samples.into_iter().step_by(step).collect();
        panel = panel.with(Series::distribution(&name, &thinned));
    }
    panel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TcpSample;

    #[test]
    fn a_timeline_marks_observed_switches_and_planned_changes() {
        let sample = |at: f64, congestion: &str| TcpSample {
            at,
            congestion: congestion.into(),
            ..TcpSample::default()
        };
        let mut run = RunRecord {
            warmup_seconds: 2.0,
            changes: vec![10.0],
            flows: vec![FlowRecord {
                name: "bulk".into(),
                samples: vec![sample(9.9, "cubic"), sample(10.1, "bbr")],
                ..FlowRecord::default()
            }],
            ..RunRecord::default()
        };
        let labels = |run: &RunRecord| -> Vec<String> {
            moments(run).into_iter().map(|mark| mark.label).collect()
        };
        assert_eq!(labels(&run), ["measurement starts", "bulk to bbr"]);
        run.flows[0].samples[1].congestion = "cubic".into();
        assert_eq!(labels(&run), ["measurement starts", "change"]);
    }
}
