//! The figures of the experiment, made from its cells.
//!
//! Settings are never pooled: an axis that a figure names neither for x nor for its lines makes panels.

use std::collections::BTreeSet;

use fairpath_report::figure::{
    Axis as FigureAxis, Figure, Gap, Panel, Point, Reference, ReferenceLine, Series,
};
use fairpath_report::{Block, Notice, Section};

use super::provenance::command_line;
use super::runs_inside::{distribution, timeline};
use crate::axis_value::{self, Kind};
use crate::figure::{FigureKind, FigureSpec};
use crate::grid::{Cell, Grid, Setting};
use crate::metrics::{self, Measure, Requested};
use crate::scaled;
use crate::theory;

/// The label of a setting whose runs are all invalid.
pub(super) const NO_VALID_RUN: &str = "no valid run";
/// The part of an axis below a quantity's minimum, as a share of its range: a value at the minimum is seen.
const BELOW_MINIMUM: f64 = 0.12;
/// Ratio of two rates from which on their axis is logarithmic.
const LINEAR_FACTOR: f64 = 100.0;
/// Panels of one figure; settings beyond are named in its caption, and are in the list of runs.
const MAX_PANELS: usize = 12;

/// All figures, in the experiment's order.
pub fn all(grid: &Grid) -> Vec<Figure> {
    grid.figures()
        .enumerate()
        .map(|(i, spec)| figure(grid, spec, i + 1))
        .collect()
}

/// The section of them; a figure without a point says so.
pub fn section(figures: Vec<Figure>) -> Section {
    let block = |figure: Figure| match figure.panels.iter().all(Panel::is_empty) {
        true => Block::Notice(Notice::warning(format!(
            "No valid run measured the quantity of \"{}\". {}",
            figure.title, figure.caption
        ))),
        false => Block::Figure(figure),
    };
    Section::new("Results", figures.into_iter().map(block).collect())
}

fn figure(grid: &Grid, spec: &FigureSpec, number: usize) -> Figure {
    let id = match &spec.x {
        Some(x) => format!("{number}-{}-by-{x}", spec.y.replace('@', "-of-")),
        None => format!("{number}-{}", spec.y.replace('@', "-of-")),
    };
    let command = command_line(&grid.manifest.command);
    let requested = match metrics::find(&spec.y) {
        Ok(requested) => requested,
        Err(error) => return Figure::new(&id, &spec.title, Vec::new()).caption(error.to_string()),
    };
    let settings = panel_settings(grid, spec);
    let shown = &settings[..settings.len().min(MAX_PANELS)];
    let panels: Vec<Panel> = shown
        .iter()
        .map(|part| panel(grid, spec, &requested, part))
        .collect();
    let mut caption = caption(grid, spec, &requested);
    if settings.len() > MAX_PANELS {
        let more = settings.len() - MAX_PANELS;
        caption.push_str(&format!(" {more} further settings have no panel."));
    }
    Figure::new(&id, &spec.title, panels)
        .caption(caption)
        .command(command)
}

/// Axes that make panels: the requested one first, then every one that would otherwise be pooled.
fn panel_axes<'a>(grid: &Grid<'a>, spec: &FigureSpec) -> Vec<&'a str> {
    let is_used = |name: &str| {
        [&spec.x, &spec.by]
            .into_iter()
            .flatten()
            .any(|used| used == name)
    };
    let mut axes: Vec<&str> = grid
        .manifest
        .axes
        .iter()
        .map(|axis| axis.name.as_str())
        .filter(|name| !is_used(name) && grid.values(name).len() > 1)
        .collect();
    axes.sort_by_key(|name| spec.split.as_deref() != Some(name));
    axes
}

/// The panels' parts of the setting. Where grids of different axes are run together, a part that has
/// only a few of the x axis's values belongs to another figure.
fn panel_settings(grid: &Grid, spec: &FigureSpec) -> Vec<Setting> {
    let all = grid.combinations(&panel_axes(grid, spec));
    let Some(x) = &spec.x else {
        return all;
    };
    let values = |part: &Setting| {
        let values: BTreeSet<&str> = grid.cells_of(part).map(|cell| cell.value(x)).collect();
        values.len()
    };
    let most = all.iter().map(values).max().unwrap_or(0);
    all.iter()
        .filter(|part| 2 * values(part) > most)
        .cloned()
        .collect()
}

fn panel(grid: &Grid, spec: &FigureSpec, requested: &Requested, part: &Setting) -> Panel {
    let title = grid.words(part);
    match spec.kind {
        FigureKind::Curve | FigureKind::Bars => over_axis(grid, spec, requested, part, &title),
        FigureKind::Timeline => timeline(grid, spec, requested, part, &title),
        FigureKind::Distribution => distribution(grid, spec, requested, part, &title),
    }
}

