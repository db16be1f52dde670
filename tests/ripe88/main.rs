//! `fairpath lab run ripe88 --quick`, all of its cells, compared with known results.
//!
//! As root: `cargo test -p fairpath-tests --test ripe88`. A separate test program, so no other
//! test runs at the same time: it measures, for two minutes, or five with `FAIRPATH_TEST_SHARE=full`.
//!
//! No figure here includes an invalid run, as on the page. If a figure is missing, or out of its range,
//! its cells are run again with other seeds, and the figure is that of all valid runs until then. Each
//! repetition is reported and counted, except a few that replace invalid runs before figures are judged. After the last one, a figure out of range fails
//! the test, and so does one without a valid run: a skip for it could never be contradicted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairpath_analysis::grid::{Cell, Grid};
use fairpath_analysis::results::{self, Results};
use fairpath_report::statistics::median;
use fairpath_testbed::{Feature, Need, requires, with_default_signals};
use fairpath_tests::binary::{fairpath, fairpath_lab};
use fairpath_units::{Disturbed, Share, repeat_disturbed};

/// Times that figures are judged, the cells of those that do not hold being run once more before each.
const TIMES: u32 = 6;
/// More runs of cells whose runs were invalid, until a figure is judged for the first time: the host of a
/// virtual machine may take the processors for milliseconds, in most runs. No figure has them.
const REPLACED: u32 = 12;
/// Repetitions of the quick form; in `make test` there is one.
const REPEATS: &str = "[form.quick]\nrepeats = 3\n";
const ONE: &str = "[form.quick]\nrepeats = 1\n";
/// The experiment's own, and those of later runs: fixed, since figures of a few runs have limits in percent.
const SEED: u32 = 88;
/// A rate that two shared processors can carry. And what models speak of: the kernel's clocks for lost
/// segments (RACK, tail loss probe) tick in 4 ms or so, and at a round trip of 0.5 ms CUBIC waits for
/// them.
const SCALE: &str = "0.1";
/// CUBIC at 1 %, compared with the nearest of Mathis and RFC 9438.
const MODEL: f64 = 0.15;
/// Loss events of a cell for a comparison with a model: their rate is known to 10 % then.
const EVENTS: u64 = 100;
/// Without loss, of what the bottleneck lets through.
const BASELINE: f64 = 0.95;
/// BBR at 1 and 10 %, of itself without loss.
const BBR: [(&str, f64); 2] = [("1%", 0.85), ("10%", 0.70)];

/// Medians of valid runs.
fn goodput(cell: &Cell) -> Option<f64> {
    let rates = cell.runs.iter().map(|run| run.flows[0].goodput_bps);
    median(&rates.collect::<Vec<f64>>())
}

/// True if a setting has these values among its own.
fn of(setting: &BTreeMap<String, String>, part: &BTreeMap<String, String>) -> bool {
    part.iter()
        .all(|(axis, value)| setting.get(axis) == Some(value))
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    /// In its range.
    Holds(f64),
    /// Valid runs with another result.
    Wrong(f64),
    /// No valid run has it, or too little of it.
    Missing(String),
}

impl Found {
    /// A figure of `holds`; none: no valid run has one.
    fn judge(figure: Option<f64>, holds: impl Fn(f64) -> bool) -> Found {
        match figure {
            Some(figure) if holds(figure) => Found::Holds(figure),
            Some(figure) => Found::Wrong(figure),
            None => Found::Missing("no valid run".to_owned()),
        }
    }

    fn is_missing(&self) -> bool {
        matches!(self, Found::Missing(_))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Holds(figure) => write!(out, "{figure:.3}, holds"),
            Found::Wrong(figure) => write!(out, "{figure:.3}, WRONG"),
            Found::Missing(why) => write!(out, "missing: {why}"),
        }
    }
}

/// A cell of the grid: path, congestion control, loss.
type Place = [&'static str; 3];
/// The kinds of figures, and the cells of each.
type Figures = BTreeMap<String, (Found, Vec<Place>)>;

/// CUBIC at 1 %, compared with the nearest model, if it had enough loss events.
fn against_models(cell: &Cell) -> Found {
    let flows = cell.runs.iter().map(|run| &run.flows[0]);
    let events: u64 = flows
        .filter_map(|flow| Some(flow.loss_events.as_ref()?.events))
        .sum();
    if events < EVENTS {
        return Found::Missing(format!("{events} loss events, {EVENTS} are needed"));
    }
    let residual = cell.theory().map(|row| row.nearest.1.value);
    Found::judge(residual, |off| off.abs() <= MODEL)
}

/// All figures of a grid.
fn figures(grid: &Grid) -> Figures {
    let mut found = Figures::new();
    for path in ["symmetric", "asymmetric"] {
        let cell = |cc: &str, loss: &str| {
            let setting = [("path", path), ("cc", cc), ("loss", loss)];
            let part = setting.map(|(axis, value)| (axis.to_owned(), value.to_owned()));
            let part = part.into();
            let cell = grid.cells.iter().find(|cell| of(&cell.setting, &part));
            cell.expect("a cell of the grid")
        };
        for cc in ["cubic", "bbr"] {
            let share = cell(cc, "0%").runs.iter().map(|run| {
                let bottleneck = run.bottleneck.as_ref().expect("a link with a rate");
                run.flows[0].goodput_bps / bottleneck.goodput_limit_bps
            });
            let share = median(&share.collect::<Vec<f64>>());
            let judged = Found::judge(share, |share| (share - 1.0).abs() <= 1.0 - BASELINE);
            found.insert(
                format!("{path} {cc} without loss, of what the link lets through"),
                (judged, vec![[path, cc, "0%"]]),
            );
        }
        found.insert(
            format!("{path} cubic at 1 %, off the nearer model"),
            (
                against_models(cell("cubic", "1%")),
                vec![[path, "cubic", "1%"]],
            ),
        );
        let whole = goodput(cell("bbr", "0%"));
        for (loss, min) in BBR {
            let kept = goodput(cell("bbr", loss)).zip(whole);
            let kept = kept.map(|(some, all)| some / all);
            found.insert(
                format!("{path} bbr at {loss}, of itself without loss"),
                (
                    Found::judge(kept, |kept| kept >= min),
                    vec![[path, "bbr", "0%"], [path, "bbr", loss]],
                ),
            );
        }
    }
    found
}

/// To the terminal at once, for any outcome of the test.
fn report(text: &str) {
    // No terminal: the end of the test repeats it.
    let _ = writeln!(io::stderr(), "{text}");
}

/// The experiment as it is shipped, with the repetitions of this share, as a file in `place`.
fn experiment(place: &Path, share: Share) -> PathBuf {
    let mut show = Command::new(fairpath_lab());
    let shown = show.args(["show", "ripe88", "--toml"]).output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains(REPEATS), "{text}");
    let file = place.join("ripe88.toml");
    fs::write(&file, text.replace(REPEATS, share.choose(REPEATS, ONE))).unwrap();
    file
}

