//! Runs of equal settings together, in the order of the experiment.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use fairpath_report::Unit;
use fairpath_report::statistics::{Estimate, median_with_interval};

use super::{BOOTSTRAP_SEED, CONFIDENCE, scaled, theory};
use crate::axis_value;
use crate::figure::FigureSpec;
use crate::manifest::{Axis, Manifest};
use crate::metrics::Requested;
use crate::record::RunRecord;
use crate::results::Results;

/// The value of each axis.
pub type Setting = BTreeMap<String, String>;

/// All runs of one setting.
#[derive(Clone, Debug)]
pub struct Cell<'a> {
    /// The setting.
    pub setting: Setting,
    /// Runs that count.
    pub runs: Vec<&'a RunRecord>,
    /// Runs with an invalid emulation: kept and listed, but not counted.
    pub excluded: Vec<&'a RunRecord>,
    /// The predictions of models, computed at the first use.
    theory: OnceCell<Option<theory::TheoryRow>>,
}

impl<'a> Cell<'a> {
    /// A cell of these runs.
    pub fn new(setting: Setting, runs: Vec<&'a RunRecord>) -> Cell<'a> {
        Cell {
            setting,
            runs,
            excluded: Vec::new(),
            theory: OnceCell::new(),
        }
    }

    /// The comparison of the cell with models; none if no valid run has a prediction.
    pub fn theory(&self) -> Option<&theory::TheoryRow> {
        self.theory.get_or_init(|| theory::row(self)).as_ref()
    }

    /// The value of this cell on an axis; empty if it has none.
    pub fn value(&self, axis: &str) -> &str {
        self.setting.get(axis).map_or("", String::as_str)
    }

    /// The quantity in each valid run that measured it.
    pub fn values(&self, requested: &Requested) -> Vec<f64> {
        self.runs
            .iter()
            .filter_map(|run| requested.value(run))
            .collect()
    }

    /// Median over valid runs with its interval; none where no run measured it.
    pub fn estimate(&self, requested: &Requested) -> Option<Estimate> {
        median_with_interval(&self.values(requested), CONFIDENCE, BOOTSTRAP_SEED)
    }

    /// The run that shows the cell best: its value is nearest to the median of all.
    pub fn typical(&self, requested: &Requested) -> Option<&'a RunRecord> {
        let middle = self.estimate(requested)?.value;
        let distance = |run: &&RunRecord| {
            requested
                .value(run)
                .map_or(f64::INFINITY, |value| (value - middle).abs())
        };
        self.runs
            .iter()
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .copied()
    }
}

/// The whole experiment.
#[derive(Clone, Debug)]
pub struct Grid<'a> {
    /// The description of the experiment.
    pub manifest: &'a Manifest,
    /// Settings that have a run, in the order of the axes' values.
    pub cells: Vec<Cell<'a>>,
    /// Axes of scaled round trips: the emulated seconds of each value.
    round_trips: BTreeMap<&'a str, BTreeMap<&'a str, f64>>,
}

impl<'a> Grid<'a> {
    /// Sorts runs into cells. O(n log n).
    pub fn new(results: &'a Results) -> Grid<'a> {
        let manifest = &results.manifest;
        let mut cells: BTreeMap<&Setting, Cell> = BTreeMap::new();
        for run in &results.runs {
            let cell = cells
                .entry(&run.setting)
                .or_insert_with(|| Cell::new(run.setting.clone(), Vec::new()));
            match run.is_true() {
                true => cell.runs.push(run),
                false => cell.excluded.push(run),
            }
        }
        let mut cells: Vec<Cell> = cells.into_values().collect();
        cells.sort_by_key(|cell| ranks(manifest, &cell.setting));
        let mut grid = Grid {
            manifest,
            cells,
            round_trips: BTreeMap::new(),
        };
        let axes = manifest.axes.iter().map(|axis| axis.name.as_str());
        grid.round_trips = axes
            .map(|axis| (axis, scaled::of_axis(&grid, axis)))
            .filter(|(_, values)| !values.is_empty())
            .collect();
        grid
    }

    /// An axis by its name.
    pub fn axis(&self, name: &str) -> Option<&'a Axis> {
        self.manifest.axes.iter().find(|axis| axis.name == name)
    }

