//! `fairpath lab list`: the experiments of the binary.

use std::fmt::Write as _;
use std::time::Duration;

use fairpath_analysis::experiment::{Document, FormName, shipped};
use serde::Serialize;

use super::Format;
use crate::progress::written;
use crate::words::cost;

/// List the experiments of the binary, with the duration of the quick form and the question.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    fairpath lab list\n  \
    fairpath lab list --format json")]
pub struct Args {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Serialize)]
struct ExperimentRow {
    name: String,
    quick_seconds: f64,
    question: String,
}

/// Prints a line or an object for each experiment.
///
/// # Errors
/// An experiment is invalid, or standard output fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let rows = rows()?;
    if args.format == Format::Json {
        let text = serde_json::to_string_pretty(&rows)?;
        return fairpath_cli::print(format_args!("{text}\n"));
    }
    fairpath_cli::print(text(&rows))
}

fn rows() -> anyhow::Result<Vec<ExperimentRow>> {
    let row = |name: String| {
        let document = Document::open(&name)?;
        let (_, quick_seconds) = cost(&document, FormName::Quick);
        Ok(ExperimentRow {
            name,
            quick_seconds,
            question: document.base().question.clone(),
        })
    };
    shipped::names().map(row).collect()
}

fn text(rows: &[ExperimentRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let quick = written(Duration::from_secs_f64(row.quick_seconds));
        let _ = writeln!(text, "{:<14} {quick:>11}  {}", row.name, row.question);
    }
    text
}

#[cfg(test)]
mod tests {
    const GUIDE: &str = include_str!("../../../../../docs/guide/lab.md");

    #[test]
    fn the_guide_shows_this_list() {
        let text = super::text(&super::rows().unwrap());
        assert!(
            GUIDE.contains(&text),
            "docs/guide/lab.md must contain:\n{text}"
        );
    }
}
