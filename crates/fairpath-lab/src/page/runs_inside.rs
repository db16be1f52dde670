//! Panels that look inside runs: a quantity over the time of a typical one, and the distribution of its
//! samples over all of them.

use fairpath_report::Unit;
use fairpath_report::figure::{Axis as FigureAxis, Line, Panel, Point, Reference, Series};

use super::figures::{lines, y_axis};
use crate::analysis::grid::{Grid, Setting};
use crate::figure::FigureSpec;
use crate::metrics::Asked;
use crate::record::RunRecord;

/// Samples of a line's distribution that are looked at; every k-th of more.
const MAX_SAMPLES: usize = 200_000;

/// Changes of congestion control that a panel marks.
const MAX_SWITCHES: usize = 4;

/// One typical run a line (the one nearest to the median), its flows apart.
pub(super) fn timeline(
    grid: &Grid,
    spec: &FigureSpec,
    asked: &Asked,
    part: &Setting,
    title: &str,
) -> Panel {
    let x = FigureAxis::linear("Time since the traffic began", Unit::seconds());
    let mut panel = Panel::new(title, x, y_axis(grid, spec, asked));
    for (name, part) in lines(grid, spec, asked, part) {
        let Some(run) = grid.cells_of(&part).find_map(|cell| cell.typical(asked)) else {
            continue;
        };
        let series = asked.series(run);
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

/// What happened in a run when: the measurement began, a flow changed its congestion control.
fn moments(run: &RunRecord) -> Vec<Reference> {
    let up = |label: String, at: f64| Reference {
        label,
        line: Line::Up(at),
    };
    let begun =
        (run.warmup_seconds > 0.0).then(|| up("measured from here".to_owned(), run.warmup_seconds));
    let switches = run.flows.iter().flat_map(|flow| {
        let pairs = flow.samples.windows(2);
        pairs
            .filter(|pair| pair[0].congestion != pair[1].congestion)
            .map(|pair| {
                up(
                    format!("{} to {}", flow.name, pair[1].congestion),
                    pair[1].at,
                )
            })
    });
    begun
        .into_iter()
        .chain(switches.take(MAX_SWITCHES))
        .collect()
}

/// Every sample of all true runs of a line.
pub(super) fn distribution(
    grid: &Grid,
    spec: &FigureSpec,
    asked: &Asked,
    part: &Setting,
    title: &str,
) -> Panel {
    let unit = asked.metric.measure.unit();
    let x = match spec.log_x {
        true => FigureAxis::log(&asked.quantity(), unit),
        false => FigureAxis::linear(&asked.quantity(), unit),
    };
    let y = FigureAxis::zero_based("Share of samples", Unit::share()).range(0.0, 1.0);
    let mut panel = Panel::new(title, x, y);
    for (name, part) in lines(grid, spec, asked, part) {
        let runs = grid.cells_of(&part).flat_map(|cell| &cell.runs);
        let samples: Vec<f64> = runs.flat_map(|run| asked.samples(run)).collect();
        if samples.is_empty() {
            continue;
        }
        let step = samples.len().div_ceil(MAX_SAMPLES);
        let thinned: Vec<f64> = samples.into_iter().step_by(step).collect();
        panel = panel.with(Series::distribution(&name, &thinned));
    }
    panel
}