    /// Values of an axis that have a cell, in the axis's order.
    pub fn values(&self, name: &str) -> Vec<&'a str> {
        let used = |value: &&String| self.cells.iter().any(|cell| cell.value(name) == **value);
        self.axis(name).map_or_else(Vec::new, |axis| {
            axis.values
                .iter()
                .filter(used)
                .map(String::as_str)
                .collect()
        })
    }

    /// The cells that agree with `part` of a setting.
    pub fn cells_of<'s>(&'s self, part: &'s Setting) -> impl Iterator<Item = &'s Cell<'a>> {
        self.cells
            .iter()
            .filter(move |cell| part.iter().all(|(axis, value)| cell.value(axis) == value))
    }

    /// The cell with the same setting but this value of one axis.
    pub fn sibling(&self, cell: &Cell, axis: &str, value: &str) -> Option<&Cell<'a>> {
        let mut setting = cell.setting.clone();
        setting.insert(axis.to_owned(), value.to_owned());
        self.cells.iter().find(|other| other.setting == setting)
    }

    /// Every combination of values that these axes have in cells, in order; one empty one without axes.
    pub fn combinations(&self, axes: &[&str]) -> Vec<Setting> {
        let mut found: Vec<Setting> = Vec::new();
        for cell in &self.cells {
            let part: Setting = axes
                .iter()
                .map(|axis| ((*axis).to_owned(), cell.value(axis).to_owned()))
                .collect();
            if !found.contains(&part) {
                found.push(part);
            }
        }
        found.sort_by_key(|part| ranks(self.manifest, part));
        found
    }

    /// The value that others are compared with: the one that is a number and zero ("0%"), otherwise
    /// the first of the axis.
    pub fn baseline(&self, axis: &str) -> Option<&'a str> {
        let values = self.values(axis);
        let zero = |value: &&&str| axis_value::number(value).is_some_and(|(_, n)| n == 0.0);
        values.iter().find(zero).or(values.first()).copied()
    }

    /// Runs that are there, and how many of them do not count.
    pub fn counts(&self) -> (usize, usize) {
        let excluded = self.cells.iter().map(|c| c.excluded.len()).sum();
        let counted: usize = self.cells.iter().map(|c| c.runs.len()).sum();
        (counted + excluded, excluded)
    }

    /// The experiment's figures, without those over an axis that this form does not vary.
    pub fn figures(&self) -> impl Iterator<Item = &'a FigureSpec> + use<'a> {
        let manifest = self.manifest;
        let is_varied = |spec: &&FigureSpec| {
            let axis = manifest
                .axes
                .iter()
                .find(|axis| Some(&axis.name) == spec.x.as_ref());
            axis.is_none_or(|axis| axis.values.len() > 1)
        };
        manifest.figures.iter().filter(is_varied)
    }

    /// The number of different runs (setting and repeat); a repeated one counts once.
    pub fn distinct_runs(&self) -> usize {
        let repeats = |cell: &Cell| {
            let runs = cell.runs.iter().chain(&cell.excluded);
            runs.map(|run| run.repeat).collect::<BTreeSet<u32>>().len()
        };
        self.cells.iter().map(repeats).sum()
    }

    /// The value of an axis that most cells have (the first of several): where grids that vary other
    /// axes meet.
    pub fn commonest(&self, axis: &str) -> Option<&'a str> {
        let count = |value: &&str| {
            self.cells
                .iter()
                .filter(|c| c.value(axis) == *value)
                .count()
        };
        let values = self.values(axis);
        // Of equal counts `max_by_key` takes the last.
        values.into_iter().rev().max_by_key(count)
    }

    /// Axes with more than one value, which distinguish settings.
    pub fn reporting_axes(&self) -> Vec<&'a Axis> {
        let axes = self.manifest.axes.iter();
        axes.filter(|axis| self.values(&axis.name).len() > 1)
            .collect()
    }

    /// A setting in words, without the axes that everyone has alike: "cubic, loss 1%".
    pub fn words(&self, setting: &Setting) -> String {
        let word = |axis: &Axis| setting.get(&axis.name).map(|value| self.word(axis, value));
        let words: Vec<String> = self.reporting_axes().into_iter().filter_map(word).collect();
        words.join(", ")
    }

    /// Settings whose runs are all invalid.
    pub fn without_valid_run(&self) -> impl Iterator<Item = &Cell<'a>> {
        self.cells.iter().filter(|cell| cell.runs.is_empty())
    }

    /// A value with what it is a value of: "loss 1%", of "jitter, one way" "jitter 2ms"; names speak for
    /// themselves: "cubic".
    pub fn word(&self, axis: &Axis, value: &str) -> String {
        let title = axis.title();
        let subject = title.split(',').next().unwrap_or_default();
        let shown = self.shown(&axis.name, value);
        match axis_value::number(value) {
            Some(_) => format!("{subject} {shown}"),
            None => shown,
        }
    }

    /// A value of an axis as readers see it next to measurements: as written, or a scaled round trip as it
    /// was emulated ("5 ms" for "0.5ms" at a scale of 0.1).
    pub fn shown(&self, axis: &str, value: &str) -> String {
        match self.emulated(axis, value) {
            Some(seconds) => Unit::seconds().show(seconds),
            None => value.to_owned(),
        }
    }

    /// The emulated round trip of a value of an axis of scaled round trips, seconds; none on other axes.
    pub fn emulated(&self, axis: &str, value: &str) -> Option<f64> {
        self.round_trips.get(axis)?.get(value).copied()
    }
}