/// Runs the grid, or one cell of it, and prints its output.
fn run(experiment: &Path, seed: u32, only: Option<&Place>) -> Results {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(fairpath_lab());
    command.arg("run").arg(experiment);
    command.args(["--quick", "--scale", SCALE, "--seed", &seed.to_string()]);
    for (axis, value) in ["path", "cc", "loss"]
        .iter()
        .zip(only.into_iter().flatten())
    {
        command.args(["--select", &format!("{axis}={value}")]);
    }
    command
        .arg("--output")
        .arg(place.path())
        .arg("--fairpath")
        .arg(fairpath())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = with_default_signals(&mut command).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut last = String::new();
    for line in lines.map_while(Result::ok) {
        report(&line);
        last = line;
    }
    let status = child.wait().unwrap();
    // 3: finished, and a setting has no valid run, which the caller counts.
    assert!(matches!(status.code(), Some(0 | 3)), "{status}: {last}");
    let read = results::read(place.path()).unwrap();
    assert_eq!(read.unreadable, [""; 0]);
    read
}

fn texts<'a>(found: impl IntoIterator<Item = (&'a String, &'a (Found, Vec<Place>))>) -> String {
    let line = |(what, (found, _)): (&String, &(Found, Vec<Place>))| format!("{what}: {found}");
    found.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn cells_of<'a>(figures: impl IntoIterator<Item = &'a (Found, Vec<Place>)>) -> BTreeSet<Place> {
    let cells = figures.into_iter().flat_map(|(_, cells)| cells);
    cells.copied().collect()
}

fn holds((_, (found, _)): &(&String, &(Found, Vec<Place>))) -> bool {
    matches!(found, Found::Holds(_))
}

#[test]
fn ripe88_agrees_with_models_and_the_talk() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ethtool"),
        Need::Kernel(Feature::CongestionControl("bbr"))
    );
    let place = tempfile::tempdir().unwrap();
    let share = Share::reported();
    let experiment = experiment(place.path(), share);
    let mut results = run(&experiment, SEED, None);
    // One run has about 65 loss events, of which a model needs more.
    let models = ["symmetric", "asymmetric"].map(|path| [path, "cubic", "1%"]);
    for cell in share.choose(&[][..], &models) {
        let more = run(&experiment, SEED + 1, Some(cell));
        results.runs.extend(more.runs);
    }
    let mut failed = BTreeSet::<Place>::new();
    let test = "ripe88::ripe88_agrees_with_models_and_the_talk";
    let mut seeds = SEED + 2..;
    let mut once_more = |results: &mut Results, cells: &BTreeSet<Place>| {
        for cell in cells {
            let more = run(&experiment, seeds.next().expect("a seed"), Some(cell));
            results.runs.extend(more.runs);
        }
    };
    for _ in 0..REPLACED {
        let found = figures(&Grid::new(&results));
        let missing = cells_of(found.values().filter(|(found, _)| found.is_missing()));
        if missing.is_empty() {
            break;
        }
        once_more(&mut results, &missing);
    }
    repeat_disturbed(test, TIMES, |_| {
        once_more(&mut results, &failed);
        let found = figures(&Grid::new(&results));
        report(&texts(&found));
        let wanting: Vec<_> = found.iter().filter(|figure| !holds(figure)).collect();
        failed = cells_of(wanting.iter().map(|(_, figure)| *figure));
        Disturbed::unless(wanting.is_empty(), texts(wanting))
    });
}

#[test]
fn a_criterion_without_valid_runs_fails() {
    let missing = Found::judge(None, |_| true);
    assert_eq!(missing, Found::Missing("no valid run".to_owned()));
    assert_eq!(Found::judge(Some(0.5), |_| false), Found::Wrong(0.5));
    let figure = (String::from("figure"), (missing, Vec::new()));
    assert!(!holds(&(&figure.0, &figure.1)));
}
