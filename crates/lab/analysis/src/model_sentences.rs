//! Sentences on models: their residuals, the reasons, and the loss rate at which goodput starts to fall.

use fairpath_report::statistics::Estimate;

use super::change::signed;
use super::grid::{Cell, Grid};
use super::theory;
use super::timeouts::Timeouts;

/// From this share of time on, timeouts are stated as a reason.
const REPORTED_STALLED: f64 = 0.05;

/// Sentences on models, if a figure has them: the residuals from the nearer one of Mathis and RFC 9438 over
/// all cells with loss, and the loss rate at which goodput starts to fall.
pub fn on_theory(grid: &Grid) -> Vec<String> {
    let rows: Vec<(&Cell, &theory::TheoryRow)> = grid
        .cells
        .iter()
        .filter_map(|cell| cell.theory().map(|row| (cell, row)))
        .filter(|(_, row)| row.loss_event_rate > 0.0)
        .collect();
    let mut sentences = Vec::new();
    let off = |(_, row): &&(&Cell, &theory::TheoryRow)| row.nearest.1.value.abs();
    if let Some((cell, row)) = rows.iter().max_by(|a, b| off(a).total_cmp(&off(b))) {
        sentences.push(format!(
            "In {} settings with loss, the largest residual from the nearest of Mathis and RFC 9438 is {} \
             ({}, {}).",
            rows.len(),
            share_words(&row.nearest.1),
            grid.words(&cell.setting),
            row.nearest.0,
        ));
    }
    sentences.extend(on_timeouts(grid, &rows));
    sentences.extend(on_padhye(&rows));
    let meetings: Vec<f64> = rows.iter().filter_map(|(_, row)| row.meeting).collect();
    let min = meetings.iter().copied().reduce(f64::min);
    let largest = meetings.iter().copied().reduce(f64::max);
    if let (Some(min), Some(largest)) = (min, largest) {
        let share = fairpath_report::Unit::share();
        sentences.push(format!(
            "By Mathis, loss does not reduce the goodput of Reno and CUBIC on these links below {} to {} loss events per \
             segment, where the law reaches the link rate. The cost of a loss depends on round-trip time and rate.",
            share.show(min),
            share.show(largest),
        ));
    }
    sentences
}

/// Where flows wait for timeouts for long, that explains what Mathis and RFC 9438 miss.
fn on_timeouts(grid: &Grid, rows: &[(&Cell, &theory::TheoryRow)]) -> Option<String> {
    let reported = rows
        .iter()
        .filter_map(|(cell, row)| Some((*cell, *row, row.timeouts?)))
        .filter(|(.., timeouts)| timeouts.stalled > REPORTED_STALLED);
    let reported: Vec<(&Cell, &theory::TheoryRow, Timeouts)> = reported.collect();
    let (cell, row, most) = reported
        .iter()
        .max_by(|a, b| a.2.stalled.total_cmp(&b.2.stalled))?;
    let share = fairpath_report::Unit::share();
    Some(format!(
        "Retransmission timeouts, which neither Mathis nor RFC 9438 models, stall flows in {} of {} settings with \
         loss. Up to {} of the time, nothing was acknowledged for longer than a round-trip time ({}: {} timeouts per second). \
         There the residual from the nearest model is {}.",
        reported.len(),
        rows.len(),
        share.show(most.stalled),
        grid.words(&cell.setting),
        fairpath_report::significant(most.per_second, 2),
        share_words(&row.nearest.1),
    ))
}

/// The error of the model with timeouts.
fn on_padhye(rows: &[(&Cell, &theory::TheoryRow)]) -> Option<String> {
    let residual = |(_, row): &(&Cell, &theory::TheoryRow)| {
        let found = row
            .models
            .iter()
            .find(|(model, ..)| *model == theory::Model::Padhye);
        found.map(|(.., residual)| residual.value * 100.0)
    };
    let all: Vec<f64> = rows.iter().filter_map(residual).collect();
    let min = all.iter().copied().reduce(f64::min)?;
    let largest = all.iter().copied().reduce(f64::max)?;
    Some(format!(
        "Residuals from Padhye are {} to {}\u{a0}%. Its timeouts are those of a sender without SACK.",
        signed(min),
        signed(largest)
    ))
}

fn share_words(estimate: &Estimate) -> String {
    format!("{}\u{a0}%", signed(estimate.value * 100.0))
}
