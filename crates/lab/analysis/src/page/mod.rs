//! The report of a grid, finished or not: one value, which becomes HTML, Markdown, JSON, CSV and SVG.
//!
//! ```text
//! summary    sentences, each with the figure that shows it         sentences
//! results    the experiment's figures                              figures
//! comparison the same figures of two directories above each other  comparison
//! correlations rank correlations of quantities with axes       correlations
//! theory     models and measurements; the talk, for ripe88         tables
//! runs over time   rate, round trip, window and queue of single runs   over_time
//! validation achieved loss, lateness; invalid runs and reasons     validation
//! method     procedure and computations                            method
//! provenance machine, offloads, commands, every run                provenance
//!            processor time by part                            processors
//! ```
//!
//! Nothing here knows a result: all of it comes from the records and the manifest.

mod comparison;
mod correlations;
mod figures;
mod limits;
mod method;
mod over_time;
mod processors;
mod provenance;
mod runs_inside;
mod setting_table;
mod tables;
mod validation;

pub use comparison::comparison;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fairpath_report::{Fact, Notice, ReportDocument, Section};
use thiserror::Error;

use crate::grid::Grid;
use crate::results::Results;
use crate::{scaled, sentences, summary, talk};

/// Congestion controls with the first colours, so that each has one look on all pages.
const CONGESTION: [&str; 4] = ["cubic", "bbr", "reno", "fp_bbr3like"];
/// Files that could not be read, named on the page; more are only counted.
const MAX_NAMED_FILES: usize = 5;
/// Below this many runs no interval of a median reaches 95 %.
const RUNS_FOR_95_PERCENT: usize = 6;

/// A report that could not be written.
#[derive(Debug, Error)]
#[error("cannot write {path}: free space, or use another directory; runs are stored")]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// The report of these results.
pub fn report(results: &Results) -> ReportDocument {
    let grid = Grid::new(results);
    let manifest = &results.manifest;
    let figures = figures::all(&grid);
    let ids: Vec<String> = figures.iter().map(|figure| figure.id.clone()).collect();
    let mut sections = vec![figures::section(figures)];
    sections.extend(correlations::section(&grid));
    sections.extend(tables::theory(&grid));
    if talk::is_of(&manifest.experiment) {
        sections.extend(tables::talk(&grid));
    }
    sections.extend(over_time::section(&grid));
    sections.push(validation::section(&grid));
    sections.push(method::section(&grid));
    sections.push(provenance::section(&grid, results));
    ReportDocument {
        title: manifest.title.clone(),
        kicker: format!(
            "Fairpath lab: {}, {} form",
            manifest.experiment, manifest.form
        ),
        question: manifest.question.clone(),
        facts: facts(&grid),
        summary: sentences::headlines(&grid, &ids),
        notices: notices(&grid, results),
        sections: sections
            .into_iter()
            .filter(|s: &Section| !s.blocks.is_empty())
            .collect(),
        command: provenance::command_line(&manifest.command),
        made_by: format!("fairpath-lab {}", manifest.fairpath_version),
        first_colours: CONGESTION.map(str::to_owned).into(),
    }
}

/// Writes the report's files into `dir` and returns the path of its page. Every file is written next to
/// its place and then renamed, so a full disk leaves the former report intact.
///
/// # Errors
/// The directory or a file in it cannot be written.
pub fn write(results: &Results, dir: &Path) -> Result<PathBuf, WriteError> {
    write_document(&report(results), dir)
}

/// Writes the files of a report, as [`write`].
///
/// # Errors
/// The directory or a file in it cannot be written.
pub fn write_document(document: &ReportDocument, dir: &Path) -> Result<PathBuf, WriteError> {
    for file in fairpath_report::files(document) {
        let path = dir.join(&file.path);
        put(&path, file.content.as_bytes()).map_err(|source| WriteError { path, source })?;
    }
    Ok(dir.join("index.html"))
}

fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let mut temporary = tempfile::NamedTempFile::new_in(parent)?;
    io::Write::write_all(&mut temporary, content)?;
    let kept = temporary.persist(path)?;
    // Temporary files are private to their owner; a report has the permissions of its directory.
    kept.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
}

fn facts(grid: &Grid) -> Vec<Fact> {
    let manifest = grid.manifest;
    let (runs, excluded) = grid.counts();
    let distinct = grid.distinct_runs();
    let mut counted = format!("{distinct} of {}", manifest.runs_planned);
    for (count, what) in [(runs - distinct, "repeated"), (excluded, "excluded")] {
        if count > 0 {
            counted.push_str(&format!(", {count} {what}"));
        }
    }
    let mut facts = vec![
        Fact::new(
            "Date",
            manifest.started.get(..10).unwrap_or(&manifest.started),
        ),
        Fact::new("Runs", counted),
        Fact::new("Repeats", manifest.repeats.to_string()),
        Fact::new("Kernel", manifest.machine.kernel.clone()),
    ];
    if let Some(scale) = &manifest.scale {
        facts.push(Fact::new("Scale of rates", scale.factor.to_string()));
    }
    facts.extend(scaled::fact(grid).map(|words| Fact::new("Round trip", words)));
    facts
}

/// The limits of the results, the most serious first.
fn notices(grid: &Grid, results: &Results) -> Vec<Notice> {
    let manifest = grid.manifest;
    let (runs, excluded) = grid.counts();
    let mut notices = Vec::new();
    if runs == excluded {
        let why = if runs == 0 {
            "No run is complete"
        } else {
            "No run has a valid emulation"
        };
        notices.push(Notice::warning(format!("{why}: there are no results.")));
    } else if excluded > 0 {
        notices.push(Notice::warning(format!(
            "{excluded} of {runs} runs have an invalid emulation. The list of runs names the reasons. No figure includes \
             these runs."
        )));
    }
    if let (Some(settings), true) = (summary::without_valid_run(grid), excluded < runs) {
        notices.push(Notice::warning(format!(
            "No run of these settings is valid: {settings}. Figures show them as gaps."
        )));
    }
    notices.extend(unfinished(grid));
    notices.extend(unreadable(results));
    notices.extend(limits::not_again(grid));
    notices.extend(limits::mixed(results));
    if let Some(scale) = &manifest.scale {
        notices.push(Notice::note(scale.text.clone()));
    }
    notices.extend(manifest.remarks.iter().map(Notice::note));
    notices.extend(few_repeats(grid));
    notices
}

fn unfinished(grid: &Grid) -> Option<Notice> {
    let planned = grid.manifest.runs_planned as usize;
    let missing = planned.saturating_sub(grid.distinct_runs());
    (missing > 0).then(|| {
        Notice::warning(format!(
            "The experiment is incomplete: {missing} of {planned} runs are missing. Repeat the command to continue."
        ))
    })
}

fn unreadable(results: &Results) -> Option<Notice> {
    let all = &results.unreadable;
    (!all.is_empty()).then(|| {
        let named = all[..all.len().min(MAX_NAMED_FILES)].join("; ");
        Notice::warning(format!(
            "{} files could not be read as runs: {named}.",
            all.len()
        ))
    })
}

/// The certainty of so few runs, stated once for the whole page.
fn few_repeats(grid: &Grid) -> Option<Notice> {
    let min = grid
        .cells
        .iter()
        .map(|c| c.runs.len())
        .filter(|n| *n > 0)
        .min()?;
    if min >= RUNS_FOR_95_PERCENT {
        return None;
    }
    let text = match min {
        1 => "Some settings have a single valid run. Their points have no interval.".to_owned(),
        n => format!(
            "Some settings have only {n} valid runs. Intervals of their medians have {:.1}\u{a0}% confidence at most. \
             Each interval states its confidence.",
            100.0 * (1.0 - 0.5f64.powi(n as i32 - 1))
        ),
    };
    Some(Notice::note(text))
}
