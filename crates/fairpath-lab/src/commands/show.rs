//! `fairpath lab show NAME`: an experiment in words, or as it is written.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args as ClapArgs;

use crate::experiment::{Document, words};
use crate::metrics;

/// Which, and how.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Name of a shipped experiment, or a file that ends in .toml
    #[arg(value_name = "NAME|FILE.toml", required_unless_present = "metrics")]
    experiment: Option<String>,
    /// List the quantities that a figure's y may be
    #[arg(long, conflicts_with_all = ["toml", "experiment"])]
    metrics: bool,
    /// Print its file, to be changed and run
    #[arg(long)]
    toml: bool,
}

/// Prints it.
///
/// # Errors
/// No such experiment, or one that is refused.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let text = match &args.experiment {
        None => quantities(),
        Some(name) => {
            let document = Document::open(name)?;
            if args.toml {
                document.text().to_owned()
            } else {
                words::shown(&document)
            }
        }
    };
    io::stdout()
        .write_all(text.as_bytes())
        .context("write the experiment")
}

/// A line for each quantity: its name and how it is computed.
fn quantities() -> String {
    let line = |metric: &metrics::Metric| format!("{:<20} {}\n", metric.name, metric.about);
    metrics::all().map(line).collect()
}