/// The lines of a panel: (their name, their part of the setting).
pub(super) fn lines(
    grid: &Grid,
    spec: &FigureSpec,
    requested: &Requested,
    part: &Setting,
) -> Vec<(String, Setting)> {
    let Some((by, axis)) = spec.by.as_ref().and_then(|by| Some((by, grid.axis(by)?))) else {
        return vec![(requested.title(), part.clone())];
    };
    let line = |value: &str| {
        let mut part = part.clone();
        part.insert(by.clone(), value.to_owned());
        (grid.word(axis, value), part)
    };
    grid.values(by).into_iter().map(line).collect()
}

/// Medians over an axis, as curves where its values are numbers.
fn over_axis(
    grid: &Grid,
    spec: &FigureSpec,
    requested: &Requested,
    part: &Setting,
    title: &str,
) -> Panel {
    let x = spec.x.as_deref().unwrap_or_default();
    let values = grid.values(x);
    let numbers = numbers(grid, x, &values).filter(|_| spec.kind == FigureKind::Curve);
    let label = grid.axis(x).map_or(x, |axis| axis.title());
    let x_axis = match &numbers {
        Some((kind, _)) if spec.log_x => FigureAxis::log(label, kind.unit()),
        Some((kind, _)) => FigureAxis::linear(label, kind.unit()),
        None => FigureAxis::names(label, values.iter().map(|v| grid.shown(x, v)).collect()),
    };
    let place = |cell: &Cell| -> Option<f64> {
        let index = values.iter().position(|value| *value == cell.value(x))?;
        Some(
            numbers
                .as_ref()
                .map_or(index as f64, |(_, numbers)| numbers[index]),
        )
    };
    let mut panel = Panel::new(title, x_axis, y_axis(grid, spec, requested));
    let lines = lines(grid, spec, requested, part);
    for (name, part) in &lines {
        let point = |cell: &Cell| Some(Point::estimate(place(cell)?, &cell.estimate(requested)?));
        let points: Vec<Point> = grid.cells_of(part).filter_map(point).collect();
        let gap = |cell: &Cell| {
            Some(Gap {
                x: place(cell)?,
                label: NO_VALID_RUN.to_owned(),
            })
        };
        let invalid = grid.cells_of(part).filter(|cell| cell.runs.is_empty());
        let series = match numbers.is_some() {
            true => Series::line(name, points),
            false => Series::bars(name, points),
        };
        panel = panel.with(series.gaps(invalid.filter_map(gap).collect()));
    }
    if spec.theory && is_goodput(requested) {
        for (name, part) in &lines {
            panel
                .series
                .extend(theory_lines(grid, requested, name, part, &place));
        }
    }
    panel.references = references(grid, requested, part);
    // On a linear axis it would lie on the axis itself.
    if spec.theory
        && spec.log_x
        && numbers
            .as_ref()
            .is_some_and(|(kind, _)| *kind == Kind::Share)
    {
        panel.references.extend(meeting(grid, part));
    }
    panel
}

/// The numbers of an axis, if its values are numbers; round trips as they were emulated.
fn numbers(grid: &Grid, axis: &str, values: &[&str]) -> Option<(Kind, Vec<f64>)> {
    let (kind, mut numbers) = axis_value::numbers(values.iter().copied())?;
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = grid.emulated(axis, value).unwrap_or(*number);
    }
    Some((kind, numbers))
}

fn is_goodput(requested: &Requested) -> bool {
    matches!(requested.metric.name, "goodput" | "goodput-share") && requested.who.is_none()
}

/// The predictions of each model for a line's cells.
fn theory_lines(
    grid: &Grid,
    requested: &Requested,
    name: &str,
    part: &Setting,
    place: &dyn Fn(&Cell) -> Option<f64>,
) -> Vec<Series> {
    let rows: Vec<(&Cell, &theory::TheoryRow)> = grid
        .cells_of(part)
        .filter_map(|cell| Some((cell, cell.theory()?)))
        .collect();
    let in_unit = |cell: &Cell, bps: f64| match requested.metric.measure {
        Measure::Share => limit(cell).map(|limit| bps / limit),
        _ => Some(bps),
    };
    let line = |model: theory::Model| {
        let points: Vec<Point> = rows
            .iter()
            .filter_map(|(cell, row)| {
                let (_, bps, _) = row.models.iter().find(|(m, ..)| *m == model)?;
                Some(Point::new(place(cell)?, in_unit(cell, *bps)?))
            })
            .collect();
        (!points.is_empty())
            .then(|| Series::theory(&format!("{} for {name}", model.name()), points))
    };
    theory::Model::ALL.into_iter().filter_map(line).collect()
}

fn limit(cell: &Cell) -> Option<f64> {
    let run = cell.runs.first()?;
    run.bottleneck.as_ref().map(|b| b.goodput_limit_bps)
}

