//! `fairpath lab run ripe88 --quick`, whole, and held to what is known of it.
//!
//! As root: `cargo test -p fairpath-tests --test ripe88`. A test program of its own, so that no other
//! test runs meanwhile: it measures, for five minutes.
//!
//! Runs that were not true are out of all figures here, as on the page. A figure holds if one of two grids
//! shows it. One that true runs show otherwise fails the test; one that no true run shows, since others
//! have this machine's processors, tells nothing: a skip, printed and counted. Every grid's progress and
//! figures go to the terminal as they come.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use fairpath_analysis::grid::{Cell, Grid};
use fairpath_analysis::results;
use fairpath_report::statistics::median;
use fairpath_testbed::{Feature, Need, requires};
use fairpath_tests::binary::{fairpath, fairpath_lab};
use fairpath_units::skip_test;

/// Grids that are run until one holds everything.
const GRIDS: usize = 2;
/// What two processors carry that others use, too. And what models speak of: the kernel's clocks for lost
/// segments (RACK, tail loss probe) tick in 4 ms or so, and at a round trip of 0.5 ms CUBIC waits for them.
const SCALE: &str = "0.1";
/// CUBIC at 1 % beside the nearer of Mathis and RFC 9438.
const MODEL: f64 = 0.15;
/// Loss events of a cell that a model is held against: their rate is known to a tenth then.
const EVENTS: u64 = 100;
/// Without loss, of what the bottleneck lets through.
const BASELINE: f64 = 0.95;
/// BBR at 1 and 10 %, of itself without loss.
const BBR: [(&str, f64); 2] = [("1%", 0.85), ("10%", 0.70)];

/// Medians of true runs.
fn goodput(cell: &Cell) -> Option<f64> {
    let rates = cell.runs.iter().map(|run| run.flows[0].goodput_bps);
    median(&rates.collect::<Vec<f64>>())
}

/// Whether a setting has these values among its own.
fn of(setting: &BTreeMap<String, String>, part: &BTreeMap<String, String>) -> bool {
    part.iter()
        .all(|(axis, value)| setting.get(axis) == Some(value))
}

/// What a figure is found to be.
#[derive(Clone, Debug, PartialEq)]
enum Found {
    /// As it is to be.
    Holds(f64),
    /// True runs that say something else.
    Wrong(f64),
    /// No true run has it, or too little of it: this machine could not emulate it.
    Untold(String),
}

impl Found {
    /// A figure that `holds` tells of; none: no true run has one.
    fn judge(figure: Option<f64>, holds: impl Fn(f64) -> bool) -> Found {
        match figure {
            Some(figure) if holds(figure) => Found::Holds(figure),
            Some(figure) => Found::Wrong(figure),
            None => Found::Untold("no true run".to_owned()),
        }
    }

    /// What a later grid found of the same: a figure that was seen is not unseen again.
    fn then(self, later: Found) -> Found {
        match (&self, &later) {
            (Found::Holds(_), _) | (Found::Wrong(_), Found::Untold(_)) => self,
            _ => later,
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Holds(figure) => write!(out, "{figure:.3}, holds"),
            Found::Wrong(figure) => write!(out, "{figure:.3}, WRONG"),
            Found::Untold(why) => write!(out, "untold: {why}"),
        }
    }
}

/// Figures by what they are of.
type Figures = BTreeMap<String, Found>;

/// CUBIC at 1 % beside the nearer model, if it saw loss events enough to have a model.
fn beside_models(cell: &Cell) -> Found {
    let flows = cell.runs.iter().map(|run| &run.flows[0]);
    let events: u64 = flows
        .filter_map(|flow| Some(flow.loss_events.as_ref()?.events))
        .sum();
    if events < EVENTS {
        return Found::Untold(format!("{events} loss events, {EVENTS} are needed"));
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
                judged,
            );
        }
        found.insert(
            format!("{path} cubic at 1 %, off the nearer model"),
            beside_models(cell("cubic", "1%")),
        );
        let whole = goodput(cell("bbr", "0%"));
        for (loss, least) in BBR {
            let kept = goodput(cell("bbr", loss)).zip(whole);
            let kept = kept.map(|(some, all)| some / all);
            found.insert(
                format!("{path} bbr at {loss}, of itself without loss"),
                Found::judge(kept, |kept| kept >= least),
            );
        }
    }
    found
}

/// To the terminal at once, whatever becomes of the test.
fn tell(text: &str) {
    // Nobody to tell: the test's end says it again.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Runs the grid into `place`, telling what it tells.
fn run(place: &Path) -> Figures {
    let mut command = Command::new(fairpath_lab());
    command
        .args(["run", "ripe88", "--quick", "--scale", SCALE, "--out"])
        .arg(place)
        .arg("--fairpath")
        .arg(fairpath())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut last = String::new();
    for line in lines.map_while(Result::ok) {
        tell(&line);
        last = line;
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {last}");
    let results = results::read(place).unwrap();
    figures(&Grid::new(&results))
}

fn texts(found: &Figures) -> String {
    let line = |(what, found): (&String, &Found)| format!("ripe88: {what}: {found}");
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn ripe88_is_what_models_and_the_talk_say() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ethtool"),
        Need::Kernel(Feature::CongestionControl("bbr"))
    );
    let mut found = Figures::new();
    for _ in 0..GRIDS {
        let place = tempfile::tempdir().unwrap();
        for (what, later) in run(place.path()) {
            let merged = match found.remove(&what) {
                Some(before) => before.then(later),
                None => later,
            };
            found.insert(what, merged);
        }
        tell(&texts(&found));
        if found.values().all(|found| matches!(found, Found::Holds(_))) {
            return;
        }
    }
    let told = texts(&found);
    let wrong = found.values().any(|found| matches!(found, Found::Wrong(_)));
    assert!(!wrong, "{told}");
    skip_test(
        "ripe88_is_what_models_and_the_talk_say",
        "processors that are free",
        &told.replace('\n', "; "),
    );
}

#[test]
fn a_wrong_figure_is_not_made_good_by_a_grid_that_tells_nothing() {
    let untold = || Found::Untold("no true run".to_owned());
    assert_eq!(Found::Wrong(0.5).then(untold()), Found::Wrong(0.5));
    assert_eq!(Found::Wrong(0.5).then(Found::Holds(0.9)), Found::Holds(0.9));
    assert_eq!(Found::Holds(0.9).then(Found::Wrong(0.5)), Found::Holds(0.9));
    assert_eq!(untold().then(Found::Wrong(0.5)), Found::Wrong(0.5));
    assert_eq!(Found::judge(None, |_| true), untold());
}
