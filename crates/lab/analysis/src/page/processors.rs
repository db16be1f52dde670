//! The users of the processors: each part of the runs, what it waited, and whether it ran where the
//! traffic did.

use std::collections::BTreeSet;

use fairpath_report::statistics::mean;
use fairpath_report::{Cell as TableCell, Column, Table, Unit};

use crate::grid::Grid;
use crate::record::RunRecord;

/// The value of a run for a row.
type Reported = fn(&RunRecord) -> Option<f64>;

/// The name of parts that measure.
const MEASURES: &str = "measurement";

/// "Processor time by part", over the valid runs; none if no run has it.
pub fn table(grid: &Grid) -> Option<Table> {
    let runs: Vec<&RunRecord> = (grid.cells.iter().flat_map(|cell| &cell.runs))
        .filter(|run| run.cpu.cpus > 0)
        .copied()
        .collect();
    let cpus = runs.iter().map(|run| run.cpu.cpus).max()?;
    let mut table = Table::new("processors", "Processor time by part", columns());
    let parts: BTreeSet<&String> = runs.iter().flat_map(|run| run.cpu.parts.keys()).collect();
    for part in parts {
        table.push(row(part, &runs, |run| run.cpu.parts.get(part).copied()));
    }
    let everything: [(&str, Reported); 4] = [
        ("all measurements", measuring),
        ("interrupts and packet processing", |run| {
            Some(run.cpu.interrupts)
        }),
        ("total", |run| Some(run.cpu.total())),
        ("stolen by the host", |run| Some(run.cpu.stolen)),
    ];
    for (name, of) in everything {
        table.push(row(name, &runs, of));
    }
    table.caption = format!(
        "Cores of {cpus}, in the measured part of {} valid runs. Waited: the maximum share of a run in which a part was \
         ready while others ran. Shared: runs in which a part could run on the processors of iperf3 and of the kernel's packet \
         threads. Parts are accounted to the nanosecond. Interrupts, total and stolen time are samples of the kernel's tick, \
         which misses threads that sleep before it. The total is at least the sum of the parts of its run.",
        runs.len()
    );
    Some(table)
}

fn columns() -> Vec<Column> {
    vec![
        Column::text("Part"),
        Column::number("Mean", Unit::plain("cores")),
        Column::number("Maximum", Unit::plain("cores")),
        Column::number("Waited", Unit::share()),
        Column::text("Shared"),
    ]
}

fn row(name: &str, runs: &[&RunRecord], of: impl Fn(&RunRecord) -> Option<f64>) -> Vec<TableCell> {
    let used: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
    let waited = runs.iter().filter_map(|run| run.cpu.waited.get(name));
    let is_shared = |run: &&&RunRecord| run.cpu.shared.iter().any(|part| part == name);
    let shared = match runs.iter().filter(is_shared).count() {
        0 => TableCell::Missing,
        count => format!("{count} of {}", used.len()).into(),
    };
    vec![
        name.into(),
        mean(&used).into(),
        used.iter().copied().reduce(f64::max).into(),
        waited.copied().reduce(f64::max).into(),
        shared,
    ]
}

/// Sampling, pings, calls and passive measurement of a run together.
fn measuring(run: &RunRecord) -> Option<f64> {
    let parts = run.cpu.parts.iter();
    let of_it = parts.filter(|(part, _)| part.starts_with(MEASURES));
    of_it.map(|(_, cores)| *cores).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::record::{CpuRecord, Fault, FaultKind, PASSIVE_PART};
    use crate::results::Results;

    fn run(impair: f64, sampler: f64, shared: &[&str]) -> RunRecord {
        let part = |(name, value): (&str, f64)| (name.to_owned(), value);
        RunRecord {
            cpu: CpuRecord {
                cpus: 2,
                busy: 1.5,
                interrupts: 0.25,
                stolen: 0.0,
                parts: [
                    ("fairpath impair wan", impair),
                    ("measurement", sampler),
                    (PASSIVE_PART, 0.03),
                ]
                .map(part)
                .into(),
                waited: [part(("fairpath impair wan", impair / 10.0))].into(),
                shared: shared.iter().map(|part| (*part).to_owned()).collect(),
            },
            ..RunRecord::default()
        }
    }

    fn reported(runs: Vec<RunRecord>) -> Option<Table> {
        let results = Results {
            manifest: Manifest::default(),
            runs,
            ..Results::default()
        };
        table(&Grid::new(&results))
    }

    fn cells<'a>(table: &'a Table, part: &str) -> &'a [TableCell] {
        let row = table.rows.iter().find(|row| row.cells[0] == part.into());
        &row.unwrap_or_else(|| panic!("no {part}")).cells[1..]
    }

    #[test]
    fn each_part_has_mean_maximum_and_runs() {
        let mut invalid = run(2.0, 2.0, &[]);
        invalid.faults.push(Fault {
            kind: FaultKind::SharedCpu,
            text: "busy".into(),
        });
        let runs = vec![
            run(0.5, 0.01, &["fairpath impair wan"]),
            run(1.0, 0.02, &[]),
            invalid,
        ];
        let table = reported(runs).unwrap();
        let impair = cells(&table, "fairpath impair wan");
        let expected: [TableCell; 4] = [0.75.into(), 1.0.into(), 0.1.into(), "1 of 2".into()];
        assert_eq!(impair, expected);
        let TableCell::Number(max) = cells(&table, "all measurements")[1] else {
            panic!("{table:?}");
        };
        assert!((max - 0.05).abs() < 1e-12, "{max}");
        assert_eq!(cells(&table, "total")[0], 1.5.into());
        // The tick missed some of it: 2.0, 0.02 and 0.03 are parts.
        let busy = reported(vec![run(2.0, 0.02, &[])]).unwrap();
        let TableCell::Number(total) = cells(&busy, "total")[0] else {
            panic!("{busy:?}");
        };
        assert!((total - 2.05).abs() < 1e-12, "{total}");
        assert_eq!(cells(&table, PASSIVE_PART)[3], TableCell::Missing);
        assert!(table.caption.contains("Cores of 2"), "{}", table.caption);
    }

    #[test]
    fn runs_without_data_have_no_table() {
        assert_eq!(reported(vec![RunRecord::default()]), None);
        assert_eq!(reported(Vec::new()), None);
    }
}