fn ranks(manifest: &Manifest, setting: &Setting) -> Vec<(usize, String)> {
    manifest
        .axes
        .iter()
        .filter_map(|axis| setting.get(&axis.name).map(|v| (axis.rank(v), v.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use crate::record::{Fault, FaultKind, FlowRecord};

    fn axis(name: &str, values: &[&str]) -> Axis {
        Axis {
            name: name.into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
            ..Axis::default()
        }
    }

    fn run(loss: &str, cc: &str, goodput_bps: f64, is_true: bool) -> RunRecord {
        let fault = Fault {
            kind: FaultKind::SharedCpu,
            text: "busy".into(),
        };
        RunRecord {
            setting: [("loss", loss), ("cc", cc)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
            flows: vec![FlowRecord {
                goodput_bps,
                ..FlowRecord::default()
            }],
            faults: if is_true { Vec::new() } else { vec![fault] },
            ..RunRecord::default()
        }
    }

    fn results() -> Results {
        Results {
            manifest: Manifest {
                axes: vec![
                    axis("loss", &["10%", "0%", "1%"]),
                    axis("cc", &["cubic", "bbr"]),
                ],
                ..Manifest::default()
            },
            runs: vec![
                run("1%", "bbr", 50.0, true),
                run("0%", "cubic", 90.0, true),
                run("0%", "cubic", 80.0, true),
                run("0%", "cubic", 5.0, false),
                run("0%", "cubic", 100.0, true),
                run("10%", "cubic", 1.0, false),
            ],
            ..Results::default()
        }
    }

    #[test]
    fn cells_stand_in_the_order_of_the_experiment() {
        let results = results();
        let grid = Grid::new(&results);
        let settings: Vec<String> = grid.cells.iter().map(|c| grid.words(&c.setting)).collect();
        assert_eq!(
            settings,
            ["loss 10%, cubic", "loss 0%, cubic", "loss 1%, bbr"]
        );
        assert_eq!(grid.counts(), (6, 2));
        assert_eq!(grid.baseline("loss"), Some("0%"));
        assert_eq!(grid.baseline("cc"), Some("cubic"));
        assert_eq!(grid.commonest("cc"), Some("cubic"));
        assert_eq!(grid.commonest("loss"), Some("10%"), "the first of equals");
        assert_eq!(grid.combinations(&["cc"]).len(), 2);
        assert_eq!(grid.combinations(&[]).len(), 1);
    }

    #[test]
    fn invalid_runs_are_excluded_from_medians() {
        let results = results();
        let grid = Grid::new(&results);
        let goodput = metrics::find("goodput").unwrap();
        let none = &grid.cells[0];
        assert_eq!((none.runs.len(), none.excluded.len()), (0, 1));
        assert_eq!(none.estimate(&goodput), None);
        let three = &grid.cells[1];
        let estimate = three.estimate(&goodput).unwrap();
        assert_eq!((estimate.value, estimate.samples), (90.0, 3));
        let interval = estimate.interval.unwrap();
        assert!((interval.confidence - 0.75).abs() < 1e-12, "{interval:?}");
        assert_eq!(three.typical(&goodput).unwrap().flows[0].goodput_bps, 90.0);
    }

    #[test]
    fn a_cell_finds_its_sibling() {
        let results = results();
        let grid = Grid::new(&results);
        let sibling = grid.sibling(&grid.cells[1], "loss", "10%").unwrap();
        assert_eq!(sibling.value("loss"), "10%");
        assert!(grid.sibling(&grid.cells[1], "loss", "1%").is_none());
    }
}
