//! Single runs over their time: rate, round trip, window and queue, the runs of a setting above each other.

use fairpath_report::figure::{Axis as FigureAxis, Figure, Panel, Point, Series};
use fairpath_report::{Block, Section, Unit};

use super::comparison::RESULTS;
use crate::grid::{Cell, Grid, Setting};
use crate::metrics;
use crate::record::RunRecord;

/// Settings that have figures; more are in the records only.
const MAX_SETTINGS: usize = 24;
/// Runs of all these settings together.
const MAX_RUNS: usize = 72;
/// Points of a line: each is the mean of as many samples as needed.
const MAX_POINTS: usize = 100;

/// Quantities over time that have a panel, with its title. The queue is added.
const QUANTITIES: [(&str, &str); 3] = [
    ("goodput", "Rate"),
    ("rtt-p50", "Round trip"),
    ("cwnd", "Congestion window"),
];

/// The runs of a setting, of both directories of a comparison.
struct Group<'a> {
    setting: Setting,
    /// Shown runs.
    runs: Vec<&'a RunRecord>,
    /// All valid runs.
    all: usize,
}

impl<'a> Group<'a> {
    /// At most `each` runs of a cell.
    fn of(setting: Setting, cells: &[&Cell<'a>], each: usize) -> Group<'a> {
        Group {
            setting,
            all: cells.iter().map(|cell| cell.runs.len()).sum(),
            runs: (cells.iter())
                .flat_map(|cell| cell.runs.iter().take(each).copied())
                .collect(),
        }
    }
}

/// "Runs over time", a folded figure for each setting; none without samples.
pub fn section(grid: &Grid) -> Option<Section> {
    let mut cells: Vec<(Setting, Vec<&Cell>)> = Vec::new();
    for cell in grid.cells.iter().filter(|cell| has_samples(cell)) {
        let mut setting = cell.setting.clone();
        setting.remove(RESULTS);
        match cells.iter_mut().find(|(known, _)| *known == setting) {
            Some((_, of_setting)) => of_setting.push(cell),
            None => cells.push((setting, vec![cell])),
        }
    }
    let shown = cells.len().min(MAX_SETTINGS);
    let figures: usize = cells[..shown].iter().map(|(_, cells)| cells.len()).sum();
    let each = (MAX_RUNS / figures.max(1)).max(1);
    let more = cells.len() - shown;
    cells.truncate(shown);
    let mut blocks: Vec<Block> = (cells.into_iter().enumerate())
        .map(|(number, (setting, cells))| details(grid, &Group::of(setting, &cells, each), number))
        .collect();
    if blocks.is_empty() {
        return None;
    }
    let text = match more {
        0 => String::new(),
        more => format!(" {more} further settings are in the records (runs/*.json) only."),
    };
    blocks.insert(
        0,
        Block::Text(format!(
            "Each line is one valid run, from the start of its traffic.{text}"
        )),
    );
    Some(Section::new("Runs over time", blocks))
}

fn has_samples(cell: &Cell) -> bool {
    cell.runs
        .iter()
        .any(|run| run.flows.iter().any(|flow| !flow.samples.is_empty()))
}

fn details(grid: &Grid, group: &Group, number: usize) -> Block {
    let words = match grid.words(&group.setting) {
        words if words.is_empty() => "all runs".to_owned(),
        words => words,
    };
    let mut panels: Vec<Panel> = QUANTITIES
        .iter()
        .filter_map(|(name, title)| measured(&group.runs, name, title))
        .collect();
    panels.extend(queue(&group.runs));
    let count = match (group.runs.len(), group.all) {
        (shown, all) if shown < all => format!("{shown} of {all} valid runs"),
        (1, _) => "1 valid run".to_owned(),
        (shown, _) => format!("{shown} valid runs"),
    };
    let figure = Figure::new(
        &format!("runs-over-time-{}", number + 1),
        &format!("Runs over time: {words}"),
        panels,
    )
    .caption(format!(
        "{count}. The queue is the smoothed round trip without the delays of the links."
    ));
    Block::Details(format!("{words} ({count})"), vec![Block::Figure(figure)])
}

/// A panel of a quantity; none if no run has it over time.
fn measured(runs: &[&RunRecord], name: &str, title: &str) -> Option<Panel> {
    let requested = metrics::find(name).ok()?;
    let unit = requested.metric.measure.unit();
    let lines = runs.iter().flat_map(|run| {
        let series = requested.series(run);
        series
            .into_iter()
            .map(|one| line(run, &one.name, one.points))
            .collect::<Vec<_>>()
    });
    panel(title, unit, lines.collect())
}

/// The part of the round trip that the links do not explain; none if no run has a known link.
fn queue(runs: &[&RunRecord]) -> Option<Panel> {
    let requested = metrics::find("rtt-p50").ok()?;
    let of_run = |run: &&RunRecord| {
        let base = run.bottleneck.as_ref()?.base_rtt_ns as f64 * 1e-9;
        let lines = requested.series(run).into_iter().map(|one| {
            let beyond = |(at, rtt): (f64, f64)| (at, (rtt - base).max(0.0));
            line(run, &one.name, one.points.into_iter().map(beyond).collect())
        });
        Some(lines.collect::<Vec<_>>())
    };
    let lines = runs.iter().filter_map(of_run).flatten().collect();
    panel("Queue", Unit::seconds(), lines)
}

fn panel(title: &str, unit: Unit, lines: Vec<Series>) -> Option<Panel> {
    let x = FigureAxis::linear("Time", Unit::seconds());
    let mut panel = Panel::new(title, x, FigureAxis::zero_based(title, unit));
    panel.series = lines;
    (!panel.is_empty()).then_some(panel)
}

/// A line in the look of its congestion control, with the name of its flow if there are several.
fn line(run: &RunRecord, flow: &str, points: Vec<(f64, f64)>) -> Series {
    let known = run.flows.iter().find(|known| known.name == flow);
    let congestion = known.map_or("", |known| known.congestion.as_str());
    let alone = run
        .flows
        .iter()
        .filter(|other| other.congestion == congestion)
        .count()
        == 1;
    let (name, key) = match (congestion, alone) {
        ("", _) => (flow.to_owned(), flow),
        (congestion, true) => (congestion.to_owned(), congestion),
        (congestion, false) => (format!("{flow} ({congestion})"), flow),
    };
    match run.setting.get(RESULTS) {
        // A colour for each directory.
        Some(results) => Series::line(&format!("{name}, {results}"), means(&points))
            .like(&format!("{key}, {results}")),
        None => Series::line(&name, means(&points)).like(key),
    }
}

/// Means of as many successive points as leave [`MAX_POINTS`].
fn means(points: &[(f64, f64)]) -> Vec<Point> {
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |part: &[(f64, f64)]| {
        let count = part.len() as f64;
        let (at, value) = part
            .iter()
            .fold((0.0, 0.0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
        Point::new(at / count, value / count)
    };
    points.chunks(step).map(mean).collect()
}