/// The rate that the link allows, if all cells of the panel have the same link.
fn references(grid: &Grid, requested: &Requested, part: &Setting) -> Vec<Reference> {
    let limits: Vec<f64> = grid.cells_of(part).filter_map(limit).collect();
    let same = limits.windows(2).all(|pair| pair[0] == pair[1]);
    let at = match requested.metric.name {
        "goodput" if same => limits.first().copied(),
        "goodput-share" => Some(1.0),
        _ => None,
    };
    let reference = |at| Reference {
        label: "link rate".to_owned(),
        line: ReferenceLine::Across(at),
    };
    at.map(reference).into_iter().collect()
}

/// Where Mathis meets the link rate, on an axis of shares.
fn meeting(grid: &Grid, part: &Setting) -> Option<Reference> {
    let rows = grid.cells_of(part).filter_map(Cell::theory);
    let meetings: Vec<f64> = rows.filter_map(|row| row.meeting).collect();
    let at = fairpath_report::statistics::median(&meetings)?;
    Some(Reference {
        label: "p*: Mathis reaches the link rate".to_owned(),
        line: ReferenceLine::Up(at),
    })
}

pub(super) fn y_axis(grid: &Grid, spec: &FigureSpec, requested: &Requested) -> FigureAxis {
    let metric = requested.metric;
    let unit = metric.measure.unit();
    let title = match spec.kind {
        FigureKind::Timeline => requested.quantity(),
        _ => requested.title(),
    };
    if spec.log_y || (spec.kind == FigureKind::Curve && spans_decades(grid, requested)) {
        return FigureAxis::log(&title, unit);
    }
    match metric.name {
        // Of n flows the index is 1/n at least.
        "jain" => from_minimum(
            FigureAxis::linear(&title, unit),
            1.0 / most_flows(grid),
            1.0,
        ),
        name if name.starts_with("mos") => from_minimum(FigureAxis::linear(&title, unit), 1.0, 4.5),
        _ => FigureAxis::zero_based(&title, unit),
    }
}

/// True for rates of which a linear axis would show the lowest at 0 only.
fn spans_decades(grid: &Grid, requested: &Requested) -> bool {
    if requested.metric.measure != Measure::Rate {
        return false;
    }
    let medians = grid
        .cells
        .iter()
        .filter_map(|cell| cell.estimate(requested));
    let rates: Vec<f64> = medians
        .map(|median| median.value)
        .filter(|rate| *rate > 0.0)
        .collect();
    let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rates.iter().copied().fold(0.0, f64::max);
    high >= low * LINEAR_FACTOR
}

/// An axis of a quantity with these ends, of which the lower one is off the edge.
fn from_minimum(axis: FigureAxis, min: f64, max: f64) -> FigureAxis {
    axis.range(min - BELOW_MINIMUM * (max - min), max)
}

fn most_flows(grid: &Grid) -> f64 {
    let runs = grid.cells.iter().flat_map(|cell| &cell.runs);
    runs.map(|run| run.flows.len()).max().unwrap_or(1).max(1) as f64
}

/// The explanation of the figure, and its certainty.
fn caption(grid: &Grid, spec: &FigureSpec, requested: &Requested) -> String {
    let quantity = requested.quantity();
    let mut text = match spec.kind {
        FigureKind::Curve | FigureKind::Bars => {
            format!("{} {}", requested.metric.about, medians(grid, requested))
        }
        FigureKind::Timeline => format!(
            "{quantity} over the time of a run. Each setting shows the valid run nearest to the median."
        ),
        FigureKind::Distribution => {
            format!("{quantity}: share of samples of at most x, over all valid runs of a setting.")
        }
    };
    if spec.theory && is_goodput(requested) {
        text.push_str(
            " Dashed: models with the round-trip time and the rate of loss events of each run, limited to the \
             link rate.",
        );
    }
    text.push_str(&scaled::caption(grid));
    text
}

/// The number of runs, and the widest interval.
fn medians(grid: &Grid, requested: &Requested) -> String {
    let counts = |cell: &Cell| cell.values(requested).len();
    let measured = || grid.cells.iter().filter(|cell| counts(cell) > 0);
    let (Some(min), Some(most)) = (
        measured().min_by_key(|c| counts(c)),
        measured().map(counts).max(),
    ) else {
        return String::new();
    };
    let fewest = counts(min);
    let n = match fewest == most {
        true => format!("n\u{a0}=\u{a0}{most}"),
        false => format!("n\u{a0}=\u{a0}{fewest} to {most}"),
    };
    let sure = match min
        .estimate(requested)
        .and_then(|estimate| estimate.interval)
    {
        Some(interval) if fewest < super::RUNS_FOR_95_PERCENT => format!(
            "intervals contain the median with {} confidence, the maximum for this number of runs",
            interval.percent()
        ),
        Some(interval) => {
            format!(
                "intervals contain the median with {} confidence",
                interval.percent()
            )
        }
        None => "a single run has no interval".to_owned(),
    };
    format!("Points are medians of valid runs ({n}); {sure}.")
}
