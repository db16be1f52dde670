//! The result of `class check` as text, or as one JSON object per line.
//!
//! `schema` changes when a key changes its meaning or is removed.

use fairpath_class::{ClassReport, Problem, ProblemKind, Severity};
use fairpath_units::counted;
use serde::Serialize;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct ProblemLine<'a> {
    schema: u32,
    r#type: &'static str,
    severity: Severity,
    problem: ProblemKind,
    file: &'a str,
    line: u32,
    column: u32,
    class: Option<&'a str>,
    text: &'a str,
}

#[derive(Serialize)]
struct SummaryLine {
    schema: u32,
    r#type: &'static str,
    classes: usize,
    prefixes: usize,
    levels: u32,
    labels: usize,
    errors: usize,
    warnings: usize,
}

/// One line per problem, and a summary.
pub fn text(report: &ClassReport) -> String {
    let mut text: String = report
        .problems
        .iter()
        .map(|problem| format!("{problem}\n"))
        .collect();
    let omitted = report.errors + report.warnings - report.problems.len();
    if omitted > 0 {
        text += &format!("{omitted} more problems\n");
    }
    let labels = match report.labels {
        0 => String::new(),
        labels => format!(
            ", {}",
            counted(labels, "labelled prefix", "labelled prefixes")
        ),
    };
    text += &format!(
        "{}, {}, {}{labels}: {}\n",
        counted(report.classes, "class", "classes"),
        counted(report.prefixes, "prefix", "prefixes"),
        counted(report.levels as usize, "level", "levels"),
        counts(report)
    );
    text
}

/// `no errors, 2 warnings`.
pub fn counts(report: &ClassReport) -> String {
    format!(
        "{}, {}",
        counted(report.errors, "error", "errors"),
        counted(report.warnings, "warning", "warnings")
    )
}

/// The problems in the order of the files, and the summary.
pub fn json(report: &ClassReport) -> serde_json::Result<String> {
    let mut lines = String::new();
    for problem in &report.problems {
        lines += &serde_json::to_string(&line(problem))?;
        lines.push('\n');
    }
    lines += &serde_json::to_string(&SummaryLine {
        schema: SCHEMA,
        r#type: "summary",
        classes: report.classes,
        prefixes: report.prefixes,
        levels: report.levels,
        labels: report.labels,
        errors: report.errors,
        warnings: report.warnings,
    })?;
    lines.push('\n');
    Ok(lines)
}

fn line(problem: &Problem) -> ProblemLine<'_> {
    ProblemLine {
        schema: SCHEMA,
        r#type: "problem",
        severity: problem.severity,
        problem: problem.kind,
        file: &problem.location.file,
        line: problem.location.line,
        column: problem.location.column,
        class: problem.class.as_deref(),
        text: &problem.text,
    }
}
