//! Measurements compared with models and with the talk.

use fairpath_report::figure::{Axis as FigureAxis, Figure, Panel, Point, Series};
use fairpath_report::statistics::Estimate;
use fairpath_report::{Block, Cell as TableCell, Column, Section, Unit};

use super::provenance::command_line;
use super::setting_table::SettingTable;
use crate::axis_value;
use crate::change::{Change, signed};
use crate::grid::{Cell, Grid};
use crate::manifest::Axis;
use crate::metrics;
use crate::{scaled, sentences, talk, theory};

/// Mathis, RFC 9438 and Padhye with the measurements; none if no figure has models.
pub fn theory(grid: &Grid) -> Option<Section> {
    if !grid.figures().any(|figure| figure.theory) {
        return None;
    }
    let title = "Models and measurements";
    let mut table = SettingTable::new(grid, "models", title, theory_columns());
    for cell in &grid.cells {
        if let Some(row) = cell.theory() {
            table.push(&cell.setting, theory_row(row), false);
        }
    }
    let table = table.finish(THEORY_CAPTION, Some(command_line(&grid.manifest.command)))?;
    let mut blocks = Vec::new();
    let mut reported = sentences::on_theory(grid);
    reported.extend(super::limits::few_loss_events(grid));
    if !reported.is_empty() {
        blocks.push(Block::List(reported));
    }
    blocks.push(Block::Table(table));
    Some(Section::new("Models", blocks))
}

const THEORY_CAPTION: &str = "Models use the round-trip time (mean of the sockets' samples, queue included), the rate of loss events \
    and the segments per ACK of each run. A residual of +10\u{a0}% is a measurement 10\u{a0}% above the model. The nearest model \
    is Mathis or RFC 9438. The constant of Mathis is sqrt(3 / (2 b)), with b the measured segments per ACK: 0.87 with delayed \
    ACKs. Linux increases the window by the segments that an ACK covers, which is a constant of 1.22. RFC 9438 gives the same \
    value where CUBIC is Reno-friendly. Timeouts are retransmission timeouts of a flow per second. Stalled is the share of \
    time without an acknowledgement for longer than a round-trip time, from samples every 100\u{a0}ms. Shorter waits are missing, \
    but a timeout takes at least 200\u{a0}ms. Padhye counts timeouts that present senders avoid by SACK, RACK and tail loss \
    probes. p* is the rate of loss events at which Mathis reaches the link rate, without a queue.";

fn theory_columns() -> Vec<Column> {
    vec![
        Column::number("Round trip", Unit::seconds()),
        Column::number("Loss events", Unit::share()),
        Column::number("Measured", Unit::bits_per_second()),
        Column::number("Mathis", Unit::bits_per_second()),
        Column::number("Mathis, C = 1.22", Unit::bits_per_second()),
        Column::number("RFC 9438", Unit::bits_per_second()),
        Column::number("Padhye", Unit::bits_per_second()),
        Column::text("Nearest model"),
        Column::number("Residual", Unit::share()),
        Column::number("Padhye's residual", Unit::share()),
        Column::number("Timeouts", Unit::plain("/s")),
        Column::number("Stalled", Unit::share()),
        Column::number("p*", Unit::share()),
    ]
}

fn theory_row(row: &theory::TheoryRow) -> Vec<TableCell> {
    let model = |wanted: theory::Model| row.models.iter().find(|(model, ..)| *model == wanted);
    let predicted = |wanted| TableCell::from(model(wanted).map(|(_, bps, _)| *bps));
    let padhye: Option<Estimate> = model(theory::Model::Padhye).map(|(.., residual)| *residual);
    vec![
        row.rtt_seconds.into(),
        row.loss_event_rate.into(),
        row.goodput.into(),
        predicted(theory::Model::Mathis),
        row.mathis_per_segment_bps.into(),
        predicted(theory::Model::Cubic),
        predicted(theory::Model::Padhye),
        row.nearest.0.into(),
        row.nearest.1.into(),
        padhye.map_or(TableCell::Missing, TableCell::from),
        row.timeouts.map(|timeouts| timeouts.per_second).into(),
        row.timeouts.map(|timeouts| timeouts.stalled).into(),
        row.meeting.into(),
    ]
}

