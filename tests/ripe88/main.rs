//! `fairpath lab run ripe88 --quick`, whole, and held to what is known of it.
//!
//! As root: `cargo test -p fairpath-tests --features soak --test ripe88` (`make soak`). A test program
//! of its own, so that no other test runs meanwhile: it measures.
//!
//! Runs that were not true are out of all figures here, as on the page. A machine on which a setting
//! has no true run in two grids, since others have its processors, tells nothing: a skip, printed.

#![cfg(feature = "soak")]

use std::collections::BTreeMap;
use std::process::Command;

use fairpath_lab::analysis::grid::{Cell, Grid};
use fairpath_lab::results;
use fairpath_report::statistics::median;
use fairpath_testbed::{Feature, Need, requires};
use fairpath_tests::binary::{fairpath, fairpath_lab};
use fairpath_units::skip_test;

/// Grids that are run until one holds everything.
const GRIDS: usize = 2;
/// Grids for which no scale is found, which ends them after a minute: so many more are begun.
const UNSCALED: usize = 3;
/// CUBIC at 1 % beside the nearer of Mathis and RFC 9438.
const MODEL: f64 = 0.15;
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

/// Why a grid shows less than it is to show, in words.
enum Miss {
    /// A setting without a true run: this machine could not emulate it.
    Untold(String),
    /// True runs that say something else.
    Wrong(String),
}

impl Miss {
    fn text(&self) -> String {
        match self {
            Miss::Untold(what) => format!("untold: {what}"),
            Miss::Wrong(what) => what.clone(),
        }
    }
}

/// A figure that is to be as `holds` says; none: no true run has one.
fn judge(misses: &mut Vec<Miss>, what: String, figure: Option<f64>, holds: impl Fn(f64) -> bool) {
    match figure {
        Some(figure) if holds(figure) => {}
        Some(figure) => misses.push(Miss::Wrong(format!("{what}: {figure:.3}"))),
        None => misses.push(Miss::Untold(what)),
    }
}

/// What does not hold.
fn misses(grid: &Grid) -> Vec<Miss> {
    let mut misses = Vec::new();
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
            let what = format!("{path} {cc} without loss, of what the link lets through");
            judge(&mut misses, what, share, |share| {
                (share - 1.0).abs() <= 1.0 - BASELINE
            });
        }
        let residual = cell("cubic", "1%").theory().map(|row| row.nearest.1.value);
        let what = format!("{path} cubic at 1 %, off the nearer model");
        judge(&mut misses, what, residual, |off| off.abs() <= MODEL);
        let whole = goodput(cell("bbr", "0%"));
        for (loss, least) in BBR {
            let kept = goodput(cell("bbr", loss)).zip(whole);
            let what = format!("{path} bbr at {loss}, of itself without loss");
            let kept = kept.map(|(some, all)| some / all);
            judge(&mut misses, what, kept, |kept| kept >= least);
        }
    }
    misses
}

fn texts(misses: &[Miss]) -> String {
    let texts: Vec<String> = misses.iter().map(Miss::text).collect();
    texts.join("; ")
}

#[test]
fn ripe88_is_what_models_and_the_talk_say() {
    requires!(
        Need::Root,
        Need::Tool("iperf3"),
        Need::Tool("ethtool"),
        Need::Kernel(Feature::CongestionControl("bbr"))
    );
    let mut last = Vec::new();
    let (mut whole, mut unscaled) = (0, 0);
    while whole < GRIDS && unscaled <= UNSCALED {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(fairpath_lab());
        command
            .args(["run", "ripe88", "--quick", "--out"])
            .arg(place.path());
        let output = command.arg("--fairpath").arg(fairpath()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            // No scale was true while others used the machine: this grid is missed, the next may not be.
            unscaled += 1;
            last = vec![Miss::Untold(format!("it ended with {}", output.status))];
            eprintln!("{told}");
            continue;
        }
        whole += 1;
        let results = results::read(place.path()).unwrap();
        last = misses(&Grid::new(&results));
        if last.is_empty() {
            return;
        }
        eprintln!("{told}{}", texts(&last));
    }
    let told = format!(
        "{whole} grids, {unscaled} without a scale: {}",
        texts(&last)
    );
    let wrong = last.iter().any(|miss| matches!(miss, Miss::Wrong(_)));
    assert!(!wrong, "{told}");
    skip_test(
        "ripe88_is_what_models_and_the_talk_say",
        "processors that are free",
        &told,
    );
}
