//! Rank correlations between quantities and axes, over all valid runs.

use fairpath_report::{Block, Column, Section, Table, Unit};

use crate::BOOTSTRAP_SEED;
use crate::axis_value;
use crate::correlation::spearman;
use crate::figure::FigureSpec;
use crate::grid::{Cell, Grid, Setting};
use crate::metrics::{self, Requested};

/// An axis with fewer values has no order worth the name.
const MIN_VALUES: usize = 3;

/// "Correlations"; none where no figure has an axis with numbers.
pub fn section(grid: &Grid) -> Option<Section> {
    let columns = vec![
        Column::text("Setting"),
        Column::text("Quantity"),
        Column::text("Axis"),
        Column::number("Spearman's ρ", Unit::none()),
        Column::number("Runs", Unit::none()),
        Column::number("Probability by chance", Unit::share()),
    ];
    let mut table = Table::new("correlations", "Correlations", columns);
    for spec in grid.figures() {
        if let (Some(x), Ok(requested)) = (&spec.x, metrics::find(&spec.y)) {
            rows(grid, spec, x, &requested, &mut table);
        }
    }
    if table.rows.is_empty() {
        return None;
    }
    table.caption = "Rank correlation over single runs: 1 if the quantity always rises with the axis, −1 if it always falls. The probability \
        by chance is the share of random orders of the same runs that correlate as much."
        .to_owned();
    Some(Section::new("Correlations", vec![Block::Table(table)]))
}

fn rows(grid: &Grid, spec: &FigureSpec, x: &str, requested: &Requested, table: &mut Table) {
    let Some(axis) = grid.axis(x).filter(|_| grid.values(x).len() >= MIN_VALUES) else {
        return;
    };
    for line in lines(grid, spec, x) {
        let pairs: Vec<(f64, f64)> = grid
            .cells_of(&line)
            .flat_map(|cell| pairs(cell, x, requested).unwrap_or_default())
            .collect();
        if let Some(found) = spearman(&pairs, BOOTSTRAP_SEED) {
            table.push(vec![
                grid.words(&line).into(),
                requested.title().into(),
                axis.title().into(),
                found.rho.into(),
                (found.pairs as f64).into(),
                found.by_chance.into(),
            ]);
        }
    }
}

/// The other axes' settings in which the axis takes at least [`MIN_VALUES`].
fn lines(grid: &Grid, spec: &FigureSpec, x: &str) -> Vec<Setting> {
    let names = spec.by.iter().chain(&spec.split).map(String::as_str);
    let unnamed = grid.manifest.axes.iter().map(|axis| axis.name.as_str());
    let mut others: Vec<&str> = names.collect();
    for name in unnamed {
        if name != x && !others.contains(&name) {
            others.push(name);
        }
    }
    let all = grid.combinations(&others);
    all.into_iter()
        .filter(|line| grid.cells_of(line).count() >= MIN_VALUES)
        .collect()
}

/// (The axis's number, the run's value) of each valid run; none where the axis has no number.
fn pairs(cell: &Cell, x: &str, requested: &Requested) -> Option<Vec<(f64, f64)>> {
    let (_, number) = axis_value::number(cell.value(x))?;
    Some(
        cell.values(requested)
            .into_iter()
            .map(|value| (number, value))
            .collect(),
    )
}