/// The figures of the talk with ours: rates, and the comparable shares of the goodput without loss.
pub fn talk(grid: &Grid) -> Option<Section> {
    let axis = loss_axis(grid)?;
    let baseline = grid.baseline(axis)?;
    let goodput = metrics::find("goodput").ok()?;
    let is_scaled = scaled::is_scaled(grid);
    let title = "The talk at RIPE 88 and this experiment";
    let mut table = SettingTable::new(grid, "talk", title, talk_columns());
    for cell in &grid.cells {
        if let Some(theirs) = talk_alongside(grid, cell) {
            let base = grid.sibling(cell, axis, baseline);
            let base = base.filter(|_| cell.value(axis) != baseline);
            let change = base
                .and_then(|base| Change::between(&base.values(&goodput), &cell.values(&goodput)));
            let ours = cell
                .estimate(&goodput)
                .map_or(TableCell::Missing, TableCell::from);
            // Scaled rates are not shown next to others.
            let ours = if is_scaled { TableCell::Missing } else { ours };
            let cells = vec![
                their_change(theirs),
                change_cell(change),
                (theirs.mbit * 1e6).into(),
                ours,
            ];
            table.push(&cell.setting, cells, false);
        }
    }
    let table = table.finish(TALK_CAPTION, Some(command_line(&grid.manifest.command)))?;
    let figure = talk_figure(grid, axis, baseline);
    Some(Section::new(
        "Comparison with the talk",
        vec![Block::Figure(figure), Block::Table(table)],
    ))
}

const TALK_CAPTION: &str = "The talk states neither its round-trip time nor its link rate, so rates are not comparable. Changes \
    relative to no loss are. Rates of a scaled network are in the other tables only.";

/// The talk's change against its own goodput without loss; nothing for that itself.
fn their_change(theirs: &talk::TalkFigure) -> TableCell {
    let (low, high) = theirs.shares();
    match (theirs.loss > 0.0, low == high) {
        (false, _) => TableCell::Missing,
        (true, true) => TableCell::Number(low - 1.0),
        (true, false) => {
            let percent = |share: f64| signed((share - 1.0) * 100.0);
            TableCell::Text(format!(
                "{} to {} (path not stated)",
                percent(low),
                percent(high)
            ))
        }
    }
}

fn talk_columns() -> Vec<Column> {
    vec![
        Column::number("The talk, change", Unit::share()),
        Column::number("Here, change", Unit::share()),
        Column::number("The talk", Unit::bits_per_second()),
        Column::number("Here", Unit::bits_per_second()),
    ]
}

/// The change as a share with its interval.
fn change_cell(change: Option<Change>) -> TableCell {
    let Some(percent) = change.and_then(|c| c.percent()) else {
        return TableCell::Missing;
    };
    match change.and_then(|c| c.percent_interval()) {
        Some(mut interval) => {
            interval.low /= 100.0;
            interval.high /= 100.0;
            TableCell::Estimate(percent / 100.0, interval)
        }
        None => TableCell::Number(percent / 100.0),
    }
}

/// The figures of the talk that belong to a cell. A further axis (the round trip) is none of the
/// talk's, so only the cells count where it stays while the talk's axes vary.
fn talk_alongside(grid: &Grid, cell: &Cell) -> Option<&'static talk::TalkFigure> {
    let stays = |axis: &&Axis| {
        let value = cell.value(&axis.name);
        talk::is_reported(value) || grid.commonest(&axis.name) == Some(value)
    };
    grid.reporting_axes()
        .iter()
        .all(stays)
        .then(|| talk::figure_of(&cell.setting))?
}

