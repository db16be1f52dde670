//! A grid from its first run to its report, started or continued.
//!
//! ```text
//! directory ─ what is there ─ scale (by trial) ─ runs that are missing ─ those that were invalid, once more ─ end
//! ```
//!
//! Every run is stored when it ends. An invalid run is kept and marked. It is repeated once at the end, at a
//! position after all others, for at most 25 % of the grid; in a quick form only while its five minutes
//! last.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use fairpath_analysis::experiment::document::words;
use fairpath_analysis::experiment::{FormName, ScaleChoice};
use fairpath_analysis::grid::Grid;
use fairpath_analysis::manifest::Manifest;
use fairpath_analysis::record::RunRecord;
use fairpath_analysis::validation::is_disturbed;
use fairpath_bpf::{BBR3LIKE, Bbr3Like};
use jiff::Timestamp;

use crate::calibrate;
use crate::grid::{Cell, again_limit};
use crate::needs::congestion_of;
use crate::progress::Progress;
use crate::run::{Bench, Trouble};
use crate::store::Store;
use crate::words::run_cost;

/// The maximum time of a quick form: runs are repeated only within it.
pub const QUICK_BUDGET: Duration = Duration::from_secs(300);
/// A run that the host or other programs disturbed is repeated this many times.
const MAX_AGAIN: usize = 3;
/// This number of unmeasurable runs in succession ends the grid: the next would fail too.
const MAX_FAILED: usize = 3;

/// The end of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All its runs are there.
    Whole,
    /// The same, but a setting has no valid run.
    Incomplete,
    /// A signal ended it; the same command continues.
    Interrupted,
}

/// A grid under way.
pub struct Session<'a> {
    bench: &'a mut Bench,
    store: &'a Store,
    manifest: Manifest,
    runs: Vec<RunRecord>,
    factor: f64,
    failed: usize,
    began: Instant,
}

impl<'a> Session<'a> {
    /// With the runs that are there already.
    pub fn new(
        bench: &'a mut Bench,
        store: &'a Store,
        manifest: Manifest,
        runs: Vec<RunRecord>,
    ) -> Session<'a> {
        Session {
            bench,
            store,
            manifest,
            runs,
            factor: 1.0,
            failed: 0,
            began: Instant::now(),
        }
    }

    /// Makes what is missing.
    ///
    /// # Errors
    /// What would fail every run, or results that cannot be kept. Finished runs are kept.
    pub fn go(&mut self, cells: &[Cell]) -> anyhow::Result<Ended> {
        match self.all(cells) {
            Ok(()) => {
                self.manifest.ended = Some(Timestamp::now().to_string());
                self.store.keep_manifest(&self.manifest)?;
                Ok(Ended::Whole)
            }
            Err(Trouble::Interrupted) => Ok(Ended::Interrupted),
            Err(Trouble::Fatal(error) | Trouble::Once(error)) => Err(error),
        }
    }

    fn all(&mut self, cells: &[Cell]) -> Result<(), Trouble> {
        let there: BTreeSet<u32> = self.runs.iter().map(|run| run.place).collect();
        let missing: Vec<&Cell> = cells
            .iter()
            .filter(|cell| !there.contains(&cell.place))
            .collect();
        let again = self.again(cells);
        if missing.is_empty() && again.is_empty() {
            return Ok(());
        }
        self.scale(cells)?;
        let seconds: f64 = missing.iter().map(|cell| run_cost(&cell.experiment)).sum();
        let each = Duration::from_secs_f64(seconds / missing.len().max(1) as f64);
        let mut progress = Progress::new(missing.len(), each);
        for cell in missing {
            self.one(cell, &mut progress)?;
        }
        self.manifest.not_again.clear();
        // Disturbed runs once more after all others, so that the machine has time to become quiet.
        loop {
            let again = self.again(cells);
            if again.is_empty() {
                return Ok(());
            }
            for (done, cell) in again.iter().enumerate() {
                if !has_time(&self.manifest.form, self.began.elapsed(), cell) {
                    let left = &again[done..];
                    self.manifest.not_again = first_places(cells, left);
                    fairpath_cli::print_stderr(format_args!(
                        "{} invalid runs are not repeated: the time of the quick form is over\n",
                        left.len()
                    ));
                    return Ok(());
                }
                progress.add();
                self.one(cell, &mut progress)?;
            }
        }
    }

    /// The scale of a grid is found once: all its runs have the same.
    fn scale(&mut self, cells: &[Cell]) -> Result<(), Trouble> {
        let was = self
            .manifest
            .scale
            .as_ref()
            .map_or(1.0, |scale| scale.factor);
        let requested = cells.first().map(|cell| cell.experiment.scale);
        if let (Some(ScaleChoice::Fixed(requested)), false) = (requested, self.runs.is_empty())
            && (requested - was).abs() > f64::EPSILON
        {
            return Err(Trouble::Fatal(anyhow::anyhow!(
                "finished runs have scale {was}, not the requested {requested}: choose another --output"
            )));
        }
        if let (Some(scale), false) = (&self.manifest.scale, self.runs.is_empty()) {
            self.factor = scale.factor;
            return Ok(());
        }
        if !self.runs.is_empty() {
            return Ok(());
        }
        let report = |text: &str| fairpath_cli::print_stderr(format_args!("trial at {text}\n"));
        (self.factor, self.manifest.scale) = calibrate::find(self.bench, cells, report)?;
        // Trials leave no record: what they checked is checked where it is kept.
        self.bench.check_again();
        let kept = self.store.keep_manifest(&self.manifest);
        kept.map_err(|error| Trouble::Fatal(error.into()))
    }

    fn one(&mut self, cell: &Cell, progress: &mut Progress) -> Result<(), Trouble> {
        let run = self.bench.run(cell, self.factor)?;
        // What was measured is kept before anything else may fail.
        let kept = self.store.keep(&run);
        kept.map_err(|error| Trouble::Fatal(error.into()))?;
        let line = progress.line(&words(&cell.setting), &outcome(&run));
        fairpath_cli::print_stderr(format_args!("{line}\n"));
        let unmeasured =
            run.flows.is_empty() && !run.faults.is_empty() && !cell.experiment.flows.is_empty();
        self.failed = if unmeasured { self.failed + 1 } else { 0 };
        let why = run
            .faults
            .first()
            .map(|fault| fault.text.clone())
            .unwrap_or_default();
        self.runs.push(run);
        if self.failed >= MAX_FAILED {
            let error = anyhow::anyhow!("{MAX_FAILED} runs in a row were not measured: {why}");
            return Err(Trouble::Fatal(error));
        }
        Ok(())
    }

    /// Runs to be made once more, at places behind all others.
    fn again(&self, cells: &[Cell]) -> Vec<Cell> {
        again(cells, &self.runs)
    }
}

