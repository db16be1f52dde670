//! The agreement of the network with its configuration: achieved loss and delay, lateness, excluded runs.

use fairpath_report::statistics::median;
use fairpath_report::{Block, Cell as TableCell, Column, Section, Table, Unit};

use super::setting_table::SettingTable;
use crate::grid::{Cell, Grid};
use crate::record::{FaultKind, LinkRecord, RunRecord};
use crate::validation;

const NS: f64 = 1e-9;

/// The section "Validation of the emulation".
pub fn section(grid: &Grid) -> Section {
    let mut blocks = vec![
        Block::Text("A run is valid if the network was as configured:".to_owned()),
        Block::List(validation::criteria()),
    ];
    blocks.extend(
        [achieved(grid), excluded(grid)]
            .into_iter()
            .flatten()
            .map(Block::Table),
    );
    Section::new("Validation of the emulation", blocks)
}

fn achieved(grid: &Grid) -> Option<Table> {
    let mut table = SettingTable::new(
        grid,
        "achieved",
        "Configured and achieved impairment by direction",
        vec![
            Column::text("Direction"),
            Column::text("Configured"),
            Column::text("Back end"),
            Column::number("Wire packets", Unit::plain("")),
            Column::number("Configured loss", Unit::share()),
            Column::number("Achieved loss", Unit::share()),
            Column::number("Configured delay", Unit::seconds()),
            Column::number("Achieved delay", Unit::seconds()),
            Column::number("Lateness, p50", Unit::seconds()),
            Column::number("Lateness, p99", Unit::seconds()),
            Column::number("Lateness, p99.9", Unit::seconds()),
            Column::number("Back-end drops", Unit::plain("")),
            Column::number("Reordered", Unit::plain("")),
        ],
    );
    for cell in &grid.cells {
        for name in directions(cell) {
            table.push(&cell.setting, direction(cell, &name), false);
        }
    }
    let caption = "Totals of all valid runs of a setting. Lateness is the time between the planned and the actual departure of a \
        packet, in the worst run.";
    table.finish(caption, None)
}

/// Names of impaired directions in the order of the first run that has them.
fn directions(cell: &Cell) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for link in cell.runs.iter().flat_map(|run| &run.links) {
        if !names.contains(&link.name) {
            names.push(link.name.clone());
        }
    }
    names
}

fn direction(cell: &Cell, name: &str) -> Vec<TableCell> {
    let links: Vec<&LinkRecord> = cell
        .runs
        .iter()
        .flat_map(|run| &run.links)
        .filter(|link| link.name == name)
        .collect();
    let sum = |of: fn(&LinkRecord) -> u64| links.iter().map(|l| of(l)).sum::<u64>() as f64;
    let packets = sum(|l| l.packets);
    let first = |of: fn(&LinkRecord) -> Option<f64>| links.iter().find_map(|l| of(l));
    let requested = links.first().map_or("", |l| l.requested.as_str());
    let engine = links.first().map_or("", |l| l.engine.as_str());
    let delays: Vec<f64> = links
        .iter()
        .filter_map(|l| l.delay_mean_ns)
        .map(|ns| ns as f64 * NS)
        .collect();
    let late = |index: usize| {
        let worst = links
            .iter()
            .filter_map(|l| l.lateness_ns)
            .map(|q| q[index])
            .max();
        TableCell::from(worst.map(|ns| ns as f64 * NS))
    };
    let loss_requested = first(|l| l.loss_requested);
    let achieved = loss_requested
        .filter(|_| packets > 0.0)
        .map(|_| sum(|l| l.lost) / packets);
    vec![
        name.into(),
        requested.into(),
        engine.into(),
        packets.into(),
        loss_requested.into(),
        achieved.into(),
        first(|l| l.delay_requested_ns.map(|ns| ns as f64 * NS)).into(),
        median(&delays).into(),
        late(0),
        late(1),
        late(2),
        sum(|l| l.own_dropped).into(),
        sum(|l| l.reordered).into(),
    ]
}

fn excluded(grid: &Grid) -> Option<Table> {
    let columns = vec![
        Column::text("Run"),
        Column::text("Fault"),
        Column::text("Observation"),
    ];
    let title = "Invalid runs, excluded from all figures";
    let mut table = SettingTable::new(grid, "excluded", title, columns);
    let mut runs: Vec<&RunRecord> = grid
        .cells
        .iter()
        .flat_map(|c| &c.excluded)
        .copied()
        .collect();
    runs.sort_by_key(|run| run.place);
    for run in runs {
        for fault in &run.faults {
            let cells = vec![
                run.place.to_string().into(),
                fault_words(fault.kind).into(),
                fault.text.clone().into(),
            ];
            table.push(&run.setting, cells, true);
        }
    }
    table.finish("", None)
}

/// A kind of fault for readers.
pub fn fault_words(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::WindowLimited => "sender limited by a window",
        FaultKind::OffloadsOn => "impairment received GSO packets",
        FaultKind::WrongCongestion => "unexpected congestion control",
        FaultKind::NotImpaired => "impairment not as configured",
        FaultKind::EmulatorFailed => "emulator failed",
        FaultKind::SharedCpu => "processor was the bottleneck",
        FaultKind::NotMeasured => "not measured",
    }
}