/// The axis of losses: the one called so, or the first whose values are shares.
fn loss_axis<'a>(grid: &Grid<'a>) -> Option<&'a str> {
    let axes = &grid.manifest.axes;
    let of_shares = |name: &str| {
        let numbers = axis_value::numbers(grid.values(name));
        numbers.is_some_and(|(kind, _)| kind == axis_value::Kind::Share)
    };
    let named = axes.iter().find(|axis| axis.name == "loss");
    let axis = named.or_else(|| axes.iter().find(|axis| of_shares(&axis.name)))?;
    Some(&axis.name)
}

/// Goodput as a share of the goodput without loss: ours, and the talk's.
fn talk_figure(grid: &Grid, axis: &str, baseline: &str) -> Figure {
    let others: Vec<&str> = grid
        .manifest
        .axes
        .iter()
        .map(|a| a.name.as_str())
        .filter(|name| *name != axis)
        .collect();
    let mut panels: Vec<Panel> = Vec::new();
    for line in grid.combinations(&others) {
        if !grid
            .cells_of(&line)
            .any(|cell| talk_alongside(grid, cell).is_some())
        {
            continue;
        }
        let congestion = line
            .values()
            .find(|v| talk::FIGURES.iter().any(|f| f.congestion == **v));
        let Some(congestion) = congestion.cloned() else {
            continue;
        };
        let mut place = line.clone();
        place.retain(|_, value| *value != congestion);
        let title = grid.words(&place);
        let index = panels
            .iter()
            .position(|p| p.title == title)
            .unwrap_or_else(|| {
                let x = FigureAxis::linear("Packets lost", Unit::share());
                let y = FigureAxis::zero_based("Goodput relative to no loss", Unit::share());
                panels.push(Panel::new(&title, x, y));
                panels.len() - 1
            });
        let cells: Vec<&Cell> = grid.cells_of(&line).collect();
        let ours = cells
            .iter()
            .filter_map(|cell| our_share(grid, cell, axis, baseline))
            .collect();
        let theirs: Vec<Point> = cells
            .iter()
            .filter_map(|cell| their_share(cell, axis))
            .collect();
        let name = format!("{congestion}, the talk");
        panels[index].series.push(Series::line(&congestion, ours));
        panels[index]
            .series
            .push(Series::published(&name, theirs).like(&congestion));
    }
    Figure::new("talk-shares", "Remaining goodput: the talk and this experiment", panels)
        .caption(
            "Hollow marks: figures of the talk, as shares of its goodput without loss. Its value at 10\u{a0}% is one figure for BBR \
             without a path. The mark is the middle of the range that both baselines allow. Intervals are those of the ratio.",
        )
        .command(command_line(&grid.manifest.command))
}

fn our_share(grid: &Grid, cell: &Cell, axis: &str, baseline: &str) -> Option<Point> {
    let goodput = metrics::find("goodput").ok()?;
    let base = grid.sibling(cell, axis, baseline)?;
    let change = Change::between(&base.values(&goodput), &cell.values(&goodput))?;
    let (_, loss) = axis_value::number(cell.value(axis))?;
    let mut point = Point::new(loss, change.to / change.from);
    // Against itself a cell has no interval.
    let ratio = change
        .comparison
        .ratio
        .filter(|_| cell.value(axis) != baseline);
    if let Some(interval) = ratio.and_then(|ratio| ratio.interval) {
        point.interval = Some((interval.low, interval.high));
        point.note = ratio.map_or_else(String::new, |ratio| ratio.note());
    }
    Some(point)
}

fn their_share(cell: &Cell, axis: &str) -> Option<Point> {
    let (low, high) = talk::figure_of(&cell.setting)?.shares();
    let (_, loss) = axis_value::number(cell.value(axis))?;
    Some(Point::new(loss, 0.5 * (low + high)))
}