/// Runs to be made once more, at places behind all others: invalid ones once, for at most a share of the
/// grid, and disturbed ones up to [`MAX_AGAIN`] times.
fn again(cells: &[Cell], runs: &[RunRecord]) -> Vec<Cell> {
    let first = cells.len() as u32;
    // By setting and repetition: the runs so far, in their order.
    let made = |cell: &Cell| {
        let mut made: Vec<&RunRecord> = (runs.iter())
            .filter(|run| run.setting == cell.setting && run.repeat == cell.repeat)
            .collect();
        made.sort_by_key(|run| run.place);
        made
    };
    let undisturbed = |run: &&RunRecord| !is_disturbed(run);
    let repeated = cells
        .iter()
        .flat_map(|cell| made(cell).into_iter().rev().skip(1).filter(undisturbed));
    let limit = again_limit(cells.len()).saturating_sub(repeated.count());
    let next = runs
        .iter()
        .map(|run| run.place + 1)
        .max()
        .unwrap_or(0)
        .max(first);
    let (mut again, mut counted) = (Vec::new(), 0);
    for cell in cells {
        let made = made(cell);
        let Some(last) = made
            .last()
            .filter(|_| !made.iter().any(|run| run.is_true()))
        else {
            continue;
        };
        let is_wanted = match is_disturbed(last) {
            true => made.len() <= MAX_AGAIN,
            false => {
                let others = made.iter().filter(|run| !is_disturbed(run)).count();
                counted += 1;
                others < 2 && counted <= limit
            }
        };
        if is_wanted {
            let place = next + again.len() as u32;
            // Another seed: the same draws may be what was wrong.
            let seed = crate::grid::mixed(cell.seed, u64::from(place));
            again.push(Cell {
                place,
                seed,
                ..cell.clone()
            });
        }
    }
    again
}

/// True if a run can still be repeated, at this time after the start of the grid.
fn has_time(form: &str, elapsed: Duration, cell: &Cell) -> bool {
    let ends = elapsed + Duration::from_secs_f64(run_cost(&cell.experiment));
    form != FormName::Quick.to_string() || ends <= QUICK_BUDGET
}

/// The original positions of the runs that `again` has at later ones.
fn first_places(cells: &[Cell], again: &[Cell]) -> Vec<u32> {
    let is_same =
        |cell: &Cell, other: &Cell| (&cell.setting, cell.repeat) == (&other.setting, other.repeat);
    let of = |cell: &Cell| cells.iter().find(|first| is_same(first, cell));
    again
        .iter()
        .filter_map(|cell| Some(of(cell)?.place))
        .collect()
}

/// "235.2 Mbit/s", or why not.
fn outcome(run: &RunRecord) -> String {
    let rates: Vec<String> = (run.flows.iter().take(4))
        .map(|flow| format!("{:.1}", flow.goodput_bps / 1e6))
        .collect();
    let more = if run.flows.len() > rates.len() {
        " ..."
    } else {
        ""
    };
    let rates = if rates.is_empty() {
        "no flow".to_owned()
    } else {
        format!("{}{more} Mbit/s", rates.join(" + "))
    };
    match run.faults.first() {
        None if !run.remarks.is_empty() => format!("{rates} ({})", run.remarks.join("; ")),
        None => rates,
        Some(fault) => format!("{rates}, invalid: {}", fault.text),
    }
}

/// Our congestion control, registered if a run uses it, and unregistered on drop.
///
/// # Errors
/// Where the kernel refuses it, or another process has it.
pub fn own_congestion(cells: &[Cell]) -> anyhow::Result<Option<Bbr3Like>> {
    let queries = |cell: &Cell| {
        let mut flows = cell.experiment.flows.values();
        flows.any(|flow| congestion_of(flow).any(|name| name == BBR3LIKE))
    };
    if !cells.iter().any(queries) {
        return Ok(None);
    }
    let registered = Bbr3Like::register();
    let remedy = "exclude it (--select AXIS=VALUE,...), or correct that";
    registered.map(Some).context(remedy)
}

/// A page of results that was written.
#[derive(Clone, Debug)]
pub struct Reported {
    /// The path of the page.
    pub page: PathBuf,
    /// Headlines and limits of the results, lines for a terminal.
    pub summary: String,
    /// True if every setting with runs has a valid one.
    pub has_all_settings: bool,
}

/// Writes the report of a directory of results.
///
/// # Errors
/// Results that cannot be read, or a report that cannot be written.
pub fn report(directory: &Path) -> anyhow::Result<Reported> {
    let results = fairpath_analysis::results::read(directory)?;
    let page = fairpath_analysis::page::write(&results, directory).context("write the report")?;
    let grid = Grid::new(&results);
    Ok(Reported {
        page,
        summary: fairpath_analysis::summary::text(&grid),
        has_all_settings: grid.without_valid_run().next().is_none(),
    })
}

impl Reported {
    /// Prints the summary to standard error, and the path of the page, as the last line, to standard output.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn print(&self) -> anyhow::Result<()> {
        fairpath_cli::print_stderr(format_args!("\n{}\n", self.summary));
        fairpath_cli::print(format_args!("{}\n", self.page.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairpath_analysis::experiment::Document;
    use fairpath_analysis::record::{Fault, FaultKind};

    /// A run of a cell. `others`: their share of the processors.
    fn run(cell: &Cell, place: u32, is_true: bool, others: f64) -> RunRecord {
        let mut run = RunRecord {
            place,
            setting: cell.setting.clone(),
            repeat: cell.repeat,
            ..RunRecord::default()
        };
        run.cpu.cpus = 2;
        run.cpu.busy = 2.0 * others;
        let fault = Fault {
            kind: FaultKind::SharedCpu,
            text: String::new(),
        };
        run.faults.extend((!is_true).then_some(fault));
        run
    }

    #[test]
    fn disturbed_runs_are_repeated_until_valid() {
        let document = Document::open("ripe88").unwrap();
        let cells = crate::grid::plan(&document, FormName::Quick, 88).unwrap();
        let cells = &cells[..8];
        let made = |which: &dyn Fn(&Cell) -> (bool, f64)| -> Vec<RunRecord> {
            let run = |cell: &Cell| {
                let (is_true, others) = which(cell);
                run(cell, cell.place, is_true, others)
            };
            cells.iter().map(run).collect()
        };
        assert_eq!(again(cells, &made(&|_| (true, 0.1))), []);
        // Invalid for another reason: once, a quarter of the grid.
        let mut runs = made(&|_| (false, 0.1));
        assert_eq!(again(cells, &runs).len(), 2);
        runs.extend([8, 9].map(|place| run(&cells[place as usize - 8], place, false, 0.1)));
        assert_eq!(again(cells, &runs), []);
        // Disturbed: all of them, three times.
        let mut runs = made(&|_| (false, 0.6));
        for time in 1..=MAX_AGAIN as u32 {
            let next = again(cells, &runs);
            assert_eq!(next.len(), 8, "{time}");
            assert_eq!(next[0].place, 8 * time);
            runs.extend(next.iter().map(|cell| run(cell, cell.place, false, 0.6)));
        }
        assert_eq!(again(cells, &runs), []);
        // One became valid.
        let mut runs = made(&|_| (false, 0.6));
        runs.push(run(&cells[3], 8, true, 0.1));
        let next = again(cells, &runs);
        assert!(
            next.len() == 7
                && next
                    .iter()
                    .all(|cell| cell.setting != cells[3].setting || cell.repeat != cells[3].repeat)
        );
    }

    #[test]
    fn no_repetition_would_exceed_the_quick_forms_limit() {
        let document = Document::open("ripe88").unwrap();
        let cells = crate::grid::plan(&document, FormName::Quick, 88).unwrap();
        let cost = Duration::from_secs_f64(run_cost(&cells[0].experiment));
        let latest = QUICK_BUDGET - cost;
        assert!(has_time("quick", latest, &cells[0]));
        let later = latest + Duration::from_millis(1);
        assert!(!has_time("quick", later, &cells[0]));
        assert!(has_time("full", later, &cells[0]));
        let again = [Cell {
            place: 40,
            ..cells[7].clone()
        }];
        assert_eq!(first_places(&cells, &again), [7]);
    }
}
